#!/usr/bin/env python3
"""Does training converge as it does by PyTorch where every gradient of a convolution is convtune's, proven faster or not?

    python bench/torch_convergence.py                                        # a GPU: bf16 autocast, 5 seeds each way
    python bench/torch_convergence.py --device cpu --steps 60 --width 8      # minutes

A ResNet on scikit-learn's digits, and a 3-D U-Net on drawn spheres (examples/train_unet3d.py). Ways: eager PyTorch, and
torch.compile(backend="convtune") with "convtune.force"; the same seeds, batches and optimizer. Said of each: the final losses (the
mean of the last tenth), their means and the spread of PyTorch's seeds; and the error of the first step's gradients of
convolutions' weights against double precision, root mean square over that of the gradients. Seeds go by turns, so that a
--deadline leaves pairs. Status 1 where losses are outside of the spread, or no gradient was convtune's.
"""

import argparse
import copy
import json
import statistics
import sys
import time
from pathlib import Path

import torch
from torch import nn
from torch_generators import volumes

START = time.monotonic()


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        self.beside = nn.Conv2d(inputs, outputs, 1, stride, bias=False) if stride > 1 or inputs != outputs else nn.Identity()

    def forward(self, x):
        return nn.functional.relu(self.layers(x) + self.beside(x))


class Digits:
    """1,797 images of 8x8, drawn with replacement."""

    form = torch.channels_last

    def __init__(self, args):
        from sklearn.datasets import load_digits

        found = load_digits()
        self.batch = args.batch
        self.x = torch.tensor(found.images, dtype=torch.float32, device=args.device)[:, None] / 8 - 1
        self.labels = torch.tensor(found.target, device=args.device)
        self.width = args.width

    def model(self):
        width = self.width
        return nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10))

    def draw(self):
        chosen = torch.randint(0, len(self.x), (self.batch,), device=self.x.device)
        return self.x[chosen].contiguous(memory_format=self.form), self.labels[chosen]


def spheres(args):
    of = volumes()
    data = of.Spheres(max(args.batch // 32, 1), args.size, args.device)
    data.form, data.model = torch.channels_last_3d, lambda: of.UNet([args.width, 2 * args.width, 4 * args.width])
    return data


def loss_of(model, x, labels, dtype):
    with torch.autocast(x.device.type, torch.bfloat16, enabled=dtype is torch.bfloat16):
        return nn.functional.cross_entropy(model(x).float(), labels)


def compiled(model):
    import convtune.torch.backend  # noqa: F401  (registers it)

    torch._dynamo.reset()
    return torch.compile(model, backend="convtune", options={"convtune.force": True})


def gradients(run, model, x, labels, dtype):
    """The gradients of the convolutions' weights, in double."""
    model.zero_grad(set_to_none=True)
    (loss_of(run, x, labels, dtype) if dtype else nn.functional.cross_entropy(run(x), labels)).backward()
    return [one.weight.grad.double() for one in model.modules() if isinstance(one, nn.modules.conv._ConvNd)]


def errors(data, args, dtype):
    """{way: the error of the first step's gradients}."""
    torch.manual_seed(0)
    model = data.model().to(args.device, memory_format=data.form)
    x, labels = data.draw()
    exact = copy.deepcopy(model).double()
    right = gradients(exact, exact, x.double(), labels, None)
    found = {}
    for way in ("PyTorch", "convtune"):
        own = copy.deepcopy(model)
        got = gradients(own if way == "PyTorch" else compiled(own), own, x, labels, dtype)
        off = sum(float((one - other).square().sum()) for one, other in zip(got, right))
        found[way] = (off / sum(float(other.square().sum()) for other in right)) ** 0.5
    return found


class Trained:
    """A model that is trained anew for each seed, and compiled once."""

    def __init__(self, way, data, args, dtype):
        self.data, self.args, self.dtype = data, args, dtype
        self.model = data.model().to(args.device, memory_format=data.form)
        self.run = self.model if way == "PyTorch" else compiled(self.model)

    def loss(self, seed):
        """The mean loss of the last tenth of the steps."""
        torch.manual_seed(seed)
        self.model.load_state_dict(self.data.model().state_dict())
        optimizer, losses = torch.optim.SGD(self.model.parameters(), lr=self.args.rate, momentum=0.9), []
        for step in range(self.args.steps):
            torch.manual_seed(1000 * seed + step)
            x, labels = self.data.draw()
            self.model.zero_grad(set_to_none=True)
            loss = loss_of(self.run, x, labels, self.dtype)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return float(torch.stack(losses[-max(self.args.steps // 10, 1):]).mean())


def compared(task, data, args, dtype):
    """The row of a task."""
    off = errors(data, args, dtype)
    from convtune.torch.backend import last_report

    report = last_report()
    gradients = [layer for layer in report.layers if layer.names[0].endswith((" dx", " dw"))] if report else []
    taken = sum(layer.calls for layer in gradients if layer.swapped)
    ways = {way: Trained(way, data, args, dtype) for way in ("PyTorch", "convtune")}
    losses = {way: [] for way in ways}
    for seed in range(args.seeds):
        if seed > 1 and time.monotonic() - START > args.deadline:
            print(f"no time left for seeds from {seed} on")
            break
        for way, one in ways.items():
            losses[way].append(one.loss(seed))
    theirs, ours = losses["PyTorch"], losses["convtune"]
    spread, difference = max(theirs) - min(theirs), statistics.mean(ours) - statistics.mean(theirs)
    within = abs(difference) <= spread and min(ours) >= min(theirs) - spread and max(ours) <= max(theirs) + spread
    print(f"{task}, {args.steps} steps, {taken or 'no'} gradients by convtune: {'within' if within else 'OUTSIDE'} the seeds' spread of {spread:.2e}, "
          f"means differ by {difference:+.2e}; gradients' error: PyTorch {off['PyTorch']:.2e}, convtune {off['convtune']:.2e}")
    for way, of in losses.items():
        print(f"  {way:9} {' '.join(f'{one:.5f}' for one in of)}", flush=True)
    return {"losses": losses, "errors": off, "gradients": taken, "within": within}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--tasks", nargs="+", default=["digits", "spheres"], choices=["digits", "spheres"])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=64, help="images; of volumes a 32nd")
    parser.add_argument("--size", type=int, default=32, help="of a volume each way, a multiple of 4")
    parser.add_argument("--width", type=int, default=32, help="channels of the first stage")
    parser.add_argument("--rate", type=float, default=0.02)
    parser.add_argument("--deadline", type=float, default=1e6, help="seconds after which no seed but a task's first two is begun")
    parser.add_argument("--json", metavar="FILE")
    args = parser.parse_args()
    dtype = torch.bfloat16 if args.device != "cpu" else torch.float32
    found = {}
    for task in args.tasks:
        found[task] = compared(task, Digits(args) if task == "digits" else spheres(args), args, dtype)
        if args.json:
            Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 0 if all(row["within"] and row["gradients"] for row in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
