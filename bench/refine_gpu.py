"""On a GPU: `convtune refine --measure` of a document's file and of the five kernels of bench/refine_kernels.py, or of
kernels of other files, all profiled by ncu first where that is permitted. What is accepted is timed once more, file
against file, as Triton's autotuner runs them. Needs PyTorch, Triton and a GPU; about half a minute a kernel.

Usage: refine_gpu.py CONVTUNE [--document FILE.txt] [--only NAME...] [--case NAME FILE KERNEL CALL]... [--out FOLDER]
                     [--target cuda:0]

CALL is what `convtune refine --call` takes. With --case those alone are run, and with --document the document besides.
Prints one line a kernel: before, after, decision; reports, pages, profiles and new files lie in FOLDER.
"""

import argparse
import ast
import contextlib
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "refine_kernels.py"
RUNNER = HERE.parent / "src" / "triton" / "runner" / "triton_runner.py"
NAMES = ["matmul", "layer_norm", "attention", "softmax", "quantised"]
METRICS = ["sm__throughput.avg.pct_of_peak_sustained_elapsed", "launch__grid_size", "launch__block_size",
           "sm__warps_active.avg.pct_of_peak_sustained_active", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
           "lts__t_sector_hit_rate.pct", "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
           "launch__registers_per_thread", "launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"]
PROFILED = """
import importlib.util, sys
import torch
calls = []
for number, (name, path, kernel, call) in enumerate({cases!r}):
    spec = importlib.util.spec_from_file_location("case%d" % number, path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    calls.append((compile(call, name, "eval"), {{"torch": torch, **vars(module)}}))
    eval(*calls[-1])
    tuner = getattr(module, kernel)
    while hasattr(tuner, "fn") and not hasattr(tuner, "best_config"):
        tuner = tuner.fn
    print("BEST", name, getattr(tuner, "best_config", ""), file=sys.stderr, flush=True)
torch.cuda.synchronize()
torch.cuda.profiler.start()
for code, names in calls:
    eval(code, names)
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""
ALEXNET_INPUT = [256, 3, 224, 224]


def run(command, log, seconds=400):
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        code, out, err = done.returncode, done.stdout, done.stderr
    except (subprocess.TimeoutExpired, OSError) as error:
        code, out, err = -1, "", str(error)
    log.write_text(f"$ {' '.join(map(str, command))}\n{out}\n{err}\nexit code {code}, {time.monotonic() - begun:.0f} s\n")
    return code, out, err


def profiled(cases, out):
    """The file of metrics, if ncu may read counters; and by name the config that Triton's autotuner picked."""
    code = PROFILED.format(cases=cases)
    kernels = "|".join(kernel for _, _, kernel, _ in cases)
    csv = out / "profile.csv"
    ncu = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function", "--clock-control",
           "none", "--profile-from-start", "off", "-k", f"regex:^({kernels})$", "--metrics", ",".join(METRICS),
           sys.executable, "-c", code]
    status, table, errors = run(ncu, out / "ncu.log", 150)
    begin = table.find('"ID",')
    found = status == 0 and begin >= 0 and table[begin:].count("\n") > 2
    if found:
        csv.write_text(table[begin:])
    else:
        table, errors = run([sys.executable, "-c", code], out / "plain.log", 150)[1:]
    picked = re.findall(r"^BEST (\w+) (.*num_warps.*)$", errors + "\n" + table, re.MULTILINE)
    return csv if found else None, dict(picked)


@contextlib.contextmanager
def running(source, path, kernel, call):
    """A process that runs the file as it is, Triton's autotuner included; its function takes a sample in microseconds."""
    spec = {"names": [kernel], "path": str(path), "source": source, "call": call, "pick": False, "input": ALEXNET_INPUT,
            "dtype": "float32"}
    with subprocess.Popen([sys.executable, str(RUNNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as process:
        def ask(what):
            process.stdin.write(json.dumps(what) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())["time_us"]

        ask(spec)
        yield lambda: ask("sample")
        process.stdin.close()


def file_against_file(old, new, kernel, call):
    """Medians of both, sampled in turns."""
    with running(old.read_text(), old, kernel, call) as before, \
            running(new.read_text(), old, kernel, call) as after:
        pairs = [(before(), after()) for _ in range(20)]
    return [statistics.median(side) for side in zip(*pairs)]


def decision(kernel):
    """(before, after, what became of it, why) of a kernel of a report."""
    measured = kernel.get("measured", [])
    if not measured:
        return 0, 0, "keep", next((text for text in kernel["verdicts"] if text.startswith("R4")), "")
    tried = [one for one in measured[1:] if one["n"] and "old list" not in one["reason"]]
    best = min(tried, key=lambda one: one["time_us"], default={"time_us": 0, "config": "none"})
    return (measured[0]["time_us"], best["time_us"], "changed" if kernel["changed"] else "reverted",
            f"{measured[0]['config']} -> {best['config']}; {kernel['verdicts'][-1]}")


def refine(options, name, words, out, old, kernel, call):
    new, report = out / f"{name}.py", out / f"{name}.json"
    status, _, errors = run([options.convtune, "refine", *words, "--measure", "--python", sys.executable, "-o", str(new),
                             "--json", str(report), "--html", str(out / f"{name}.html")], out / f"{name}-refine.log")
    if status != 0:
        print(f"{name:20} FAILED: {errors.strip().splitlines()[-1:]}", flush=True)
        return
    ast.parse(new.read_text())
    before, after, what, why = decision(json.loads(report.read_text())["refine"]["kernels"][0])
    print(f"{name:20} {before:10.1f} {after:10.1f} us  {what:9} {why}", flush=True)
    if what == "changed":
        before, after = file_against_file(old, new, kernel, call)
        verdict = "FASTER" if after < before else "SLOWER"
        print(f"{'  file against file':20} {before:10.1f} {after:10.1f} us  {verdict}", flush=True)


def document_cases(options, out):
    """The AlexNet document as it is; and its file with the profiled config alone, so that the gain is over that."""
    text = Path(options.document).read_text()
    code = text.split("```python\n", 1)[1].split("```", 1)[0]
    kernel = re.search(r"@triton.jit\ndef (\w+)", code)[1]
    begin, end = code.index("configs=["), code.index("],\n    key=")
    one = code[:begin] + ("configs=[triton.Config({'BLOCK_M': 32, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, "
                          "num_stages=2)") + code[end:]
    for name, source in (("document-one-config", one), ("document", code)):
        document, old = out / f"{name}.txt", out / f"{name}-before.py"
        document.write_text(text.replace(code, source))
        old.write_text(source)
        refine(options, name, ["--document", str(document)], out, old, kernel, "")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("convtune")
    parser.add_argument("--document")
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--case", nargs=4, action="append", metavar=("NAME", "FILE", "KERNEL", "CALL"))
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--out", default="refine-gpu")
    options = parser.parse_args()
    options.convtune = os.path.abspath(options.convtune)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    print(f"{'kernel':20} {'before':>10} {'after':>10}     decision", flush=True)
    if options.document:
        document_cases(options, out)
    cases = options.case or [(name, str(KERNELS), f"{name}_kernel", f"{name}(*{name}_inputs())") for name in options.only]
    metrics, best = profiled(cases, out) if cases else (None, {})
    for name, path, kernel, call in cases:
        words = [path, "--target", options.target, "--kernel", kernel, "--call", call]
        words += ["--metrics", str(metrics)] if metrics else []
        words += ["--original", best[name]] if name in best else []
        refine(options, name, words, out, Path(path), kernel, call)


if __name__ == "__main__":
    main()
