"""Which layers convtune computes faster than PyTorch: each problem tuned, checked, and proven in a contest. What a
layer is (a module, a part of a compiled graph) only its two sides know."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ._contest import Contest, contest
from .convolution import Convolution, Plan
from .errors import Error, Unsupported
from .problem import Problem
from .progress import ProgressLine, Step
from .torch_report import Layer
from .torch_run import choice_line
from .torch_timing import Stopwatch
from .tuning import search

__all__ = ["VENDORS", "choices_of", "decide", "device_of"]

VENDORS = ("cudnn", "onednn")
_LEAST_SECONDS = 3.0  # of a layer's budget: less finds little that the first guess is not
# Largest difference from PyTorch's answer over that answer's root mean square: rounding, and no more than that.
_TOLERANCE = {"tf32": 2e-2, "fp32": 2e-3, "fp16": 2e-2}


def _check_and_contest(sides: Any, precision: str, line: str, stopwatch: Stopwatch, min_gain: float) -> Contest:
    """Raises Unsupported where the answers differ by more than rounding."""
    ours = sides.convtune(line)
    expected, got = sides.expected().detach(), ours().detach()
    expected, got = expected.float(), got.float()
    scale = expected.square().mean().sqrt().clamp_min(1e-30)
    error = float((got - expected).abs().max() / scale) if expected.numel() else 0.0
    if not error <= _TOLERANCE.get(precision, 5e-2):
        raise Unsupported(f"its answer differs from PyTorch's by {error:.2g} of the root mean square")
    del expected, got
    for _ in range(3):
        sides.pytorch(), ours()
    return contest(lambda: stopwatch.time_us(sides.pytorch), lambda: stopwatch.time_us(ours), min_gain, max_seconds=5)


def _median_us(run: Callable[[], object], stopwatch: Stopwatch) -> float:
    for _ in range(2):
        run()
    return statistics.median(stopwatch.time_us(run) for _ in range(5))


def device_of(seen: Any) -> str:
    return "cpu" if seen.device.type == "cpu" else f"cuda:{seen.device.index}"


def _plan_of(problem: Problem, device: str) -> Plan | None:
    """What convtune runs it by, without the vendor's kernel, which PyTorch has, too; but PyTorch needs another pass for
    what follows the sum. Raises Unsupported."""
    plan = Convolution(problem, device).plan
    if plan.algorithm not in VENDORS:
        return plan
    alone = not problem.bias and not problem.residual and problem.activation == "none"
    return None if alone else Convolution(problem, device, "ours").plan


def _way(problem: Problem, device: str, sides: Any, stopwatch: Stopwatch) -> tuple[Problem, Plan] | None:
    """As what convtune runs it best: as it stands, or, what lies channels last, as NCHW with copies before and after,
    where it may be worth them. None where the vendor's kernel is the best that convtune knows."""
    ways = []
    for one in [problem] + ([problem.replace(layout="nchw")] if problem.layout == "nhwc" else []):
        if ways and problem.dtype != "f32":  # for half precision the kernels are of channels last
            break
        with contextlib.suppress(Unsupported):
            plan = _plan_of(one, device)
            if plan is not None and plan.algorithm != "reference":
                ways.append((one, plan))
    if len(ways) < 2:
        return ways[0] if ways else None

    def time_us(way: tuple[Problem, Plan]) -> float:
        line = choice_line(device, problem, way[0], way[1].algorithm, way[1].config)
        return _median_us(sides.convtune(line), stopwatch)

    return min(ways, key=time_us)


def _planned_together(layers: list[tuple[Layer, list[Any]]]) -> None:
    """What a plan compiles is kept: the kernels of all layers compile at the same time, not one after the other."""

    def plan(one: tuple[Layer, list[Any]]) -> None:
        with contextlib.suppress(Error):
            _plan_of(one[0].problem, device_of(one[1][0]))  # type: ignore[arg-type]

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(plan, layers))


def decide(layers: list[tuple[Layer, list[Any]]], budget: float, min_gain: float, line: ProgressLine | None) -> None:
    """Tunes each problem and lets it compete; fills the layers."""
    todo = [(layer, seen) for layer, seen in layers if layer.problem is not None]
    if any(seen[0].device.type == "cuda" for _, seen in todo):
        _planned_together(todo)
    stopwatches = {one.device: Stopwatch(one.device) for _, seen in todo for one in seen}
    for layer, seen in todo:
        layer.pytorch_us = _median_us(seen[0].sides().pytorch, stopwatches[seen[0].device])
    todo.sort(key=lambda one: -one[0].pytorch_us * one[0].calls)
    cost_left = sum(layer.pytorch_us * layer.calls for layer, _ in todo)
    deadline = time.monotonic() + budget
    for number, (layer, seen) in enumerate(todo, 1):
        problem, device, stopwatch = layer.problem, device_of(seen[0]), stopwatches[seen[0].device]
        assert problem is not None
        label, cost = f"{number}/{len(todo)} {layer.names[0]}", layer.pytorch_us * layer.calls

        def tell(step: Step, label: str = label) -> None:
            if line is not None:
                line.show(step.text(label))

        try:
            sides = seen[0].sides()
            way = _way(problem, device, sides, stopwatch)
            left = deadline - time.monotonic()
            if left > 0 and (way is None or way[1].source != "tuned"):
                share = min(left, max(_LEAST_SECONDS, left * cost / max(cost_left, 1e-9)))
                asked = way[0] if way else problem
                found = search(asked, device, share, min_gain, tell, trials=0, retune=False, save=True)
                layer.warnings += found.tuning.all_warnings if found.tuning else ()
                way = _way(problem, device, sides, stopwatch)
            cost_left -= cost
            if way is None:
                layer.decision = "PyTorch: the vendor's kernel is the best that convtune knows"
                continue
            run_as, plan = way
            layer.algorithm, layer.config, layer.layout = plan.algorithm, plan.config, run_as.layout
            if line is not None:
                line.show(f"{label}: contest")
            proven = choice_line(device, problem, run_as, plan.algorithm, plan.config)
            result = _check_and_contest(sides, problem.precision, proven, stopwatch, min_gain)
        except Unsupported as why:
            layer.decision = f"PyTorch: {str(why).splitlines()[0]}"
            continue
        layer.pytorch_us, layer.convtune_us = result.incumbent_us, result.challenger_us
        layer.gain, layer.swapped = result.gain, result.accepted
        layer.decision = "convtune" if result.accepted else f"PyTorch: {100 * min_gain:.3g} % less is not proven"
        if result.accepted:
            layer.decision += f": {plan.algorithm}" + (" with copies" if run_as.layout != problem.layout else "")
        if plan.source not in ("tuned", "unproven"):
            layer.decision += ", not tuned"


def choices_of(layers: list[tuple[Layer, list[Any]]]) -> dict[str, str]:
    """By module name: what `swap` takes."""
    lines: dict[str, list[str]] = {}
    for layer, seen in layers:
        if layer.swapped and layer.problem is not None:
            run_as = layer.problem.replace(layout=layer.layout)
            for one in seen:
                line = choice_line(device_of(one), layer.problem, run_as, layer.algorithm, layer.config)
                lines.setdefault(one.name, []).append(line)
    return {name: "\n".join(of) for name, of in lines.items()}
