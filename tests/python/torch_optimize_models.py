"""Shared by the tests of optimize: a model with layers of every kind, an example, and how it is optimized."""

from torch_support import torch

import convtune

nn = torch.nn
X = torch.rand(2, 3, 24, 24)


class Subclass(nn.Conv2d):
    """Somebody's own."""


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, 2, 2)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
        self.same = self.body[0]  # shared
        self.even = nn.Conv2d(8, 8, 2, padding="same", padding_mode="reflect")
        self.own = Subclass(8, 8, 1)
        self.drop = nn.Dropout(0.1)

    def forward(self, x, scale=1.0):
        x = self.body(self.norm(self.stem(x)))
        x = self.own(self.even(self.same(x)))
        return self.drop(torch.conv2d(x, self.own.weight)) * scale


def optimized(model, example, **more):
    return convtune.optimize(model, example, budget=0, progress=False, **more)
