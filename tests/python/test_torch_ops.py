"""The operator convtune::conv2d: answers, gradients, tracing, wrong input, weights that change."""

import concurrent.futures
import contextlib
import warnings

import pytest
from processes import resident_bytes
from torch_support import assert_near, double_conv2d, each_device, on_gpu, tensors, torch

import convtune
import convtune.torch
from convtune.caches import PACKS
from convtune.torch.how import How
from convtune.torch.run import pytorch_convolution

OP = torch.ops.convtune.conv2d.default
PLAIN = (1, 1), (1, 1, 1, 1), (1, 1), 1
pytestmark = pytest.mark.usefixtures("exact_products")
GEOMETRIES = [
    dict(),
    dict(stride=(2, 3), padding=(1, 2, 1, 2)),
    dict(padding=(0, 1, 2, 3)),
    dict(dilation=(2, 1), padding=(2, 1, 2, 1)),
    dict(groups=3, k=6),
    dict(kernel=(1, 1)),
    dict(kernel=(5, 2), stride=(4, 1), bias=False),
    dict(x=(1, 1, 8, 8), k=1),
    dict(x=(3, 8, 1, 1), kernel=(1, 1)),
]


@each_device
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_answers_and_memory_format(device, geometry, channels_last):
    how = {name: geometry.get(name, default) for name, default in
           (("stride", (1, 1)), ("padding", (0, 0, 0, 0)), ("dilation", (1, 1)), ("groups", 1))}  # fmt: skip
    made = {name: value for name, value in geometry.items() if name in ("x", "k", "kernel", "bias")}
    x, w, bias = tensors(device, groups=how["groups"], **made)
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    expected = double_conv2d(x, w, bias, **how)
    theirs = pytorch_convolution(x, w, bias, How(**how))
    for y in (OP(x, w, bias, *how.values()), convtune.conv2d(x, w, bias, **how)):
        assert_near(y, expected)
        if channels_last and how["groups"] == 1:
            assert torch._prims_common.check_significant_strides(y, theirs)[0], (y.stride(), theirs.stride())
    assert_near(convtune.conv2d(x, w, bias, activation="relu", **how), expected.relu())


@each_device
def test_memory_in_any_order(device):
    x, w, bias = tensors(device, (2, 6, 16, 20), 5)
    ways = [
        (x[:, ::2], w[:, ::2]),
        (x[:, :, 1:-1, 2:-3], w),
        (x.transpose(2, 3), w.transpose(2, 3)),
        (x.expand(2, 6, 16, 20)[:1].expand(4, -1, -1, -1), w.flip(0)),
        (x, w.to(memory_format=torch.channels_last)),
        (torch.cat([x.flatten(), x.flatten()])[1 : 1 + x.numel()].view(x.shape), w),  # aligned to 4 bytes
    ]
    for a, b in ways:
        assert_near(convtune.conv2d(a, b, bias, padding=1), double_conv2d(a, b, bias, padding=(1, 1, 1, 1)))
        assert_near(OP(a, b, bias, *PLAIN), double_conv2d(a, b, bias, padding=(1, 1, 1, 1)))


@each_device
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("records", [False, True])
def test_opcheck(device, dtype, records):
    x, w, bias = (one.to(getattr(torch, dtype)).requires_grad_(records) for one in tensors(device))
    torch.library.opcheck(OP, (x, w, bias, *PLAIN))
    if dtype == "float32":
        torch.library.opcheck(OP, (x, w, None, (2, 1), (0, 1, 2, 1), (1, 2), 1, "fp32", "relu"))
        last = x.detach().to(memory_format=torch.channels_last).requires_grad_(records)
        torch.library.opcheck(OP, (last, w, bias, *PLAIN))


@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 1, 2, 0)])
@pytest.mark.parametrize("activation", ["none", "relu"])
def test_gradcheck_in_double(padding, activation):
    x, w, bias = (one.double().requires_grad_() for one in tensors("cpu", (1, 2, 5, 4), 2, (3, 2)))
    rest = (2, 1), padding, (1, 1), 1, "auto", activation
    assert torch.autograd.gradcheck(lambda *a: OP(*a, *rest), (x, w, bias))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        eager = lambda *a: convtune.conv2d(*a, stride=(2, 1), padding=padding, activation=activation)  # noqa: E731
        assert torch.autograd.gradcheck(eager, (x, w, bias))
        if activation == "none":
            assert torch.autograd.gradgradcheck(eager, (x, w, bias))


@each_device
@pytest.mark.parametrize("which", [(1, 1, 1), (1, 0, 0), (0, 1, 0), (0, 0, 1)])
def test_gradients_are_pytorchs(device, which):
    ours, theirs = [], []
    for found, way in ((ours, convtune.conv2d), (theirs, torch.conv2d)):
        leaves = [one.requires_grad_(bool(asked)) for one, asked in zip(tensors(device, groups=1), which)]
        y = way(*leaves, stride=2, padding=1)
        assert y.requires_grad
        (y * torch.arange(y.numel(), device=device).view(y.shape)).sum().backward()
        found += [leaf.grad for leaf in leaves]
    for one, other in zip(ours, theirs):
        assert (one is None) == (other is None)
        assert one is None or torch.allclose(one, other, rtol=1e-4, atol=1e-3)


@each_device
def test_compiled_in_one_graph_with_any_batch(device):
    torch._dynamo.reset()
    _, w, bias = tensors(device)
    graphs = []

    def backend(graph, example):
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(
        lambda x: convtune.conv2d(x, w, bias, stride=2, padding=1).relu(), fullgraph=True, dynamic=True, backend=backend
    )
    with torch.no_grad():
        for n in (2, 3, 5, 8):
            x = tensors(device, (n, 3, 13, 11), seed=n)[0]
            assert_near(compiled(x), double_conv2d(x, w, bias, (2, 2), (1, 1, 1, 1)).relu())
    assert len(graphs) == 1


@each_device
def test_compiled_by_inductor_with_gradients(device):
    torch._dynamo.reset()
    w, bias = (one.requires_grad_() for one in tensors(device)[1:])
    compiled = torch.compile(lambda x: convtune.conv2d(x, w, bias, padding=1).sin() * 2, fullgraph=True, dynamic=True)
    for n in (2, 5):
        x = tensors(device, (n, 3, 13, 11), seed=n)[0]
        results = []
        for way in (compiled, lambda x: torch.conv2d(x, w, bias, padding=1).sin() * 2):
            w.grad = bias.grad = None
            y = way(x)
            y.square().sum().backward()
            results.append((y.detach(), w.grad, bias.grad))
        for one, other in zip(*results):
            assert torch.allclose(one, other, rtol=1e-3, atol=1e-3)
        with torch.no_grad():  # an optimiser that PyTorch does not count: the next forward sees it all the same
            w.data.sub_(0.1 * w.grad.sign())


@each_device
def test_other_types_are_pytorchs_with_one_warning(device):
    x, w, bias = (one.double() for one in tensors(device))
    convtune.torch.functional._warned.clear()
    with pytest.warns(UserWarning, match="float64"):
        y = convtune.conv2d(x, w, bias, padding=1)
    assert torch.equal(y, torch.conv2d(x, w, bias, padding=1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        convtune.conv2d(x, w, bias, padding=1)


WRONG = [
    (lambda x, w, b: (x[0, 0], w, b), r"\(13, 11\)"),
    (lambda x, w, b: (x, w[0], b), r"\(3, 3, 3\)"),
    (lambda x, w, b: (x[:, :2], w, b), "2 channels.* 3 for"),
    (lambda x, w, b: (x, w, b[:3]), r"\(3,\).*\(4,\)"),
    (lambda x, w, b: (x, w, b[None]), r"\(1, 4\).*\(4,\)"),
    (lambda x, w, b: (x[:, :, :2, :2], w, b), "2"),
    (lambda x, w, b: (x[:, :, :0], w, b), "0"),
    (lambda x, w, b: (x[:, :0], w[:, :0], b), "0"),
    (lambda x, w, b: (x, w.double(), b), r"w is float64 \(4, 3, 3, 3\).*x float32 \(2, 3, 13, 11\)"),
    (lambda x, w, b: (x, w, b.half()), r"bias is float16 \(4,\).*x float32 \(2, 3, 13, 11\)"),
    (lambda x, w, b: (x.int(), w, b), "int32"),
    (lambda x, w, b: (x, w.numpy(force=True), b), "ndarray"),
    (lambda x, w, b: (x, w, b.numpy(force=True)), "ndarray"),
    (lambda x, w, b: (x, w.to("meta"), b), "meta"),
]


@each_device
@pytest.mark.parametrize("case", range(len(WRONG)))
@pytest.mark.parametrize("records", [False, True])
def test_wrong_input_is_an_exception_with_the_numbers(device, case, records):
    arguments, words = WRONG[case]
    x, w, bias = tensors(device)
    if records:
        w.requires_grad_()
    for _ in range(2):
        with pytest.raises((ValueError, RuntimeError, TypeError), match=words):
            convtune.conv2d(*arguments(x, w, bias))
    assert_near(convtune.conv2d(x, w, bias).detach(), double_conv2d(x, w.detach(), bias))


@on_gpu
def test_devices_mixed():
    x, w, bias = tensors("cuda")
    for wrong in ((x, w.cpu(), bias), (x, w, bias.cpu()), (x.cpu(), w, bias)):
        with pytest.raises((ValueError, RuntimeError), match=r"cpu[^$]*cuda|cuda[^$]*cpu"):
            convtune.conv2d(*wrong)
    assert_near(convtune.conv2d(x, w, bias), double_conv2d(x, w, bias))


@each_device
def test_a_batch_of_none(device):
    x, w, bias = tensors(device, (0, 3, 13, 11))
    y = convtune.conv2d(x, w.requires_grad_(), bias, padding=1)
    assert y.shape == (0, 4, 13, 11)
    y.sum().backward()
    assert w.grad.count_nonzero() == 0


def packings(monkeypatch):
    """How often weights are packed from now on."""
    from convtune.convolution import Convolution

    counted, before = [], Convolution.pack_raw
    monkeypatch.setattr(Convolution, "pack_raw", lambda *a: counted.append(1) or before(*a))
    return counted


@each_device
def test_weights_are_packed_when_they_change(device, monkeypatch):
    x, w, bias = tensors(device)
    counted = packings(monkeypatch)

    def check(times):
        assert_near(convtune.conv2d(x, w, bias), double_conv2d(x, w, bias))
        assert len(counted) == times

    check(1)
    check(1)
    w.mul_(2)
    check(2)
    bias.add_(1)
    check(3)
    check(3)
    w.data = w.data.clone()
    check(4)
    w.data.mul_(3)  # not counted by PyTorch
    convtune.torch.forget_packed(w)
    check(5)
    w.data.mul_(3)
    assert_near(convtune.torch.conv2d(x, w, bias, reuse=False), double_conv2d(x, w, bias))
    assert len(counted) == 6


@each_device
def test_training_packs_every_time(device, monkeypatch):
    x, w, bias = tensors(device)
    with torch.no_grad():
        convtune.conv2d(x, w, bias)
    w.requires_grad_()
    counted = packings(monkeypatch)
    for step in range(1, 4):
        w.data.mul_(1.5)
        assert_near(convtune.conv2d(x, w, bias).detach(), double_conv2d(x, w.detach(), bias))
        assert len(counted) == step
    w.data.mul_(1.5)
    with torch.no_grad():  # evaluated after a step that PyTorch did not count
        assert_near(convtune.conv2d(x, w, bias), double_conv2d(x, w, bias))


@each_device
def test_packed_weights_go_with_their_weight(device):
    PACKS.clear()
    x, w, bias = tensors(device)
    convtune.conv2d(x, w, bias)
    assert len(PACKS) == 1
    del w
    assert len(PACKS) == 0


@each_device
def test_inference_mode(device):
    with torch.inference_mode():
        x, w, bias = tensors(device)
        for _ in range(2):
            assert_near(convtune.conv2d(x, w, bias), double_conv2d(x, w, bias))
            w.mul_(2)  # counted by nobody


@each_device
def test_transforms_are_pytorchs(device):
    x, w, bias = tensors(device)
    loss = lambda w: convtune.conv2d(x, w, bias).square().sum()  # noqa: E731
    theirs = lambda w: torch.conv2d(x, w, bias).square().sum()  # noqa: E731
    assert torch.allclose(torch.func.grad(loss)(w), torch.func.grad(theirs)(w), rtol=1e-4)
    many = torch.stack([w, 2 * w])
    assert torch.allclose(torch.vmap(loss)(many), torch.vmap(theirs)(many), rtol=1e-4)
    ours, found = torch.func.jvp(loss, (w,), (w,))[1], torch.func.jvp(theirs, (w,), (w,))[1]
    assert torch.allclose(ours, found, rtol=1e-4)


@each_device
def test_traced_and_exported(device):
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = convtune.nn.Conv2d(3, 4, 3, padding=1)

        def forward(self, x):
            return self.conv(x).relu()

    model = Model().to(device).eval()
    x = tensors(device)[0]
    with torch.no_grad():
        expected = model(x)
        exported = torch.export.export(model, (x,), dynamic_shapes={"x": {0: torch.export.Dim("n", min=1)}})
        assert "convtune.conv2d" in str(exported.graph)
        assert torch.equal(exported.module()(x), expected)
        assert torch.equal(exported.module()(x[:1]), model(x[:1]))
        with torch.profiler.profile() as profiled:
            model(x)
        assert any("convtune::conv2d" in event.key for event in profiled.key_averages())


@each_device
def test_the_same_bits_every_time(device):
    x, w, bias = tensors(device, (4, 8, 20, 20), 16)
    with deterministic():
        first = convtune.conv2d(x, w, bias, padding=1)
        for _ in range(20):
            assert torch.equal(convtune.conv2d(x, w, bias, padding=1), first)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@each_device
def test_many_threads(device):
    x, w, bias = tensors(device, (2, 8, 20, 20), 8)
    expected = double_conv2d(x, w, bias)

    def work(seed):
        for step in range(50):
            assert_near(convtune.conv2d(x, w, bias), expected)
            if step % 10 == seed % 10:
                convtune.torch.forget_packed(w)
        return True

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(4)))


@each_device
def test_100000_calls_keep_nothing(device):
    x, w, bias = tensors(device, (1, 3, 5, 5), 2)
    changing = w.clone().requires_grad_()

    def calls(count):
        for step in range(count):
            with torch.no_grad():
                convtune.conv2d(x, w, bias)
            if step % 10 == 0:
                convtune.conv2d(x, changing, bias).sum().backward()
                changing.grad = None
        if device == "cuda":
            torch.cuda.synchronize()

    calls(5000)
    before = resident_bytes()
    on_device = torch.cuda.mem_get_info()[0] if device == "cuda" else 0
    calls(100_000)
    kept = resident_bytes() - before
    assert kept < 4 << 20, f"{kept} bytes of the process"
    if device == "cuda":
        taken = on_device - torch.cuda.mem_get_info()[0]
        assert taken <= 2 << 20, f"{taken} bytes of the GPU, other processes' among them"


def test_inductor_hands_tensors_over_as_they_were_traced():
    """Their memory format decides the output's. Of conv2d_packed the plan decides it, and its own lowering asks for that."""
    wanted = getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)
    for name in ("conv2d", "conv2d_fused", "conv2d_forward", "conv_gradients"):
        assert wanted in getattr(torch.ops.convtune, name).default.tags, name
