"""The findings of `tune` and `bench`: values over the JSON that the command writes, printed as the command prints
them."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from html import escape
from typing import Any

from .machine import devices
from .page import write_report
from .problem import Problem
from .table import TIMES, html_table, lined_up, scale, time_text

__all__ = ["Provider", "Report", "Tuning"]


@dataclass(frozen=True)
class Provider:
    """One measured way: convtune's own, or a variant of the vendor's. `time_us`: median of `n`; `mad_us`: median
    absolute deviation; `max_error`: largest |y - oracle| over the oracle's root mean square, sampled. `failure`: not
    empty where it could not run or was wrong; the numbers then mean nothing. `interrupted`: of the `n` samples, by other
    work on a CPU."""

    name: str
    algorithm: str
    config: str
    time_us: float
    mad_us: float
    n: int
    roofline_fraction: float
    max_error: float
    failure: str = ""
    interrupted: int = 0

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> Provider:
        return cls(**{name: json[name] for name in cls.__dataclass_fields__ if name in json})

    @property
    def how(self) -> str:
        """Algorithm and config."""
        return f"{self.algorithm} {self.config}".rstrip()


@dataclass(frozen=True)
class Tuning:
    """How a search went. `from_record`: answered without measuring. The `candidates` configs are `trials`, tried in this
    call; `resumed`: taken from an earlier search that was stopped; `pruned`: not worth trying; `wrong`: failed the
    check. `record`: the file of the record, None without one. `proven`: the contest was decided, against all of the
    vendor's ways that were tried; else the next tune holds it again. `not_recorded`: why the record could not be
    written; empty where it was, or was not to be. `small_trials`: tried on `small_batch` images, where there was no time
    to try all on the whole batch."""

    from_record: bool
    interrupted: bool
    trials: int
    resumed: int
    pruned: int
    wrong: int
    candidates: int = 0
    record: str | None = None
    warnings: tuple[str, ...] = ()
    last_stage: dict[str, Any] | None = field(default=None, hash=False)
    proven: bool = True
    not_recorded: str = ""
    small_batch: int = 0
    small_trials: int = 0

    @property
    def all_warnings(self) -> tuple[str, ...]:
        """The search's, and that its result is not recorded."""
        lost = (f"the result is not recorded: {self.not_recorded}",) if self.not_recorded else ()
        return self.warnings + lost

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> Tuning:
        values = {name: json[name] for name in cls.__dataclass_fields__ if name in json}
        return cls(**{**values, "warnings": tuple(json.get("warnings") or ())})


@dataclass(frozen=True)
class Report:
    """convtune's answer beside the vendor's, measured in one run; `print(report)` is the table.

    `providers`: convtune first, then the vendor's variants. `best_peer`: name of the fastest of those, None without
    one; `speedup`: its time over convtune's. `floor_us`: no kernel can be faster; `bound`: by "compute" or "memory".
    `incumbent`: the vendor's library and its version, "oneDNN 3.2.0", None without one.
    `device` is the device's fingerprint. `tuning` is None for `bench`. `json` is all of it, as the command writes it.
    """

    problem: Problem
    device: str
    floor_us: float
    bound: str
    providers: tuple[Provider, ...]
    best_peer: str | None
    speedup: float | None
    decision: str
    tuning: Tuning | None
    failure: str
    incumbent: str | None
    json: dict[str, Any] = field(repr=False, compare=False, hash=False)

    @classmethod
    def from_json(cls, json: dict[str, Any], name: str = "") -> Report:
        tuning = json.get("tuning")
        return cls(
            Problem.parse(json["problem"]).replace(name=name or json.get("case") or ""),
            json["device"],
            json["roofline"]["floor_us"],
            json["roofline"]["bound"],
            tuple(Provider.from_json(one) for one in json["providers"]),
            json.get("best_peer"),
            json.get("speedup"),
            json.get("decision") or "",
            None if tuning is None else Tuning.from_json(tuning),
            json.get("failure") or "",
            json.get("incumbent"),
            json,
        )

    @property
    def own(self) -> Provider | None:
        """convtune's own result; None where it failed."""
        first = self.providers[0] if self.providers else None
        return None if first is None or first.failure or self.failure else first

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a self-contained page of HTML with charts, or, for a path that ends in ".json", what `convtune report
        FILE.json --html PAGE` makes one of. Raises OSError."""
        device = "cuda" if self.device.startswith("cuda|") else "cpu"
        write_report(path, {"rows": [self.json]}, device)

    def __str__(self) -> str:
        floor = f"; roofline {time_text(self.floor_us)}, bound by {self.bound}" if self.floor_us > 0 else ""
        against = f"; incumbent {self.incumbent}" if self.incumbent else ""
        text = f"{self.problem}\n{self._where()}{floor}{against}\n\n"
        if self.providers:
            text += lined_up(*self._cells()) + self._below()
        if self.failure:
            text += f"failed: {self.failure}\n"
        if self.own is not None:
            runs = "" if self.best_peer == self.own.how else f"convtune runs {self.own.how}\n"
            if self.own.algorithm.startswith("winograd") and self.own.roofline_fraction > 1:
                runs += "more than 100 %: winograd makes fewer products than the roofline counts\n"
            text += f"\n{self._verdict()}\n{runs}"
        if machine := self.json.get("machine"):
            text += f"{'the machine is busy: ' if machine['busy'] else ''}{machine['finding']}\n"
        if self.decision:
            text += f"decision: {self._without_config(self.decision)}\n"
        if self.tuning is not None:
            text += self._search(self.tuning)
        return text

    def _where(self) -> str:
        """The device in the command's words; its fingerprint where it is not in this machine."""
        one = next((one for one in devices() if one.fingerprint == self.device), None)
        if one is None:
            return self.device
        unit = "thread" if one.device == "cpu" else "multiprocessor"
        return f"{one.device}: {one.name}, {one.units} {unit}{'' if one.units == 1 else 's'}, {one.isa}"

    def _repr_html_(self) -> str:
        """The verdict and the table, in a notebook."""
        html = f"<p><strong>{escape(self._verdict())}</strong></p>" if self.own is not None else ""
        html += html_table(*self._cells()) if self.providers else ""
        html += f"<p>failed: {escape(self.failure)}</p>" if self.failure else ""
        return html + f"<p>{escape(str(self.problem))}<br>{escape(self._where())}</p>"

    def _verdict(self) -> str:
        unproven = " (not proven)" if self.tuning is not None and not self.tuning.proven else ""
        return f"{self.json.get('verdict', '')}{unproven}"

    @property
    def peer(self) -> Provider | None:
        """The fastest of the vendor's ways; None without one."""
        return next((one for one in self.providers[1:] if one.name == self.best_peer and not one.failure), None)

    def _rows(self) -> list[Provider]:
        """convtune's own, and of each layout, which the vendor's configs name first, the fastest; its own not again."""
        own = self.providers[0]
        best: dict[tuple[str, str], Provider] = {}
        for one in self.providers[1:]:
            layout = (one.algorithm, one.config.split(" ")[0])
            if one.failure or one.name == own.how:
                continue
            known = best.setdefault(layout, one)
            if one.name == self.best_peer or (known.name != self.best_peer and one.time_us < known.time_us):
                best[layout] = one
        return [own, *best.values()]

    def _cells(self) -> tuple[list[str], list[list[str]], str]:
        """The table: its header, its rows, and which columns are set to the right."""
        rows, peer = self._rows(), self.peer
        least = min((one.time_us for one in rows if one.time_us > 0), default=0.0)

        def rate(work: float, us: float) -> float:
            return work / us / 1e3 if us > 0 else 0.0

        time_unit, time = scale(least, TIMES)
        flop_unit, flops = scale(rate(self.problem.flops, least), ("GFLOP/s", "TFLOP/s"))
        byte_unit, bytes_ = scale(rate(self.problem.bytes, least), ("GB/s", "TB/s"))
        lines = []
        for one in rows:
            us = one.time_us
            numbers = [
                time(us),
                f"{peer.time_us / us:.2f}x" if peer is not None and us > 0 else "-",
                flops(rate(self.problem.flops, us)),
                bytes_(rate(self.problem.bytes, us)),
                f"{100 * one.roofline_fraction:.1f} %" if self.floor_us > 0 else "-",
                f"{one.max_error:.1e}" if one.n > 0 else "-",
            ]
            lines.append([one.name, *(numbers if us > 0 else ["-"] * len(numbers))])
        header = ["provider", f"time {time_unit}", "speed-up", flop_unit, byte_unit, "of roofline", "max error"]
        return header, lines, " rrrrrr"

    def _below(self) -> str:
        """The lines below the table: the vendor's ways that it leaves out."""
        rows = self._rows()
        same = sum(not one.failure for one in self.providers[1:] if one.name == rows[0].how)
        failed = [one for one in self.providers if one.failure]
        more = len(self.providers) - len(rows) - same - sum(one is not rows[0] for one in failed)
        text = f"and {more} slower {'way' if more == 1 else 'ways'} of the vendor's (providers has them)\n" if more > 0 else ""
        return text + "".join(f"{one.name} failed: {one.failure}\n" for one in failed)

    def _without_config(self, text: str) -> str:
        """The text without convtune's own config, which has a line of its own."""
        own = self.own
        vendors = {one.name for one in self.providers}
        return text if own is None or not own.config or own.how in vendors else text.replace(own.how, "convtune")

    def _search(self, tuning: Tuning) -> str:
        if tuning.from_record:
            text = "search: none, nothing was measured; retune=True searches again\n"
        else:
            text = f"search: {tuning.trials + tuning.resumed} of {tuning.candidates} candidates tried"
            if tuning.small_batch:
                text += f", the fastest of {tuning.small_trials} on a batch of {tuning.small_batch}"
            text += f", {tuning.resumed} of them in an earlier search" if tuning.resumed else ""
            text += f"; {tuning.pruned} could not have won" if tuning.pruned else ""
            text += f"; {tuning.wrong} failed\n" if tuning.wrong else "\n"
        if stage := tuning.last_stage:
            winner = stage["kept"] if stage["changed"] else "no neighbour"
            text += f"last stage: {winner} is proven faster than {stage['original']}\n"
        if tuning.record:
            text += f"record: plan and conv2d use it from now on\n  {tuning.record}\n"
        for warning in tuning.all_warnings:
            text += f"warning: {warning}\n"
        return text
