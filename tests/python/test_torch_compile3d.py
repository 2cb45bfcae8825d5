"""torch.compile(backend="convtune") and 3-D convolutions: frames that are joined and padded become operands of one operator."""

import pytest
from torch_causal import Causal
from torch_support import torch

import convtune.torch.backend
from convtune.torch import packed

nn, F = torch.nn, torch.nn.functional


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Causal(8, 8, (3, 1, 1)), Causal(8, 8, (3, 1, 1))
        self.norm, self.shown = nn.BatchNorm3d(8), nn.Conv3d(8, 8, (3, 1, 1))

    def forward(self, x, cache):
        h = self.first(F.silu(x), cache)
        h = F.relu(self.norm(self.second(h)) + x)
        joined = torch.cat([cache, h], 2)  # somebody else sees it, too
        return self.shown(joined), joined


@pytest.fixture
def runs(monkeypatch):
    seen, own = [], packed._run

    def noted(x, weights, residual, cache, plan):
        if cache is not None:  # others are C++'s
            seen.append((tuple(x.shape), tuple(cache.shape), residual is not None, plan))
        return own(x, weights, residual, cache, plan)

    monkeypatch.setattr(packed, "_run", noted)
    return seen


@pytest.mark.parametrize("frames", [1, 2])
def test_frames_are_operands(frames, runs):
    torch._dynamo.reset()
    model = Block().eval()
    for values in (model.norm.running_mean, model.norm.running_var):
        nn.init.uniform_(values, 0.5, 1.5)
    x, cache = (torch.rand(1, 8, of, 6, 5) for of in (3, frames))
    with torch.no_grad():
        expected = model(x, cache)
        compiled = torch.compile(model, backend="convtune", options={"convtune.force": True})
        y = compiled(x, cache)
        for mine, theirs in zip(y, expected):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
            assert mine.stride() == theirs.stride()
        (first,) = runs
        assert first[:3] == ((1, 8, 3, 6, 5), (1, 8, frames, 6, 5), False) and f"cache={frames}" in first[3]
        model.first.weight.mul_(2)
        torch.testing.assert_close(compiled(x, cache)[1], model(x, cache)[1], rtol=1e-4, atol=1e-4)
    report = convtune.torch.backend.last_report()
    assert report is not None and all(layer.swapped for layer in report.layers)
    first, second, shown = (layer.problem for layer in report.layers)
    assert (first.d, first.cache, first.padding) == (3, frames, (2, 0, 0, 0, 0, 0))
    assert (second.d, second.cache, second.padding) == (3, 0, (2, 0, 0, 0, 0, 0))
    assert second.residual and second.activation == "relu"
    assert (shown.d, shown.padding) == (3 + frames, (0,) * 6)


def test_what_is_not_frames_stays_as_it_is(runs):
    class Other(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv3d(8, 8, (3, 1, 1))

        def forward(self, x, cache):
            a = self.conv(F.pad(x, (0, 0, 0, 0, 2, 0), value=1.0))
            b = self.conv(F.pad(x, (0, 0, -1, 0, 2, 0)))
            c = self.conv(F.pad(torch.cat([x, cache, x], 2), (0, 0, 0, 0, 1, 0)))
            return a, b, c, self.conv(torch.cat([cache, x], 3))

    torch._dynamo.reset()
    model, x = Other().eval(), torch.rand(1, 8, 3, 6, 5)
    with torch.no_grad():
        y = torch.compile(model, backend="convtune", options={"convtune.force": True})(x, x)
        for mine, theirs in zip(y, model(x, x)):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    report = convtune.torch.backend.last_report()
    assert not runs and report is not None and sum(layer.calls for layer in report.layers) == 4
    assert sorted(layer.problem.padding[0] for layer in report.layers) == [0, 0, 0, 1]


def test_the_operator_refuses_what_is_not_its_plans():
    from convtune.torch.run import choice_line
    from convtune.torch.packed import conv3d_packed

    problem = convtune.Problem.parse("mb1ic4id2ih5iw6oc4kd3kh1kw1pd2ph0pw0 pad_back=0 cache=1 precision=fp32")
    plan = choice_line("cpu", problem, problem, "reference", "")
    x, memory = torch.rand(1, 4, 2, 5, 6), torch.zeros(1 << 16, dtype=torch.uint8)
    with pytest.raises(convtune.InvalidArgument, match="takes a cache of the shape"):
        conv3d_packed(x, memory, None, None, plan)
    with pytest.raises(convtune.InvalidArgument, match="takes a cache of the shape"):
        conv3d_packed(x, memory, None, x, plan)
    assert conv3d_packed(x.to("meta"), memory.to("meta"), None, None, plan).shape == (1, 4, 2, 5, 6)


class Repeated(nn.Module):
    """Three pieces, of which no cache can be made."""

    def __init__(self, shows):
        super().__init__()
        self.convolution, self.shows = nn.Conv3d(8, 8, (3, 1, 1)), shows

    def forward(self, x):
        joined = torch.cat([x[:, :, :1], F.silu(x), x[:, :, -1:]], -3)
        return (self.convolution(joined), joined) if self.shows else self.convolution(joined)


@pytest.mark.parametrize("format", [torch.channels_last_3d, torch.contiguous_format])
@pytest.mark.parametrize("shows", [False, True])
def test_frames_are_joined_as_the_convolution_reads_them(shows, format, graphs):
    """A joined tensor that others read, too, lies as it does in PyTorch."""
    torch._dynamo.reset()
    model, x = Repeated(shows).eval().to(memory_format=format), torch.randn(2, 8, 3, 6, 5).contiguous(memory_format=format)
    with torch.no_grad():
        y, expected = torch.compile(model, backend="convtune", options={"convtune.force": True})(x), model(x)
    for mine, theirs in zip(*map(torch.utils._pytree.tree_leaves, (y, expected))):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        assert mine.stride() == theirs.stride()
    (joined,) = graphs[-1].find_nodes(op="call_function", target=torch.ops.aten.cat.default)
    assert joined.args[1] == (1 if format is torch.channels_last_3d and not shows else -3)
