"""Gradients behind a global average pool, as views. PyTorch turns the pool's answer channels last by `as_strided_`, whose gradient is
written into zeros and read from them by other strides: in a graph a fill and a copy for each squeezed block, of numbers that lie so already."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.fx import Graph, Node

__all__ = ["view_pooled"]

_aten: Any = torch.ops.aten


def _is_whole(sizes: Any, strides: Any, offset: Any, numbers: int) -> bool:
    """True where these are all of a row of `numbers` numbers, one behind the other."""
    if offset not in (None, 0) or not all(type(one) is int for one in (*sizes, *strides)) or math.prod(sizes) != numbers:
        return False
    wanted = 1
    for size, stride in zip(reversed(sizes), reversed(strides)):
        if size != 1 and stride != wanted:
            return False
        wanted *= size
    return numbers > 0


def _source(node: Node) -> Node | None:
    """The tensor that the node reads in other sizes; None where it does not read all that was written."""
    written, sizes, strides, offset = (*node.args, None, None)[:4]
    if not isinstance(written, Node) or written.target is not _aten.as_strided_scatter.default or set(written.users) != {node}:
        return None
    zeros, source, *where = (*written.args, None)[:5]
    if not isinstance(zeros, Node) or not isinstance(source, Node) or zeros.meta["val"].dim() != 1:
        return None
    numbers = zeros.meta["val"].numel()
    if type(numbers) is not int or source.meta["val"].dtype is not zeros.meta["val"].dtype:
        return None
    return source if _is_whole(*where, numbers) and _is_whole(sizes, strides, offset, numbers) else None


def view_pooled(graph: Graph) -> int:
    """How many gradients are views."""
    found = 0
    for node in graph.find_nodes(op="call_function", target=_aten.as_strided.default):
        source = _source(node)
        if source is None:
            continue
        with graph.inserting_before(node):
            view = graph.call_function(_aten.reshape.default, (source, node.args[1]))
        view.meta = dict(node.meta)
        node.replace_all_uses_with(view)
        written: Any = node.args[0]
        zeros = written.args[0]
        for one in (node, written, *(() if set(zeros.users) != {written} or zeros.op != "call_function" else (zeros,))):
            graph.erase_node(one)
        found += 1
    return found
