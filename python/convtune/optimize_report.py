"""The findings of optimize: a row a layer, and the whole model; printed as a table."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from html import escape
from typing import Any

from . import _library
from ._contest import Contest
from .page import write_report
from .problem import Problem
from .table import html_table, lined_up, microseconds

__all__ = ["Layer", "OptimizeReport", "shipped_note"]


@dataclass
class Layer:
    """A convolution that the model runs on the example: in the modules `names`, `calls` times in one forward. Times in
    microseconds: PyTorch's median, and that less the gain. `gain`: the median of the contest's rounds, 0.10 takes 10 %
    less time; `low, high`: the 99 % interval that holds it."""

    names: list[str]
    problem: Problem | None
    calls: int = 0
    pytorch_us: float = 0.0
    convtune_us: float = 0.0
    gain: float = 0.0
    algorithm: str = ""
    config: str = ""
    layout: str = ""  # in which convtune runs it; with copies before and after where that is not the problem's
    swapped: bool = False
    decision: str = ""
    warnings: list[str] = field(default_factory=list)  # for its tuning
    low: float = 0.0
    high: float = 0.0
    alone_us: float = 0.0  # PyTorch's convolution without what follows it, where that was asked
    pair: str = ""  # the sizes of a residual step, where the row is one: two layers with rows of their own, as one kernel

    @property
    def what(self) -> str:
        """The sizes as text; "" where they are not known."""
        return str(self.problem or self.pair)

    def take(self, outcome: Contest) -> None:
        """The numbers of a contest with PyTorch, and whether it was won."""
        self.pytorch_us, self.convtune_us, self.swapped = outcome.incumbent_us, outcome.paired_us, outcome.accepted
        self.gain, self.low, self.high = outcome.gain, outcome.low, outcome.high


@dataclass
class OptimizeReport:
    """The measurements and decisions of optimize; `print(report)` is the table. Times in microseconds. `before_us`: the
    whole forward, by the wall clock, median of the last contest that was held, 0 where nothing was there to be swapped;
    `after_us`: that less the gain, which lies in `low, high`. `kept`: whether the swaps stayed. `pytorch`: the version
    that was measured. `seconds`: those of a compiled graph's first call, by what they were spent on."""

    device: str
    training: bool
    layers: list[Layer] = field(default_factory=list)
    before_us: float = 0.0
    after_us: float = 0.0
    gain: float = 0.0
    low: float = 0.0
    high: float = 0.0
    kept: bool = False
    functional: int = 0
    mode: str = ""  # the mode of torch.compile, through which the whole model was measured; "": eager
    notes: list[str] = field(default_factory=list)
    pytorch: str = ""
    seconds: dict[str, float] = field(default_factory=dict)
    step: bool = False  # True: a step of training, zero_grad to optimizer, was measured in the place of a forward

    def take(self, outcome: Contest) -> None:
        """The numbers of a contest of the whole forward, and whether it was won."""
        self.before_us, self.after_us, self.kept = outcome.incumbent_us, outcome.paired_us, outcome.accepted
        self.gain, self.low, self.high = outcome.gain, outcome.low, outcome.high

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a self-contained page of HTML with charts, or, for a path that ends in ".json", what `convtune report
        FILE.json --html PAGE` makes one of. Raises OSError."""
        own = ("training", "mode", "before_us", "after_us", "gain", "low", "high", "kept", "notes")
        model: dict[str, Any] = {name: getattr(self, name) for name in own}
        model["layers"] = [{**vars(layer), "problem": layer.what, "warnings": None, "pair": None} for layer in self.layers]
        write_report(path, {"model": model}, self.device, {"PyTorch": self.pytorch} if self.pytorch else {})

    def _cells(self) -> tuple[list[str], list[list[str]], str]:
        """The table: its header, its rows, and which columns are set to the right."""
        header = ["layer", "problem", "calls", "PyTorch us", "convtune us", "gain", "decision"]
        rows = []
        for layer in self.layers:
            more = f" and {len(layer.names) - 1} more" if len(layer.names) > 1 else ""
            measured = layer.convtune_us > 0
            rows.append(
                [
                    layer.names[0] + more,
                    layer.what,
                    str(layer.calls),
                    microseconds(layer.pytorch_us) if layer.pytorch_us > 0 else "",
                    microseconds(layer.convtune_us) if measured else "",
                    _interval(layer.gain, layer.low, layer.high) if measured else "",
                    layer.decision,
                ]
            )
        return header, rows, "llrrrrl"

    def _repr_html_(self) -> str:
        """The whole forward and the tables, in a notebook."""
        text = f"<p>{escape(self._whole()).strip()}</p>".replace("\n", "<br>") + html_table(*self._cells())
        return text + (html_table(*self._times()) if self.seconds else "")

    def __str__(self) -> str:
        return (lined_up(*self._cells()) if self.layers else "no convolution ran\n") + self._whole() + self.timetable()

    def _whole(self) -> str:
        """The whole forward, and the notes."""
        text = ""
        mode = "training" if self.training else "eval"
        if self.mode:
            mode += f", torch.compile {self.mode}"
        if self.pytorch:
            mode += f", PyTorch {self.pytorch}"
        if self.before_us > 0:
            text += (
                f"whole {'step' if self.step else 'forward'} ({mode}): {microseconds(self.before_us)} us before, {microseconds(self.after_us)} us "
                f"with convtune: {100 * self.gain:.1f} % less (99 % interval {100 * self.low:.1f}.."
                f"{100 * self.high:.1f} %)\n"
            )
            kinds = [layer for layer in self.layers if not layer.pair]
            text += f"{sum(layer.swapped for layer in kinds)} of {len(kinds)} kinds of layers swapped\n" if self.kept else ""
        for note in self.notes:
            text += note + "\n"
        return text

    def timetable(self) -> str:
        """The seconds of a compiled graph's first call as a table; "" where none were noted. What Dynamo takes before it is
        not among them."""
        return lined_up(*self._times()) if self.seconds else ""

    def _times(self) -> tuple[list[str], list[list[str]], str]:
        total = sum(self.seconds.values())
        rows = [[phase, f"{took:.2f}", f"{100 * took / max(total, 1e-9):.0f} %"] for phase, took in self.seconds.items()]
        return ["first call", "seconds", "share"], [*rows, ["together", f"{total:.2f}", ""]], "lrr"


def shipped_note(layers: list[Layer]) -> str:
    """Words where this version ships records of the layers that are not among the user's; else ""."""
    lines = _library.take_text(_library.library.convtune_missing_shipped_records).splitlines()
    missing = [Problem.parse(json.loads(line)["problem"]) for line in lines]
    asked = [layer.problem for layer in layers if layer.problem is not None]
    count = sum(
        any(one.precision in ("auto", there.precision) and one.replace(precision=there.precision) == there for there in missing)
        for one in asked
    )
    if not count:
        return ""
    kinds = sum(not layer.pair for layer in layers)
    return (
        f"this version ships records of {count} of {kinds} kinds of layers, which need no search then: "
        "`convtune db import --shipped` takes them over"
    )


def _interval(gain: float, low: float, high: float) -> str:
    """ "20.0 % (17.5..22.1)" """
    return f"{100 * gain:.1f} %" + (f" ({100 * low:.1f}..{100 * high:.1f})" if low < high else "")
