"""The fair fight between two ways of doing the same work, by the rules of the library's own contest
(docs/decisions/0006-measuring-method.md): rounds of A B B A, the exact interval of the median gain, few looks at it.
Used by optimize for what the library cannot time, PyTorch's layers and models."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

__all__ = ["Contest", "contest", "median_interval"]


@dataclass
class Contest:
    """What came of it. `gain`: the median of 1 - challenger / incumbent; `low, high`: the interval that holds it."""

    accepted: bool = False
    gain: float = 0.0
    low: float = -math.inf
    high: float = math.inf
    incumbent_us: float = 0.0
    challenger_us: float = 0.0
    rounds: int = 0
    incumbent_samples: list[float] = field(default_factory=list, repr=False)
    challenger_samples: list[float] = field(default_factory=list, repr=False)


def median_interval(samples: Sequence[float], confidence: float) -> tuple[float, float]:
    """Between two order statistics: holds the median with at least `confidence`, whatever the distribution. The
    whole line where the samples are too few."""
    permitted = (1 - confidence) / 2
    count, outside = len(samples), 0
    term = tail = 0.5**count  # the chance that at most `outside` samples lie below the true median
    while tail <= permitted and 2 * outside < count:
        outside += 1
        term *= (count - outside + 1) / outside
        tail += term
    if outside == 0:
        return -math.inf, math.inf
    ordered = sorted(samples)
    return ordered[outside - 1], ordered[count - outside]


def contest(
    incumbent: Callable[[], float],
    challenger: Callable[[], float],
    min_gain: float,
    *,
    min_rounds: int = 10,
    max_rounds: int = 40,
    max_seconds: float = 10.0,
    confidence: float = 0.99,
) -> Contest:
    """Each side runs once and returns its microseconds. Accepted when the lower end of the interval of the gain
    is at least `min_gain`, and above 0. Looks after 10, 20 and 40 rounds; they share the doubt, so that looking
    early does not turn noise into a win. `max_seconds` of wall time end it early, after `min_rounds`."""
    looks = 1 + max(0, math.ceil(math.log2(max_rounds / min_rounds)))
    of_a_look = 1 - (1 - confidence) / looks
    result, gains = Contest(), []
    a, b = result.incumbent_samples, result.challenger_samples
    next_look, start = min_rounds, time.perf_counter()
    while True:
        a.append(incumbent())
        b.append(challenger())
        b.append(challenger())
        a.append(incumbent())
        gains.append(1 - (b[-2] + b[-1]) / (a[-2] + a[-1]))
        late = time.perf_counter() - start > max_seconds and len(gains) >= min_rounds
        last = late or len(gains) >= max_rounds
        if not last and len(gains) < next_look:
            continue
        next_look *= 2
        result.low, result.high = median_interval(gains, of_a_look)
        result.accepted = result.low >= min_gain and result.low > 0
        if last or result.accepted or result.high < min_gain:
            break
    result.gain, result.rounds = statistics.median(gains), len(gains)
    result.incumbent_us, result.challenger_us = statistics.median(a), statistics.median(b)
    return result
