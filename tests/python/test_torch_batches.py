"""Graphs for any batch: a new one waits for no kernel and packs no weights, and is right whatever computes it."""

import threading
import weakref

import numpy
import pytest
from processes import python
from torch_compiled_models import block, compiled, fused
from torch_support import assert_near, torch

import convtune
from convtune import Convolution, Problem
from convtune._contest import Contest
from convtune.caches import PACKS, PLANS
from convtune.torch import backend, batches, run
from convtune.torch.how import How
from convtune.torch.measure import decide, proof
from convtune.torch.measure import graphs as graphs_of
from convtune.torch.packed import conv2d_packed

pytestmark = pytest.mark.usefixtures("afresh")
BATCHES = (5, 1, 2, 8, 9, 64, 33, 3)


def images(batch, size=12):
    return torch.rand(batch, 8, size, size, generator=torch.Generator().manual_seed(batch))


@pytest.fixture
def packs(monkeypatch):
    """The number of times that weights were packed."""
    times, pack = [], Convolution.pack_raw
    monkeypatch.setattr(Convolution, "pack_raw", lambda *rest: times.append(1) or pack(*rest))
    PACKS.clear()
    return times


@pytest.mark.parametrize("how", ["dynamic", "marked", "as it comes"])
def test_any_batch_is_right_and_packs_weights_once(packs, how):
    model = block()
    run = compiled(model, dynamic=True if how == "dynamic" else None)
    with torch.no_grad():
        for batch in BATCHES:
            x = images(batch)
            if how == "marked":
                torch._dynamo.mark_dynamic(x, 0)
            assert_near(run(x), model(x))
        orders = [len(of[1]) for of in PACKS._of.values()]
        before = len(packs)
        for batch in (*BATCHES, 7, 50):
            assert_near(run(images(batch)), model(images(batch)))
    assert max(orders) <= 3 and len(packs) == before  # for 1, 8 and 64 images


@pytest.mark.parametrize("batch, other", [(1, 1), (2, 8), (8, 8), (9, 64), (64, 64), (65, 512)])
def test_which_batch_stands_for_which(batch, other):
    assert batches._that_stands_for(batch) == other


PROBLEMS = ["mb1ic8ih12oc16kh3ph1", "mb1ic64ih14oc64kh3ph1 act=relu", "mb1ic3ih32oc32kh7sh2ph3", "g16mb1ic16ih14oc16kh3ph1",
            "mb1ic32ih9oc48kh1 residual=1", "mb1ic32ih9oc48kh1 layout=nhwc", "g2mb1ic8ih9oc12kh3 precision=auto",
            "mb1ic32ih14oc32kh3ph1 dtype=bf16 layout=nhwc", "mb1ic8id4ih9iw9oc16kd3kh3kw3pd1ph1pw1"]  # fmt: skip
ALGORITHMS = ("direct", "direct_depthwise", "implicit_gemm", "winograd", "winograd_rows", "winograd_filters", "amx")


def test_weights_on_a_cpu_lie_the_same_for_every_batch():
    """By each algorithm that takes the problem, in bytes."""
    compared = set()
    for text in PROBLEMS:
        one = Problem.parse(text)
        generator = numpy.random.default_rng(0)
        for algorithm in ALGORITHMS:
            try:
                first = Convolution(one, "cpu", algorithm)
                others = [Convolution(one.replace(n=n), "cpu", algorithm, first.plan.config) for n in (3, 64)]
            except (convtune.Unsupported, convtune.InvalidArgument):
                continue
            weights = generator.integers(0, 2**14, one.weight_shape, numpy.uint16 if "bf16" in text else numpy.uint32)
            packed, bias = [], numpy.arange(one.k, dtype=numpy.float32)
            for convolution in (first, *others):
                memory = numpy.zeros(convolution.packed_bytes + 64, numpy.uint8)
                start = -memory.ctypes.data % 64
                convolution.pack_raw(weights.ctypes.data, bias.ctypes.data, memory.ctypes.data + start)
                packed.append(memory[start : start + convolution.packed_bytes].tobytes())
                assert convolution.packing == first.packing
            assert packed[0] == packed[1] == packed[2], (text, algorithm)
            compared.add(algorithm)
    assert len(compared) >= 5, compared


def test_other_configs_and_channels_are_packed_apart():
    plain = Convolution("mb1ic64ih14oc64kh3ph1", "cpu", "direct")
    orders = {plain.packing}
    for text, algorithm in (("mb1ic64ih14oc32kh3ph1", "direct"), ("mb1ic64ih14oc64kh3ph1", "implicit_gemm"),
                            ("mb1ic64ih14oc64kh3ph1 layout=nhwc", "direct")):  # fmt: skip
        orders.add(Convolution(text, "cpu", algorithm).packing)
    assert len(orders) == 4


def test_while_a_kernel_is_compiled_pytorch_computes(monkeypatch):
    """As on a GPU."""
    made, real = [], run._plan
    monkeypatch.setattr(run, "waits_for_kernels", lambda index: True)
    monkeypatch.setattr(run, "_plan", lambda *asked: made.append(asked[0].n) or real(*asked))
    PLANS.clear()
    model = block()
    fast = compiled(model, dynamic=True)
    with torch.no_grad():
        for batch in (5, 3, 5):
            assert_near(fast(images(batch)), model(images(batch)))
        assert batches.settle()
        known = len(made)
        assert known >= 6 and set(made) == {3, 5}
        for batch in (3, 5):
            assert_near(fast(images(batch)), model(images(batch)))
    assert batches.settle() and len(made) == known


def test_a_call_that_waits_for_a_kernel_describes_its_problem_once(monkeypatch):
    """A description costs a layer more than PyTorch's call of its convolution, and a plan may take a minute to come."""
    asked, real, go = [], run._asked, threading.Event()
    monkeypatch.setattr(run, "waits_for_kernels", lambda index: True)
    monkeypatch.setattr(run, "_asked", lambda *them: asked.append(them[0].shape[0]) or real(*them))
    monkeypatch.setattr(run, "_plan", lambda *them, plan=run._plan: go.wait(60) and plan(*them))
    PLANS.clear()
    conv, how = torch.nn.Conv2d(8, 8, 3, padding=1).eval(), How(padding=(1, 1, 1, 1), choices=batches.ANY_BATCH)
    with torch.no_grad():
        for batch in (5, 5, 3, 5, 3):
            x = torch.rand(batch, 8, 9, 9)
            assert_near(run.run(x, conv.weight, conv.bias, how), conv(x))
        assert asked == [5, 3]
        go.set()
        assert batches.settle()
        assert_near(run.run(x, conv.weight, conv.bias, how), conv(x))
    assert asked == [5, 3]


@pytest.mark.parametrize("error", [convtune.InternalError, RuntimeError])
def test_a_plan_that_fails_behind_is_told_and_tried_again(error, caplog):
    tried = []

    def fails():
        tried.append(1)
        raise error("no kernel")

    for _ in range(2):
        batches.behind("a key of this test", fails)
        assert batches.settle(10)
    assert len(tried) == 2 and PLANS.peek("a key of this test") is None
    assert [one.message for one in caplog.records if "tries again: no kernel" in one.message] == [caplog.messages[0]] * 2
    batches.behind("another key of this test", lambda: "made")
    assert batches.settle() and PLANS.peek("another key of this test") == "made"


def test_a_process_ends_while_plans_are_made():
    done = python("-c", "import time, convtune.torch.batches as b\n"
                        "for n in range(99): b.behind(n, lambda: time.sleep(0.2))\nprint('over')")  # fmt: skip
    assert done.stdout == "over\n" and done.returncode == 0, done.stderr


def test_another_batch_is_decided_as_the_first_was(graphs, monkeypatch):
    held = []

    def contest(*_, **__):
        held.append(1)
        return Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)

    monkeypatch.setattr(decide, "contest", contest)
    monkeypatch.setattr(proof, "contest", contest)
    monkeypatch.setattr(decide, "median_us", lambda *_: 50.0)
    model = block()
    run = compiled(model, None)
    with torch.no_grad():
        for batch in (5, 2, 8):  # PyTorch itself makes other graphs for 1, and from 16 on
            assert_near(run(images(batch)), model(images(batch)))
            assert len(held) == 4  # three layers and the whole
        assert len(graphs) == 3  # inductor's own and ours of the first batch, and one for any
        monkeypatch.setattr(graphs_of, "planned_together", lambda layers: pytest.fail("a call waits for kernels"))
        assert_near(run(images(1)), model(images(1)))
    assert len(held) == 4 and len(graphs) == 4
    assert [node.args[-1] for node in fused(graphs[-1])] == [batches.ANY_BATCH] * 3
    assert "decided for another batch" in str(backend.last_report())


def test_graphs_of_the_same_batch_take_no_line_of_another(graphs, monkeypatch):
    """Graphs after one that took another batch's decision: of a batch of 1 again, and one with numbers of the example's batch."""
    outcome = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)
    monkeypatch.setattr(decide, "contest", lambda *_, **__: outcome)
    monkeypatch.setattr(proof, "contest", lambda *_, **__: outcome)
    monkeypatch.setattr(decide, "median_us", lambda *_: 50.0)
    model = block()
    run, alone = compiled(model, None), compiled(block(), None, dynamic=False)
    with torch.no_grad():
        for batch in (5, 2, 1):
            assert_near(run(images(batch)), model(images(batch)))
    before = len(graphs)
    with torch.inference_mode():
        assert_near(run(images(1)), model(images(1)))
    assert len(graphs) > before and [node.args[-1] for node in fused(graphs[-1])] == [batches.ANY_BATCH] * 3
    with torch.no_grad():
        assert_near(compiled(block(), None, dynamic=False)(images(1)), block()(images(1)))
        assert_near(alone(images(2)), block()(images(2)))
    assert all(node.target is conv2d_packed for node in fused(graphs[-1]))


def test_why_another_batch_is_inductors(monkeypatch):
    """The verdict of the first batch was on time, and is kept without it."""
    won = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)
    monkeypatch.setattr(decide, "contest", lambda *_, **__: won)
    monkeypatch.setattr(proof, "contest", lambda *_, **__: Contest(False, -0.5, -0.5, -0.5, 100.0, 150.0, 10))
    monkeypatch.setattr(decide, "median_us", lambda *_: 50.0)
    model = block()
    run = compiled(model, {"convtune.whole": True})
    with torch.no_grad():
        for batch in (5, 2):
            assert_near(run(images(batch)), model(images(batch)))
    said = str(backend.last_report())
    assert "decided for another batch" in said and "not proven faster" in said and "memory" not in said


def test_a_batch_of_1_by_itself_is_decided(graphs, monkeypatch):
    held = []
    outcome = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)
    monkeypatch.setattr(decide, "contest", lambda *_, **__: held.append(1) or outcome)
    monkeypatch.setattr(proof, "contest", lambda *_, **__: outcome)
    monkeypatch.setattr(decide, "median_us", lambda *_: 50.0)
    model = block()
    with torch.no_grad():
        assert_near(compiled(model, None)(images(1)), model(images(1)))
    assert len(held) == 3 and all(node.target is conv2d_packed for node in fused(graphs[-1]))


def test_a_batch_without_a_record_costs_one_kernel_and_the_one_that_stands_for_it(monkeypatch):
    asked, there = [], []
    real = Convolution.__init__

    def init(self, problem, device=None, algorithm=None, config=None):
        real(self, problem, device, algorithm, config)
        asked.append(self.problem.n)
        there.append(weakref.ref(self))

    monkeypatch.setattr(Convolution, "__init__", init)
    PLANS.clear()
    problem = Problem.parse("mb5ic8ih12oc16kh3ph1")
    first = batches.planned_like_others(problem, "cpu")
    assert asked == [8, 5] and there[0]() is None  # its workspace is of more images than anybody has
    second = batches.planned_like_others(problem.replace(n=3), "cpu")
    assert asked == [8, 5, 3] and first.plan.config == second.plan.config
    third = batches.planned_like_others(problem.replace(n=8), "cpu")
    assert asked == [8, 5, 3, 8] and first.plan.config == third.plan.config
    PLANS.clear()
    assert batches.planned_like_others(problem.replace(n=8), "cpu") is there[-1]() and asked[4:] == [8]


def test_a_batch_of_a_record_of_its_own_asks_for_no_other(monkeypatch):
    class Recorded:
        def __init__(self, problem, device, algorithm=None, config=None):
            assert (problem.n, algorithm) == (5, "recorded batch")

    monkeypatch.setattr(batches, "Convolution", Recorded)
    assert isinstance(batches.planned_like_others(Problem.parse("mb5ic8ih12oc16kh3ph1"), "cpu"), Recorded)


def test_a_graph_for_any_batch_is_measured_on_the_example(monkeypatch):
    """Inductor's code takes numbers, and no symbols."""
    called = []

    def compile_fx(module, inputs, **_):
        def call(*values):
            assert not any(isinstance(one, torch.SymInt) for one in values)
            called.append(values)
            return module(*values)

        return call

    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", compile_fx)
    monkeypatch.setattr(decide, "contest", lambda *_, **__: Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10))
    model = block()
    with torch.no_grad():
        run = compiled(model, {"convtune.whole": True}, dynamic=True)
        assert_near(run(images(5)), model(images(5)))
    assert len(called) > 20 and backend.last_report().before_us > 0
