"""Products of matrices in a compiled graph that are 1x1 convolutions: linear layers of images whose channels come last,
with the activation, or with the scale of each channel and the residual, behind them. PyTorch's kernels for them leave that
to one more pass over the output. What is around them (permutations) is views."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from ...folding import Fold
from ..patterns import Chain, Weights, activation_of_node, aten, only_user
from .images import is_half_image

__all__ = ["LinearChain", "linear_chains"]

_TO_FRONT, _TO_BACK = [0, 3, 1, 2], [0, 2, 3, 1]  # for the channels


@dataclass
class LinearChain(Chain):
    """`stands_for`: the node of the graph whose value it is, channels last by its shape where `is_permuted`. The chain's
    own nodes are nobody's until it is put there."""

    stands_for: Node | None = None
    is_permuted: bool = True

    def put(self, graph: Graph, made: Node) -> None:
        assert self.stands_for is not None
        if self.is_permuted:
            with graph.inserting_after(made):
                made = graph.call_function(aten.permute.default, (made, _TO_BACK))
            made.meta = dict(self.stands_for.meta)
        self.stands_for.replace_all_uses_with(made)


@dataclass
class _Linear:
    """A product of matrices as it is found: `end` is the last of its nodes."""

    x: Node
    weight: Node
    bias: Node | None
    end: Node
    scale: Node | None = None
    residual: Node | None = None
    activation: str = "none"

    @property
    def is_permuted(self) -> bool:
        return self.residual is None


def _calls(node: Node | None, *targets: Any) -> bool:
    return node is not None and node.op == "call_function" and node.target in targets


def _fits(node: Any, like: Node) -> bool:
    """True where a value has the type and device of another, and a fixed size."""
    value, wanted = node.meta["val"], like.meta["val"]
    same = value.dtype is wanted.dtype and value.device == wanted.device
    return same and all(isinstance(size, int) for size in value.shape)


def _product(node: Node, weights: Weights) -> _Linear | None:
    """view → mm by a transposed weight → view (→ bias), or addmm, from four dimensions to four."""
    *bias, rows, turned = node.args
    viewed = only_user(node)
    if not _calls(rows, aten.view.default) or not _calls(turned, aten.t.default) or node.kwargs:  # type: ignore[arg-type]
        return None
    if not _calls(viewed, aten.view.default, aten._unsafe_view.default):
        return None
    x, weight = rows.args[0], turned.args[0]  # type: ignore[union-attr]
    value, end = x.meta["val"], viewed.meta["val"]  # type: ignore[union-attr]
    if value.dim() != 4 or end.dim() != 4 or value.shape[:3] != end.shape[:3] or not value.is_contiguous():
        return None
    of_images = is_half_image(value.permute(_TO_FRONT)) and _fits(x, x)  # type: ignore[arg-type]
    if not of_images or not weights.are_static(weight, *bias) or not _fits(weight, x):  # type: ignore[arg-type]
        return None
    if bias and bias[0].meta["val"].shape != end.shape[3:]:  # type: ignore[union-attr]
        return None
    found = _Linear(x, weight, bias[0] if bias else None, viewed)  # type: ignore[arg-type]
    added = only_user(viewed)  # type: ignore[arg-type]
    if found.bias is None and _calls(added, aten.add.Tensor) and added.args[0] is viewed and not added.kwargs:  # type: ignore[union-attr]
        other: Any = added.args[1]  # type: ignore[union-attr]
        static = isinstance(other, Node) and weights.are_static(other) and _fits(added, x)  # type: ignore[arg-type]
        if static and other.meta["val"].shape == end.shape[3:]:
            found.bias, found.end = other, added  # type: ignore[assignment]
    return found


def _scale_and_residual(found: _Linear, weights: Weights) -> bool:
    """permute (→ times a number for each channel) → sum with another image; whether that is behind it."""
    turned = only_user(found.end)
    if not _calls(turned, aten.permute.default) or [one % 4 for one in turned.args[1]] != _TO_FRONT:  # type: ignore[union-attr]
        return False
    last, scale = turned, None
    shape = turned.meta["val"].shape  # type: ignore[union-attr]
    times = only_user(turned)  # type: ignore[arg-type]
    if _calls(times, aten.mul.Tensor):
        others = [one for one in times.args if one is not turned]  # type: ignore[union-attr]
        if len(others) == 1 and isinstance(others[0], Node) and weights.are_static(others[0]):
            if tuple(others[0].meta["val"].shape) in ((shape[1], 1, 1), (1, shape[1], 1, 1)):
                last, scale = times, others[0]
    total = only_user(last)  # type: ignore[arg-type]
    if not _calls(total, aten.add.Tensor) or total.kwargs:  # type: ignore[union-attr]
        return False
    others = [one for one in total.args if one is not last]  # type: ignore[union-attr]
    if len(others) != 1 or not isinstance(others[0], Node) or not _fits(others[0], found.x):
        return False
    if not _fits(total, found.x):  # a float32 scale makes the sum float32
        return False
    value = others[0].meta["val"]
    if value.shape != shape or not value.is_contiguous(memory_format=torch.channels_last):
        return False
    found.scale, found.residual, found.end = scale, others[0], total  # type: ignore[assignment]
    return True


def _chain(graph: Graph, found: _Linear, weights: Weights) -> LinearChain:
    """Nodes of a convolution, behind the product's, that nobody reads."""
    x: Any = found.x.meta["val"]
    value = x.new_empty(*x.shape[:3], found.weight.meta["val"].shape[0]).permute(_TO_FRONT)
    nodes: list[Node] = []
    place = found.end

    def node(target: Any, args: Any, val: Any) -> Node:
        nonlocal place
        with graph.inserting_after(place):
            place = graph.call_function(target, args)
        place.meta["val"] = val
        return place

    image = node(aten.permute.default, (found.x, _TO_FRONT), x.permute(_TO_FRONT))
    filters = found.weight.meta["val"][:, :, None, None]
    weight = node(aten.view.default, (found.weight, list(filters.shape)), filters)
    how = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    nodes.append(node(aten.convolution.default, (image, weight, found.bias, *how), value))
    total = None
    if found.residual is not None:
        total = node(aten.add.Tensor, (nodes[-1], found.residual), value)
        nodes.append(total)
    places = tuple(None if one is None else weights.place(one) for one in (found.weight, found.bias))
    scale = None if found.scale is None else weights.place(found.scale)
    fold = Fold((*places, None, None, scale, None), 0.0, x.dtype)
    return LinearChain(
        nodes[0], nodes[-1], fold, found.bias is not None or scale is not None, total, found.activation, nodes, True,
        found.end, found.is_permuted,
    )  # fmt: skip


def linear_chains(graph: Graph, weights: Weights) -> list[LinearChain]:
    """The products with something behind them that a convolution does as well, in the graph's order."""
    found = []
    for node in list(graph.nodes):
        if not _calls(node, aten.mm.default, aten.addmm.default):
            continue
        linear = _product(node, weights)
        if linear is None:
            continue
        behind = only_user(linear.end)
        if behind is not None and behind.args and behind.args[0] is linear.end:
            linear.activation = activation_of_node(behind) or "none"
        if linear.activation != "none":
            linear.end = behind  # type: ignore[assignment]
        elif not _scale_and_residual(linear, weights):
            continue
        found.append(_chain(graph, linear, weights))
    return found
