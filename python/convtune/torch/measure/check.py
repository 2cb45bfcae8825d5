"""The check that convtune's answer for a layer is as right as PyTorch's, before the two compete."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import Unsupported

__all__ = ["check"]

# Largest difference from PyTorch's answer over that answer's root mean square: rounding, and no more than that.
_TOLERANCE = {"tf32": 2e-2, "fp32": 2e-3}
# In half precision, where a problem's precision is that of its type, PyTorch rounds after each step: also so much of
# each output, a few units in its last place.
_OF_HALF = {torch.float16: (2e-2, 2.0**-8), torch.bfloat16: (5e-2, 2.0**-5)}
_IMAGES = 2  # images for which the exact answer is computed
_MORE = 1.5  # times PyTorch's error


def _exact(sides: Any) -> Tensor:
    """The exact answer without cuDNN's search for its best way, which in double precision takes longer than all else."""
    searches, torch.backends.cudnn.benchmark = torch.backends.cudnn.benchmark, False
    try:
        return sides.exact(_IMAGES)  # type: ignore[no-any-return]
    finally:
        torch.backends.cudnn.benchmark = searches


def _size(tensor: Tensor) -> float:
    return float(tensor.double().square().mean().sqrt().clamp_min(1e-30))


def check(sides: Any, precision: str, got: Tensor) -> None:
    """Raises Unsupported where `got` differs from PyTorch's answer by more than rounding, or, in half precision, errs
    more than PyTorch's does beside the answer in double precision."""
    expected = sides.expected().detach()
    if not expected.numel():
        return
    tolerance, of_each = _OF_HALF.get(got.dtype, (_TOLERANCE.get(precision, 5e-2), 0.0))
    difference = (got.detach().float() - expected.float()).abs() - of_each * expected.float().abs()
    error = float(difference.max() / expected.float().square().mean().sqrt().clamp_min(1e-30))
    if not error <= tolerance:
        raise Unsupported(f"its answer differs from PyTorch's by {error:.2g} of the root mean square")
    if got.dtype in _OF_HALF:
        exact = _exact(sides)
        same = [one[tuple(map(slice, exact.shape[:3]))].double() for one in (expected, got.detach())]
        theirs, own = (_size(one - exact) / _size(exact) for one in same)
        if not own <= _MORE * theirs + 1e-4:
            raise Unsupported(f"its answer errs by {own:.2g} of the root mean square, PyTorch's by {theirs:.2g}")
