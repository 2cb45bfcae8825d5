"""Eager calls under autocast: in half precision by convtune's kernels, with weights that follow the model's."""

import pytest
from torch_support import each_device, tensors, torch

import convtune
import convtune.torch

OP = torch.ops.convtune.conv2d.default
PLAIN = (1, 1), (1, 1, 1, 1), (1, 1), 1


def cast_as(dtype, *them):
    return [one.to(dtype).float() for one in them]


@each_device
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype):
    """Half precision with one rounding, of what autocast would cast; the cast weights follow the model's."""
    x, w, bias = tensors(device)
    residual = torch.rand(torch.conv2d(x, w, padding=1).shape, device=device)

    def near(y, w, *residual):
        right = torch.conv2d(*cast_as(dtype, x, w), bias, padding=1) + sum(cast_as(dtype, *residual))
        assert y.dtype == dtype
        assert (y.float() - right).abs().max() <= 2 * torch.finfo(dtype).eps * right.abs().max()

    with torch.autocast(device, dtype), torch.no_grad():
        for _ in range(2):
            near(convtune.conv2d(x, w, bias, padding=1), w)
            near(OP(x, w, bias, *PLAIN), w)
            near(convtune.conv2d(x, w, bias, padding=1, residual=residual), w, residual)
            w.neg_()
        w.data.mul_(2)
        convtune.torch.forget_packed(w)
        near(convtune.conv2d(x, w, bias, padding=1), w)
        near(convtune.conv2d(x.to(dtype), w.to(dtype), bias, padding=1), w)
        double = convtune.conv2d(*(one.double() for one in (x, w, bias)), padding=1)
        assert double.dtype is torch.float64
    assert convtune.conv2d(x, w, bias, padding=1).dtype == torch.float32


@each_device
def test_gradients_under_autocast(device):
    x, w, bias = (one.requires_grad_() for one in tensors(device))
    grads = []
    for conv2d in (convtune.conv2d, torch.conv2d):
        with torch.autocast(device, torch.bfloat16):
            y = conv2d(x, w, bias, padding=1)
        grads.append(torch.autograd.grad(y.float().square().sum(), (x, w, bias)))
    for one, other in zip(*grads):
        assert one.dtype is other.dtype is torch.float32
        assert (one - other).abs().max() <= 0.03 * other.abs().max()


def autocast(x, w, bias=None, **more):
    with torch.autocast("cpu", torch.bfloat16):
        return convtune.torch.conv2d(x, w, bias, padding=1, **more).float()


def theirs(x, w, bias=None):
    with torch.autocast("cpu", torch.bfloat16):
        return torch.conv2d(x, w, bias, padding=1).float()


def is_near(one, other):
    return (one - other).abs().max() <= 0.02 * other.abs().max()


@torch.no_grad()
def test_nothing_of_the_models_is_written():
    x, w, bias = tensors("cpu")
    other, before = bias + 1, bias.clone()
    module = convtune.nn.Conv2d.from_torch(torch.nn.Conv2d(3, 4, 3, padding=1)).eval()
    own = module.bias.clone()
    for one in (bias, other, bias):
        assert is_near(autocast(x, w, one), theirs(x, w, one))
        with torch.autocast("cpu", torch.bfloat16):
            module(torch.rand(1, 3, 8, 8))
            torch.func.functional_call(module, {"bias": own + 1}, (torch.rand(1, 3, 8, 8),))
    w.neg_()
    autocast(x, w, bias)
    assert torch.equal(bias, before) and torch.equal(module.bias, own) and bias._version == 0


def test_kept_weights_follow_the_model():
    x, w, bias = tensors("cpu")
    with torch.no_grad():
        autocast(x, w, bias)
        w.data.mul_(-3)  # which nobody counts
        assert is_near(autocast(x, w, bias, reuse=False), theirs(x, w, bias))
        w.data.mul_(-3)
        convtune.clear_caches()
        assert is_near(autocast(x, w, bias), theirs(x, w, bias))
        w.data.mul_(-3)
    w.requires_grad_()
    autocast(x, w, bias).sum().backward()
    with torch.no_grad():
        assert is_near(autocast(x, w, bias), theirs(x, w, bias))


def test_in_all_modes():
    """Weights that one mode has kept serve the others, and weights that change between forward and backward."""
    x, w, bias = tensors("cpu")
    with torch.inference_mode():
        autocast(x, w, bias)
    w.neg_()
    with torch.no_grad():
        assert is_near(autocast(x, w, bias), theirs(x, w, bias))
    x.requires_grad_()
    expected = torch.autograd.grad(theirs(x, w, bias).sum(), x)[0]
    y = autocast(x, w, bias)
    with torch.no_grad():
        w.mul_(5)
        autocast(x, w, bias)
    assert is_near(torch.autograd.grad(y.sum(), x)[0], expected)
    with torch.inference_mode():
        untracked = torch.rand_like(w)
    for _ in range(2):
        assert is_near(autocast(x, untracked, bias).detach(), theirs(x, untracked, bias).detach())


@torch.no_grad()
def test_traces_hold_the_weight_itself():
    x, w, _ = tensors("cpu")
    traced = torch.fx.experimental.proxy_tensor.make_fx(lambda x, w: autocast(x, w))(x, w)
    assert is_near(traced(x, -w), theirs(x, -w))


def test_float64_is_no_weight_of_float32():
    x, w, _ = tensors("cpu")
    with pytest.raises(convtune.InvalidArgument, match="float64"):
        autocast(x, w.double())
