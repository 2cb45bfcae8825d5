"""optimize(train=True): which directions of which layers compete, what the step leaves as it was, and that swapped models
train as PyTorch's do: in both layouts, checkpointed, scaled, in DDP, in compiled graphs, in CUDA graphs."""

import copy
import os

import pytest
from torch_optimize_models import Model, X, optimized
from torch_support import assert_near, each_device, on_gpu, torch
from torch.utils.checkpoint import checkpoint

import convtune
from convtune.convolution import Convolution
from convtune.errors import InvalidArgument, Unsupported
from convtune.nn import Conv2d
from convtune.torch.modules import whole
from convtune.torch.measure import decide
from convtune.torch.measure.gradient_sides import GradientSides
from convtune.torch.how import How

nn = torch.nn
pytestmark = pytest.mark.usefixtures("exact_products")


@pytest.fixture
def any_kernel(monkeypatch):
    """Every algorithm that takes a gradient competes, the reference among them, so that each direction has one."""

    def way(problem, device, make_sides, stopwatch):
        try:
            return problem, Convolution(problem, device, "ours").plan
        except Unsupported:
            return problem, Convolution(problem, device, None if device == "cuda:0" else "reference").plan

    monkeypatch.setattr(decide, "_way", way)


def small(device="cpu"):
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.ReLU(),
        nn.ConvTranspose2d(8, 4, 2, 2),
    ).to(device).train()  # fmt: skip


def trained(model, x, steps=3, run=None):
    """The losses and the gradients of the last step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (run or model)(x).float().square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses), [one.grad for one in model.parameters()]


def same_training(one, other):
    assert_near(one[0], other[0])
    for mine, theirs in zip(one[1], other[1]):
        assert torch.allclose(mine, theirs, rtol=1e-3, atol=1e-5 + 1e-3 * float(theirs.abs().max()))


def swapped(device="cpu", x=X):
    """(a model with every direction by convtune, the same by PyTorch)."""
    theirs = small(device)
    model = optimized(copy.deepcopy(theirs), x.to(device), train=True)
    assert model.convtune_report.kept
    return model, theirs


def test_each_direction_competes(decided, any_kernel):
    model = optimized(Model(), X, train=True)
    report = model.convtune_report
    assert report.step and report.kept and "whole step (training" in str(report)
    by_name = {name: layer for layer in report.layers for name in layer.names}
    directions = {name: by_name[name].problem.direction for name in by_name if by_name[name].problem}
    assert directions["stem"] == "fwd" and directions["stem dw"] == "bwd_w" and "stem dx" not in directions
    assert directions["body.0 dx"] == "bwd_d" and directions["body.2 dw"] == "bwd_w"
    assert by_name["stem dw"].problem.bias and not by_name["body.0 dx"].problem.bias
    lines = model.stem.choices.splitlines()
    assert len(lines) == 2 and sum("dir=bwd_w" in line for line in lines) == 1
    assert len(model.body[0].choices.splitlines()) == 3 and model.stem.proven_in_training
    assert convtune.restore(model) is model and type(model.stem) is nn.Conv2d


def test_frozen_weights_ask_for_no_gradient(decided, any_kernel):
    model = small()
    model[3].requires_grad_(False)
    names = {name for layer in optimized(model, X, train=True).convtune_report.layers for name in layer.names}
    assert "3 dx" in names and "3 dw" not in names and {"5", "5 dx", "5 dw"} <= names


def test_a_step_leaves_the_model_as_it_was(decided, any_kernel):
    model = Model()
    state, random = copy.deepcopy(model.state_dict()), torch.random.get_rng_state()
    model.stem.weight.grad = grad = torch.ones_like(model.stem.weight)
    optimized(model, X, train=True)
    assert torch.equal(torch.random.get_rng_state(), random)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert model.stem.weight.grad is grad and bool((grad == 1).all())
    assert all(one.grad is None for one in model.parameters() if one is not model.stem.weight)
    assert model.training


def test_the_callers_own_step_is_measured(decided, any_kernel):
    model, seen = small(), []

    def step(model):
        seen.append(model)
        model.zero_grad()
        model(X).sum().backward()

    optimized(model, X, train=step)
    assert seen and all(one is model for one in seen)


def test_a_step_of_a_model_in_eval_mode_leaves_it_so(decided, any_kernel):
    model, random = small().eval(), torch.random.get_rng_state()

    def step(model):
        model.train().zero_grad()
        model(nn.functional.dropout(X)).sum().backward()

    optimized(model, X, train=step)
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not any(module.training for module in model.modules())


def test_what_cannot_be_trained_is_said(decided, any_kernel):
    with pytest.raises(InvalidArgument, match="all of the model's are frozen"):
        optimized(small().requires_grad_(False), X, train=True)


def test_nothing_stays_that_the_step_does_not_gain_by(decided, any_kernel):
    decided["whole"] = 0.0
    model = optimized(small(), X, train=True)
    assert type(model[0]) is nn.Conv2d and not model.convtune_report.kept
    assert any("is not proven faster" in note for note in model.convtune_report.notes)


def test_more_memory_is_no_gain(decided, any_kernel, monkeypatch):
    peaks = iter([100, 120])
    monkeypatch.setattr(whole, "peak_bytes", lambda run, device: next(peaks))
    model = optimized(small(), X, train=True)
    assert type(model[0]) is nn.Conv2d and decided["asked"].count("whole") == 0
    assert any("takes more memory" in note for note in model.convtune_report.notes)


def test_without_train_nothing_is_new(decided):
    model = optimized(small(), X)
    assert {layer.problem.direction for layer in model.convtune_report.layers} == {"fwd", "bwd_d"}  # the transposed one's
    assert all("\n" not in model[at].choices for at in (0, 3, 5)) and not model.convtune_report.step


def test_a_wrong_gradient_is_never_swapped_in(decided, any_kernel, monkeypatch):
    real = GradientSides.convtune
    monkeypatch.setattr(GradientSides, "convtune", lambda self, line: lambda: 1.1 * real(self, line)())
    model = optimized(small(), X, train=True)
    lines = [line for at in (0, 3, 5) for line in model[at].choices.splitlines()]
    assert len(lines) == 3 and not any("bwd_w" in line for line in lines)


@pytest.mark.parametrize("kind", ["plain", "groups", "transposed"])
@pytest.mark.parametrize("of", ["x", "w"])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_the_exact_gradient_of_a_part(kind, of, share, monkeypatch):
    from convtune.torch.measure import gradient_sides

    layer = {
        "plain": nn.Conv2d(8, 12, 3, padding=1), "groups": nn.Conv2d(8, 8, 3, padding=1, groups=4),
        "transposed": nn.ConvTranspose2d(8, 4, 4, 2, 1),
    }[kind]  # fmt: skip
    more = (0, 0) if kind == "transposed" else ()
    how = How(stride=layer.stride, padding=(1, 1, 1, 1), groups=layer.groups, output_padding=more)
    sides = GradientSides(of, layer.weight, how, (4, 8, 6, 6), (288, 36, 6, 1), torch.float32, torch.device("cpu"), None)
    monkeypatch.setattr(gradient_sides, "_EXACT_FLOPS", share * sides._problem.flops)
    exact = sides.exact(2)
    assert exact.dtype is torch.float64 and exact.shape[0] <= sides.pytorch().shape[0]
    assert_near(sides.pytorch()[: exact.shape[0], : exact.shape[1]], exact)


@each_device
@pytest.mark.parametrize("last", [False, True])
def test_swapped_models_train_as_pytorchs(decided, any_kernel, device, last):
    x = X.to(device, memory_format=torch.channels_last if last else torch.contiguous_format)
    model, theirs = swapped(device, x)
    assert isinstance(model[0], Conv2d) and len(model[3].choices.splitlines()) == 3
    same_training(trained(model, x), trained(theirs, x))


@each_device
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed(decided, any_kernel, device, reentrant):
    x = X.to(device)
    model, theirs = swapped(device)

    def run(model):
        return lambda x: model[4:](checkpoint(model[2:4], model[:2](x), use_reentrant=reentrant))

    same_training(trained(model, x, run=run(model)), trained(theirs, x, run=run(theirs)))


@each_device
def test_scaled_under_autocast(decided, any_kernel, device):
    """GradScaler's steps in half precision: the same scale, and no infinities that PyTorch has not."""
    dtype = torch.float16 if device == "cuda" else torch.bfloat16
    theirs, x = small(device), X.to(device)
    with torch.autocast(device, dtype):
        model = optimized(copy.deepcopy(theirs), x, train=True)
    assert any(layer.problem and layer.problem.dtype.startswith(("f16", "bf16")) for layer in model.convtune_report.layers)
    found = []
    for one in (model, theirs):
        scaler = torch.amp.GradScaler(device, init_scale=256.0)
        optimizer = torch.optim.SGD(one.parameters(), lr=0.05)
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast(device, dtype):
                loss = one(x).float().square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        found.append((float(loss.detach()), scaler.get_scale()))
    assert found[0][1] == found[1][1] and found[0][0] == pytest.approx(found[1][0], rel=0.05)


@each_device
def test_deterministic_algorithms(decided, any_kernel, device):
    x = X.to(device)
    model, _ = swapped(device)
    before = os.environ.get("CUBLAS_WORKSPACE_CONFIG")
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    try:
        torch.use_deterministic_algorithms(True)
        found = [trained(copy.deepcopy(model), x)[1] for _ in range(3)]
    finally:
        torch.use_deterministic_algorithms(False)
        if before is None:
            del os.environ["CUBLAS_WORKSPACE_CONFIG"]
    for one in found[1:]:
        assert all(torch.equal(*pair) for pair in zip(one, found[0]))


def test_gradients_come_in_pytorchs_order(decided, any_kernel):
    """DDP sends buckets as they fill: another order would wait."""
    orders = []
    for model in swapped():
        order = []
        for name, one in model.named_parameters():
            one.register_post_accumulate_grad_hook(lambda _, name=name, order=order: order.append(name))
        model(X).sum().backward()
        orders.append(order)
    assert orders[0] == orders[1] and len(orders[0]) == 7


def test_ddp(decided, any_kernel, tmp_path):
    model, theirs = swapped()
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        ours, other = (nn.parallel.DistributedDataParallel(one) for one in (model, theirs))
        same_training(trained(ours, X), trained(other, X))
    finally:
        torch.distributed.destroy_process_group()


@each_device
def test_compiled_steps(decided, any_kernel, device):
    """The compiler sees PyTorch's convolution in the place of a forward that was not chosen."""
    x = X.to(device)
    model, theirs = swapped(device)
    for at in (0, 3):
        model[at].choices = "\n".join(line for line in model[at].choices.splitlines() if "dir=bwd" in line)
    graphs = []

    def noted(graph, inputs):
        graphs.append([str(node.target) for node in graph.graph.nodes if node.op == "call_function"])
        return graph.forward

    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    torch._dynamo.reset()
    boxed = lambda graph, inputs: make_boxed_func(noted(graph, inputs))  # noqa: E731
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=boxed, bw_compiler=boxed))
    same_training(trained(model, x, run=compiled), trained(theirs, x))
    forward, backward = graphs
    assert forward.count("aten.convolution.default") == 2 and "convtune.conv2d_forward.default" in forward
    assert backward.count("convtune.conv_gradients.default") == 3  # a layer each
    assert "aten.convolution_backward.default" not in backward
    torch._dynamo.reset()


@on_gpu
def test_a_whole_step_in_a_cuda_graph(decided, any_kernel):
    x = X.cuda()
    model, theirs = swapped("cuda")
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    same_training(trained(model, x, run=graphed), trained(theirs, x))
