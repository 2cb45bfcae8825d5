"""Linear layers of images whose channels come last, as 1x1 convolutions of a compiled graph: which ones, and that the
answers are PyTorch's."""

import pytest
from torch_support import assert_near, count, torch

from convtune.torch import backend as torch_compile
from convtune.torch.fused import conv2d_fused
from convtune.torch.graph.operators import linear
from convtune.torch.packed import conv2d_packed

nn, functional, aten = torch.nn, torch.nn.functional, torch.ops.aten


class Block(nn.Module):
    """ConvNeXt's, with a part of it left out or done otherwise."""

    def __init__(self, scale=True, bias=True, activation=functional.gelu, keep=False):
        super().__init__()
        self.depthwise, self.norm = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.LayerNorm(16)
        self.widen, self.narrow = nn.Linear(16, 64, bias=bias), nn.Linear(64, 16, bias=bias)
        self.scale = nn.Parameter(torch.linspace(-1, 2, 16).view(16, 1, 1)) if scale else None
        self.activation, self.keep = activation, keep

    def forward(self, x):
        wide = self.widen(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        y = self.narrow(self.activation(wide)).permute(0, 3, 1, 2)
        y = (y if self.scale is None else self.scale * y) + x
        return (y, wide) if self.keep else y


@pytest.fixture
def graph_of(monkeypatch, afresh, graphs):
    """Gives the graph that inductor is given on a CPU, where float32 is allowed for it."""
    def is_half_image(x):
        return x.is_contiguous(memory_format=torch.channels_last)

    monkeypatch.setattr(linear, "is_half_image", is_half_image)

    def of(**how):
        torch.manual_seed(0)
        model = Block(**how).to(memory_format=torch.channels_last).eval()
        x = torch.rand(2, 16, 6, 7).to(memory_format=torch.channels_last)
        run = torch.compile(model, backend=torch_compile.backend, fullgraph=True, options={"convtune.force": True})
        with torch.no_grad():
            for _ in range(2):
                for one, other in zip(*((each,) if isinstance(each, torch.Tensor) else each for each in (run(x), model(x)))):
                    assert_near(one, other)
                    assert one.stride() == other.stride()
                model.widen.weight.mul_(0.5)  # weights are packed anew
                if model.scale is not None:
                    model.scale.add_(0.5)
        return graphs[-1]

    return of


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_both_linear_layers_become_convolutions(graph_of, scale, bias):
    graph = graph_of(scale=scale, bias=bias)
    assert count(graph, conv2d_packed, conv2d_fused) == 3
    assert count(graph, aten.mm.default, aten.addmm.default, aten.gelu.default, aten.mul.Tensor, aten.add.Tensor) == 0


def test_what_others_read_stays(graph_of):
    graph = graph_of(keep=True)
    assert count(graph, conv2d_packed, conv2d_fused) == 2 and count(graph, aten.gelu.default) == 1


def test_without_an_activation_of_ours_it_is_left_alone(graph_of):
    graph = graph_of(activation=torch.tanh)
    assert count(graph, conv2d_packed, conv2d_fused) == 2 and count(graph, aten.tanh.default) == 1
