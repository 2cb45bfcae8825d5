"""A model with branches, and how tests compile it so that a recording may have them beside each other."""

import pytest
from torch_support import torch

import convtune.torch.backend  # noqa: F401  (registers it)
from convtune.torch.graph.branches import cut

nn = torch.nn
functional = torch.nn.functional


def leaky(x):
    return functional.leaky_relu(x, 0.1)


class Block(nn.Module):
    def __init__(self, taps):
        super().__init__()
        self.first, self.second = (nn.Conv1d(8, 8, taps, padding=taps // 2) for _ in range(2))

    def forward(self, x):
        return self.second(leaky(self.first(leaky(x)))) + x


class Stages(nn.Module):
    """As a vocoder's: blocks of several filter sizes on one value, twice."""

    def __init__(self):
        super().__init__()
        self.before, self.behind = nn.Conv1d(4, 8, 3, padding=1), nn.Conv1d(8, 2, 3, padding=1)
        self.stages = nn.ModuleList(nn.ModuleList(Block(taps) for taps in (3, 5, 7)) for _ in range(2))

    def forward(self, x):
        x = self.before(x)
        for blocks in self.stages:
            x = sum(block(x) for block in blocks) / len(blocks)
        return {"sound": torch.tanh(self.behind(leaky(x))), "last": x}


def compiled(model, **options):
    own = {"convtune.force": True, "convtune.beside": True, **options}
    return torch.compile(model.eval().requires_grad_(False), backend="convtune", options=own)


def graph_of(model, *inputs):
    """The rewritten graph."""
    found = []

    def look(graph):
        found.append(graph)
        return cut(graph)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("convtune.torch.graph.branches.cut", look)
        with torch.no_grad():
            compiled(model)(*inputs)
    return found[0]
