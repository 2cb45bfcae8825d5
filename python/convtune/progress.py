"""One line that says how far long work is: redrawn in place in a terminal and in a notebook alike; where output goes
into a file or a pipe, a plain line every few seconds."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TextIO

from .table import time_text

__all__ = ["ProgressLine", "Step", "time_left"]

_REDRAW_SECONDS = 0.1  # a screen: as often as the eye can follow
_LINE_SECONDS = 5.0  # a log: rarely enough to stay readable
_LOG_WIDTH = 80  # and short enough
_LABEL_WIDTH = 28  # per problem without a name: what follows matters more


def time_left(seconds: float) -> str:
    """ "12 s left, ", "1 min 05 s left, "; "" where nothing is known."""
    whole = int(seconds + 0.999)
    if seconds <= 0:
        return ""
    return f"{whole} s left, " if whole < 60 else f"{whole // 60} min {whole % 60:02} s left, "


class Step(NamedTuple):
    """The progress of a search. `stage`: "vendor", "screen", "final", "last stage", "contest", "measure"; `best`: the
    best config so far and `best_us` its time, 0 before the first; `eta_seconds`: left, as far as is known."""

    stage: str
    done: int
    total: int
    best_us: float
    best: str
    eta_seconds: float

    def text(self, label: str = "") -> str:
        """The step in words; the end may be cut off, so the least important stands there."""
        text = time_left(self.eta_seconds)
        text += f"{_cut(label, _LABEL_WIDTH)}: {self.stage}" if label else self.stage
        if self.total > 0:
            text += f" {self.done}/{self.total}"
        if self.best_us > 0:
            text += f", best {time_text(self.best_us)}" + (f" ({self.best})" if self.best else "")
        return text


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _notebook() -> Any:
    """IPython's display function where a kernel runs this, as in a notebook; else None. Nothing is imported that was
    not there."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None and hasattr(ipython, "get_ipython") else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    display = sys.modules.get("IPython.display")
    return getattr(display, "display", None)


class ProgressLine:
    """A context: the line is gone when it ends. `stream` and `clock` are for tests."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._clock = clock
        self._display: Any = _notebook() if stream is None else None
        self._handle: Any = None  # per notebook's line
        self._drawn = False
        tty = self._stream is not None and self._stream.isatty()
        self._terminal = tty and os.environ.get("TERM") != "dumb" and self._display is None
        # A screen shows the first text at once; a log only what lasts.
        self.is_screen = self._terminal or self._display is not None
        self._pause = _REDRAW_SECONDS if self.is_screen else _LINE_SECONDS
        self._last = clock() - (self._pause if self.is_screen else 0)

    def show(self, text: str, at_once: bool = False) -> None:
        """Drops what comes too soon after the last. `at_once`: it does not; a screen is to say what begins now and may last."""
        now = self._clock()
        if (now - self._last < self._pause and not at_once) or self._stream is None:
            return
        self._last = now
        text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
        if self._display is not None:
            self._show_in_notebook(text)
        elif self._terminal:
            room = shutil.get_terminal_size().columns - 1  # some terminals wrap when the last column is written
            self._write(f"\r{_cut(text, room)}\033[K")
            self._drawn = True
        else:
            self._write(_cut(text, _LOG_WIDTH) + "\n")

    def clear(self) -> None:
        """Before other output, so that nothing is left on the line."""
        if self._handle is not None:
            self._show_in_notebook("")
        if self._drawn:
            self._write("\r\033[K")
            self._drawn = False

    def _write(self, text: str) -> None:
        """A stream that is full, gone or closed is no reason to stop the work: the line is given up."""
        try:
            if self._stream is not None:
                self._stream.write(text)
                self._stream.flush()
        except (OSError, ValueError):
            self._stream = None

    def _show_in_notebook(self, text: str) -> None:
        bundle = {"text/plain": text}
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
