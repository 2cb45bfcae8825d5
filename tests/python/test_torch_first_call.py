"""Tests what a first call of torch.compile(backend="convtune") waits for, and what it need not: contests that were held before, and
the whole where its layers are far ahead."""

import dataclasses
import io
import operator
import os
import pickle
import threading
import time
from types import SimpleNamespace

import pytest
from torch_compiled_models import OURS, block, compiled, images
from torch._inductor import codecache
from torch_support import assert_near, count, torch

from convtune._contest import Contest
from convtune.caches import PLANS
from convtune.errors import Unsupported
from convtune.optimize_report import Layer
from convtune.problem import Problem
from convtune.torch import ahead, backend, packed, rewriting
from convtune.torch.graph import chains, remembered
from convtune.torch.measure import contests, decide, proof
from convtune.torch.measure import graphs as graphs_of
from convtune.torch.measure.phases import Phases

pytestmark = pytest.mark.usefixtures("afresh")
WON = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)
OPEN = Contest(False, 0.01, -0.5, 0.5, 100.0, 99.0, 10)


@pytest.fixture
def held(monkeypatch):
    """The contests that were held, "layer" or "whole"; each ends as `held.outcomes` says. A median is `held.median_us`."""

    class Held(list):
        outcomes = {"layer": WON, "whole": Contest(True, 0.25, 0.1, 0.3, 400.0, 300.0, 10)}
        median_us = 50.0

    seen = Held()

    def contest_of(kind):
        def contest(before, after, *_, **__):
            assert before() > 0 and after() > 0
            seen.append(kind)
            return seen.outcomes[kind]

        return contest

    monkeypatch.setattr(decide, "contest", contest_of("layer"))
    monkeypatch.setattr(proof, "contest", contest_of("whole"))
    monkeypatch.setattr(decide, "median_us", lambda *_: seen.median_us)
    return seen


def first_call(options=None):
    """In another process, as far as what was decided is remembered there."""
    contests._known.clear()
    chains._decided.clear()
    torch._dynamo.reset()
    model, x = block(), images()
    with torch.no_grad():
        assert_near(compiled(model, options)(x), model(x))
    return backend.last_report()


@pytest.mark.parametrize("of_layers, of_the_whole, first, later", [
    (WON, True, [0, 3], [3]),
    (WON, False, [0, 3], [0]),
    (OPEN, True, [0], [0]),
], ids=["won", "the whole is lost", "undecided"])  # fmt: skip
def test_a_second_process_holds_no_contest(held, graphs, of_layers, of_the_whole, first, later):
    held.outcomes = {"layer": of_layers, "whole": Contest(of_the_whole, 0.0, -0.1, 0.1, 400.0, 400.0, 10)}
    before = first_call()
    assert held == ["layer"] * 3 + ["whole"] * (of_layers is WON)
    assert [count(graph, *OURS) for graph in graphs] == first
    del held[:], graphs[:]
    after = first_call()
    assert not held and [count(graph, *OURS) for graph in graphs] == later
    assert [vars(layer) for layer in after.layers] == [vars(layer) for layer in before.layers]
    assert after.before_us == before.before_us and after.kept == before.kept and after.notes == before.notes
    assert "contests of layers" in before.seconds and "contests of layers" not in after.seconds


def test_other_inputs_options_or_plans_are_decided_anew(held, graphs, monkeypatch):
    first_call()
    del held[:]
    first_call({"convtune.min_gain": 0.03})
    assert held == ["layer"] * 3  # by the same plans: the whole is known
    del held[:]
    first_call({"max_autotune": True})
    assert held == ["whole"]
    del held[:]
    plan = decide.Convolution

    def planned(problem, *rest):
        return dataclasses.replace(plan(problem, *rest).plan, source="unproven")

    monkeypatch.setattr(decide, "Convolution", lambda *asked: type("Planned", (), {"plan": planned(*asked)}))
    first_call()
    assert not held  # planned anew, but the contests of these configs are known


@pytest.mark.parametrize("is_known, contests_held", [(True, 1), (False, 4)], ids=["decided before", "nothing known"])
def test_a_search_is_followed_by_contests_of_what_it_searched(held, monkeypatch, is_known, contests_held):
    """Layers that were not decided had five seconds each once more, whatever the budget: of a model of 22 graphs minutes."""
    searched = []
    monkeypatch.setattr(decide, "search", lambda *asked, **_: searched.append(asked[2]) or SimpleNamespace(tuning=None))
    held.outcomes["layer"] = OPEN
    if is_known:
        first_call()
        del held[:]
    first_call({"convtune.budget": 2.0})
    assert len(searched) == 1 and held == ["layer"] * contests_held


def test_what_inductor_asks_once_is_asked_while_a_graph_is_rewritten(held, graphs, monkeypatch):
    """By a thread, once a process, and before the graph is compiled."""
    asked = []
    monkeypatch.setattr(codecache, "torch_key", lambda: time.sleep(0.2) or asked.append((threading.current_thread(), len(graphs))))
    ahead.asked_ahead.cache_clear()
    first_call()
    first_call()
    ahead.asked_ahead.cache_clear()
    (thread, compiled_before), = asked
    assert thread is not threading.main_thread() and compiled_before == 0 and len(graphs) >= 2


def test_layers_that_are_far_ahead_prove_the_whole(held, graphs):
    held.median_us = 60.0  # PyTorch's convolutions alone: ours take 50 with all that follows
    report = first_call()
    assert held == ["layer"] * 3 and [count(graph, *OURS) for graph in graphs] == [3]
    assert str(report).count("the whole is not measured: with all that follows them, its layers take 30.0 us less") == 1
    assert [layer.alone_us for layer in report.layers] == [60.0] * 3
    first_call({"convtune.whole": True})
    assert held[3:] == ["whole"]


def layer(us, alone, low=0.5, calls=1, swapped=True, layout="nchw"):
    return Layer(["one"], Problem.parse("mb1ic3ih8oc4kh3"), calls, us, us / 2, 0.5, "", "", layout, swapped, "", [], low, low, alone)


@pytest.mark.parametrize("layers, saved", [
    ([layer(100, 60)], 10),
    ([layer(100, 60, calls=3), layer(100, 45)], 25),
    ([layer(100, 60, low=0.4)], 0),  # the end of the interval
    ([layer(100, 60, low=0.47), layer(100, 60, low=0.46)], 15),  # two that were measured apart: 20 less 5, not less 7
    ([layer(100, 60), layer(1000, 0, swapped=False)], 0),  # a hundredth of it all
    ([layer(100, 52)], 0),
    ([layer(100, 60), layer(100, 0)], 0),  # nobody asked
    ([layer(100, 60, layout="nhwc")], 0),  # with copies
    ([], 0),
])  # fmt: skip
def test_what_layers_save_whatever_is_fused_around_them(layers, saved):
    assert proof.saved_by_layers(layers) == pytest.approx(saved)


def test_a_record_needs_no_contest_where_looks_agree(held, graphs, monkeypatch):
    plan, looks = decide.Convolution, []

    def planned(*asked):
        return type("Planned", (), {"plan": dataclasses.replace(plan(*asked).plan, source="tuned")})

    monkeypatch.setattr(decide, "Convolution", planned)
    times = iter([100.0, 40.0, 60.0] * 2 + [100.0, 99.0])  # the last layer: not as its record says
    monkeypatch.setattr(decide, "median_us", lambda *_: looks.append(1) or next(times, 60.0))
    report = first_call()
    assert held == ["layer"] and len(looks) == 9
    assert [one.swapped for one in report.layers] == [True] * 3 and "not tuned" not in str(report)


def test_the_seconds_of_a_first_call(held, graphs):
    report = first_call()
    assert list(report.seconds) == [
        "tracing and matching", "plans and kernels", "contests of layers", "folding and packing",
        "inductor, of its own graph", "inductor", "contest of the whole",
    ]  # fmt: skip
    lines = report.timetable().splitlines()
    assert str(report).endswith(report.timetable()) and len(lines) == 9
    assert float(lines[-1].split()[1]) == pytest.approx(sum(report.seconds.values()), abs=0.01)
    assert "tracing and matching" in report._repr_html_()


def test_phases_within_phases_count_once(monkeypatch):
    now = iter([0.0, 1.0, 4.0, 9.0, 10.0, 12.0])
    monkeypatch.setattr("convtune.torch.measure.phases.time.perf_counter", lambda: next(now))
    phases = Phases()
    with phases("outer"), phases("inner"):
        pass
    with phases("inner"):
        pass
    assert phases.seconds == {"outer": 6.0, "inner": 5.0}


@pytest.fixture
def traced(monkeypatch):
    """The graphs that were traced."""
    seen, real = [], rewriting.captured
    monkeypatch.setattr(rewriting, "captured", lambda *given: seen.append(1) or real(*given))
    return seen


def test_a_second_process_traces_nothing(held, graphs, traced, tmp_path, monkeypatch):
    monkeypatch.setenv("CONVTUNE_CACHE_DIR", str(tmp_path))
    before = first_call()
    (file,) = (tmp_path / "graphs").iterdir()
    after = first_call()
    assert traced == [1] and [count(graph, *OURS) for graph in graphs] == [0, 3, 3]
    told = [[(one.names, one.calls, one.decision, one.swapped, one.pytorch_us) for one in of.layers] for of in (before, after)]
    assert told[0] == told[1] and str(before.layers[0].problem) == str(after.layers[0].problem)
    file.write_bytes(file.read_bytes()[:100])
    first_call()
    assert traced == [1, 1]  # and written again
    contests.forget()
    first_call()
    first_call()
    assert traced == [1, 1, 1]


def test_a_second_process_plans_each_layer_once(held, graphs, tmp_path, monkeypatch):
    monkeypatch.setenv("CONVTUNE_CACHE_DIR", str(tmp_path))
    first_call()
    PLANS.clear()
    monkeypatch.setattr(packed, "Convolution", lambda *_: pytest.fail("its kernel is loaded again"))
    first_call()
    assert [count(graph, *OURS) for graph in graphs] == [0, 3, 3]


def test_where_nothing_is_ours_a_second_process_traces_nothing(held, traced, tmp_path, monkeypatch):
    monkeypatch.setenv("CONVTUNE_CACHE_DIR", str(tmp_path))
    held.outcomes = {"layer": Contest(False, 0.0, -0.1, 0.0, 100.0, 100.0, 10)}
    first_call()
    first_call()
    assert traced == [1]


def test_other_weights_are_packed_again(held, traced, tmp_path, monkeypatch):
    """And other inputs, or a folder that others may write to, are another matter."""
    monkeypatch.setenv("CONVTUNE_CACHE_DIR", str(tmp_path))
    first_call()
    chains._decided.clear()
    torch._dynamo.reset()
    model, x = block(), images()
    with torch.no_grad():
        for one in model.parameters():
            one.mul_(1.5)
        assert_near(compiled(model, None)(x), model(x))
        assert traced == [1]
        torch._dynamo.reset()
        chains._decided.clear()
        wide = torch.cat([x, x], -1)
        assert_near(compiled(model, None)(wide), model(wide))
        assert traced == [1, 1]
    (tmp_path / "graphs").chmod(0o777)
    first_call()
    assert traced == [1, 1, 1]


def test_a_graph_with_others_functions_is_not_remembered(held, traced, tmp_path, monkeypatch):
    monkeypatch.setenv("CONVTUNE_CACHE_DIR", str(tmp_path))

    @torch._dynamo.allow_in_graph
    def others(x):
        return x + 1

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.block = block()

        def forward(self, x):
            return others(self.block(x))

    for _ in range(2):
        chains._decided.clear()
        torch._dynamo.reset()
        model, x = Model().eval(), images()
        with torch.no_grad():
            assert_near(compiled(model, None)(x), model(x))
    assert traced == [1, 1] and not list((tmp_path / "graphs").glob("*"))


def test_a_remembered_graph_is_read_without_a_trace(monkeypatch):
    """And is the same graph, whatever its nodes are given."""
    graph = torch.fx.Graph()
    x = graph.placeholder("x")
    own = graph.get_attr("convtune_0_0")
    parts = graph.call_function(torch.ops.aten.split.Tensor, (x, 2), {"dim": 1})
    both = [graph.call_function(operator.getitem, (parts, at)) for at in (0, 1)]
    joined = graph.call_function(torch.ops.aten.cat.default, (both, 1))
    cast = graph.call_function(torch.ops.aten.to.dtype_layout, (joined,), {"dtype": torch.bfloat16, "layout": torch.strided})
    clone = graph.call_function(torch.ops.aten.clone.default, (cast,), {"memory_format": torch.channels_last})
    graph.output(((clone, own), {"size": [x, 3.5, None]}))
    module = torch.fx.GraphModule({"convtune_0_0": torch.ones(2)}, graph)
    written = pickle.dumps(remembered.Remembered(module, [], [0], True, []))
    monkeypatch.setattr(torch.fx.Tracer, "trace", lambda *_: pytest.fail("it was traced"))
    found = pickle.loads(written)
    assert found.graph.code == module.code and found.read == [0] and len(written) < 10_000
    assert [(node.op, node.target, node.name) for node in found.graph.graph.nodes] == [(node.op, node.target, node.name) for node in graph.nodes]
    assert found.graph.convtune_0_0.numel() == 0
    other = torch.fx.GraphModule({"mine": torch.ones(2)}, torch.fx.Graph())
    other.graph.output(other.graph.get_attr("mine"))
    with pytest.raises(ValueError, match="tensors of its own"):
        pickle.dumps(remembered.Remembered(other, [], [], True, []))


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_is_told_what_a_first_call_waits_for(held, monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    for options, screen in (({}, Screen()), ({"convtune.progress": False}, Screen()), ({}, io.StringIO())):
        monkeypatch.setattr("sys.stderr", screen)
        contests.forget()
        report = first_call(options)
        told = screen.getvalue()
        if not screen.isatty() or options:
            assert "convtune" not in told
            continue
        for phase in report.seconds:
            assert (f"convtune: {phase}" in told) == (not phase.startswith("inductor"))
        assert "1/3 " in told and told.endswith("\r\033[K")  # layers are counted, and the line is gone


def test_interrupted_contests_leave_nothing_behind(held, monkeypatch):
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    before = backend.reports()
    with monkeypatch.context() as interrupted:

        def interrupt(*_, **__):
            raise KeyboardInterrupt

        interrupted.setattr(decide, "contest", interrupt)
        with pytest.raises(KeyboardInterrupt):
            first_call()
    assert screen.getvalue().endswith("\r\033[K") and backend.reports() == before
    assert first_call().layers and held[:1] == ["layer"]  # none was decided before


def test_nobody_waits_for_kernels_behind_an_interrupted_search(monkeypatch):
    """A process that ends waits for threads that compile: for what they have begun, and not for a whole model's kernels."""
    begun, go_on, was_begun, cores = [], threading.Event(), threading.Event(), len(os.sched_getaffinity(0))

    def plan(problem, *_):
        begun.append(problem)
        was_begun.set()
        go_on.wait(20)
        raise Unsupported("for a test")

    def pytorch():
        was_begun.wait(20)
        raise KeyboardInterrupt

    monkeypatch.setattr(decide, "Convolution", plan)
    seen = SimpleNamespace(kind="image", device=torch.device("cuda", 0), sides=lambda: SimpleNamespace(pytorch=pytorch))
    layers = [(Layer([f"layer {number}"], Problem.parse("ic3ih8oc4kh3"), 1), [seen]) for number in range(50 + cores)]
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        graphs_of.decide_graph(layers, 0, 0.02, Phases())
    go_on.set()
    for thread in set(threading.enumerate()) - before:
        thread.join(20)
    assert 1 <= len(begun) <= cores


def test_a_graph_that_is_left_to_inductor_has_its_own_report(held, monkeypatch):
    assert first_call().layers

    def fail(*_):
        raise ValueError("no such graph\nmore")

    monkeypatch.setattr(backend, "rewritten", fail)
    report = first_call()
    assert not report.layers and report.notes == ["a graph is left to inductor: it could not be rewritten: ValueError: no such graph"]
    assert list(report.seconds) == ["inductor"] and backend.reports()[-1] is report
