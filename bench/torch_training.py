#!/usr/bin/env python3
"""Whole steps of training: convtune.optimize(train=True) beside PyTorch eager and compiled, in turns, in one process.

    python bench/torch_training.py --models convnext_tiny resnet50 --batch 256 --json training.json
    python bench/torch_training.py --models resnet18 --batch 2 --size 64 --device cpu --seconds 5
    python bench/torch_training.py --models convnext_tiny:256 unet3d:2 --warm 4 --deadline 500 --json training.json

A step is zero_grad, forward under bf16 autocast, cross entropy, backward, SGD with momentum, on synthetic images (or volumes:
unet3d, of --depth) with random labels. Ways: eager and compiled (PyTorch's default mode), channels first and last; ours, as
optimize left the eager model that lies channels last; ours compiled: that model through torch.compile; backend:
torch.compile(backend="convtune"). The memory of a way is PyTorch's allocator at the peak of a step, with the weights, momenta
and gradients that it keeps and without what other ways do. With --warm N, PyTorch's compiled ways
are compiled before, N processes at a time, for inductor's cache. What the --deadline keeps from being ready is left out, and said.
Needs PyTorch and torchvision; nothing is downloaded.
"""

import argparse
import contextlib
import copy
import gc
import json
import signal
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

START = time.monotonic()
WAYS = ("eager", "compiled", "ours", "backend", "compiled first", "eager first", "ours compiled")  # in the order of their turns


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


def allocated(device):
    """Bytes of PyTorch's allocator that live."""
    import torch

    gc.collect()
    wait(device)
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def peak_mib(run, device, before):
    """MiB at the peak of a step over the bytes before it."""
    import torch

    if device.type != "cuda":
        return 0.0
    for _ in range(3):
        run()
    wait(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    wait(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def measured(ways, device, seconds):
    """{way: median milliseconds}, one step of each in turns."""
    times = {name: [] for name in ways}
    end = time.monotonic() + seconds
    while time.monotonic() < end or len(times[next(iter(ways))]) < 5:
        for name, run in ways.items():
            run()
            wait(device)
            begin = time.perf_counter()
            run()
            wait(device)
            times[name].append(1e3 * (time.perf_counter() - begin))
    return {name: statistics.median(times[name]) for name in ways}


def module_and_data(name, args):
    """(the model in training mode, its input, labels), channels first."""
    import torch

    torch.manual_seed(0)
    with torch.device(args.device):
        if name == "unet3d":
            from torch_generators import UNet3d

            size = (args.depth,) * 3
            model = UNet3d() if args.depth >= 64 else UNet3d((8, 16, 16))
            return model, torch.randn(args.batch, 1, *size), torch.randint(0, 2, (args.batch, *size))
        import torchvision

        model = torchvision.models.get_model(name, weights=None).train()
        return model, torch.randn(args.batch, 3, args.size, args.size), torch.randint(0, 1000, (args.batch,))


def last_of(x):
    """The memory format in which channels are last."""
    import torch

    return torch.channels_last_3d if x.dim() == 5 else torch.channels_last


class Late(BaseException):  # which nobody takes for a failure of his own
    pass


@contextlib.contextmanager
def limited(seconds):
    """Raises Late within, when the seconds are over."""

    def late(*_):
        raise Late(f"not ready after {seconds:.0f} s")

    signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, min(seconds, 1e7))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def stepped(model, step):
    """A step with an optimizer."""
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    return lambda: step(model, optimizer)


def measure(name, args):
    """The row of one model."""
    import torch

    import convtune

    device, dtype = torch.device(args.device), getattr(torch, args.type)
    first, x, labels = module_and_data(name, args)
    last, x_last = copy.deepcopy(first).to(memory_format=last_of(x)), x.to(memory_format=last_of(x))
    step = stepping(last, x_last, labels, dtype)
    step_first = stepping(first, x, labels, dtype)
    ways, missing, memory, begin, report = {}, {}, {}, time.monotonic(), None

    def eager():
        return stepped(copy.deepcopy(last), step)

    def compiled(**how):
        return stepped(torch.compile(copy.deepcopy(last), **how), step)

    def backend():
        import convtune.torch.backend

        run = compiled(backend="convtune")
        run()
        print(convtune.torch.backend.last_report(), flush=True)
        return run

    def ours():
        nonlocal report
        model = copy.deepcopy(last)
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):  # the example's types, as a step has them
            convtune.optimize(model, x_last, budget=args.budget, progress=False, train=step)
        report = model.convtune_report
        ours.model = model
        return stepped(model, step)

    def ours_compiled():
        if report is None or not report.kept:
            raise Late("optimize kept nothing")
        return stepped(torch.compile(copy.deepcopy(ours.model)), step)

    make = {"eager": eager, "eager first": lambda: stepped(copy.deepcopy(first), step_first), "compiled": compiled,
            "compiled first": lambda: stepped(torch.compile(copy.deepcopy(first)), step_first), "ours": ours,
            "ours compiled": ours_compiled, "backend": backend}  # fmt: skip
    seconds = {}
    for way in args.ways:
        since = time.monotonic()
        left = args.limit - (since - begin) - args.seconds
        if left < 3:
            missing[way] = "no time left"
            continue
        before = allocated(device)
        try:
            with limited(min(left, (0.5 if way == "ours" else 0.4) * args.limit)):
                run = make[way]()
                run()
                memory[way] = peak_mib(run, device, before)
            ways[way] = run
        except (Exception, Late) as why:  # a way that fails is one that says so
            missing[way] = f"{type(why).__name__}: {str(why).strip().splitlines()[0] if str(why).strip() else ''}"[:200]
            print(f"{name}, {way}: {missing[way]}", flush=True)
        seconds[way] = round(time.monotonic() - since, 1)
    found = measured(ways, device, args.seconds) if ways else {}
    won = {}
    for layer in report.layers if report is not None else []:
        if layer.swapped:
            direction = layer.problem.direction
            count, saved = won.get(direction, (0, 0.0))
            won[direction] = count + layer.calls, saved + layer.calls * (layer.pytorch_us - layer.convtune_us)
    return {
        "model": name, "batch": args.batch, "size": list(x.shape), "type": args.type, "seconds_before": seconds,
        "ms": found, "mebibytes": memory,
        "missing": missing, "kept": report is not None and report.kept, "won": won, "table": str(report),
    }  # fmt: skip


def warm(args, models):
    """PyTorch's compiled ways, once each, in processes of their own."""
    ways = [way for way in args.ways if way.startswith("compiled")]

    def one(name, batch, way):
        command = [sys.executable, __file__, "--models", f"{name}:{batch}", "--ways", way, "--only-compile", "--type", args.type,
                   "--size", str(args.size), "--depth", str(args.depth), "--device", args.device]  # fmt: skip
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(command, timeout=max(end - time.monotonic(), 0.1), check=False, stdout=subprocess.DEVNULL)

    begin = time.monotonic()
    end = begin + 2 * args.deadline / (len(models) + 2)
    with ThreadPoolExecutor(args.warm) as pool:
        list(pool.map(lambda given: one(*given), [(*model, way) for model in models for way in ways]))
    print(f"inductor's cache is warm after {time.monotonic() - begin:.0f} s", flush=True)


def only_compile(name, args):
    import torch

    model, x, labels = module_and_data(name, args)
    if "compiled" in args.ways:
        model, x = model.to(memory_format=last_of(x)), x.to(memory_format=last_of(x))
    stepped(torch.compile(model), stepping(model, x, labels, getattr(torch, args.type)))()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["convnext_tiny", "resnet50"],
                        help="torchvision's names and unet3d, each with :BATCH where not --batch")  # fmt: skip
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--depth", type=int, default=128, help="of a volume, each way")
    parser.add_argument("--type", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of optimize")
    parser.add_argument("--seconds", type=float, default=10.0, help="of the comparison of a model")
    parser.add_argument("--deadline", type=float, default=1e6, help="seconds, of which each model has a share and --warm has two")
    parser.add_argument("--warm", type=int, default=0, metavar="N", help="compile PyTorch's ways before, N at a time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", help="the file that the rows go to")
    parser.add_argument("--only-compile", action="store_true", help=argparse.SUPPRESS)  # be one of --warm
    args = parser.parse_args()
    models = [(name, int(batch or args.batch)) for name, _, batch in (one.partition(":") for one in args.models)]
    if args.warm:
        warm(args, models)
    import torch

    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    name = torch.cuda.get_device_name() if args.device != "cpu" else "cpu"
    result = {"format": "convtune-torch-training", "version": 2, "device": name, "torch": torch.__version__, "rows": []}
    for number, (model, args.batch) in enumerate(models):
        if args.only_compile:
            only_compile(model, args)
            continue
        args.limit = (args.deadline - (time.monotonic() - START)) / (len(models) - number)
        row = measure(model, args)
        result["rows"].append(row)
        times = ", ".join(f"{way} {ms:.2f} ms ({row['mebibytes'][way]:.0f} MiB)" for way, ms in row["ms"].items())
        won = ", ".join(f"{count} {direction} save {us:.0f} us" for direction, (count, us) in row["won"].items())
        kept = "kept" if row["kept"] else "put back"
        print(f"{model}, batch {args.batch}: {times}; optimize {row['seconds_before'].get('ours', 0):.0f} s, {kept}: "
              f"{won or 'nothing won'}", flush=True)  # fmt: skip
        if args.json:
            with open(args.json, "w") as file:
                json.dump(result, file, indent=1)
        torch._dynamo.reset()
        gc.collect()
        if args.device != "cpu":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
