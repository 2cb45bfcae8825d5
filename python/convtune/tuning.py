"""tune: search for the fastest way to run a problem, prove it, record it. bench: time what is planned beside the
vendor's variants. Both run in the thread that calls them; Ctrl-C stops a search cleanly."""

from __future__ import annotations

import contextlib
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from ctypes import byref, sizeof
from typing import Any

from . import _library
from ._library import PROGRESS, CTuneOptions
from .caches import PLANS
from .problem import Problem, as_problem, real, whole
from .progress import ProgressLine, Step
from .report import Report

__all__ = ["bench", "tune"]


@contextlib.contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """While the library runs, Ctrl-C is noted in the list rather than raised: an exception would be lost on its way
    through C. A second one is Python's own again. Only the main thread hears signals, and a handler of somebody
    else's stays."""
    noted: list[int] = []
    hears = threading.current_thread() is threading.main_thread()
    if not hears or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def tune(
    problem: Problem | str,
    device: Any = None,
    budget: float = 60,
    min_gain: float = 0.02,
    progress: bool | Callable[[Step], object] = True,
    *,
    trials: int = 0,
    retune: bool = False,
    save: bool = True,
) -> Report:
    """Searches for the fastest config of every algorithm, checks each against a double-precision oracle before it is
    timed, and lets the best challenge the vendor's answer, which goes only where a gain of `min_gain` is proven. What
    was found is recorded: from then on `plan` and `conv2d` use it, in this process and in later ones.

    `problem`: a Problem, its text, or a built-in case's name. `device`: as plan takes it. `budget`: seconds for
    all of it; the report says what a small one left out, and a GPU takes about 3 at least. `trials`: a limit of
    configs, 0 for none. `progress`: True for a line that tells how far it is, False for silence, or a function that
    takes each Step; what it raises stops the search and is raised here. `retune`: search even where a record answers.
    `save=False` writes nothing.

    Ctrl-C stops at the next step and raises KeyboardInterrupt; what was measured is kept (unless save=False), and the
    next call goes on from there. Raises InvalidArgument, Unsupported, NoDevice, DeviceLost.
    """
    asked = as_problem(problem)
    most, budget, min_gain = whole(trials, "trials"), real(budget, "budget"), real(min_gain, "min_gain")
    line = ProgressLine() if progress is True else None
    tell = progress if callable(progress) else None
    label = asked.name or str(asked)
    raised: list[BaseException] = []

    with _noted_interrupts() as interrupts:

        def step(_: object, stage: bytes, done: int, total: int, best_us: float, best: bytes, eta: float) -> int:
            try:
                if line is not None or tell is not None:
                    where = Step(stage.decode(), done, total, best_us, best.decode("utf-8", "replace"), eta)
                    if line is not None:
                        line.show(where.text(label))
                    if tell is not None:
                        tell(where)
            except BaseException as error:  # nothing can be raised through C: raised below
                raised.append(error)
            return int(bool(raised or interrupts))

        options = CTuneOptions(
            sizeof(CTuneOptions), budget, most, min_gain, int(retune), int(save), PROGRESS(step), None
        )
        try:
            found = _library.take_json(
                _library.library.convtune_tune, byref(asked.to_c()), _library.device_text(device), byref(options)
            )
        finally:
            if line is not None:
                line.clear()
    if raised:
        raise raised[0]
    if interrupts:
        kept = "what was measured is kept, and the next call goes on from there" if save else "nothing is kept"
        raise KeyboardInterrupt(f"the search for {label} was stopped; {kept}")
    PLANS.clear()  # plan anew, by what was found
    report = Report.from_json(found, asked.name)
    for warning in report.tuning.warnings if report.tuning else ():
        warnings.warn(warning, RuntimeWarning, stacklevel=2)
    return report


def bench(problem: Problem | str, device: Any = None, seconds: float = 3) -> Report:
    """Times what `plan` answers beside every variant of the vendor's library, interleaved, in about `seconds`. Raises
    InvalidArgument, Unsupported, NoDevice, DeviceLost."""
    asked = as_problem(problem)
    found = _library.take_json(
        _library.library.convtune_bench,
        byref(asked.to_c()),
        _library.device_text(device),
        real(seconds, "seconds"),
    )
    return Report.from_json(found, asked.name)
