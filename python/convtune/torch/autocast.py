"""Autocast: what PyTorch casts for its convolution, cast for convtune's. PyTorch makes the weights of half precision anew
in every forward; here they are kept, as packed weights are, and follow the model's."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from .folding import Fold, Folded
from .run import TYPES

__all__ = ["cast", "forget", "type_of"]

_enabled: Any = torch._C._is_any_autocast_enabled
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_kept: Any = WeakIdKeyDictionary()  # by the weight


def type_of(x: Tensor) -> torch.dtype | None:
    """To what autocast casts a convolution of x; None where it is off. PyTorch casts no float64, and then neither of
    these is of `TYPES`."""
    if not _enabled() or not torch.is_autocast_enabled(x.device.type):
        return None
    return torch.get_autocast_dtype(x.device.type) if x.dtype in TYPES else x.dtype


def _weights(weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
    """Of type `dtype`, and the bias in float32: it costs a kernel nothing."""
    fold = Fold((0, None if bias is None else 1, None, None, None, None), 0.0, dtype)
    known = _kept.get(weight)
    if known is None or known.folds != [fold]:
        known = _kept[weight] = Folded([fold], [weight, bias], [])
    known.refresh([weight, bias])
    return known.tensors[0]  # type: ignore[no-any-return]


def cast(
    dtype: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """All of type `dtype`, but for a bias that may stay float32. Where gradients are recorded, and in a CUDA graph, whose
    replay casts what the weights are then, weights are cast in every call."""
    if weight.dtype is not dtype:
        recorded = torch.is_grad_enabled() and (weight.requires_grad or (bias is not None and bias.requires_grad))
        if recorded or torch.compiler.is_compiling() or (x.is_cuda and _capturing()):
            weight = weight.to(dtype)
        else:
            weight, bias = _weights(weight, bias, dtype)
    if bias is not None and bias.dtype not in (dtype, torch.float32):
        bias = bias.to(dtype)
    return x.to(dtype), weight, bias, None if residual is None else residual.to(dtype)


def forget(weight: Tensor) -> None:
    """Casts it again at the next call: after writes that PyTorch does not count."""
    _kept.pop(weight, None)
