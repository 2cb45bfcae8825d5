"""Gradients of the operators: forward by convtune, backward by whoever is proven (backward.py)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..caches import PACKS
from .backward import backward_of
from .how import How
from .run import activated

__all__ = ["with_gradients"]


class _Convolution(torch.autograd.Function):
    """The last argument is the forward: `run`, or the operator below autograd for tensors that are traced or fake."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, how: How, forward: Any) -> Tensor:
        if weight.requires_grad or (bias is not None and bias.requires_grad):
            # Optimisers in the wild write through `.data`, which `_version` does not count.
            how = how.packing
            PACKS.forget(weight)
        y = forward(x, weight, bias, how)
        ctx.save_for_backward(x, weight, y if how.activation == "relu" else None)
        ctx.bias_type = None if bias is None else bias.dtype
        ctx.how = how
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, y = ctx.saved_tensors
        if y is not None:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        grads = backward_of(grad, x, weight, ctx.bias_type, ctx.how.alone, ctx.needs_input_grad[:3])
        return *grads, None, None


_apply: Any = _Convolution.apply


def with_gradients(x: Tensor, weight: Tensor, bias: Tensor | None, how: How, forward: Any) -> Tensor:
    """An activation whose gradient does not follow from y is PyTorch's own, after a convolution without one."""
    if how.activation in ("none", "relu"):
        return _apply(x, weight, bias, how, forward)  # type: ignore[no-any-return]
    return activated(_apply(x, weight, bias, how.alone, forward), how.activation)
