"""Branches of a graph beside each other in a CUDA graph: each on a stream of its own while it is recorded, with a share of the GPU's
multiprocessors by its work. docs/decisions/0161-branches-beside-each-other.md has the reasons.

Layers of a few microseconds fill no GPU, and what one costs is mostly its start. Recorded one after the other a vocoder's three
residual blocks of a stage take the sum of their times, beside each other the longest one's. Outside of a recording, and where
nobody asked by `Beside`, a graph runs as one, in its order.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_map_only

from .. import _library
from .graph.branches import Part, parts
from .graph.capture import fakes_of
from .measure.proof import aside

__all__ = ["Beside", "Branched", "steps_of"]

_LEAST_SHARE = 0.125  # the part of a GPU that a branch beside others has at least
_cuda: Any = torch.cuda
_set_share = _library.library.convtune_set_gpu_share


class Beside:
    """A context in which this thread's calls of compiled graphs have their branches beside each other. `forks`: how many places
    with branches there were."""

    _now = threading.local()

    def __init__(self) -> None:
        self.forks = 0

    def __enter__(self) -> Beside:
        self._before = self.of_this_thread()
        Beside._now.one = self
        return self

    def __exit__(self, *_: object) -> None:
        Beside._now.one = self._before

    @staticmethod
    def of_this_thread() -> Beside | None:
        return getattr(Beside._now, "one", None)


@contextlib.contextmanager
def _share(share: float) -> Iterator[None]:
    _library.check(_set_share(share))
    try:
        yield
    finally:
        _library.check(_set_share(1.0))


@dataclass(frozen=True)
class _Named:
    name: str


class Branched:
    """A compiled graph, `whole`, and the same as steps of parts, of which some have branches.

    Memory: a branch allocates on its own stream, so that what it frees, it alone takes again. What a step reads is held until all
    of its branches are joined; what the next ones free was read by then, since every branch begins behind its fork."""

    def __init__(self, graph: GraphModule, steps: list[list[Part]], compile: Callable[..., Any]) -> None:
        entries, output = graph.graph.find_nodes(op="placeholder"), graph.graph.output_node()
        self.whole: Callable[..., Any] = graph
        self._names = [node.name for node in entries]
        self._constants = {node.name: _constant(graph, node) for node in graph.graph.find_nodes(op="get_attr")}
        self._outputs = tree_map_only(Node, lambda node: _Named(node.name), output.args[0])
        examples = {**{node.name: node.meta.get("val") for node in graph.graph.nodes}, **self._constants}
        self._streams = _streams(examples.values(), max(map(len, steps)) - 1)
        self._steps = [
            [(part, aside(compile, part.module, [examples[name] for name in part.reads])) for part in step] for step in steps
        ]
        last = {name: at for at, step in enumerate(steps) for part in step for name in part.reads}
        kept = {one.name for one in output.all_input_nodes}
        self._dropped = [[name for name, at in last.items() if at == number and name not in kept] for number in range(len(steps))]

    def __call__(self, *inputs: Any) -> Any:
        wanted = Beside.of_this_thread()
        if wanted is None:
            return self.whole(*inputs)
        wanted.forks += sum(len(step) > 1 for step in self._steps)
        values = {**self._constants, **dict(zip(self._names, inputs))}
        recorded = _cuda.is_available() and _cuda.is_current_stream_capturing()
        for step, dropped in zip(self._steps, self._dropped):
            if len(step) > 1 and recorded:
                self._beside(step, values)
            else:
                for part, compiled in step:
                    _run(part, compiled, values)
            for name in dropped:
                values.pop(name, None)
        return tree_map_only(_Named, lambda one: values[one.name], self._outputs)

    def _beside(self, step: Sequence[tuple[Part, Callable[..., Any]]], values: dict[str, Any]) -> None:
        """Runs the first on the current stream, the others on streams that wait for it and that it waits for."""
        all_products = sum(part.products for part, _ in step)
        main, streams = _cuda.current_stream(), self._streams[: len(step) - 1]
        for stream in streams:
            stream.wait_stream(main)
        for stream, (part, compiled) in zip([main, *streams], step):
            with _cuda.stream(stream), _share(max(part.products / all_products, _LEAST_SHARE)):
                _run(part, compiled, values)
        for stream in streams:
            main.wait_stream(stream)


def _streams(values: Iterable[Any], count: int) -> list[Any]:
    """`count` streams of the values' GPU; none where the values are on a CPU."""
    device = next((one.device for one in values if isinstance(one, Tensor) and one.device.type == "cuda"), None)
    return [] if device is None else [_cuda.Stream(device) for _ in range(count)]


def _constant(graph: GraphModule, node: Node) -> Tensor:
    value: Any = graph
    for name in str(node.target).split("."):
        value = getattr(value, name)
    return value  # type: ignore[no-any-return]


def _run(part: Part, compiled: Callable[..., Any], values: dict[str, Any]) -> None:
    values.update(zip(part.gives, compiled(*[values[name] for name in part.reads])))


def steps_of(graph: GraphModule, inputs: Sequence[Any]) -> list[list[Part]]:
    """The parts of a graph that is being compiled; empty where it has no branches."""
    mode, fakes = fakes_of(inputs)
    return parts(graph, fakes, mode)
