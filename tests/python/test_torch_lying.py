"""Weights that a gradient's plan reads as they lie, without a GPU: which of them are given to it as they are; and gradients of weights
that a plan stores so."""

import ctypes

import pytest

torch = pytest.importorskip("torch")

from convtune.convolution import Convolution  # noqa: E402
from convtune.tensors import lying  # noqa: E402
from convtune.torch.backward import _of_weight, gradient_problem  # noqa: E402
from convtune.torch.how import How  # noqa: E402
from convtune.torch.run import Planned  # noqa: E402


class Reads:
    """Stands for a convolution whose packed weights are the filter, channels last."""

    reads_weights = True


def at_256(*shape, last=True):
    """A filter that begins at a multiple of 256 bytes, as on a GPU."""
    numbers = torch.zeros(256 + int(torch.Size(shape).numel()))
    begin = (-numbers.data_ptr() % 256) // 4
    some = numbers[begin : begin + int(torch.Size(shape).numel())]
    k, c, *taps = shape
    return some.view(k, *taps, c).movedim(-1, 1) if last else some.view(shape)


def test_a_filter_that_lies_so_is_given_as_it_is():
    for shape in ((8, 16, 3, 3), (8, 16, 3, 1, 3), (8, 16, 3)):
        w = at_256(*shape)
        assert lying(Reads, w, w) == w.data_ptr()
        assert lying(Reads, at_256(*shape, last=False), w) == 0
    w = at_256(8, 16, 1, 1, last=False)  # lies both ways
    assert lying(Reads, w, w) == w.data_ptr()


def test_others_are_packed():
    w = at_256(8, 16, 3, 3)
    assert w[1:].data_ptr() % 256 and lying(Reads, w[1:], w) == 0
    assert lying(Reads, at_256(8, 17, 3, 3)[:, 1:], w) == 0
    assert lying(Reads, torch._neg_view(w), w) == 0
    packs = type("Packs", (), {"reads_weights": False})
    assert lying(packs, w, w) == 0


@pytest.mark.parametrize("shape", ((8, 4, 3, 3), (8, 4, 1, 1)))
@pytest.mark.parametrize("last", (False, True))
def test_layers_whose_weights_change_read_them_as_they_lie(shape, last, monkeypatch):
    from convtune.torch import run as running

    w, x = at_256(*shape, last=last), torch.zeros(2, 4, 6, 6).to(memory_format=torch.channels_last)
    asked = []
    monkeypatch.setattr(running, "pack", lambda convolution, weight, *_: (asked.append("packed"), 256))
    monkeypatch.setattr(running, "packed_weights", lambda convolution, weight, *_: (asked.append("kept"), 512))
    monkeypatch.setattr(running, "launched", lambda planned, image, packed, *_: packed)
    how = How(stride=(1, 1), padding=(1,) * 4, dilation=(1, 1), reuse=False)
    problem = running.problem_for(x, w, how, None)
    reads = type("ReadsOf", (Reads,), {"problem": problem})
    monkeypatch.setattr(running.PLANS, "peek", lambda key: Planned(reads, problem))
    lies = last or shape[-1] == 1
    assert running.run(x, w, None, how) == (w.data_ptr() if lies else 256)
    assert asked == ([] if lies else ["packed"])
    assert running.run(x, w, None, How(stride=(1, 1), padding=(1,) * 4, dilation=(1, 1))) == 512  # weights that stay


class Stores:
    """Stands for a convolution that stores dw in the order that it is asked for: a CPU's, whose dw is turned behind it."""

    def __init__(self, own, shape):
        self.own, self.problem, self.shape, self.asked = own, own.problem, shape, []

    can_lay_dw_last = True

    def run_tensors_raw(self, *, dw, dw_last, **others):
        usual = torch.empty(self.shape)
        self.own.run_tensors_raw(dw=usual.data_ptr(), **others)
        stored = usual.movedim(1, -1).contiguous() if dw_last else usual
        ctypes.memmove(dw, stored.data_ptr(), 4 * stored.numel())
        self.asked.append(dw_last)


@pytest.mark.parametrize("last", (False, True))
@pytest.mark.parametrize("shape", ((8, 4, 3, 3), (8, 4, 1, 1), (8, 4, 2, 3, 3)))
def test_gradients_of_weights_that_lie_channels_last_are_stored_so(shape, last):
    axes = len(shape) - 2
    form = {2: torch.channels_last, 3: torch.channels_last_3d}[axes] if last else torch.contiguous_format
    how = How(stride=(1,) * axes, padding=(1,) * 2 * axes, dilation=(1,) * axes)
    numbers = torch.Generator().manual_seed(3)
    x, w = (torch.randint(-3, 4, one, generator=numbers).float().to(memory_format=form) for one in ((2, 4, *(6,) * axes), shape))
    convolve = {2: torch.nn.functional.conv2d, 3: torch.nn.functional.conv3d}[axes]
    w.requires_grad_()
    y = convolve(x, w, padding=1)
    dy = torch.randint(-3, 4, y.shape, generator=numbers).float().to(memory_format=form)
    (expected,) = torch.autograd.grad(y, w, dy)
    problem = gradient_problem("w", x, w, how)
    stores = Stores(Convolution(problem, "cpu", "reference"), shape)
    with torch.no_grad():
        dw, _ = _of_weight(Planned(stores, problem, axes=axes), dy, x, w.detach(), None, False)
    assert torch.equal(dw, expected) and dw.is_contiguous(memory_format=form)
    assert stores.asked == [last] or shape[-1] == 1  # which lies both ways
