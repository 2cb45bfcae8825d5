"""Decides which residual steps of a compiled graph are one operator: each a contest with the two convolutions as the graph has
them otherwise, remembered as those of layers are."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...errors import Error, Unsupported
from ...optimize_report import Layer
from ...pair import Pair, PairProblem
from ..native import forward
from ..pairs import pack_pair, pair1d_packed, pair_line
from ..run import activated, fingerprint, pytorch_convolution
from .contests import keep_layers, key_of, recall_layers
from .decide import check_and_contest, device_of, median_us
from .phases import Phases
from .sides import Fused, random
from .timing import Stopwatch

__all__ = ["PairSides", "Step", "decide_pairs", "known_pairs"]

_log = logging.getLogger("convtune")

_GUESSES = 3  # configs that are looked at
_CONTESTS_SECONDS = 4.0  # for all of a graph's together; each has its ten rounds
_DECIDED = ("pytorch_us", "convtune_us", "gain", "config", "swapped", "decision", "low", "high")  # fields of a Layer that are kept


@dataclass(frozen=True)
class Step:
    """A residual step by its two convolutions. `lines`: of their plans, None where one is PyTorch's; `is_activated`: x comes with its
    first activation, for what computes x has that in the same pass, or another one reads it, too; `behind`: an activation behind
    the sum, which the second convolution does and a pair leaves to a pass."""

    problem: PairProblem
    first: Fused
    second: Fused
    lines: tuple[str | None, str | None]
    is_activated: bool
    behind: str

    @property
    def kind(self) -> str:
        """A text by which contests of different steps differ."""
        return repr(replace(self, first=replace(self.first, name=""), second=replace(self.second, name="")))

    @property
    def device(self) -> torch.device:
        return self.first.device


class PairSides:
    """The two convolutions as they are, with a pass where a compiler needs one for an activation; and the pair."""

    def __init__(self, step: Step) -> None:
        self.step, first, second = step, step.first, step.second
        self.x = random(first.shape, first.strides, first.dtype, first.device)
        self.weights: list[Any] = []
        for one in (first, second):
            taps = one.weight_shape[1] * one.weight_shape[2]
            self.weights.append(random(one.weight_shape, one.weight_strides, one.dtype, one.device) * (3 / taps) ** 0.5)
            self.weights.append(None if one.bias_type is None else random(one.weight_shape[:1], (1,), one.bias_type, one.device))
        self.snakes: list[tuple[Tensor, Tensor] | None] = [None, None]
        if step.problem.slope is None:
            alphas = [random(one.weight_shape[:1], (1,), torch.float32, one.device) / 4 + 1 for one in (first, second)]
            self.snakes = [(alpha, 1 / alpha) for alpha in alphas]

    def _act(self, x: Tensor, number: int) -> Tensor:
        if (snake := self.snakes[number]) is None:
            return torch.nn.functional.leaky_relu(x, self.step.problem.slope)  # type: ignore[arg-type]
        alpha, scale = (one.to(x.dtype)[:, None] for one in snake)
        return x + scale * (alpha * x).sin().square()

    def _two(self, x: Tensor, weights: Sequence[Any]) -> Tensor:
        first, first_bias, second, second_bias = weights
        y = pytorch_convolution(self._act(x, 0), first, first_bias, self.step.first.how.alone)
        y = pytorch_convolution(self._act(y, 1), second, second_bias, self.step.second.how.alone)
        return activated(x + y, self.step.behind)

    def expected(self) -> Tensor:
        kind = self.x.dtype
        return self._two(self.x, [None if one is None else one.to(kind) for one in self.weights])

    def exact(self, images: int) -> Tensor:
        return self._two(self.x[:images].double(), [None if one is None else one.double() for one in self.weights])

    def _pass(self, x: Tensor) -> Tensor:
        """One that reads x and writes as much, in which a compiler has an activation."""
        return x.sin() if self.step.problem.slope is None else self._act(x, 0)

    def pytorch(self) -> Tensor:
        """The two convolutions as the graph has them."""
        (of_first, of_second), weights = self.step.lines, self.weights
        y = self.x if self.step.is_activated else self._pass(self.x)
        if of_first is None:
            y = self._pass(pytorch_convolution(y, weights[0], None, self.step.first.how.alone))
        else:
            y = forward(y, *weights[:2], None, replace(self.step.first.how, choices=of_first))
            y = self._pass(y) if self.step.problem.slope is None else y
        if of_second is None:
            return pytorch_convolution(y, weights[2], None, self.step.second.how.alone) + self.x
        return forward(y, *weights[2:], self.x, replace(self.step.second.how, choices=of_second))

    def convtune(self, line: str) -> Callable[[], Tensor]:
        packed = pack_pair(line, self.x, self.weights, [one for snake in self.snakes if snake is not None for one in snake])
        if self.step.behind == "none":
            return lambda: pair1d_packed(self.x, packed, line)  # type: ignore[no-any-return]
        return lambda: activated(pair1d_packed(self.x, packed, line), self.step.behind)


def _planned(problem: PairProblem, device: str) -> list[Pair] | Error:
    """The pair by the configs that should be fastest; none where no kernel is for it; or what failed, which may pass."""
    try:
        first = Pair(problem, device)
    except Unsupported:
        return []
    except Error as why:
        return why
    found = [first]
    for config in first.configs[1:_GUESSES]:
        with contextlib.suppress(Error):
            found.append(Pair(problem, device, config))
    return found


def _plans(problems: Sequence[tuple[PairProblem, str]]) -> list[list[Pair] | Error]:
    """Their kernels, compiled beside each other, each once: positions and dilations are arguments of one."""
    kernels = {(replace(problem, n=1, t=1, dilation=1), device): (problem, device) for problem, device in problems}
    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(_planned, *zip(*kernels.values())))
            return list(pool.map(_planned, *zip(*problems)))
    except RuntimeError:  # without a thread to be had
        return [_planned(*one) for one in problems]


def known_pairs(keys: Sequence[str]) -> list[dict[str, Any]] | None:
    """Rows of what was decided of those steps; None where that is to be done again."""
    rows = [recall_layers(key) for key in keys]
    known = [row[0] for row in rows if row and set(row[0]) == set(_DECIDED)]
    return known if len(known) == len(keys) else None


def decide_pairs(
    steps: Sequence[Step], min_gain: float, force: bool, phases: Phases
) -> tuple[list[str | None], list[Layer], list[str]]:
    """For each step the line of its plan, or None; a row for each kind that has a kernel, and its key. A step whose gain is not proven
    stays two convolutions; so does one where something failed, and its key is "": nothing of it is to be remembered."""
    if not steps:
        return [], [], []
    kinds = {step.kind: step for step in steps}
    with phases("plans and kernels"):
        plans = dict(zip(kinds, _plans([(step.problem, device_of(step)) for step in kinds.values()])))
    taken: dict[str, str | None] = {}
    layers, keys = [], []
    todo = {kind: pairs for kind, pairs in plans.items() if pairs}
    end = time.monotonic() + _CONTESTS_SECONDS
    for number, (kind, pairs) in enumerate(todo.items()):
        step = kinds[kind]
        names = [one.first.name for one in steps if one.kind == kind]
        layer = Layer(names, None, len(names), algorithm="pair", pair=str(step.problem))
        if isinstance(pairs, Error):
            _stays_two(layer, pairs)
            layers.append(layer)
            keys.append("")
            continue
        lines, layer.config = {pair.config: pair_line(pair) for pair in pairs}, pairs[0].config
        key = key_of(f"pair {kind} {sorted(lines)} {min_gain}", fingerprint(device_of(step)), step.device)
        known = known_pairs([key])
        if force:
            layer.swapped, layer.decision = True, "convtune: forced, one kernel"
        elif known is not None:
            vars(layer).update(known[0])
        else:
            with phases("contests of layers"), torch.inference_mode(False):
                share = max(0.0, end - time.monotonic()) / (len(todo) - number)
                is_decided = _compete(layer, step, lines, min_gain, f"{key} contest", share)
            if is_decided:
                keep_layers(key, [{name: getattr(layer, name) for name in _DECIDED}])
            else:
                key = ""
        taken[kind] = lines[layer.config] if layer.swapped else None
        layers.append(layer)
        keys.append(key)
    return [taken.get(step.kind) for step in steps], layers, keys


def _stays_two(layer: Layer, why: Exception) -> None:
    """Says it of a step where something failed."""
    layer.decision = f"the two convolutions: {(str(why) or type(why).__name__).splitlines()[0]}"
    _log.warning("%s stays two convolutions: %s", layer.pair, why)


def _compete(layer: Layer, step: Step, lines: dict[str, str], min_gain: float, key: str, seconds: float) -> bool:
    """The contest of the two convolutions with the config that a look finds fastest; False where it failed. `lines`: by config."""
    stopwatch = Stopwatch(step.device)
    try:
        with torch.no_grad():
            sides = PairSides(step)
            if len(lines) > 1:
                layer.config = min(lines, key=lambda config: median_us(sides.convtune(lines[config]), stopwatch))
            line = lines[layer.config]
            found = check_and_contest(lambda: sides, step.problem.dtype, line, stopwatch, min_gain, f"{key} {line}", seconds)
    except Unsupported as why:
        layer.decision = f"the two convolutions: {str(why).splitlines()[0]}"
        return True
    except (Error, torch.cuda.OutOfMemoryError) as why:
        _stays_two(layer, why)
        return False
    layer.take(found)
    two = f"the two convolutions: {100 * min_gain:.3g} % less is not proven"
    layer.decision = f"convtune: one kernel in the place of two, {layer.config}" if found.accepted else two
    return True
