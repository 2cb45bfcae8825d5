"""Volumes that a graph joins before a convolution, as causal layers of video models join frames, written channels last."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from ..packed import conv2d_packed, conv3d_packed, layout_of

__all__ = ["join_channels_last"]

aten: Any = torch.ops.aten
_LAST, _BACK = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)  # the axes of NCDHW as NDHWC, and of NDHWC as NCDHW


def _reads_channels_last(user: Node, joined: Node) -> bool:
    if user.target not in (conv2d_packed, conv3d_packed):
        return False
    return layout_of(user.args[-1]) == "nhwc" and user.args[0] is joined and user.args.count(joined) == 1


def join_channels_last(graph: Graph) -> None:
    """Concatenations that packed convolutions alone read, channels last, become ones of NDHWC tensors, in NDHWC. Of NCDHW tensors
    inductor lays what it joins as NCDHW, whichever way the pieces lie, and copies it for the convolution."""
    for joined in graph.find_nodes(op="call_function", target=aten.cat.default):
        pieces, axis = (*joined.args, 0)[:2]
        of_volumes = all(piece.meta["val"].dim() == 5 for piece in pieces)  # an empty piece may have one axis
        if not of_volumes or not joined.users or not all(_reads_channels_last(user, joined) for user in joined.users):
            continue
        with graph.inserting_before(joined):
            turned = [graph.call_function(aten.permute.default, (piece, _LAST)) for piece in pieces]
            last = graph.call_function(aten.cat.default, (turned, _LAST.index(axis % 5)))
            back = graph.call_function(aten.permute.default, (last, _BACK))
        back.meta = dict(joined.meta)
        joined.replace_all_uses_with(back)
        graph.erase_node(joined)
