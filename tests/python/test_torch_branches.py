"""Branches of compiled graphs: where they begin and end, that parts give what the whole gives, and that a recording has them on
streams that wait for each other. The graph that inductor would be given runs as it is, but in one test."""

import contextlib
import gc
import operator
import weakref
from types import SimpleNamespace

import pytest
from torch_branched import Stages, compiled, graph_of
from torch_support import on_gpu, torch

import convtune.torch.backend  # noqa: F401  (registers it)
from convtune.torch import beside
from convtune.torch import graphed as torch_graphed
from convtune.torch.beside import Beside
from convtune.torch.graph.branches import cut, products

nn = torch.nn


class Inner(nn.Module):
    """Two branches, one of which has two of its own, which stay in it; what is behind them reads a value from before, too."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c, self.d, self.e = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(5))

    def forward(self, x):
        y = self.a(x)
        z = torch.relu(self.b(x))
        return self.e(torch.cat([self.c(z) + self.d(z), y, x])[:, :4])


class Gated(nn.Module):
    """Squeeze and excitation: the other branch has no convolution."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(4, 4, 1) for _ in range(3))

    def forward(self, x):
        x = self.a(x)
        return x * torch.sigmoid(self.c(torch.relu(self.b(x.mean((2, 3), keepdim=True)))))


class Split(nn.Module):
    """A value of several parts, of which one stays behind the branches."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        low, high = torch.split(x, 2, 1)
        largest, at = torch.max(high, 1, keepdim=True)
        return self.a(low) + self.b(x), largest * self.a(torch.cat([largest, largest], 1)), at


class Halves(nn.Module):
    """A split before the branches, as detectors have it, of which one part each reads, and one comes behind."""

    def __init__(self):
        super().__init__()
        self.first, self.a, self.b = nn.Conv2d(4, 6, 1), nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(2, 4, 3, padding=1)

    def forward(self, x):
        one, other, last = self.first(x).chunk(3, 1)
        return torch.cat([self.a(one), self.b(other), last], 1)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def as_it_is(monkeypatch):
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda module, inputs, **_: module)


def convolutions(steps):
    return [[sum(products(node) > 0 for node in nodes) for nodes in step] for step in steps]


def test_blocks_on_one_value_are_branches(as_it_is):
    graph = graph_of(Stages(), torch.rand(1, 4, 32))
    steps = cut(graph)
    assert convolutions(steps) == [[1], [2, 2, 2], [0], [2, 2, 2], [1]]
    for step in steps:
        work = [sum(map(products, nodes)) for nodes in step]
        assert work == sorted(work, reverse=True)  # the largest first
    assert [work for work in map(products, graph.nodes) if work][0] == 2 * 8 * 4 * 3 * 32
    everything = [node for step in steps for nodes in step for node in nodes]
    others = [node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    assert len(everything) == len(others) and set(everything) == set(others)
    ran = set(graph.nodes) - set(others)
    for step in steps:
        for nodes in step:
            own = set()
            for node in nodes:
                assert set(node.all_input_nodes) <= ran | own
                own.add(node)
        ran |= {node for nodes in step for node in nodes}


@pytest.mark.parametrize("model, size, expected", [
    (Inner(), (1, 4, 8, 8), [[3, 1], [1]]),
    (Gated(), (1, 4, 8, 8), []),
    (nn.Sequential(nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)), (1, 4, 8, 8), []),
    (nn.Conv2d(4, 4, 3), (1, 4, 8, 8), []),
], ids=["one in another", "no convolution", "a chain", "one"])  # fmt: skip
def test_what_are_branches(as_it_is, model, size, expected):
    found = [one for one in convolutions(cut(graph_of(model, torch.rand(size)))) if one != [0]]
    assert found == [one for one in expected if one != [0]]


def test_many_parts_are_left_in_a_row(as_it_is, monkeypatch):
    graph = graph_of(Stages(), torch.rand(1, 4, 32))
    monkeypatch.setattr("convtune.torch.graph.branches._MOST_PARTS", 8)
    assert cut(graph) == []


@pytest.mark.parametrize("model, size", [(Stages(), (1, 4, 32)), (Inner(), (1, 4, 8, 8)), (Split(), (2, 4, 8, 8)), (Gated(), (1, 4, 8, 8)),
                                         (Halves(), (2, 4, 8, 8))])
def test_parts_give_what_the_whole_gives(as_it_is, model, size):
    x = torch.rand(size)
    fast = compiled(model)
    with torch.no_grad():
        whole = fast(x)
        with Beside() as asked:
            parts = fast(x)
    assert asked.forks == {Stages: 2, Inner: 1, Split: 1, Gated: 0, Halves: 1}[type(model)]
    for one, other in zip(*map(torch.utils._pytree.tree_leaves, (whole, parts))):
        assert torch.equal(one, other) and one.stride() == other.stride()


@pytest.mark.parametrize("model, size", [(Split(), (2, 4, 8, 8)), (Halves(), (2, 4, 8, 8))])
def test_a_list_and_its_elements_are_of_one_part(as_it_is, model, size):
    part = {node: at for at, nodes in enumerate(nodes for step in cut(graph_of(model, torch.rand(size))) for nodes in step) for node in nodes}
    elements = [node for node in part if node.target is operator.getitem]
    assert len(elements) >= 3 and all(part[node] == part[node.args[0]] for node in elements)


def test_parts_by_inductor():
    model, x = Stages(), torch.rand(1, 4, 32)
    fast = compiled(model)
    with torch.no_grad():
        whole = fast(x)
        with Beside() as asked:
            parts = fast(x)
        assert asked.forks == 2
        assert torch.allclose(whole["sound"], parts["sound"], atol=1e-6) and torch.allclose(model(x)["sound"], parts["sound"], atol=1e-5)
        model.stages[0][0].first.weight.mul_(2)  # packed anew, and read by both
        with Beside():
            assert torch.allclose(model(x)["sound"], fast(x)["sound"], atol=1e-5)


def test_without_the_option_there_are_none(as_it_is):
    fast = compiled(Stages(), **{"convtune.beside": False})
    with torch.no_grad(), Beside() as asked:
        fast(torch.rand(1, 4, 32))
    assert asked.forks == 0


def test_a_graph_that_writes_has_none(as_it_is):
    class Counts(Stages):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count += 1
            return super().forward(x)

    model = Counts()
    fast = compiled(model)
    with torch.no_grad(), Beside() as asked:
        fast(torch.rand(1, 4, 32))
    assert asked.forks == 0 and model.count == 1


def test_values_are_held_until_their_step_is_over(as_it_is, monkeypatch):
    """A branch's tensors are read on other streams than their own: none may be freed before all branches are joined."""
    alive, seen = [], []
    run = beside._run

    def watched(part, compiled, values):
        run(part, compiled, values)
        alive.extend(weakref.ref(values[name]) for name in part.gives)
        seen.append((sum(one() is not None for one in alive), len(part.gives)))

    monkeypatch.setattr(beside, "_run", watched)
    with torch.no_grad(), Beside():
        y = compiled(Stages())(torch.rand(1, 4, 32))
    gc.collect()
    # before: 1; branches: 2, 3, 4 with what they read; the sum: 4 with it, then 1
    assert [count for count, _ in seen] == [1, 2, 3, 4, 4, 2, 3, 4, 5]
    del y
    assert not any(one() is not None for one in alive)


class FakeStream:
    """A stream that notes what is said to any of its kind, in order."""

    said: list = []
    now = None

    def __init__(self):
        self.name = f"side {sum(one[0] == 'made' for one in self.said)}"
        self.said.append(("made", self.name))

    def wait_stream(self, other):
        self.said.append(("waits", self.name, other.name))


@pytest.fixture
def recording(monkeypatch):
    main = SimpleNamespace(name="main", wait_stream=lambda other: FakeStream.said.append(("waits", "main", other.name)))
    FakeStream.said, FakeStream.now = [], main

    @contextlib.contextmanager
    def taken(stream):
        before, FakeStream.now = FakeStream.now, stream
        yield
        FakeStream.now = before

    shares = [1.0]
    fake = SimpleNamespace(
        stream=taken, current_stream=lambda: FakeStream.now,
        is_available=lambda: True, is_current_stream_capturing=lambda: True,
    )  # fmt: skip
    monkeypatch.setattr(beside, "_cuda", fake)
    monkeypatch.setattr(beside, "_streams", lambda _, count: [FakeStream() for _ in range(count)])
    monkeypatch.setattr(beside, "_set_share", lambda share: shares.append(share) or 0)
    run = beside._run

    def told(part, compiled, values):
        FakeStream.said.append(("runs", FakeStream.now.name, round(shares[-1], 3)))
        run(part, compiled, values)

    monkeypatch.setattr(beside, "_run", told)
    yield shares


def test_a_recording_has_branches_on_streams(as_it_is, recording):
    x = torch.rand(1, 4, 32)
    model = Stages()
    fast = compiled(model)
    with torch.no_grad():
        with Beside():
            parts = fast(x)
        said = list(FakeStream.said)
        assert torch.equal(parts["sound"], fast(x)["sound"]) and FakeStream.said == said  # nobody asks: the whole, as ever
    fork = [("waits", "side 0", "main"), ("waits", "side 1", "main")]
    work = [("runs", "main", round(7 / 15, 3)), ("runs", "side 0", round(5 / 15, 3)), ("runs", "side 1", round(3 / 15, 3))]
    join = [("waits", "main", "side 0"), ("waits", "main", "side 1")]
    alone = [("runs", "main", 1.0)]
    assert [one for one in said if one[0] != "made"] == [*alone, *fork, *work, *join, *alone, *fork, *work, *join, *alone]
    assert recording[-1] == 1.0


def test_a_share_is_given_back_where_a_branch_fails(as_it_is, recording, monkeypatch):
    fast = compiled(Stages())
    x = torch.rand(1, 4, 32)
    with torch.no_grad():
        fast(x)

        def fails(part, compiled, values):
            if recording[-1] < 1:
                raise RuntimeError("no memory")
            for name in part.gives:
                values[name] = torch.rand(1, 8, 32)

        monkeypatch.setattr(beside, "_run", fails)
        with pytest.raises(RuntimeError, match="no memory"), Beside():
            fast(x)
    assert recording[-1] == 1.0 and Beside.of_this_thread() is None


class _Again:
    """A recording where there are no CUDA graphs."""

    def __init__(self, run, inputs):
        self.outputs = run(*inputs)
        self.asked = Beside.of_this_thread() is not None

        def replay():
            for name, y in run(*inputs).items():
                self.outputs[name].copy_(y)

        self.replay = replay


@pytest.mark.parametrize("faster", [True, False])
def test_graphed_keeps_the_faster(as_it_is, monkeypatch, faster):
    monkeypatch.setattr(torch_graphed, "_Recording", _Again)
    monkeypatch.setattr(torch_graphed, "_contest", lambda *_: torch_graphed.Contest(faster, 0.5, incumbent_us=20.0))
    model, x = Stages().eval().requires_grad_(False), torch.rand(1, 4, 32)
    fast = torch_graphed.Graphed(model, (x,), (), {"convtune.force": True}, whole=False)
    assert fast._recording.asked == faster
    assert any("branches run" in note and ("not proven" in note) != faster for note in fast.report.notes)
    with torch.no_grad():
        assert torch.allclose(fast(x)["sound"], model(x)["sound"], atol=1e-5)
        model.behind.weight.mul_(2)
        assert torch.allclose(fast(x)["sound"], model(x)["sound"], atol=1e-5)
    assert fast._recording.asked == faster


@on_gpu
def test_bits_on_a_gpu():
    torch.manual_seed(0)
    model = Stages().eval().requires_grad_(False).to("cuda", torch.bfloat16)
    x = torch.rand(1, 4, 4096, device="cuda").bfloat16()
    fast = torch_graphed.Graphed(model, (x,), (), {"convtune.force": True}, whole=False)
    with torch.no_grad():
        outputs = []
        for asked in (contextlib.nullcontext(), Beside()):
            fast._beside = asked
            fast._record()
            for _ in range(20):
                y = fast(x)["sound"].clone()
                assert not outputs or torch.equal(y, outputs[0])
            outputs.append(y)
