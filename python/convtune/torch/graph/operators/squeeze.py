"""Squeeze-and-excite and the convolution behind it, as two operators of compiled graphs, computed by Triton.

    gate = torch.ops.convtune.squeeze_excite(x, w1, b1, w2, b2, "silu", "sigmoid")
    y = torch.ops.convtune.conv2d_scaled(x, gate, weight, bias, residual, "none", [64, 32, 64, 4])

squeeze_excite: second(w2 first(w1 mean(x) + b1) + b2) of each image, (N, C, 1, 1), from x (N, C, H, W) and 1x1 filters
w1 (K, C, 1, 1), w2 (C, K, 1, 1): two launches instead of the four or five of its parts. conv2d_scaled:
activation(conv2d(x * gate, weight) + bias + residual) for a 1x1 filter, without a pass that writes x * gate.
What no kernel here is for (CPUs, float32, tensors that do not lie channels last) PyTorch computes. No gradients.
docs/decisions/0051-operators-in-triton.md has the reasons.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...how import How
from ...native import define
from ...run import pytorch_conv2d
from .images import MOST_ELEMENTS, is_for, processors

__all__ = ["FIRSTS", "SECONDS", "conv2d_scaled", "squeeze_excite"]

_functional: Any = torch.nn.functional
FIRSTS = ("relu", "silu")
SECONDS = ("sigmoid", "hardsigmoid")


@cache
def _kernels() -> Any:
    from . import squeeze_kernels  # imports Triton

    return squeeze_kernels


def _gate_kernel(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, first: str, second: str
) -> Tensor:  # fmt: skip
    if not is_for(x) or first not in FIRSTS or second not in SECONDS:
        pooled = x.mean((2, 3), keepdim=True)
        hidden = pytorch_conv2d(pooled, w1, b1, How(activation=first))
        if second == "hardsigmoid":
            return _functional.hardsigmoid(pytorch_conv2d(hidden, w2, b2, How()))  # type: ignore[no-any-return]
        return pytorch_conv2d(hidden, w2, b2, How(activation=second))
    gate = _fake_gate(x, w1, b1, w2, b2, first, second)
    with torch.cuda.device(x.device):
        own = w1.contiguous(), b1, w2.contiguous(), b2
        _kernels().launch_gate(x, *own, gate, first, second, processors(x.get_device()))
    return gate


def _fake_gate(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, first: str, second: str
) -> Tensor:  # fmt: skip
    return x.new_empty(x.shape[0], x.shape[1], 1, 1)


def _scaled_kernel(
    x: Tensor, scale: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str, tile: Any
) -> Tensor:  # fmt: skip
    y = _fake_scaled(x, scale, weight, bias, residual, activation, tile)
    lies = residual is None or residual.is_contiguous(memory_format=torch.channels_last)
    if not is_for(x) or not lies or y.numel() >= MOST_ELEMENTS or activation not in ("none", *FIRSTS):
        return y.copy_(pytorch_conv2d(x * scale, weight, bias, How(activation=activation), residual))
    with torch.cuda.device(x.device):
        launch: Any = _kernels().launch_scaled
        launch(x, scale.contiguous(), weight.contiguous(), bias, residual, y, activation, tile)
    return y


def _fake_scaled(
    x: Tensor, scale: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str, tile: Any
) -> Tensor:  # fmt: skip
    shape = x.shape[0], weight.shape[0], *x.shape[2:]
    return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)


squeeze_excite: Any = define(
    "squeeze_excite(Tensor x, Tensor w1, Tensor? b1, Tensor w2, Tensor? b2, str first, str second) -> Tensor",
    _gate_kernel, _fake_gate,
)  # fmt: skip
conv2d_scaled: Any = define(
    "conv2d_scaled(Tensor x, Tensor scale, Tensor weight, Tensor? bias, Tensor? residual, str activation, int[4] tile)"
    " -> Tensor", _scaled_kernel, _fake_scaled,
)  # fmt: skip
