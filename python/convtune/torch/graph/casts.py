"""Casts that autocast puts into a step's graphs, joined: of weights to halves in forward, of their gradients to float32 in backward.
inductor launches each alone, for they share no tensor with what they could be fused with: a seventh of the launches of a network of
small layers, whose step waits for the host. `convtune::cast_all` makes many of them by PyTorch's foreach, in a launch or two."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ..layout import wants_channels_last
from ..native import LIBRARY, conv2d_forward, conv_gradients

__all__ = ["cast_all", "join_casts"]

_aten: Any = torch.ops.aten
_cast: Any = torch.ops.prims.convert_element_type.default
_backwards: Any = (_aten.convolution_backward.default, conv_gradients)
# Kernels that are no compiler's: a cast is fused into none of them.
_readers: Any = (_aten.convolution.default, conv2d_forward, *_backwards, _aten.mm.default, _aten.addmm.default, "output")
_DEVICES = ("cuda",)  # devices where a launch costs the host more than its work costs them
_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_MOST_TENSORS, _MOST_BYTES = 96, 8 << 20  # limits of what is made at once, and so is there before it is read, or is kept longer


def _kernel(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    made = _fake(tensors, dtype)
    torch._foreach_copy_(made, tensors)
    return made


def _fake(tensors: list[Tensor], dtype: torch.dtype) -> list[Tensor]:
    return [torch.empty_like(one, dtype=dtype) for one in tensors]


LIBRARY.define("cast_all(Tensor[] tensors, ScalarType dtype) -> Tensor[]", tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))
for _key, _function in (("CPU", _kernel), ("CUDA", _kernel), ("Autograd", torch.library.fallthrough_kernel)):
    LIBRARY.impl("cast_all", _function, _key)
torch.library.register_fake("convtune::cast_all", _fake, lib=LIBRARY)
cast_all: Any = torch.ops.convtune.cast_all.default


def _is_fused(cast: Node) -> bool:
    """False where kernels that are no compiler's alone read it, a linear layer's by a view."""
    views = [user for user in cast.users if user.target is _aten.permute.default]
    readers = [user for one in (cast, *views) for user in one.users if user not in views]
    return not all(user.target in _readers for user in readers)


def _is_joined(node: Node) -> bool:
    """True of a parameter's cast, and of one of a convolution's gradient that is a result of the graph."""
    source: Any = node.args[0]
    before, after = source.meta.get("val"), node.meta.get("val")
    if not isinstance(before, Tensor) or not isinstance(after, Tensor) or before.device.type not in _DEVICES:
        return False
    is_gradient = source.target is operator.getitem and source.args[0].target in _backwards and all(user.op == "output" for user in node.users)
    is_weight = source.op == "placeholder" and not _is_fused(node)
    # inductor may lay a weight channels last, in the kernel that casts it, where it is not; a bias it adds to what is read next.
    is_weight = is_weight and before.dim() > 1 and (before.dim() < 4 or wants_channels_last(before))
    if not (is_gradient or is_weight) or before.dtype not in _TYPES or after.dtype not in _TYPES:
        return False
    if not all(type(size) is int for size in (*before.shape, *before.stride())):
        return False
    return before.stride() == after.stride() == _fake([before], after.dtype)[0].stride()  # else it is not dense


def _join(graph: Graph, casts: list[Node], before: Node) -> None:
    sources, dtype = [node.args[0] for node in casts], casts[0].meta["val"].dtype
    with graph.inserting_before(before):
        made = graph.call_function(cast_all, (sources, dtype))
        made.meta = {**casts[0].meta, "val": [node.meta["val"] for node in casts]}
        for at, node in enumerate(casts):
            one = graph.call_function(operator.getitem, (made, at))
            one.meta = dict(node.meta)
            node.replace_all_uses_with(one)
    for node in casts:
        graph.erase_node(node)


def join_casts(graph: Graph) -> int:
    """How many casts were joined: weights' before the first of each list is read, gradients' where the last of each is made."""
    lists: dict[Any, list[list[Node]]] = {}
    for node in graph.find_nodes(op="call_function", target=_cast):
        if not _is_joined(node):
            continue
        value, is_weight = node.meta["val"], node.args[0].op == "placeholder"
        # Forward keeps it for backward, so that all of them are there at the peak, and being made earlier costs no memory.
        is_saved = is_weight and any(user.op == "output" for user in node.users)
        of = lists.setdefault((is_weight, is_saved, value.dtype, node.args[0].meta["val"].dtype, value.device), [[]])
        bytes_ = sum(one.meta["val"].numel() * one.meta["val"].element_size() for one in (*of[-1], node))
        if of[-1] and (len(of[-1]) == _MOST_TENSORS or (bytes_ > _MOST_BYTES and not is_saved)):
            of.append([])
        of[-1].append(node)
    taken = [(is_weight, casts) for (is_weight, *_), of in lists.items() for casts in of if len(casts) > 1]
    for is_weight, casts in taken:
        _join(graph, casts, casts[0] if is_weight else casts[-1])
    return sum(len(casts) for _, casts in taken)
