#!/usr/bin/env python3
"""Exported files in KernelBench's own evaluator, and their times beside PyTorch's ways of the same layers, on a GPU.

Needs PyTorch, nvcc, a checkout of the benchmark and what export.py wrote; no network. What the benchmark's modules import and
is not here (clients of language models) is stood in for by empty modules. For each row:

- the evaluator's trials: seeded weights, random inputs, torch.allclose at its tolerance (1e-4; 1e-2 with --kinds bf16 or fp16)
  against the reference as PyTorch runs it by default, which for fp32 tensors is TF32 or fp32 as cuDNN chooses. The file that
  multiplies in TF32 is tried first, and the one in fp32 where that one does not pass: the row says which it was;
- outputs of one input against the reference's (the share within the tolerance, the largest difference), and both against
  double precision;
- the benchmark's stopwatch (CUDA events, L2 flushed) for the file, eager PyTorch and channels last in turns; then the file and
  torch.compile(mode="max-autotune") in turns.

    evaluate.py --kernelbench ~/KernelBench --files files
"""

import argparse
import contextlib
import copy
import gc
import importlib.machinery
import importlib.util
import io
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from export import HALVES, PRECISIONS, problem_file, ROWS, static_checker  # noqa: E402

CHUNK = 1 << 26  # elements that are compared at once
# By product name: bytes a second and TF32 multiplications and additions a second, as NVIDIA's sheets have them.
SHEETS = {"H100": (3.35e12, 494e12), "H200": (4.8e12, 494e12), "A100": (2.04e12, 156e12), "4090": (1.008e12, 82.6e12)}
START = time.monotonic()


class Late(Exception):
    pass


def stand_in(name, **names):
    if importlib.util.find_spec(name) is None:
        module = types.ModuleType(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)  # which torch.compile looks for
        vars(module).update(names)
        sys.modules[name] = module


class Fields:
    """The part of pydantic's BaseModel that the evaluator uses."""

    def __init__(self, **given):
        for name in type(self).__annotations__:
            setattr(self, name, given.get(name, copy.deepcopy(getattr(type(self), name, None))))


def benchmark(folder):
    """The benchmark's evaluator and stopwatch."""
    stand_in("pydantic", BaseModel=Fields)
    stand_in("requests")
    stand_in("dotenv", load_dotenv=lambda *_: None)
    stand_in("tqdm", tqdm=lambda items, **_: items)
    stand_in("openai", OpenAI=None)
    stand_in("litellm", completion=None)
    sys.path.insert(0, str(Path(folder) / "src"))
    from kernelbench import eval as evaluator
    from kernelbench import timing
    return evaluator, timing


def build_file(file):
    """Builds a file in a child process; the evaluator finds what was built. Gives "", or the end of what was said."""
    child = subprocess.run([sys.executable, os.path.abspath(__file__), "--build", file], stdout=subprocess.PIPE,
                           stderr=subprocess.STDOUT, text=True)
    if child.returncode == 0:
        return ""
    print(f"{file.name} cannot be built:\n{child.stdout[-1500:]}", flush=True)
    return child.stdout[-1500:] or "no reason given"


def build_all(files, jobs):
    """Builds `jobs` files at once: those of many extensions first. Gives the failures by file."""
    begin = time.monotonic()
    files = sorted(files, key=lambda file: -file.read_text().count("load_inline("))
    with ThreadPoolExecutor(jobs) as pool:
        failures = {file: why for file, why in zip(files, pool.map(build_file, files)) if why}
    print(f"built {len(files) - len(failures)} of {len(files)} files in {time.monotonic() - begin:.0f} s", flush=True)
    return failures


def build_one(file):
    """Builds a file's extensions side by side."""
    from torch.utils import cpp_extension
    load, started = cpp_extension.load_inline, []
    with ThreadPoolExecutor(16) as pool:
        cpp_extension.load_inline = lambda **how: started.append(pool.submit(load, **how))
        exec(compile(Path(file).read_text(), file, "exec"), {"__name__": "built"})
        for one in started:
            one.result()


class Row:
    def __init__(self, torch, evaluator, timing, args, number):
        self.torch, self.evaluator, self.timing, self.args = torch, evaluator, timing, args
        self.file = problem_file(args.kernelbench, number)
        self.source = self.file.read_text()
        self.found = {"row": number, "problem": self.file.stem, "tried": {}, "ms": {}, "failure": ""}
        self.device = torch.device("cuda:0")

    def dtype(self, kind):
        return self.torch.float16 if kind == "fp16" else self.torch.bfloat16 if kind == "bf16" else self.torch.float32

    def path_of(self, kind):
        return Path(self.args.files) / f"{self.found['row']}_{kind}_cuda.py"

    def evaluate(self, kind, failures):
        """All trials of one file; the first that passes is the row's."""
        path, torch = self.path_of(kind), self.torch
        if path in failures:
            self.found["tried"][kind] = {"correct": "not built", "passed": False}
            return
        text = path.read_text()
        valid, errors, _ = static_checker(self.args.kernelbench).validate_kernel_static(text, backend="cuda",
                                                                                        precision=kind if kind in HALVES else "fp32")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            result = self.evaluator.eval_kernel_against_ref(
                self.source, text, num_correct_trials=self.args.trials, measure_performance=False, device=self.device,
                backend="cuda", precision=self.dtype(kind))
        metadata = {name: str(value) for name, value in (result.metadata if result else {}).items()}
        passed = bool(result and result.correctness and valid)
        self.found["tried"][kind] = {"correct": metadata.get("correctness_trials", "none"), "passed": passed, "valid": valid,
                                     "errors": errors, "metadata": metadata}
        if not passed:
            print(f"{self.found['row']} {kind}: {metadata} {said.getvalue()[-600:]}", flush=True)
        if passed or "precision" not in self.found:
            self.found["precision"], self.path = kind, path

    def passed(self):
        return self.found["tried"].get(self.found.get("precision"), {}).get("passed", False)

    def clean(self):
        gc.collect()
        self.torch.cuda.empty_cache()

    def models(self):
        """The reference and the file's module with the same weights, and an input made on the GPU."""
        torch, names, new = self.torch, {}, {}
        exec(compile(self.source, str(self.file), "exec"), names)
        exec(compile(self.path.read_text(), str(self.path), "exec"), new)
        made = []
        for kind in (names["Model"], new["ModelNew"]):
            self.evaluator.set_seed(42)
            made.append(kind(*names["get_init_inputs"]()).to(self.device, self.dtype(self.found["precision"])))
        with torch.device(self.device):
            x, = names["get_inputs"]()
        return *made, x.to(self.dtype(self.found["precision"]))

    def judge(self, reference, ours, x):
        """The file's outputs and the reference's, held against each other and against double precision."""
        torch = self.torch
        theirs, found = reference(x), ours(x)
        outside, largest = 0, 0.0
        for a, b in zip(theirs.flatten().split(CHUNK), found.flatten().split(CHUNK)):
            difference, tolerance = (a.float() - b.float()).abs(), 1e-4 if x.dtype == torch.float32 else 1e-2
            outside += int((difference > tolerance + tolerance * b.float().abs()).sum())
            largest = max(largest, float(difference.max()))
        exact = copy.deepcopy(reference).double()(x[:1].double())
        errors = [float((one[:1].double() - exact).square().mean().sqrt()) for one in (found, theirs)]
        self.found |= {"outputs": theirs.numel(), "outside": outside, "largest_difference": largest,
                       "rms_error": errors[0], "rms_error_eager": errors[1]}
        sheet = next((value for name, value in SHEETS.items() if name in torch.cuda.get_device_name()), None)
        if sheet:
            self.found["floor_ms"] = self.floor(reference, x, *sheet)

    @staticmethod
    def floor(reference, x, bandwidth, flops):
        """The least time of the layers one after the other: bytes that must move, or products by tensor cores."""
        total = 0.0
        for layer in reference.children():
            y = layer(x)
            moved = x.element_size() * (x.numel() + y.numel() + layer.weight.numel())
            multiplied = x if "Transpose" in type(layer).__name__ else y  # each of its numbers meets all of a filter's
            products = 2 * multiplied.numel() * layer.weight[0].numel() * x.element_size() / 4  # half precision needs twice as many
            total += max(moved / bandwidth, products / flops)
            x = y
        return 1e3 * total

    def time(self, ways):
        """Medians in ms of ways in turns."""
        times = {name: [] for name, _, _ in ways}
        for _ in range(self.args.rounds):
            for name, model, x in ways:
                with contextlib.redirect_stdout(io.StringIO()):
                    times[name] += self.timing.time_execution_with_cuda_event(
                        model, [x], num_warmup=1, num_trials=self.args.samples, discard_first=1, verbose=False, device=self.device)
        return {name: statistics.median(samples) for name, samples in times.items()}

    def measure(self):
        torch = self.torch
        reference, ours, x = self.models()
        self.judge(reference, ours, x)
        self.clean()
        ways = [("ours", ours, x), ("eager", reference, x)]
        if x.dim() == 4:
            last = copy.deepcopy(reference).to(memory_format=torch.channels_last)
            ways.append(("channels_last", last, x.contiguous(memory_format=torch.channels_last)))
        self.found["ms"] |= self.time(ways)

    def measure_compiled(self):
        torch = self.torch
        reference, ours, x = self.models()
        torch._dynamo.reset()
        compiled = torch.compile(reference, mode="max-autotune")
        with self.limited(self.args.compile_seconds):
            for _ in range(3):
                compiled(x)
        torch.cuda.synchronize()
        found = self.time([("ours_beside_compiled", ours, x), ("compiled", compiled, x)])
        self.found["ms"] |= found

    @contextlib.contextmanager
    def limited(self, seconds):
        def late(*_):
            raise Late(f"torch.compile took over {seconds} s")
        signal.signal(signal.SIGALRM, late)
        signal.alarm(seconds)
        try:
            yield
        finally:
            signal.alarm(0)

    def attempt(self, name, what):
        try:
            with self.torch.no_grad():
                what()
        except Exception as error:  # a row that fails is a row that says so
            self.found["failure"] += f"{name}: {type(error).__name__}: {error}"[:300] + " "
            print(f"{self.found['row']} {self.found['failure']}", flush=True)
        self.clean()


def table(rows, header):
    lines = [header, f"{'row':>3} {'correct':8} {'prec':4} {'floor':>7} {'ours':>7} {'eager':>7} {'x':>5} {'ch.last':>7} {'x':>5} "
             f"{'compiled':>8} {'x':>5} {'outside':>9} {'largest':>8} {'rms ours':>8} {'rms ref':>8}  problem"]
    ratios = {"eager": [], "channels_last": [], "compiled": []}
    for found in rows:
        ms, tried = found["ms"], found["tried"].get(found.get("precision"), {})

        def number(value, width, digits):
            return f"{value:{width}.{digits}f}" if value is not None else "-".rjust(width)

        def ratio(name, ms=ms):
            ours = ms.get("ours_beside_compiled" if name == "compiled" else "ours")
            found = ms[name] / ours if name in ms and ours else None
            if found:
                ratios[name].append(found)
            return found

        lines.append(
            f"{found['row']:3} {tried.get('correct', 'none').strip('()').replace(' ', ''):8} {found.get('precision', '-'):4} "
            f"{number(found.get('floor_ms'), 7, 3)} {number(ms.get('ours'), 7, 3)} {number(ms.get('eager'), 7, 3)} "
            f"{number(ratio('eager'), 5, 2)} {number(ms.get('channels_last'), 7, 3)} {number(ratio('channels_last'), 5, 2)} "
            f"{number(ms.get('compiled'), 8, 3)} {number(ratio('compiled'), 5, 2)} {found.get('outside', '-'):>9} "
            f"{found.get('largest_difference', math.nan):8.1e} {found.get('rms_error', math.nan):8.1e} "
            f"{found.get('rms_error_eager', math.nan):8.1e}  {found['problem'][:60]}")
        if found["failure"]:
            lines.append(f"    {found['failure'][:300]}")
        others = [f"{name} {one['correct']}" for name, one in found["tried"].items() if name != found.get("precision")]
        if others:
            lines.append(f"    tried too: {', '.join(others)}")
    passed = sum(found["tried"].get(found.get("precision"), {}).get("passed", False) for found in rows)
    means = [f"{name} {statistics.geometric_mean(values):.2f}x of {len(values)}" for name, values in ratios.items() if values]
    lines.append(f"{passed} of {len(rows)} rows pass all trials; geometric mean over {', '.join(means)}; times in ms")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", type=int, help="problems of level 1 (default: all 35)")
    parser.add_argument("--kernelbench", metavar="DIR", help="a checkout of the benchmark")
    parser.add_argument("--files", metavar="DIR", help="what export.py wrote")
    parser.add_argument("--kinds", nargs="+", default=list(PRECISIONS), metavar="KIND",
                        help="of the files ROW_KIND_cuda.py, in the order in which they are tried")
    parser.add_argument("--trials", type=int, default=5, help="of the evaluator")
    parser.add_argument("--rounds", type=int, default=4, help="turns of the ways that are timed")
    parser.add_argument("--samples", type=int, default=5, help="of a way in a turn")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--compile-seconds", type=int, default=90, help="that torch.compile may take for a row")
    parser.add_argument("--deadline", type=int, default=570, help="seconds after which nothing more is begun")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--build", metavar="FILE", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.build:
        build_one(args.build)
        return 0
    if not args.kernelbench or not args.files:
        parser.error("--kernelbench and --files are required")
    import torch
    evaluator, timing = benchmark(args.kernelbench)
    numbers = args.rows or ROWS
    rows = [Row(torch, evaluator, timing, args, number) for number in numbers]
    header = (f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, "
              f"cudnn.allow_tf32 {torch.backends.cudnn.allow_tf32}")

    def left():
        return args.deadline - (time.monotonic() - START)

    def keep():
        if args.json:
            Path(args.json).write_text(json.dumps({"device": header, "rows": [row.found for row in rows]}, indent=1) + "\n")

    for kind in args.kinds:
        pending = [row for row in rows if not row.passed() and row.path_of(kind).exists()]
        failures = build_all([row.path_of(kind) for row in pending], args.jobs)
        for row in pending:
            if left() > 60:
                row.attempt("evaluate", lambda row=row, kind=kind, failures=failures: row.evaluate(kind, failures))
                print(f"{row.found['row']} {kind}: {row.found['tried'].get(kind, {}).get('correct')} "
                      f"after {time.monotonic() - START:.0f} s", flush=True)
                keep()
    for row in rows:
        if "precision" in row.found and left() > 30:
            row.attempt("measure", row.measure)
            print(f"{row.found['row']}: {row.found['ms']} after {time.monotonic() - START:.0f} s", flush=True)
            keep()
    for row in [] if args.no_compile else rows:
        if row.found["ms"] and left() > 60:
            row.args.compile_seconds = int(min(args.compile_seconds, left() - 20))
            row.attempt("compile", row.measure_compiled)
            print(f"{row.found['row']}: {row.found['ms']} after {time.monotonic() - START:.0f} s", flush=True)
            keep()
    print(table([row.found for row in rows], header))
    return 0


if __name__ == "__main__":
    sys.exit(main())
