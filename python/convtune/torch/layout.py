"""How tensors of one to three axes lie: channels first, or last (NLC, NHWC, NDHWC), of which PyTorch has memory formats for
two and three axes alone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["copied", "empty", "laid", "lies", "output_last", "wants_channels_last"]

_contiguous = torch.contiguous_format
_CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}  # by dimensions


def wants_channels_last(tensor: Tensor) -> bool:
    """True where PyTorch takes the tensor to lie channels last: its strides fall in the order N, D, H, W, C, of the axes
    that it has."""
    if tensor.is_contiguous() and tensor.stride(1) != 1:
        return False
    sizes, strides = tensor.shape, tensor.stride()
    if strides[1] == 0 or 0 in sizes:
        return False
    least = strides[1] * sizes[1]
    for axis in range(len(sizes) - 1, 1, -1):
        if strides[axis] < least:
            return False
        least = strides[axis] * sizes[axis]
    return strides[0] >= least and least != strides[1]  # N x 1 x 1 x 1 lies both ways, and is taken for channels first


def output_last(x: Tensor, weight: Tensor) -> bool:
    """True where y lies channels last: where x or the weight does. Nobody turns the weight of a row so to say that."""
    return wants_channels_last(x) or (x.dim() > 3 and wants_channels_last(weight))


def lies(tensor: Tensor, last: bool) -> bool:
    """True where the tensor has no gaps, and its channels come last or first."""
    if not last:
        return tensor.is_contiguous()
    if tensor.dim() == 3:
        return tensor.transpose(1, 2).is_contiguous()
    return tensor.is_contiguous(memory_format=_CHANNELS_LAST[tensor.dim()])


def laid(tensor: Tensor, last: bool) -> Tensor:
    """Itself, or a copy that lies so."""
    if last and tensor.dim() == 3:
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    return tensor.contiguous(memory_format=_CHANNELS_LAST[tensor.dim()] if last else _contiguous)


def copied(tensor: Tensor, last: bool) -> Tensor:
    """A copy that lies so, at an address of its own."""
    tensor = tensor.resolve_neg()
    if last and tensor.dim() == 3:
        return tensor.transpose(1, 2).clone(memory_format=_contiguous).transpose(1, 2)
    return tensor.clone(memory_format=_CHANNELS_LAST[tensor.dim()] if last else _contiguous)


def empty(shape: Any, like: Tensor, last: bool) -> Tensor:
    """Uninitialised, of another tensor's type and device."""
    if not last:
        return like.new_empty(shape)
    if len(shape) == 3:
        return like.new_empty((shape[0], shape[2], shape[1])).transpose(1, 2)
    return torch.empty(shape, dtype=like.dtype, device=like.device, memory_format=_CHANNELS_LAST[len(shape)])
