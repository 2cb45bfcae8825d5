"""Parts that a traced graph need not compute: which divisions and copies go, and which stay."""

import pytest
from torch_support import torch

from convtune.torch.graph.operators.tidy import tidied

nn, aten = torch.nn, torch.ops.aten
_channels_last = torch.channels_last


def tidy(run, *inputs):
    """The graph of `run`, tidied: it gives the same."""
    from torch.fx.experimental.proxy_tensor import make_fx

    traced = make_fx(run, tracing_mode="fake")(*inputs)
    expected = traced(*inputs)
    tidied(traced.graph)
    traced.recompile()
    y = traced(*inputs)
    assert torch.equal(y, expected) and y.stride() == expected.stride()
    return [node.target for node in traced.graph.nodes if node.op == "call_function"]


def image(c=4, format=_channels_last):
    return torch.randn(2, c, 5, 6).contiguous(memory_format=format)


@pytest.mark.parametrize(
    "run, left",
    [
        (lambda x: (x / 1).relu(), 0), (lambda x: (x * 1.0).relu(), 0), (lambda x: (x / 2).relu(), 1),
        (lambda x: x.relu() / 1, 1), (lambda x: (x.to(torch.int32) / 1).relu(), 1),
    ],
)  # fmt: skip
def test_divisions_by_one(run, left):
    targets = tidy(run, image())
    assert sum(target in (aten.div.Tensor, aten.mul.Tensor) for target in targets) == left


def copies(run, format=_channels_last, weight_format=_channels_last):
    weight = torch.randn(8, 4, 3, 3).contiguous(memory_format=weight_format)
    with torch.no_grad():
        return tidy(run, image(format=format), weight).count(aten.clone.default)


def test_copies_for_convolutions():
    def of_one(x, w):
        return torch.conv2d(x.permute(0, 2, 3, 1).relu().permute(0, 3, 1, 2).contiguous(), w)

    def of_another_too(x, w):
        turned = x.relu().contiguous()
        return torch.conv2d(turned, w).sum() + turned.view(-1).sum()

    assert copies(of_one) == 0
    assert copies(of_one, weight_format=torch.contiguous_format) == 1  # the convolution would answer otherwise
    assert copies(of_another_too) == 1
    assert copies(lambda x, w: x.relu().contiguous()) == 1
