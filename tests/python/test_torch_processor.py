"""Steps that wait for the processor: who waits is measured, and layers whose calls cost it more are PyTorch's."""

import gc
import time
from types import SimpleNamespace

import pytest
from torch_steps import assert_same, small, stepped
from torch_support import torch

import convtune
from convtune.torch import backend
from convtune._contest import Contest
from convtune.optimize_report import Layer
from convtune.problem import Problem
from convtune.torch.graph import gradients
from convtune.torch.graph.chains import Wanted
from convtune.torch.graph.gradients import GradientPass
from convtune.torch.measure import decide, processor, proof
from convtune.torch.measure.phases import Phases
from convtune.torch.measure.timing import without_collections
from convtune.torch.run import choice_line

pytestmark = pytest.mark.usefixtures("afresh")
WON = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)


def node_and_directions():
    """A backward's node with both gradients and the bias's, and its directions."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(dy, x, w):
        return torch.ops.aten.convolution_backward(dy, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3)

    graph = make_fx(run, tracing_mode="fake")(torch.rand(2, 4, 6, 6), torch.rand(2, 8, 6, 6), torch.rand(4, 8, 3, 3))
    node = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)[0]
    return node, gradients._found(node)


def line_of(one):
    plan = convtune.Convolution(one.problem, "cpu", "ours").plan
    return choice_line("cpu", one.problem, one.problem, plan.algorithm, plan.config)


@pytest.mark.parametrize(
    "costs, device, won, chosen",
    [
        ({"": 60, "x": 80}, {"x": (20, 10)}, "x", ""),  # two calls in the place of one
        ({"": 60, "x": 68}, {"x": (20, 10)}, "x", "x"),  # the processor loses 8 us, the device gains 10
        ({"": 60, "x": 50}, {"x": (10, 12)}, "", "x"),  # slower on the device, which waits
        ({"": 60, "x": 55}, {"x": (10, 20)}, "", ""),
        ({"": 60, "x": 80, "w": 70, "xw": 55}, {"x": (9, 9), "w": (9, 9)}, "x", "xw"),
        ({"": 60, "x": 40, "w": 70, "xw": 55}, {"x": (9, 9), "w": (9, 9)}, "xw", "x"),
        ({"": 60, "x": 80, "w": 70, "xw": 75}, {"x": (9, 9), "w": (9, 9)}, "xw", ""),
        ({"": 59, "x": 60}, {"x": (9, 9)}, "x", "x"),  # no more than noise
        ({"": 60, "x": 59}, {"x": (9, 9)}, "", ""),
    ],
)
def test_a_node_takes_what_costs_least(costs, device, won, chosen, monkeypatch):
    node, found = node_and_directions()
    of_name = {one.name: one.of for one in found}
    asked = []

    def cost(_, members, lines):
        assert members == found
        asked.append("".join(lines))
        return costs[asked[-1]]

    monkeypatch.setattr(processor, "_cost", cost)
    lines = {one.name: line_of(one) for one in found if one.of in device}
    us = {name: device[of] for name, of in of_name.items() if of in device}
    changed = processor.cheapest(found, lines, {name for name, of in of_name.items() if of in won}, us)
    assert {of_name[name] for name, (is_ours, _) in changed.items() if is_ours} == set(chosen) - set(won)
    assert {of_name[name] for name, (is_ours, _) in changed.items() if not is_ours} == set(won) - set(chosen)
    assert set(asked) == set(costs) and all("in place of" in why for _, why in changed.values())


@pytest.mark.parametrize("own", ["", "x", "w", "xw"])
def test_what_is_timed_is_what_the_graph_calls(own, monkeypatch):
    """All three gradients, by one call of ours and one of PyTorch's for what is left."""
    node, found = node_and_directions()
    called = []
    ours, theirs = processor.conv_gradients, processor._backward
    monkeypatch.setattr(processor, "conv_gradients", lambda *rest: called.append([one is not None for one in ours(*rest)]))
    monkeypatch.setattr(processor, "_backward", lambda *rest: called.append(list(rest[-1])) or theirs(*rest))
    run = processor._backward_of(node, found, {one.of: line_of(one) for one in found if one.of in own})
    run()
    mine = ["x" in own, "w" in own, "w" in own]
    assert called == ([mine] if own else []) + ([[not one for one in mine]] if own != "xw" else [])


def test_a_cost_is_measured_once(monkeypatch):
    node, found = node_and_directions()
    asked = []
    monkeypatch.setattr(processor, "processor_us", lambda run, device: asked.append(run()) or 7.0)
    assert [processor._cost(node, found, {}) for _ in range(2)] == [7.0, 7.0] and len(asked) == 1


def test_the_device_is_not_waited_for(monkeypatch):
    """Between the calls of a sample; the least sample counts."""
    events = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: events.append("wait"))
    us = processor.processor_us(lambda: events.append("run") or time.sleep(2e-4), torch.device("cuda"))
    assert 200 <= us < 5e4
    text = "".join(one[0] for one in events)
    assert text == "r" * 3 + ("w" + "r" * processor._CALLS) * processor._SAMPLES + "w"


@pytest.mark.parametrize("behind_s, waits", [(0.0, True), (0.05, False)])
def test_who_waits_is_seen_behind_the_last_launch(behind_s, waits, monkeypatch):
    clock = [0.0]

    def passed(seconds):
        clock[0] += seconds

    monkeypatch.setattr(proof, "_device", lambda inputs: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: passed(behind_s))
    monkeypatch.setattr(proof, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    calls = torch.zeros(1)

    def graph(x, calls):
        passed(0.02)
        return x * (2 + calls.add_(1) + torch.rand(1))

    x = torch.rand(4, requires_grad=True)
    before = torch.get_rng_state()
    assert proof.waits_for_processor(graph, [x, calls]) is waits
    assert calls.item() == 0 and torch.equal(torch.get_rng_state(), before)  # as the step finds them


def test_a_processor_waits_for_no_other():
    assert proof.waits_for_processor(lambda x: x, [torch.rand(4, requires_grad=True)]) is False


def test_samples_are_free_of_collections():
    with without_collections():
        assert not gc.isenabled()
    assert gc.isenabled()
    gc.disable()
    try:
        with without_collections():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def compiled(monkeypatch, waits, dearer, won=WON, cheaper="", **options):
    """(The report, what was asked) of a step that has the same states as eager's."""
    asked = []
    monkeypatch.setattr(decide, "check_and_contest", lambda *rest, **more: won)
    monkeypatch.setattr(proof, "contest", lambda *_, **__: WON)
    monkeypatch.setattr(backend, "_DEVICES", ("cpu",))
    monkeypatch.setattr(backend, "waits_for_processor", lambda *_: asked.append("waits") or waits)

    def cheapest(found, lines, taken, device_us):
        asked.append("cheapest")
        assert set(device_us) >= set(lines) >= set(taken) and set(device_us.values()) <= {(won.incumbent_us, won.paired_us)}
        of = {one.name: one.of for one in found}
        changed = {name: (False, "it is dearer") for name in taken if of[name] in dearer}
        return {**changed, **{name: (True, "it is cheaper") for name in lines if of[name] in cheaper}}

    monkeypatch.setattr(gradients, "cheapest", cheapest)
    x, models = torch.rand(2, 3, 16, 16), [small() for _ in range(2)]
    run = torch.compile(models[0], backend="convtune", options=options)
    assert_same(stepped(models[0], x, run), stepped(models[1], x, models[1]))
    return backend.last_report(), asked


def directions(layers):
    return {name[-1] if " d" in name else "y" for layer in layers for name in layer.names}


@pytest.mark.parametrize("dearer", ["", "x", "xwy"])
def test_a_step_that_waits_leaves_what_is_dear(dearer, monkeypatch):
    report, asked = compiled(monkeypatch, True, dearer)
    assert asked == ["waits", "cheapest", "cheapest"]
    left = [layer for layer in report.layers if not layer.swapped]
    assert directions(left) == set(dearer) and all(layer.decision == "PyTorch: it is dearer" for layer in left)
    assert sum(layer.calls for layer in report.layers) == sum(len(layer.names) for layer in report.layers) == 8


def test_a_step_that_waits_takes_what_is_cheap(monkeypatch):
    lost = Contest(False, -0.1, -0.2, 0.0, 100.0, 110.0, 10)
    report, _ = compiled(monkeypatch, True, "", lost, "xw")
    taken = [layer for layer in report.layers if layer.swapped]
    assert directions(taken) == {"x", "w"} and all("cheaper" in layer.decision and layer.algorithm in layer.decision for layer in taken)


def test_what_forward_had_for_a_name_is_not_backwards(monkeypatch):
    """A convolution that backward computes again has its name in both graphs. What did not compete in one is not taken there."""
    asked = []
    monkeypatch.setattr(gradients, "cheapest", lambda found, could, won, device_us: asked.append((could, device_us)) or {})
    one = GradientPass(Wanted(), Phases(), True)
    competed, refused = (Layer(["convolution"], Problem.parse(f"ic3ih8oc4kh{size}"), 1) for size in (3, 1))
    competed.algorithm, competed.layout, competed.pytorch_us = "direct", "nchw", 9.0
    one._layers = [competed, refused]
    one._spare_processor([SimpleNamespace(name="convolution", device=torch.device("cpu"))], {})
    one._layers = [refused, competed]
    one._spare_processor([SimpleNamespace(name="convolution", device=torch.device("cpu"))], {})
    assert asked[0] == ({}, {}) and list(asked[1][0]) == list(asked[1][1]) == ["convolution"]


def test_a_step_that_does_not_wait_asks_for_no_cost(monkeypatch):
    assert compiled(monkeypatch, False, "xwy")[1] == ["waits"]


def test_cuda_graphs_wait_for_no_processor(monkeypatch):
    assert compiled(monkeypatch, True, "xwy", **{"triton.cudagraphs": True})[1] == []


def test_who_waits_is_remembered(monkeypatch):
    """The next process compiles one graph."""
    compiled(monkeypatch, True, "")
    torch._dynamo.reset()
    report, asked = compiled(monkeypatch, None, "")
    assert asked == ["cheapest", "cheapest"] and "inductor, of its own graph" not in report.seconds


def test_the_whole_is_remembered_whatever_the_number_of_launches(monkeypatch):
    """How many kernels this process has loaded is not what was decided on."""
    for number, is_first in ((5, True), (3, False)):
        monkeypatch.setattr(backend, "shorten", lambda modules: number)
        report, _ = compiled(monkeypatch, True, "")
        assert ("contest of the whole" in report.seconds) == is_first
        assert f"{number} kernels of inductor's are launched by a shorter way" in report.notes
        torch._dynamo.reset()


def test_more_memory_is_told(monkeypatch):
    peaks, said = iter([100 << 20, 110 << 20]), []
    monkeypatch.setattr(proof, "peak_bytes", lambda run, device: next(peaks))
    x = torch.rand(4, requires_grad=True)
    assert not proof.whole_step(lambda x: x * 2, lambda x: x + x, [x], said.append).accepted
    assert said == ["at its peak forward with backward takes 110 MiB, inductor's 100"]
