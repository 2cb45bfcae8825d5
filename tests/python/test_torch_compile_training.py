"""torch.compile(backend="convtune") on graphs that record gradients: which gradients become convtune's, that steps are
inductor's in every number, and that what is not proven is inductor's."""

import pytest
from torch_steps import assert_same, small, stepped
from torch_support import assert_near, on_gpu, torch

import convtune.torch.backend
from convtune._contest import Contest
from convtune.torch.graph import gradients
from convtune.torch.graph.channels_last import ChannelsLastPass
from convtune.torch.measure import decide, proof

nn = torch.nn
pytestmark = pytest.mark.usefixtures("afresh")


def both(last=False, **options):
    """(state after steps of a compiled model, the same by eager PyTorch)."""
    format = torch.channels_last if last else torch.contiguous_format
    x = torch.rand(2, 3, 16, 16).to(memory_format=format)
    models = [small().to(memory_format=format) for _ in range(2)]
    named = {f"convtune.{name}": value for name, value in options.items()}
    compiled = torch.compile(models[0], backend="convtune", options=named)
    return stepped(models[0], x, compiled), stepped(models[1], x, models[1])


@pytest.mark.parametrize("last", [False, True])
def test_forced_gradients_are_pytorchs(last):
    found, expected = both(last, force=True)
    assert_same(found, expected)
    report = convtune.torch.backend.last_report()
    assert report.step and sum(layer.swapped for layer in report.layers) == len(report.layers) == 8
    assert {layer.problem.direction for layer in report.layers} == {"fwd", "bwd_d", "bwd_w"}


def test_a_step_that_is_not_proven_is_inductors(monkeypatch):
    won = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)
    monkeypatch.setattr(decide, "check_and_contest", lambda *rest, **more: won)
    asked = []

    def lost(*_, **__):
        asked.append(1)
        return Contest(False, -0.1, -0.2, 0.0, 100.0, 110.0, 10)

    monkeypatch.setattr(proof, "contest", lost)
    found, expected = both()
    assert_same(found, expected)
    report = convtune.torch.backend.last_report()
    assert asked == [1] and not report.kept and any("is not proven faster" in note for note in report.notes)


def test_the_code_of_a_step_that_is_not_proven_is_inductors(monkeypatch):
    """The files that inductor writes, the inputs that it knows to stay where they are, and how often Python is called in a step."""
    import cProfile
    import inspect

    from torch._inductor.graph import GraphLowering
    from torch._inductor.output_code import CompiledFxGraph

    won = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)
    monkeypatch.setattr(decide, "check_and_contest", lambda *rest, **more: won)
    monkeypatch.setattr(proof, "contest", lambda *_, **__: Contest(False, -0.1, -0.2, 0.0, 100.0, 110.0, 10))
    written, x, found = [], torch.rand(2, 3, 16, 16), []
    monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(written.append))
    plain, static = CompiledFxGraph.__init__, []

    def noted(*rest, **more):
        static.append(list(inspect.signature(plain).bind(*rest, **more).arguments["static_input_idxs"]))
        plain(*rest, **more)

    monkeypatch.setattr(CompiledFxGraph, "__init__", noted)
    for backend in ("inductor", "convtune"):
        torch._dynamo.reset()
        written.clear()
        static.clear()
        model = small()
        with torch._inductor.config.patch(fx_graph_cache=False), torch._functorch.config.patch(enable_autograd_cache=False):
            compiled = torch.compile(model, backend=backend)
            stepped(model, x, compiled)
        profile = cProfile.Profile()
        profile.runcall(stepped, model, x, compiled, 5)
        codes = ["\n".join(line for line in code.splitlines() if "AOT ID" not in line) for code in written]
        found.append((codes, list(static), sum(one.callcount for one in profile.getstats())))
    (theirs, their_static, their_calls), (ours, our_static, our_calls) = found
    assert len(theirs) == 2 and len(ours) == 4 and "conv_gradients" in ours[1] and "conv_gradients" not in theirs[1]
    assert ours[2:] == theirs
    assert our_static[2:] == their_static and our_static[0] == their_static[0] and len(their_static[0]) == 11
    assert our_calls <= 1.01 * their_calls


@on_gpu
@pytest.mark.parametrize("force", [True, False])
def test_a_step_is_recorded(force):
    """By mode="reduce-overhead"; norms write to buffers, which a CUDA graph must know to stay where they are."""
    from torch._dynamo.utils import counters

    counters.clear()
    x, models = torch.rand(2, 3, 16, 16, device="cuda"), [small().cuda() for _ in range(2)]
    compiled = torch.compile(models[0], backend="convtune", options={"triton.cudagraphs": True, "convtune.force": force})
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        assert_same(stepped(models[0], x, compiled, 5), stepped(models[1], x, models[1], 5))
    assert counters["inductor"]["cudagraph_skips"] == 0


def test_a_proven_step_is_kept(monkeypatch):
    """And the next process, which finds the verdict, compiles one graph."""
    won = Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 10)
    monkeypatch.setattr(decide, "check_and_contest", lambda *rest, **more: won)
    monkeypatch.setattr(proof, "contest", lambda *_, **__: won)
    found, expected = both()
    assert_same(found, expected)
    report = convtune.torch.backend.last_report()
    assert report.kept and "contest of the whole" in report.seconds
    torch._dynamo.reset()
    monkeypatch.setattr(proof, "contest", None)
    both()
    report = convtune.torch.backend.last_report()
    assert report.kept and "inductor, of its own graph" not in report.seconds and report.seconds["inductor"] > 0


def test_where_no_gradient_wins_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(decide, "check_and_contest", lambda *rest, **more: Contest(False, 0, 0, 0, 100.0, 100.0, 10))
    monkeypatch.setattr(proof, "contest", None)
    found, expected = both()
    assert_same(found, expected)


def test_what_fails_is_inductors(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("a fault")

    monkeypatch.setattr(gradients, "decide_graph", fail)
    found, expected = both()
    assert_same(found, expected)
    assert "its gradients could not be rewritten" in caplog.text


def test_graphs_without_convolutions_are_inductors(monkeypatch):
    monkeypatch.setattr(convtune.torch.backend, "GradientPass", None)
    model = nn.Linear(4, 4)
    compiled = torch.compile(model, backend="convtune")
    compiled(torch.rand(2, 4)).sum().backward()
    assert model.weight.grad is not None


def test_each_direction_by_itself():
    """A direction without a plan stays in PyTorch's operator beside one that has a plan."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(dy, x, w):
        return torch.ops.aten.convolution_backward(dy, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3)

    tensors = torch.rand(2, 4, 6, 6), torch.rand(2, 8, 6, 6), torch.rand(4, 8, 3, 3)
    expected = run(*tensors)
    for own, mask in ((("x",), [False, True, True]), (("w",), [True, False, False]), (("x", "w"), None)):
        graph = make_fx(run, tracing_mode="fake")(*tensors)
        node = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)[0]
        found = {one.of: one for one in gradients._found(node)}
        lines = {}
        for of in own:
            plan = convtune.Convolution(found[of].problem, "cpu", "ours").plan
            problem = found[of].problem
            lines[of] = convtune.torch.run.choice_line("cpu", problem, problem, plan.algorithm, plan.config)
        assert gradients._rewrite(graph.graph, node, lines, found["x"].how, True)
        graph.recompile()
        left = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)
        assert [one.args[10] for one in left] == ([] if mask is None else [mask])
        for one, other in zip(graph(*tensors), expected):
            assert_near(one, other)


def test_a_direction_that_would_lie_otherwise_is_left():
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(dy, x, w):
        return torch.ops.aten.convolution_backward(dy, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3)

    tensors = torch.rand(2, 4, 6, 6), torch.rand(2, 8, 6, 6), torch.rand(4, 8, 3, 3)
    expected = run(*tensors)
    graph = make_fx(run, tracing_mode="fake")(*tensors)
    node = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)[0]
    found = {one.of: one for one in gradients._found(node)}
    lines = {}
    for of, one in found.items():
        plan = convtune.Convolution(one.problem, "cpu", "ours").plan
        lines[of] = convtune.torch.run.choice_line("cpu", one.problem, one.problem, plan.algorithm, plan.config)
    dx, *rest = node.meta["val"]
    node.meta["val"] = dx.contiguous(memory_format=torch.channels_last), *rest
    assert gradients._rewrite(graph.graph, node, lines, found["x"].how, True) == {"w"}
    graph.recompile()
    for one, other in zip(graph(*tensors), expected):
        assert_near(one, other)
    node = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.convolution_backward.default)[0]
    assert node.args[10] == [True, False, False]


def test_what_is_left_is_not_reported_as_taken(monkeypatch):
    monkeypatch.setattr(gradients, "_rewrite_forward", lambda *_: False)
    both(force=True)
    report = convtune.torch.backend.last_report()
    left = [layer for layer in report.layers if not layer.swapped]
    forwards = [layer for layer in left if not layer.names[0].endswith((" dx", " dw"))]
    assert {layer.problem.direction for layer in forwards} == {"fwd", "bwd_d"} and len(forwards) == 3 and len(report.layers) == 8
    assert all(layer.calls == len(layer.names) == 1 and "lie otherwise" in layer.decision for layer in left)


def test_two_graphs_share_one_budget(monkeypatch):
    asked = []

    def decide_graph(layers, budget, min_gain, phases, directions):
        asked.append((budget, directions))

    monkeypatch.setattr(gradients, "decide_graph", decide_graph)
    both(budget=6.0)
    assert asked == [(2.0, 1), (4.0, 2)]


def test_a_pass_of_the_callers_runs():
    seen = []

    class Pass(torch._inductor.custom_graph_pass.CustomGraphPass):
        def __call__(self, graph):
            seen.append(graph)

        def uuid(self):
            return None

    torch._dynamo.reset()
    compiled = torch.compile(torch.nn.Conv2d(3, 4, 3), backend="convtune", options={"post_grad_custom_pre_pass": Pass()})
    compiled(torch.rand(1, 3, 8, 8)).sum().backward()
    assert seen


def test_what_channels_last_weights_read_is_cloned_once():
    """Forward and backward read the same clone; what lies channels last is left, and what 1x1 weights read that say channels first."""
    from torch.fx import Graph

    graph, last = Graph(), torch.channels_last_3d

    def tensor(name, size, is_last=False):
        node = graph.placeholder(name)
        with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
            one = torch.empty(size, device="cuda")
            node.meta["val"] = one.to(memory_format=last) if is_last else one
        return node

    x, dy, lies = (tensor(name, (2, 8, 4, 4, 4), name == "lies") for name in ("x", "dy", "lies"))
    w, pointwise = tensor("w", (8, 8, 3, 3, 3), True), tensor("pointwise", (8, 8, 1, 1, 1))
    as_last = tensor("as_last", (8, 8, 1, 1, 1))
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):  # as model.to(memory_format=...) leaves it
        as_last.meta["val"] = torch.empty_strided((8, 8, 1, 1, 1), (8, 1, 8, 8, 8), device="cuda")
    words = [1] * 3, [1] * 3, [1] * 3, False, [0] * 3, 1
    aten = torch.ops.aten
    forward = graph.call_function(aten.convolution.default, (x, w, None, *words))
    small = graph.call_function(aten.convolution.default, (x, pointwise, None, *words))
    as_it_lies = graph.call_function(aten.convolution.default, (lies, w, None, *words))
    backward = graph.call_function(aten.convolution_backward.default, (dy, x, w, None, *words, [True, True, False]))
    of_one = graph.call_function(aten.convolution.default, (forward, as_last, None, *words))
    some = graph.placeholder("some")  # as a chunk of what lies channels last
    some.meta["val"] = torch.cat([lies.meta["val"]] * 2, 1)[:, :8]
    of_some = graph.call_function(aten.convolution.default, (some, w, None, *words))
    forward.meta["val"] = x.meta["val"]
    graph.output((forward, small, as_it_lies, backward, of_one, of_some))
    laid = ChannelsLastPass()
    laid(graph)
    assert laid.copies == 3
    assert of_one.args[0].args == (forward,) and of_one.args[0].meta["val"].is_contiguous(memory_format=last)
    assert forward.args[0] is backward.args[1] and forward.args[0].args == (x,)
    assert forward.args[0].meta["val"].is_contiguous(memory_format=last)
    assert backward.args[0].args == (dy,)
    assert small.args[0] is x and as_it_lies.args[0] is lies and of_some.args[0] is some
    assert not some.meta["val"].is_contiguous(memory_format=last)


@pytest.mark.parametrize("last", [False, True])
def test_inductor_is_asked_for_tensors_as_they_were_traced(last, monkeypatch):
    """It lays the inputs of an operator that a pass has put in as it likes, unless the node says how they lay: dy came channels first
    for squeezed blocks on a GPU, and was copied in every step."""
    plain, nodes = gradients.GradientPass.__call__, []

    def seen(self, graph):
        plain(self, graph)
        nodes.extend(one for one in graph.nodes if one.target in (gradients.conv_gradients, gradients.conv2d_forward))

    monkeypatch.setattr(gradients.GradientPass, "__call__", seen)
    both(last, force=True)
    assert {one.target for one in nodes} == {gradients.conv_gradients, gradients.conv2d_forward}
    for node in nodes:
        told, more = node.meta["eager_input_vals"]
        lie = [one.meta["val"].stride() for one in node.args if isinstance(one, torch.fx.Node)]
        assert [one.stride() for one in told if isinstance(one, torch.Tensor)] == lie and len(told) == len(node.args) and not more


def test_steps_of_a_contest_are_queued(monkeypatch):
    """Training waits for no step, so the host runs ahead of the device; a contest that waited for each left 3 % between -5 and 8 %."""
    asked = []

    def wall_us(run, device, calls=1, waits=True):
        run()
        asked.append((calls, waits))
        return 5e4

    monkeypatch.setattr(proof, "wall_us", wall_us)
    x, weight = torch.rand(4), torch.rand(4, requires_grad=True)
    proof.whole_step(lambda x, weight: x * weight, lambda x, weight: weight * x, [x, weight])
    assert not any(waits for _, waits in asked) and asked[-1][0] == 4
    asked.clear()
    proof.whole(lambda x: x + 1, lambda x: 1 + x, [x])
    assert all(waits for _, waits in asked) and asked[-1][0] == 1
