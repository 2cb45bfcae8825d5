"""conv2d's activations and residual on PyTorch's tensors: the numbers and gradients of PyTorch's own operators,
whatever runs, and never the slow reference."""

import pytest
from torch_support import assert_near, double_conv2d, each_device, tensors, torch

import convtune
import convtune.torch
from convtune.torch.run import convolution_of

OP = torch.ops.convtune.conv2d.default
functional = torch.nn.functional
ACTIVATIONS = {
    "relu": torch.relu,
    "clip:0:6": lambda y: y.clamp(0, 6),
    "silu": functional.silu,
    "gelu_erf": functional.gelu,
    "gelu_tanh": lambda y: functional.gelu(y, approximate="tanh"),
    "hardswish": functional.hardswish,
    "leaky_relu:0.1": lambda y: functional.leaky_relu(y, 0.1),
    "sigmoid": torch.sigmoid,
}
pytestmark = pytest.mark.usefixtures("exact_products")
each_activation = pytest.mark.parametrize("activation", ACTIVATIONS)


def residual_of(x):
    return torch.linspace(-2, 2, x.shape[0] * 4 * x.shape[2] * x.shape[3], device=x.device).reshape(-1, 4, *x.shape[2:])


@each_device
@each_activation
@pytest.mark.parametrize("channels_last", [False, True])
def test_answers(device, activation, channels_last):
    x, w, bias = tensors(device)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    residual = residual_of(x)
    sums = double_conv2d(x, w, bias, padding=(1, 1, 1, 1))
    finish = ACTIVATIONS[activation]
    assert_near(convtune.conv2d(x, w, bias, padding=1, activation=activation), finish(sums))
    assert_near(OP(x, w, bias, (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", activation), finish(sums))
    y = convtune.conv2d(x, w, bias, padding=1, activation=activation, residual=residual)
    assert_near(y, finish(sums + residual))
    assert y.is_contiguous(memory_format=torch.channels_last if channels_last else torch.contiguous_format)


@each_device
@each_activation
def test_gradients_are_pytorchs(device, activation):
    def gradients(way):
        leaves = [one.clone().requires_grad_() for one in (*tensors(device), residual_of(tensors(device)[0]))]
        way(*leaves).square().sum().backward()
        return [one.grad for one in leaves]

    ours = gradients(lambda x, w, b, z: convtune.conv2d(x, w, b, padding=1, activation=activation, residual=z))
    theirs = gradients(lambda x, w, b, z: ACTIVATIONS[activation](torch.conv2d(x, w, b, padding=1) + z))
    for one, other in zip(ours, theirs):
        assert_near(one, other)
    ours = gradients(lambda x, w, b, z: OP(x, w, b, (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", activation) + 0 * z)
    theirs = gradients(lambda x, w, b, z: ACTIVATIONS[activation](torch.conv2d(x, w, b, padding=1)) + 0 * z)
    for one, other in zip(ours[:3], theirs[:3]):
        assert_near(one, other)


@each_device
@each_activation
@pytest.mark.parametrize("records", [False, True])
def test_compiled_in_one_graph(device, activation, records):
    x, w, bias = tensors(device)
    residual = residual_of(x).requires_grad_(records)

    def way(x, residual):
        return convtune.conv2d(x, w, bias, padding=1, activation=activation, residual=residual).sin()

    torch._dynamo.reset()
    compiled = torch.compile(way, fullgraph=True, backend="aot_eager")
    assert_near(compiled(x, residual), way(x, residual))


@each_device
def test_the_reference_is_never_what_runs(device):
    """A kernel of ours without the activation, then PyTorch's activation; or PyTorch's convolution."""
    x, w, bias = tensors(device)
    how = (1, 1), (1, 1, 1, 1), (1, 1), 1
    assert convolution_of(x, w, bias, *how).plan.algorithm != "reference"
    ours = convolution_of(x, w, bias, *how, activation="silu")
    assert ours is None or ours.plan.algorithm != "reference"
    with pytest.warns(UserWarning, match="no kernels for"):
        convtune.torch.functional._warned.clear()
        y = convtune.conv2d(*(one.double() for one in (x, w, bias)), padding=1, activation="silu")
    theirs = functional.silu(torch.conv2d(*(one.double() for one in (x, w, bias)), padding=1))
    assert torch.equal(y, theirs)


@each_device
def test_wrong_words_and_residuals(device):
    x, w, bias = tensors(device)
    residual = residual_of(x)
    for changes, words in [
        (dict(activation="swish"), "'swish'"),
        (dict(activation="clip"), "clip:LOW:HIGH"),
        (dict(residual=residual[:, :2]), r"residual has the shape \(2, 2, 13, 11\); it must be \(2, 4, 13, 11\)"),
        (dict(residual=residual[:1]), "residual has the shape"),
        (dict(residual=residual.double()), "residual is float64"),
        (dict(residual=residual.numpy(force=True)), "residual is a ndarray"),
        (dict(residual=residual, activation="tanh"), "'tanh'"),
    ]:
        with pytest.raises(convtune.InvalidArgument, match=words):
            convtune.conv2d(x, w, bias, padding=1, **changes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_planned_runs_take_every_type(dtype):
    """Whoever plans a problem gets what the plan says, the reference too."""
    types = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
    problem = convtune.Problem(2, 3, 13, 11, 4, 3, 3, padding=1, dtype=types[dtype], residual=True, activation="silu")
    x, w, bias = (one.to(dtype) for one in tensors("cpu"))
    residual = residual_of(x).to(dtype)
    conv = convtune.Convolution(problem, "cpu", "reference")
    planned = convtune.plan(problem, device="cpu")
    packed = convtune.pack(conv, w, bias)
    y = convtune.run(conv, x, packed, residual=residual)
    expected = functional.silu(double_conv2d(x, w, bias, padding=(1, 1, 1, 1)) + residual.double())
    assert y.dtype == dtype and torch.equal(y, expected.to(dtype))
    near = convtune.run(planned, x, convtune.pack(planned, w, bias), residual=residual)
    assert near.dtype == dtype and torch.allclose(near, y, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
    version = residual._version
    assert torch.equal(convtune.run(conv, x, packed, out=residual, residual=residual), y)
    assert residual._version == version + 1
    with pytest.raises(convtune.InvalidArgument, match="residual requires gradients"):
        convtune.run(conv, x, packed, residual=y.requires_grad_())
