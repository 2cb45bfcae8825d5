"""Tests what a compiled step of training joins into one launch, casts of autocast and counters of batches, and need not write."""

import pytest
from torch_steps import assert_same, small, stepped
from torch_support import on_gpu, torch

import convtune.torch.backend  # noqa: F401  (registers it)
from convtune.torch.graph import casts, counters, gradients, pooled

nn = torch.nn
pytestmark = pytest.mark.usefixtures("afresh")


def test_casts_of_weights_and_of_their_gradients_are_joined(monkeypatch):
    """Autocast's; the rest, as activations that backward reads in float32, is inductor's to fuse."""
    seen = []
    plain = casts.join_casts

    def joined(graph):
        count = plain(graph)
        seen.append((count, [one.meta["val"] for one in graph.find_nodes(op="call_function", target=casts.cast_all)]))
        return count

    monkeypatch.setattr(casts, "_DEVICES", ("cpu",))
    monkeypatch.setattr(gradients, "join_casts", joined)
    torch._dynamo.reset()
    x, found = torch.rand(2, 3, 16, 16).to(memory_format=torch.channels_last), []
    for options in (None, {"convtune.force": True}):
        model = small().to(memory_format=torch.channels_last)
        run = torch.compile(model, backend="convtune", options=options) if options else model

        def autocast(x, run=run):
            with torch.autocast("cpu", torch.bfloat16):
                return run(x).float()

        found.append(stepped(model, x, autocast))
    for one, other in zip(*found):
        assert one.dtype is other.dtype and (one - other).float().norm() <= 0.03 * other.float().norm() + 1e-3
    (forward, made), (backward, gradients_made) = seen
    assert forward == len(made[0]) == 4 and {one.dtype for one in made[0]} == {torch.bfloat16}
    assert backward == len(gradients_made[0]) == 6 and {one.dtype for one in gradients_made[0]} == {torch.float32}


def test_counters_of_batches_are_joined(monkeypatch):
    """Counters that only the count itself reads are joined; one that the forward reads stays alone."""
    class Counted(nn.BatchNorm2d):
        def forward(self, x):
            return super().forward(x) / self.num_batches_tracked

    seen = []
    plain = counters.join_counters

    def joined(graph):
        seen.append(plain(graph))
        return seen[-1]

    monkeypatch.setattr(counters, "_DEVICES", ("cpu",))
    monkeypatch.setattr(gradients, "join_counters", joined)
    found = []
    for options in (None, {"convtune.force": True}):
        torch._dynamo.reset()
        torch.manual_seed(0)
        norms = [Counted(4), nn.BatchNorm2d(4), nn.BatchNorm2d(4), nn.BatchNorm2d(4)]
        model = nn.Sequential(*(part for norm in norms for part in (nn.Conv2d(4, 4, 3, padding=1), norm))).train()
        run = torch.compile(model, backend="convtune", options=options) if options else model
        found.append(stepped(model, torch.rand(2, 4, 8, 8), run, 3))
        assert [int(norm.num_batches_tracked) for norm in norms] == [3] * 4
    assert_same(*found)
    assert seen[0] == 3 and sum(seen) == 3


@pytest.mark.parametrize("saved", [False, True])
def test_lists_of_casts_are_short(saved, monkeypatch):
    """Casts made at once are there before they are read; where backward reads them, too, all of them are there at the peak."""
    from torch.fx import Graph

    graph = Graph()
    monkeypatch.setattr(casts, "_DEVICES", ("cpu",))
    monkeypatch.setattr(casts, "_MOST_TENSORS", 3)
    monkeypatch.setattr(casts, "_MOST_BYTES", 10 if saved else 1000)
    x, made, kept = graph.placeholder("x"), [], []
    sizes = 16, 16, 16, 16, 400, 16, 600
    weights = [graph.placeholder(f"w{at}") for at in range(len(sizes))]
    for one, size in zip(weights, sizes):
        one.meta["val"] = torch.rand(size // 4, 4)
        cast = graph.call_function(casts._cast, (one, torch.bfloat16))
        cast.meta["val"] = one.meta["val"].bfloat16()
        kept += [cast] if saved else []
        made.append(graph.call_function(torch.ops.aten.convolution.default, (x, cast, None, [1], [0], [1], False, [0], 1)))
    graph.output(made + kept)
    assert casts.join_casts(graph) == 6
    graph.lint()
    assert [len(one.args[0]) for one in graph.find_nodes(op="call_function", target=casts.cast_all)] == [3, 3]
    assert len(graph.find_nodes(op="call_function", target=casts._cast)) == 1


@on_gpu
def test_joined_counters_are_recorded():
    """In a CUDA graph, which must know that they stay where they are."""
    from torch._dynamo.utils import counters as seen

    seen.clear()
    torch.manual_seed(0)
    norms = [nn.BatchNorm2d(8) for _ in range(3)]
    model = nn.Sequential(*(part for norm in norms for part in (nn.Conv2d(8, 8, 3, padding=1), norm))).cuda().train()
    compiled = torch.compile(model, backend="convtune", options={"triton.cudagraphs": True, "convtune.force": True})
    stepped(model, torch.rand(2, 8, 16, 16, device="cuda"), compiled, 5)
    assert [int(norm.num_batches_tracked) for norm in norms] == [5] * 3
    assert seen["inductor"]["cudagraph_skips"] == 0


class Squeezed(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.pool = nn.Conv2d(3, 8, 3, padding=1), nn.AdaptiveAvgPool2d(1)
        self.less, self.more = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)

    def forward(self, x):
        x = torch.relu(self.body(x))
        return x * torch.sigmoid(self.more(torch.relu(self.less(self.pool(x)))))


@pytest.mark.parametrize("last", [False, True])
def test_gradients_behind_a_global_pool_are_views(last, monkeypatch):
    seen = []
    plain = pooled.view_pooled

    def viewed(graph):
        seen.append(plain(graph))
        left = [str(node.target) for node in graph.nodes if "as_strided_scatter" in str(node.target)]
        assert not left
        return seen[-1]

    monkeypatch.setattr(gradients, "view_pooled", viewed)
    torch._dynamo.reset()
    format, found = torch.channels_last if last else torch.contiguous_format, []
    for options in (None, {"convtune.force": True}):
        torch.manual_seed(0)
        model = Squeezed().to(memory_format=format)
        run = torch.compile(model, backend="convtune", options=options) if options else model
        found.append(stepped(model, torch.rand(2, 3, 8, 8).to(memory_format=format), run))
    assert_same(*found)
    assert seen == [0, 1 if last else 0]


def test_what_is_not_all_of_a_row_is_no_view():
    whole = pooled._is_whole
    assert whole([2, 8], [8, 1], 0, 16) and whole([2, 8, 1, 1], [8, 1, 8, 8], None, 16) and whole([1, 4], [9, 1], 0, 4)
    assert not whole([2, 8], [8, 1], 1, 16) and not whole([2, 8], [1, 2], 0, 16) and not whole([2, 4], [8, 1], 0, 16)
    assert not whole([2, 8], [8, 1], 0, 17) and not whole([0, 8], [8, 1], 0, 0)
