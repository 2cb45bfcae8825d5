"""convtune.conv_transpose1d to 3d, their modules, and models that have them."""

import copy

import numpy
import pytest
from torch_support import assert_near, each_device, tensors, torch, with_statistics

import convtune
import convtune.nn
import convtune.torch
import convtune.torch.backend

nn, F = torch.nn, torch.nn.functional
OURS = {1: convtune.conv_transpose1d, 2: convtune.conv_transpose2d, 3: convtune.conv_transpose3d}
THEIRS = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
IMAGES = {1: (9,), 2: (6, 5), 3: (3, 4, 5)}
# stride, padding, output_padding, groups, dilation, taps
SETTINGS = {
    "plain": (1, 0, 0, 1, 1, 3),
    "doubled": (2, 1, 0, 1, 1, 4),
    "twice the stride, padded": (2, 1, 1, 2, 1, 3),
    "dilated, with more padding": (2, 3, 2, 1, 3, 3),
    "more padding than there is": (1, 0, 1, 1, 2, 2),
    "depthwise": (3, 1, 2, 4, 1, 3),
}


def made(axes, groups, taps, device="cpu"):
    x, _, bias = tensors(device, (2, 4, *IMAGES[axes]), 8, (1,) * axes)
    w = torch.rand((4, 8 // groups, *(taps,) * axes), generator=torch.Generator().manual_seed(1)).mul(2).sub(1)
    return x, w.to(device), bias


@each_device
@pytest.mark.parametrize("last", [False, True], ids=["first", "last"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.filterwarnings("ignore:convtune has no kernels")
def test_it_computes_what_pytorch_does(device, last, dtype, axes, settings, exact_products):
    *how, taps = settings
    x, w, bias = (one.to(dtype) for one in made(axes, how[3], taps, device))
    if last:
        x = convtune.torch.layout.laid(x, True)
    expected = THEIRS[axes](x, w, bias, *how)
    if dtype is torch.bfloat16:  # PyTorch's own is off by more in places, on a CPU
        expected = THEIRS[axes](x.double(), w.double(), bias if bias is None else bias.double(), *how).to(dtype)
    for _ in range(2):
        y = OURS[axes](x, w, bias, *how)
        assert y.dtype == dtype and convtune.torch.layout.wants_channels_last(y) == last
        if dtype is torch.bfloat16:
            torch.testing.assert_close(y, expected, rtol=3e-2, atol=3e-2)
        else:
            assert_near(y, expected)
    torch.testing.assert_close(OURS[axes](x[0], w, bias, *how), y[0], rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_what_follows_is_its_own_work(axes):
    x, w, bias = made(axes, 1, 4)
    residual = torch.rand_like(THEIRS[axes](x, w, bias, 2, 1))
    y = OURS[axes](x, w, bias, 2, 1, activation="silu", residual=residual)
    assert_near(y, F.silu(THEIRS[axes](x, w, bias, 2, 1) + residual))
    arrays = [one.numpy() for one in (x, w, bias)]
    of_numpy = OURS[axes](*arrays, 2, 1, activation="silu", residual=residual.numpy())
    assert isinstance(of_numpy, numpy.ndarray)
    assert_near(torch.from_numpy(of_numpy), y)


def test_ends_that_differ():
    x, w, bias = made(1, 1, 4)
    whole = F.conv_transpose1d(x, w, bias, 2)
    for way in (OURS[1](x, w, bias, 2, (0, 2)), torch.from_numpy(OURS[1](x.numpy(), w.numpy(), bias.numpy(), 2, (0, 2)))):
        assert_near(way, whole[..., :-2])
    grads = []
    for convolve in (lambda *of: OURS[1](*of, 2, (1, 2)), lambda *of: F.conv_transpose1d(*of, 2)[..., 1:-2]):
        of = [one.clone().requires_grad_() for one in (x, w, bias)]
        convolve(*of).square().sum().backward()
        grads.append([one.grad for one in of])
    for ours, theirs in zip(*grads):
        assert_near(ours, theirs)


@pytest.mark.parametrize(
    "x, w, how, words",
    [
        ((1, 4, 9), (5, 4, 3), {}, "x has 4 channels, but w has 5"),
        ((4,), (4, 4, 3), {}, r"x has the shape \(4,\); it must be \(N, C, L\)"),
        ((1, 4, 9), (4, 4, 3, 3), {}, r"it must be \(C, K/groups, S\)"),
        ((1, 4, 9), (4, 4, 3), dict(output_padding=1), "output_padding"),
        ((1, 4, 1), (4, 4, 2), dict(padding=1), "more padding than output"),
    ],
)
def test_what_is_wrong_is_named(x, w, how, words):
    for one in (torch.rand(x), torch.rand(x).numpy()):
        with pytest.raises(convtune.InvalidArgument, match=words):
            convtune.conv_transpose1d(one, torch.rand(w) if isinstance(one, torch.Tensor) else torch.rand(w).numpy(), **how)


@each_device
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("activation", [None, "relu", "gelu_erf"])
def test_gradients(device, axes, activation, exact_products):
    grads = []
    x, w, bias = made(axes, 2, 3, device)
    act = {None: lambda y: y, "relu": torch.relu, "gelu_erf": F.gelu}[activation]
    for convolve in (lambda *of: OURS[axes](*of, 2, 1, 1, 2, activation=activation),
                     lambda *of: act(THEIRS[axes](*of, 2, 1, 1, 2))):  # fmt: skip
        of = [one.clone().requires_grad_() for one in (x, w, bias)]
        convolve(*of).square().sum().backward()
        grads.append([one.grad for one in of])
    for ours, theirs in zip(*grads):
        assert_near(ours, theirs)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_the_operator_keeps_pytorchs_rules(axes):
    x, w, bias = made(axes, 1, 3)
    one, two = [1] * axes, [2] * axes
    operator = getattr(torch.ops.convtune, f"conv_transpose{axes}d").default
    arguments = x, w.requires_grad_(), bias, two, one * 2, one, 1, "auto", "none", "", True, one
    torch.library.opcheck(operator, arguments)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as ours:
        operator(*arguments)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as theirs:
        THEIRS[axes](x, w, bias, two, one, one)
    assert ours.get_total_flops() == theirs.get_total_flops()


@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("settings", [dict(), dict(stride=2, padding=1, output_padding=1), dict(groups=2, bias=False)], ids=str)
def test_the_module(axes, settings):
    theirs = getattr(nn, f"ConvTranspose{axes}d")(4, 8, 3, **settings).eval()
    kind = getattr(convtune.nn, f"ConvTranspose{axes}d")
    ours = kind.from_torch(theirs)
    assert ours.weight is theirs.weight and ours.bias is theirs.bias
    x = torch.rand(2, 4, *IMAGES[axes])
    with torch.no_grad():
        for _ in range(2):
            for module in (ours, copy.deepcopy(ours), kind(4, 8, 3, **settings, precision="fp32")):
                module.load_state_dict(theirs.state_dict())
                assert_near(module(x), theirs(x))
        assert_near(ours(x[0]), theirs(x[0]))
    if "stride" in settings:
        for size in (theirs(x).shape[2:], [one - 1 for one in theirs(x).shape[2:]]):
            assert_near(ours(x, list(size)), theirs(x, list(size)))
    torch._dynamo.reset()
    assert_near(torch.compile(ours, backend="aot_eager", fullgraph=True)(x), theirs(x))


def test_autocast():
    module = convtune.nn.ConvTranspose2d(8, 8, 4, 2, 1)
    x = torch.rand(1, 8, 5, 5)
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = module(x), F.conv_transpose2d(x, module.weight, module.bias, 2, 1)
    assert y.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=3e-2, atol=3e-2)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.act = nn.ConvTranspose2d(8, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU()
        self.grouped, self.norm_of_groups = nn.ConvTranspose2d(16, 8, 3, groups=2), nn.BatchNorm2d(8)
        self.last = nn.ConvTranspose2d(8, 4, 2, 2)

    def forward(self, x):
        x = self.grouped(self.act(self.norm(self.first(x))))
        return torch.sigmoid(self.last(self.norm_of_groups(x)))


def test_optimize_swaps_and_restore_undoes(decided):
    model, x = with_statistics(Generator()), torch.rand(1, 8, 6, 6)
    expected, kinds = model(x), [type(one) for one in model.modules()]
    convtune.optimize(model, x, budget=0, progress=False)
    decisions = {name: layer for layer in model.convtune_report.layers for name in layer.names}
    swapped = [name for name in ("first", "grouped", "last") if decisions[name].decision.startswith("convtune")]
    for name in swapped:
        assert isinstance(getattr(model, name), convtune.nn.ConvTranspose2d)
    assert all(decisions[name].problem.direction == "bwd_d" for name in ("first", "grouped", "last"))
    with torch.no_grad():
        assert_near(model(x), expected)
        assert model(torch.rand(2, 8, 6, 6)).shape == (2, *expected.shape[1:])
    convtune.restore(model)
    assert [type(one) for one in model.modules()] == kinds and torch.equal(model(x), expected)


@pytest.mark.parametrize("run", [True, False], ids=["inductor", "graph"])
def test_the_compiler_fuses_what_stands_behind(request, afresh, run):
    graphs = [] if run else request.getfixturevalue("graphs")
    model, x = with_statistics(Generator()), torch.rand(1, 8, 6, 6)
    with torch.no_grad():
        compiled = torch.compile(model, backend="convtune", options={"convtune.force": True})
        assert_near(compiled(x), model(x))
    if not run and convtune.torch.backend.last_report().layers:
        swapped = [layer for layer in convtune.torch.backend.last_report().layers if layer.swapped]
        calls = [node.target for node in graphs[-1].nodes if node.op == "call_function"]
        ours = torch.ops.convtune.conv2d_packed.default, torch.ops.convtune.conv2d_fused.default
        assert len([one for one in calls if one in ours]) == len(swapped)
