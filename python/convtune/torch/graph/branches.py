"""Branches of a graph: parts with convolutions that read one value and nothing of each other, as a vocoder's residual blocks of
three filter sizes. What lies before them, each of them, and what lies behind become graphs of their own, so that a recording can
have the branches beside each other (../beside.py)."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ..fused import conv2d_fused
from ..packed import conv2d_packed, conv3d_packed, fields_of
from ..pairs import pair1d_packed, pair_of
from .capture import Values

__all__ = ["Part", "cut", "parts", "products"]

aten: Any = torch.ops.aten
_MOST_PARTS = 64  # each is compiled by itself
_LEAST = 0.05  # the share of a fork's products that the second largest of its branches has, or it is none


@dataclass
class Part:
    """Nodes of a graph as a graph: its inputs and outputs by the nodes' names. `products`: of its convolutions, FLOPs."""

    module: GraphModule
    reads: list[str]
    gives: list[str]
    products: float


def products(node: Node) -> float:
    """The FLOPs of a convolution; 0 of every other node."""
    args: tuple[Any, ...] = node.args
    if node.target in (conv2d_packed, conv3d_packed):
        return float(fields_of(args[-1])[1].flops)
    if node.target is pair1d_packed:
        return float(pair_of(args[-1])[1].flops)
    if node.target is conv2d_fused:
        transposed = len(args) > 11 and bool(args[11])  # as the operator's schema has them
    elif node.target is aten.convolution.default:
        transposed = bool(args[6])
    else:
        return 0.0
    pixels, weight = args[0].meta["val"] if transposed else node.meta["val"], args[1].meta["val"]
    return 2.0 * pixels.numel() * weight.numel() / max(weight.shape[0], 1)


def _branches(source: Node, nodes: Sequence[Node], work: dict[Node, float]) -> list[list[Node]]:
    """Nodes that depend on `source`, by branches: a node belongs to the branch that it reads, and to none where it reads several.
    Branches without a convolution are left out; each of the others ends with its last convolution."""
    branch: dict[Node, int | None] = {}
    count = 0
    for node in nodes:
        read = {branch[one] for one in node.all_input_nodes if one in branch}
        if read:
            branch[node] = read.pop() if len(read) == 1 else None
        elif source in node.all_input_nodes:
            branch[node] = count
            count += 1
    needed: set[Node] = set()
    for node in reversed(nodes):
        at = branch.get(node)
        if at is not None and (work[node] > 0 or any(one in needed and branch[one] == at for one in node.users)):
            needed.add(node)
    found: list[list[Node]] = [[] for _ in range(count)]
    for node in nodes:
        at = branch.get(node)
        if at is not None and node in needed:
            found[at].append(node)
    return [one for one in found if one]


def _fork(nodes: Sequence[Node], work: dict[Node, float]) -> tuple[list[Node], list[list[Node]], list[Node]] | None:
    """The first place where branches begin: what comes before, they, the largest first, and what comes behind."""
    inside = set(nodes)
    sources = dict.fromkeys(one for node in nodes for one in node.all_input_nodes)
    for source in sources:
        if source.op == "get_attr" or sum(user in inside for user in source.users) < 2:
            continue
        found = _branches(source, nodes, work)
        if len(found) < 2:
            continue
        found.sort(key=lambda branch: -sum(work[node] for node in branch))
        total = sum(work[node] for branch in found for node in branch)
        if sum(work[node] for node in found[1]) < _LEAST * total:
            continue
        taken = {node for branch in found for node in branch}
        first = next(at for at, node in enumerate(nodes) if node in taken)
        before = set(nodes[:first])
        waiting = [one for node in taken for one in node.all_input_nodes]
        while waiting:
            one = waiting.pop()
            if one in inside and one not in taken and one not in before:
                before.add(one)
                waiting += one.all_input_nodes
        behind = inside - taken - before
        return [one for one in nodes if one in before], found, [one for one in nodes if one in behind]
    return None


def _with_elements(steps: list[list[list[Node]]]) -> list[list[list[Node]]]:
    """The steps, with each element of a list (of a split's) beside the list: a part answers with tensors alone."""
    home = {node: nodes for step in steps for nodes in step for node in nodes}
    for node in list(home):
        source = node.args[0] if node.target is operator.getitem else None
        if source in home and home[source] is not home[node]:
            home[node].remove(node)
            home[source].insert(home[source].index(source) + 1, node)
    return [left for step in steps if (left := [nodes for nodes in step if nodes])]


def cut(graph: Graph) -> list[list[list[Node]]]:
    """The graph's nodes as steps in the order in which they can run, each of one list, or of several whose nodes do not depend on
    each other. Empty where no step has several, and where there are more lists than a first call can wait for."""
    nodes = [node for node in graph.nodes if node.op not in ("placeholder", "get_attr", "output")]
    work = {node: products(node) for node in nodes}
    steps: list[list[list[Node]]] = []
    while (found := _fork(nodes, work)) is not None:
        before, branches, nodes = found
        steps += [[before], branches] if before else [branches]
    if steps and nodes:
        steps.append([nodes])
    steps = _with_elements(steps)
    return steps if sum(map(len, steps)) <= _MOST_PARTS else []


def _part(nodes: Sequence[Node]) -> Part:
    inside = set(nodes)
    graph, own = Graph(), dict[Node, Node]()
    reads = list(dict.fromkeys(one for node in nodes for one in node.all_input_nodes if one not in inside))
    for one in reads:
        own[one] = graph.placeholder(one.name)
    for node in nodes:
        own[node] = graph.node_copy(node, own.__getitem__)
    gives = [node for node in nodes if any(user not in inside for user in node.users)]
    graph.output(tuple(own[one] for one in gives))
    work = sum(map(products, nodes))
    return Part(GraphModule(torch.nn.Module(), graph), [one.name for one in reads], [one.name for one in gives], work)


def parts(module: GraphModule, inputs: Sequence[Any], mode: Any) -> list[list[Part]]:
    """The steps of `cut` as graphs. `inputs`: fake tensors of `mode`, of the sizes that all calls have. Empty where there are no
    branches, and where sizes are symbols."""
    if any(not isinstance(one, Tensor) or any(type(size) is not int for size in one.shape) for one in inputs):
        return []
    with mode, torch.no_grad():
        Values(module, mode).run(*inputs)
    return [[_part(nodes) for nodes in step] for step in cut(module.graph)]
