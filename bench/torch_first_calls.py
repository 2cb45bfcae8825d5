#!/usr/bin/env python3
"""What the first call of a compiled model takes: inductor alone beside backend="convtune", each with empty caches and then in a
second process; and what a call takes afterwards.

    python bench/torch_first_calls.py --models resnet18,densenet121,hrnet_w18,yolo11s --deadline 500 --json first.json
    python bench/torch_first_calls.py --models resnet18 --size 64 --batch 2 --device cpu

Each way is a process with folders of its own for the caches of inductor, Triton and convtune; one runs at a time. Seconds are from
torch.compile to the first answer: what importing and making the model take is left out. Times of a call are medians, each in its
own process. torchvision's names, timm's (hrnet_w18) and yolo11s of ultralytics; random weights, bf16 and channels last on a GPU.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

START = time.monotonic()
WAYS = ("inductor", "convtune")


def built(name, args):
    import torch

    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.device != "cpu" else torch.float32
    size = args.size
    with torch.device(args.device):
        if name == "yolo11s":
            from torch_zoo import model_of

            model, (x,) = model_of(name, args.batch, size, args.device)
        else:
            if name.startswith("hrnet"):
                import timm

                model = timm.create_model(name)
            else:
                import torchvision

                model = torchvision.models.get_model(name, weights=None)
            x = torch.randn(args.batch, 3, size, size)
    last = torch.channels_last if args.device != "cpu" else torch.contiguous_format
    return model.eval().to(dtype=dtype, memory_format=last), x.to(dtype=dtype, memory_format=last)


def work(args):
    """One process: the first call's seconds, and microseconds a call."""
    import torch

    torch.backends.cudnn.benchmark = True

    def wait():
        if args.device != "cpu":
            torch.cuda.synchronize()

    model, x = built(args.models, args)
    said = ""
    with torch.no_grad():
        if args.way == "convtune":
            import convtune.torch.backend
        wait()
        begin = time.monotonic()
        run = torch.compile(model, backend=args.way, options={"triton.cudagraphs": args.device != "cpu"})
        run(x)
        wait()
        seconds = time.monotonic() - begin
        samples = []
        for _ in range(5):
            run(x)
        for _ in range(args.calls):
            wait()
            begin = time.perf_counter()
            run(x)
            wait()
            samples.append(1e6 * (time.perf_counter() - begin))
        if args.way == "convtune" and (report := convtune.torch.backend.last_report()) is not None:
            said = ", ".join(f"{phase} {took:.1f}" for phase, took in report.seconds.items())
            print(report, file=sys.stderr)
    print(json.dumps({"seconds": seconds, "us": statistics.median(samples), "said": said}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet18,densenet121,hrnet_w18,yolo11s", help="comma-separated")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--calls", type=int, default=50)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--deadline", type=float, default=1e6, help="seconds after which no model is begun, and a process ends")
    parser.add_argument("--json", help="the file that the rows go to")
    parser.add_argument("--way", help=argparse.SUPPRESS)  # be a process
    args = parser.parse_args()
    if args.way:
        return work(args)
    rows = []

    def process(name, way, which, folder):
        left = args.deadline - (time.monotonic() - START)
        own = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CONVTUNE_CACHE_DIR": "cache", "CONVTUNE_DATA_DIR": "data"}
        command = [sys.executable, __file__, "--models", name, "--way", way, "--batch", str(args.batch), "--size", str(args.size),
                   "--calls", str(args.calls), "--device", args.device]  # fmt: skip
        row = {"model": name, "way": f"{way}, {which}", "seconds": float("nan"), "us": float("nan"), "said": "failed"}
        if left > 5:
            environment = {**os.environ, **{key: os.path.join(folder, below) for key, below in own.items()}}
            try:
                ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=left, check=False)
                if ran.returncode == 0:
                    row |= json.loads(ran.stdout.splitlines()[-1])
            except subprocess.TimeoutExpired:
                row["said"] = "no time left"
        else:
            row["said"] = "no time left"
        rows.append(row)
        print(f"{row['model']} {row['way']}: first call {row['seconds']:.1f} s, {row['us']:.0f} us a call; {row['said']}", flush=True)
        if args.json:
            with open(args.json, "w") as file:
                json.dump({"format": "convtune-first-calls", "version": 1, "rows": rows}, file, indent=1)

    for name in args.models.split(","):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                for which in ("cold", "second process"):
                    process(name, way, which, folder)
    return None


if __name__ == "__main__":
    main()
