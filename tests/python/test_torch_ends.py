"""Frames repeated at a video's ends behind a norm: which are repeated before it, and which stay."""

import pytest
from torch_support import torch

import convtune.torch.backend
from convtune.torch.graph.operators.rows import row_mean

nn, F, aten = torch.nn, torch.nn.functional, torch.ops.aten


def normed(x, axes=-1):
    """LTX's RMS norm, and its activation."""
    rows = x.movedim(1, -1)
    whole = rows.float()
    return F.silu((rows * torch.rsqrt(whole.pow(2).mean(axes, keepdim=True) + 1e-6)).to(x.dtype).movedim(-1, 1))


def ends(y, before=1, behind=1):
    pieces = [y[:, :, :1].repeat(1, 1, before, 1, 1)] if before else []
    return torch.cat([*pieces, y, *([y[:, :, -1:].repeat(1, 1, behind, 1, 1)] if behind else [])], 2)


class Layers(nn.Module):
    """Two layers over time alone, which a CPU's own kernels compute, and a residual."""

    def __init__(self, between, taps):
        super().__init__()
        self.first, self.second, self.between = nn.Conv3d(8, 8, 1), nn.Conv3d(8, 8, (taps, 1, 1)), between

    def forward(self, x):
        x = self.first(x)
        return self.second(self.between(x)) + x


@pytest.fixture
def graph_of(monkeypatch):
    """Gives the targets of the graph that the backend makes of layers with that between them, whose answers are PyTorch's."""
    torch._dynamo.reset()
    found, own = [], convtune.torch.backend.rewritten

    def noted(*arguments):
        made = own(*arguments)
        found.append(made[0])
        return made

    monkeypatch.setattr(convtune.torch.backend, "rewritten", noted)

    def of(between, frames=5, last=True, taps=3):
        torch.manual_seed(0)
        model, x = Layers(between, taps).eval(), torch.rand(1, 8, frames, 6, 5)
        x = x.contiguous(memory_format=torch.channels_last_3d) if last else x
        with torch.no_grad():
            expected = model(x)
            got = torch.compile(model, backend="convtune", fullgraph=True, options={"convtune.force": True})(x)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
        return [node.target for node in found[-1].graph.graph.nodes]

    yield of
    torch._dynamo.reset()


@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("before, behind", [(1, 1), (2, 1), (1, 3)])  # at one end alone they are a convolution's cache
def test_ends_are_repeated_before_a_norm(before, behind, last, graph_of):
    targets = graph_of(lambda x: ends(normed(x), before, behind), last=last, taps=before + behind + 1)
    assert aten._unsafe_index.Tensor in targets and row_mean in targets and aten.mean.dim not in targets
    assert aten.cat.default not in targets and aten.repeat.default not in targets and aten.slice.Tensor not in targets


def of_another_frame(x):
    y = normed(x)
    return torch.cat([y[:, :, 1:2], y, y[:, :, -1:]], 2)


def of_another_tensor(x):
    return torch.cat([x[:, :, :1], normed(x), x[:, :, -1:]], 2)


def read_by_another(x):
    y = normed(x)
    return ends(y) * 2 + y.mean()


def also_before_the_norm(x):
    return ends(normed(x) + x.mean((3, 4), keepdim=True).cumsum(2))


def rows_of_frames(x):
    return ends(normed(x) + torch.arange(x.shape[2]).view(1, 1, -1, 1, 1))


@pytest.mark.parametrize(
    "between",
    [of_another_frame, of_another_tensor, read_by_another, also_before_the_norm, rows_of_frames,
     lambda x: ends(normed(x, 1)),  # over frames: a mean of five is none of seven
     lambda x: ends(x), lambda x: ends(F.silu(x)), lambda x: ends(normed(x).flip(2)), lambda x: ends(normed(x).cumsum(2))],
)  # fmt: skip
def test_others_stay(between, graph_of):
    assert aten._unsafe_index.Tensor not in graph_of(between)


def test_one_frame_is_first_and_last(graph_of):
    graph_of(lambda x: ends(normed(x)), frames=1)


def test_means_in_another_type_stay(graph_of):
    def in_double(x):
        rows = x.movedim(1, -1)
        return ends((rows * torch.rsqrt(rows.pow(2).mean(-1, keepdim=True, dtype=torch.float64) + 1e-6)).float().movedim(-1, 1))

    targets = graph_of(in_double)
    assert aten._unsafe_index.Tensor in targets and aten.mean.dim in targets and row_mean not in targets


@pytest.fixture
def reductions(monkeypatch):
    """The reductions that inductor makes kernels of."""
    from torch._inductor import graph, ir

    from convtune.torch.graph.operators.rows import install

    found, own = [], graph.GraphLowering.codegen

    def noted(self):
        found.extend(one.data for one in self.buffers if isinstance(getattr(one, "data", None), ir.Reduction))
        return own(self)

    torch._dynamo.reset()
    install()
    monkeypatch.setattr(graph.GraphLowering, "codegen", noted)
    with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
        yield found
    torch._dynamo.reset()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_means_of_rows(dtype, reductions):
    from torch._inductor.runtime.hints import ReductionHint

    x = torch.rand(3, 4, 37).to(dtype)
    assert torch.equal(row_mean(x), x.mean(-1, keepdim=True))
    torch.library.opcheck(row_mean, (x,), test_utils=("test_schema", "test_faketensor"))
    torch.testing.assert_close(torch.compile(lambda x: row_mean(x * 2) + x, fullgraph=True)(x), row_mean(x * 2) + x)
    assert [one.reduction_hint for one in reductions] == [ReductionHint.INNER]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_rows_are_summed_in_float32(dtype, reductions):
    x = torch.full((2, 3, 4096), 30.0, dtype=dtype)  # sums to 122,880, more than float16 has
    assert torch.equal(torch.compile(lambda x: row_mean(x), fullgraph=True)(x), x.mean(-1, keepdim=True))
