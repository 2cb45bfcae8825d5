"""Statistics of group norms: the kernels beside double precision (on a CPU by Triton's interpreter, in a process of its
own), which norms of a graph become them, and what becomes of those."""

import pytest
from torch_support import count, each_device, run_in_the_interpreter, torch

from convtune.torch import backend as torch_compile
from convtune.torch.graph.operators import norms as torch_norms
from convtune.torch.graph.operators.norms import group_coefficients

nn, functional, aten = torch.nn, torch.nn.functional, torch.ops.aten
# (N, C, H, W), groups, mean of the values: far from 0, sums of squares would lose what there is to find.
CASES = [
    ((2, 64, 9, 10), 32, 0), ((1, 128, 40, 41), 32, 50), ((3, 60, 5, 6), 3, -20), ((1, 320, 16, 17), 32, 0),
    ((2, 8, 1, 1), 4, 1), ((1, 4, 130, 3), 1, 1000),
]  # fmt: skip


def images(shape, mean, dtype, device):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator) + mean
    return x.to(dtype).to(device).contiguous(memory_format=torch.channels_last)


def check(shape, groups, mean, affine, offset, dtype, device, run):
    x = images(shape, mean, dtype, device)
    added = torch.linspace(-2, 3, shape[0] * shape[1], device=device).to(dtype).reshape(*shape[:2], 1, 1)
    weight, bias = (torch.linspace(low, 1.5, shape[1], device=device).to(dtype) for low in (0.5, -1.0))
    own = (weight, bias) if affine else (None, None)
    scale, shift = run(x, *own, added if offset else None, groups, 1e-5)
    assert scale.shape == shift.shape == (*shape[:2], 1, 1) and scale.dtype is shift.dtype is torch.float32
    exact = [None if one is None else one.double() for one in own]
    whole = x.double() + added.double() if offset else x.double()
    expected = functional.group_norm(whole, groups, *exact, 1e-5)
    error = (x.double() * scale + shift - expected).abs().max()
    assert error < 1e-5 * (1 + abs(mean)) * expected.abs().max().clamp_min(1), float(error)


def of_kernels(shape, groups, mean, dtype, device):
    from convtune.torch.graph.operators.norm_kernels import launch_coefficients

    def run(x, weight, bias, offset, groups, eps):
        scale, shift = (torch.full((*shape[:2], 1, 1), torch.nan, device=device) for _ in range(2))
        launch_coefficients(x, weight, bias, offset, groups, eps, scale, shift, 132)
        return scale, shift

    def run_spread(x, weight, bias, *others):
        """With numbers that are not beside each other, as those of a view or of `expand` are."""
        return run(x, weight.repeat_interleave(2)[::2], bias.repeat_interleave(3)[::3], *others)

    for affine, offset in ((True, False), (False, False), (True, True)):
        check(shape, groups, mean, affine, offset, dtype, device, run)
    check(shape, groups, mean, True, True, dtype, device, run_spread)


def test_kernels_in_the_interpreter():
    program = (
        "import torch, test_torch_norms as t\n"
        "for case in t.CASES:\n    for dtype in (torch.float16, torch.bfloat16): t.of_kernels(*case, dtype, 'cpu')\n"
        "print('all well')"
    )
    run_in_the_interpreter(program)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape, groups, mean", [*CASES, ((1, 128, 1024, 1024), 32, 3), ((2, 2560, 8, 8), 32, 1)])
def test_kernels_on_a_gpu(shape, groups, mean, dtype):
    of_kernels(shape, groups, mean, dtype, "cuda")


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("affine", [True, False])
def test_operator(dtype, affine, device):
    for offset in (True, False):
        check((2, 64, 9, 10), 32, 3, affine, offset, dtype, device, group_coefficients)


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_pytorchs_own_checks(dtype, device):
    x, offset = images((2, 40, 7, 8), 0, dtype, device), torch.rand(2, 40, 1, 1, device=device).to(dtype)
    weight = torch.rand(40, device=device).to(dtype)
    arguments = x, weight, None, offset, 8, 1e-5
    torch.library.opcheck(group_coefficients, arguments, test_utils=("test_schema", "test_faketensor"))


@pytest.fixture
def graph_of(monkeypatch, afresh, graphs):
    """Gives the graph that inductor is given for a model on a CPU, with the operator allowed there."""
    def is_for(x):
        return x.dtype is torch.bfloat16 and x.is_contiguous(memory_format=torch.channels_last)

    monkeypatch.setattr(torch_norms, "_MOST_OF_INDUCTOR", 0)
    monkeypatch.setattr(torch_norms, "is_for", is_for)

    def of(model, *inputs):
        with torch.no_grad():
            options = {"convtune.whole": False}  # which of the two is faster here is not asked
            got = torch.compile(model, backend=torch_compile.backend, fullgraph=True, options=options)(*inputs)
            expected = model(*inputs)
        for one, other in zip(*((each,) if isinstance(each, torch.Tensor) else each for each in (got, expected))):
            assert float((one.double() - other.double()).abs().max()) < 3e-2 * float(other.abs().max())
        return graphs[-1]

    return of


def traced(monkeypatch, norm, shape, dtype, x=None):
    """The graph of a norm, of x or of an image, on a CPU, where 4 x 8 x 8 elements of a group are left to inductor."""
    from torch.fx.experimental.proxy_tensor import make_fx

    monkeypatch.setattr(torch_norms, "is_for", lambda x: x.dtype is torch.bfloat16)
    monkeypatch.setattr(torch_norms, "_MOST_OF_INDUCTOR", 4 * 8 * 8)
    with torch_norms.NormsAsTheyLie():
        return make_fx(norm, tracing_mode="fake")(images(shape, 0, dtype, "cpu") if x is None else x)


def test_small_norms_are_inductors_and_lie_as_they_came(monkeypatch):
    def norm(x):
        return functional.group_norm(x, 8, torch.linspace(0.5, 2, 32).to(x.dtype), torch.ones(32, dtype=x.dtype))

    for shape, ours in (((2, 32, 8, 9), 1), ((2, 32, 8, 8), 0)):
        module = traced(monkeypatch, norm, shape, torch.bfloat16)
        assert count(module.graph, group_coefficients) == ours
        assert count(module.graph, aten.native_group_norm.default) == 0
        (output,) = module.graph.find_nodes(op="output")
        assert output.args[0].meta["val"].is_contiguous(memory_format=torch.channels_last)
        x = images(shape, 0, torch.bfloat16, "cpu")
        expected = norm(x.double())
        assert float((module(x).double() - expected).abs().max()) < 1e-2 * float(expected.abs().max())


@pytest.mark.parametrize("depth, ours", [(3, 1), (1, 0)])
def test_volumes_are_images_of_all_their_rows(monkeypatch, depth, ours):
    def norm(x):
        return functional.group_norm(x, 8, torch.linspace(0.5, 2, 32).to(x.dtype), torch.ones(32, dtype=x.dtype))

    shape = 2, 32, depth, 8, 8
    x = (torch.randn(shape) + 1).to(torch.bfloat16)
    laid = x.contiguous(memory_format=torch.channels_last_3d)
    module = traced(monkeypatch, norm, shape, torch.bfloat16, laid)
    assert count(module.graph, group_coefficients) == ours and count(module.graph, aten.native_group_norm.default) == 0
    (output,) = module.graph.find_nodes(op="output")
    assert output.args[0].meta["val"].is_contiguous(memory_format=torch.channels_last_3d)
    expected = norm(x.double())
    assert float((module(laid).double() - expected).abs().max()) < 1e-2 * float(expected.abs().max())
    frames_first = traced(monkeypatch, norm, shape, torch.bfloat16, x)  # NCDHW is ATen's: it need not be copied
    assert count(frames_first.graph, aten.native_group_norm.default) == 1


def test_other_types_are_left_alone(monkeypatch):
    def left(dtype):
        module = traced(monkeypatch, lambda x: functional.group_norm(x, 8), (2, 32, 16, 16), dtype)
        return count(module.graph, aten.native_group_norm.default)

    assert left(torch.bfloat16) == 0 and left(torch.float32) == 1
    with torch.autocast("cpu"):
        assert left(torch.bfloat16) == 1


@pytest.mark.parametrize("affine", [True, False])
def test_a_norm_becomes_coefficients(graph_of, affine):
    model = nn.Sequential(nn.GroupNorm(8, 32, affine=affine), nn.SiLU()).to(torch.bfloat16).eval()
    graph = graph_of(model, images((2, 32, 8, 8), 1, torch.bfloat16, "cpu"))
    assert count(graph, group_coefficients) == 1 and count(graph, aten.native_group_norm.default) == 0
    (output,) = graph.find_nodes(op="output")
    assert output.args[0][0].target is aten.silu.default


def test_statistics_that_somebody_reads_stay(graph_of):
    def both(x):
        y, mean, _ = aten.native_group_norm(x, None, None, 2, 32, 64, 8, 1e-5)
        return y, mean

    with torch.no_grad():
        graph = graph_of(both, images((2, 32, 8, 8), 1, torch.bfloat16, "cpu"))
    assert count(graph, group_coefficients) == 0


class Embedded(nn.Module):
    """A convolution, an embedding's sum, a norm. `more`: what else reads the sum, as it is or as float32."""

    def __init__(self, more):
        super().__init__()
        self.convolution, self.norm, self.more = nn.Conv2d(32, 32, 3, padding=1), nn.GroupNorm(8, 32), more

    def forward(self, x, t):
        total = self.convolution(x) + t[:, :, None, None]
        y = functional.silu(self.norm(total))
        if self.more == "float32":
            return y, total.float().mean((2, 3))
        return y + total if self.more else y


@pytest.mark.parametrize("more, images_of_t", [("", 2), ("itself", 2), ("float32", 2), ("", 1)])
def test_sums_before_norms(graph_of, more, images_of_t):
    model = Embedded(more).to(torch.bfloat16).to(memory_format=torch.channels_last).eval()
    t = torch.randn(images_of_t, 32).to(torch.bfloat16)
    graph = graph_of(model, images((2, 32, 8, 8), 1, torch.bfloat16, "cpu"), t)
    (norm,) = graph.find_nodes(op="call_function", target=group_coefficients)
    taken = not more and images_of_t == 2
    assert (norm.args[3] is not None) == taken
    sums = graph.find_nodes(op="call_function", target=aten.add.Tensor)
    of_halves = [node for node in sums if node.args[0].target is not aten.mul.Tensor]  # the norm's own is in float32
    assert len(of_halves) == (0 if taken else 2 if more == "itself" else 1)
