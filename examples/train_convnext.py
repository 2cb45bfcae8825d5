#!/usr/bin/env python3
"""Trains a small ConvNeXt on synthetic images, as it stands and with the gradients that convtune computes faster here.

    python examples/train_convnext.py                                     # a GPU: bf16 autocast, channels last
    python examples/train_convnext.py --device cpu --size 32 --batch 4    # seconds

Images of a class share a pattern below noise, so the loss falls; nothing is downloaded. convtune.optimize(train=...) lets the
directions of each layer compete and keeps them only where a whole step is proven faster. Needs PyTorch and convtune;
training.py has the rest.
"""

import argparse

import torch
from torch import nn
from training import add_options, compare


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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, batch=64)
    parser.add_argument("--size", type=int, default=224, help="of an image, a multiple of 8")
    parser.add_argument("--width", type=int, default=96)
    parser.add_argument("--blocks", type=int, default=3, help="of each of the two stages")
    args = parser.parse_args()
    torch.manual_seed(0)
    images = Images(args.batch, args.size, 10, args.device)
    model = convnext(args.width, args.blocks, 10).to(args.device, memory_format=torch.channels_last)
    compare(model, images, args, rate=1e-3)


if __name__ == "__main__":
    main()
