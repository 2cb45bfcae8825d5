"""Max pooling by rows and columns: the same numbers in the same layout, and which poolings it takes."""

import pytest
from torch_support import torch

from convtune.torch.graph.operators import pools

functional, aten = torch.nn.functional, torch.ops.aten


def image(dtype=torch.bfloat16, size=(2, 8, 11, 9)):
    x = torch.randn(size, generator=torch.Generator().manual_seed(0))
    x[0, 1, 3, 4], x[1, 2, 0, 0], x[1, 3] = torch.nan, torch.inf, -torch.inf
    return x.to(dtype).contiguous(memory_format=torch.channels_last)


def traced(monkeypatch, pool, x):
    from torch.fx.experimental.proxy_tensor import make_fx

    monkeypatch.setattr(pools, "is_for", lambda x: x.dtype is torch.bfloat16)
    with pools.PoolsByRows():
        return make_fx(pool, tracing_mode="fake")(x)


def is_taken(module):
    return not module.graph.find_nodes(op="call_function", target=aten.max_pool2d_with_indices.default)


@pytest.mark.parametrize("kernel, padding", [(5, 2), ((7, 3), (3, 1)), (4, 0), ((2, 9), (1, 2))])
@pytest.mark.parametrize("module", [True, False])
def test_the_same_numbers(monkeypatch, kernel, padding, module):
    def pool(x):
        if module:
            return torch.nn.MaxPool2d(kernel, 1, padding)(x)
        return functional.max_pool2d(x, kernel, stride=1, padding=padding)

    x = image()
    found = traced(monkeypatch, pool, x)
    y, expected = found(x), pool(x)
    assert is_taken(found)
    assert torch.equal(y.isnan(), expected.isnan()) and torch.equal(y.nan_to_num(0.5), expected.nan_to_num(0.5))
    assert y.stride() == expected.stride()


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: functional.max_pool2d(x, 3, 1, 1), lambda x: functional.max_pool2d(x, 5),
        lambda x: functional.max_pool2d(x, 5, 2, 2), lambda x: functional.max_pool2d(x, 5, 1, 2, 2),
        lambda x: functional.max_pool2d(x, 5, 1, 2, return_indices=True)[1],
        lambda x: functional.max_pool2d(x.float(), 5, 1, 2),
    ],
)  # fmt: skip
def test_others_are_left_alone(monkeypatch, pool):
    assert not is_taken(traced(monkeypatch, pool, image()))
