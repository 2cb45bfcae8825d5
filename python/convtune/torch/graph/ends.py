"""Frames that a graph repeats at a video's ends behind a norm, as layers of video decoders do before they convolve: repeated before it.

    y = silu(norm(x));  cat([y[:, :, :1], y, y[:, :, -1:]], 2)    # inductor: the norm, and a kernel for each end
    silu(norm(x[:, :, [0, *range(frames), frames - 1]]))          # one kernel, which reads a frame again

docs/decisions/0179-ends-before-norms.md has the numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from ..packed import conv2d_packed, conv3d_packed
from .operators.rows import row_mean

__all__ = ["repeat_ends_first"]

aten: Any = torch.ops.aten
_FRAMES = 2  # the axis of frames where they are joined
_PACKED = (conv2d_packed, conv3d_packed)  # whoever reads a tensor by these needs it in memory, which costs no kernel of inductor's
_IN_MEMORY = (*_PACKED, aten.convolution.default)


def _end(piece: Node) -> tuple[Node, int, int] | None:
    """(the tensor that the piece is a frame of, which frame, how often); None for anything else."""
    times: Any = 1
    if piece.target is aten.repeat.default:
        piece, repeats = piece.args  # type: ignore[assignment]
        times = repeats[_FRAMES] if len(repeats) == 5 else None
        if type(times) is not int or list(repeats) != [1, 1, times, 1, 1]:
            return None
    if piece.target is not aten.slice.Tensor:
        return None
    args: Any = piece.args
    source, axis, first, last, step = (*args, *(0, None, None, 1)[len(args) - 1 :])
    shape = source.meta["val"].shape
    if len(shape) != 5 or axis != _FRAMES or step != 1 or not all(type(one) is int for one in shape):
        return None
    frames = range(shape[_FRAMES])[first:last]
    return (source, frames[0], times) if len(frames) == 1 else None


def _ends(joined: Node) -> tuple[Node, int, int] | None:
    """(the tensor that is joined with repetitions of its own first and last frames, how many go before it, and how many behind)."""
    args: Any = joined.args
    pieces, axis = (*args, 0)[:2]
    if axis not in (_FRAMES, _FRAMES - 5) or len(pieces) < 2:
        return None
    found = {one: _end(one) for one in pieces}
    source = next((one for one in pieces if any(end is not None and end[0] is one for end in found.values())), None)
    if source is None:
        return None
    at, last = pieces.index(source), source.meta["val"].shape[_FRAMES] - 1
    counts = []
    for some, frame in ((pieces[:at], 0), (pieces[at + 1 :], last)):
        ends = [found[one] for one in some]
        if not all(end is not None and end[:2] == (source, frame) for end in ends):
            return None
        counts.append(sum(end[2] for end in ends if end is not None))
    return source, counts[0], counts[1]


def _parts(source: Node, joined: Node) -> set[Node]:
    """The source's ends, on their way to what joins them."""
    ends = {one for one in joined.all_input_nodes if one is not source}
    return ends | {one for end in ends for one in end.all_input_nodes if one is not source}


def _work(source: Node, parts: set[Node]) -> tuple[Node, list[Node]] | None:
    """(x, what makes the source of it, in order), where that has a norm's mean, and nobody reads anything else on the way or x but as
    an operand: a kernel that computes more of the same would be one more."""
    inside, waiting = {source}, [source]
    while waiting:
        for one in waiting.pop().all_input_nodes:
            if one.op == "call_function" and one.target not in _IN_MEMORY and one not in inside and inside.issuperset(one.users):
                inside.add(one)
                waiting.append(one)
    order = [node for node in source.graph.nodes if node in inside]
    read = {one for node in order for one in node.all_input_nodes if one not in inside}
    roots = [one for one in read if one.target in _IN_MEMORY]
    if len(roots) != 1 or roots[0].meta["val"].dim() != 5 or not any(node.target is aten.mean.dim for node in order):
        return None
    fits = all(user in inside or user.target in _PACKED for user in roots[0].users)
    return (roots[0], order) if fits and inside.isdisjoint(parts) else None


def _axis(node: Node, axes: dict[Node, int]) -> int | None:
    """The axis of frames of what the node computes, where it does so of each frame alone. `axes`: those of what has frames."""
    args: Any = node.args
    own = [one for one in node.all_input_nodes if one in axes]
    if not own:
        return None
    axis, rank = axes[own[0]], node.meta["val"].dim()
    if node.target is aten.permute.default:
        return [dim % rank for dim in args[1]].index(axis)
    if node.target is aten.mean.dim:
        dims, keeps = (*args, False)[1:3]
        return axis if keeps and dims and axis not in {dim % rank for dim in dims} else None
    if node.target is not aten._to_copy.default and torch.Tag.pointwise not in getattr(node.target, "tags", ()):
        return None
    for one in node.all_input_nodes:
        shape = one.meta["val"].shape
        at = axis - rank + len(shape)  # its axis of frames, where shapes are aligned at their last axes
        if (axes.get(one, axis) != axis or len(shape) != rank) if one in axes else (at >= 0 and shape[at] != 1):
            return None
    return axis


def _repeated_first(joined: Node) -> Node | None:
    """A node with the joined values, computed from an x to which its own ends were joined; None where that is not the same."""
    ends = _ends(joined)
    if ends is None:
        return None
    source, before, behind = ends
    parts = _parts(source, joined)
    if not all(user is joined or user in parts for user in source.users):
        return None
    if not all(user is joined or user in parts for one in parts for user in one.users):
        return None
    found = _work(source, parts)
    if found is None:
        return None
    x, order = found
    axes = {x: _FRAMES}
    for node in order:
        axis = _axis(node, axes)
        if axis is None:
            return None
        axes[node] = axis
    return _made(joined, x, order, (before, behind)) if axes[source] == _FRAMES else None


def _made(joined: Node, x: Node, order: list[Node], ends: tuple[int, int]) -> Node:
    graph, made = joined.graph, dict[Node, Node]()

    def call(target: Any, args: Any, kwargs: Any) -> Node:
        node = graph.call_function(target, args, kwargs)
        value = torch.fx.map_arg((node.args, node.kwargs), lambda one: one.meta["val"])
        with x.meta["val"].fake_mode, torch.no_grad():
            node.meta["val"] = target(*value[0], **value[1])
        return node

    def is_of_rows(node: Node) -> bool:
        args: Any = node.args
        if node.target is not aten.mean.dim or node.kwargs:  # the mean in another type
            return False
        value = args[0].meta["val"]
        return list(args[1]) in ([-1], [value.dim() - 1]) and value.dtype is torch.float32

    value, (before, behind) = x.meta["val"], ends
    with graph.inserting_before(joined):
        own = {"device": value.device, "dtype": torch.int64}
        frames = call(aten.arange.start, (-before, value.shape[_FRAMES] + behind), own)
        frames = call(aten.clamp.default, (frames, 0, value.shape[_FRAMES] - 1), {})
        made[x] = call(aten._unsafe_index.Tensor, (x, [None, None, frames]), {})
        for node in order:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda one: made.get(one, one))
            made[node] = call(row_mean, args[:1], {}) if is_of_rows(node) else call(node.target, args, kwargs)
    return made[order[-1]]


def repeat_ends_first(graph: Graph) -> None:
    """Norms whose frames are joined with repetitions of their ends, for packed convolutions, are computed with these."""
    for joined in graph.find_nodes(op="call_function", target=aten.cat.default):
        if joined.users and all(user.target in _PACKED for user in joined.users):
            made = _repeated_first(joined)
            if made is not None:
                joined.replace_all_uses_with(made)
    graph.eliminate_dead_code()
