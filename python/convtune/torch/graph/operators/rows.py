"""Means of rows, which lie densely, whatever frame they are of: inductor keeps a row in registers, and reads it once.

    m = torch.ops.convtune.row_mean(x)     # x.mean(-1, keepdim=True)

Inductor reads a row twice where it does not see that rows are dense: PyTorch 2.11 does not where frames are read by a computed place
(docs/decisions/0179-ends-before-norms.md).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...native import define

__all__ = ["install", "row_mean"]

aten: Any = torch.ops.aten


def _mean(x: Tensor) -> Tensor:
    return x.mean(-1, keepdim=True)


row_mean: Any = define("row_mean(Tensor x) -> Tensor", _mean, _mean)


@cache
def install() -> None:
    """Inductor compiles the operator so from now on."""
    from torch._inductor import ir, lowering
    from torch._inductor.runtime.hints import ReductionHint

    @lowering.register_lowering(row_mean, type_promotion_kind=None)  # type: ignore[untyped-decorator, unused-ignore]
    def lowered(x: Any) -> Any:
        count, own = x.get_size()[-1], x.get_dtype()
        if own in (torch.float16, torch.bfloat16):  # summed as PyTorch does, where float16 would have no such number
            x = lowering.to_dtype(x, torch.float32)
        total = lowering.lowerings[aten.sum.dim_IntList](x, [-1], True)
        reduction = getattr(getattr(total.data, "data", None), "data", None)
        if isinstance(reduction, ir.Reduction):
            object.__setattr__(reduction, "reduction_hint", ReductionHint.INNER)
        return lowering.to_dtype(lowering.lowerings[aten.div.Tensor](total, count), own)
