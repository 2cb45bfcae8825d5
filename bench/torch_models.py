#!/usr/bin/env python3
"""Whole PyTorch models on a GPU: eager, torch.compile, convtune.optimize, and both; and what a call costs the host.

    python bench/torch_models.py --json models.json                # all four models, batch 64
    python bench/torch_models.py --models resnet18 --budget 30 --no-compile
    python bench/torch_models.py --overhead                        # host time of one call, nothing else

The models have the layers of those that their names tell, random weights, NCHW, TF32, eval mode, cudnn.benchmark on:
PyTorch at its best. Needs PyTorch, the convtune package and a GPU; nothing is downloaded.
"""

import argparse
import datetime
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

import convtune
import convtune.torch


def conv_norm(c, k, size, stride=1, groups=1, act=nn.ReLU):
    layers = [nn.Conv2d(c, k, size, stride, size // 2, groups=groups, bias=False), nn.BatchNorm2d(k)]
    return layers + ([act(inplace=True)] if act else [])


class ResidualBlock(nn.Module):
    def __init__(self, c, k, stride):
        super().__init__()
        self.body = nn.Sequential(*conv_norm(c, k, 3, stride), *conv_norm(k, k, 3, act=None))
        self.short = nn.Sequential(*conv_norm(c, k, 1, stride, act=None)) if c != k or stride > 1 else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


def resnet18():
    layers, c = [*conv_norm(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for k, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [ResidualBlock(c, k, stride), ResidualBlock(k, k, 1)]
        c = k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000))


class ChannelNorm(nn.LayerNorm):
    def forward(self, x):
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.depthwise = nn.Conv2d(c, c, 7, padding=3, groups=c)
        self.norm, self.wide, self.narrow = nn.LayerNorm(c), nn.Linear(c, 4 * c), nn.Linear(4 * c, c)
        self.scale = nn.Parameter(torch.full((c,), 0.1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.narrow(F.gelu(self.wide(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext_tiny():
    layers, c = [nn.Conv2d(3, 96, 4, 4), ChannelNorm(96)], 96
    for k, depth in ((96, 3), (192, 3), (384, 9), (768, 3)):
        if k != c:
            layers += [ChannelNorm(c), nn.Conv2d(c, k, 2, 2)]
        layers += [ConvNextBlock(k) for _ in range(depth)]
        c = k
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(c, 1000))


class AttentionBlock(nn.Module):
    def __init__(self, c, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(c), nn.LayerNorm(c)
        self.qkv, self.out = nn.Linear(c, 3 * c), nn.Linear(c, c)
        self.mlp = nn.Sequential(nn.Linear(c, 4 * c), nn.GELU(), nn.Linear(4 * c, c))

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, t, c))
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    def __init__(self, c=768, depth=12, heads=12):
        super().__init__()
        self.patches = nn.Conv2d(3, c, 16, 16)
        self.positions = nn.Parameter(0.02 * torch.randn(1, 196, c))
        self.blocks = nn.Sequential(*(AttentionBlock(c, heads) for _ in range(depth)))
        self.head = nn.Sequential(nn.LayerNorm(c), nn.Linear(c, 1000))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        return self.head(self.blocks(x).mean(1))


class InvertedResidual(nn.Module):
    def __init__(self, c, k, stride, widen):
        super().__init__()
        wide = c * widen
        expand = conv_norm(c, wide, 1, act=nn.ReLU6) if widen > 1 else []
        depthwise = conv_norm(wide, wide, 3, stride, wide, nn.ReLU6)
        self.body = nn.Sequential(*expand, *depthwise, *conv_norm(wide, k, 1, act=None))
        self.adds = stride == 1 and c == k

    def forward(self, x):
        return x + self.body(x) if self.adds else self.body(x)


def mobilenet_v2():
    layers, c = conv_norm(3, 32, 3, 2, act=nn.ReLU6), 32
    table = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for widen, k, depth, stride in table:
        for i in range(depth):
            layers.append(InvertedResidual(c, k, stride if i == 0 else 1, widen))
            c = k
    layers += conv_norm(c, 1280, 1, act=nn.ReLU6)
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1280, 1000))


MODELS = {
    "resnet18": resnet18,
    "convnext_tiny": convnext_tiny,
    "vit_b16": VisionTransformer,
    "mobilenet_v2": mobilenet_v2,
}


def interleaved(ways, x, seconds):
    """{name: (median, median absolute deviation, samples)} of the wall time of one forward, microseconds."""
    samples = {name: [] for name in ways}
    start, rounds = time.perf_counter(), 0
    while rounds < 10 or (rounds < 200 and time.perf_counter() - start < seconds):
        order = list(ways) if rounds % 2 == 0 else list(ways)[::-1]
        for name in order:
            torch.cuda.synchronize()
            begin = time.perf_counter()
            ways[name](x)
            torch.cuda.synchronize()
            samples[name].append(1e6 * (time.perf_counter() - begin))
        rounds += 1
    medians = {name: statistics.median(of) for name, of in samples.items()}
    return {
        name: (medians[name], statistics.median(abs(one - medians[name]) for one in of), len(of))
        for name, of in samples.items()
    }


def errors(model, optimized, x):
    """Largest difference from PyTorch in exact fp32, over its root mean square: PyTorch's in TF32, convtune's."""
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    exact = model(x)
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    scale = exact.square().mean().sqrt()
    return [float((way(x) - exact).abs().max() / scale) for way in (model, optimized)]


def measure(name, args):
    torch.manual_seed(0)
    make = lambda: MODELS[name]().cuda().eval()  # noqa: E731
    eager = make()
    for module in eager.modules():  # or the numbers vanish on their way through many layers
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_in")
    x = torch.randn(args.batch, 3, 224, 224, device="cuda")
    optimized = make()
    optimized.load_state_dict(eager.state_dict())
    begin = time.perf_counter()
    convtune.optimize(optimized, x, budget=args.budget, progress=False)
    seconds = time.perf_counter() - begin
    report = optimized.convtune_report
    print(f"== {name}, batch {args.batch}, optimized in {seconds:.0f} s\n{report}", flush=True)
    ways = {"eager": eager, "convtune": optimized}
    kept = {"eager": report.kept}
    if args.compile:
        proven = make()
        proven.load_state_dict(eager.state_dict())
        convtune.optimize(proven, x, budget=0, progress=False, compiled=True)
        whole = proven.convtune_report
        print(f"{name} compiled: {whole.before_us:.0f} us, {whole.after_us:.0f} with convtune, kept: {whole.kept}")
        ways |= {"compile": torch.compile(eager), "convtune+compile": torch.compile(proven)}
        kept["compile"] = whole.kept
    for way in ways.values():
        for _ in range(3):
            way(x)
    eager_error, own_error = errors(eager, optimized, x)
    times = interleaved(ways, x, args.seconds)
    row = "  ".join(f"{way} {us:.0f} ± {mad:.0f}" for way, (us, mad, _) in times.items())
    print(f"{name}: {row} us; error {eager_error:.2g} eager, {own_error:.2g} convtune\n", flush=True)
    layers = [
        {"layers": one.names, "problem": str(one.problem), "calls": one.calls, "pytorch_us": one.pytorch_us,
         "convtune_us": one.convtune_us, "gain": one.gain, "algorithm": one.algorithm, "config": one.config,
         "layout": one.layout, "swapped": one.swapped, "decision": one.decision}
        for one in report.layers
    ]  # fmt: skip
    return {
        "model": name, "batch": args.batch, "optimize_seconds": seconds, "kept": kept,
        "times_us": {way: {"median": us, "mad": mad, "n": n} for way, (us, mad, n) in times.items()},
        "max_error": {"eager": eager_error, "convtune": own_error}, "layers": layers,
    }  # fmt: skip


def host_us(call):
    """Median over batches of the host's time a call; the device never has more than a batch to do."""
    batches = []
    for _ in range(50):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(100):
            call()
        batches.append(1e4 * (time.perf_counter() - begin))
    return statistics.median(batches)


def overhead():
    """Host microseconds a call on a tiny problem, by way."""
    x, w, bias = (torch.randn(*shape, device="cuda") for shape in ((1, 3, 8, 8), (8, 3, 3, 3), (8,)))
    convolution = convtune.torch.convolution_of(x, w, bias, (1, 1), (1, 1, 1, 1), (1, 1), 1)
    packed = torch.empty(convolution.packed_bytes, dtype=torch.uint8, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    convolution.pack_raw(w.data_ptr(), bias.data_ptr(), packed.data_ptr(), stream)
    y = convtune.conv2d(x, w, bias, padding=1)
    addresses = x.data_ptr(), packed.data_ptr(), y.data_ptr(), stream
    module = convtune.nn.Conv2d(3, 8, 3, padding=1).cuda()
    theirs = nn.Conv2d(3, 8, 3, padding=1).cuda()
    trained = w.clone().requires_grad_()
    ways = {
        "bare launch (run_raw)": lambda: convolution.run_raw(*addresses),
        "convtune.conv2d": lambda: convtune.conv2d(x, w, bias, padding=1),
        "torch.nn.functional.conv2d": lambda: F.conv2d(x, w, bias, padding=1),
        "convtune.nn.Conv2d": lambda: module(x),
        "torch.nn.Conv2d": lambda: theirs(x),
        "torch.ops.convtune.conv2d": lambda: torch.ops.convtune.conv2d(x, w, bias, (1, 1), (1, 1, 1, 1), (1, 1), 1),
    }
    recording = {
        "convtune.conv2d, gradients": lambda: convtune.conv2d(x, trained, bias, padding=1),
        "torch.nn.functional.conv2d, gradients": lambda: F.conv2d(x, trained, bias, padding=1),
    }
    with torch.no_grad():
        for call in ways.values():
            host_us(call)
        result = {name: host_us(call) for name, call in ways.items()}
    for call in recording.values():
        host_us(call)
    result |= {name: host_us(call) for name, call in recording.items()}
    print(f"host time a call, tiny problem, {convolution.plan.algorithm}:")
    for name, us in result.items():
        print(f"  {name:40} {us:6.2f} us")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), help="comma-separated")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--budget", type=float, default=60, help="seconds of search a model")
    parser.add_argument("--seconds", type=float, default=10, help="of interleaved rounds a model")
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    parser.add_argument("--overhead", action="store_true", help="the host's time a call, and no models")
    parser.add_argument("--json")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("torch_models: PyTorch sees no GPU here")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    out = {
        "format": "convtune-torch-models", "version": 1, "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(),
                     "convtune": convtune.__version__},
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}", "models": [],
    }  # fmt: skip
    out["host_us"] = overhead()
    names = [] if args.overhead else args.models.split(",")
    with torch.no_grad():
        for name in names:
            out["models"].append(measure(name, args))
            if args.json:  # after each model: a run that is cut short leaves what it has
                with open(args.json, "w", encoding="utf-8") as file:
                    json.dump(out, file, indent=1)
            torch.cuda.empty_cache()
    if args.json and not names:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(out, file, indent=1)


if __name__ == "__main__":
    main()
