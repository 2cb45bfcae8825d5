"""Convolutions of an ATen graph with what stands behind them: batch norm, sum with a residual, activation; and before those
of frames, a cache and padding. Each chain is found as far as one operator can compute it, and rewritten into that operator."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.fx import Graph, Node

from ...words import activation_text
from ..folding import Fold
from ..fused import conv2d_fused
from ..how import How
from ..layout import laid, lies, output_last
from ..packed import conv2d_packed, conv3d_packed, layout_of
from ..run import TYPES
from .frames import Frames, frames_of

__all__ = ["Chain", "Weights", "activation_of_node", "aten", "chains", "normed_weight", "only_user", "rewrite"]

aten: Any = torch.ops.aten

# Places at which a batch norm in eval mode has (gamma, beta, mean, variance, training or None, eps) among its arguments.
_NORMS = {
    aten._native_batch_norm_legit_no_training.default: (1, 2, 3, 4, None, 6),
    aten._native_batch_norm_legit.default: (1, 2, 3, 4, 5, 7),
    aten.native_batch_norm.default: (1, 2, 3, 4, 5, 7),
    aten.cudnn_batch_norm.default: (1, 2, 3, 4, 5, 7),
    aten.miopen_batch_norm.default: (1, 2, 3, 4, 5, 7),
}
_NAMED = {
    aten.relu.default: "relu",
    aten.silu.default: "silu",
    aten.hardswish.default: "hardswish",
    aten.sigmoid.default: "sigmoid",
}


@dataclass
class Chain:
    """A convolution and what follows it, to be one operator. `tail`: the node whose value that operator gives.
    `fold`: where its weights come from."""

    convolution: Node
    tail: Node
    fold: Fold
    has_bias: bool
    total: Node | None  # the sum with the residual
    activation: str
    nodes: list[Node]  # all that the operator computes
    linear: bool = False  # a product of matrices, as linear.py finds them

    @property
    def frames(self) -> Frames | None:
        """Frames of a 3-D convolution as they stand now: they may be the tail of another chain that was rewritten."""
        return None if self.linear else frames_of(self.convolution)

    @property
    def x(self) -> Node:
        frames = self.frames
        return self.convolution.args[0] if frames is None else frames.x  # type: ignore[return-value]

    @property
    def cache(self) -> Node | None:
        frames = self.frames
        return None if frames is None else frames.cache

    @property
    def weight(self) -> Node:
        return self.convolution.args[1]  # type: ignore[return-value]

    @property
    def residual(self) -> Node | None:
        """The residual as it stands now: it may be the tail of another chain that was rewritten."""
        if self.total is None:
            return None
        first, second = self.total.args
        return second if first in self.nodes else first

    def put(self, graph: Graph, made: Node) -> None:
        """`made` in the place of what it computes."""
        self.tail.replace_all_uses_with(made)

    @property
    def how(self) -> How:
        arguments: tuple[Any, ...] = self.convolution.args
        _, _, _, stride, padding, dilation, transposed, more, groups = arguments
        edges = (*padding, *padding)
        frames = self.frames
        if frames is not None:
            edges = tuple(map(sum, zip(edges, frames.edges)))
        geometry: Any = tuple(stride), edges, tuple(dilation), groups
        return How(*geometry, activation=self.activation, output_padding=tuple(more) if transposed else ())


def only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def activation_of_node(node: Node) -> str:
    """The activation that the node computes of its first argument, in a problem's words; "" for anything else."""
    target, kwargs = node.target, node.kwargs
    args: tuple[Any, ...] = node.args
    if target in _NAMED:
        return _NAMED[target]
    if target is aten.gelu.default:
        return {"none": "gelu_erf", "tanh": "gelu_tanh"}.get(str(kwargs.get("approximate", "none")), "")
    if target is aten.leaky_relu.default:
        slope = (*args, 0.01)[1]
        return activation_text("leaky_relu", (float(slope),)) if isinstance(slope, (int, float)) else ""  # else a symbol
    if target in (aten.hardtanh.default, aten.clamp.default, aten.clamp_min.default):
        default = -1.0 if target is aten.hardtanh.default else None
        low = args[1] if len(args) > 1 else kwargs.get("min", default)
        high = args[2] if len(args) > 2 else kwargs.get("max", None if default is None else 1.0)
        if low == 0 and high is None:
            return "relu"
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low <= high:
            return activation_text("clip", (float(low), float(high)))
    return ""


class Weights:
    """The sources of weights and norms: inputs of the graph that are the same tensors in every call. `is_static`:
    true if the input at that place is a parameter or buffer."""

    def __init__(self, graph: Graph, is_static: Callable[[int], bool]) -> None:
        inputs = graph.find_nodes(op="placeholder")
        self._places = {node: at for at, node in enumerate(inputs) if is_static(at)}

    def place(self, node: Any) -> int | None:
        """The node's place among the inputs, seen through a conversion to another floating type; None for other nodes."""
        if isinstance(node, Node) and node.target is aten._to_copy.default and set(node.kwargs) == {"dtype"}:
            node = node.args[0] if node.kwargs["dtype"].is_floating_point else None  # type: ignore[union-attr]
        return self._places.get(node)

    def are_static(self, *nodes: Any) -> bool:
        return all(node is None or self.place(node) is not None for node in nodes)

    def of_weight(self, node: Any) -> tuple[int, ...] | None:
        """The place of a weight; of one that weight_norm computes, those of its direction and its magnitude, which nothing converts,
        since the filter is computed in their type; None for others."""
        normed = normed_weight(node)
        found = [self.place(node)] if normed is None else [self._places.get(one) for one in normed]
        return None if None in found else tuple(found)  # type: ignore[arg-type]


def normed_weight(node: Any) -> tuple[Node, Node] | None:
    """The direction and the magnitude of a filter that weight_norm computes, each filter by itself."""
    if not isinstance(node, Node) or node.target is not operator.getitem or node.args[1] != 0:
        return None
    norm: Any = node.args[0]
    is_norm = norm.target is aten._weight_norm_interface.default and (*norm.args, 0)[2] == 0
    return norm.args[:2] if is_norm else None


def _takes(node: Node, weights: Weights) -> bool:
    """A convolution forward of one to three axes with weights that stay, of types that the operator has."""
    if node.target is not aten.convolution.default:
        return False
    x, weight, bias, *_ = node.args
    values = x.meta["val"], weight.meta["val"]  # type: ignore[union-attr]
    return (
        weights.of_weight(weight) is not None
        and weights.are_static(bias)
        and all(value.dim() in (3, 4, 5) and value.dtype in TYPES for value in values)
        and values[0].dtype is values[1].dtype
        and values[0].device.type in ("cpu", "cuda")
    )


def _norm_behind(tail: Node, weights: Weights) -> tuple[Node, tuple[Any, ...], float] | None:
    """(the normed value's node, (mean, variance, gamma, beta), eps)."""
    norm = only_user(tail)
    if norm is None or norm.target not in _NORMS or norm.args[0] is not tail:
        return None
    *at, training, eps = _NORMS[norm.target]
    gamma, beta, mean, variance = (norm.args[one] for one in at)
    if training is not None and norm.args[training]:
        return None
    outputs = [user for user in norm.users if user.users]
    if len(outputs) != 1 or outputs[0].args[1] != 0 or mean is None:
        return None
    if not weights.are_static(gamma, beta, mean, variance):
        return None
    return outputs[0], (mean, variance, gamma, beta), float(norm.args[eps])  # type: ignore[arg-type]


def _sum_behind(tail: Node) -> Node | None:
    """The sum behind the tail with another tensor of its shape and type, if there is one."""
    total = only_user(tail)
    if total is None or total.target is not aten.add.Tensor or total.kwargs.get("alpha", 1) != 1:
        return None
    others = [one for one in total.args if one is not tail]
    if len(others) != 1 or not isinstance(others[0], Node):
        return None
    own, other = tail.meta["val"], others[0].meta["val"]
    fits = isinstance(other, torch.Tensor) and other.dtype is own.dtype and other.device == own.device
    return total if fits and other.shape == own.shape else None


def _chain(node: Node, weights: Weights, taken: set[Node]) -> Chain | None:
    """The chain of a convolution, as long as there is one user, the value keeps its type, and it lies as the operator
    would write it."""
    weight, bias = node.args[1:3]
    value = node.meta["val"]
    frames = frames_of(node)
    x: Any = node.args[0] if frames is None else frames.x
    channels_last = output_last(x.meta["val"], weight.meta["val"])  # type: ignore[union-attr]

    def fits(tail: Node) -> bool:
        val = tail.meta["val"]
        return tail not in taken and val.dtype is value.dtype and lies(val, channels_last)

    if not fits(node):
        return None
    nodes, norm, eps, total, activation = [node], (None, None, None, None), 0.0, None, "none"
    # The filters of a transposed one with groups are not along one axis of its weight.
    normed = None if node.args[6] and node.args[8] != 1 else _norm_behind(node, weights)
    if normed is not None and fits(normed[0]):
        nodes.append(normed[0])
        norm, eps = normed[1:]
    added = _sum_behind(nodes[-1])
    if added is not None and fits(added):
        nodes.append(added)
        total = added
    last = only_user(nodes[-1])
    if last is not None and last.args and last.args[0] is nodes[-1] and activation_of_node(last) and fits(last):
        nodes.append(last)
        activation = activation_of_node(last)
    first, *magnitude = weights.of_weight(weight)  # type: ignore[misc]
    converted = not magnitude and weight.op != "placeholder"  # type: ignore[union-attr]
    converted = converted or (isinstance(bias, Node) and bias.op != "placeholder")
    places = (first, *(None if one is None else weights.place(one) for one in (bias, *norm)), *magnitude)
    fold = Fold(places, eps, value.dtype, as_they_are=norm[0] is None and not converted, axis=int(bool(node.args[6])))
    has_bias = bias is not None or norm[0] is not None
    return Chain(node, nodes[-1], fold, has_bias, total, activation, nodes)


def chains(graph: Graph, weights: Weights) -> list[Chain]:
    """All of them, in the graph's order. A sum of two convolutions belongs to the later one, and the earlier one is its
    residual."""
    found = []
    taken: set[Node] = set()
    for node in reversed(list(graph.nodes)):
        if _takes(node, weights):
            chain = _chain(node, weights, taken)
            if chain is not None:
                taken.update(chain.nodes)
                found.append(chain)
    return found[::-1]


def _dense(graph: Graph, node: Node | None, plan: str) -> Node | None:
    """A copy of what does not lie densely (a part of an image's channels), which the plan's kernel could not read: made
    here it is inductor's, which makes it beside other passes, and in a third of the time."""
    if node is None or node.op == "placeholder":
        return node
    value, last = node.meta["val"], layout_of(plan) == "nhwc"
    if value.dim() == 3 or lies(value, True) or lies(value, False):  # no format says of rows that their channels come last
        return node
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    how = {"memory_format": formats[value.dim()] if last else torch.contiguous_format}
    for user in node.users:
        if user.target is aten.clone.default and user.kwargs == how and "convtune" in user.meta:
            return user
    with graph.inserting_after(node):
        copy = graph.call_function(aten.clone.default, (node,), how)
    copy.meta.update(val=laid(value, last), convtune=True)
    return copy


def rewrite(graph: Graph, chain: Chain, constants: tuple[Node | None, ...], choices: str) -> Node:
    """The operator that does the chain's work, to be put into its place. `constants`: of the graph, packed weights, with
    `choices` their plan; or weight and bias; or nothing where they are the convolution's own."""
    packed = len(constants) == 1
    x, residual = (_dense(graph, one, choices) if packed else one for one in (chain.x, chain.residual))
    with graph.inserting_after(chain.tail):
        if packed and chain.cache is not None:
            cache = _dense(graph, chain.cache, choices)
            made = graph.call_function(conv3d_packed, (x, *constants, residual, cache, choices))
        elif packed:
            made = graph.call_function(conv2d_packed, (x, *constants, residual, choices))
        else:
            weight, bias = constants or chain.convolution.args[1:3]  # type: ignore[misc]
            words = replace(chain.how, choices=choices).words_of_graphs
            made = graph.call_function(conv2d_fused, (chain.x, weight, bias, chain.residual, *words))
    made.meta = dict(chain.tail.meta)
    return made
