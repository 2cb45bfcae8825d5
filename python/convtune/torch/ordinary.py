"""Ordinary tensors: with memory, and nobody who watches what is done with them, so that a call may go past PyTorch's
dispatcher."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

__all__ = ["is_batched", "is_ordinary", "is_transformed"]

_plain = (Tensor, torch.nn.Parameter)
_dispatch_modes: Any = torch._C._len_torch_dispatch_stack
_tracing_state: Any = torch._C._get_tracing_state
_has_storage: Any = torch._C._has_storage
_forward_mode: Any = torch.autograd.forward_ad
_transform: Any = torch._C._functorch.peek_interpreter_stack


def is_ordinary(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> bool:
    """True of tensors with memory that nobody watches."""
    return (
        type(x) in _plain
        and type(weight) in _plain
        and (bias is None or type(bias) in _plain)
        and (residual is None or type(residual) in _plain)
        and (x.is_cuda or x.is_cpu)
        and not _dispatch_modes()
        and _transform() is None
        and _tracing_state() is None
    )


def is_transformed() -> bool:
    """True within one of torch.func's transforms, or where gradients in forward mode are recorded."""
    return _transform() is not None or _forward_mode._current_level >= 0


def is_batched(tensor: Tensor) -> bool:
    """True of one that stands for many, as gradients of torch.autograd.grad(..., is_grads_batched=True)."""
    return type(tensor) is Tensor and not _has_storage(tensor)
