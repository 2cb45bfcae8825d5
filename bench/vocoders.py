#!/usr/bin/env python3
"""Two decoders of sound as one CUDA graph each, before and after convtune: HiFi-GAN V1 (mel frames to samples) and DAC's
decoder at 44 kHz (latents to samples), in plain PyTorch with random weights, batch 1. Needs PyTorch and a GPU.

    vocoders.py --model hifigan --frames 100 --dtype bf16 --budget 120
    vocoders.py --model dac --frames 8 --dtype tf32 --budget 60 --compile

Ways: PyTorch's model (cudnn.benchmark on), the same after convtune.optimize, and, with --compile, torch.compile in the mode
"reduce-overhead" and convtune.graphed. Each is replayed as a CUDA graph, in turns, behind a pass over memory
that is larger than L2; medians. The floor is the sum over the layers of the least time that each can take by itself.
"""

import argparse
import copy
import json
import statistics
import sys
from pathlib import Path

import torch
from torch import nn

# By product name: bytes a second that a copy reaches, and FLOPs a second of products of two types, as measured.
CEILINGS = {"H200": (4.25e12, {"tf32": 400e12, "bf16": 749e12, "fp16": 749e12}),
            "H100": (3.0e12, {"tf32": 400e12, "bf16": 749e12, "fp16": 749e12})}


class ResidualBlock(nn.Module):
    """HiFi-GAN's: three dilated convolutions, each with another behind it."""

    def __init__(self, channels, taps):
        super().__init__()
        self.first = nn.ModuleList(
            nn.Conv1d(channels, channels, taps, padding=(taps - 1) * hole // 2, dilation=hole) for hole in (1, 3, 5))
        self.second = nn.ModuleList(nn.Conv1d(channels, channels, taps, padding=taps // 2) for _ in range(3))

    def forward(self, x):
        for first, second in zip(self.first, self.second):
            x = second(nn.functional.leaky_relu(first(nn.functional.leaky_relu(x, 0.1)), 0.1)) + x
        return x


class HiFiGan(nn.Module):
    """The generator V1: 80 mel bands, 256 samples a frame."""

    inputs = 80

    def __init__(self):
        super().__init__()
        self.before, self.up, self.blocks, channels = nn.Conv1d(80, 512, 7, padding=3), nn.ModuleList(), nn.ModuleList(), 512
        for step, taps in ((8, 16), (8, 16), (2, 4), (2, 4)):
            self.up.append(nn.ConvTranspose1d(channels, channels // 2, taps, step, (taps - step) // 2))
            channels //= 2
            self.blocks.append(nn.ModuleList(ResidualBlock(channels, taps) for taps in (3, 7, 11)))
        self.behind = nn.Conv1d(channels, 1, 7, padding=3)

    def forward(self, x):
        x = self.before(x)
        for up, blocks in zip(self.up, self.blocks):
            x = up(nn.functional.leaky_relu(x, 0.1))
            x = sum(block(x) for block in blocks) / len(blocks)
        return torch.tanh(self.behind(nn.functional.leaky_relu(x, 0.01)))


class Snake(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(1, channels, 1))

    def forward(self, x):
        return x + (self.alpha * x).sin().square() / (self.alpha + 1e-9)


class ResidualUnit(nn.Module):
    """DAC's: a dilated convolution and one of a point."""

    def __init__(self, channels, hole):
        super().__init__()
        self.layers = nn.Sequential(
            Snake(channels), nn.Conv1d(channels, channels, 7, padding=3 * hole, dilation=hole),
            Snake(channels), nn.Conv1d(channels, channels, 1))

    def forward(self, x):
        return x + self.layers(x)


class Dac(nn.Module):
    """The decoder at 44 kHz: 1,024 latent channels, 512 samples a frame."""

    inputs = 1024

    def __init__(self):
        super().__init__()
        layers, channels = [nn.Conv1d(1024, 1536, 7, padding=3)], 1536
        for step in (8, 8, 4, 2):
            layers += [Snake(channels), nn.ConvTranspose1d(channels, channels // 2, 2 * step, step, (step + 1) // 2)]
            channels //= 2
            layers += [ResidualUnit(channels, hole) for hole in (1, 3, 9)]
        self.layers = nn.Sequential(*layers, Snake(channels), nn.Conv1d(channels, 1, 7, padding=3), nn.Tanh())

    def forward(self, x):
        return self.layers(x)


MODELS = {"hifigan": HiFiGan, "dac": Dac}


def floor_us(problems, kind):
    """The least time of the layers one after the other; None on a GPU whose ceilings are not known."""
    found = next((value for name, value in CEILINGS.items() if name in torch.cuda.get_device_name()), None)
    if found is None:
        return None
    bandwidth, flops = found[0], found[1][kind]
    return 1e6 * sum(one.count * max(one.problem.bytes / bandwidth, one.problem.flops / flops) for one in problems)


def replayed(model, x):
    """A CUDA graph of the model's forward."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = model(x)
    return graph.replay, y, graph


def compiled(model, x):
    step = torch.compile(model, mode="reduce-overhead")

    def run():
        torch.compiler.cudagraph_mark_step_begin()
        return step(x)

    for _ in range(3):
        y = run().clone()
    return run, y, step


def medians(ways, rounds):
    large = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (run, *_) in ways.items():
            for _ in range(4):
                large.zero_()
                first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                first.record()
                run()
                last.record()
                last.synchronize()
                times[name].append(1e3 * first.elapsed_time(last))
    return {name: statistics.median(samples) for name, samples in times.items()}


def told(ways, exact, floor, rounds):
    """Times the ways in turns, says what was found and returns it."""
    us, rows = medians(ways, rounds), {}
    first = us["PyTorch, as a graph"]
    for name, (_, y, *_) in ways.items():
        error = float((y.double() - exact).norm() / exact.norm())
        rows[name] = {"us": us[name], "over_pytorch": first / us[name], "relative_error": error}
        of_floor = f"{us[name] / floor:5.2f}x the floor" if floor else ""
        print(f"{name:22} {us[name]:9.1f} us {first / us[name]:5.2f}x {of_floor}  relative error {error:.1e}")
    print(f"floor of the layers    {floor:9.1f} us" if floor else "no floor: this GPU's ceilings are not known", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="hifigan")
    parser.add_argument("--frames", type=int, default=100)
    parser.add_argument("--dtype", choices=("tf32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--budget", type=float, default=60, help="seconds of search of convtune.optimize")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--compile", action="store_true", help="torch.compile's ways, too: a minute or more of compiling")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    import convtune

    torch.backends.cudnn.benchmark = torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    torch.manual_seed(0)
    kind = MODELS[args.model]
    dtype = {"tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[args.dtype]
    model = kind().eval().requires_grad_(False).to("cuda", dtype)
    x = torch.randn(1, kind.inputs, args.frames, device="cuda").to(dtype)
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(x.double())
        found = convtune.model_problems(model, x)
        ways = {"PyTorch, as a graph": replayed(model, x)}
        ours = convtune.optimize(copy.deepcopy(model), x, budget=args.budget, progress=False)
        swapped = [one for layer in ours.convtune_report.layers if layer.swapped for one in layer.names]
        print(f"{args.model}, {args.frames} frames, {args.dtype}: {torch.cuda.get_device_name()}, PyTorch {torch.__version__}, cuDNN "
              f"{torch.backends.cudnn.version()}; {sum(one.count for one in found.convolutions)} convolutions, {len(swapped)} swapped")
        print(ours.convtune_report)
        ways["optimize, as a graph"] = replayed(ours, x)
        floor = floor_us(found.convolutions, args.dtype)
        rows = told(ways, exact, floor, args.rounds)
        if args.compile:
            ways["torch.compile"] = compiled(model, x)
            graphed = convtune.graphed(copy.deepcopy(model), x, args.budget)
            ways["convtune.graphed"] = lambda: graphed(x), graphed(x).clone(), graphed
            print(graphed.report)
            rows = told(ways, exact, floor, args.rounds)
    if args.json:
        result = {"model": args.model, "frames": args.frames, "dtype": args.dtype, "floor_us": floor, "swapped": len(swapped),
                  "device": torch.cuda.get_device_name(), "pytorch": torch.__version__, "ways": rows}
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
