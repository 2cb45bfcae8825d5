"""Layers by convtune's plans beside PyTorch as people run them, with bias, activation and residual, on one GPU.

    python bench/torch_layers.py --suite video --json found.json

A row is a forward line of a suite (cases/) in half precision or single. Ours is what plan() answers, a record's or the first guess,
with weights that were packed before; PyTorch's is eager code: padding where sides differ, the convolution with its bias, the residual,
the activation; the faster of cudnn.benchmark on and off counts. All run in turns between events, behind a flush of the L2.
"""

import argparse
import math
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch_gradients import AGREES, CASES, FREE, Machine, Row, Way, best, lines_of, save, with_settings

import convtune

ACTIVATIONS = {
    "none": lambda y: y,
    "relu": torch.relu,
    "silu": torch.nn.functional.silu,
    "gelu_erf": torch.nn.functional.gelu,
    "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
    "hardswish": torch.nn.functional.hardswish,
    "sigmoid": torch.sigmoid,
}


def activation(text):
    """A function of PyTorch's for a problem's word."""
    name, *numbers = text.split(":")
    if name == "leaky_relu":
        return lambda y: torch.nn.functional.leaky_relu(y, float(numbers[0]))
    if name == "clip":
        return lambda y: y.clamp(float(numbers[0]), float(numbers[1]))
    return ACTIVATIONS[name]


class Layer(Row):
    """A forward problem's tensors with its bias and residual, and what runs it."""

    def __init__(self, problem, device):
        super().__init__(problem, device)
        generator = torch.Generator(device).manual_seed(2)
        self.bias = (torch.rand(problem.k, generator=generator, device=device) - 0.5).to(self.w.dtype) if problem.bias else None
        self.residual = torch.rand_like(self.dy) if problem.residual else None

    def theirs(self):
        a, axes = self.problem, len(self.problem.stride)
        before, behind = a.padding[:axes], a.padding[axes:]
        sides = [side for pair in zip(before[::-1], behind[::-1]) for side in pair]
        convolve, act = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[axes], activation(a.activation)

        def run():
            x = self.x if self.even else torch.nn.functional.pad(self.x, sides)
            y = convolve(x, self.w, self.bias, a.stride, before if self.even else 0, a.dilation, a.groups)
            return act(y if self.residual is None else y + self.residual)

        return run

    def ours(self, convolution):
        """Packs once, and gives a function that queues the plan and gives its result."""
        stream = torch.cuda.current_stream(self.device).cuda_stream if self.device.type == "cuda" else 0
        packed = torch.empty(convolution.packed_bytes + 256, dtype=torch.uint8, device=self.device)
        at = packed.data_ptr() + -packed.data_ptr() % 256
        convolution.pack_raw(self.plain.data_ptr(), 0 if self.bias is None else self.bias.data_ptr(), at, stream)
        y = torch.empty_like(self.dy)
        tensors = {"x": self.x.data_ptr(), "y": y.data_ptr()}
        if self.residual is not None:
            tensors["residual"] = self.residual.data_ptr()

        def run():
            convolution.run_tensors_raw(**tensors, packed=at, stream=stream)
            return y

        run.packed = packed  # lives as long
        return run


def measure(layer, convolution, machine, seconds):
    """A row of the table: medians in us, the error of our answer over PyTorch's root mean square, why a way failed."""
    theirs = layer.theirs()
    ways = [Way("ours", layer.ours(convolution)), Way(FREE, with_settings(theirs, True, False)),
            Way(f"{FREE}, no benchmark", with_settings(theirs, False, False))]  # fmt: skip
    answers = {}
    for way in ways:
        for _ in range(2):
            answers[way.name] = way.run()
        machine.synchronize()
    reference = answers[FREE].float()
    error = float((answers["ours"].float() - reference).square().mean().sqrt() / reference.square().mean().sqrt())
    answers.clear()
    spent, rounds = 0.0, 0
    while rounds < 5 or (spent < seconds * 1e6 and rounds < 200):
        for way in ways if rounds % 2 == 0 else ways[::-1]:
            way.samples.append(machine.us(way.run))
            spent += way.samples[-1]
        rounds += 1
    problem = layer.problem
    found = {"name": problem.name, "problem": str(problem), "us": {way.name: way.us for way in ways}, "rounds": rounds, "error": error}
    return found | ({} if error <= AGREES[problem.dtype] else {"failure": f"its answer is {error:.2e} off PyTorch's"})


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--suite", nargs="*", default=[], help="names of files of cases/")
    parser.add_argument("--lines", type=Path, help="problem lines in a file")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=0.3, help="measuring time of a row")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds behind which rows are left out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    begin = time.monotonic()
    lines = [line for suite in options.suite for line in lines_of(CASES / f"{suite}.txt")]
    lines += lines_of(options.lines) if options.lines else []
    problems, machine, rows = [convtune.Problem.parse(line) for line in lines], Machine(options.device), []
    with ThreadPoolExecutor(max(len(os.sched_getaffinity(0)) - 1, 1)) as pool:
        ready = [pool.submit(convtune.Convolution, problem, options.device) for problem in problems]
        print(f"{'us':28} {'ours':>8} {'PyTorch':>8} {'times':>6}", flush=True)
        for problem, one in zip(problems, ready):
            if time.monotonic() - begin > options.deadline:
                print(f"{len(problems) - len(rows)} rows left out: no time")
                pool.shutdown(wait=False, cancel_futures=True)
                break
            plan = one.result().plan
            found = measure(Layer(problem, machine.device), one.result(), machine, options.seconds)
            rows.append(found | {"plan": f"{plan.source}: {plan.algorithm} {plan.config}"})
            own, other = found["us"]["ours"], best(found, FREE)
            print(f"{problem.name or str(problem):28.28} {own:8.1f} {other:8.1f} {other / own:6.2f} {found.get('failure', '')}"
                  f" {plan.source}: {plan.algorithm}", flush=True)  # fmt: skip
            if options.json:
                save(options.json, machine, rows)
    ratios = [best(row, FREE) / row["us"]["ours"] for row in rows if "failure" not in row]
    if ratios:
        mean = math.exp(statistics.fmean(math.log(one) for one in ratios))
        print(f"{mean:.3f} over PyTorch with its bias and what follows ({len(ratios)} rows, least {min(ratios):.2f}, "
              f"{sum(one < 0.98 for one in ratios)} below 0.98)")  # fmt: skip


if __name__ == "__main__":
    main()
