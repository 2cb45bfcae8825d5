"""convtune.conv1d and convtune.nn.Conv1d: what a row has that an image has not, and the ways that all axes share."""

import copy

import pytest
from torch_support import assert_near, by_cpp, each_device, tensors, torch, with_statistics

import convtune
import convtune.torch
import convtune.torch.backend
from convtune.nn import Conv1d
from convtune.torch import convolution_of, native
from convtune.torch.modules.whole import swap

nn, F = torch.nn, torch.nn.functional
SETTINGS = {
    "one number": (3, 1, 1, 1, 1),
    "causal, dilated": (3, 1, (4, 0), 2, 1),
    "strided": (4, 2, (1, 2), 1, 2),
    "a point": (1, 1, 0, 1, 1),
    "same": (4, 1, "same", 3, 1),
    "valid, depthwise": (7, (2,), "valid", (1,), 4),
}


def pytorchs(x, w, bias, stride, padding, dilation, groups):
    if isinstance(padding, tuple):
        x, padding = F.pad(x, padding), 0
    return F.conv1d(x, w, bias, stride, padding, dilation, groups)


def turned(x):
    """Numbers of x in memory with channels last."""
    return x.transpose(1, 2).contiguous().transpose(1, 2)


@each_device
@pytest.mark.parametrize("last", [False, True], ids=["NCL", "NLC"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.filterwarnings("ignore:convtune has no kernels")
def test_it_computes_what_pytorch_does(device, last, dtype, settings, exact_products):
    taps, *how = settings
    x, w, bias = (one.to(dtype) for one in tensors(device, (2, 4, 33), 8, (taps,), how[-1]))
    x = turned(x) if last else x
    y, expected = convtune.conv1d(x, w, bias, *how), pytorchs(x, w, bias, *how)
    assert y.dtype == dtype and y.transpose(1, 2).is_contiguous() == last
    if dtype is torch.bfloat16:
        torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
    else:
        assert_near(y, expected)
    again = convtune.conv1d(x, w, bias, *how)
    assert torch.equal(again, y) and again.stride() == y.stride()
    torch.testing.assert_close(convtune.torch.conv1d(x[0], w, bias, *how), y[0], rtol=2e-2, atol=2e-2)
    operator = torch.ops.convtune.conv1d(x, w, bias, *convtune.torch.how.written(w.shape[2:], *how).geometry)
    assert torch.equal(operator, y) and operator.stride() == y.stride()


def test_activation_and_residual():
    x, w, bias = tensors("cpu", (2, 8, 33), 8, (3,))
    residual = torch.rand(2, 8, 33)
    y = convtune.conv1d(x, w, bias, 1, 1, activation="leaky_relu:0.1", residual=residual)
    assert_near(y, F.leaky_relu(F.conv1d(x, w, bias, 1, 1) + residual, 0.1))
    assert convtune.conv1d(x[:0], w, bias).shape == (0, 8, 31)


@by_cpp
def test_a_call_that_is_ready_costs_no_python(prepared, nothing_ready):
    x, w, bias = tensors("cpu", (1, 8, 33), 8, (3,))
    assert convolution_of(x, w, bias, 1, 1, 1, 1) is not None
    module = Conv1d(8, 8, 3).eval()
    calls = [lambda: convtune.conv1d(x, w, bias, 1, 1), lambda: module(x)]
    first = [call() for call in calls]
    before = native.size(), len(prepared)
    assert before[0] == len(calls)
    assert all(torch.equal(call(), y) for call, y in zip(calls, first))
    assert (native.size(), len(prepared)) == before
    w.mul_(2)
    assert_near(calls[0](), F.conv1d(x, w, bias, 1, 1))
    # An image of one row has other dimensions, and the same numbers.
    assert_near(convtune.conv2d(x[:, :, None], w[:, :, None], bias, 1, (0, 1))[:, :, 0], F.conv1d(x, w, bias, 1, 1))


@pytest.mark.parametrize(
    "x, w, words",
    [
        ((8,), (8, 8, 3), r"x has the shape \(8,\); it must be \(N, C, L\)"),
        ((1, 8, 9, 9), (8, 8, 3), r"x has the shape \(1, 8, 9, 9\); it must be \(N, C, L\)"),
        ((1, 8, 9), (8, 8, 3, 3), r"w has the shape \(8, 8, 3, 3\); it must be \(K, C/groups, S\)"),
        ((1, 8, 9), (8, 4, 3), "x has 8 channels, but w has 4 for each of 1 groups"),
        ((1, 8, 2), (8, 8, 3), "3"),
    ],
)
def test_what_is_wrong_is_named(x, w, words):
    with pytest.raises(convtune.InvalidArgument, match=words):
        convtune.conv1d(torch.rand(x), torch.rand(w))
    with pytest.raises(convtune.InvalidArgument, match=words):
        convtune.conv1d(torch.rand(x).numpy(), torch.rand(w).numpy())
    with pytest.raises((convtune.InvalidArgument, RuntimeError)):
        torch.compile(convtune.conv1d, backend="eager")(torch.rand(x), torch.rand(w))


@each_device
@pytest.mark.parametrize("padding", [1, (4, 0), "same"])
def test_gradients(device, padding, exact_products):
    grads = []
    for convolve in (convtune.conv1d, pytorchs):
        x, w, bias = (one.requires_grad_() for one in tensors(device, (2, 4, 20), 6, (3,)))
        convolve(x, w, bias, 1, padding, 2, 1).square().sum().backward()
        grads.append((x.grad, w.grad, bias.grad))
    for ours, theirs in zip(*grads):
        assert_near(ours, theirs)


def test_autocast():
    x, w, bias = tensors("cpu", (1, 8, 33), 8, (3,))
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = convtune.conv1d(x, w, bias), F.conv1d(x, w, bias)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    module = Conv1d(4, 6, 3, padding=1)

    def model(x, w, bias):
        return module(F.silu(convtune.conv1d(x, w, bias, 1, (2, 0), activation="relu")))

    torch._dynamo.reset()
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    for length in (12, 13):
        x, w, bias = tensors("cpu", (1, 4, length), 4, (3,))
        w.requires_grad_()
        assert_near(compiled(x, w, bias), model(x, w, bias))
        own, theirs = (torch.autograd.grad(run(x, w, bias).square().sum(), w)[0] for run in (compiled, model))
        assert_near(own, theirs)
    with torch.no_grad():
        assert compiled(turned(x), w, bias).stride() == model(turned(x), w, bias).stride()


def test_the_operator_keeps_pytorchs_rules():
    x, w, bias = tensors("cpu", (1, 4, 12), 6, (3,))
    for image in (x, turned(x)):
        arguments = image, w.requires_grad_(), bias, [1], [2, 0], [1], 1
        torch.library.opcheck(torch.ops.convtune.conv1d.default, arguments)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as ours:
        torch.ops.convtune.conv1d(*arguments)
    assert ours.get_total_flops() == 2 * 6 * 12 * 4 * 3


@pytest.mark.parametrize(
    "settings",
    [
        dict(), dict(stride=2, padding=1), dict(padding="same", dilation=2), dict(groups=2, bias=False),
        dict(padding=2, padding_mode="reflect"), dict(padding="same", padding_mode="circular"),
    ],
    ids=str,
)  # fmt: skip
def test_the_module(settings):
    theirs = nn.Conv1d(4, 6, 3, **settings)
    ours = Conv1d.from_torch(theirs)
    assert ours.weight is theirs.weight
    for shape in ((2, 4, 17), (4, 17)):
        x = torch.rand(shape)
        assert_near(ours(x), theirs(x))
        assert_near(copy.deepcopy(ours).eval()(x), theirs(x))


class Causal(nn.Conv1d):
    """Pads in front, as codecs do."""

    def forward(self, x):
        return super().forward(F.pad(x, (self.dilation[0] * (self.kernel_size[0] - 1), 0)))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.causal = nn.Conv1d(8, 8, 3, padding=1), Causal(8, 8, 3, dilation=2)
        self.norm, self.act = nn.BatchNorm1d(8), nn.LeakyReLU(0.1)
        self.last = nn.Conv1d(8, 8, 1)

    def forward(self, x):
        return x + self.last(self.act(self.norm(self.first(self.causal(x)))))


def test_a_subclass_keeps_its_forward():
    module, x = Causal(8, 8, 3, dilation=2).eval(), torch.rand(1, 8, 20)
    expected = module(x)
    swap(module, "", False)
    assert isinstance(module, Causal) and isinstance(module, Conv1d)
    assert_near(module(x), expected)
    assert type(convtune.restore(module)) is Causal


def test_optimize_swaps_and_restore_undoes(decided):
    model, x = with_statistics(Block()), torch.rand(1, 8, 40)
    expected, kinds = model(x), [type(one) for one in model.modules()]
    convtune.optimize(model, x, budget=0, progress=False)
    decisions = {name: layer for layer in model.convtune_report.layers for name in layer.names}
    assert all(decisions[name].decision.startswith("convtune") for name in ("first", "causal", "last"))
    assert decisions["first"].problem.activation == "leaky_relu:0.1"  # norm and activation are its own work
    assert type(model.last) is Conv1d and isinstance(model.causal, Causal)
    assert_near(model(x), expected)
    convtune.restore(model)
    assert [type(one) for one in model.modules()] == kinds and torch.equal(model(x), expected)


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("kind", ["weight_norm", "parametrization"])
def test_weights_that_are_computed_in_every_forward(kind, decided):
    new = kind == "parametrization"
    normed = (nn.utils.parametrizations.weight_norm if new else nn.utils.weight_norm)(Conv1d(8, 8, 3).eval())
    plain, x = nn.Conv1d(8, 8, 3), torch.rand(1, 8, 20)
    with torch.no_grad():
        for _ in range(3):
            plain.weight, plain.bias = nn.Parameter(normed.weight.detach().clone()), normed.bias
            assert_near(normed(x), F.conv1d(x, normed.weight, normed.bias))
            gain = normed.parametrizations.weight.original0 if new else normed.weight_g
            gain.mul_(2)
    theirs = (nn.utils.parametrizations.weight_norm if new else nn.utils.weight_norm)(nn.Conv1d(8, 8, 3).eval())
    model = nn.Sequential(theirs, nn.Conv1d(8, 8, 3)).eval()
    convtune.optimize(model, x, budget=0, progress=False)
    decisions = {name: layer.decision for layer in model.convtune_report.layers for name in layer.names}
    assert decisions["0"].startswith("left: its weight is computed in every forward") and type(model[1]) is Conv1d
    if not new:
        with pytest.raises(TypeError, match="computed in every forward"):
            Conv1d.from_torch(theirs)
    if new:
        nn.utils.parametrize.remove_parametrizations(normed, "weight")
    else:
        nn.utils.remove_weight_norm(normed)
    assert type(normed) is Conv1d
    with torch.no_grad():
        first, ready = normed(x), native.size()
        assert torch.equal(normed(x), first) and native.size() == ready
        assert_near(first, F.conv1d(x, normed.weight, normed.bias))


def test_model_problems():
    found = convtune.model_problems(with_statistics(Block()), torch.rand(1, 8, 40))
    texts = {layer: str(one.problem) for one in found.convolutions for layer in one.layers}
    assert "pw4" in texts["causal"] and "leaky_relu:0.1" in texts["first"]
    assert next(one.problem for one in found.convolutions if "last" in one.layers).residual


@by_cpp
def test_the_compiler_fuses_what_stands_behind(graphs, afresh):
    model, x = with_statistics(Block()), torch.rand(1, 8, 40)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model, backend="convtune", options={"convtune.force": True})
        assert_near(compiled(x), expected)
    calls = [node.target for node in graphs[-1].nodes if node.op == "call_function"]
    ours = torch.ops.convtune.conv2d_packed.default, torch.ops.convtune.conv2d_fused.default
    assert len([one for one in calls if one in ours]) == 3  # norm, activation and sum are in them
    assert [one for one in calls if one not in ours] == [torch.ops.aten.constant_pad_nd.default]


@by_cpp
def test_inductors_code_calls_the_kernel(afresh):
    model, x = with_statistics(Block()), torch.rand(1, 8, 40)
    with torch.no_grad():
        expected = model(x)
        compiled = torch.compile(model, backend="convtune", options={"convtune.force": True})
        for image in (x, x[:, :, ::1].clone(), turned(x)):
            assert_near(compiled(image), expected)
