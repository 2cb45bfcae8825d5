"""On a GPU: `convtune refine --measure` of a document's file and of the five kernels of bench/refine_kernels.py, each
profiled by ncu first where that is permitted. Needs PyTorch, Triton and a GPU; about a minute a kernel.

Usage: refine_gpu.py CONVTUNE [--document FILE.txt] [--only NAME...] [--out FOLDER] [--target cuda:0]

Prints one line a kernel: before, after, decision; the reports, profiles and new files lie in FOLDER.
"""

import argparse
import ast
import os
import re
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
KERNELS = HERE / "refine_kernels.py"
NAMES = ["matmul", "layer_norm", "attention", "softmax", "quantised"]
METRICS = ["sm__throughput.avg.pct_of_peak_sustained_elapsed", "launch__grid_size", "launch__block_size",
           "sm__warps_active.avg.pct_of_peak_sustained_active", "dram__throughput.avg.pct_of_peak_sustained_elapsed",
           "lts__t_sector_hit_rate.pct", "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum",
           "launch__registers_per_thread", "launch__shared_mem_per_block_static", "launch__shared_mem_per_block_dynamic"]
PROFILED = """
import sys
sys.path.insert(0, {folder!r})
import torch, refine_kernels as k
inputs = k.{name}_inputs()
k.{name}(*inputs)
torch.cuda.synchronize()
print("BEST", getattr(k.{name}_kernel, "best_config", ""), file=sys.stderr, flush=True)
torch.cuda.profiler.start()
k.{name}(*inputs)
torch.cuda.synchronize()
torch.cuda.profiler.stop()
"""


def run(command, log, seconds=400):
    begun = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, stdin=subprocess.DEVNULL)
        code, out, err = done.returncode, done.stdout, done.stderr
    except (subprocess.TimeoutExpired, OSError) as error:
        code, out, err = -1, "", str(error)
    log.write_text(f"$ {' '.join(map(str, command))}\n{out}\n{err}\nexit code {code}, {time.monotonic() - begun:.0f} s\n")
    return code, out, err


def best_of(text):
    found = re.search(r"^BEST (.*num_warps.*)$", text, re.MULTILINE)
    return found[1] if found else ""


def profiled(name, out):
    """The file of metrics, if ncu may read counters; and the config that Triton's autotuner picked."""
    code = PROFILED.format(folder=str(HERE), name=name)
    csv = out / f"{name}.csv"
    ncu = ["ncu", "--csv", "--page", "raw", "--print-units", "base", "--print-kernel-base", "function", "--clock-control",
           "none", "--profile-from-start", "off", "-k", f"regex:^{name}_kernel", "--metrics", ",".join(METRICS),
           sys.executable, "-c", code]
    status, table, errors = run(ncu, out / f"{name}-ncu.log", 120)
    begin = table.find('"ID",')
    if status == 0 and begin >= 0 and table[begin:].count("\n") > 2:
        csv.write_text(table[begin:])
        return csv, best_of(errors) or best_of(table)
    _, _, errors = run([sys.executable, "-c", code], out / f"{name}-plain.log", 120)
    return None, best_of(errors)


def decision(report):
    rows = [line for line in report.splitlines() if "num_warps=" in line and "%" in line and re.search(r"\d\.\d", line)]
    times = {}
    for line in rows:
        found = re.match(r"\s*(num_warps=\d+ num_stages=\d+|\S.*?num_stages=\d+) \((.*?)\)\s+([\d.]+)\s", line)
        if found:
            times[found[2]] = (found[1], float(found[3]))
    before = times.get("the original", ("", 0.0))
    others = [value for key, value in times.items() if key != "the original" and "old list" not in key]
    best = min(others, key=lambda one: one[1], default=("", 0.0))
    verdict = "changed" if "the new list is written" in report else "reverted" if "reverted:" in report else (
        "keep" if "\nkeep:" in report else "failed")
    r6 = next((line for line in report.splitlines() if line.startswith("R6")), "")
    return f"{before[1]:10.1f} {best[1]:10.1f} us  {verdict:9} {before[0]} -> {best[0]}  {r6}"


def refine(options, name, words, out):
    new = out / f"{name}.py"
    status, text, errors = run([options.convtune, "refine", *words, "--measure", "--python", sys.executable, "-o",
                                str(new)], out / f"{name}-refine.log")
    if new.exists():
        ast.parse(new.read_text())
    print(f"{name:22} {decision(text + errors) if status == 0 else 'FAILED, see ' + str(out / (name + '-refine.log'))}",
          flush=True)


def document_cases(options, out):
    """The document as it is; and its file with the profiled config alone, so that the gain is over that."""
    refine(options, "document", ["--document", options.document], out)
    text = Path(options.document).read_text()
    code = text.split("```python\n", 1)[1].split("```", 1)[0]
    begin, end = code.index("configs=["), code.index("],\n    key=")
    one = ("configs=[triton.Config({'BLOCK_M': 32, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=2)")
    changed = out / "document-one.txt"
    changed.write_text(text.replace(code, code[:begin] + one + code[end:]))
    refine(options, "document, one config", ["--document", str(changed)], out)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("convtune")
    parser.add_argument("--document")
    parser.add_argument("--only", nargs="*", default=NAMES)
    parser.add_argument("--target", default="cuda:0")
    parser.add_argument("--out", default="refine-gpu")
    options = parser.parse_args()
    options.convtune = os.path.abspath(options.convtune)
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    print(f"{'kernel':22} {'before':>10} {'after':>10}     decision", flush=True)
    if options.document:
        document_cases(options, out)
    for name in options.only:
        metrics, best = profiled(name, out)
        words = [str(KERNELS), "--target", options.target, "--kernel", f"{name}_kernel", "--call",
                 f"{name}(*{name}_inputs())"]
        words += ["--metrics", str(metrics)] if metrics else []
        words += ["--original", best] if best else []
        refine(options, name, words, out)


if __name__ == "__main__":
    main()
