#!/usr/bin/env python3
"""All 35 convolutions of KernelBench's level 1 by convtune.nn, in the benchmark's own check, on a GPU.

Needs PyTorch and a checkout of the benchmark; no nvcc, no network. The benchmark's class is taken as it is, with convtune.nn's
modules in the place of torch.nn's. For each row: the evaluator's trials (its seeds, its tolerance of 1e-4, inputs made on the
GPU) against the reference as PyTorch runs it by default, in TF32 and, where that does not pass, in fp32; then its stopwatch (CUDA
events, L2 flushed) for ours, eager PyTorch and channels last in turns, and beside torch.compile. The floor is the least
time of bytes that must move, or of products by tensor cores in TF32.

    modules.py --kernelbench ~/KernelBench --tune 5 --json rows.json
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from evaluate import Row, benchmark, START, table  # noqa: E402
from export import problem_file  # noqa: E402

ROWS = [50, *range(54, 88)]


class ByModules(Row):
    """A row whose new model is the benchmark's own class, of convtune.nn's modules."""

    def models(self):
        torch, reference = self.torch, self.named(self.source)
        new = self.named(self.source.replace("nn.Conv", "convtune.nn.Conv"), convtune=self.convtune)
        made = []
        for names in (reference, new):
            self.evaluator.set_seed(42)
            made.append(names["Model"](*reference["get_init_inputs"]()).to(self.device))
        for module in made[1].modules():
            if isinstance(module, torch.nn.modules.conv._ConvNd):
                module.precision = self.found.get("precision", "tf32")
        with torch.device(self.device):
            x, = reference["get_inputs"]()
        return *made, x

    def named(self, source, **names):
        exec(compile(source, str(self.file), "exec"), names)
        return names

    def search(self, seconds):
        """Each convolution of the row is tuned for that long at most."""
        _, ours, x = self.models()
        for one in self.convtune.model_problems(ours.cpu().to("meta"), x.to("meta")).convolutions:
            problem = one.problem.replace(precision="tf32")
            self.convtune.tune(problem, device="cuda:0", budget=seconds, progress=False)

    def evaluate(self, kind, failures):
        torch = self.torch
        self.found["precision"] = kind
        reference, ours, _ = self.models()
        names = self.named(self.source)

        def inputs():
            with torch.device(self.device):
                return names["get_inputs"]()

        result = self.evaluator.run_and_check_correctness(
            reference, ours, inputs, {}, self.args.trials, seed=42, device=self.device, backend="cuda")
        metadata = {name: str(value) for name, value in result.metadata.items()}
        self.found["tried"][kind] = {"correct": metadata.get("correctness_trials", "none"),
                                     "passed": bool(result.correctness), "metadata": metadata}
        if not result.correctness:
            print(f"{self.found['row']} {kind}: {metadata}", flush=True)

    def compiled(self):
        """One compile in the default mode: cuDNN's kernels again, with their layout chosen."""
        torch = self.torch
        reference, ours, x = self.models()
        torch._dynamo.reset()
        compiled = torch.compile(reference)
        with self.limited(self.args.compile_seconds):
            compiled(x)
        self.found["ms"] |= self.time([("ours_beside_compiled", ours, x), ("compiled", compiled, x)])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, help="problems of level 1 (default: all 35)")
    parser.add_argument("--kernelbench", metavar="DIR", required=True, help="a checkout of the benchmark")
    parser.add_argument("--tune", type=float, default=0, metavar="SECONDS", help="of search a convolution, before all else")
    parser.add_argument("--trials", type=int, default=5, help="of the evaluator")
    parser.add_argument("--rounds", type=int, default=2, help="turns of the ways that are timed")
    parser.add_argument("--samples", type=int, default=4, help="of a way in a turn")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--compile-seconds", type=int, default=40, help="that torch.compile may take for a row")
    parser.add_argument("--deadline", type=int, default=340, help="seconds after which no row is begun")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    import torch

    import convtune
    import convtune.nn
    evaluator, timing = benchmark(args.kernelbench)
    ByModules.convtune = convtune
    rows = []
    header = (f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
              f"cudnn.allow_tf32 {torch.backends.cudnn.allow_tf32}")
    for number in args.rows or ROWS:
        source = problem_file(args.kernelbench, number).read_text()
        wanted = next(name for name in ("ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "Conv1d", "Conv2d", "Conv3d")
                      if f"nn.{name}(" in source)
        if time.monotonic() - START > args.deadline or not hasattr(convtune.nn, wanted):
            print(f"{number}: left, {'no time' if hasattr(convtune.nn, wanted) else f'no convtune.nn.{wanted}'}", flush=True)
            continue
        row = ByModules(torch, evaluator, timing, args, number)
        rows.append(row)
        if args.tune:
            row.attempt("tune", lambda row=row: row.search(args.tune))
        for kind in ("tf32", "fp32"):
            if not row.passed():
                row.attempt("evaluate", lambda row=row, kind=kind: row.evaluate(kind, {}))
        row.attempt("measure", row.measure)
        if not args.no_compile:
            row.attempt("compile", row.compiled)
        print(f"{number}: {row.found['ms']} after {time.monotonic() - START:.0f} s", flush=True)
        if args.json:
            found = {"device": header, "rows": [one.found for one in rows]}
            Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    print(table([row.found for row in rows], header))
    return 0


if __name__ == "__main__":
    sys.exit(main())
