"""Group norms of a compiled graph, channels last: statistics by an operator of ours, in Triton, the rest inductor's.

    scale, shift = torch.ops.convtune.group_coefficients(x, weight, bias, groups, eps)
    y = x * scale + shift                                        # what inductor fuses with its neighbours

Inductor's own reduction reads a few channels of each pixel for a group: of 32 groups and 128 channels eight bytes, of
sectors of 32. scale and shift are float32, (N, C, 1, 1). docs/decisions/0051-operators-in-triton.md has the numbers.
"""

from __future__ import annotations

from functools import cache
from operator import getitem
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from .torch_native import LIBRARY as _library
from .torch_squeeze import is_for, processors

__all__ = ["group_coefficients", "rewrite_norms"]

aten: Any = torch.ops.aten
_LEAST_BYTES = 4 << 20  # below that a launch more costs what the reading gains


@cache
def _launch() -> Any:
    from .torch_norm_kernels import launch_coefficients

    return launch_coefficients


def _fake(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    shape = x.shape[0], x.shape[1], 1, 1
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.float32)


def _kernel(x: Tensor, weight: Tensor | None, bias: Tensor | None, groups: int, eps: float) -> tuple[Tensor, Tensor]:
    if not x.is_cuda or not is_for(x):
        variance, mean = torch.var_mean(x.float().reshape(x.shape[0], groups, -1), 2, correction=0)
        of_group = x.shape[1] // groups
        scale = (variance + eps).rsqrt().repeat_interleave(of_group, 1)
        scale = scale if weight is None else scale * weight.float()
        shift = -mean.repeat_interleave(of_group, 1) * scale
        shift = shift if bias is None else shift + bias.float()
        return scale[:, :, None, None], shift[:, :, None, None]
    scale, shift = _fake(x, weight, bias, groups, eps)
    with torch.cuda.device(x.device):
        _launch()(x, weight, bias, groups, eps, scale, shift, processors(x.get_device()))
    return scale, shift


_library.define(
    "group_coefficients(Tensor x, Tensor? weight, Tensor? bias, int groups, float eps) -> (Tensor, Tensor)",
    tags=(torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order)),
)
for _key in ("CPU", "CUDA"):
    _library.impl("group_coefficients", _kernel, _key)
torch.library.register_fake("convtune::group_coefficients", _fake, lib=_library)
group_coefficients: Any = torch.ops.convtune.group_coefficients.default


def _takes(node: Node) -> bool:
    """Whose statistics nobody else reads."""
    x: Any = node.args[0].meta["val"]  # type: ignore[union-attr]
    if x.dim() != 4 or not all(isinstance(size, int) for size in x.shape) or not is_for(x):
        return False
    read = [user for user in node.users if user.users]
    reads = all(user.target is getitem and user.args[1] == 0 for user in read)
    lies = all(user.meta["val"].is_contiguous(memory_format=torch.channels_last) for user in read if reads)
    return reads and lies and x.numel() * x.element_size() >= _LEAST_BYTES


def rewrite_norms(graph: Graph) -> int:
    """In place; how many there were."""
    norms = graph.find_nodes(op="call_function", target=aten.native_group_norm.default)
    found = [one for one in norms if _takes(one)]
    for node in found:
        x, weight, bias, *_, groups, eps = node.args
        dtype = x.meta["val"].dtype  # type: ignore[union-attr]
        for y in [user for user in node.users if user.users]:
            with graph.inserting_before(y):
                both = graph.call_function(group_coefficients, (x, weight, bias, groups, eps))
                scale, shift = (graph.call_function(getitem, (both, at)) for at in (0, 1))
                exact = graph.call_function(aten._to_copy.default, (x,), {"dtype": torch.float32})
                scaled = graph.call_function(aten.mul.Tensor, (exact, scale))
                normed = graph.call_function(aten.add.Tensor, (scaled, shift))
                rounded = graph.call_function(aten._to_copy.default, (normed,), {"dtype": dtype})
            rounded.meta = dict(y.meta)
            y.replace_all_uses_with(rounded)
    return len(found)
