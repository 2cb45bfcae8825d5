"""convtune.conv3d on PyTorch's tensors: formats, padding, gradients, autocast, torch.compile."""

import pytest
from torch_support import assert_near, each_device, on_gpu, tensors, torch

import convtune
import convtune.torch
from convtune.nn import Conv3d
from convtune.torch import convolution_of

F = torch.nn.functional
CAUSAL = (2, 1, 1, 0, 1, 1)


def pytorchs(x, w, bias, stride, padding, dilation, groups):
    if isinstance(padding, tuple) and len(padding) == 6:
        front, top, left, back, bottom, right = padding
        x, padding = F.pad(x, (left, right, top, bottom, front, back)), 0
    return F.conv3d(x, w, bias, stride, padding, dilation, groups)


SETTINGS = {
    "one number": ((3, 3, 3), 1, 1, 1, 1),
    "causal": ((3, 3, 3), 1, CAUSAL, 1, 1),
    "frames alone": ((3, 1, 1), 1, (2, 0, 0, 0, 0, 0), 1, 1),
    "images alone": ((1, 3, 3), (1, 2, 2), (0, 1, 1), 1, 2),
    "points": ((1, 1, 1), 1, 0, 1, 1),
    "same": ((2, 3, 1), 1, "same", (1, 2, 1), 1),
    "valid, depthwise": ((3, 2, 2), (2, 1, 1), "valid", 1, 4),
}


@each_device
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last_3d"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.filterwarnings("ignore:convtune has no kernels")
def test_it_computes_what_pytorch_does(device, last, dtype, settings, exact_products):
    kernel, *how = settings
    form = torch.channels_last_3d if last else torch.contiguous_format
    x, w, bias = tensors(device, (2, 4, 5, 9, 7), 8, kernel, how[-1])
    x, w, bias = x.to(dtype, memory_format=form), w.to(dtype), bias.to(dtype)
    y, expected = convtune.conv3d(x, w, bias, *how), pytorchs(x, w, bias, *how)
    assert y.dtype == dtype and y.is_contiguous(memory_format=form)
    if dtype is torch.bfloat16:
        torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
    else:
        assert_near(y, expected)
    torch.testing.assert_close(convtune.torch.conv3d(x[0], w, bias, *how), y[0], rtol=2e-2, atol=2e-2)
    assert torch.equal(torch.ops.convtune.conv3d(*written(x, w, bias, *how)), y)


def written(x, w, bias, *how):
    return x, w, bias, *convtune.torch.how.written(w.shape[2:], *how).geometry


@pytest.mark.parametrize("shape", [(1, 4, 1, 6, 5), (2, 4, 1, 6, 5)])
@pytest.mark.parametrize("last", [False, True])
def test_a_single_plane_keeps_its_axis(shape, last):
    form = torch.channels_last_3d if last else torch.contiguous_format
    x, w, bias = tensors("cpu", shape, 8, (1, 3, 3))
    x = x.contiguous(memory_format=form)
    residual = torch.rand(shape[0], 8, 1, 4, 3)
    y = convtune.conv3d(x, w, bias, activation="relu", residual=residual)
    assert y.is_contiguous(memory_format=form)
    assert_near(y, F.relu(F.conv3d(x, w, bias) + residual))
    assert convtune.conv3d(x[:0], w, bias).shape == (0, 8, 1, 4, 3)


def test_frames_and_images_alone_are_convtunes_own():
    for kernel in ((3, 1, 1), (1, 1, 1)):
        x, w, bias = tensors("cpu", (2, 8, 5, 9, 7), 8, kernel)
        made = convolution_of(x, w, bias, 1, 0, 1, 1)
        assert made is not None and made.plan.algorithm not in ("onednn", "reference")


def test_weights_are_packed_when_they_change():
    x, w, bias = tensors("cpu", (1, 8, 4, 5, 5), 8, (3, 1, 1))
    before = convtune.conv3d(x, w, bias)
    assert torch.equal(convtune.conv3d(x, w, bias), before)
    w.mul_(2)
    assert_near(convtune.conv3d(x, w, bias), F.conv3d(x, w, bias))


@pytest.mark.parametrize(
    "x, w, words",
    [
        ((4, 7, 6), (6, 4, 3, 3, 3), r"x has the shape \(4, 7, 6\); it must be \(N, C, D, H, W\)"),
        ((1, 4, 4, 7, 6), (6, 4, 3, 3), r"w has the shape \(6, 4, 3, 3\); it must be \(K, C/groups, T, R, S\)"),
        ((1, 4, 4, 7, 6), (6, 3, 3, 3, 3), "x has 4 channels, but w has 3 for each of 1 groups"),
        ((1, 4, 2, 7, 6), (6, 4, 3, 3, 3), "3"),
    ],
)
def test_what_is_wrong_is_named(x, w, words):
    with pytest.raises(convtune.InvalidArgument, match=words):
        convtune.conv3d(torch.rand(x), torch.rand(w))
    with pytest.raises((convtune.InvalidArgument, RuntimeError)):
        torch.compile(convtune.conv3d, backend="eager")(torch.rand(x), torch.rand(w))
    with pytest.raises(convtune.InvalidArgument, match="it must be"):
        convtune.conv2d(torch.rand(1, 4, 4, 7, 6), torch.rand(6, 4, 3, 3, 3))


@each_device
@pytest.mark.parametrize("kernel, padding", [((3, 3, 3), CAUSAL), ((3, 1, 1), 1), ((2, 2, 2), "same")])
def test_gradients(device, kernel, padding, exact_products):
    grads = []
    for convolve in (convtune.conv3d, pytorchs):
        x, w, bias = (one.requires_grad_() for one in tensors(device, (2, 4, 4, 6, 5), 6, kernel))
        y = convolve(x, w, bias, 1, padding, 1, 1)
        y.square().sum().backward()
        grads.append((x.grad, w.grad, bias.grad))
    for ours, theirs in zip(*grads):
        assert_near(ours, theirs)


@pytest.mark.filterwarnings("ignore:convtune has no kernels")
def test_gradcheck():
    x, w, bias = (one.double().requires_grad_() for one in tensors("cpu", (1, 2, 3, 3, 4), 2, (2, 2, 2)))
    operator = torch.ops.convtune.conv3d

    def convolve(*of):
        return operator(*of, [1, 1, 1], [1, 0, 0, 0, 1, 0], [1, 1, 1], 1)

    assert torch.autograd.gradcheck(convolve, (x, w, bias))
    assert torch.autograd.gradgradcheck(convolve, (x, w, bias))


def test_autocast():
    x, w, bias = tensors("cpu", (1, 8, 4, 5, 5), 8, (3, 1, 1))
    with torch.autocast("cpu", torch.bfloat16):
        y, expected = convtune.conv3d(x, w, bias), F.conv3d(x, w, bias)
        compiled = torch.compile(convtune.conv3d, backend="eager", fullgraph=True)(x, w, bias)
    assert y.dtype == compiled.dtype == torch.bfloat16
    torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(compiled, y, rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(backend, dynamic):
    module = Conv3d(4, 6, (3, 3, 3), padding=1)

    def model(x, w, bias):
        return module(F.silu(convtune.conv3d(x, w, bias, 1, CAUSAL, activation="relu")))

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=backend, fullgraph=True, dynamic=dynamic)
    for frames in (2, 3):
        x, w, bias = tensors("cpu", (1, 4, frames, 6, 5), 4, (3, 3, 3))
        w.requires_grad_()
        assert_near(compiled(x, w, bias), model(x, w, bias))
        own, theirs = (torch.autograd.grad(run(x, w, bias).square().sum(), w)[0] for run in (compiled, model))
        assert_near(own, theirs)
    last = x.contiguous(memory_format=torch.channels_last_3d)
    with torch.no_grad():
        assert compiled(last, w, bias).stride() == model(last, w, bias).stride()


def test_the_operator_keeps_pytorchs_rules():
    x, w, bias = tensors("cpu", (1, 4, 3, 6, 5), 6, (3, 3, 3))
    arguments = written(x, w.requires_grad_(), bias, 1, CAUSAL, 1, 1)
    torch.library.opcheck(torch.ops.convtune.conv3d.default, arguments)
    with torch.utils.flop_counter.FlopCounterMode(display=False) as ours:
        torch.ops.convtune.conv3d(*arguments)
    assert ours.get_total_flops() == 2 * 6 * 3 * 6 * 5 * 4 * 27


@on_gpu
def test_a_cuda_graph_records_what_was_planned():
    x, w, bias = (one.half() for one in tensors("cuda", (1, 32, 3, 12, 10), 32, (3, 3, 3)))
    expected = convtune.conv3d(x, w, bias, 1, CAUSAL)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = convtune.conv3d(x, w, bias, 1, CAUSAL)
    graph.replay()
    assert torch.equal(y, expected)
    with pytest.raises(convtune.Error, match="has not run on cuda:0 yet"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        convtune.conv3d(x[..., 1:], w, bias, 1, CAUSAL)
