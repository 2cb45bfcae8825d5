"""Squeeze-and-excite and the convolution behind it: its kernels beside double precision (on a CPU by Triton's
interpreter, in a process of its own), what of a graph becomes them, and what does not."""

import pytest
from torch_support import count, each_device, run_in_the_interpreter, torch

from convtune.torch import backend as torch_compile
from convtune.torch.graph.operators import gates, images
from convtune.torch.graph.operators.gates import _decided
from convtune.torch.graph.operators.norms import group_coefficients
from convtune.torch.graph.operators.squeeze import conv2d_scaled, squeeze_excite

nn, functional, aten = torch.nn, torch.nn.functional, torch.ops.aten
ACTIVATIONS = {
    "none": lambda y: y, "relu": torch.relu, "silu": functional.silu, "sigmoid": torch.sigmoid,
    "hardsigmoid": functional.hardsigmoid,
}  # fmt: skip
# (N, C, H, W), filters of the first convolution
SHAPES = [((2, 40, 7, 8), 10), ((3, 144, 5, 6), 6), ((1, 300, 9, 10), 48), ((5, 8, 1, 1), 1), ((64, 32, 20, 20), 8)]


def tensors(shape, k, dtype, device):
    generator = torch.Generator().manual_seed(0)

    def uniform(*of, low=-1.0):
        return (torch.rand(of, generator=generator) * (1 - low) + low).to(dtype).to(device)

    c = shape[1]
    x = uniform(*shape, low=0.0).contiguous(memory_format=torch.channels_last)
    return x, uniform(k, c, 1, 1), uniform(k), uniform(c, k, 1, 1), uniform(c)


def error(y, expected):
    return float((y.double() - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


def check_gate(shape, k, first, second, bias, dtype, device, run):
    x, w1, b1, w2, b2 = tensors(shape, k, dtype, device)
    if not bias:
        b1 = b2 = None
    expected = x.double().mean((2, 3), keepdim=True)
    for w, b, activation in ((w1, b1, first), (w2, b2, second)):
        expected = ACTIVATIONS[activation](torch.conv2d(expected, w.double(), None if b is None else b.double()))
    y = run(x, w1, b1, w2, b2, first, second)
    assert y.shape == expected.shape and y.dtype is dtype
    assert error(y, expected) < 2 * torch.finfo(dtype).eps


def check_scaled(shape, k, activation, residual, dtype, device, run):
    x, w, _, _, scale = tensors(shape, k, dtype, device)
    scale = torch.stack([scale * (n + 1) / shape[0] for n in range(shape[0])])[:, :, None, None]
    bias = torch.linspace(-1, 1, k, device=device)
    z = None
    if residual:
        z = torch.rand(shape[0], k, *shape[2:], device=device).to(dtype).contiguous(memory_format=torch.channels_last)
    expected = torch.conv2d((x * scale).double(), w.double(), bias.double())
    expected = ACTIVATIONS[activation](expected if z is None else expected + z.double())
    y = run(x, scale, w, bias, z, activation)
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert error(y, expected) < 4 * torch.finfo(dtype).eps


def of_kernels(shape, k, dtype, device):
    """Every form of both kernels on one shape: by the launchers themselves."""
    from convtune.torch.graph.operators.squeeze_kernels import launch_gate, launch_scaled, tiles_of

    def gate(x, *rest):
        y = x.new_empty(*x.shape[:2], 1, 1)
        launch_gate(x, *rest[:4], y, *rest[4:], 132)
        return y

    for first, second, bias in (("silu", "sigmoid", True), ("relu", "hardsigmoid", False)):
        check_gate(shape, k, first, second, bias, dtype, device, gate)
    for tile in tiles_of(shape[1], k):

        def scaled(x, scale, w, bias, z, activation, tile=tile):
            y = torch.full((x.shape[0], k, *x.shape[2:]), torch.nan, dtype=x.dtype, device=x.device)
            y = y.contiguous(memory_format=torch.channels_last)
            launch_scaled(x, scale, w, bias, z, y, activation, tile)
            return y

        for activation, residual in (("none", False), ("relu", True), ("silu", True)):
            check_scaled(shape, k, activation, residual, dtype, device, scaled)


def test_kernels_in_the_interpreter():
    """float16: the interpreter cannot multiply matrices of bfloat16."""
    program = (
        "import torch, test_torch_squeeze as t\n"
        "for shape, k in t.SHAPES: t.of_kernels(shape, k, torch.float16, 'cpu')\n"
        "print('all well')"
    )
    run_in_the_interpreter(program)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape, k", SHAPES)
def test_kernels_on_a_gpu(shape, k, dtype):
    of_kernels(shape, k, dtype, "cuda")


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("second", ["sigmoid", "hardsigmoid"])
def test_operators(dtype, second, device, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    check_gate((2, 40, 7, 8), 10, "silu", second, True, dtype, device, squeeze_excite)
    tile = 64, 16, 64, 4
    for activation, residual in (("none", True), ("relu", False)):

        def run(*arguments):
            return conv2d_scaled(*arguments, tile)

        check_scaled((2, 40, 7, 8), 10, activation, residual, dtype, device, run)


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pytorchs_own_checks(dtype, device):
    x, w1, b1, w2, b2 = tensors((2, 40, 7, 8), 10, dtype, device)
    scale, z = torch.rand(2, 40, 1, 1, device=device).to(dtype), x[:, :10].contiguous(memory_format=torch.channels_last)
    for operator, arguments in (
        (squeeze_excite, (x, w1, b1, w2, None, "silu", "sigmoid")),
        (conv2d_scaled, (x, scale, w1, b1.float(), z, "none", [64, 16, 64, 4])),
        (group_coefficients, (x, b2, None, scale, 8, 1e-5)),
    ):
        torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


class Excited(nn.Module):
    """As torchvision writes it, or (`swapped`, `activation`) as others do."""

    def __init__(self, swapped=False, activation=torch.sigmoid, keep=False):
        super().__init__()
        self.expand, self.project, self.norm = nn.Conv2d(8, 32, 1), nn.Conv2d(32, 8, 1, bias=False), nn.BatchNorm2d(8)
        self.first, self.second = nn.Conv2d(32, 4, 1), nn.Conv2d(4, 32, 1)
        self.swapped, self.activation, self.keep = swapped, activation, keep

    def forward(self, x):
        y = functional.silu(self.expand(x))
        pooled = y.mean((2, 3), keepdim=True) if self.swapped else functional.adaptive_avg_pool2d(y, 1)
        scale = self.activation(self.second(torch.relu(self.first(pooled))))
        scaled = y * scale if self.swapped else scale * y
        z = self.norm(self.project(scaled)) + x
        return (z, scaled) if self.keep else z


@pytest.fixture
def graph_of(monkeypatch, afresh, graphs):
    """Gives the graph that inductor is given for a model on a CPU, with the operators allowed there."""
    def is_for(x):
        return x.dtype is torch.bfloat16 and x.is_contiguous(memory_format=torch.channels_last)

    monkeypatch.setattr(gates, "is_for", is_for)
    _decided.clear()

    def of(model, x):
        with torch.no_grad():
            run = torch.compile(model, backend=torch_compile.backend, fullgraph=True, options={"convtune.force": True})
            got, expected = run(x), model(x)
        for one, other in zip(*((each,) if isinstance(each, torch.Tensor) else each for each in (got, expected))):
            assert error(one, other.double()) < 3e-2
        return graphs[-1]

    yield of
    _decided.clear()


def excited(**more):
    torch.manual_seed(0)
    model = Excited(**more).to(torch.bfloat16).to(memory_format=torch.channels_last).eval()
    return model, torch.rand(2, 8, 6, 7, dtype=torch.bfloat16).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("activation", [torch.sigmoid, functional.hardsigmoid])
def test_a_graph_becomes_two_operators(graph_of, swapped, activation):
    pytest.importorskip("triton", reason="Triton is not installed here")
    graph = graph_of(*excited(swapped=swapped, activation=activation))
    assert count(graph, squeeze_excite) == 1 and count(graph, conv2d_scaled) == 1
    for gone in (aten.mean.dim, aten.mul.Tensor, aten.convolution.default, aten.sigmoid.default, aten.add.Tensor):
        assert count(graph, gone) == 0


def test_what_others_read_stays(graph_of):
    pytest.importorskip("triton", reason="Triton is not installed here")
    graph = graph_of(*excited(keep=True))
    assert count(graph, squeeze_excite) == 1 and count(graph, conv2d_scaled) == 0 and count(graph, aten.mul.Tensor) == 1


def test_another_activation_is_left_alone(graph_of):
    graph = graph_of(*excited(activation=torch.tanh))
    assert count(graph, squeeze_excite) == 0 and count(graph, aten.mean.dim) == 1


def test_float32_is_left_alone(graph_of):
    model, x = excited()
    graph = graph_of(model.float(), x.float())
    assert count(graph, squeeze_excite) == count(graph, conv2d_scaled) == 0


def test_no_kernel_is_for_a_cpu():
    assert not images.is_for(torch.rand(1, 8, 4, 4).half().to(memory_format=torch.channels_last))
