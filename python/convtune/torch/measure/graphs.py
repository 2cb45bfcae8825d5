"""Decides which layers of a compiled graph are convtune's: as `decide` does, in less time, and remembered for later
processes, since a first call waits for it."""

from __future__ import annotations

from typing import Any

from ...optimize_report import Layer
from ..run import fingerprint
from .contests import keep_layers, key_of, recall_layers
from .decide import decide, device_of, planned_together
from .phases import Phases

__all__ = ["decide_graph"]

_CONTESTS_SECONDS = 10.0  # for all layers together; each has its ten rounds, which decide what is far ahead
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


def decide_graph(
    layers: list[tuple[Layer, list[Any]]], budget: float, min_gain: float, phases: Phases, share: float = 1.0
) -> None:
    """`decide` of a compiled graph's layers, whose first call waits for it: contests take `_CONTESTS_SECONDS`
    together, and the next process, or another machine with the same device and contests.jsonl, holds none. `share`: of
    the budget and of those seconds, where several graphs are compiled in one call."""
    if not layers:
        return
    device, fused = device_of(layers[0][1][0]), layers[0][1][0]

    def key() -> str:
        with phases("plans and kernels"):
            plans = planned_together(layers)
        kinds = [(seen[0].kind, layer.calls, plan) for (layer, seen), plan in zip(layers, plans)]
        return key_of(f"graph {kinds} {min_gain}", fingerprint(device), fused.device)

    decided = [layer for layer, _ in layers]
    own = key()
    if budget == 0 and _recalled(decided, own):
        return
    with phases("search and contests of layers" if budget > 0 else "contests of layers"):
        decide(layers, share * budget, min_gain, None, share * _CONTESTS_SECONDS)
    own = key() if budget > 0 else own  # by what the search found
    keep_layers(own, [{name: getattr(layer, name) for name in _DECIDED} for layer in decided])
