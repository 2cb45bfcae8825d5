"""rounding="eager": half precision is rounded where PyTorch's own calls round."""

import pytest
from processes import python
from torch_support import each_device, torch

import convtune
import convtune.torch
from convtune.errors import InvalidArgument
from convtune.torch.how import How
from convtune.torch.run import problem_for

F = torch.nn.functional
HALVES = [torch.bfloat16, torch.float16]


def whole(*shape, most=4, device="cpu"):
    return torch.randint(-most, most + 1, shape, device=device)


def a_layer(dtype, device="cpu", axes=3):
    """x, weight, bias and a residual of whole numbers: sums are exact in any order, and too large for the type's digits."""
    image = (4, 9, 7)[3 - axes :]
    values = whole(2, 16, *image, most=9), whole(24, 16, *(3,) * axes), whole(24, most=3000), whole(2, 24, *image, most=3000)
    return [one.to(device, dtype) for one in values]


def activations(device):
    """A problem's word, and PyTorch's function. GELU has the erff of a compiler's version: only where NVRTC is PyTorch's."""
    pairs = {
        None: lambda y: y, "relu": torch.relu, "silu": F.silu, "sigmoid": torch.sigmoid, "hardswish": F.hardswish,
        "leaky_relu:0.1": lambda y: F.leaky_relu(y, 0.1), "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
    }  # fmt: skip
    versions = python("-m", "convtune", "--version").stdout
    if device == "cpu" or f"NVRTC: {torch.version.cuda}\n" in versions:
        pairs["gelu_erf"] = F.gelu
    return pairs


def one_by_one(x, w, bias, residual=None, activation=lambda y: y):
    """PyTorch's own calls, of which each rounds what it gives."""
    y = (F.conv1d, F.conv2d, F.conv3d)[x.dim() - 3](x, w, bias, padding=1)
    return activation(y if residual is None else y + residual)


@each_device
@pytest.mark.parametrize("size", [1, 2**-8])  # beyond all that activations tell apart, and from -20 to 20
@pytest.mark.parametrize("axes", [1, 2, 3])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_it_gives_eager_bits(device, dtype, axes, size):
    x, w, bias, residual = a_layer(dtype, device, axes)
    x, bias, residual = x * size, bias * size, residual * size
    convolve = (convtune.conv1d, convtune.conv2d, convtune.conv3d)[axes - 1]
    for name, activation in activations(device).items():
        for added in (None, residual):
            y = convolve(x, w, bias, padding=1, residual=added, activation=name, rounding="eager")
            assert torch.equal(y, one_by_one(x, w, bias, added, activation)), name
    once = convolve(x, w, bias, padding=1, residual=residual, activation="silu")
    assert not torch.equal(once, one_by_one(x, w, bias, residual, F.silu))  # or the numbers were too small to see it


@each_device
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_an_activation_of_every_number_has_eager_bits(device, dtype, form):
    x = torch.arange(2**16).to(torch.int16).view(dtype)
    x = torch.where(x.isfinite() & (x.float().abs() >= torch.finfo(torch.float32).tiny), x, 0)
    x = x.view(1, 16, 64, 64).to(device, memory_format=form)
    w = torch.eye(16, device=device, dtype=dtype).view(16, 16, 1, 1)
    for name, activation in activations(device).items():
        y, expected = convtune.conv2d(x, w, activation=name, rounding="eager"), activation(F.conv2d(x, w))
        differing = y.view(torch.int16) != expected.view(torch.int16)
        assert not differing.any(), (name, int(differing.sum()), x[differing][:9], y[differing][:9], expected[differing][:9])


def test_a_gpu_rounds_a_sum_before_its_bias():
    """As PyTorch's calls of cuDNN do; on a CPU PyTorch rounds both as one."""
    x, w, *_ = a_layer(torch.bfloat16)
    how = How((1,) * 3, (1,) * 6, (1,) * 3, rounding="eager")
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        of_gpu = [torch.empty(one.shape, dtype=torch.bfloat16, device="cuda") for one in (x, w)]
        assert problem_for(*of_gpu, how, torch.bfloat16).rounding == "eager"
        assert problem_for(*(one.float() for one in of_gpu), how, torch.float32).rounding == "once"
    assert problem_for(x, w, how, torch.bfloat16).rounding == "once"


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_a_kernel_rounds_after_each_step(dtype):
    """The roundings that a GPU's problem asks for, by a CPU's kernel."""
    x, w, bias, residual = a_layer(dtype)
    words = dict(activation="silu", residual=True)
    problem = convtune.torch.problem_of(x, w, True, (1,) * 3, (1,) * 6, (1,) * 3, 1, **words)
    convolution = convtune.Convolution(problem.replace(rounding="eager"), "cpu")
    y = convtune.run(convolution, x, convtune.pack(convolution, w, bias), residual=residual)
    assert torch.equal(y, F.silu((F.conv3d(x, w, padding=1) + bias.view(-1, 1, 1, 1)) + residual))


def test_other_words_are_refused():
    x, w, bias, _ = a_layer(torch.bfloat16)
    with pytest.raises(InvalidArgument, match="rounding is 'late'"):
        convtune.conv3d(x, w, bias, rounding="late")
    with pytest.raises(InvalidArgument, match="rounding is 'late'"):
        convtune.nn.Conv3d(4, 4, 3, rounding="late")
    with pytest.raises(InvalidArgument, match="eagerly"):
        convtune.optimize(torch.nn.Conv3d(4, 4, 3), x, compiled=True, rounding="eager")


def test_the_text_says_it():
    for how in (How(rounding="eager"), How(output_padding=(0, 1), activation="clip:0:6", choices="a\tb\tnchw\tc\td", rounding="eager")):
        assert How.parse(how.text) == how != How(rounding="once") and How.of(*how.words) == how


class Causal(torch.nn.Conv3d):
    """As video autoencoders have it: frames are joined and padded by hand."""

    def forward(self, x, cache=None):
        x = x if cache is None else torch.cat([cache, x], 2)
        return super().forward(F.pad(x, (1, 1, 1, 1, 0 if cache is not None else 2, 0)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm, self.act = torch.nn.Conv3d(16, 24, 3, padding=1), torch.nn.BatchNorm3d(24), torch.nn.SiLU()
        self.second = Causal(24, 8, 3)

    def forward(self, x):
        y = self.act(self.norm(self.first(x)))
        return self.second(y, y[:, :, :2])


def test_an_optimized_model_has_eager_bits(decided):
    torch.manual_seed(0)
    net = Net().eval().requires_grad_(False).to(torch.bfloat16)
    for module in (net.first, net.second):
        module.weight.copy_(whole(*module.weight.shape))
        module.bias.copy_(whole(*module.bias.shape, most=99))
    x = whole(1, 16, 5, 8, 8).to(torch.bfloat16)
    expected = net.first(x)
    convtune.optimize(net, x, budget=0, progress=False, rounding="eager")
    assert net.first.rounding == net.second.rounding == "eager" and "convtune" in repr(net.second)
    assert torch.equal(net.first(x), expected) and net.first.led is None
    y = net(x)
    convtune.restore(net)
    torch.testing.assert_close(y, net(x), rtol=2**-7, atol=2**-4)
    assert not hasattr(net.second, "rounding")
