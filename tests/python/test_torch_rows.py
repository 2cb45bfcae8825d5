"""Graphs of rows in half precision: channels last inside, but where something asks how its tensors lie."""

import pytest
from torch_branched import Stages, compiled, graph_of
from torch_support import count, torch

from convtune.torch.beside import Beside
from convtune.torch.packed import conv2d_packed

nn = torch.nn


@pytest.fixture(autouse=True)
def as_it_is(monkeypatch):
    """The graph that inductor would be given runs, of a CPU's rows that are turned as a GPU's are."""
    torch._dynamo.reset()
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda module, inputs, **_: module)
    monkeypatch.setattr("convtune.torch.graph.capture._DEVICES", ("cpu",))
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_in_half_precision_are_channels_last_inside(dtype):
    model, x = Stages().eval().to(dtype), torch.rand(2, 4, 32).to(dtype)
    graph = graph_of(model, x)
    plans = [node.args[-1] for node in graph.find_nodes(op="call_function", target=conv2d_packed)]
    half = dtype is torch.bfloat16
    assert len(plans) == 14 and all(("layout=nhwc" in plan) == half for plan in plans)
    assert count(graph, torch.ops.aten.clone.default) == (3 if half else 0)  # copies of the input and of two outputs
    fast = compiled(model)
    with torch.no_grad():
        expected, y = model(x), fast(x)
        with Beside():
            z = fast(x)
    for name, one in expected.items():
        assert y[name].stride() == z[name].stride() == one.stride() and torch.equal(y[name], z[name])
        assert (y[name].float() - one.float()).abs().max() < 0.05


class Framed(nn.Module):
    """Overlapping parts of what it convolves, by strides, as a short-time Fourier transform takes them."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        y = self.convolution(x)
        return y.as_strided((2, 4, 15, 4), (128, 32, 2, 1)) * 2


def test_rows_that_are_read_by_strides_lie_as_they_are():
    model, x = Framed().eval().bfloat16(), torch.rand(2, 4, 32).bfloat16()
    with torch.no_grad():
        assert (compiled(model)(x).float() - model(x).float()).abs().max() < 0.05


@torch.library.custom_op("convtune_tests::scanned", mutates_args=())
def scanned(x: torch.Tensor) -> torch.Tensor:
    assert x.is_contiguous()
    return x.float().cumsum(-1).to(x.dtype)


@scanned.register_fake
def _(x):
    return torch.empty_like(x)


class Scanned(nn.Module):
    """Another one's operator behind a convolution, as state-space models have it."""

    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        return scanned(torch.relu(self.convolution(x)).contiguous()) * 2


def test_rows_for_operators_of_others_lie_as_they_are():
    model, x = Scanned().eval().bfloat16(), torch.rand(2, 4, 32).bfloat16()
    with torch.no_grad():
        assert (compiled(model)(x).float() - model(x).float()).abs().max() < 0.1
