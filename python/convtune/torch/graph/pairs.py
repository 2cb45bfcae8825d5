"""Residual steps of an ATen graph, y = x + conv2(act(conv1(act(x)))) of rows, as HiFi-GAN and DAC have them: found among its
convolutions, and rewritten into one operator (../pairs.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, Node

from ...pair import PairProblem
from ...words import activation_of
from ..layout import lies
from ..pairs import PairFold, Snake, pair1d_packed
from .patterns import Chain, Weights, activation_of_node, aten

__all__ = ["PairChain", "closed_between", "pair_chains", "rewrite_pair", "same", "snake_of"]

_HALF = {torch.float16: "f16", torch.bfloat16: "bf16"}
# Nodes that give the numbers of a tensor in another shape.
_RESHAPED = (
    aten.view.default, aten._unsafe_view.default, aten.reshape.default, aten.alias.default, aten.clone.default,
    aten.unsqueeze.default, aten.squeeze.dim,
)  # fmt: skip
_TURNED = (aten.transpose.int, aten.permute.default, aten.t.default)


@dataclass
class PairChain:
    """A step, to be one operator in the place of two chains. `entry` with `at`: the node of the first activation that has x among
    its arguments, and where."""

    first: Chain
    second: Chain
    entry: Node
    at: int
    fold: PairFold
    problem: PairProblem
    nodes: set[Node]  # all that the operator computes

    @property
    def x(self) -> Node:
        """As it stands now: it may be the tail of another chain that was rewritten."""
        return same(self.entry.args[self.at])  # type: ignore[return-value]

    @property
    def tail(self) -> Node:
        """The sum. An activation behind it, which a convolution would do, too, stays a node of the graph."""
        assert self.second.total is not None
        return self.second.total

    def put(self, graph: Graph, made: Node) -> None:
        """`made` in the place of what it computes."""
        self.tail.replace_all_uses_with(made)


def same(node: Any) -> Any:
    """The node, seen through views of its own shape."""
    while isinstance(node, Node) and node.target in (aten.view.default, aten._unsafe_view.default, aten.alias.default):
        source: Any = node.args[0]
        if source.meta["val"].shape != node.meta["val"].shape:
            break
        node = source
    return node


def _is_sum(node: Any) -> bool:
    return isinstance(node, Node) and node.target is aten.add.Tensor and node.kwargs.get("alpha", 1) == 1 and len(node.args) == 2


def _either(node: Any, target: Any) -> Iterator[tuple[Any, Any, int]]:
    """The two arguments of such a node in both orders, each with the place of the first of them."""
    if isinstance(node, Node) and node.target is target and len(node.args) == 2 and (not node.kwargs or _is_sum(node)):
        yield node.args[0], node.args[1], 0
        yield node.args[1], node.args[0], 1


def _keeps_numbers(node: Node) -> bool:
    """True where the node gives the numbers of its first argument in their order, in another shape or floating type."""
    source: Any = node.args[0] if node.args and isinstance(node.args[0], Node) else None
    if node.target is aten._to_copy.default:
        return source.meta["val"].device == node.meta["val"].device and node.meta["val"].dtype.is_floating_point  # type: ignore[no-any-return]
    if node.target in _TURNED:
        return len([size for size in source.meta["val"].shape if size > 1]) <= 1
    return node.target in _RESHAPED


def _number(node: Any, channels: int, weights: Weights) -> tuple[int, bool] | None:
    """The place among the graph's inputs of what gives a number for each channel, along the axis before the last one, and whether
    the exponential of it is meant."""
    value = node.meta["val"] if isinstance(node, Node) else None
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.shape[-2] != channels or value.numel() != channels:
        return None
    is_log = False
    while isinstance(node, Node) and weights.place(node) is None:
        if node.target is aten.exp.default and not is_log:
            is_log = True
        elif not _keeps_numbers(node) or node.args[0].meta["val"].numel() != channels:  # type: ignore[union-attr]
            return None
        node = node.args[0]
    place = weights.place(node)
    return None if place is None else (place, is_log)


def _scale(node: Any, channels: int, weights: Weights) -> tuple[int, bool, float] | None:
    """(place, whether its exponential, eps) of what a Snake divides by."""
    eps = 0.0
    if _is_sum(node) and isinstance(node.args[1], (int, float)):
        node, eps = node.args[0], float(node.args[1])
    found = _number(node, channels, weights)
    return None if found is None else (*found, eps)


def _sine(node: Any) -> Node | None:
    """The argument of a sine whose square the node is."""
    factors: tuple[Any, ...] = ()
    if isinstance(node, Node) and node.target is aten.pow.Tensor_Scalar and node.args[1] == 2:
        factors = node.args[:1]
    elif isinstance(node, Node) and node.target is aten.mul.Tensor:
        factors = node.args
    if not factors or not all(isinstance(one, Node) and one.target is aten.sin.default for one in factors):
        return None
    inner = [one.args[0] for one in factors]
    is_one = all(one is inner[0] or (one.target is inner[0].target and one.args == inner[0].args) for one in inner)
    return inner[0] if is_one else None


def snake_of(node: Any, channels: int, weights: Weights) -> tuple[Node, int, Snake] | None:
    """(the sum that has x among its arguments, where, the Snake) where the node is one, in the ways in which models write it."""
    node = same(node)
    for x, term, at in _either(node, aten.add.Tensor):
        ways: list[tuple[Any, Any]] = []
        if isinstance(term, Node) and term.target is aten.div.Tensor and not term.kwargs:
            ways.append(term.args)  # type: ignore[arg-type]
        for inverse, square, _ in _either(term, aten.mul.Tensor):
            if isinstance(inverse, Node) and inverse.target is aten.reciprocal.default:
                ways.append((square, inverse.args[0]))
        for square, divisor in ways:
            scale = _scale(divisor, channels, weights)
            for factor, own, _ in _either(_sine(square), aten.mul.Tensor):
                alpha = _number(factor, channels, weights)
                if scale is not None and alpha is not None and own is x:
                    return node, at, Snake(*alpha, *scale)
    return None


def _is_plain(chain: Chain, channels: int, dilated: bool) -> bool:
    """True of a convolution of rows of `channels` channels, without a norm, that gives what it takes in length."""
    if chain.linear or chain.frames is not None or any(place is not None for place in chain.fold.places[2:6]):
        return False
    how, shape = chain.how, chain.weight.meta["val"].shape
    if len(shape) != 3 or how.transposed or how.stride != (1,) or how.groups != 1 or tuple(shape[:2]) != (channels, channels):
        return False
    edge = how.dilation[0] * (shape[2] - 1)
    return shape[2] % 2 == 1 and how.padding == (edge // 2, edge // 2) and (dilated or how.dilation == (1,))


def _closed(tail: Node, nodes: set[Node]) -> bool:
    """True where nothing else reads what is computed between x and the tail."""
    return all(node is tail or set(node.users) <= nodes for node in nodes)


def _between(tail: Node, x: Node) -> set[Node] | None:
    """The nodes from x, without it, to the tail that have its size; those that make numbers for channels are no part of them."""
    found, waiting = set[Node](), [tail]
    size = x.meta["val"].shape
    while waiting:
        node = waiting.pop()
        if node is x or node in found or node.op != "call_function" or node.meta["val"].shape != size:
            continue
        found.add(node)
        waiting += node.all_input_nodes
        if len(found) > 32:
            return None
    return found


def closed_between(tail: Node, x: Node) -> bool:
    """True where nothing else reads what is computed of x up to the tail."""
    nodes = _between(tail, x)
    return nodes is not None and _closed(tail, nodes)


def _pair(second: Chain, chains: dict[Node, Chain], weights: Weights) -> PairChain | None:
    if second.total is None:
        return None
    value, weight = second.total.meta["val"], second.weight.meta["val"]
    sizes_known = all(type(size) is int for size in value.shape)
    if value.dim() != 3 or value.dtype not in _HALF or not sizes_known or not lies(value, True):
        return None
    channels = value.shape[1]
    if not _is_plain(second, channels, False):
        return None
    middle = same(second.convolution.args[0])
    snakes: tuple[Snake, ...] = ()
    entry: Node | None = None
    at, slope = 0, None
    first = chains.get(middle)
    if first is not None and first.activation.startswith("leaky_relu"):
        entry = same(first.convolution.args[0])
        slope = activation_of(first.activation)[1][0]
        if not isinstance(entry, Node) or entry.op != "call_function" or activation_of_node(entry) != first.activation:
            return None
    else:
        behind = snake_of(middle, channels, weights)
        first = None if behind is None else chains.get(same(behind[0].args[behind[1]]))
        if behind is None or first is None or first.activation != "none":
            return None
        before = snake_of(first.convolution.args[0], channels, weights)
        if before is None:
            return None
        entry, at, snakes = before[0], before[1], (before[2], behind[2])
    if first is second or first.total is not None or not _is_plain(first, channels, True):
        return None
    x = same(entry.args[at])
    if x is not same(second.residual) or not lies(x.meta["val"], True):
        return None
    nodes = _between(second.total, x)
    if nodes is None or not _closed(second.total, nodes) or first.convolution not in nodes:
        return None
    taps, more = first.weight.meta["val"].shape[2], weight.shape[2]
    problem = PairProblem(*value.shape, taps, first.how.dilation[0], more, _HALF[value.dtype], slope)  # type: ignore[misc]
    return PairChain(first, second, entry, at, PairFold(first.fold, second.fold, snakes), problem, nodes)


def pair_chains(found: Sequence[Chain], weights: Weights) -> list[PairChain]:
    """The steps among the chains of a graph. Two have no convolution in common: each second one has its own first one, whose value
    nothing else reads."""
    by_tail = {chain.nodes[-1]: chain for chain in found}
    pairs = (_pair(chain, by_tail, weights) for chain in found)
    return [pair for pair in pairs if pair is not None]


def rewrite_pair(graph: Graph, pair: PairChain, constants: tuple[Node], plan: str) -> Node:
    """The operator that does the step's work, to be put into its place. `constants`: the graph's, packed weights."""
    with graph.inserting_after(pair.tail):
        made = graph.call_function(pair1d_packed, (pair.x, *constants, plan))
    made.meta = dict(pair.tail.meta)
    return made
