"""Decides which layers convtune computes faster than PyTorch: each problem tuned, checked, and proven in a contest.
Only a layer's two sides know what it is: a module, or a part of a compiled graph."""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Event
from typing import Any

import torch

from ..._contest import Contest, contest
from ...caches import PLANS
from ...convolution import Convolution, Plan
from ...errors import Error, Unsupported
from ...optimize_report import Layer
from ...problem import Problem
from ...progress import ProgressLine, Step
from ...tuning import search
from ..run import Planned, choice_line, fingerprint
from .check import check
from .contests import keep, keep_number, key_of, recall, recall_number
from .timing import Stopwatch

__all__ = ["VENDORS", "choices_of", "decide", "device_of", "planned_together"]

VENDORS = ("cudnn", "onednn")
_HEADROOM = 1.25  # over what the best layer of a model reaches
_ANSWERS = ("tuned", "unproven")  # sources of plans that are records
_LEAST_SECONDS = 3.0  # per layer's budget: less finds little that the first guess is not
_CONTEST_SECONDS = 5.0
_FIRST_CONTEST_SECONDS = 1.0  # if another one follows
_CONTESTS_SECONDS = 60.0  # for all layers together, where none follows


def check_and_contest(
    make_sides: Callable[[], Any],
    precision: str,
    line: str,
    stopwatch: Stopwatch,
    min_gain: float,
    key: str,
    max_seconds: float = _CONTEST_SECONDS,
) -> Contest:
    """Checks and holds the contest, once on a machine (`key`: contests.key_of) if it is decided. Raises Unsupported
    where convtune's answer is not as right as PyTorch's."""
    known = recall(key)
    if known is not None:
        return known
    sides = make_sides()
    ours = sides.convtune(line)
    check(sides, precision, ours())
    for _ in range(3):
        sides.pytorch(), ours()
    outcome = contest(
        lambda: stopwatch.time_us(sides.pytorch), lambda: stopwatch.time_us(ours), min_gain, max_seconds=max_seconds
    )
    if outcome.accepted or outcome.high < min_gain:  # a gain that was only disturbed may be proven another time
        keep(key, outcome)
    return outcome


def median_us(run: Callable[[], object], stopwatch: Stopwatch) -> float:
    for _ in range(2):
        run()
    return statistics.median(stopwatch.time_us(run) for _ in range(5))


def device_of(seen: Any) -> str:
    return "cpu" if seen.device.type == "cpu" else f"cuda:{seen.device.index}"


def _plan_of(problem: Problem, device: str) -> Plan | None:
    """The plan that convtune runs the problem by, without the vendor's kernel, which PyTorch has, too; but PyTorch
    needs another pass for what follows the sum. Raises Unsupported."""
    plan = Convolution(problem, device).plan
    if plan.algorithm not in VENDORS:
        return plan
    alone = not problem.bias and not problem.residual and problem.activation == "none"
    return None if alone else Convolution(problem, device, "ours").plan


def _way(problem: Problem, device: str, make_sides: Callable[[], Any], stopwatch: Stopwatch) -> tuple[Problem, Plan] | None:
    """The problem as which convtune runs it best, and the plan: as it stands, or, what lies channels last, as NCHW with
    copies before and after, where it may be worth them. None where the vendor's kernel is the best that convtune
    knows."""
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
        return median_us(make_sides().convtune(line), stopwatch)

    return min(ways, key=time_us)


def planned_together(
    layers: list[tuple[Layer, list[Any]]], lines: frozenset[str] = frozenset(), given_up: Event | None = None
) -> list[str]:
    """The plan of each layer in words, or why there is none. The compiled kernels are kept: those of all layers compile at
    the same time, not one after the other. `lines`: of plans that a graph has, whose loaded kernels stay for it. `given_up`: when
    that is set nobody waits for what has not begun; a process that ends would."""

    def plan(one: tuple[Layer, list[Any]]) -> str:
        if given_up is not None and given_up.is_set():
            return ""
        problem: Any = one[0].problem
        device = device_of(one[1][0])
        try:
            convolution = Convolution(problem, device)
            found = convolution.plan
            if found.algorithm in VENDORS:
                _plan_of(problem, device)
            elif (line := choice_line(device, problem, problem, found.algorithm, found.config)) in lines:
                index = -1 if device == "cpu" else one[1][0].device.index
                PLANS.get_or_make((line, index, 2), lambda: Planned(convolution, problem))
        except Error as why:
            return str(why)
        return f"{found.algorithm} {found.config} {found.source}"

    try:
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return list(pool.map(plan, layers))
    except RuntimeError:  # without a thread to be had
        return [plan(one) for one in layers]


def _can_gain(layers: list[tuple[Problem, int, float]]) -> list[float]:
    """Microseconds that tuning may gain of each (problem, calls, microseconds of the best way so far): down to a floor
    by the most products and bytes a microsecond that any of these layers has, and a quarter more."""
    flops = _HEADROOM * max((problem.flops / us for problem, _, us in layers), default=1)
    bytes_ = _HEADROOM * max((problem.bytes / us for problem, _, us in layers), default=1)
    return [calls * (us - max(problem.flops / flops, problem.bytes / bytes_)) for problem, calls, us in layers]


def _shares(layers: list[tuple[float, bool]], budget: float) -> list[float]:
    """Seconds of a budget for a search of layers (what tuning may gain, whether a record answers), of which the first
    gains most. What a record answers has had its part already, here or on the machine that a pack comes from: by what
    it can gain still, and `_LEAST_SECONDS` at least. Of the rest each has its part until too little is left for the
    next."""
    total = sum(gain for gain, _ in layers if gain > 0)
    parts = [max(_LEAST_SECONDS, budget * gain / total) if gain > 0 else _LEAST_SECONDS for gain, _ in layers]
    left = budget - sum(part for part, (_, is_answered) in zip(parts, layers) if is_answered)
    shares = [0.0] * len(layers)
    for i, (gain, is_answered) in enumerate(layers):
        if not is_answered:
            if gain <= 0 or left < min(_LEAST_SECONDS, budget):
                break
            shares[i] = min(left, parts[i])
            left -= shares[i]
    return shares


@dataclass
class _Task:
    """A layer to be decided. `source`: of the plan of what a search would be asked for; `can_gain`: microseconds of the
    model, by tuning; `share`: seconds of the budget."""

    layer: Layer
    seen: Any
    problem: Problem
    stopwatch: Stopwatch
    made: Any = None  # its sides, only while it is measured: the tensors of all layers would be more than a model has
    way: tuple[Problem, Plan] | None = None
    source: str = ""
    can_gain: float = 0.0
    share: float = 0.0
    looks: bool = False  # at what a graph's first call needs to know
    records: bool = field(default_factory=torch.is_grad_enabled)  # gradients

    def line(self) -> str:
        assert self.way is not None
        run_as, plan = self.way
        return choice_line(device_of(self.seen), self.problem, run_as, plan.algorithm, plan.config)

    def sides(self) -> Any:
        if self.made is None:  # ordinary tensors are made: weights of inference mode would be packed in every call
            with torch.inference_mode(False), torch.set_grad_enabled(self.records):
                self.made = self.seen.sides()
        return self.made

    def key(self, min_gain: float) -> str:
        assert self.way is not None
        what = f"{self.seen.kind} {self.way[0]} {self.line()} {min_gain}"
        return key_of(what, fingerprint(device_of(self.seen)), self.seen.device)

    def choose(self) -> None:
        """Raises Unsupported."""
        self.way = _way(self.problem, device_of(self.seen), self.sides, self.stopwatch)
        self.source = Convolution(self._asked(), device_of(self.seen)).plan.source

    def _asked(self) -> Problem:
        return self.way[0] if self.way else self.problem

    @property
    def is_answered(self) -> bool:
        """A contest that is not decided is no reason to search again: against PyTorch there is another one here."""
        return self.source in _ANSWERS

    def sources(self) -> list[str]:
        """The plans' sources as the records are now, in whichever layout it would run."""
        found = []
        for layout in ("nchw", "nhwc") if self.problem.layout == "nhwc" else ("nchw",):
            with contextlib.suppress(Unsupported):
                found.append(Convolution(self.problem.replace(layout=layout), device_of(self.seen)).plan.source)
        return found

    def best_us(self, min_gain: float) -> float:
        """The lower time of PyTorch's way, which the layer notes, and convtune's, in microseconds."""
        known = None if self.way is None else recall(self.key(min_gain))
        if known is not None:
            self.layer.pytorch_us, best = known.incumbent_us, min(known.incumbent_us, known.challenger_us)
        else:
            best = self.layer.pytorch_us = self.layer.pytorch_us or median_us(self.sides().pytorch, self.stopwatch)
            with contextlib.suppress(Unsupported):
                if self.way is not None:
                    best = min(best, median_us(self.sides().convtune(self.line()), self.stopwatch))
        self.made = None
        return best

    def tune(self, seconds: float, min_gain: float, tell: Callable[[Step], None]) -> None:
        found = search(self._asked(), device_of(self.seen), seconds, min_gain, tell, trials=0, retune=False, save=True)
        self.layer.warnings += found.tuning.all_warnings if found.tuning else ()
        self.choose()

    def compete(self, min_gain: float, max_seconds: float = _CONTEST_SECONDS) -> None:
        """The contest with PyTorch, and what it means for the layer."""
        try:
            if not self.source:
                self.choose()
            self._compete(min_gain, max_seconds)
        except Unsupported as why:
            if not self.layer.swapped:
                self.layer.decision = f"PyTorch: {str(why).splitlines()[0]}"
        self.made = None

    def _compete(self, min_gain: float, max_seconds: float) -> None:
        layer = self.layer
        if self.way is None and layer.swapped:
            return  # the choice that came before a search that found the vendor's kernel best was proven against PyTorch
        if self.way is None:
            layer.pytorch_us = layer.pytorch_us or median_us(self.sides().pytorch, self.stopwatch)
            layer.decision = "PyTorch: the vendor's kernel is the best that convtune knows"
            return
        run_as, plan = self.way
        rest = self.problem.precision, self.line(), self.stopwatch, min_gain, self.key(min_gain), max_seconds
        result = self._by_record(min_gain) or check_and_contest(self.sides, *rest)
        if layer.swapped and not result.accepted:
            return  # the plan that the search found is not proven, and what came before it was; a later call has the record alone
        layer.algorithm, layer.config, layer.layout = plan.algorithm, plan.config, run_as.layout
        layer.take(result)
        layer.decision = "convtune" if result.accepted else f"PyTorch: {100 * min_gain:.3g} % less is not proven"
        if result.accepted:
            layer.decision += f": {plan.algorithm}" + (" with copies" if run_as.layout != self.problem.layout else "")
            layer.alone_us = self._alone_us(min_gain)
        if plan.source not in _ANSWERS:
            layer.decision += ", not tuned"

    def _by_record(self, min_gain: float) -> Contest | None:
        """Two looks in the place of a check and a contest, for a graph's layer by a record that is proven against the vendor:
        so it was checked, too. None where the looks do not show what the record says."""
        assert self.way is not None
        if not self.looks or self.way[1].source != "tuned" or recall(self.key(min_gain)) is not None:
            return None
        theirs = median_us(self.sides().pytorch, self.stopwatch)
        ours = median_us(self.sides().convtune(self.line()), self.stopwatch)
        gain = 1 - ours / theirs
        if gain < min_gain:
            return None
        return Contest(True, gain, gain, gain, theirs, ours)  # no proof of its own, so a later process looks again

    def _alone_us(self, min_gain: float) -> float:
        """Microseconds that PyTorch's convolution takes without what follows it; 0 where that is not asked."""
        if not self.looks:
            return 0.0
        key = f"{self.key(min_gain)} alone"
        known = recall_number(key)
        if not known:
            known = median_us(self.sides().alone, self.stopwatch)
            keep_number(key, known)
        return known


def _where_they_stand(tasks: list[_Task], min_gain: float) -> str:
    """The key of a model, by its layers and which of them records answer."""
    layers = sorted(
        (one.seen.kind, one.layer.calls, fingerprint(device_of(one.seen)), [of in _ANSWERS for of in one.sources()])
        for one in tasks
    )
    return key_of(f"budget {layers} {min_gain}", fingerprint(device_of(tasks[0].seen)), tasks[0].seen.device)


def decide(
    layers: list[tuple[Layer, list[Any]]], budget: float, min_gain: float, line: ProgressLine | None,
    in_graph_seconds: float = 0.0, are_decided: bool = False,
) -> None:  # fmt: skip
    """Lets each problem compete as convtune's records or first guesses run it, tunes and lets it compete again; fills
    the layers. First guesses have most of the gain, before anything is searched. Those that can gain most of the
    model's time are tuned first and longest, those that cannot gain a thousandth of it are not. What records answer has
    had its share of the budget, and a model that was given as much before, here or in another process, is not searched
    again. `in_graph_seconds`: for all contests of a compiled graph's layers, and once more for those that were searched;
    `are_decided`: the layers tell contests of the plans that they have before a search."""
    todo = [(layer, seen) for layer, seen in layers if layer.problem is not None]
    if not in_graph_seconds and any(seen[0].device.type == "cuda" for _, seen in todo):
        planned_together(todo)
    stopwatches = {one.device: Stopwatch(one.device) for _, seen in todo for one in seen}
    tasks = [
        _Task(layer, seen[0], layer.problem, stopwatches[seen[0].device], looks=in_graph_seconds > 0)  # type: ignore[arg-type]
        for layer, seen in todo
    ]
    if not tasks or (budget > 0 and recall_number(_where_they_stand(tasks, min_gain)) >= budget):
        budget = 0

    def show(number: int, task: _Task, step: Step | None = None) -> None:
        if line is not None:
            label = f"{'convtune: ' if in_graph_seconds else ''}{number}/{len(tasks)} {task.layer.names[0]}"
            line.show(step.text(label) if step else f"{label}: contest")

    # A graph's have as little as ten rounds take: what is far ahead needs no more.
    least = 0.0 if in_graph_seconds else _FIRST_CONTEST_SECONDS
    end = time.monotonic() + (in_graph_seconds or _CONTESTS_SECONDS)
    for number, task in enumerate(tasks, 1):
        show(number, task)
        share = (end - time.monotonic()) / (len(tasks) - number + 1)
        seconds = max(least, min(share, _CONTEST_SECONDS))
        if are_decided:
            with contextlib.suppress(Unsupported):  # said when it competed
                task.choose()
        else:
            task.compete(min_gain, _FIRST_CONTEST_SECONDS if budget > 0 and not in_graph_seconds else seconds)
    if budget > 0:
        _tune(tasks, budget, min_gain, show, in_graph_seconds)
        keep_number(_where_they_stand(tasks, min_gain), budget)


def _tune(tasks: list[_Task], budget: float, min_gain: float, show: Callable[..., None], in_graph_seconds: float = 0.0) -> None:
    """Tunes the layers that can gain most, and lets them compete as they run then: all of them, or only what was searched of a
    compiled graph, whose other contests were held or remembered."""
    known = [(task.problem, task.layer.calls, task.best_us(min_gain)) for task in tasks]
    for task, can_gain in zip(tasks, _can_gain(known)):
        task.can_gain = can_gain
    least = sum(calls * us for _, calls, us in known) / 1000
    ranked = sorted(tasks, key=lambda task: -task.can_gain)
    worth = [task for task in ranked if task.can_gain >= least]
    shared = worth + [task for task in ranked[len(worth) :] if task.is_answered]
    for task, share in zip(shared, _shares([(task.can_gain, task.is_answered) for task in shared], budget)):
        task.share = share
    left = sum(task.share for task in worth)
    left_to_gain = sum(task.can_gain for task in worth if task.share > 0)
    # A search of half a second is no reason for a contest of four.
    in_contest = min(in_graph_seconds, max(budget, _FIRST_CONTEST_SECONDS)) / max(1, sum(task.share > 0 for task in tasks))
    for number, task in enumerate(ranked, 1):

        def tell(step: Step, number: int = number, task: _Task = task) -> None:
            show(number, task, step)

        seconds = task.share
        if seconds > 0:  # and of what others have left
            seconds = max(seconds, left * task.can_gain / left_to_gain)
            left_to_gain -= task.can_gain
        elif left >= _LEAST_SECONDS and number <= len(worth) and not task.is_answered:
            seconds = _LEAST_SECONDS
        if seconds > 0:
            begin = time.monotonic()
            with contextlib.suppress(Unsupported):  # said when it competed
                task.tune(seconds, min_gain, tell)
            left -= time.monotonic() - begin
        show(number, task)
        if not in_graph_seconds:
            task.compete(min_gain)
        elif seconds > 0:
            task.compete(min_gain, in_contest)


def choices_of(layers: list[tuple[Layer, list[Any]]]) -> dict[str, str]:
    """The choices that `swap` takes, by module name."""
    lines: dict[str, list[str]] = {}
    for layer, seen in layers:
        if layer.swapped and layer.problem is not None:
            run_as = layer.problem.replace(layout=layer.layout)
            for one in seen:
                line = choice_line(device_of(one), layer.problem, run_as, layer.algorithm, layer.config)
                lines.setdefault(one.name, []).append(line)
    return {name: "\n".join(of) for name, of in lines.items()}
