"""Residual steps where something fails while they are decided: the step stays two convolutions, the table says why, and a later
process asks again."""

import pytest
from test_torch_pairs import WON, count, first_call, made, near_exact
from torch_pairs import Leaky, Pair, kernels, rows  # noqa: F401  (a fixture)
from torch_support import torch

import convtune
from convtune.torch import backend
from convtune.torch.measure import decide
from convtune.torch.measure import pairs as measured

pytestmark = pytest.mark.usefixtures("afresh", "kernels")


@pytest.fixture(autouse=True)
def won(monkeypatch):
    monkeypatch.setattr(decide, "contest", lambda *_, **__: WON)
    monkeypatch.setattr(decide, "median_us", lambda *_: 50.0)

    def median_us(way, _):
        way()
        return 50.0

    monkeypatch.setattr(measured, "median_us", median_us)


def broken(what, is_broken):
    """Pair with `what` (planning, or a run) that fails where `is_broken` says so of a problem."""

    class Broken(Pair):
        def __init__(self, problem, *rest):
            if what == "plan" and is_broken(problem):
                raise convtune.Error("the compiler's memory is full")
            super().__init__(problem, *rest)

        def run_raw(self, *rest):
            if what == "run" and is_broken(self.problem):
                raise convtune.Error("the launch failed")
            super().run_raw(*rest)

    return Broken


def said():
    return [layer for layer in backend.last_report().layers if layer.pair]


@pytest.mark.parametrize("what, words", [("plan", "the compiler's memory is full"), ("run", "the launch failed")])
def test_a_failure_that_passes(graphs, monkeypatch, caplog, what, words):
    failing = broken(what, lambda problem: problem.dilation == 3)
    for module in ("pairs", "measure.pairs"):
        monkeypatch.setattr(f"convtune.torch.{module}.Pair", failing)
    model, x = made(Leaky()), rows()
    y = first_call(model, x)
    near_exact(model, x, y)
    assert count(graphs[-1]) == 2
    assert [layer.decision for layer in said() if not layer.swapped] == [f"the two convolutions: {words}"]
    assert words in caplog.text and words in str(backend.last_report())
    for module in ("pairs", "measure.pairs"):
        monkeypatch.setattr(f"convtune.torch.{module}.Pair", Pair)
    convtune.clear_caches()
    near_exact(model, x, first_call(model, x))
    assert count(graphs[-1]) == 3 and all(layer.swapped for layer in said())


def test_too_little_memory_for_a_contest(graphs, monkeypatch, caplog):
    class Sides(measured.PairSides):
        def __init__(self, step):
            if step.problem.dilation == 3:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            super().__init__(step)

    monkeypatch.setattr(measured, "PairSides", Sides)
    model, x = made(Leaky()), rows()
    near_exact(model, x, first_call(model, x))
    assert count(graphs[-1]) == 2
    assert [layer.decision for layer in said() if not layer.swapped] == ["the two convolutions: CUDA out of memory"]


def test_what_no_kernel_is_for_has_no_row(graphs, monkeypatch, caplog):
    monkeypatch.setattr(Pair, "refuses", staticmethod(lambda problem: problem.dilation == 3))
    first_call(made(Leaky()), rows())
    assert count(graphs[-1]) == 2 and len(said()) == 2 and "stays two" not in caplog.text
