"""Frames that a graph joins to a cache and pads before it convolves them: found behind a 3-D convolution's input, so that an
operator reads both tensors and leaves out what lies outside of them. Their number is a number, also where Dynamo made a symbol of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

__all__ = ["Frames", "fix_frames", "frames_of", "number"]

aten: Any = torch.ops.aten
_PADS = (torch.nn.functional.pad, torch._C._nn.pad)
_CONVOLUTIONS = (torch.nn.functional.conv3d, torch.conv3d)


@dataclass(frozen=True)
class Frames:
    """A convolution's view: x with the cache's frames before it, and zeros around them. `edges`: those before x and
    behind it along each axis, in front counted with the cache."""

    x: Node
    cache: Node | None
    edges: tuple[int, ...]


def frames_of(convolution: Node) -> Frames | None:
    """The input of a 3-D convolution forward, through a padding with zeros and a concatenation that nobody else sees; None
    for any other convolution."""
    x: Any = convolution.args[0]
    if convolution.meta["val"].dim() != 5 or convolution.args[6]:  # transposed
        return None
    user, edges, cache = convolution, (0,) * 6, None
    if x.target is aten.constant_pad_nd.default and set(x.users) == {user}:
        ends = (*x.args[1], 0, 0, 0, 0, 0, 0)[:6]
        if len(x.args[1]) <= 6 and all(type(one) is int and one >= 0 for one in ends) and (*x.args, 0)[2] == 0:
            left, right, top, bottom, front, back = ends
            edges = front, top, left, back, bottom, right
            user, x = x, x.args[0]
    if x.target is aten.cat.default and set(x.users) == {user} and (*x.args, 0)[1] in (2, -3) and len(x.args[0]) == 2:
        before, own = x.args[0]
        frames = before.meta["val"].shape[2]
        fixed = all(type(size) is int for one in x.args[0] for size in one.meta["val"].shape)
        if before.meta["val"].dtype is own.meta["val"].dtype and fixed and frames > 0:
            cache, x, edges = before, own, (edges[0] + frames, *edges[1:])
    return Frames(x, cache, edges)


def number(size: Any) -> Any:
    """The size as a number, where it is one by now; else the symbol."""
    known = size.node.maybe_as_int() if isinstance(size, torch.SymInt) else None
    return size if known is None else known


def fix_frames(graph: Graph) -> None:
    """Makes numbers of a cache's symbolic frames in Dynamo's graph, which is guarded for them from then on. Dynamo takes a size for
    any where another call had another one: a decoder's caches have one frame in its second piece, and two in all that follow. What
    is padded to numbers after it was joined is joined to a cache; a video of any length stays of any length."""
    for node in graph.nodes:
        if node.op != "call_function" or node.target not in _PADS or not isinstance(node.args[0], Node):
            continue
        if not node.users or any(user.target not in _CONVOLUTIONS for user in node.users):
            continue
        padded, joined = (one.meta.get("example_value") for one in (node, node.args[0]))
        if node.args[0].target in (torch.cat, torch.concat) and isinstance(joined, Tensor) and isinstance(padded, Tensor):
            if all(isinstance(number(size), int) for size in padded.shape):
                for size in joined.shape:
                    int(size)
