"""Autocast: what PyTorch casts for its convolution, cast for convtune's. PyTorch makes the weights of half precision anew
in every forward; here they are kept while they hold, as packed weights are: a copy in half precision of each weight that is called so. A weight that has changed is cast into new memory, since
others may still read the old."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.weak import WeakIdKeyDictionary

from ..caches import PLANS
from ..tensors import seen
from .run import TYPES

__all__ = ["cast", "forget", "type_of"]

_enabled: Any = torch._C._is_any_autocast_enabled
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_kept: Any = WeakIdKeyDictionary()  # by the weight: (type and stream, what it was then, the cast one)
PLANS.cleared.append(_kept.clear)


def type_of(x: Tensor) -> torch.dtype | None:
    """The type to which autocast casts a convolution of x; None where it is off. PyTorch casts no float64."""
    if not _enabled() or not torch.is_autocast_enabled(x.device.type):
        return None
    return torch.get_autocast_dtype(x.device.type) if x.dtype in TYPES else x.dtype


def _weight(weight: Tensor, dtype: torch.dtype) -> Tensor:
    kind = dtype, _raw_stream(weight.get_device()) if weight.is_cuda else 0
    known = _kept.get(weight)
    try:
        if known is not None and known[0] == kind and known[1].holds_for(weight):
            return known[2]  # type: ignore[no-any-return]
        now = seen(weight)
    except RuntimeError:  # made in inference mode: nobody counts its changes
        return weight.to(dtype)
    with torch.inference_mode(False), torch.no_grad():  # everything that is kept is for calls in any mode
        made = weight.detach().to(dtype)
    _kept[weight] = kind, now, made
    return made


def cast(
    dtype: torch.dtype, x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, keeps: bool
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """All of type `dtype`, but for a bias, which may be float32: that costs a kernel nothing. Float64 stays, and is
    refused as without autocast. `keeps`: whether a cast weight may be taken that was kept; never where gradients of it
    are recorded, nor in a CUDA graph, whose replay casts what the weight is then."""
    if weight.dtype is not dtype and weight.dtype in TYPES:
        recorded = torch.is_grad_enabled() and weight.requires_grad
        if keeps and not recorded and not (weight.is_cuda and _capturing()):
            weight = _weight(weight, dtype)
        else:
            forget(weight)  # optimisers in the wild write through `.data`, which `_version` does not count
            weight = weight.to(dtype)
    if bias is not None and bias.dtype in TYPES and bias.dtype not in (dtype, torch.float32):
        bias = bias.to(dtype)
    return x.to(dtype), weight, bias, None if residual is None else residual.to(dtype)


def forget(weight: Tensor) -> None:
    """Casts it again at the next call: after writes that PyTorch does not count."""
    _kept.pop(weight, None)
