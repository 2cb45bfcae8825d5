"""`convtune::conv2d_fused`: activation(conv2d(x, weight) + bias + residual) as one operator, which graphs hold.

    y = torch.ops.convtune.conv2d_fused(x, weight, bias, residual, (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", "relu")

Rows and volumes have one number or three in the place of each pair. float32, float16 and bfloat16 are convtune's here,
where one of its kernels does all of it; what none does is PyTorch's, and what one does in part is that part, and PyTorch
after it. In half precision the sum is rounded once, at the end, and a float32 bias is taken. With gradients it is
PyTorch's own operators: it is made for inference.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .functional import _records_gradients, fake_sum, is_plain
from .how import How
from .native import conv2d_forward, define, forward
from .run import pytorch_convolution, run

__all__ = ["conv2d_fused"]

_below_autograd: Any = torch._C._AutoDispatchBelowAutograd


def _how(
    stride: Any, padding: Any, dilation: Any, groups: Any, precision: str = "auto", activation: str = "none",
    choices: str = "", output_padding: Any = (),
) -> How:  # fmt: skip
    """The value of the operator's arguments; those that are as its schema has them do not come."""
    return How.of(stride, padding, dilation, groups, precision, activation, choices, True, output_padding)


def _kernel(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, *words: Any) -> Tensor:
    return run(x, weight, bias, _how(*words), residual)


def _autograd(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, *words: Any) -> Tensor:
    how = _how(*words)
    recorded = _records_gradients(x, weight, bias) or (residual is not None and residual.requires_grad)
    if torch.is_grad_enabled() and recorded:
        return pytorch_convolution(x, weight, bias, how, residual)
    # Past the dispatcher, which would call Python a second time.
    if is_plain(x, weight, bias, residual):
        return forward(x, weight, bias, residual, how)
    with _below_autograd():
        if how.is_symbolic:
            return conv2d_fused(x, weight, bias, residual, *how.words_of_graphs)  # type: ignore[no-any-return]
        return conv2d_forward(x, weight, bias, residual, how.text)  # type: ignore[no-any-return]


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, *words: Any) -> Tensor:
    return fake_sum(x, weight, bias, residual, _how(*words))


conv2d_fused: Any = define(
    "conv2d_fused(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, SymInt[] stride, SymInt[] padding, "
    "SymInt[] dilation, SymInt groups, str precision='auto', str activation='none', str choices='', "
    "SymInt[] output_padding=[]) -> Tensor",
    _kernel, _fake, Autograd=_autograd,
)  # fmt: skip
