"""Weights that a gradient's plan reads as they lie, without a GPU: which of them are given to it as they are."""

import pytest

torch = pytest.importorskip("torch")

from convtune.tensors import lying  # noqa: E402


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
