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
