"""Copies that a graph gives back of a part of a tensor: made at once, and as copies.

    y = torch.ops.convtune.kept(x)     # x.clone(), whose axes of one have the strides of a tensor of its own

A decoder of video keeps the last two frames of each layer's input for the next piece: `x[:, :, -2:].clone()`. Where x lies channels
last these frames lie densely, so that inductor takes the copy for a view, and all of x's frames are held until the next piece: twice
the memory. Where x lies otherwise inductor copies at the graph's end, and all x live until then.
docs/decisions/0163-decoders-as-whole-graphs.md has the numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ...native import define

__all__ = ["keep_apart", "kept"]

aten: Any = torch.ops.aten
_MOST_OF_A_VIEW = 0.75  # the part of its tensor: a view that is larger stays one


def _clone(x: Tensor) -> Tensor:
    """The copy. By a stride that means nothing, the one of a single image, Dynamo would take it for another tensor than a joined
    cache is, and compile again."""
    formats = {4: (torch.channels_last,), 5: (torch.channels_last_3d,)}.get(x.dim(), ())
    lies = next((one for one in (torch.contiguous_format, *formats) if x.is_contiguous(memory_format=one)), torch.preserve_format)
    return x.clone(memory_format=lies)


kept: Any = define("kept(Tensor x) -> Tensor", _clone, _clone)


def _holds_more(x: Tensor) -> bool:
    """True where a view of x's memory holds much that is not x's."""
    whole = x.untyped_storage().nbytes()
    return isinstance(whole, int) and x.numel() * x.element_size() < _MOST_OF_A_VIEW * whole


def _is_part(node: Any) -> bool:
    if not isinstance(node, Node) or node.target is not aten.clone.default or node.kwargs:
        return False
    x: Any = node.args[0]
    return isinstance(x, Node) and x.op == "call_function" and _holds_more(x.meta["val"])


def keep_apart(graph: Graph) -> None:
    """Makes copies of them that stay copies."""
    (end,) = graph.find_nodes(op="output")
    for node in filter(_is_part, end.all_input_nodes):
        node.target = kept
