"""Snakes that overlap: the kernel beside double precision (on a CPU by Triton's interpreter), which Snakes of a graph become one, and
what they give. The kernel of graphs here is PyTorch's, on the CPU."""

import copy

import pytest
from torch_pairs import Leaky, Snake, Unit, kernels, rows  # noqa: F401  (a fixture)
from torch_support import count, on_gpu, run_in_the_interpreter, torch

from convtune.torch import backend, graphed  # noqa: F401  (they register the backend)
from convtune.torch.graph.operators import snakes
from convtune.torch.graph.operators.snakes import snake1d

nn = torch.nn
SIZES = [(1, 768, 64), (2, 96, 33), (1, 40, 7), (1, 1536, 8), (3, 8, 1), (1, 64, 1000)]


def of_kernel(shape, dtype, device, overlaps=False):
    from convtune.torch.graph.operators.snake_kernels import launch_snake

    n, c, length = shape
    x = (torch.randn((n, length, c), generator=torch.Generator().manual_seed(0)) * 3).to(dtype).to(device).transpose(1, 2)
    alpha, divisor = (torch.linspace(low, 2.5, c, device=device).to(dtype).reshape(1, c, 1) for low in (0.25, 0.5))
    for logs in ((False, False), (True, False), (True, True)):
        y = torch.full((n, length, c), torch.nan, dtype=dtype, device=device).transpose(1, 2)
        launch_snake(x, alpha, divisor, y, *logs, 1e-9, overlaps)
        factor, below = (one.double().exp() if is_log else one.double() for one, is_log in zip((alpha, divisor), logs))
        exact = x.double() + (factor * x.double()).sin().square() / (below + 1e-9)
        assert float((y.double() - exact).norm() / exact.norm()) < 2 ** (-8 if dtype is torch.bfloat16 else -11), (shape, logs)


def test_kernel_in_the_interpreter():
    run_in_the_interpreter(
        "import torch, test_torch_snakes as t\n"
        "for shape in t.SIZES:\n    for dtype in (torch.float16, torch.bfloat16): t.of_kernel(shape, dtype, 'cpu')\n"
        "print('all well')"
    )


@on_gpu
@pytest.mark.parametrize("shape", SIZES)
@pytest.mark.parametrize("overlaps", [False, True])
def test_kernel_on_a_gpu(shape, overlaps):
    if overlaps and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("launches overlap from compute capability 9.0 on")
    for dtype in (torch.float16, torch.bfloat16):
        of_kernel(shape, dtype, "cuda", overlaps)


@pytest.fixture
def here(monkeypatch, kernels):  # noqa: F811
    """Rows on the CPU count as those of a GPU whose launches overlap."""
    monkeypatch.setattr(snakes, "_kernels", lambda: object())
    monkeypatch.setattr(snakes, "_takes", lambda value: isinstance(value, torch.Tensor) and value.dim() == 3)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model, x, **options):
    model = model.eval().requires_grad_(False).to(x.dtype)
    fast = torch.compile(model, backend="convtune", options={"convtune.force": True, "convtune.beside": True, **options})
    with torch.no_grad():
        return fast, fast(x), model(x)


def conv(inputs=8, outputs=8, taps=3):
    return nn.Conv1d(inputs, outputs, taps, padding=taps // 2)


def chain(way):
    torch.manual_seed(0)  # a fixed seed: with weights at random one run in sixty is off by more than a hundredth
    return nn.Sequential(conv(), Snake(8, way), nn.ConvTranspose1d(8, 8, 4, 2, 1), Snake(8, way), conv())


@pytest.mark.parametrize("way", ["div", "dac", "beta"])
def test_those_between_convolutions_are_taken(here, graphs, way):
    x = rows(2, 8, 16)
    _, y, theirs = compiled(chain(way), x)
    assert count(graphs[-1], snake1d) == 2 and count(graphs[-1], torch.ops.aten.sin.default) == 0
    assert y.stride() == theirs.stride() and float((y.double() - theirs.double()).norm() / theirs.double().norm()) < 0.01


def test_one_behind_a_step_and_in_front_of_another_layer(here, graphs, kernels, monkeypatch):  # noqa: F811
    monkeypatch.setattr(kernels, "refuses", staticmethod(lambda problem: problem.snake != "none"))  # the step's kernel would do it
    _, y, theirs = compiled(nn.Sequential(conv(), Unit(), Snake(8), conv()), rows(2, 8, 16))
    assert count(graphs[-1], snake1d) == 1  # the one behind the step, which has none of its own left
    assert float((y.double() - theirs.double()).norm() / theirs.double().norm()) < 0.01


@pytest.mark.parametrize("model", [
    nn.Sequential(Snake(8), conv()), nn.Sequential(conv(), Snake(8)), nn.Sequential(conv(), Snake(8), nn.Tanh(), conv()),
    nn.Sequential(conv(), nn.Tanh(), Snake(8), conv()), nn.Sequential(conv(), nn.LeakyReLU(), conv()), Leaky(),
], ids=["first", "last", "in front of a pass", "behind a pass", "another activation", "steps"])  # fmt: skip
def test_those_beside_passes_of_inductors_are_left(here, graphs, model):
    compiled(model, rows(2, 8, 16))
    assert count(graphs[-1], snake1d) == 0


def test_a_graph_that_is_not_recorded_has_none(here, graphs):
    compiled(chain("div"), rows(2, 8, 16), **{"convtune.beside": False})
    assert count(graphs[-1], snake1d) == 0


def test_what_else_reads_a_part_of_it_keeps_it(here, graphs):
    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.alpha = conv(), conv(), nn.Parameter(torch.rand(1, 8, 1) + 0.5)

        def forward(self, x):
            x = self.first(x)
            square = (self.alpha * x).sin().square()
            return self.second(x + square / (self.alpha + 1e-9)), square

    compiled(Reads(), rows(2, 8, 16))
    assert count(graphs[-1], snake1d) == 0


def test_inductors_code_calls_it(here):
    """Numbers that change are seen, without a compile."""
    model, x = chain("beta"), rows(2, 8, 16)
    fast, y, theirs = compiled(model, x)
    assert torch.allclose(y.float(), theirs.float(), atol=0.05)
    with torch.no_grad():
        for one in (model[1], model[3]):
            one.alpha.add_(0.5), one.beta.sub_(0.25)
        y, theirs = fast(x), model(x)
    assert float((y.double() - theirs.double()).norm() / theirs.double().norm()) < 0.01


@on_gpu
def test_bits_on_a_gpu():
    """Behind each other and beside convolutions, launches that overlap give one answer in 20 replays."""
    torch.manual_seed(0)
    layers = [one for _ in range(4) for one in (nn.Conv1d(256, 256, 7, padding=3), Snake(256))]
    model = nn.Sequential(*layers, nn.Conv1d(256, 256, 1)).eval().requires_grad_(False).to("cuda", torch.bfloat16)
    x = torch.randn(1, 256, 64, device="cuda").bfloat16()
    fast = graphed.Graphed(model, (x,), (), {"convtune.force": True}, whole=False)
    with torch.no_grad():
        y, exact = fast(x).clone(), copy.deepcopy(model).double()(x.double())  # the model itself is the graph's
        assert float((y.double() - exact).norm() / exact.norm()) < 0.02
        for _ in range(20):
            assert torch.equal(fast(x), y)
