"""torch.compile(backend="convtune"): what is measured before it is kept, and what a graph looks at before it runs."""

import copy
from types import SimpleNamespace

import pytest
from torch_compiled_models import FORCE, OURS, block, compiled, fused, images
from torch_support import assert_near, count, each_device, on_gpu, torch

from convtune._contest import Contest
from convtune.torch import backend, folding, rewriting
from convtune.torch.folding import Fold, Folded, refreshing
from convtune.torch.measure import decide, proof
from convtune.torch.packed import conv2d_packed

nn, aten = torch.nn, torch.ops.aten
pytestmark = pytest.mark.usefixtures("afresh")


def test_a_pooled_image_counts_for_no_write(graphs):
    """Else the look at the weights would come before each launch, and the whole would not be proven."""
    model = nn.Sequential(nn.Conv2d(8, 16, 3), nn.AdaptiveAvgPool2d(1), nn.Conv2d(16, 8, 1)).eval()
    x = images().to(memory_format=torch.channels_last)
    with torch.no_grad():
        assert_near(compiled(model)(x), model(x))
    calls = [node.target for node in graphs[0].nodes if isinstance(node.target, torch._ops.OpOverload)]
    assert aten.as_strided.default in calls and not any(call._schema.is_mutable for call in calls)


@each_device
def test_weights_that_change(graphs, device):
    model, x = block().to(device), images(device=device)
    run, other = compiled(model), copy.deepcopy(model)

    def same():
        with torch.no_grad():
            before = run(x)
            assert_near(before, model(x))
        return before

    first = same()
    with torch.no_grad():
        model.norm.running_var.mul_(2)
    assert not torch.equal(same(), first)
    model.load_state_dict(other.state_dict())
    assert torch.equal(same(), first)
    model.first.weight.data = model.first.weight.data * 2
    same()
    model.first.weight = nn.Parameter(other.first.weight.detach() * 3)
    same()
    for _ in range(3):  # at the address and with the id of one that has gone, perhaps
        model.norm.bias = None
        model.norm.bias = nn.Parameter(torch.rand(16, device=device))
        same()


@each_device
def test_what_training_does_to_statistics_is_seen(graphs, device):
    """A norm's forward writes to them without a trace in their `_version`."""
    model, x = block().to(device), images(device=device)
    run = compiled(model)
    with torch.no_grad():
        for _ in range(2):
            assert_near(run(x), model(x))
            model.train()
            model(2 * x + 3)
            model.eval()
        assert_near(run(x), model(x))


@pytest.mark.parametrize("gain", [0.0, 0.5])
def test_only_what_is_proven(graphs, monkeypatch, gain):
    asked = []

    def contest(incumbent, challenger, min_gain, **_):
        asked.append(min_gain)
        assert incumbent() > 0 and challenger() > 0
        return Contest(gain > 0, gain, gain, gain, 100.0, 100 * (1 - gain), 1)

    monkeypatch.setattr(decide, "contest", contest)
    model, x = block(), images()
    with torch.no_grad():
        for _ in range(2):
            torch._dynamo.reset()
            assert_near(compiled(model, {"convtune.min_gain": 0.1, "convtune.whole": False})(x), model(x))
    swapped = sum(layer.swapped for layer in backend.last_report().layers)
    assert len(asked) <= 3 and set(asked) <= {0.1}  # the second time it is known
    assert swapped == (len(asked) if gain else 0)
    for graph in graphs:
        assert len(fused(graph)) == count(graph, conv2d_packed) == swapped
        assert gain or count(graph, *OURS) == 0


@pytest.mark.parametrize("kept", [True, False])
def test_the_whole_must_not_be_slower(graphs, monkeypatch, kept):
    monkeypatch.setattr(decide, "contest", lambda *_, **__: Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 1))

    def whole(before, after, min_gain, **_):
        assert before() > 0 and after() > 0 and min_gain == 0
        return Contest(kept, 0.25, 0.1, 0.3, 400.0, 300.0, 10)

    monkeypatch.setattr(proof, "contest", whole)
    model, x = block(), images()
    with torch.no_grad():
        run = compiled(model, {"convtune.whole": True})
        for _ in range(2):
            assert_near(run(x), model(x))
    report = backend.last_report()
    assert report.kept is kept and report.before_us == 400 and "whole forward" in str(report)
    assert ("the graph is inductor's" in str(report)) is not kept
    assert [count(graph, *OURS) for graph in graphs] == [0, 3]  # inductor's own of the contest is what is left


def test_what_reads_a_cuda_graphs_outputs_is_not_measured(graphs, monkeypatch):
    """A contest begins new steps, and the first run of one may overwrite what the last gave."""
    monkeypatch.setattr(decide, "contest", lambda *_, **__: Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 1))
    monkeypatch.setattr(proof, "contest", lambda *_, **__: pytest.fail("it was measured whole"))
    monkeypatch.setattr(backend, "lie_in_cuda_graphs", lambda inputs: True)
    model, x = block(), images()
    with torch.no_grad():
        assert_near(compiled(model, {"convtune.whole": True})(x), model(x))
    assert "reads what a CUDA graph before it gave" in str(backend.last_report())
    assert [count(graph, *OURS) for graph in graphs] == [0]


def test_storages_of_a_cuda_graph_are_known(monkeypatch):
    from torch._inductor import cudagraph_trees

    class Output:  # as a tree of CUDA graphs has it: weak references to storages
        def __init__(self, address):
            self.data_ptr = lambda: address

        def __call__(self):
            return 1

    x, other = torch.ones(2), torch.ones(2)
    node = SimpleNamespace(path_live_weakrefs=lambda: iter([Output(x.untyped_storage().data_ptr())]))
    monkeypatch.setattr(proof, "_device", lambda inputs: torch.device("cuda", 0))
    monkeypatch.setattr(torch.Tensor, "is_cuda", True)
    for current, expected in ((node, True), (None, False)):
        monkeypatch.setattr(cudagraph_trees, "get_manager", lambda *_, **__: SimpleNamespace(current_node=current))
        assert proof.lie_in_cuda_graphs([other, 3, x[1:]]) is expected
    assert not proof.lie_in_cuda_graphs([other])


class Noisy(nn.Module):
    """Draws random numbers, or writes to its input."""

    def __init__(self, writes):
        super().__init__()
        self.block, self.writes = block(), writes

    def forward(self, x):
        y = self.block(x)
        if self.writes:
            x.mul_(2)
            return y
        return y + 0 * torch.rand_like(y)


@pytest.mark.parametrize("writes", [False, True])
def test_a_graph_that_cannot_run_twice_is_not_measured_whole_and_says_so(graphs, monkeypatch, writes):
    monkeypatch.setattr(decide, "contest", lambda *_, **__: Contest(True, 0.5, 0.5, 0.5, 100.0, 50.0, 1))
    monkeypatch.setattr(proof, "contest", lambda *_, **__: pytest.fail("it was measured whole"))
    model, x = Noisy(writes).eval(), images()
    with torch.no_grad():
        run, given = compiled(model, None), x.clone()
        assert_near(run(given), model.block(x))
        assert torch.equal(given, 2 * x if writes else x)
    report = backend.last_report()
    assert str(report).count("the whole is not measured") == 1 and report.before_us == 0
    assert sum(layer.swapped for layer in report.layers) == 3 and [count(graph, *OURS) for graph in graphs] == [3]


@on_gpu
def test_a_graph_reads_weights_that_change():
    model, x = block().cuda(), images(device="cuda")
    run = compiled(model, {**FORCE, "triton.cudagraphs": True})
    with torch.no_grad():
        for scale in (1, 1, 1, 2, 0.5):
            model.norm.weight.mul_(scale)
            model.second.weight.mul_(scale)
            assert_near(run(x).clone(), model(x))


@pytest.mark.parametrize("may_run_twice", [False, True])
def test_the_look_at_the_weights_may_come_after_the_launch(may_run_twice):
    weight, runs = images(4, 3, 1, 1), []
    folded = Folded([Fold((0, None, None, None, None, None), 0.0, torch.float32)], [weight])

    def graph(weight):
        runs.append(folded.tensors[0][0].clone())
        return runs[-1]

    run = refreshing(graph, graph, folded, may_run_twice)
    for changed in (False, True, False):
        runs.clear()
        if changed:
            weight.mul_(2)
        assert torch.equal(run(weight), weight) and len(runs) == (2 if changed and may_run_twice else 1)
    with torch.inference_mode():
        weight = weight.clone()
    for _ in range(2):
        run(weight)
        runs.clear()
    assert torch.equal(run(weight), weight) and len(runs) == 1  # nobody counts what changes


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_another_precision_is_not_the_plans(graphs, monkeypatch, dtype):
    allowed, ran = ["fp32"], []
    monkeypatch.setattr(folding, "allowed_precision", lambda _: allowed[0])
    real = rewriting.Rewritten.compiled

    def counted(self, compile, inputs, *beside):
        return real(self, lambda *how: lambda *values: ran.append(1) or compile(*how)(*values), inputs, *beside)

    monkeypatch.setattr(rewriting.Rewritten, "compiled", counted)
    model, x = block().to(dtype), images().to(dtype)
    with torch.no_grad():
        run = compiled(model)
        for now, plans in (("fp32", 1), ("tf32", 1 if dtype is torch.float32 else 2)):
            allowed[0] = now
            assert (run(x) - model(x)).abs().max() < 0.05 and len(ran) == plans


class Counting(nn.Module):
    """Counts its calls in two buffers, and answers with one of them and a value that it is written from."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3)
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("copied", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        after = self.copied + 2
        self.copied.copy_(after)
        return self.conv(x) * self.calls, after


def test_a_buffer_that_is_counted_up_stays_the_same_tensor(graphs):
    model, x = Counting().eval(), images()
    calls, copied, run = model.calls, model.copied, compiled(model)
    with torch.no_grad():
        for n in (1, 2, 3):
            y, after = run(x)
            assert_near(y, model.conv(x) * n)
            assert model.calls is calls and calls == n and model.copied is copied and copied == 2 * n
            copied.add_(1)
            assert after == 2 * n, "another tensor than the buffer"
            copied.sub_(1)
    assert count(graphs[0], *OURS) == 1
