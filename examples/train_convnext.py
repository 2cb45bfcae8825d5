#!/usr/bin/env python3
"""Trains a small ConvNeXt on synthetic images, as it stands and with the gradients that convtune computes faster here.

    python examples/train_convnext.py                                     # a GPU: bf16 autocast, channels last
    python examples/train_convnext.py --device cpu --size 32 --batch 4    # seconds

Images of a class share a pattern below noise, so the loss falls; nothing is downloaded. convtune.optimize(train=...) lets the
directions of each layer compete and keeps them only where a whole step is proven faster. Needs PyTorch and convtune.
"""

import argparse
import copy
import time

import torch
from torch import nn

import convtune


class Block(nn.Module):
    """A depthwise 7x7 convolution, then two products over channels, as ConvNeXt has them."""

    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.expand, self.reduce = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.full((width,), 1e-1))

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.reduce(nn.functional.gelu(self.expand(y))) * self.scale
        return x + y.permute(0, 3, 1, 2)


def convnext(width, blocks, classes):
    layers = [nn.Conv2d(3, width, 4, 4), *(Block(width) for _ in range(blocks))]
    layers += [nn.Conv2d(width, 2 * width, 2, 2), *(Block(2 * width) for _ in range(blocks))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(2 * width), nn.Linear(2 * width, classes))


class Images:
    """Batches of images, each a pattern of its class below noise."""

    def __init__(self, batch, size, classes, device):
        self.patterns = torch.randn(classes, 3, size, size, device=device)
        self.batch, self.device = batch, device

    def draw(self):
        labels = torch.randint(0, len(self.patterns), (self.batch,), device=self.device)
        x = self.patterns[labels] + torch.randn_like(self.patterns[labels])
        return x.to(memory_format=torch.channels_last), labels


def step(model, x, labels, optimizer=None):
    """One step; without an optimizer everything but its own."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        loss = nn.functional.cross_entropy(model(x).float(), labels)
    loss.backward()
    if optimizer is not None:
        optimizer.step()
    return loss.detach()


def train(model, images, steps):
    """(the mean loss of the last fifth, milliseconds a step)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses, begin = [], time.perf_counter()
    for _ in range(steps):
        losses.append(step(model, *images.draw(), optimizer))
    last = float(torch.stack(losses[-max(steps // 5, 1) :]).mean())  # waits for the device
    return last, 1e3 * (time.perf_counter() - begin) / steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224, help="of an image, a multiple of 8")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--blocks", type=int, default=3, help="of each of the two stages")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of search in optimize")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    images = Images(args.batch, args.size, 10, args.device)
    theirs = convnext(args.width, args.blocks, 10).to(args.device, memory_format=torch.channels_last)
    ours = copy.deepcopy(theirs)
    x, labels = images.draw()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):  # the types that a step has
        convtune.optimize(ours, x, budget=args.budget, train=lambda model: step(model, x, labels))
    for name, model in (("PyTorch", theirs), ("convtune", ours)):
        torch.manual_seed(1)
        loss, ms = train(model, images, args.steps)
        print(f"{name:9} loss {loss:.4f} after {args.steps} steps, {ms:.1f} ms a step")


if __name__ == "__main__":
    main()
