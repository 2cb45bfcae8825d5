"""Counters that a step's forward counts up, joined: a batch norm in training counts its batches in a tensor of one number. As a graph
without mutation says that, each is an addition and a copy back, a launch for each of a hundred norms, which a host-bound step waits for."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ..native import LIBRARY

__all__ = ["count_up", "join_counters"]

_aten: Any = torch.ops.aten
_DEVICES = ("cuda",)  # devices where a launch costs the host more than its work costs them


def _kernel(counters: list[Tensor], by: int) -> None:
    torch._foreach_add_(counters, by)


LIBRARY.define("count_up(Tensor(a!)[] counters, int by) -> ()", tags=(torch.Tag.pt2_compliant_tag,))
for _key, _function in (("CPU", _kernel), ("CUDA", _kernel), ("Autograd", torch.library.fallthrough_kernel)):
    LIBRARY.impl("count_up", _function, _key)
torch.library.register_fake("convtune::count_up", lambda counters, by: None, lib=LIBRARY)
count_up: Any = torch.ops.convtune.count_up.default


def _counted(copy: Node) -> tuple[Node, int] | None:
    """(the counter, by how much) where the copy back is all that is done with both."""
    counter, after = copy.args[:2]
    if not isinstance(after, Node) or after.target is not _aten.add.Tensor or len(after.args) != 2 or after.kwargs or copy.users:
        return None
    value, by = counter.meta.get("val"), after.args[1]  # type: ignore[union-attr]
    if after.args[0] is not counter or counter.op != "placeholder" or type(by) is not int:  # type: ignore[union-attr]
        return None
    if set(after.users) != {copy} or set(counter.users) != {after, copy}:  # type: ignore[union-attr]
        return None
    if not isinstance(value, Tensor) or value.dim() or value.dtype is not torch.int64 or value.device.type not in _DEVICES:
        return None
    return counter, by  # type: ignore[return-value]


def join_counters(graph: Graph) -> int:
    """How many counters were joined, where the last of each list is written."""
    lists: dict[Any, list[tuple[Node, Node]]] = {}
    for copy in graph.find_nodes(op="call_function", target=_aten.copy_.default):
        found = _counted(copy)
        if found is not None:
            lists.setdefault((found[1], found[0].meta["val"].device), []).append((copy, found[0]))
    taken = [(by, of) for (by, _), of in lists.items() if len(of) > 1]
    for by, of in taken:
        with graph.inserting_before(of[-1][0]):
            graph.call_function(count_up, ([counter for _, counter in of], by)).meta["val"] = None
        for copy, _ in of:
            after: Any = copy.args[1]
            graph.erase_node(copy)
            graph.erase_node(after)
    return sum(len(of) for _, of in taken)
