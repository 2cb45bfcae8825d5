#!/usr/bin/env python3
"""Trains a small 3-D U-Net to find spheres in noise, as it stands and with the gradients that convtune computes faster here.

    python examples/train_unet3d.py                                                  # a GPU: bf16 autocast, channels last
    python examples/train_unet3d.py --device cpu --size 16 --batch 1 --width 8       # seconds

Volumes are drawn, nothing is downloaded. convtune.optimize(train=...) lets the directions of each layer compete and keeps them
only where a whole step is proven faster. Needs PyTorch and convtune; training.py has the rest.
"""

import argparse

import torch
from torch import nn
from training import add_options, compare


def twice(inputs, outputs, stride=1):
    layers = []
    for channels, step in ((inputs, stride), (outputs, 1)):
        layers += [nn.Conv3d(channels, outputs, 3, step, 1), nn.InstanceNorm3d(outputs, affine=True), nn.LeakyReLU(0.01)]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """One channel to two classes; each stage, of a number of channels from `widths`, halves the volume."""

    def __init__(self, widths):
        super().__init__()
        self.first = twice(1, widths[0])
        self.down = nn.ModuleList(twice(one, other, 2) for one, other in zip(widths, widths[1:]))
        pairs = list(zip(widths[::-1], widths[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose3d(one, other, 2, 2) for one, other in pairs)
        self.behind = nn.ModuleList(twice(2 * other, other) for _, other in pairs)
        self.last = nn.Conv3d(widths[0], 2, 1)

    def forward(self, x):
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(kept[-1]))
        x = kept.pop()
        for up, behind in zip(self.up, self.behind):
            x = behind(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


class Spheres:
    """Batches of volumes with three spheres each, half as bright as the noise is strong, and what is inside of them."""

    def __init__(self, batch, size, device):
        self.batch, self.device = batch, device
        line = torch.linspace(0, 1, size, device=device)
        self.places = torch.stack(torch.meshgrid(line, line, line, indexing="ij"))

    def draw(self):
        centres = torch.rand(self.batch, 3, 3, 1, 1, 1, device=self.device)
        radii = 0.1 + 0.15 * torch.rand(self.batch, 3, 1, 1, 1, device=self.device)
        inside = ((self.places - centres).square().sum(2) < radii.square()).any(1)
        x = 0.5 * inside[:, None].float() + torch.randn(self.batch, 1, *inside.shape[1:], device=self.device)
        return x.to(memory_format=torch.channels_last_3d), inside.long()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, batch=2)
    parser.add_argument("--size", type=int, default=128, help="of a volume each way, a multiple of 2^(stages - 1)")
    parser.add_argument("--width", type=int, default=32, help="channels of the first stage")
    parser.add_argument("--stages", type=int, default=4)
    args = parser.parse_args()
    torch.manual_seed(0)
    volumes = Spheres(args.batch, args.size, args.device)
    model = UNet([args.width << stage for stage in range(args.stages)]).to(args.device, memory_format=torch.channels_last_3d)
    compare(model, volumes, args, rate=3e-3)


if __name__ == "__main__":
    main()
