"""What `tune` and `bench` found: values over the JSON that the command writes, printed as the command prints them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from .problem import Problem
from .table import lined_up, microseconds

__all__ = ["Provider", "Report", "Tuning"]

_MOST_PEERS = 8  # that a table shows


@dataclass(frozen=True)
class Provider:
    """One measured way: convtune's own, or a variant of the vendor's. `time_us`: median of `n`; `mad_us`: median
    absolute deviation; `max_error`: largest |y - oracle| over the oracle's root mean square, sampled. `failure`: not
    empty where it could not run or was wrong; the numbers then mean nothing."""

    name: str
    algorithm: str
    config: str
    time_us: float
    mad_us: float
    n: int
    roofline_fraction: float
    max_error: float
    failure: str = ""

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> Provider:
        return cls(**{name: json[name] for name in cls.__dataclass_fields__ if name in json})

    @property
    def how(self) -> str:
        """Algorithm and config."""
        return f"{self.algorithm} {self.config}".rstrip()


@dataclass(frozen=True)
class Tuning:
    """How a search went. `from_record`: answered without measuring. `trials`: configs tried in this call; `resumed`:
    taken from an earlier search that was stopped; `pruned`: not worth trying; `wrong`: failed the check."""

    from_record: bool
    interrupted: bool
    trials: int
    resumed: int
    pruned: int
    wrong: int
    warnings: tuple[str, ...] = ()
    last_stage: dict[str, Any] | None = field(default=None, hash=False)

    @classmethod
    def from_json(cls, json: dict[str, Any]) -> Tuning:
        values = {name: json[name] for name in cls.__dataclass_fields__ if name in json}
        return cls(**{**values, "warnings": tuple(json.get("warnings") or ())})


@dataclass(frozen=True)
class Report:
    """convtune's answer beside the vendor's, measured in one run; `print(report)` is the table.

    `providers`: convtune first, then the vendor's variants. `best_peer`: name of the fastest of those, None without
    one; `speedup`: its time over convtune's. `floor_us`: no kernel can be faster; `bound`: by "compute" or "memory".
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
            json,
        )

    @property
    def own(self) -> Provider | None:
        """convtune's own result; None where it failed."""
        first = self.providers[0] if self.providers else None
        return None if first is None or first.failure or self.failure else first

    def __str__(self) -> str:
        floor = f"; roofline {microseconds(self.floor_us)} us, bound by {self.bound}" if self.floor_us > 0 else ""
        text = f"{self.problem}\n{self.device}{floor}\n\n" + self._table()
        if self.failure:
            text += f"failed: {self.failure}\n"
        if self.decision:
            text += f"\ndecision: {self.decision}\n"
        if self.tuning is not None:
            text += self._search()
        return text

    def _table(self) -> str:
        peers = [one for one in self.providers[1:] if not one.failure]
        fastest = {one.name for one in sorted(peers, key=lambda one: one.time_us)[:_MOST_PEERS]}
        peer_us = next((one.time_us for one in peers if one.name == self.best_peer), 0.0)
        rows = []
        for i, one in enumerate(self.providers):
            if one.failure:
                rows.append([one.name, *["-"] * 6, "failed: " + one.failure])
            elif i == 0 or one.name in fastest:
                us = one.time_us
                rows.append(
                    [
                        one.name,
                        microseconds(us),
                        f"{peer_us / us:.2f}x" if peer_us > 0 and us > 0 else "-",
                        f"{self.problem.flops / us / 1e3:.1f}" if us > 0 else "-",
                        f"{self.problem.bytes / us / 1e3:.1f}" if us > 0 else "-",
                        f"{100 * one.roofline_fraction:.1f} %" if self.floor_us > 0 else "-",
                        f"{one.max_error:.1e}" if one.n > 0 else "-",
                        one.how,
                    ]
                )
        header = [
            "provider",
            "us",
            "vs best peer",
            "GFLOP/s",
            "GB/s",
            "roofline",
            "max error",
            "algorithm and config",
        ]
        more = len(self.providers) - len(rows)
        return lined_up(header, rows, " rrrrrr") + (f"and {more} that took longer\n" if more > 0 else "")

    def _search(self) -> str:
        tuning = self.tuning
        assert tuning is not None
        if tuning.from_record:
            return "search: none, nothing was measured; retune=True searches again\n"
        text = (
            f"search: {tuning.trials} trials here, {tuning.resumed} resumed, {tuning.pruned} pruned, "
            f"{tuning.wrong} wrong\n"
        )
        for verdict in (tuning.last_stage or {}).get("verdicts", ()):
            text += f"  {verdict}\n"
        for warning in tuning.warnings:
            text += f"warning: {warning}\n"
        return text
