"""tune: search for the fastest way to run a problem, prove it, record it. bench: time what is planned beside the
vendor's variants. Both run in the thread that calls them; Ctrl-C stops them cleanly."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from ctypes import byref, sizeof
from typing import Any

from . import _library
from ._library import PROGRESS, CBenchOptions, CTuneOptions
from .caches import PLANS
from .errors import InvalidArgument
from .geometry import real, seconds_of, whole
from .problem import Problem, as_problem
from .progress import ProgressLine, Step
from .report import Report
from .stopping import stoppable

__all__ = ["bench", "tune"]


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
    was found is recorded: from then on `plan` and `conv2d` use it, in this process and in later ones. Where the record
    cannot be written a RuntimeWarning and `report.tuning.not_recorded` say why. A contest that could not decide (on a
    busy machine) leaves a plan "unproven", and the next call holds it again.

    `problem`: a Problem, its text, or a built-in case's name. `device`: as plan takes it. `budget`: seconds for
    all of it; the report says what a small one left out, and a GPU takes about 3 at least. `trials`: a limit of
    configs, 0 for none. `progress`: True for a line that tells how far it is, False for silence, or a function that
    takes each Step; what it raises stops the search and is raised here. `retune`: search from the beginning even where
    a record answers, and try what was quarantined. `save=False` writes nothing.

    Ctrl-C stops at the next step and raises KeyboardInterrupt; what was measured is kept (unless save=False), and the
    next call goes on from there. Raises InvalidArgument, Unsupported, NoDevice, DeviceLost.
    """
    report = search(problem, device, budget, min_gain, progress, trials, retune, save)
    for warning in report.tuning.all_warnings if report.tuning else ():
        warnings.warn(warning, RuntimeWarning, stacklevel=2)
    return report


def search(
    problem: Any, device: Any, budget: float, min_gain: float, progress: Any, trials: int, retune: bool, save: bool
) -> Report:
    """tune, which leaves the warnings in the report."""
    asked = as_problem(problem)
    most, budget, min_gain = whole(trials, "trials"), seconds_of(budget, "budget"), real(min_gain, "min_gain")
    if most < 0:
        raise InvalidArgument(f"trials is {most}; it must be 0 or more")
    line = ProgressLine() if progress is True else None
    tell = progress if callable(progress) else None
    label = asked.name or str(asked)
    raised: list[BaseException] = []

    with stoppable() as stopped:

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
            return int(bool(raised) or stopped())

        options = CTuneOptions(sizeof(CTuneOptions), budget, most, min_gain, int(retune), int(save), PROGRESS(step), None)
        try:
            found = _library.take_json(
                _library.library.convtune_tune, byref(asked.to_c()), _library.device_text(device), byref(options)
            )
        finally:
            if line is not None:
                line.clear()
    if raised:
        raise raised[0]
    if stopped():
        kept = "what was measured is kept, and the next call goes on from there" if save else "nothing is kept"
        raise KeyboardInterrupt(f"the search for {label} was stopped; {kept}")
    PLANS.clear()  # plan anew, by what was found
    return Report.from_json(found, asked.name)


def bench(problem: Problem | str, device: Any = None, seconds: float = 3) -> Report:
    """Times what `plan` answers beside every variant of the vendor's library, interleaved, in about `seconds`. A
    RuntimeWarning says where other work on the machine interrupted the samples. Ctrl-C stops at the next step and
    raises KeyboardInterrupt. Raises InvalidArgument, Unsupported, NoDevice, DeviceLost."""
    asked, limit = as_problem(problem), seconds_of(seconds, "seconds", 86_400, "above 0")
    with stoppable() as stopped:
        options = CBenchOptions(sizeof(CBenchOptions), limit, PROGRESS(lambda *_: int(stopped())), None)
        found = _library.take_json(
            _library.library.convtune_bench, byref(asked.to_c()), _library.device_text(device), byref(options)
        )
    if stopped():
        raise KeyboardInterrupt(f"the measurement of {asked.name or asked} was stopped")
    machine = found.get("machine") or {}
    if machine.get("busy"):
        warnings.warn(f"the machine is busy: {machine['finding']}", RuntimeWarning, stacklevel=2)
    return Report.from_json(found, asked.name)
