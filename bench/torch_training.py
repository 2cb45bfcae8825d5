#!/usr/bin/env python3
"""Whole steps of training: convtune.optimize(train=True) beside PyTorch eager and compiled, in turns, in one process.

    python bench/torch_training.py --models convnext_tiny resnet50 --batch 256 --json training.json
    python bench/torch_training.py --models resnet18 --batch 2 --size 64 --device cpu --seconds 5

A step is zero_grad, forward under bf16 autocast, cross entropy, backward, SGD with momentum, on synthetic images with random
labels. Ways: eager, channels first and last; compiled (PyTorch's default mode), channels last; ours, as optimize left the eager
model that lies channels last; ours compiled: that model through torch.compile. `memory` is PyTorch's allocator at the peak of a
step. backend: torch.compile(backend="convtune"). Needs PyTorch and torchvision; nothing is downloaded.
"""

import argparse
import copy
import json
import statistics
import time

WAYS = ("eager", "eager first", "compiled", "ours", "ours compiled", "backend")


def stepping(model, x, labels, dtype):
    """(a step of any module, of the caller's kind; the step of that model with an optimizer that has momentum)."""
    import torch

    def step(model, optimizer=None):
        model.zero_grad(set_to_none=True)
        with torch.autocast(x.device.type, dtype, enabled=dtype is not torch.float32):
            y = model(x)
            loss = torch.nn.functional.cross_entropy(y.float(), labels)
        loss.backward()
        if optimizer is not None:
            optimizer.step()
        return loss

    return step


def wait(device):
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measured(ways, device, seconds):
    """{way: (median milliseconds, MiB at the peak)}, one step of each in turns."""
    import torch

    memory, times = {}, {name: [] for name in ways}
    for name, run in ways.items():
        for _ in range(3):
            run()
        wait(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device) if device.type == "cuda" else 0
        run()
        wait(device)
        memory[name] = (torch.cuda.max_memory_allocated(device) - before) / 2**20 if device.type == "cuda" else 0.0
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times[next(iter(ways))]) < 5:
        for name, run in ways.items():
            run()
            wait(device)
            begin = time.perf_counter()
            run()
            wait(device)
            times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: (statistics.median(times[name]), memory[name]) for name in ways}


def measure(name, args):
    """The row of one model."""
    import torch
    import torchvision

    import convtune

    device, dtype = torch.device(args.device), getattr(torch, args.type)
    torch.manual_seed(0)
    with device:
        first = torchvision.models.get_model(name, weights=None).train()
        x = torch.randn(args.batch, 3, args.size, args.size)
        labels = torch.randint(0, 1000, (args.batch,))
    last, x_last = copy.deepcopy(first).to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    step = stepping(last, x_last, labels, dtype)
    ways = {}

    def add(way, model, step):
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
        ways[way] = lambda: step(model, optimizer)

    begin = time.monotonic()
    if "eager first" in args.ways:
        add("eager first", first, stepping(first, x, labels, dtype))
    if "eager" in args.ways:
        add("eager", copy.deepcopy(last), step)
    if "compiled" in args.ways:
        add("compiled", torch.compile(copy.deepcopy(last)), step)
        ways["compiled"]()
    if "backend" in args.ways:
        import convtune.torch.backend

        add("backend", torch.compile(copy.deepcopy(last), backend="convtune"), step)
        ways["backend"]()
        print(convtune.torch.backend.last_report(), flush=True)
    ours = copy.deepcopy(last)
    with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):  # the example's types, as a step has them
        convtune.optimize(ours, x_last, budget=args.budget, progress=False, train=step)
    report, seconds = ours.convtune_report, time.monotonic() - begin
    if "ours" in args.ways:
        add("ours", ours, step)
    if "ours compiled" in args.ways and report.kept:
        add("ours compiled", torch.compile(copy.deepcopy(ours)), step)
        ways["ours compiled"]()
    found = measured(ways, device, args.seconds)
    won = {}
    for layer in report.layers:
        if layer.swapped:
            direction = layer.problem.direction
            count, saved = won.get(direction, (0, 0.0))
            won[direction] = count + layer.calls, saved + layer.calls * (layer.pytorch_us - layer.convtune_us)
    return {
        "model": name, "batch": args.batch, "size": args.size, "type": args.type, "seconds_before": seconds,
        "ms": {way: ms for way, (ms, _) in found.items()}, "mebibytes": {way: mib for way, (_, mib) in found.items()},
        "kept": report.kept, "won": won, "table": str(report),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["convnext_tiny", "resnet50"], help="torchvision's names")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--type", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of optimize")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the comparison of a model")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", help="the file that the rows go to")
    args = parser.parse_args()
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    name = torch.cuda.get_device_name() if args.device != "cpu" else "cpu"
    result = {"format": "convtune-torch-training", "version": 1, "device": name, "torch": torch.__version__, "rows": []}
    for model in args.models:
        row = measure(model, args)
        result["rows"].append(row)
        times = ", ".join(f"{way} {ms:.2f} ms ({row['mebibytes'][way]:.0f} MiB)" for way, ms in row["ms"].items())
        won = ", ".join(f"{count} {direction} save {us:.0f} us" for direction, (count, us) in row["won"].items())
        kept = "kept" if row["kept"] else "put back"
        print(f"{model}, batch {args.batch}: {times}; optimize {row['seconds_before']:.0f} s, {kept}: {won or 'nothing won'}",
              flush=True)  # fmt: skip
        if args.json:
            with open(args.json, "w") as file:
                json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
