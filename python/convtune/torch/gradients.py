"""Gradients of the operators: forward by convtune, backward by PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..caches import PACKS
from .how import How
from .run import activated, pads_of

__all__ = ["with_gradients"]


class _Convolution(torch.autograd.Function):
    """Forward by convtune, backward by PyTorch. The last argument is the forward: `run`, or the operator below
    autograd for tensors that are traced or fake."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, how: How, forward: Any) -> Tensor:
        if weight.requires_grad or (bias is not None and bias.requires_grad):
            # Optimisers in the wild write through `.data`, which `_version` does not count.
            how = how.packing
            PACKS.forget(weight)
        y = forward(x, weight, bias, how)
        ctx.save_for_backward(x, weight, y if how.activation == "relu" else None)
        ctx.bias_shape = None if bias is None else list(bias.shape)
        ctx.how = how
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight, y = ctx.saved_tensors
        stride, padding, dilation, groups = ctx.how.geometry
        how, axes = ctx.how, ctx.how.axes
        before = padding[:axes]
        if y is not None:
            grad = torch.ops.aten.threshold_backward(grad, y, 0)
        even, none = before == padding[axes:], (0,) * axes
        if how.transposed and not even:  # what was cut off has no gradient
            grad, even, before = torch.nn.functional.pad(grad, pads_of(padding)), True, none
        padded = x if even else torch.nn.functional.pad(x, pads_of(padding))
        grads = torch.ops.aten.convolution_backward(
            grad, padded, weight, ctx.bias_shape, stride, before if even else none, dilation, how.transposed,
            how.output_padding or none, groups, ctx.needs_input_grad[:3],
        )  # fmt: skip
        grad_x = grads[0]
        if grad_x is not None and not even:
            image = [slice(first, first + size) for first, size in zip(before, x.shape[2:])]
            grad_x = grad_x[(slice(None), slice(None), *image)]
        return grad_x, grads[1], grads[2], None, None


_apply: Any = _Convolution.apply


def with_gradients(x: Tensor, weight: Tensor, bias: Tensor | None, how: How, forward: Any) -> Tensor:
    """An activation whose gradient does not follow from y is PyTorch's own, after a convolution without one."""
    if how.activation in ("none", "relu"):
        return _apply(x, weight, bias, how, forward)  # type: ignore[no-any-return]
    return activated(_apply(x, weight, bias, how.alone, forward), how.activation)
