"""convtune.conv2d in graphs for any size, where groups, stride, padding or dilation follow from a tensor's shape."""

import itertools

import pytest
from torch_support import torch

import convtune
import convtune.torch.backend  # noqa: F401  (registers it)
from torch.fx.experimental.proxy_tensor import make_fx

F = torch.nn.functional


def of_channels(conv, x):
    return conv(x, torch.ones(x.shape[1], 1, 3, 3), groups=x.shape[1])


def of_the_batch(conv, x):  # a filter an image, as modulated convolutions have
    return conv(x.reshape(1, -1, *x.shape[2:]), torch.ones(x.shape[0] * 5, 3, 3, 3), groups=x.shape[0], padding=1)


def of_stride(conv, x):
    return conv(x, torch.ones(4, 3, 3, 3), stride=x.shape[2] // 4)


def of_padding(conv, x):
    return conv(x, torch.ones(4, 3, 3, 3), padding=x.shape[2] // 3)


def of_dilation(conv, x):
    return conv(x, torch.ones(4, 3, 3, 3), dilation=x.shape[2] // 5)


def of_pairs(conv, x):
    how = dict(stride=(x.shape[2] // 4, 1), padding=(1, x.shape[2] // 6), dilation=[1, x.shape[3] // 5])
    return conv(x, torch.ones(4, 3, 3, 3), **how)


def of_same(conv, x):
    return conv(x, torch.ones(4, 3, 3, 3), padding="same", dilation=x.shape[2] // 5)


def of_all(conv, x):
    h, c = x.shape[2], x.shape[1]
    return conv(x, torch.ones(2 * c, 1, 3, 3), stride=h // 4, padding=h // 3, dilation=h // 5, groups=c)


SIZES = [(2, 3, 9, 9), (3, 3, 12, 12), (2, 3, 17, 18)]
CHANNELS = [(2, 3, 9, 9), (2, 4, 12, 12), (3, 5, 17, 18)]
CASES = [(of_channels, CHANNELS), (of_the_batch, SIZES), (of_stride, SIZES), (of_padding, SIZES), (of_dilation, SIZES),
         (of_pairs, SIZES), (of_same, SIZES), (of_all, CHANNELS)]  # fmt: skip
each_case = pytest.mark.parametrize(("work", "shapes"), CASES, ids=lambda one: getattr(one, "__name__", ""))


def assert_same(got, work, x):
    torch.testing.assert_close(got, work(F.conv2d, x), atol=1e-3, rtol=1e-4)


@each_case
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled(work, shapes, backend):
    for dynamic, fullgraph, records in itertools.product((None, True), (True, False), (True, False)):
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: work(convtune.conv2d, x), backend=backend, dynamic=dynamic, fullgraph=fullgraph)
        for shape in shapes:
            x = torch.rand(shape, requires_grad=records)
            y = compiled(x)
            assert_same(y, work, x)
            if records:
                own, theirs = (torch.autograd.grad(one.square().sum(), x)[0] for one in (y, work(F.conv2d, x)))
                torch.testing.assert_close(own, theirs, atol=1e-2, rtol=1e-3)


@pytest.mark.parametrize("backend", ["inductor", "convtune"])
def test_compiled_to_code(backend):
    for work, shapes in CASES:
        torch._dynamo.reset()
        compiled = torch.compile(lambda x: work(convtune.conv2d, x), backend=backend, dynamic=True, fullgraph=True)
        for shape in shapes:
            x = torch.rand(shape)
            assert_same(compiled(x), work, x)


@each_case
@pytest.mark.parametrize("strict", [False, True])
def test_exported(work, shapes, strict):
    class Module(torch.nn.Module):
        def forward(self, x):
            return work(convtune.conv2d, x)

    any_size = ({axis: torch.export.Dim.AUTO for axis in range(4)},)
    exported = torch.export.export(Module(), (torch.rand(shapes[-1]),), dynamic_shapes=any_size, strict=strict)
    for program in (exported, exported.run_decompositions()):
        for shape in shapes:
            x = torch.rand(shape)
            assert_same(program.module()(x), work, x)


@each_case
def test_traced_with_symbols(work, shapes):
    graph = make_fx(lambda x: work(convtune.conv2d, x), tracing_mode="symbolic")(torch.rand(shapes[-1]))
    for shape in shapes:
        x = torch.rand(shape)
        assert_same(graph(x), work, x)


def test_the_fused_operator():
    import convtune.torch.fused  # noqa: F401  (defines it)

    def fused(x):
        how = (1, x.shape[2] // 4), (1, 1, 1, 1), (1, 1), x.shape[1]
        return torch.ops.convtune.conv2d_fused(x, torch.ones(x.shape[1], 1, 3, 3), None, None, *how, "auto", "relu")

    compiled = torch.compile(fused, backend="aot_eager", dynamic=True)
    for shape in CHANNELS:
        x = torch.rand(shape) - 0.5
        expected = F.conv2d(x, torch.ones(shape[1], 1, 3, 3), None, (1, shape[2] // 4), 1, 1, shape[1]).relu()
        torch.testing.assert_close(compiled(x), expected)


def test_numbers_are_still_checked():
    x = torch.rand(1, 1, 4, 4)
    compiled = torch.compile(lambda x: convtune.conv2d(x, torch.ones(1, 1, 3, 3), stride=(1, 1, 1)), backend="eager")
    for call in (compiled, lambda x: convtune.conv2d(x, torch.ones(1, 1, 3, 3), stride=1.5)):
        with pytest.raises(Exception, match="stride"):
            call(x)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_slope_that_is_a_symbol():
    """PyTorch makes a graph for any slope once a function is called with a second one: the activation stays a node of it."""
    conv = torch.nn.Conv1d(8, 8, 3, padding=1).eval().requires_grad_(False)

    def step(x, slope):
        return F.leaky_relu(conv(x), slope)

    fast = torch.compile(step, backend="convtune", options={"convtune.force": True})
    x = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for slope in (0.1, 0.2, 0.3, 0.3):
            assert torch.allclose(fast(x, slope), step(x, slope), atol=1e-5)


def test_a_slope_in_a_graph_for_any_size():
    class Leaky(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.act = torch.nn.Conv1d(8, 8, 3, padding=1), torch.nn.LeakyReLU(0.1)

        def forward(self, x):
            return self.act(self.conv(x))

    model = Leaky().eval().requires_grad_(False)
    fast = torch.compile(model, backend="convtune", dynamic=True, options={"convtune.force": True})
    x = torch.randn(2, 8, 40, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        for rows in (x, x[:, :, :17], x[:1]):
            assert torch.allclose(fast(rows), model(rows), atol=1e-5)
