"""Residual steps of vocoders as one operator: which are found in a graph, that a contest decides, what is remembered, packed and
renewed. The kernel here is PyTorch's, on the CPU (torch_pairs.Pair)."""

import pytest
from torch_pairs import Leaky, Pair, Unit, kernels, rows  # noqa: F401  (a fixture)
from torch_support import on_gpu, torch

from convtune._contest import Contest
from convtune.pair import Pair as own_pair
from convtune.torch import backend, folding, pairs, rewriting
from convtune.torch.beside import Beside
from convtune.torch.graph import chains
from convtune.torch.graph.branches import cut, products
from convtune.torch.measure import contests, decide
from convtune.torch.packed import conv2d_packed
from convtune.torch.pairs import pair1d_packed

nn = torch.nn
functional = torch.nn.functional
pytestmark = pytest.mark.usefixtures("afresh", "kernels")
WON, LOST = Contest(True, 0.4, 0.35, 0.45, 20.0, 12.0, 10), Contest(False, -0.2, -0.3, -0.1, 20.0, 24.0, 10)


def made(model, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return model.eval().requires_grad_(False).to(dtype)


def compiled(model, x, force=True, **options):
    model = torch.compile(model, backend="convtune", options={"convtune.force": force, **options})
    with torch.no_grad():
        return model, model(x)


def model_channels(model):
    return next(one.in_channels for one in model.modules() if isinstance(one, nn.Conv1d))


def count(graph, target=pair1d_packed):
    return sum(node.target is target for node in graph.nodes)


def near(model, x, y):
    """For models that cannot be made double and back: weights are computed."""
    with torch.no_grad():
        theirs = model(x).double()
    assert float((y.double() - theirs).norm() / theirs.norm()) < 0.02


def near_exact(model, x, y):
    dtype = x.dtype
    with torch.no_grad():
        theirs, exact = model(x), model.double()(x.double())
        model.to(dtype)
    errors = [float((one.double() - exact).norm() / exact.norm()) for one in (y, theirs)]
    assert errors[0] < 1.2 * errors[1] + 1e-4 and y.stride() == theirs.stride() and y.dtype is dtype


@pytest.mark.parametrize("model, found", [
    (Leaky(), 3), (Leaky(slope=0.2, taps=5, holes=(1,)), 1), (Unit(), 1), (Unit(way="dac"), 1), (Unit(way="beta"), 1),
    (Unit(way="product"), 1), (nn.Sequential(Unit(hole=1), Unit(hole=9, way="dac"), Leaky()), 5),
], ids=["HiFi-GAN", "slope", "DAC", "as DAC writes it", "SnakeBeta", "a product", "a chain"])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_steps_are_found(graphs, model, found, dtype):
    model, x = made(nn.Sequential(nn.Conv1d(8, 8, 3, padding=1), model), dtype), rows(dtype=dtype)
    _, y = compiled(model, x)
    assert count(graphs[-1]) == found and count(graphs[-1], conv2d_packed) == 1
    near_exact(model, x, y)
    said = [layer for layer in backend.last_report().layers if layer.pair]
    assert sum(layer.calls for layer in said) == found and all(layer.swapped for layer in said)
    assert str(said[0].pair) in str(backend.last_report())


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.parametrizations.weight_norm], ids=["by a hook", "a parametrization"])
@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_weights_that_weight_norm_computes(norm):
    """Directions and magnitudes are packed as the filters that they make, and followed."""
    torch.manual_seed(0)
    up = norm(nn.ConvTranspose1d(8, 8, 4, 2, 1))
    model, x = nn.Sequential(up, Leaky(holes=(3,)), norm(nn.Conv1d(8, 4, 3))), rows()
    for convolutions in (model[1].first, model[1].second):
        norm(convolutions[0])
    model = made(model)
    fast, y = compiled(model, x)
    layers = backend.last_report().layers
    assert sum(layer.calls for layer in layers if layer.pair) == 1 and sum(layer.calls for layer in layers if not layer.pair) == 4
    near(model, x, y)
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.25)
        near(model, x, fast(x))


def test_weights_of_weight_norm_for_any_batch(graphs):
    """There is no plan that they could be packed for: the filters are computed once all the same."""
    model = made(nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(8, 4, 3)), nn.ReLU()), torch.float32)
    x = rows(2, 8, 9, 9, dtype=torch.float32)
    torch._dynamo.mark_dynamic(x, 0)
    fast, y = compiled(model, x)
    assert count(graphs[-1], torch.ops.aten._weight_norm_interface.default) == 0 and len(graphs[-1].find_nodes(op="get_attr")) == 2
    near(model, x, y)
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.5)
        near(model, x[:1], fast(x[:1]))
        near(model, x, fast(x))


@pytest.mark.parametrize("own, used", [(torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)])
def test_weight_norm_of_what_is_converted(own, used):
    """The filter is computed in the converted type, and not packed as its parameters'."""

    class Converted(nn.Module):
        def __init__(self):
            super().__init__()
            self.direction, self.magnitude = nn.Parameter(rows(8, 8, 3, dtype=own)), nn.Parameter(rows(8, 1, 1, dtype=own) + 2)

        def forward(self, x):
            return functional.conv1d(x, torch._weight_norm(self.direction.to(used), self.magnitude.to(used), 0), padding=1)

    model, x = Converted().eval().requires_grad_(False), rows(dtype=used)
    near(model, x, compiled(model, x)[1])


class Odd(nn.Module):
    """A step that differs from one by what `way` says."""

    def __init__(self, way):
        super().__init__()
        self.way, self.other = way, nn.Conv1d(8, 8, 3, padding=1)
        self.groups, self.taps = (2 if way == "groups" else 1), (4 if way == "even" else 3)
        stride = 2 if way == "stride" else 1
        self.first = nn.Conv1d(8, 8, self.taps, padding=0 if way == "length" else 1, groups=self.groups, stride=stride)
        self.second = nn.Conv1d(8, 8, 3, padding=1)

    def forward(self, x):
        x = self.other(x)
        way, slope = self.way, 0.1
        y = self.first(functional.leaky_relu(x, slope))
        if way == "twice":
            return self.second(functional.leaky_relu(y, slope)) + x + y
        if way == "slopes":
            return self.second(functional.leaky_relu(y, 0.2)) + x
        if way == "middle":
            z = functional.leaky_relu(y, slope)
            return self.second(z) + x, z
        if way == "residual":
            return self.second(functional.leaky_relu(y, slope)) + self.other(x)
        if way == "activated":
            z = functional.leaky_relu(x, slope)
            return self.second(functional.leaky_relu(self.first(z), slope)) + z
        if way == "none":
            return self.second(y) + x
        if way == "length":
            return self.second(functional.leaky_relu(y, slope)) + x[..., 1:-1]
        if way == "stride":
            return self.second(functional.leaky_relu(y, slope)) + x[..., ::2].contiguous()
        if way == "even":
            return self.second(functional.leaky_relu(y, slope)) + x[..., 1:]
        if way == "scaled":
            return torch.add(x, self.second(functional.leaky_relu(y, slope)), alpha=2)
        return self.second(functional.leaky_relu(y, slope)) + x


@pytest.mark.parametrize("way, found", [
    ("step", 1), ("twice", 0), ("slopes", 0), ("middle", 0), ("residual", 0), ("activated", 0), ("none", 0), ("length", 0),
    ("stride", 0), ("groups", 0), ("even", 0), ("scaled", 0),
])  # fmt: skip
def test_what_is_no_step(graphs, way, found):
    model, x = made(Odd(way)), rows()
    _, y = compiled(model, x)
    assert count(graphs[-1]) == found
    for one, other in zip(*map(torch.utils._pytree.tree_leaves, (y, model(x)))):
        assert torch.allclose(one.float(), other.float(), atol=0.05, rtol=0.05)


class Halved(nn.Module):
    """A Snake by a number that is computed from x, and one by an alpha for all channels."""

    def __init__(self, way):
        super().__init__()
        self.unit, self.way = Unit(), way
        self.one = nn.Parameter(torch.ones(1, 1, 1))

    def forward(self, x):
        first, second = self.unit.layers[1], self.unit.layers[3]
        alpha = x.mean((0, 2), keepdim=True) if self.way == "of x" else self.one
        y = first(x + (alpha * x).sin().square() / (alpha + 1e-9))
        return x + second(y + (alpha * y).sin().square() / (alpha + 1e-9))


@pytest.mark.parametrize("found, change", [
    (1, lambda alpha: alpha.view(1, 8).t().float().to(torch.bfloat16)), (1, lambda alpha: alpha[None, :, None].transpose(0, 2)),
    (0, lambda alpha: alpha.view(2, 4).t().reshape(1, 8, 1)),
    (0, lambda alpha: alpha.to(torch.int32).to(torch.bfloat16)[None, :, None]),
    (0, lambda alpha: alpha.view(2, 2, 2).permute(2, 1, 0).reshape(8, 1)),
], ids=["turned alone", "alone among axes", "turned", "rounded", "axes turned"])  # fmt: skip
def test_numbers_of_a_snake_in_another_order_or_rounded(graphs, found, change):
    class Changed(Unit):
        def __init__(self):
            super().__init__()
            self.alpha = nn.Parameter(torch.linspace(1.0, 4.5, 8))

        def forward(self, x):
            alpha, y = change(self.alpha), x
            for convolution in (self.layers[1], self.layers[3]):
                y = convolution(y + (alpha * y).sin().square() / (alpha + 1e-9))
            return x + y

    model, x = made(nn.Sequential(nn.Conv1d(8, 8, 1), Changed())), rows()
    _, y = compiled(model, x)
    assert count(graphs[-1]) == found
    near(model, x, y)


@pytest.mark.parametrize("way", ["of x", "one"])
def test_numbers_that_are_none_for_channels(graphs, way):
    compiled(made(Halved(way)), rows())
    assert count(graphs[-1]) == 0


def test_float32_sizes_that_are_symbols_and_gradients_have_none(graphs):
    for model, x in ((made(Leaky(), torch.float32), rows(dtype=torch.float32)), (made(nn.Conv1d(8, 8, 3)), rows())):
        compiled(model, x)
        assert count(graphs[-1]) == 0
    torch._dynamo.reset()
    model, _ = compiled(made(Leaky()), rows(4, 8, 40))
    with torch.no_grad():
        model(rows(3, 8, 40))  # symbols
    assert [count(graph) for graph in graphs[-2:]] == [3, 0]
    del graphs[:]
    model = Leaky().bfloat16()
    torch.compile(model, backend="convtune")(rows()).sum().backward()
    assert all(count(graph) == 0 for graph in graphs)


def test_an_activation_behind_stays(graphs):
    class Behind(nn.Sequential):
        def forward(self, x):
            return functional.leaky_relu(super().forward(x), 0.1)

    model, x = made(Behind(nn.Conv1d(8, 8, 1), Leaky(holes=(1,)))), rows()
    _, y = compiled(model, x)
    assert count(graphs[-1]) == 1 and count(graphs[-1], torch.ops.aten.leaky_relu.default) == 1
    near_exact(model, x, y)


@pytest.fixture
def held(monkeypatch):
    """The contests that were held: of layers, all won, and of steps, which end as `held.outcome` says."""

    class Held(list):
        outcome = WON

    seen = Held()

    def contest(before, after, *_, **__):
        assert before() > 0 and after() > 0
        seen.append(None)
        return seen.outcome

    monkeypatch.setattr(decide, "contest", contest)
    monkeypatch.setattr(decide, "median_us", lambda *_: 50.0)
    return seen


def first_call(model, x):
    """In another process, as far as what was decided is remembered there."""
    contests._known.clear()
    chains._decided.clear()
    torch._dynamo.reset()
    return compiled(model, x, force=False, **{"convtune.whole": False})[1]


@pytest.mark.parametrize("outcome, expected", [(WON, 3), (LOST, 0)], ids=["won", "lost"])
@pytest.mark.parametrize("model", [Leaky(), nn.Sequential(Unit(hole=1), Unit(), Unit(hole=9))], ids=["leaky", "snake"])
def test_the_contest_decides_and_is_remembered(graphs, held, monkeypatch, model, outcome, expected):
    model, x = made(model), rows()
    held.outcome = outcome
    y = first_call(model, x)
    report = backend.last_report()
    assert count(graphs[-1]) == expected and len(held) > 3
    near_exact(model, x, y)
    said = [layer for layer in report.layers if layer.pair]
    assert len(said) == 3 and [layer.swapped for layer in said] == [outcome is WON] * 3
    assert all(("one kernel" in layer.decision) == (outcome is WON) for layer in said) and said[0].pytorch_us == 20.0
    del held[:], graphs[:]
    monkeypatch.setattr(rewriting, "captured", None)  # a later process does not trace
    assert torch.equal(first_call(model, x), y) and not held
    assert count(graphs[-1]) == expected
    assert [vars(layer) for layer in backend.last_report().layers] == [vars(layer) for layer in report.layers]


def test_a_step_that_is_wrong_is_not_taken(graphs, held, monkeypatch):
    run = Pair.run_raw

    def wrong(self, x, packed, y, stream=0):
        run(self, x, packed, y, stream)
        from torch_pairs import KINDS, at

        at(y, (1,), KINDS[self.problem.dtype]).add_(9)

    monkeypatch.setattr(Pair, "run_raw", wrong)
    first_call(made(Leaky()), rows())
    said = [layer for layer in backend.last_report().layers if layer.pair]
    assert count(graphs[-1]) == 0 and said and all("differs from PyTorch's" in layer.decision for layer in said)


def test_the_fastest_config_competes(graphs, held, monkeypatch):
    run = Pair.run_raw
    seen = []

    def slow(self, *rest):
        seen.append(self.config)
        run(self, *rest)

    def median_us(way, _):
        del seen[:]
        way()
        return 50.0 if seen != ["config=2"] else 40.0

    monkeypatch.setattr(Pair, "run_raw", slow)
    monkeypatch.setattr("convtune.torch.measure.pairs.median_us", median_us)
    first_call(made(Leaky(holes=(1,))), rows())
    assert backend.last_report().layers[-1].config == "config=2"
    assert [pairs.pair_of(node.args[2])[2] for node in graphs[-1].nodes if node.target is pair1d_packed] == ["config=2"]


def test_what_no_kernel_is_for_stays_two(graphs, held, monkeypatch):
    monkeypatch.setattr(Pair, "refuses", staticmethod(lambda problem: problem.dilation == 3))
    first_call(made(Leaky()), rows())
    assert count(graphs[-1]) == 2 and count(graphs[-1], conv2d_packed) == 2
    assert sum(bool(layer.pair) for layer in backend.last_report().layers) == 2


@pytest.mark.parametrize("model", [Leaky(), nn.Sequential(Unit(way="beta"), Unit())], ids=["leaky", "snake"])
def test_by_inductor_weights_are_renewed_and_shared(model):
    model, x = made(model), rows()
    fast, y = compiled(model, x)
    near_exact(model, x, y)
    other, again = compiled(made(nn.Sequential(model, nn.Identity())), x)
    assert torch.equal(y, again)
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.5)
        for run in (fast, other):
            near_exact(model, x, run(x))
            assert not torch.equal(run(x), y)
        x = rows(2, 8, 42)[..., 1:-1]  # at an odd place, and with gaps
        near_exact(model, x, fast(x))
    assert any(key[1].startswith("pair ") for key in folding._shared)


def test_branches_have_steps(graphs):
    class Stage(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.blocks = nn.Conv1d(8, 8, 3, padding=1), nn.ModuleList(Leaky(taps=taps) for taps in (3, 5, 7))

        def forward(self, x):
            x = self.before(x)
            return torch.tanh(sum(block(x) for block in self.blocks) / 3)

    model, x = made(Stage()), rows()
    fast, y = compiled(model, x, **{"convtune.beside": True})
    assert count(graphs[-1]) == 9
    steps = cut(graphs[-1])
    work = [[sum(products(node) > 0 for node in nodes) for nodes in step] for step in steps]
    assert [one for one in work if len(one) > 1] == [[3, 3, 3]]
    with torch.no_grad(), Beside() as asked:
        assert torch.equal(fast(x), y)
    assert asked.forks == 1


@on_gpu
@pytest.mark.parametrize("model", [Leaky(32, 11), Leaky(64, 3, holes=(1, 5)), Unit(32, 9), Unit(96, 3, "beta")],
                         ids=["HiFi-GAN, 32", "HiFi-GAN, 64", "DAC, 32", "SnakeBeta, 96"])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_kernels_on_a_gpu(graphs, monkeypatch, model, dtype):
    """By the library's own kernel, where this GPU has it."""
    monkeypatch.setattr("convtune.torch.graph.capture._DEVICES", ("cuda",))
    monkeypatch.setattr("convtune.torch.pairs.Pair", own_pair)
    monkeypatch.setattr("convtune.torch.measure.pairs.Pair", own_pair)
    model, x = made(model, dtype).cuda(), rows(2, model_channels(model), 4100, dtype=dtype).cuda()
    _, y = compiled(model, x)
    if torch.cuda.get_device_capability()[0] == 9:
        assert count(graphs[-1]) > 0
    near_exact(model, x, y)
