"""Networks that up-sample by transposed convolutions, in plain PyTorch: parts of torch_zoo.py, torch_training.py
and torch_convergence.py."""

import sys
from pathlib import Path

import torch
from torch import nn


def _twice(inputs, outputs):
    """U-Net's two convolutions."""
    layers = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """The U-Net of 2015 with padding and batch norms: images of three channels to masks of two classes."""

    def __init__(self):
        super().__init__()
        widths = (64, 128, 256, 512, 1024)
        self.first = _twice(3, widths[0])
        self.down = nn.ModuleList(_twice(one, other) for one, other in zip(widths, widths[1:]))
        pairs = list(zip(widths[::-1], widths[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(one, other, 2, 2) for one, other in pairs)
        self.behind = nn.ModuleList(_twice(one, other) for one, other in pairs)
        self.last = nn.Conv2d(widths[0], 2, 1)

    def forward(self, x):
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(nn.functional.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up, behind in zip(self.up, self.behind):
            x = behind(torch.cat([kept.pop(), up(x)], 1))
        return self.last(x)


def unet3d(widths=(32, 64, 128, 256, 320, 320)):
    """A U-Net of volumes as nnU-Net plans it: one channel to two classes, instance norms and leaky ReLU, six stages."""
    return volumes().UNet(widths)


def volumes():
    """examples/train_unet3d.py."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
    import train_unet3d

    return train_unet3d


def dcgan(width=64):
    """DCGAN's generator: 100 numbers to 64 x 64 pixels."""
    layers, channels = [], 100
    for step, outputs in enumerate((8 * width, 4 * width, 2 * width, width)):
        layers += [nn.ConvTranspose2d(channels, outputs, 4, 2 if step else 1, 1 if step else 0, bias=False),
                   nn.BatchNorm2d(outputs), nn.ReLU()]
        channels = outputs
    return nn.Sequential(*layers, nn.ConvTranspose2d(channels, 3, 4, 2, 1, bias=False), nn.Tanh())


class _Residual(nn.Module):
    def __init__(self, channels):
        super().__init__()
        layers = []
        for _ in range(2):
            layers += [nn.ReflectionPad2d(1), nn.Conv2d(channels, channels, 3), nn.InstanceNorm2d(channels), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x):
        return x + self.layers(x)


def cyclegan(width=64):
    """CycleGAN's generator of nine residual blocks."""
    layers = [nn.ReflectionPad2d(3), nn.Conv2d(3, width, 7), nn.InstanceNorm2d(width), nn.ReLU()]
    for channels in (width, 2 * width):
        layers += [nn.Conv2d(channels, 2 * channels, 3, 2, 1), nn.InstanceNorm2d(2 * channels), nn.ReLU()]
    layers += [_Residual(4 * width) for _ in range(9)]
    for channels in (4 * width, 2 * width):
        layers += [nn.ConvTranspose2d(channels, channels // 2, 3, 2, 1, 1), nn.InstanceNorm2d(channels // 2), nn.ReLU()]
    return nn.Sequential(*layers, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())
