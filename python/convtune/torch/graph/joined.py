"""Volumes that a graph joins or pads before a convolution, as causal layers of video models do with frames, written channels last, and
not in float32 on the way (docs/decisions/0178-volumes-stay-channels-last.md)."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from ..layout import wants_channels_last
from ..packed import conv2d_packed, conv3d_packed, layout_of

__all__ = ["join_channels_last", "pad_as_they_are"]

aten: Any = torch.ops.aten
_LAST, _BACK = (0, 2, 3, 4, 1), (0, 4, 1, 2, 3)  # the axes of NCDHW as NDHWC, and of NDHWC as NCDHW
_HALF = (torch.float16, torch.bfloat16)
_GATHERS = (aten.replication_pad3d.default, aten._unsafe_index.Tensor)


def _reads_channels_last(user: Node, joined: Node) -> bool:
    """`joined` as x alone, also by way of its padding."""
    if user.target in _GATHERS and user.args[0] is joined:
        return bool(user.users) and all(_reads_channels_last(one, user) for one in user.users)
    if user.target is aten.convolution.default:  # one that PyTorch computes faster, and lays x out as its weight lies
        weight = user.args[1].meta["val"]
        one_way = weight.is_contiguous() and weight.shape[1] == 1  # one channel a group lies in both ways
        lies = weight.dim() == 5 and wants_channels_last(weight) and not one_way
        return bool(lies and not user.args[6] and user.args[0] is joined)
    if user.target not in (conv2d_packed, conv3d_packed):
        return False
    return layout_of(user.args[-1]) == "nhwc" and user.args[0] is joined and user.args.count(joined) == 1


def join_channels_last(graph: Graph) -> None:
    """Concatenations that convolutions alone read, channels last, become ones of NDHWC tensors, in NDHWC. Of NCDHW tensors
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


def _gathered(node: Node) -> Node:
    """The padding as one gather of what it pads, by places that the kernel works out."""
    args: Any = node.args
    x, ends = args
    edges = [ends[4:6], ends[2:4], ends[:2]]  # edges of frames, rows and columns
    padded = [axis for axis in range(3) if any(edges[axis])] or [0]
    places: list[Any] = [None] * (2 + padded[0])
    for axis in range(padded[0], padded[-1] + 1):  # with none left out between them: what is gathered would come first
        size, (before, behind) = x.meta["val"].shape[2 + axis], edges[axis]
        own = {"device": x.meta["val"].device, "dtype": torch.int64}
        place = node.graph.call_function(aten.arange.start, (-before, size + behind), own)
        place = node.graph.call_function(aten.clamp.default, (place, 0, size - 1))
        places.append(node.graph.call_function(aten.view.default, (place, [-1] + [1] * (padded[-1] - axis))))
    made = node.graph.call_function(aten._unsafe_index.Tensor, (x, places))
    made.meta = dict(node.meta)
    return made


def pad_as_they_are(graph: Graph) -> None:
    """Volumes in half precision that are padded with their edges for convolutions that read them channels last, packed ones or
    PyTorch's own: inductor's own way of it is in float32, in which it keeps what it does not compute twice, as frames that are joined."""
    for padded in graph.find_nodes(op="call_function", target=aten.replication_pad3d.default):
        value = padded.args[0].meta["val"]
        whole = value.dim() == 5 and value.dtype in _HALF and all(type(size) is int for size in value.shape)
        if whole and min(padded.args[1]) >= 0 and padded.users and all(_reads_channels_last(user, padded) for user in padded.users):
            with graph.inserting_before(padded):
                made = _gathered(padded)
            padded.replace_all_uses_with(made)
            graph.erase_node(padded)
