"""Seconds of a first call, by what they were spent on; and a line on the screen that says what it waits for."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import torch

from ...progress import ProgressLine

__all__ = ["Phases"]


def _line() -> ProgressLine | None:
    """A line where somebody looks: on a terminal or in a notebook, not in a log; of processes that work together, the first's."""
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    line = None if together and torch.distributed.get_rank() > 0 else ProgressLine()
    return line if line is not None and line.is_screen else None


class Phases:
    """`seconds`: by phase, in the order in which they began. A phase within another is not counted twice. `line`: tells of those
    that are not inductor's, which writes there itself; None where nobody looks, or none is wanted."""

    def __init__(self, progress: bool = False) -> None:
        self.seconds: dict[str, float] = {}
        self.line = _line() if progress else None
        self._inner: list[float] = []  # seconds of the phases within each open one

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        self.seconds.setdefault(name, 0.0)
        self._inner.append(0.0)
        if self.line is not None and not name.startswith("inductor"):
            self.line.show(f"convtune: {name}", at_once=True)
        begin = time.perf_counter()
        try:
            yield
        finally:
            took = time.perf_counter() - begin
            self.seconds[name] += took - self._inner.pop()
            if self._inner:
                self._inner[-1] += took
            if self.line is not None:
                self.line.clear()
