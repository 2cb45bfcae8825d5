"""Parts of tests of a compiled step of training: a small model, steps of it, and what they are held to."""

from torch_support import torch

nn = torch.nn


def small():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, 2), nn.Dropout(0.0),
    ).train()  # fmt: skip


def stepped(model, x, run, steps=2):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        run(x).square().mean().backward()
        optimizer.step()
    return [*[one.grad for one in model.parameters()], *model.buffers()]


def assert_same(found, expected):
    """A bias before a norm has a gradient of rounding alone."""
    for one, other in zip(found, expected):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-5)
