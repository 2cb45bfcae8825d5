"""A model as a list of convolutions, as `convtune ... --model` reads it, and where the time of them goes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .convolution import Convolution
from .errors import InvalidArgument, Unsupported
from .geometry import whole
from .page import write_file, write_report
from .problem import Problem
from .report import Provider, Report
from .table import TIMES, lined_up, scale
from .tuning import bench, search

__all__ = ["ModelConvolution", "ModelProblems", "ModelReport", "SkippedLayers"]


@dataclass
class ModelConvolution:
    """Equal convolutions of a model: how often one pass runs them, and the names of their layers."""

    problem: Problem
    count: int
    layers: list[str]

    @property
    def label(self) -> str:
        more = f" and {len(self.layers) - 1} more" if len(self.layers) > 1 else ""
        return (self.layers[0] if self.layers else str(self.problem)) + more


@dataclass
class SkippedLayers:
    """Convolutions that are no problem here, and why."""

    what: str
    why: str
    count: int
    layers: list[str]


@dataclass
class ModelProblems:
    """The convolutions of a model; `print` shows them. What `save` writes, the command takes: `convtune tune --model
    LIST.json`."""

    name: str
    convolutions: list[ModelConvolution]
    skipped: list[SkippedLayers] = field(default_factory=list)

    def __iter__(self) -> Iterator[ModelConvolution]:
        return iter(self.convolutions)

    def __len__(self) -> int:
        return len(self.convolutions)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the list as JSON; the path must end in ".json". Raises OSError."""
        content = {
            "schema": 1,
            "model": self.name,
            "convolutions": [
                {"problem": one.problem.key, "count": one.count, "layers": one.layers} for one in self.convolutions
            ],
            "skipped": [vars(one) for one in self.skipped],
        }
        write_file(path, json.dumps(content, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ModelProblems:
        """A list that `save` or `convtune cases --json` wrote. Raises OSError, and InvalidArgument that names the file."""
        with open(path, encoding="utf-8") as file:
            text = file.read()
        try:
            content = json.loads(text)
            convolutions = [
                ModelConvolution(Problem.parse(one["problem"]), whole(one["count"], "count"), list(one["layers"]))
                for one in content["convolutions"]
            ]
            skipped = [SkippedLayers(**one) for one in content.get("skipped") or []]
            return cls(str(content["model"]), convolutions, skipped)
        except (ValueError, KeyError, TypeError, AttributeError) as why:
            raise InvalidArgument(f"{os.fspath(path)} is no list of a model's convolutions: {why!r}") from why

    def tune(
        self, device: Any = None, budget: float = 60, min_gain: float = 0.02, progress: bool = True, *, save: bool = True
    ) -> ModelReport:
        """convtune.tune of each, `budget` seconds a problem. Warnings are in the reports."""
        return self._measured(lambda one: search(one, device, budget, min_gain, progress, 0, False, save))

    def bench(self, device: Any = None, seconds: float = 3) -> ModelReport:
        """convtune.bench of each, about `seconds` a problem."""

        def measured(one: Problem) -> Report:
            # The slow reference would take nearly all of the model's time, and hide where the rest goes.
            if Convolution(one, device).plan.algorithm == "reference":
                raise Unsupported("only the reference runs it, which is right, and slow")
            return bench(one, device, seconds)

        return self._measured(measured)

    def _measured(self, measure: Callable[[Problem], Report]) -> ModelReport:
        result = ModelReport(self.name, [], list(self.skipped))
        for one in self.convolutions:
            try:
                result.rows.append(ModelRow(one, measure(one.problem)))
            except Unsupported as why:
                reason = str(why).splitlines()[0].removesuffix(":")
                result.skipped.append(SkippedLayers("convolution", reason, one.count, one.layers))
        return result

    def __str__(self) -> str:
        work = [one.count * one.problem.flops / 1e9 for one in self.convolutions]
        whole = sum(work)
        rows = [
            [one.label, str(one.count), f"{gflop:.3g}", _share(gflop, whole), one.problem.key]
            for one, gflop in zip(self.convolutions, work)
        ]
        runs = sum(one.count for one in self.convolutions)
        rows.append([f"all of {self.name}", str(runs), f"{whole:.3g}", _share(whole, whole), f"{len(self)} problems"])
        return lined_up(["layer", "runs", "GFLOP", "of all", "problem"], rows, "lrrrl") + _words(self.skipped)


@dataclass
class ModelRow:
    """A convolution of a model, measured. Times are of all its runs in one pass, in microseconds."""

    convolution: ModelConvolution
    report: Report

    @property
    def us(self) -> float:
        """convtune's; 0 where it has none."""
        return self.convolution.count * self.report.own.time_us if self.report.own else 0.0

    @property
    def peer(self) -> Provider | None:
        """The fastest of the vendor's ways."""
        return self.report.peer

    @property
    def peer_us(self) -> float:
        """The time of `peer`; convtune's own where there is no peer."""
        return self.convolution.count * self.peer.time_us if self.peer else self.us


@dataclass
class ModelReport:
    """The shares of a model's time, and what convtune gains; `print` is the table, most time first. Only convolutions are
    measured, one by one: what is between them is no part of it."""

    name: str
    rows: list[ModelRow]
    skipped: list[SkippedLayers]

    @property
    def time_us(self) -> float:
        return sum(row.us for row in self.rows)

    @property
    def best_peer_us(self) -> float:
        return sum(row.peer_us for row in self.rows)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a self-contained page of HTML with charts, or, for a path that ends in ".json", what `convtune report
        FILE.json --html PAGE` makes one of. Raises OSError."""
        rows = [{**row.report.json, "count": row.convolution.count, "layers": row.convolution.layers} for row in self.rows]
        device = "cuda" if any(row.report.device.startswith("cuda|") for row in self.rows) else "cpu"
        write_report(path, {"rows": rows}, device)

    def __str__(self) -> str:
        measured = sorted((row for row in self.rows if row.us > 0), key=lambda row: -row.peer_us)
        if not measured:
            return "nothing was measured\n" + _words(self.skipped)
        unit, time = scale(measured[-1].peer_us, TIMES)
        whole = self.best_peer_us
        lines = [
            [
                row.convolution.label,
                str(row.convolution.count),
                _share(row.peer_us, whole),
                time(row.peer_us) if row.peer else "-",
                time(row.us),
                f"{row.peer_us / row.us:.2f}x" if row.peer else "-",
                time(row.peer_us - row.us),
                row.report.own.algorithm if row.report.own else "",
                row.convolution.problem.key,
            ]
            for row in measured
        ]
        runs = sum(row.convolution.count for row in measured)
        ours = self.time_us
        lines.append(
            ["all convolutions", str(runs), _share(1, 1), time(whole), time(ours), f"{whole / ours:.2f}x",
             time(whole - ours), "", ""]
        )  # fmt: skip
        header = ["where the time goes", "runs", "share", f"best peer {unit}", f"convtune {unit}", "speed-up",
                  f"gain {unit}", "algorithm", "problem"]  # fmt: skip
        text = lined_up(header, lines, "lrrrrrrll")
        if missing := len(self.rows) - len(measured):
            text += f"{missing} {'kind has' if missing == 1 else 'kinds have'} no time\n"
        return text + _words(self.skipped)


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole > 0 else "-"


def _words(skipped: list[SkippedLayers]) -> str:
    text = ""
    for one in skipped:
        more = f" and {len(one.layers) - 1} more" if len(one.layers) > 1 else ""
        many = f"{one.count} of " if one.count > 1 else ""
        text += f"skipped {many}{one.what} ({one.layers[0]}{more}): {one.why}\n"
    return text
