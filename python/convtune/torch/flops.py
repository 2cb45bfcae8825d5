"""FLOPs of convtune's operators, as PyTorch's counter (torch.utils.flop_counter) has them of its own convolution. A
counter copies the list of formulas when it is made, so they are there from the start."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula

from . import backward, functional, fused  # noqa: F401  (they define operators)
from .backward import told
from .how import How
from .packed import fields_of
from .pairs import pair_of

__all__: list[str] = []

_own: Any = torch.ops.convtune


@register_flop_formula([_own.conv_transpose1d, _own.conv_transpose2d, _own.conv_transpose3d])
def _of_transposed(x: Any, weight: Any, *_: Any, **more: Any) -> int:
    return int(2 * prod(x) * prod(weight[1:]))


@register_flop_formula([_own.conv1d, _own.conv2d, _own.conv3d])
def _of_weight(x: Any, weight: Any, *_: Any, out_shape: Any = None, **more: Any) -> int:
    return int(2 * prod(out_shape) * prod(weight[1:]))


@register_flop_formula([_own.conv2d_forward, _own.conv2d_fused])
def _of_graphs(x: Any, weight: Any, bias: Any, residual: Any, *words: Any, out_shape: Any = None, **more: Any) -> int:
    transposed = How.parse(words[0]).transposed if isinstance(words[0], str) else len(words) > 7
    return int(2 * prod(x if transposed else out_shape) * prod(weight[1:]))


@register_flop_formula(_own.conv_backward)
def _of_gradients(grad: Any, x: Any, weight: Any, *words: Any, **more: Any) -> int:
    output_padding, mask = words[-2:]
    return int(2 * prod(x if output_padding else grad) * prod(weight[1:]) * (mask[0] + mask[1]))


@register_flop_formula(_own.conv_gradients)
def _of_text(grad: Any, x: Any, weight: Any, text: str, *_: Any, **more: Any) -> int:
    _, how, mask = told(text)
    return int(2 * prod(x if how.transposed else grad) * prod(weight[1:]) * (mask[0] + mask[1]))


@register_flop_formula(_own.conv2d_packed)
def _of_plan(x: Any, packed: Any, residual: Any, plan: str, *_: Any, **more: Any) -> int:
    return fields_of(plan)[1].flops


@register_flop_formula(_own.pair1d_packed)
def _of_pair(x: Any, packed: Any, plan: str, *_: Any, **more: Any) -> int:
    return pair_of(plan)[1].flops
