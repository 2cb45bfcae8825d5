"""The fair fight between two ways of doing the same work, by the library's own contest
(docs/decisions/0006-measuring-method.md). Used by optimize for what the library cannot time itself, PyTorch's layers
and models."""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import byref, sizeof
from dataclasses import dataclass

from . import _library
from ._library import SIDE, CContestOptions, CContestResult
from .stopping import stoppable

__all__ = ["Contest", "contest"]


@dataclass
class Contest:
    """The outcome of a contest. `gain`: the median of 1 - challenger / incumbent; `low, high`: the interval that holds
    it."""

    accepted: bool = False
    gain: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    incumbent_us: float = 0.0
    challenger_us: float = 0.0
    rounds: int = 0

    @property
    def paired_us(self) -> float:
        """The challenger's time as the gain has it. The medians of the sides are each of its own runs, and their ratio
        need not be the median of the rounds' ratios."""
        return self.incumbent_us * (1 - self.gain)


def contest(
    incumbent: Callable[[], float],
    challenger: Callable[[], float],
    min_gain: float,
    *,
    min_rounds: int = 10,
    max_rounds: int = 640,
    max_seconds: float = 10.0,
    confidence: float = 0.99,
) -> Contest:
    """Each side runs once and returns its microseconds. Accepted when the lower end of the interval of the gain
    is at least `min_gain`, and above 0. `max_seconds` of wall time end it early, after `min_rounds`. What a side
    raises ends the contest and is raised here."""
    sides, raised = (incumbent, challenger), []
    options = CContestOptions(sizeof(CContestOptions), min_gain, confidence, max_seconds, min_rounds, max_rounds)
    found = CContestResult(sizeof(CContestResult))
    with stoppable() as stopped:

        def side(_: object, which: int) -> float:
            if raised or stopped():
                return math.nan
            try:
                return float(sides[which]())
            except BaseException as error:  # nothing can be raised through C: raised below
                raised.append(error)
                return math.nan

        status = _library.library.convtune_contest(SIDE(side), None, byref(options), byref(found))
    if raised:
        raise raised[0]
    if stopped():
        raise KeyboardInterrupt("the contest was stopped")
    _library.check(status)
    return Contest(
        bool(found.accepted),
        found.gain,
        found.low,
        found.high,
        found.incumbent_us,
        found.challenger_us,
        found.rounds,
    )
