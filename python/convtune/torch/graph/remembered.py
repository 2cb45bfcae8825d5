"""Rewritten graphs of earlier processes, so that a later one neither traces nor matches: Dynamo's graph with its inputs is the key,
and what is found holds only where the same plans and contests answer now. They lie beside compiled kernels, and a missing or
broken file costs a trace. docs/decisions/0127-first-calls.md."""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path
from types import BuiltinFunctionType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_aggregate, map_arg

from ...optimize_report import Layer, OptimizeReport
from ...problem import Problem
from ..folding import Fold, Packing
from ..measure.contests import key_of
from ..measure.graphs import known
from ..measure.pairs import known_pairs
from ..measure.phases import Phases
from ..packed import planned
from ..pairs import PairFold, planned_pair
from ..run import fingerprint
from .chains import Wanted

__all__ = ["Remembered", "key_of_graph", "keep", "recalled"]

_OWN = "convtune_"  # names of buffers that a rewritten graph has besides its inputs
_PYTORCHS = ("torch", "_operator", "builtins", "math")  # modules whose functions a key's versions stand for
_MOST = 200  # files
_UNFINISHED = "unfinished-"  # names of files begin so until all is written; `convtune cache clean` knows it


@dataclass(frozen=True)
class _Name:
    """An operator of PyTorch's or convtune's, as "aten.add.Tensor"."""

    text: str


@dataclass(frozen=True)
class _At:
    """A node, by its place in its graph."""

    place: int


def _rows(graph: Graph) -> list[Any]:
    """The nodes as they are pickled: a GraphModule's own form is its code, which whoever reads it must trace. Raises ValueError
    where the graph has tensors of its own."""
    if not all(str(node.target).startswith(_OWN) for node in graph.find_nodes(op="get_attr")):
        raise ValueError("the graph has tensors of its own")
    places = {node: _At(place) for place, node in enumerate(graph.nodes)}

    def target(node: Node) -> Any:
        return _Name(str(node.target)) if isinstance(node.target, (OpOverload, OpOverloadPacket)) else node.target

    return [
        (node.op, target(node), *(map_arg(given, places.__getitem__) for given in (node.args, node.kwargs)), node.name)
        for node in graph.nodes
    ]


def _graph(rows: Sequence[Any]) -> GraphModule:
    """A graph of those nodes, without what its buffers hold."""
    graph, nodes = Graph(), []

    def node(one: Any) -> Any:
        return nodes[one.place] if isinstance(one, _At) else one

    for op, target, args, kwargs, name in rows:
        called = reduce(getattr, target.text.split("."), torch.ops) if isinstance(target, _Name) else target
        nodes.append(graph.create_node(op, called, map_aggregate(args, node), map_aggregate(kwargs, node), name))
    return GraphModule({one.target: torch.empty(0) for one in nodes if one.op == "get_attr"}, graph)


@dataclass
class Remembered:
    """`graph`: without what its buffers hold; None where nothing is convtune's. `constants`: that fill them, each with the line of
    its plan where it is packed, and the index of the GPU. `layers`: (names, problem, calls, kind, device) of each kind.
    `rows`: what was decided of them, which `keep` fills. `pairs`: (names, pair, calls, key of what was decided) of each kind of
    residual steps."""

    graph: GraphModule | None
    constants: list[tuple[Fold | PairFold, str, int]]
    read: list[int]
    convolutions_alone: bool
    layers: list[tuple[list[str], str, int, str, str]]
    rows: list[dict[str, Any]] = field(default_factory=list)
    pairs: list[tuple[list[str], str, int, str]] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "graph": None if self.graph is None else _rows(self.graph.graph)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, graph=None if state["graph"] is None else _graph(state["graph"]))

    def made(self) -> list[Fold | Packing]:
        found: list[Fold | Packing] = []
        for fold, line, index in self.constants:
            if isinstance(fold, PairFold):
                found.append(Packing(fold, planned_pair(line, index)))
                continue
            convolution = planned(line, index).convolution if line else None
            found.append(fold if convolution is None else Packing(fold, convolution))
        return found


def _folder() -> Path:
    """Beside compiled kernels. Raises OSError where it is another's, or others may write there: what is read runs."""
    shared = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(os.environ.get("CONVTUNE_CACHE_DIR") or os.path.join(shared, "convtune")) / "graphs"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    found = folder.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} is another's, or others may write to it")
    return folder


def _is_known(node: Node) -> bool:
    """False of what a graph's text and PyTorch's version do not say all of: modules and tensors of its own, others' functions."""
    if node.op == "call_function":
        target: Any = node.target
        if isinstance(target, (OpOverload, OpOverloadPacket)):
            return str(target).partition(".")[0] in ("aten", "prims")
        of = getattr(target, "__module__", None)
        return isinstance(target, BuiltinFunctionType) if of is None else str(of).partition(".")[0] in _PYTORCHS
    return node.op in ("placeholder", "call_method", "output")


def key_of_graph(module: GraphModule, inputs: Sequence[Any], static: Sequence[bool], wanted: Wanted) -> str:
    """The key of Dynamo's graph with all that decides what is made of it; "" of one that is not to be remembered: of symbolic
    sizes, with tensors or modules of its own, or where all is forced or searched."""
    if wanted.force or wanted.budget > 0 or not all(isinstance(one, (Tensor, int)) for one in inputs):
        return ""
    if not all(map(_is_known, module.graph.nodes)):
        return ""
    kinds = [
        (tuple(map(str, one.shape)), one.stride(), one.dtype, str(one.device), one.is_inference(), own) if isinstance(one, Tensor) else one
        for one, own in zip(inputs, static)
    ]
    device = next((one.device for one in inputs if isinstance(one, Tensor) and one.is_cuda), torch.device("cpu"))
    casts = [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cuda", "cpu")]
    text = f"{module.graph} {kinds} {casts} {wanted} {torch.get_default_dtype()}"
    of = fingerprint("cpu" if device.type == "cpu" else f"cuda:{device.index or 0}")
    return key_of(f"rewritten {hashlib.sha256(text.encode()).hexdigest()}", of, device)


def _asked(layers: Sequence[tuple[list[str], str, int, str, str]]) -> list[tuple[Layer, list[Any]]]:
    """The remembered layers as `decide_graph` takes them."""
    return [
        (Layer(list(names), Problem.parse(text), calls), [SimpleNamespace(kind=kind, device=torch.device(device))])
        for names, text, calls, kind, device in layers
    ]


def keep(key: str, found: Remembered, wanted: Wanted) -> Remembered | None:
    """Writes it, in one step, and gives what a later process will read: both compile one and the same graph. None where
    it cannot be written."""
    try:
        found.rows = known(_asked(found.layers), wanted.min_gain) or []
        if len(found.rows) != len(found.layers):
            return None
        folder, content = _folder(), pickle.dumps(found)
        for file in sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime)[: -_MOST + 1]:
            file.unlink()
        with tempfile.NamedTemporaryFile(dir=folder, prefix=_UNFINISHED, delete=False) as written:
            written.write(content)
        os.replace(written.name, folder / key)
    except (OSError, ValueError, pickle.PicklingError, AttributeError, TypeError):
        return None
    return _read(key)


def _read(key: str) -> Remembered | None:
    with contextlib.suppress(Exception):  # cut short, or of a PyTorch that has changed
        found = pickle.loads((_folder() / key).read_bytes())
        if isinstance(found, Remembered):
            return found
    return None


def recalled(key: str, wanted: Wanted, phases: Phases) -> tuple[Remembered, OptimizeReport] | None:
    """The remembered graph and its report; None where other plans have been decided on since, or in another way."""
    found = _read(key) if key else None
    if found is None:
        return None
    layers = _asked(found.layers)
    with phases("plans and kernels"):
        rows = known(layers, wanted.min_gain, frozenset(line for _, line, _ in found.constants))
    of_pairs = known_pairs([key for *_, key in found.pairs])
    if rows is None or rows != found.rows or of_pairs is None:
        return None
    for (layer, _), row in zip(layers, rows):
        vars(layer).update(row)
    devices = ", ".join(sorted({device for *_, device in found.layers}))
    pairs = [Layer(**{"names": names, "problem": None, "calls": calls, "algorithm": "pair", "pair": pair, **row})
             for (names, pair, calls, _), row in zip(found.pairs, of_pairs)]  # fmt: skip
    report = OptimizeReport(devices, False, [*(layer for layer, _ in layers), *pairs], mode="convtune", pytorch=str(torch.__version__))
    report.seconds = phases.seconds
    return found, report
