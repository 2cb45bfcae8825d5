"""Shared by the tests of torch.compile(backend="convtune"): a model, how it is compiled, what is found in a graph."""

from torch_support import torch, with_statistics

from convtune.problem import Problem
from convtune.torch.fused import conv2d_fused
from convtune.torch.packed import conv2d_packed

nn, functional, aten = torch.nn, torch.nn.functional, torch.ops.aten
FORCE = {"convtune.force": True}
OURS = (conv2d_fused, conv2d_packed)
NORMS = (
    aten._native_batch_norm_legit_no_training.default,
    aten.native_batch_norm.default,
    aten.cudnn_batch_norm.default,
)


def fused(graph):
    return [node for node in graph.nodes if node.target in OURS]


def activation_of(node):
    return Problem.parse(node.args[3].split("\t")[1]).activation if node.target is conv2d_packed else node.args[9]


def residual(node):
    return node.args[2 if node.target is conv2d_packed else 3]


class Block(nn.Module):
    """Three convolutions: with norm and activation, with a residual in place, depthwise with a clamp."""

    def __init__(self, activation=functional.gelu):
        super().__init__()
        self.first, self.norm = nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.second, self.third = nn.Conv2d(16, 8, 1), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.activation = activation

    def forward(self, x):
        y = self.second(self.activation(self.norm(self.first(x))))
        y += x
        return self.third(torch.relu_(y)).clamp(-1, 1)


def block(**more):
    torch.manual_seed(0)
    return with_statistics(Block(**more))


def images(*shape, device="cpu"):
    return torch.rand(shape or (2, 8, 12, 12), generator=torch.Generator().manual_seed(0)).to(device)


def compiled(model, options=FORCE, **more):
    return torch.compile(model, backend="convtune", fullgraph=True, options=options, **more)
