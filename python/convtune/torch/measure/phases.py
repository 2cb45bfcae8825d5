"""Seconds of a first call, by what they were spent on."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

__all__ = ["Phases"]


class Phases:
    """`seconds`: by phase, in the order in which they began. A phase within another is not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._inner: list[float] = []  # seconds of the phases within each open one

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.seconds.setdefault(name, 0.0)
        self._inner.append(0.0)
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.seconds[name] += took - self._inner.pop()
            if self._inner:
                self._inner[-1] += took
