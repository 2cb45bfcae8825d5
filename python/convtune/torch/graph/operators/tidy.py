"""Removal of what a traced graph need not compute: divisions by one, with which diffusers' blocks end; and copies of an
image to NCHW for a convolution that takes it as it lies, channels last."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

__all__ = ["tidied"]

aten: Any = torch.ops.aten


def _has_no_effect(node: Node) -> bool:
    """x / 1 or x * 1, of x's own type and shape."""
    if node.target not in (aten.div.Tensor, aten.mul.Tensor) or node.kwargs or len(node.args) != 2:
        return False
    x, number = node.args
    if not isinstance(x, Node) or not isinstance(number, (int, float)) or number != 1:
        return False
    return bool(node.meta["val"].dtype is x.meta["val"].dtype)


def _turns_for_nothing(node: Node) -> bool:
    """A copy to NCHW of what lies channels last, for convolutions that answer channels last all the same."""
    if node.target is not aten.clone.default or node.kwargs != {"memory_format": torch.contiguous_format}:
        return False
    x = node.args[0]
    if not isinstance(x, Node) or x.meta["val"].dim() != 4 or not _lies_channels_last(x):
        return False
    readers = [user.target is aten.convolution.default and user.args[0] is node for user in node.users]
    return all(readers) and all(_lies_channels_last(user) and node not in user.args[1:] for user in node.users)


def _lies_channels_last(node: Node) -> bool:
    return bool(node.meta["val"].is_contiguous(memory_format=torch.channels_last))


def tidied(graph: Graph) -> None:
    """Takes them out of the graph, whose nodes have values; what is an output itself stays."""
    ends = set(graph.find_nodes(op="output"))
    for node in [*graph.find_nodes(op="call_function", target=aten.div.Tensor),
                 *graph.find_nodes(op="call_function", target=aten.mul.Tensor),
                 *graph.find_nodes(op="call_function", target=aten.clone.default)]:  # fmt: skip
        if not ends.intersection(node.users) and (_has_no_effect(node) or _turns_for_nothing(node)):
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
