#!/usr/bin/env python3
"""torchvision's models on a GPU by torch.compile: alone, and after convtune.optimize(..., compiled=mode).

    python bench/torch_compiled.py --json compiled.json            # three models, two modes, in about nine minutes
    python bench/torch_compiled.py --models resnet50 --modes default --budget 60

Random weights, NCHW, TF32, eval mode, cudnn.benchmark on. Each way of each model in each mode is a process of its own,
as its user's would be, which compiles afresh and times single forwards by the wall clock; one that fails leaves the
others. A model is tuned by its first mode alone, and the others use the records. Needs PyTorch, torchvision, the
convtune package and a GPU; nothing is downloaded.
"""

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROW = "torch_compiled-row "
LEAST_SECONDS = 30  # that a process is begun with


def forward_us(run, seconds):
    """(median, median absolute deviation, samples) of one forward from the call to the device's last result."""
    import torch

    samples, start = [], time.perf_counter()
    while len(samples) < 20 or (len(samples) < 2000 and time.perf_counter() - start < seconds):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        samples.append(1e6 * (time.perf_counter() - begin))
    median = statistics.median(samples)
    return median, statistics.median(abs(one - median) for one in samples), len(samples)


def measure(args):
    """One way, in this process; its row is the last line of what is printed."""
    import torch
    import torchvision

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    with torch.no_grad():
        model = torchvision.models.get_model(args.models, weights=None).cuda().eval()
        x = torch.randn(args.batch, 3, args.size, args.size, device="cuda")
        row = {}
        if args.way == "optimized":
            import convtune

            begin = time.perf_counter()
            convtune.optimize(model, x, budget=args.budget, progress=False, compiled=args.modes)
            report = model.convtune_report
            swapped = [layer for layer in report.layers if layer.swapped]
            row = {
                "optimize_seconds": time.perf_counter() - begin, "kept": report.kept,
                "believed_before_us": report.before_us, "believed_after_us": report.after_us,
                "kinds": len(report.layers), "kinds_swapped": len(swapped),
                "calls_swapped": sum(layer.calls for layer in swapped), "report": str(report),
            }  # fmt: skip
        begin = time.perf_counter()
        compiled = torch.compile(model, mode=args.modes)
        for _ in range(10):
            compiled(x)
        torch.cuda.synchronize()
        row["compile_seconds"] = time.perf_counter() - begin
        row["us"], row["mad_us"], row["n"] = forward_us(lambda: compiled(x), args.seconds)
    row["device"], row["torch"] = torch.cuda.get_device_name(), torch.__version__
    print(ROW + json.dumps(row), flush=True)


def child(args, way, model, mode, budget, left, folder):
    """The row of a process of its own, or {"failure": why}."""
    if left < LEAST_SECONDS:
        return {"failure": "no time was left"}
    command = [sys.executable, os.path.abspath(__file__), "--way", way, "--models", model, "--modes", mode]
    for name in ("batch", "size", "seconds"):
        command += [f"--{name}", str(getattr(args, name))]
    said = os.path.join(folder, f"{model}-{mode}-{way}.txt")  # a pipe would be held open by the compiler's processes
    try:
        with open(said, "w", encoding="utf-8") as file:
            code = subprocess.run(
                [*command, "--budget", str(budget)], stdout=file, stderr=subprocess.STDOUT, timeout=left
            ).returncode
    except subprocess.TimeoutExpired:
        return {"failure": f"stopped after {left:.0f} s: no time was left"}
    with open(said, encoding="utf-8", errors="replace") as file:
        text = file.read()
    rows = [line for line in text.splitlines() if line.startswith(ROW)]
    if code != 0 or not rows:
        return {"failure": f"exit code {code}: {text[-1500:]}"}
    return json.loads(rows[-1].removeprefix(ROW))


def table(rows):
    """A line for each model and mode."""
    line = "{:20} {:16} {:>13} {:>9} {:>6} {:>26} {:>14}"
    text = [line.format("model", "mode", "torch.compile", "convtune", "ratio", "believed before, after", "swapped")]
    for row in rows:
        alone, ours = row["alone"], row["optimized"]
        us = [f"{one['us']:.0f}" if "us" in one else "failed" for one in (alone, ours)]
        ratio = f"{alone['us'] / ours['us']:.3f}" if "us" in alone and "us" in ours else ""
        believed = swapped = ""
        if "us" in ours:
            believed = f"{ours['believed_before_us']:.0f}, {ours['believed_after_us']:.0f}"
            swapped = f"{ours['kinds_swapped']} of {ours['kinds']}" if ours["kept"] else "put back"
        text.append(line.format(row["model"], row["mode"], *us, ratio, believed, swapped))
    return "\n".join(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="efficientnet_b0,mobilenet_v3_large,resnet50", help="comma-separated")
    parser.add_argument("--modes", default="default,reduce-overhead", help="of torch.compile, comma-separated")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="of the image")
    parser.add_argument("--budget", type=float, default=25, help="seconds of search a model")
    parser.add_argument("--seconds", type=float, default=3, help="of timed forwards a process")
    parser.add_argument("--minutes", type=float, default=9, help="of all; what is left then is not begun")
    parser.add_argument("--way", choices=("alone", "optimized"), help=argparse.SUPPRESS)
    parser.add_argument("--json")
    args = parser.parse_args()
    if args.way:
        measure(args)
        return 0
    deadline = time.monotonic() + 60 * args.minutes
    rows = []
    with tempfile.TemporaryDirectory(prefix="convtune-bench-") as folder:
        # Whatever was tuned before would be another budget's.
        os.environ["CONVTUNE_DATA_DIR"] = os.path.join(folder, "data")
        for model in args.models.split(","):
            for number, mode in enumerate(args.modes.split(",")):
                row = {"model": model, "mode": mode, "batch": args.batch, "budget": args.budget}
                for way in ("alone", "optimized"):
                    begin = time.monotonic()
                    found = child(args, way, model, mode, 0 if number else args.budget, deadline - begin, folder)
                    row[way] = found | {"process_seconds": time.monotonic() - begin}
                    said = f"{found['us']:.0f} ± {found['mad_us']:.0f} us" if "us" in found else found["failure"]
                    print(f"{model} {mode} {way}: {said}, {row[way]['process_seconds']:.0f} s", flush=True)
                rows.append(row)
                if args.json:  # after each: a run that is cut short leaves what it has
                    date = f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
                    with open(args.json, "w", encoding="utf-8") as file:
                        out = {"format": "convtune-torch-compiled", "version": 1, "date": date, "rows": rows}
                        json.dump(out, file, indent=1)
    print(table(rows))
    return 1 if any("failure" in row[way] for row in rows for way in ("alone", "optimized")) else 0


if __name__ == "__main__":
    sys.exit(main())
