"""Decides which layers of a compiled graph are convtune's: as `decide` does, in less time, and remembered for later
processes, since a first call waits for it."""

from __future__ import annotations

import contextlib
from threading import Event, Thread
from typing import Any

import torch

from ...optimize_report import Layer
from ...progress import ProgressLine
from ..run import fingerprint
from .contests import keep_layers, keep_number, key_of, recall_layers, recall_number
from .decide import decide, device_of, planned_together
from .phases import Phases

__all__ = ["decide_graph", "known"]

_CONTESTS_SECONDS = 4.0  # for all layers together; each has its ten rounds, which decide what is far ahead
# Fields of a Layer that a contest fills, which are kept.
_DECIDED = (
    "pytorch_us", "convtune_us", "gain", "algorithm", "config", "layout", "swapped", "decision", "low", "high", "alone_us",
)  # fmt: skip


def _recalled(layers: list[Layer], key: str) -> bool:
    """True where the same layers were decided in this graph before, as long as their plans are the same: also what was
    neither won nor lost for certain. The layers are filled."""
    rows = recall_layers(key)
    if rows is None or len(rows) != len(layers) or not all(set(row) == set(_DECIDED) for row in rows):
        return False
    for layer, row in zip(layers, rows):
        vars(layer).update(row)
    return True


def _key(layers: list[tuple[Layer, list[Any]]], min_gain: float, lines: frozenset[str] = frozenset()) -> str:
    """The key of what is decided of them, by their plans, whose kernels are compiled."""
    plans = planned_together(layers, lines)
    kinds = [(seen[0].kind, layer.calls, plan) for (layer, seen), plan in zip(layers, plans)]
    return key_of(f"graph {kinds} {min_gain}", fingerprint(device_of(layers[0][1][0])), layers[0][1][0].device)


def known(
    layers: list[tuple[Layer, list[Any]]], min_gain: float, lines: frozenset[str] = frozenset()
) -> list[dict[str, Any]] | None:
    """The decisions on a graph's layers, a row each; None where they are still to be made, or were for other plans. `lines`: those of
    the graph's plans."""
    return recall_layers(_key(layers, min_gain, lines)) if layers else []


def _begun(run: Any) -> Thread | None:
    """The thread that runs it; None where there is none to be had."""
    thread = Thread(target=run, daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread


def _searched(layers: list[tuple[Layer, list[Any]]], line: ProgressLine | None) -> None:
    """Lets cuDNN look for its best way of each layer, which contests wait for, while convtune's kernels compile."""
    for number, (layer, seen) in enumerate(layers, 1):
        if line is not None:
            line.show(f"convtune: {number}/{len(layers)} {layer.names[0]}: cuDNN's search, kernels meanwhile")
        with contextlib.suppress(RuntimeError), torch.inference_mode(False):  # a contest says what fails
            seen[0].sides().pytorch()


def decide_graph(
    layers: list[tuple[Layer, list[Any]]], budget: float, min_gain: float, phases: Phases, directions: int = 1
) -> None:
    """`decide` of a compiled graph's layers, whose first call waits for it: contests take `_CONTESTS_SECONDS`
    for each of a layer's `directions` in the graph, and the next process, or another machine with the same device and
    contests.jsonl, holds none. cuDNN looks for its best ways while convtune's kernels compile."""
    if not layers:
        return
    device, fused = device_of(layers[0][1][0]), layers[0][1][0]

    def key() -> str:
        with phases("plans and kernels"):
            return _key(layers, min_gain)

    seen_before = key_of(f"kinds {[(seen[0].kind, layer.calls) for layer, seen in layers]}", fingerprint(device), fused.device)
    if fused.device.type == "cuda" and not recall_number(seen_before):
        given_up = Event()
        compiling = _begun(lambda: planned_together(layers, given_up=given_up))
        try:
            with phases("cuDNN's search, kernels meanwhile"):
                _searched(layers, phases.line)
            with phases("plans and kernels"):
                if compiling is not None:
                    compiling.join()
        except BaseException:  # Ctrl-C
            given_up.set()
            raise
    decided = [layer for layer, _ in layers]
    own = key()
    are_decided = _recalled(decided, own)
    if budget == 0 and are_decided:
        return
    with phases("search and contests of layers" if budget > 0 else "contests of layers"):
        decide(layers, budget, min_gain, phases.line, directions * _CONTESTS_SECONDS, are_decided)
    own = key() if budget > 0 else own  # by what the search found
    keep_number(seen_before, 1.0)
    keep_layers(own, [{name: getattr(layer, name) for name in _DECIDED} for layer in decided])
