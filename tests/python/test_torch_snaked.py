"""Snakes as the last step of the kernel in front of them: which ones of a graph, beside PyTorch's own. Kernels with a Snake are for
GPUs; here the reference stands for them, and a pair is PyTorch's, on the CPU."""

import copy
import logging

import pytest
from test_torch_snakes import chain, conv
from torch_pairs import Leaky, Pair, Snake, Unit, kernels, rows  # noqa: F401  (a fixture)
from torch_support import count, on_gpu, torch

from convtune.errors import Error
from convtune.problem import Problem
from convtune.torch import backend, graphed  # noqa: F401  (they register the backend)
from convtune.torch.graph import snaked
from convtune.torch.packed import conv2d_packed, fields_of
from convtune.torch.pairs import pair1d_packed, pair_of

nn = torch.nn


@pytest.fixture
def here(monkeypatch, kernels):  # noqa: F811
    """The reference in the place of kernels that have a Snake."""
    of_kernel = snaked._line

    def line(own, where, of_pair, activated):
        made = of_kernel(own, where, of_pair, activated)
        return made if of_pair else "\t".join((*made.split("\t")[:3], "reference", ""))

    monkeypatch.setattr(snaked, "_line", line)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model, x):
    model = model.eval().requires_grad_(False).to(x.dtype)
    for one in model.modules():
        if isinstance(one, Snake):  # numbers of their own for each channel
            with torch.no_grad():
                one.alpha.copy_(torch.linspace(0.5, 1.5, one.alpha.numel()).reshape(one.alpha.shape))
    fast = torch.compile(model, backend="convtune", options={"convtune.force": True})
    with torch.no_grad():
        return fast, fast(x), model(x)


def words(graph):
    """The Snakes of the graph's convolutions and steps, in words."""
    found = []
    for node in graph.nodes:
        if node.target is conv2d_packed:
            found.append(fields_of(node.args[-1])[1].snake)
        elif node.target is pair1d_packed:
            problem = pair_of(node.args[-1])[1]
            found.append(f"{'activated ' if problem.activated else ''}step {problem.snake}")
    return found


def is_near(y, theirs):
    return y.stride() == theirs.stride() and float((y.double() - theirs.double()).norm() / theirs.double().norm()) < 0.01


def test_problem_says_it():
    text = "mb1ic8ih1iw16oc8kh1kw3ph0pw1 layout=nhwc dtype=bf16:bf16:bf16:f32 snake=beside"
    problem = Problem.parse(text)
    assert problem.snake == "beside" and str(problem) == text and problem.replace(snake="none").snake == "none"
    with pytest.raises(Exception, match="snake"):
        problem.replace(bias=False)
    with pytest.raises(Exception, match="snake"):
        problem.replace(activation="relu")


@pytest.mark.parametrize("way", ["div", "dac", "beta"])
def test_those_that_alone_read_a_convolution(here, graphs, way):
    _, y, theirs = compiled(chain(way), rows(2, 8, 16))
    assert words(graphs[-1]) == ["after", "after", "none"] and count(graphs[-1], torch.ops.aten.sin.default) == 0
    assert is_near(y, theirs)


@pytest.mark.parametrize("batch", [1, 2])
def test_those_beside_a_residual(here, graphs, monkeypatch, batch):
    monkeypatch.setattr(Pair, "refuses", staticmethod(lambda problem: True))
    _, y, theirs = compiled(nn.Sequential(conv(), Unit(), Unit(), Snake(8), conv()), rows(batch, 8, 16))
    assert words(graphs[-1]) == ["beside", "after", "beside", "after", "after", "none"]
    assert count(graphs[-1], torch.ops.aten.sin.default) == 0 and is_near(y, theirs)


def test_those_behind_steps(here, graphs, monkeypatch):
    monkeypatch.setattr(Pair, "refuses", staticmethod(lambda problem: problem.dilation == 3))
    units = (Unit(hole=hole) for hole in (1, 3, 1))
    _, y, theirs = compiled(nn.Sequential(conv(), *units, Snake(8), conv()), rows(2, 8, 16))
    assert words(graphs[-1]) == ["beside", "activated step beside", "after", "beside", "activated step after", "none"]
    assert is_near(y, theirs)


@pytest.mark.parametrize("model", [nn.Sequential(Snake(8), conv()), nn.Sequential(conv(), nn.Tanh(), Snake(8), conv()), Leaky()])
def test_others_are_left(here, graphs, model):
    compiled(model, rows(2, 8, 16))
    assert not any("after" in one or "beside" in one for one in words(graphs[-1]))


def test_a_graph_that_gives_both(here, graphs):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.snake = conv(), Snake(8)

        def forward(self, x):
            x = self.first(x)
            return x, self.snake(x)

    _, ys, theirs = compiled(Both(), rows(2, 8, 16))
    assert words(graphs[-1]) == ["beside"] and all(is_near(*both) for both in zip(ys, theirs))


def test_without_a_kernel_they_stay(kernels, graphs):  # noqa: F811
    torch._dynamo.reset()
    _, y, theirs = compiled(chain("div"), rows(2, 8, 16))
    assert words(graphs[-1]) == ["none"] * 3 and is_near(y, theirs)


def test_why_there_is_no_kernel_is_logged(monkeypatch, caplog):
    def refused(line, index):
        raise Error(f"no room for {line}\nand more lines")

    class Wish:
        text, index, chain = "cuda\tmb1 snake=after\tkernel\tstages=5", 0, None

    monkeypatch.setattr(snaked, "planned", refused)
    with caplog.at_level(logging.INFO, "convtune"):
        assert snaked._planned(Wish()) == ""
    assert [one.message.rpartition("stages=")[2] for one in caplog.records] == ["5", "4", "3"]
    assert all("snake=after" in one.message and "and more" not in one.message for one in caplog.records)


def test_numbers_that_change_are_seen(here):
    model, x = chain("beta"), rows(2, 8, 16)
    fast, y, theirs = compiled(model, x)
    with torch.no_grad():
        for one in (model[1], model[3]):
            one.alpha.add_(0.5), one.beta.sub_(0.25)
        model[0].bias.mul_(2)
        y, theirs = fast(x), model(x)
    assert is_near(y, theirs)


@pytest.mark.parametrize("batch", [1, 2])
def test_inductors_code_has_both_halves(here, monkeypatch, batch):
    monkeypatch.setattr(Pair, "refuses", staticmethod(lambda problem: problem.dilation == 3))
    model = nn.Sequential(conv(), Unit(hole=3), Unit(hole=1), Unit(hole=3), Snake(8), conv())
    _, y, theirs = compiled(model, rows(batch, 8, 16))
    assert is_near(y, theirs)


@on_gpu
def test_on_a_gpu():
    """Steps whose convolutions are apart, and such that are one kernel, beside double precision; the same bits in 20 replays."""
    torch.manual_seed(0)
    for channels in (768, 192):
        units = [Unit(channels) for _ in range(2)]
        model = nn.Sequential(nn.Conv1d(64, channels, 7, padding=3), *units, Snake(channels), nn.ConvTranspose1d(channels, 64, 8, 4, 2))
        model = model.eval().requires_grad_(False).to("cuda", torch.bfloat16)
        x = torch.randn(2, 64, 40, device="cuda").bfloat16()
        exact = copy.deepcopy(model).double()(x.double())
        fast = graphed.Graphed(model, (x,), (), {"convtune.force": True}, whole=False)
        with torch.no_grad():
            y = fast(x).clone()
            assert float((y.double() - exact).norm() / exact.norm()) < 0.02
            assert all(torch.equal(fast(x), y) for _ in range(20))
