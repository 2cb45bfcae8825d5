"""Statistics of instance norms by one launch: the kernel beside double precision (on a CPU by Triton's interpreter), which norms of a graph
have theirs by it, and what they give. The kernel of graphs here is PyTorch's, on the CPU."""

import copy

import pytest
from torch_support import count, each_device, on_gpu, run_in_the_interpreter, torch

from convtune.torch import backend, graphed  # noqa: F401  (they register the backend)
from convtune.torch.graph.operators import instances
from convtune.torch.graph.operators.instances import instance_coefficients

nn, functional, aten = torch.nn, torch.nn.functional, torch.ops.aten
NORM = aten._native_batch_norm_legit.no_stats
# (N, C, H, W), mean of the values: far from 0, sums of squares would lose what there is to find.
CASES = [((1, 64, 40, 41), 0), ((2, 33, 9, 10), 50), ((3, 8, 5, 6), -20), ((1, 256, 24, 24), 3), ((2, 4, 1, 1), 1), ((1, 3, 130, 7), 100)]


def images(shape, mean, dtype, device):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0)) + mean
    return x.to(dtype).to(device).contiguous(memory_format=torch.channels_last)


def numbers(c, dtype, device):
    return tuple(torch.linspace(low, 1.5, c, device=device).to(dtype) for low in (0.5, -1.0))


def check(shape, mean, affine, dtype, device, run):
    x, own = images(shape, mean, dtype, device), numbers(shape[1], dtype, device) if affine else (None, None)
    scale, shift = run(x, *own)
    assert scale.shape == shift.shape == (*shape[:2], 1, 1) and scale.dtype is shift.dtype is torch.float32
    exact = functional.group_norm(x.double(), shape[1], *[None if one is None else one.double() for one in own])
    error = (x.double() * scale + shift - exact).abs().max()
    assert error < 1e-5 * (1 + abs(mean)) * exact.abs().max().clamp_min(1), (shape, mean, affine, float(error))


def of_kernel(shape, mean, dtype, device, overlaps=False, processors=132):
    from convtune.torch.graph.operators.instance_kernels import launch_instances

    counters = torch.zeros(shape[0] * shape[1] + 2, dtype=torch.int32, device=device)
    counters[-1] = 77  # nobody's

    def run(x, weight, bias):
        scale, shift = (torch.full((*shape[:2], 1, 1), torch.nan, device=device) for _ in range(2))
        launch_instances(x, weight, bias, counters[1:-1], 1e-5, scale, shift, processors, overlaps)
        assert counters.tolist() == [0] * (counters.numel() - 1) + [77]  # as they were, for the next
        return scale, shift

    def run_spread(x, weight, bias):
        """With numbers that are not beside each other, as those of a view are."""
        return run(x, weight.repeat_interleave(2)[::2], bias.repeat_interleave(3)[::3])

    for affine in (True, False):
        check(shape, mean, affine, dtype, device, run)
    check(shape, mean, True, dtype, device, run_spread)
    check_specials(shape, dtype, device, run)


def check_specials(shape, dtype, device, run):
    """A channel of an image with a NaN or an infinity, at its first pixel or at its last, becomes NaN throughout as PyTorch's does, and nothing
    else; whatever stands behind, as relu, which would make 0 of minus infinity."""
    for special in (torch.nan, torch.inf, -torch.inf):
        for pixel in (0, -1):
            x = images(shape, 0, dtype, device)
            x.movedim(1, 3)[0].reshape(-1, shape[1])[pixel, shape[1] // 2] = special
            assert x.isfinite().logical_not().sum() == 1
            scale, shift = run(x, *numbers(shape[1], dtype, device))
            y = x.float() * scale + shift
            if shape[2:] == (1, 1):
                continue  # PyTorch refuses those
            theirs = functional.instance_norm(x.float(), None, None, *(one.float() for one in numbers(shape[1], dtype, device)))
            assert torch.equal(y.isnan(), theirs.isnan()) and y.isnan().sum() == shape[2] * shape[3], (special, pixel)
            assert y.relu().isnan().sum() == shape[2] * shape[3] and not y.isinf().any()


def test_kernel_in_the_interpreter():
    run_in_the_interpreter(
        "import torch, test_torch_instances as t\n"
        "for case in t.CASES:\n"
        "    for dtype in (torch.float16, torch.bfloat16): t.of_kernel(*case, dtype, 'cpu')\n"
        "t.of_kernel(*t.CASES[0], torch.bfloat16, 'cpu', processors=2)\n"
        "print('all well')"
    )


@on_gpu
@pytest.mark.parametrize("overlaps", [False, True])
@pytest.mark.parametrize("shape, mean", [*CASES, ((1, 64, 224, 224), 3), ((1, 256, 56, 56), 0), ((8, 128, 112, 112), 1)])
def test_kernel_on_a_gpu(shape, mean, overlaps):
    if overlaps and torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("launches overlap from compute capability 9.0 on")
    for dtype in (torch.float16, torch.bfloat16):
        of_kernel(shape, mean, dtype, "cuda", overlaps)


@each_device
@pytest.mark.parametrize("affine", [True, False])
def test_operator(affine, device):
    counters = torch.zeros(200, dtype=torch.int32, device=device)
    for dtype in (torch.float32, torch.bfloat16):
        check((2, 64, 9, 10), 3, affine, dtype, device, lambda *given: instance_coefficients(*given, counters, 60, 1e-5))
        x, own = images((2, 40, 7, 8), 0, dtype, device), numbers(40, dtype, device) if affine else (None, None)
        torch.library.opcheck(instance_coefficients, (x, *own, counters, 0, 1e-5), test_utils=("test_schema", "test_faketensor"))


@pytest.fixture
def here(monkeypatch):
    """Images on the CPU count as those of a GPU."""
    monkeypatch.setattr(instances, "has_triton", lambda: True)
    monkeypatch.setattr(instances, "is_for", lambda x: x.is_contiguous(memory_format=torch.channels_last))
    monkeypatch.setattr(instances, "_LEAST_PIXELS", 4 * 4)
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(model, shape, **options):
    model = model.eval().requires_grad_(False).bfloat16()
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    model = model.to(memory_format=formats[len(shape)])
    x = (torch.randn(shape) + 1).bfloat16().contiguous(memory_format=formats[len(shape)])
    fast = torch.compile(model, backend="convtune", options={"convtune.force": True, "convtune.beside": True, **options})
    with torch.no_grad():
        y, theirs, exact = fast(x), model(x), copy.deepcopy(model).double()(x.double())
    assert y.shape == theirs.shape and y.stride() == theirs.stride()
    error, of_theirs = (float((one.double() - exact).norm() / exact.norm()) for one in (y, theirs))
    assert error < 1.5 * of_theirs + 1e-3, (error, of_theirs)
    return fast, x, model


def conv(inputs=8, outputs=8, kind=nn.Conv2d):
    return kind(inputs, outputs, 3, padding=1)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(8, 8, 3), nn.InstanceNorm2d(8), nn.ReLU(), conv(), nn.InstanceNorm2d(8))

    def forward(self, x):
        return x + self.layers(x)


@pytest.mark.parametrize("images_of_x", [1, 2])
@pytest.mark.parametrize("affine", [False, True])
def test_statistics_of_norms_behind_convolutions(here, graphs, images_of_x, affine):
    model = nn.Sequential(conv(), nn.InstanceNorm2d(8, affine=affine), nn.ReLU(), Residual(), nn.ConvTranspose2d(8, 4, 4, 2, 1),
                          nn.InstanceNorm2d(4, affine=affine), nn.Tanh())  # fmt: skip
    if affine:
        for one in (model[1], model[5]):
            nn.init.uniform_(one.weight, 0.5, 1.5), nn.init.uniform_(one.bias, -1, 1)
    compiled(model, (images_of_x, 8, 6, 8))
    graph = graphs[-1]
    assert count(graph, instance_coefficients) == 4 and count(graph, NORM) == 0
    own = [(node.args[4], node.args[0].meta["val"].shape[:2].numel()) for node in graph.find_nodes(op="call_function", target=instance_coefficients)]
    assert own == [(sum(size for _, size in own[:at]), size) for at, (_, size) in enumerate(own)]  # counters of their own
    (zeros,) = graph.find_nodes(op="call_function", target=instances.zero_counters)
    assert zeros.args[1] == sum(size for _, size in own)


@pytest.mark.parametrize("images_of_x", [1, 2])
def test_volumes(here, graphs, images_of_x):
    model = nn.Sequential(conv(kind=nn.Conv3d), nn.InstanceNorm3d(8, affine=True), nn.LeakyReLU(), conv(kind=nn.Conv3d))
    compiled(model, (images_of_x, 8, 3, 4, 6))
    assert count(graphs[-1], instance_coefficients) == 1 and count(graphs[-1], NORM) == 0


@pytest.mark.parametrize("model, size", [
    (nn.Sequential(nn.ReLU(), nn.InstanceNorm2d(8), conv()), 8), (nn.Sequential(conv(), nn.Softshrink(), nn.InstanceNorm2d(8)), 8),
    (nn.Sequential(conv(), nn.InstanceNorm2d(8)), 3), (nn.Sequential(conv(), nn.InstanceNorm2d(8, track_running_stats=True)), 8),
    (nn.Sequential(conv(), nn.InstanceNorm2d(8, track_running_stats=True).train()), 8),
], ids=["of an input", "behind a pass", "few pixels", "of training's statistics", "that are kept"])  # fmt: skip
def test_others_are_left(here, graphs, model, size):
    compiled(model, (1, 8, size, size))
    assert count(graphs[-1], instance_coefficients) == 0


@pytest.mark.parametrize("dtype, channels_last", [(torch.float32, True), (torch.bfloat16, False), (torch.float64, True)])
def test_other_images_are_not_the_kernels(dtype, channels_last):
    """They are left in a graph, and the operator, where it is called with one, computes it by PyTorch."""
    x = torch.rand(1, 4, 6, 5, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    assert not instances.is_for(x)
    scale, shift = instance_coefficients(x, None, None, torch.zeros(4, dtype=torch.int32), 0, 1e-5)
    assert torch.allclose((x * scale + shift).float(), functional.instance_norm(x.float()), atol=1e-4)


def test_a_graph_that_is_not_recorded_has_none(here, graphs):
    compiled(nn.Sequential(conv(), nn.InstanceNorm2d(8)), (1, 8, 8, 8), **{"convtune.beside": False})
    assert count(graphs[-1], instance_coefficients) == 0


def test_inductors_code_calls_it(here):
    """Weights that change are seen, without a compile."""
    model = nn.Sequential(conv(), nn.InstanceNorm2d(8, affine=True), nn.ReLU(), nn.ReflectionPad2d(1), nn.Conv2d(8, 8, 3))
    fast, x, model = compiled(model, (2, 8, 6, 8))
    with torch.no_grad():
        model[1].weight.add_(0.5), model[1].bias.sub_(0.25)
        y, theirs = fast(x), model(x)
    assert float((y.double() - theirs.double()).norm() / theirs.double().norm()) < 0.01


@on_gpu
def test_bits_on_a_gpu():
    """Between convolutions, launches that overlap give one answer in 20 replays."""
    torch.manual_seed(0)
    layers = [one for _ in range(6) for one in (nn.ReflectionPad2d(1), nn.Conv2d(128, 128, 3), nn.InstanceNorm2d(128), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Conv2d(128, 8, 1)).eval().requires_grad_(False).to("cuda", torch.bfloat16)
    model = model.to(memory_format=torch.channels_last)
    x = torch.randn(1, 128, 56, 56, device="cuda").bfloat16().contiguous(memory_format=torch.channels_last)
    fast = graphed.Graphed(model, (x,), (), {"convtune.force": True}, whole=False)
    with torch.no_grad():
        y, exact = fast(x).clone(), copy.deepcopy(model).double()(x.double())
        assert float((y.double() - exact).norm() / exact.norm()) < 0.03
        for _ in range(20):
            assert torch.equal(fast(x), y)
