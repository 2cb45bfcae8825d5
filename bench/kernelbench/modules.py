#!/usr/bin/env python3
"""All 35 convolutions of KernelBench's level 1 by convtune.nn, and by exported files, in the benchmark's own check, on a GPU.

Needs PyTorch and a checkout of the benchmark; with --files, what export.py wrote, and nvcc; no network. By convtune.nn the
benchmark's class is taken as it is, with convtune.nn's modules in the place of torch.nn's. For each row: the evaluator's trials
(its seeds, its tolerance of 1e-4, inputs made on the GPU) against the reference as PyTorch runs it by default, by convtune.nn
in TF32 and, where that does not pass, in fp32; then its stopwatch (CUDA events, L2 flushed) for ours, eager PyTorch, channels
last and torch.compile, all in turns. The floor is the least time of bytes that must move, or of products by tensor cores in
TF32. Files are built while rows are tuned, or while the trials by convtune.nn run; each row is finished before the next one.

    export.py --kernelbench ~/KernelBench --kinds passing --formats cuda --out files
    modules.py --kernelbench ~/KernelBench --files files --json rows.json
    modules.py --kernelbench ~/KernelBench --export files --tune 4 --json rows.json  # each file as soon as its row is tuned
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from evaluate import Row, benchmark, build_file, START  # noqa: E402
from export import FULL, passing, problem_file, ROWS, static_checker, write  # noqa: E402


class ByModules(Row):
    """A row whose new model is the benchmark's own class, of convtune.nn's modules."""

    def __init__(self, *args):
        super().__init__(*args)
        self.found |= {"tried": {"file": {"correct": "none", "passed": False}}, "precision": "tf32"}
        self.compiled = self.by_file = None

    def models(self):
        torch, reference = self.torch, self.named(self.source)
        made = self.seeded(reference["Model"]), self.seeded(
            self.named(self.source.replace("nn.Conv", "convtune.nn.Conv"), convtune=self.convtune)["Model"])
        for module in made[1].modules():
            if isinstance(module, torch.nn.modules.conv._ConvNd):
                module.precision = self.found["precision"]
        with self.device:
            x, = reference["get_inputs"]()
        return *made, x

    def named(self, source, **names):
        exec(compile(source, str(self.file), "exec"), names)
        return names

    def seeded(self, kind):
        self.evaluator.set_seed(42)
        return kind(*self.named(self.source)["get_init_inputs"]()).to(self.device)

    def search(self, seconds):
        """Each convolution of the row is tuned for that long at most."""
        _, ours, x = self.models()
        for one in self.convtune.model_problems(ours.cpu().to("meta"), x.to("meta")).convolutions:
            problem = one.problem.replace(precision="fp32" if self.found["row"] in FULL else "tf32")
            self.convtune.tune(problem, device=str(self.device), budget=seconds, progress=False)

    def trials(self, kind, reference, ours):
        names = self.named(self.source)

        def inputs():
            with self.device:
                return names["get_inputs"]()

        result = self.evaluator.run_and_check_correctness(
            reference, ours, inputs, {}, self.args.trials, seed=42, device=self.device, backend="cuda")
        metadata = {name: str(value) for name, value in result.metadata.items()}
        self.found["tried"][kind] = {"correct": metadata.get("correctness_trials", "none").strip("()").replace(" ", ""),
                                     "passed": bool(result.correctness), "metadata": metadata}
        if not result.correctness:
            print(f"{self.found['row']} {kind}: {metadata}", flush=True)

    def by_modules(self):
        for kind in ("tf32", "fp32"):
            self.found["precision"] = kind
            reference, ours, _ = self.models()
            self.trials(kind, reference, ours)
            if self.passed():
                return

    def compile(self):
        """One compile in the default mode: cuDNN's kernels again, with their layout chosen."""
        reference, _, x = self.models()
        self.compiled = self.torch.compile(reference)
        with self.limited(self.args.compile_seconds):
            self.compiled(x)

    def file_path(self):
        return Path(self.args.files) / f"{self.found['row']}_{passing(self.found['row'])}_cuda.py"

    def write_and_build(self, device):
        """"", or why there is no file that could be built."""
        if self.args.export:
            try:
                write(self.args.convtune, self.args.kernelbench, self.found["row"], passing(self.found["row"]), "cuda", device,
                      Path(self.args.files))
            except subprocess.CalledProcessError as error:
                print(f"{self.found['row']} is not exported: {error.stderr.decode()[-600:]}", flush=True)
        return build_file(self.file_path()) if self.file_path().exists() else "not written"

    def evaluate_file(self, failure):
        if failure:
            self.found["tried"]["file"]["correct"] = failure if failure == "not written" else "not built"
            return
        text = self.file_path().read_text()
        valid, errors, _ = static_checker(self.args.kernelbench).validate_kernel_static(text, backend="cuda", precision="fp32")
        self.by_file = self.seeded(self.named(text)["ModelNew"])
        self.trials("file", self.seeded(self.named(self.source)["Model"]), self.by_file)
        self.found["tried"]["file"] |= {"valid": valid, "errors": errors}

    def measure(self):
        reference, ours, x = self.models()
        self.judge(reference, ours, x)
        self.clean()
        ways = [("ours", ours, x), ("eager", reference, x)]
        ways += [(name, way, x) for name, way in (("file", self.by_file), ("compiled", self.compiled)) if way is not None]
        if x.dim() == 4:
            last = self.seeded(self.named(self.source)["Model"]).to(memory_format=self.torch.channels_last)
            ways.append(("channels_last", last, x.contiguous(memory_format=self.torch.channels_last)))
        self.found["ms"] |= self.time(ways)

    def short(self):
        """The row as it is kept."""
        found = self.found
        times = {f"{name}_ms": round(value, 4) for name, value in found["ms"].items()}
        kept = {name: found[name] for name in ("floor_ms", "outputs", "outside", "largest_difference", "rms_error", "rms_error_eager")
                if name in found}
        failure = {"failure": found["failure"]} if found["failure"] else {}
        return {"row": found["row"], "problem": found["problem"], "precision": found["precision"],
                "correct": {kind: one["correct"] for kind, one in found["tried"].items()},
                "file_valid": found["tried"]["file"].get("valid", False), **times, **kept, **failure}


def told(rows, header):
    """A line a row: whether right, milliseconds, and how much faster than the better of eager and compiled."""
    lines, ratios = [header, "row prec nn   file | floor nn file eager compiled ch.last ms | nn, file over the better | file of floor"], {}
    for row in rows:
        found, ms = row.found, row.found["ms"]
        correct = {kind: one["correct"] for kind, one in found["tried"].items()}
        numbers = [f"{found.get('floor_ms', 0):.3f}", *(f"{ms[way]:.3f}" if way in ms else "-"
                                                       for way in ("ours", "file", "eager", "compiled", "channels_last"))]
        theirs = min((ms[way] for way in ("eager", "compiled") if way in ms), default=None)
        gains = {way: theirs / ms[way] for way in ("ours", "file") if theirs and way in ms}
        for way, gain in gains.items():
            ratios.setdefault(way, []).append(gain)
        over = found.get("floor_ms") and "file" in ms and f"{ms['file'] / found['floor_ms']:.1f}"
        lines.append(f"{found['row']} {found['precision']} {correct.get(found['precision'], 'none')} {correct['file']} | "
                     f"{' '.join(numbers)} | {' '.join(f'{gain:.2f}' for gain in gains.values())} | {over or '-'}"
                     + (f" {found['failure'][:120]}" if found["failure"] else ""))
    passed = {"nn": sum(row.passed() for row in rows), "file": sum(row.found["tried"]["file"]["passed"] for row in rows)}
    means = [f"{way} {statistics.geometric_mean(values):.2f}x, slower in {sum(value < 1 for value in values)} of {len(values)}"
             for way, values in ratios.items()]
    lines.append(f"of {len(rows)} rows pass: nn {passed['nn']}, file {passed['file']}; over the better of eager and compiled: "
                 + "; ".join(means))
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, help="problems of level 1 (default: all 35)")
    parser.add_argument("--kernelbench", metavar="DIR", required=True, help="a checkout of the benchmark")
    parser.add_argument("--files", metavar="DIR", help="what export.py wrote; without it by convtune.nn alone")
    parser.add_argument("--export", metavar="DIR", help="write the files there, each when its row is tuned, and take them")
    parser.add_argument("--convtune", default="convtune", help="the command that writes them")
    parser.add_argument("--target", default="cuda:0", help="for which GPU: as export.py takes it")
    parser.add_argument("--tune", type=float, default=0, metavar="SECONDS", help="of search a convolution, before all else")
    parser.add_argument("--trials", type=int, default=5, help="of the evaluator")
    parser.add_argument("--rounds", type=int, default=3, help="turns of the ways that are timed")
    parser.add_argument("--samples", type=int, default=4, help="of a way in a turn")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--compile-seconds", type=int, default=40, help="that torch.compile may take for a row")
    parser.add_argument("--deadline", type=int, default=340, help="seconds after which nothing more is begun")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="files that are built at once")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    if args.export:
        args.files = args.export
        Path(args.files).mkdir(parents=True, exist_ok=True)
    import torch

    import convtune
    import convtune.nn
    evaluator, timing = benchmark(args.kernelbench)
    ByModules.convtune = convtune
    header = (f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
              f"cudnn.allow_tf32 {torch.backends.cudnn.allow_tf32}")
    rows = [ByModules(torch, evaluator, timing, args, number) for number in args.rows or ROWS]
    builders, built = ThreadPoolExecutor(args.jobs), {}

    def late(share=1.0):
        return time.monotonic() - START > share * args.deadline

    def build(row):
        if args.files:
            built[row] = builders.submit(row.write_and_build, args.target)

    def keep():
        if args.json:
            Path(args.json).write_text(json.dumps({"device": header, "rows": [row.short() for row in rows]}, indent=1) + "\n")

    for row in rows:
        if args.tune and not late(0.45):
            row.attempt("tune", lambda row=row: row.search(args.tune))
        build(row)
    print(f"tuned after {time.monotonic() - START:.0f} s", flush=True)
    for row in rows:
        if late():
            break
        row.attempt("modules", row.by_modules)
        if not args.no_compile:
            row.attempt("compile", row.compile)
        if row in built:
            row.attempt("files", lambda row=row: row.evaluate_file(built[row].result()))
        row.attempt("measure", row.measure)
        print(f"{row.found['row']}: {row.found['ms']} after {time.monotonic() - START:.0f} s", flush=True)
        row.by_file = row.compiled = None
        row.clean()
        keep()
    builders.shutdown(wait=False, cancel_futures=True)
    keep()
    print(told(rows, header), flush=True)
    os._exit(0)  # without waiting for files that nobody asks for any more


if __name__ == "__main__":
    sys.exit(main())
