"""Norms folded into weights of half precision: only where that type has the digits for it, also of what is written later.
PyTorch rounds between the two, a folded norm rounds the weights once more: neither is nearer to double precision by much
more than twice."""

import copy

import pytest
from torch_support import torch

import convtune.torch.backend  # registers the backend
from convtune.torch.folding import Fold, Folded
from convtune.torch.modules import whole
from convtune.torch.modules.structure import followers

nn = torch.nn
# float16's weights of about 0.01 times 1 / sqrt(these): below 6e-5 digits are lost, above 65504 all.
MOST = 2.5
VARIANCES = (1e-12, 1e-9, 1e-4, 1.0, 1e4, 1e6, 1e8)


def made(variance, dtype, eps=1e-14):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(16, 16, 3, bias=False), nn.BatchNorm2d(16, eps=eps), nn.ReLU()).eval()
    with torch.no_grad():
        model[0].weight.normal_(0, 0.01)
    model = model.to(dtype)
    model[1].float()
    model[1].running_var.fill_(variance)
    return model


def error(y, model, x):
    exact = copy.deepcopy(model).double()(x.double())
    return float((y.double() - exact).square().mean().sqrt() / exact.square().mean().sqrt())


def as_optimized(model):
    for convolution, behind in followers(model).items():
        whole.swap(convolution, "", False, behind)
    return model


def compiled(model):
    return torch.compile(model, backend="convtune", options={"convtune.force": True})


@pytest.mark.parametrize("way", [as_optimized, compiled])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_as_near_as_pytorchs_own(way, dtype, afresh):
    x = torch.rand(2, 16, 9, 9).to(dtype)
    for variance in VARIANCES:
        plain, scale = made(variance, dtype), min(1.0, variance**0.5)  # so that outputs are finite
        torch._dynamo.reset()
        ours = way(made(variance, dtype))
        with torch.no_grad():
            theirs, own = error(plain(x * scale), plain, x * scale), error(ours(x * scale), plain, x * scale)
        assert own <= MOST * theirs + 1e-6, (variance, own, theirs)


@pytest.mark.parametrize("way", [as_optimized, compiled])
def test_what_is_written_later(way, afresh):
    x = torch.rand(2, 16, 9, 9).half()
    plain, own = made(1.0, torch.float16), made(1.0, torch.float16)
    ours = way(own)
    for variance in (1.0, 1e6, 1e8, 1.0, 1e-9, 1e-4):
        with torch.no_grad():
            for model in (plain, own):
                model[1].running_var.fill_(variance)
            small = (x * min(1.0, variance**0.5)).half()
            own_error, theirs = error(ours(small), plain, small), error(plain(small), plain, small)
        assert own_error <= MOST * theirs, (variance, own_error, theirs)


@pytest.mark.parametrize("scale, fits", [(1.0, True), (1e-3, True), (1e-5, False), (1e7, False), (0.0, True)])
def test_what_fits(scale, fits):
    torch.manual_seed(0)
    weight, gamma = torch.rand(4, 3, 3, 3).half(), torch.ones(4)
    gamma[2] = scale  # one channel is enough
    places = 0, None, None, None, 1, None
    assert Folded([Fold(places, 0.0, torch.float16)], [weight, gamma], []).fits is fits
    assert Folded([Fold(places, 0.0, torch.bfloat16)], [weight, gamma], []).fits
    folded = Folded([Fold(places, 0.0, torch.float16)], [weight, gamma], [])
    gamma[2] = 1.0
    assert folded.refresh([weight, gamma]) and folded.fits
    gamma[1] = float("nan")
    assert folded.refresh([weight, gamma]) and not folded.fits
