#!/usr/bin/env python3
"""What an epilogue costs inside a kernel: bias, residual and SiLU beside the bare convolution, in the same config.

    python bench/epilogue_cost.py half.json --json epilogue.json       # the rows of a report of `convtune tune --json`

    python bench/epilogue_cost.py half.json --forms forms.txt          # the same layers in all forms, a suite
    convtune tune --suite ./forms.txt --json forms.json
    python bench/epilogue_cost.py half.json --own forms.json           # each form in what was tuned for it; bare and
                                                                       # full forms are enough
    python bench/epilogue_cost.py half.json --guessed                  # each form in the planner's own answer

Each row's algorithm and config are run bare, with bias and SiLU, with bias and residual, and with all three, in turns
on random data; medians. A config that has no room for the residual gives up stages, in all of them; where that does not
do, it is the algorithm's first guess for all three. With --own each form has what a report of its own says is the best
of ours, as who tunes a network gets it: what differs then is an epilogue beside a bare convolution, not a kernel beside
itself. --guessed is the same with plans as they come. The second-level cache is flushed before each run in two ways:

    written   it is full of what must be written back before anything else has its place, as a network leaves it.
              Bytes that an epilogue reads besides then cost twice.
    read      it is full of what can be dropped

The residual is one more tensor to read: `allowed_us` is its bytes by the report's copy rate, and `ratio` is what is
left after it, over the bare time. No kernel that waits for its bytes and moves them slower than a copy can have a ratio
of 1; `rate` is the bytes a second of the whole over those of the bare convolution. `nothing_us` is what the clock says
of no work at all; it is in all the times.
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
FORMS = {
    "bare": {"bias": False, "residual": False, "activation": "none"},
    "silu": {"bias": True, "residual": False, "activation": "silu"},
    "residual": {"bias": True, "residual": True, "activation": "none"},
    "full": {"bias": True, "residual": True, "activation": "silu"},
}


def fewer_stages(config):
    """The config with a stage less, or None where it has no more to give."""
    found = re.search(r"\bstages=(\d+)", config)
    if not found or int(found[1]) <= 2:
        return None
    return f"{config[:found.start(1)]}{int(found[1]) - 1}{config[found.end(1):]}"


def best_of_ours(row):
    ours = next((one for one in row["providers"] if one["name"] == "convtune"), None)
    return None if ours is None or ours["algorithm"] in ("cudnn", "onednn") else ours


def planned_by(row, own):
    """The forms of the row's layer that were tuned, each in its own config; None where the bare one or the one with
    everything was not, or is the vendor's."""
    forms = {}
    for name, form in FORMS.items():
        problem = convtune.Problem.parse(row["problem"]).replace(**form)
        ours = own.get(problem.key) and best_of_ours(own[problem.key])
        if ours is not None:
            forms[name] = convtune.Convolution(problem, "cuda:0", ours["algorithm"], ours["config"])
    return forms if "bare" in forms and "full" in forms else None


def guessed(row):
    """All forms of the row's layer as `plan` answers; None where that is the vendor's."""
    problem = convtune.Problem.parse(row["problem"])
    forms = {name: convtune.Convolution(problem.replace(**form), "cuda:0") for name, form in FORMS.items()}
    return None if any(one.plan.algorithm == "cudnn" for one in forms.values()) else forms


def planned(row):
    """The row's kernel in all forms, in the first config that all accept; None where it is the vendor's."""
    ours = best_of_ours(row)
    if ours is None:
        return None
    problem, algorithm, config = convtune.Problem.parse(row["problem"]), ours["algorithm"], ours["config"]

    def forms(config):
        return {name: convtune.Convolution(problem.replace(**form), "cuda:0", algorithm, config)
                for name, form in FORMS.items()}

    while config is not None:
        try:
            return forms(config)
        except convtune.Error:
            config = fewer_stages(config)
    return forms(convtune.Convolution(problem.replace(**FORMS["full"]), "cuda:0", algorithm).plan.config)


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


class Flush:
    """The ways to empty the second-level cache, and the clock."""

    def __init__(self):
        self.bytes = torch.zeros(64 << 20, dtype=torch.float32, device="cuda")
        self.sum = torch.zeros((), dtype=torch.float32, device="cuda")
        self.start, self.stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.ways = {"written": lambda: self.bytes.add_(1), "read": lambda: torch.sum(self.bytes, 0, out=self.sum)}

    def times(self, runs, rounds):
        """The median time of each run behind each flush, in microseconds."""
        samples = {way: {name: [] for name in runs} for way in self.ways}
        for round_ in range(rounds + 2):
            for way, flush in self.ways.items():
                for name, run in runs.items():
                    flush()
                    self.start.record()
                    run()
                    self.stop.record()
                    self.stop.synchronize()
                    if round_ >= 2:  # the first two warm up
                        samples[way][name].append(1000 * self.start.elapsed_time(self.stop))
        return {way: {f"{name}_us": statistics.median(times) for name, times in named.items()}
                for way, named in samples.items()}


def rows_of(report):
    with open(report, encoding="utf-8") as file:
        return json.load(file)["rows"]


def write_forms(rows, path):
    """A suite: each row's layer in all forms, named after both."""
    with open(path, "w", encoding="utf-8") as file:
        for row in rows:
            problem = convtune.Problem.parse(row["problem"])
            for name, form in FORMS.items():
                print(problem.replace(**form, name=f"{row['case']}_{name}"), file=file)


def geometric_mean(values):
    return math.exp(statistics.fmean(math.log(value) for value in values))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", help="what `convtune tune --json` wrote")
    parser.add_argument("--rounds", type=int, default=31, help="runs of each form (default: 31)")
    parser.add_argument("--json", help="write the results to this file")
    parser.add_argument("--forms", metavar="FILE", help="write the layers in all forms to this file, and end")
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--own", metavar="REPORT", help="what `convtune tune --json` wrote of those")
    ways.add_argument("--guessed", action="store_true", help="plan each form by itself")
    options = parser.parse_args()
    rows = rows_of(options.report)
    if options.forms:
        write_forms(rows, options.forms)
        return 0
    own = options.own and {convtune.Problem.parse(row["problem"]).key: row for row in rows_of(options.own)}

    def plan(row):
        try:
            return planned_by(row, own) if own else guessed(row) if options.guessed else planned(row)
        except convtune.Error as error:
            return error

    with ThreadPoolExecutor(8) as pool:  # compiling takes far longer than running
        plans = list(pool.map(plan, rows))
    results, flush = [], Flush()
    nothing = flush.times({"nothing": lambda: None}, options.rounds)
    print(f"{'case':<32} {'algorithm':<24} {'flush':<8} {'bare us':>8} {'silu':>7} {'residual':>8} {'full':>7} "
          f"{'allowed':>7} {'ratio':>6} {'rate':>6}")
    for row, forms in zip(rows, plans):
        if forms is None or isinstance(forms, convtune.Error):
            print(f"{row['case']:<32} {forms or 'no kernel of ours in all forms'}")
            continue
        generator = torch.Generator("cuda").manual_seed(1)
        measured = flush.times({name: Run(one, generator) for name, one in forms.items()}, options.rounds)
        full, plan = forms["full"], forms["full"].plan
        extra = math.prod(full.output_shape) * (4 if full.problem.dtype == "f32" else 2)
        allowed = 1e6 * extra / row["roofline"]["bytes_per_second"]
        for way, one in measured.items():
            one["ratio"] = (one["full_us"] - allowed) / one["bare_us"]
            one["rate"] = full.problem.bytes / forms["bare"].problem.bytes * one["bare_us"] / one["full_us"]
            silu, residual = (f"{one[name]:.1f}" if name in one else "-" for name in ("silu_us", "residual_us"))
            print(f"{row['case']:<32} {plan.algorithm:<24} {way:<8} {one['bare_us']:>8.1f} {silu:>7} {residual:>8} "
                  f"{one['full_us']:>7.1f} {allowed:>7.1f} {one['ratio']:>6.3f} {one['rate']:>6.3f}", flush=True)
        results.append({"case": row["case"], "algorithm": plan.algorithm, "config": plan.config, "allowed_us": allowed,
                        **({"plans": {name: f"{one.plan.algorithm} {one.plan.config}" for name, one in forms.items()}}
                           if own else {}), **measured})
    if not results:
        print("epilogue_cost: error: no row of the report has a kernel of ours", file=sys.stderr)
        return 2
    means = {way: geometric_mean(one[way]["ratio"] for one in results) for way in flush.ways}
    for way, mean in means.items():
        print(f"{way}: {len(results)} rows, geometric mean of the ratios {mean:.3f}, largest "
              f"{max(one[way]['ratio'] for one in results):.3f}; nothing {nothing[way]['nothing_us']:.1f} us")
    if options.json:
        environment = {"device": torch.cuda.get_device_name(), "torch": torch.__version__,
                       "convtune": convtune.__version__, "rounds": options.rounds}
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"environment": environment, "nothing": nothing, "rows": results,
                       "geometric_mean": means}, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
