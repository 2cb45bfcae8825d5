#!/usr/bin/env python3
"""What an epilogue costs inside a kernel: bias, residual and SiLU beside the bare convolution, in the same config.

    python bench/epilogue_cost.py half.json --json epilogue.json       # the rows of a report of `convtune tune --json`

Each row's algorithm and config are run both ways in turns on random data, the second-level cache flushed before each
run; medians. A config that has no room for the residual gives up stages, in both ways. The residual is one more tensor
to read: `allowed_us` is its bytes by the report's copy rate, and `ratio` is what is left after it, over the bare time.
Needs PyTorch, the convtune package and a GPU. Exit codes: 0 done, 2 nothing could be measured.
"""

import argparse
import json
import math
import re
import statistics
import sys
from concurrent.futures import ThreadPoolExecutor

import convtune
import torch

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FULL = {"bias": True, "residual": True, "activation": "silu"}
BARE = {"bias": False, "residual": False, "activation": "none"}


def fewer_stages(config):
    """The config with a stage less, or None where it has no more to give."""
    found = re.search(r"\bstages=(\d+)", config)
    if not found or int(found[1]) <= 2:
        return None
    return f"{config[:found.start(1)]}{int(found[1]) - 1}{config[found.end(1):]}"


def planned(row):
    """The row's kernel both ways, in the first config that both accept; None where it is the vendor's."""
    ours = next((one for one in row["providers"] if one["name"] == "convtune"), None)
    if ours is None or ours["algorithm"] in ("cudnn", "onednn"):
        return None
    problem, config = convtune.Problem.parse(row["problem"]), ours["config"]
    while config is not None:
        try:
            return [convtune.Convolution(problem.replace(**way), "cuda:0", ours["algorithm"], config)
                    for way in (BARE, FULL)]
        except convtune.Error as error:
            refusal, config = error, fewer_stages(config)
    raise refusal


class Run:
    """A convolution and its random tensors."""

    def __init__(self, convolution, generator):
        a = self.problem = convolution.problem
        self.convolution, self.kept = convolution, {}

        def random(*shape):
            values = torch.rand(shape, generator=generator, device="cuda") * 2 - 1
            return values.to(TYPES[a.dtype])

        y = convolution.output_shape
        self.tensors = {"x": random(a.n, a.c, a.h, a.w), "y": random(*y), "residual": random(*y)}
        self.packed = torch.empty(convolution.packed_bytes, dtype=torch.uint8, device="cuda")
        w, bias = random(a.k, a.c // a.groups, a.r, a.s), random(a.k)
        convolution.pack_raw(w.data_ptr(), bias.data_ptr() if a.bias else 0, self.packed.data_ptr(),
                             torch.cuda.current_stream().cuda_stream)
        torch.cuda.synchronize()
        self.addresses = {name: tensor.data_ptr() for name, tensor in self.tensors.items()
                          if name != "residual" or a.residual}

    def __call__(self):
        self.convolution.run_tensors_raw(packed=self.packed.data_ptr(),
                                         stream=torch.cuda.current_stream().cuda_stream, **self.addresses)


def in_turns(runs, rounds):
    """The median time of each in microseconds."""
    flush = torch.empty(64 << 20, dtype=torch.int32, device="cuda")
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times = [[] for _ in runs]
    for round_ in range(rounds + 2):
        for run, samples in zip(runs, times):
            flush.add_(1)
            start.record()
            run()
            stop.record()
            stop.synchronize()
            if round_ >= 2:  # the first two warm up
                samples.append(1000 * start.elapsed_time(stop))
    return [statistics.median(samples) for samples in times]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="what `convtune tune --json` wrote")
    parser.add_argument("--rounds", type=int, default=31, help="runs of each way (default: 31)")
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    with open(options.report, encoding="utf-8") as file:
        rows = json.load(file)["rows"]

    def plan(row):
        try:
            return planned(row)
        except convtune.Error as error:
            return error

    with ThreadPoolExecutor(8) as pool:  # compiling takes far longer than running
        plans = list(pool.map(plan, rows))
    results = []
    print(f"{'case':<32} {'algorithm':<24} {'bare us':>9} {'full us':>9} {'residual us':>11} {'ratio':>6}")
    for row, pair in zip(rows, plans):
        if pair is None or isinstance(pair, convtune.Error):
            print(f"{row['case']:<32} {pair or 'the vendor was kept'}")
            continue
        generator = torch.Generator("cuda").manual_seed(1)
        bare, full = in_turns([Run(one, generator) for one in pair], options.rounds)
        extra = math.prod(pair[1].output_shape) * (4 if pair[1].problem.dtype == "f32" else 2)
        allowed = 1e6 * extra / row["roofline"]["bytes_per_second"]
        results.append({"case": row["case"], "algorithm": pair[0].plan.algorithm, "config": pair[0].plan.config,
                        "bare_us": bare, "full_us": full, "allowed_us": allowed, "ratio": (full - allowed) / bare})
        print(f"{row['case']:<32} {pair[0].plan.algorithm:<24} {bare:>9.1f} {full:>9.1f} {allowed:>11.1f} "
              f"{results[-1]['ratio']:>6.3f}", flush=True)
    if not results:
        print("epilogue_cost: error: no row of the report has a kernel of ours", file=sys.stderr)
        return 2
    mean = math.exp(statistics.fmean(math.log(one["ratio"]) for one in results))
    print(f"{len(results)} rows, geometric mean of the ratios {mean:.3f}, largest "
          f"{max(one['ratio'] for one in results):.3f}")
    if options.json:
        environment = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "convtune": convtune.__version__, "rounds": options.rounds}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"environment": environment, "rows": results, "geometric_mean": mean}, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
