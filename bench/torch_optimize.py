#!/usr/bin/env python3
"""How long convtune.optimize takes on a PyTorch model, and when it has most of its gain: from nothing, again in the same
process, again in another, and in another that has the records alone, as a pack's.

    python bench/torch_optimize.py --json optimize.json
    python bench/torch_optimize.py --model efficientnet_b0 --type float32 --budget 9 --runs nothing again

Models and inputs are torch_models.py's; each run is a process of its own with cudnn.benchmark on. `gain_us_by_seconds`
has, whenever a layer's contest is over, the seconds since the call and the microseconds of a forward that all layers
which are proven then save. Needs PyTorch, torchvision, the convtune package and a GPU; nothing is downloaded.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

from torch_models import built, errors, timed, wait
from torch_zoo import MODELS

ROW = "torch_optimize-row "
PARTS = (0.5, 0.9, 0.95)


def watched(decide, layers):
    """Notes in `layers` when contests are over: (seconds since `layers["begin"]`, the layer, what it saves)."""
    compete = decide._Task.compete

    def noted(task, *rest, **more):
        compete(task, *rest, **more)
        layer = task.layer
        saved = layer.calls * (layer.pytorch_us - layer.convtune_us) if layer.swapped else 0.0
        layers["events"].append((time.monotonic() - layers["begin"], layer.names[0], saved))

    decide._Task.compete = noted


def curve(events):
    saved, found = {}, []
    for seconds, name, us in events:
        saved[name] = us
        found.append((round(seconds, 2), round(sum(saved.values()), 1)))
    return found


def measure(args):
    """One run, in this process; its row is the last line of what is printed."""
    import torch

    begin = time.monotonic()
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    import convtune
    from convtune.torch.measure import decide

    with torch.no_grad():
        exact, model, inputs = built(args.model, args)
        model(*inputs)
        wait()
        row = {"run": args.run, "seconds_before": time.monotonic() - begin}
        before_us = statistics.median(timed(lambda: model(*inputs), 50))
        seen = {"events": [], "begin": time.monotonic()}
        watched(decide, seen)
        convtune.optimize(model, inputs, budget=args.budget, progress=False)
        row["seconds"] = time.monotonic() - seen["begin"]
        row["gain_us_by_seconds"] = curve(seen["events"])
        last = row["gain_us_by_seconds"][-1][1]
        row["seconds_to_part_of_gain"] = {
            str(part): next(seconds for seconds, us in row["gain_us_by_seconds"] if us >= part * last) for part in PARTS
        }
        report = model.convtune_report
        row["kinds"], row["swapped"] = len(report.layers), sum(layer.swapped for layer in report.layers)
        row["us"] = {"eager": before_us, "optimized": statistics.median(timed(lambda: model(*inputs), 50))}
        row["error"] = errors(exact, inputs, model(*inputs))[0]
        convtune.restore(model)
        row["error_of_eager"] = errors(exact, inputs, model(*inputs))[0]
        again = time.monotonic()
        convtune.optimize(model, inputs, budget=args.budget, progress=False)
        row["seconds_of_the_second_call"] = time.monotonic() - again
        row["table"] = str(report)
    print(ROW + json.dumps(row), flush=True)


def run(args, name, folder):
    """One process; None where it failed, which it says itself."""
    data = os.path.join(folder, "data")
    if name == "pack":
        with open(os.path.join(folder, "pack.jsonl"), "w") as pack:
            subprocess.run(["convtune", "db", "export", pack.name], check=True, env={**os.environ, "CONVTUNE_DATA_DIR": data})
        shutil.rmtree(data)
        subprocess.run(["convtune", "db", "import", pack.name], check=True, env={**os.environ, "CONVTUNE_DATA_DIR": data})
    mine = [sys.executable, __file__, "--run", name, "--model", args.model, "--type", args.type]
    mine += ["--device", args.device, "--batch", str(args.batch), "--size", str(args.size), "--budget", str(args.budget)]
    environment = {**os.environ, "CONVTUNE_DATA_DIR": data, "CONVTUNE_CACHE_DIR": os.path.join(folder, "cache")}
    done = subprocess.run(mine, env=environment, stdout=subprocess.PIPE, text=True)
    rows = [line for line in done.stdout.splitlines() if line.startswith(ROW)]
    return json.loads(rows[-1][len(ROW) :]) if rows else None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet50", choices=[one for one in MODELS])
    parser.add_argument("--type", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--batch", type=int, default=0, help="0: the model's of torch_zoo.py")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of optimize")
    parser.add_argument("--runs", nargs="+", default=["nothing", "again", "pack"], choices=("nothing", "again", "pack"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", help="the file that the rows go to")
    parser.add_argument("--run", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.batch = args.batch or MODELS[args.model]
    if args.run:
        return measure(args)
    import torch

    result = {"format": "convtune-torch-optimize", "version": 3, "device": torch.cuda.get_device_name() if args.device != "cpu" else "cpu",
              "torch": torch.__version__, **{name: getattr(args, name) for name in ("model", "type", "batch", "budget")},
              "runs": []}  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for name in args.runs:
            row = run(args, name, folder)
            if row is None:
                sys.exit(f"torch_optimize: the run {name!r} failed")
            result["runs"].append(row)
            parts = ", ".join(f"{float(part):.0%} after {at:.1f} s" for part, at in row["seconds_to_part_of_gain"].items())
            print(f"{name:8} {row['seconds']:6.1f} s ({parts}), {row['us']['eager']:.0f} to {row['us']['optimized']:.0f} us, "
                  f"{row['swapped']} of {row['kinds']} kinds, second call {row['seconds_of_the_second_call']:.1f} s",
                  flush=True)  # fmt: skip
            if args.json:
                with open(args.json, "w") as file:
                    json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
