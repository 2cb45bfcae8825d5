"""convtune.conv2d in half precision: what is rounded how often, gradients, and residuals that do not fit."""

import warnings

import pytest
from torch_support import double_conv2d, each_device, tensors, torch

import convtune
from convtune.torch.layout import lies, output_last
from convtune.torch.run import activated


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("adds", [False, True])
def test_half_precision_is_rounded_once(device, dtype, channels_last, adds):
    """By convtune, with a residual: so that each output is the nearest to the exact one, but for sums in float32."""
    x, w, bias = (one.to(dtype) for one in tensors(device, (2, 16, 13, 11), 24, (3, 3)))
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    z = torch.rand(2, 24, 13, 11, device=device).to(dtype) if adds else None
    exact = double_conv2d(x, w, bias, padding=(1, 1, 1, 1))
    exact = (exact if z is None else exact + z.double()).relu()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = convtune.conv2d(x, w, bias, padding=1, activation="relu", residual=z)
        again = convtune.conv2d(x, w, bias, padding=1, activation="relu", residual=z)
    assert y.dtype is dtype and lies(y, output_last(x, w)) and torch.equal(y, again)
    unit = torch.finfo(dtype).eps
    assert ((y.double() - exact).abs() <= 0.5001 * unit * exact.abs() + 1e-5).all()
    how = (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", "relu", "", adds
    assert convtune.torch.convolution_of(x, w, bias, *how) is not None


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("activation", ["none", "silu"])
def test_gradients_in_half_precision(device, dtype, activation):
    x, w, bias = (one.to(dtype).requires_grad_() for one in tensors(device, (2, 8, 9, 7), 8))
    z = torch.rand(2, 8, 9, 7, device=device).to(dtype).requires_grad_()
    inputs = x, w, bias, z
    y = convtune.conv2d(x, w, bias, padding=1, activation=activation, residual=z)
    doubles = [one.detach().double().requires_grad_() for one in inputs]
    expected = double_conv2d(*doubles[:3], padding=(1, 1, 1, 1)) + doubles[3]
    expected = activated(expected, activation)
    seed = torch.rand_like(y)
    pairs = zip(torch.autograd.grad(y, inputs, seed), torch.autograd.grad(expected, doubles, seed.double()))
    for got, exact in [(y, expected), *pairs]:
        assert got.dtype is dtype
        assert (got.double() - exact).abs().max() <= 8 * torch.finfo(dtype).eps * exact.abs().max()


@each_device
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("records", [False, True])
def test_residuals_are_not_broadcast(device, dtype, records):
    x, w, bias = (one.to(dtype).requires_grad_(records) for one in tensors(device, (2, 8, 9, 7), 8))
    right = torch.rand(2, 8, 9, 7, device=device, dtype=dtype)
    for wrong in (right[:1], right[:, :, :1, :1], right.repeat(2, 1, 1, 1), right.half(), 1.0):
        with pytest.raises(convtune.InvalidArgument, match="residual"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            convtune.conv2d(x, w, bias, padding=1, residual=wrong)
