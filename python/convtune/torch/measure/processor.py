"""Measures what a layer costs the processor, which launches its kernels: where the device waits for it, that is the layer's time.

A node of a backward graph is one call of PyTorch's, for both gradients. Where one of them is convtune's and the other is left, they
are two calls: a kernel that is proven faster may make a step slower whose device waits, and one that is slower may make it faster.
docs/decisions/0187-who-waits-for-whom.md has the reasons."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from ..backward import conv_gradients, text_of
from ..native import conv2d_forward
from ..run import fingerprint
from .contests import keep_number, key_of, recall_number
from .decide import device_of
from .timing import without_collections

__all__ = ["cheapest", "processor_us"]

_backward: Any = torch.ops.aten.convolution_backward.default
_CALLS, _SAMPLES = 8, 7
_ALIKE = 0.97  # ratio of two ways' costs, from which on neither is preferred


def processor_us(run: Callable[[], object], device: torch.device) -> float:
    """Microseconds for which a call keeps the processor: the device is idle at first, and is never waited for. What disturbs only
    adds, so that the least of a few samples counts."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    found = []
    for _ in range(3):  # Python prepares the first
        run()
    for _ in range(_SAMPLES):
        wait()
        start = time.perf_counter()
        for _ in range(_CALLS):
            run()
        found.append(time.perf_counter() - start)
    wait()
    return max(1e6 * min(found) / _CALLS, 1e-3)


def _like(node: Any) -> Tensor:
    """Zeros that lie as the node's tensor."""
    of = node.meta["val"]
    return torch.empty_strided(of.shape, of.stride(), dtype=of.dtype, device=of.device).zero_()


def _forward_of(node: Node, one: Any, line: str | None) -> Callable[[], object]:
    x, weight = map(_like, node.args[:2])
    if line is None:
        return lambda: node.target(x, weight, None, *node.args[3:])  # type: ignore[operator]
    text = replace(one.how, choices=line, reuse=False).text
    return lambda: conv2d_forward(x, weight, None, None, text)


def _backward_of(node: Node, found: Sequence[Any], lines: dict[str, str]) -> Callable[[], object]:
    """The calls of a node whose directions in `lines` are convtune's."""
    tensors, mask = list(map(_like, node.args[:3])), list(node.args[10])  # type: ignore[arg-type]
    ours = ["x" in lines, "w" in lines, "w" in lines and bool(mask[2]) and any(one.bias_type is not None for one in found)]
    left = [wanted and not own for wanted, own in zip(mask, ours)]
    text = text_of(None, replace(found[0].how, choices="\n".join(lines.values())), ours)

    def run() -> None:
        if lines:
            conv_gradients(*tensors, text)
        if any(left):
            _backward(*tensors, *node.args[3:10], left)

    return run


def _cost(node: Node, found: Sequence[Any], lines: dict[str, str]) -> float:
    """Microseconds of the processor for the node with those lines, by direction; measured once on a machine."""
    one = found[0]
    what = f"processor {[of.kind for of in found]} {node.args[10:]} {sorted(lines.items())}"
    key = key_of(what, fingerprint(device_of(one)), one.device)
    known = recall_number(key)
    if not known:
        run = _forward_of(node, one, lines.get("y")) if one.of == "y" else _backward_of(node, found, lines)
        known = processor_us(run, one.device)
        keep_number(key, known)
    return known


def cheapest(
    found: Sequence[Any], lines: dict[str, str], won: Collection[str], device_us: dict[str, tuple[float, float]]
) -> dict[str, tuple[bool, str]]:
    """{name: (convtune's or not, why in words)} of directions in `lines` (plans by name) in a step that waits for the processor,
    where the choice is another than in `won`, which has those that are faster on the device alone. `found`: all directions of
    these convolutions; `device_us`: PyTorch's and convtune's by name. What a node costs is the processor's time and the device's
    together: a step may wait for either at another place, so that neither is to lose more than the other gains."""
    changed: dict[str, tuple[bool, str]] = {}
    nodes: dict[Node, list[Any]] = {}
    for one in found:
        nodes.setdefault(one.node, []).append(one)
    with torch.no_grad(), without_collections():
        for node, members in nodes.items():
            names = {one.of: one.name for one in members if one.name in lines}
            if not names:
                continue

            def cost(way: Sequence[str], node: Node = node, members: Any = members, names: dict[str, str] = names) -> float:
                device = sum(device_us[name][of in way] for of, name in names.items())
                return device + _cost(node, members, {of: lines[names[of]] for of in way})

            before = tuple(of for of, name in names.items() if name in won)
            ways = [way for count in range(len(names) + 1) for way in itertools.combinations(names, count)]
            costs = {way: cost(way) for way in ways}
            best = min(ways, key=lambda way: costs[way])
            if costs[best] >= _ALIKE * costs[before]:
                continue
            words = f"processor and device take {costs[best]:.0f} us together in place of {costs[before]:.0f}"
            changed.update((name, (of in best, words)) for of, name in names.items() if (of in best) != (of in before))
    return changed
