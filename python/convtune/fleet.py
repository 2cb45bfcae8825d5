"""tune_all: many problems tuned by many devices, through anything that has the face of concurrent.futures.Executor. The
executor decides what runs where; what a worker does with a problem is in worker.py, and here is what becomes of it."""

from __future__ import annotations

import contextlib
import queue
import time
import uuid
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from . import worker
from .errors import Error, InvalidArgument
from .geometry import real, seconds_of, whole
from .model import ModelConvolution, ModelProblems, ModelReport, ModelRow, SkippedLayers
from .problem import Problem, as_problem
from .progress import ProgressLine, Step, time_left
from .report import Report
from .worker import Found, Work

__all__ = ["tune_all"]

_LOOK_SECONDS = 0.2  # between two looks at what the executor has begun
_FAILURES = 5  # that an error's message names


def tune_all(
    problems: ModelProblems | Iterable[Problem | str],
    executor: Executor | Callable[[], Executor] | None = None,
    *,
    device: Any = None,
    budget: float = 60,
    min_gain: float = 0.02,
    trials: int = 0,
    retune: bool = False,
    attempts: int = 3,
    progress: bool | Callable[[Step], object] = True,
) -> ModelReport:
    """convtune.tune of every problem, each once, on the workers of an executor. Records come back as text and are merged
    into this user's, as `convtune db import` does, as they arrive. A second call, after Ctrl-C or a crash, searches what has
    no record yet.

    `problems`: a model's (convtune.model_problems, ModelProblems.load), or a list of Problems and their texts. `executor`:
    anything with `submit` as concurrent.futures.Executor has it: its pools, Dask's client.get_executor(), mpi4py's
    MPIPoolExecutor; or a function that makes one, which is called again where a pool breaks, as a ProcessPoolExecutor does
    when one of its processes dies; None: a thread for every device of the kind here. `device`: as convtune.tune takes it,
    or a fingerprint; None: the best of the first worker's. All workers must have that kind of device, on which one worker
    of a host searches at a time. `budget`, `min_gain`, `trials`, `retune`: of each problem, as convtune.tune takes them.

    A problem whose worker is lost is given again, `attempts` times in all, the last time while nothing else runs, since
    it may be what ends the workers. `progress`: True for a line, False for silence, or a function that takes each Step.

    Layers that nothing runs fast there are in the report's `skipped`. Raises Error at the end, when all others are
    recorded, where problems have no answer: it names them, the worker and the reason. Raises InvalidArgument before
    anything is searched, NoDevice where the first worker has no such device, FileError at once where a record cannot be
    written here.
    """
    model = _model(problems)
    asked = Work(
        "", "", seconds_of(budget, "budget"), real(min_gain, "min_gain"), whole(trials, "trials"), bool(retune),
        caller=worker.name(), call=uuid.uuid4().hex,
    )  # fmt: skip
    if asked.trials < 0 or whole(attempts, "attempts") < 1:
        raise InvalidArgument(f"trials is {trials}, attempts {attempts}; they must be 0 or more, and 1 or more")
    if executor is not None and not callable(getattr(executor, "submit", executor)):
        raise InvalidArgument(f"executor is {executor!r}; it must have a method submit, or be a function that makes one")
    kind = None if device is None else str(device)
    if executor is None:
        executor = partial(ThreadPoolExecutor, len(worker.devices_of(worker.kind_of(kind))), "convtune-fleet")
    fleet = _Fleet(model, asked, _Pool(executor), int(attempts), progress)
    try:
        fleet.run(kind)
    except KeyboardInterrupt:
        fleet.stop()
        raise KeyboardInterrupt(f"{fleet.done()} of {len(fleet.units)} problems are done; the same call goes on") from None
    except BaseException:
        fleet.stop()
        raise
    finally:
        fleet.pool.close()
    return fleet.report()


def _model(problems: ModelProblems | Iterable[Problem | str]) -> ModelProblems:
    """The problems, each once."""
    if isinstance(problems, (str, Problem)):
        problems = [problems]
    if isinstance(problems, ModelProblems):
        name, skipped, all_of = problems.name, list(problems.skipped), list(problems.convolutions)
    else:
        name, skipped = "the problems", []
        each = [as_problem(one) for one in problems]
        all_of = [ModelConvolution(one, 1, [one.name] if one.name else []) for one in each]
    found: dict[Problem, ModelConvolution] = {}
    for one in all_of:
        if (known := found.get(one.problem)) is None:
            found[one.problem] = ModelConvolution(one.problem, one.count, list(one.layers))
        else:
            known.count += one.count
            known.layers += one.layers
    if not found:
        raise InvalidArgument("no problem given: name some, or give a model that has convolutions")
    return ModelProblems(name, list(found.values()), skipped)


class _Pool:
    """An executor, and how to make it again."""

    def __init__(self, given: Any) -> None:
        self._make = None if hasattr(given, "submit") and not isinstance(given, type) else given
        self._executor = given if self._make is None else self._make()
        self._took = False  # anything yet
        self.broken: BaseException | None = None

    def submit(self, function: Callable[..., Any], *arguments: Any) -> Future[Any] | None:
        """None where the pool is broken."""
        try:
            future: Future[Any] | None = None if self.broken else self._executor.submit(function, *arguments)
        except BrokenExecutor as why:
            self.broken = why
            return None
        self._took = self._took or future is not None
        return future

    def renew(self) -> None:
        if self._make is None:
            raise Error(
                f"the executor is broken ({self.broken}), since one of its workers ended; what was found is recorded, and "
                "the same call with a new executor goes on. A function that makes it, as functools.partial("
                "ProcessPoolExecutor, 2), is called again by itself"
            ) from self.broken
        if not self._took:
            raise Error(
                f"the executor that was made is broken from the start ({self.broken}); the function must make a new one "
                "each time that it is called. What was found is recorded, and the same call goes on"
            ) from self.broken
        self.close()
        self._executor, self._took, self.broken = self._make(), False, None

    def close(self) -> None:
        """An executor of the caller's stays open."""
        if self._make is not None:
            self._executor.shutdown(wait=not self.broken, cancel_futures=True)


@dataclass
class _Unit:
    """A problem on its way to an answer."""

    convolution: ModelConvolution
    work: Work
    lost: int = 0  # how often its worker was
    begun: bool = False
    report: Report | None = None
    failure: str = ""
    skipped: str = ""

    @property
    def answered(self) -> bool:
        return bool(self.report or self.failure or self.skipped)


@dataclass
class _Fleet:
    model: ModelProblems
    asked: Work
    pool: _Pool
    attempts: int
    progress: Any
    units: list[_Unit] = field(default_factory=list)
    waiting: deque[_Unit] = field(default_factory=deque)
    flying: dict[Any, _Unit] = field(default_factory=dict)
    arrived: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    fallen: list[_Unit] = field(default_factory=list)  # as the pool broke

    def run(self, device: str | None) -> None:
        kind = self._kind(device)
        known = worker.known_records(kind)
        for one in self.model:
            records = "" if self.asked.retune else known.get(one.problem.replace(precision="auto", name=""), "")
            work = worker.work_of(self.asked, str(one.problem), kind, records)
            self.units.append(_Unit(one, work))
        self.waiting.extend(self.units)
        line = ProgressLine() if self.progress is True else None
        begun = time.monotonic()
        with line or contextlib.nullcontext():
            while self.waiting or self.flying or self.fallen:
                self._give()
                if not self.flying:  # nothing could be given
                    self._renew()
                    continue
                last = self._take_one()
                self._tell(line, last, time.monotonic() - begun)

    def _kind(self, device: str | None) -> str:
        """The fingerprint that all will be searched for, by the first worker that answers."""
        why: BaseException | None = None
        for _ in range(self.attempts):
            future = self.pool.submit(worker.kinds, device)
            try:
                if future is not None:
                    kind, others = future.result()
                    break
            except Error:
                raise
            except Exception as error:
                why = error
            if isinstance(why, BrokenExecutor) or self.pool.broken:
                self.pool.broken = why or self.pool.broken
                self.pool.renew()
        else:
            raise Error(f"no worker of the executor answers: {_words(why)}") from why
        for other in others:
            warnings.warn(
                f"the workers have a device of another kind, {other}, which is left out: "
                f"tune_all(..., device={other!r}) tunes there",
                RuntimeWarning, stacklevel=4,
            )  # fmt: skip
        return kind

    def _give(self) -> None:
        """Everything that waits, but what is at its last attempt, which has the pool for itself."""
        last = self.attempts - 1 or self.attempts
        together = [unit for unit in self.waiting if unit.lost < last]
        for unit in together or ([] if self.flying else list(self.waiting)[:1]):
            future = self.pool.submit(worker.search_here, unit.work)
            if future is None:
                return
            self.waiting.remove(unit)
            unit.begun = False
            self.flying[future] = unit
            future.add_done_callback(self.arrived.put)

    def _renew(self) -> None:
        """Makes the pool again, and charges its end to what had begun."""
        suspects = [unit for unit in self.fallen if unit.begun] or self.fallen
        innocent = [unit for unit in self.fallen if unit not in suspects]
        why, self.fallen = self.pool.broken, []
        self.pool.renew()
        self.waiting.extendleft(reversed(innocent))
        for unit in suspects:
            self._lost(unit, f"a worker of the executor ended: {_words(why)}")

    def _lost(self, unit: _Unit, why: str) -> None:
        unit.lost += 1
        if unit.lost < self.attempts:
            self.waiting.append(unit)
        else:
            unit.failure = f"{why} (attempt {unit.lost} of {self.attempts})"

    def _take_one(self) -> _Unit | None:
        """Waits a moment for an answer, and merges it."""
        try:
            future = self.arrived.get(timeout=_LOOK_SECONDS)
        except queue.Empty:
            for running, unit in self.flying.items():
                unit.begun = unit.begun or running.running()
            return None
        unit = self.flying.pop(future)
        try:
            found = future.result()
        except BrokenExecutor as why:
            self.pool.broken = why
            self.fallen.append(unit)
        except Exception as why:  # the executor's own, as Dask's KilledWorker
            self._lost(unit, f"its worker is lost: {_words(why)}")
        else:
            self._merge(unit, found)
        return unit if unit.answered else None

    def _merge(self, unit: _Unit, found: Found) -> None:
        where = f"worker {found.worker}"
        if found.error in ("NoDevice", "DeviceLost"):
            self._lost(unit, f"{where}: {found.why}")
        elif found.error == "Unsupported":
            unit.skipped = found.why.splitlines()[0].removesuffix(":")
        elif found.error:
            unit.failure = f"{where}: {found.why}"
        elif (taken := worker.import_records(found.records, where))["rejected"]:
            unit.failure = (
                f"{taken['problems'][0]}: the record is not taken over; all workers need this version of convtune"
            )
        else:
            unit.report = Report.from_json(found.report, unit.convolution.problem.name)

    def done(self) -> int:
        return sum(unit.answered for unit in self.units)

    def _tell(self, line: ProgressLine | None, last: _Unit | None, seconds: float) -> None:
        done = self.done()
        eta = seconds / done * (len(self.units) - done) if done else 0.0
        own = last.report.own if last is not None and last.report is not None else None
        label = last.convolution.label if last is not None else ""
        step = Step("tune_all", done, len(self.units), own.time_us if own else 0.0, label if own else "", eta)
        if line is not None:
            again = sum(unit.lost > 0 for unit in self.units)
            more = f", {again} given again" if again else ""
            line.show(f"{time_left(eta)}{done} of {len(self.units)} problems{more}" + (f"; {label}" if label else ""))
        if callable(self.progress) and last is not None:
            self.progress(step)

    def stop(self) -> None:
        """Threads of this process stop at their next step; what has arrived is kept."""
        worker.stop(self.asked.call)
        for future in self.flying:
            future.cancel()
        with contextlib.suppress(queue.Empty):
            while True:
                future = self.arrived.get_nowait()
                unit = self.flying.pop(future, None)
                if unit is not None and not future.cancelled() and future.exception() is None:
                    self._merge(unit, future.result())

    def report(self) -> ModelReport:
        result = ModelReport(self.model.name, [], list(self.model.skipped))
        failed = [unit for unit in self.units if unit.failure]
        for unit in self.units:
            one = unit.convolution
            if unit.report is not None:
                result.rows.append(ModelRow(one, unit.report))
            elif unit.skipped:
                result.skipped.append(SkippedLayers("convolution", unit.skipped, one.count, one.layers))
        if failed:
            more = f"; and {len(failed) - _FAILURES} more" if len(failed) > _FAILURES else ""
            raise Error(
                f"{len(failed)} of {len(self.units)} problems have no answer: "
                + "; ".join(f"{unit.convolution.problem}: {unit.failure}" for unit in failed[:_FAILURES])
                + f"{more}. The others are recorded, and the same call searches these alone"
            )
        return result


def _words(why: BaseException | None) -> str:
    return f"{type(why).__name__}: {why}" if why is not None else "it is broken"
