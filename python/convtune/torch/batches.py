"""Plans for graphs of any batch: one that was not seen before waits for no kernel to be compiled, and no weights are packed
for it where a batch before has packed them.

A batch that no record proves is run by the config of a batch that stands for it, a power of 8. So no more than four
orders of packed weights are in use up to a batch of 512; on a GPU no more than four kernels, too, where these can be compiled
for every batch up to that one. PyTorch's own convolution runs until the kernel is there, which a few threads see to.
docs/decisions/0128-any-batch.md has the reasons.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import logging
import os
import queue
import threading
from collections.abc import Callable
from typing import Any

from ..caches import PLANS
from ..convolution import Convolution, Plan
from ..errors import InvalidArgument, Unsupported
from ..problem import Problem

__all__ = ["ANY_BATCH", "behind", "is_behind", "planned_like_others", "settle", "waits_for_kernels"]

_log = logging.getLogger("convtune")
ANY_BATCH = "any batch"  # an operator's `choices` in a graph of symbolic sizes
_STEP = 8
_LAST_RESORTS = ("reference", "general_sm80")


def waits_for_kernels(index: int) -> bool:
    """True of a GPU, where a plan has a kernel compiled; on a CPU (-1) it takes a millisecond."""
    return index >= 0


def _that_stands_for(batch: int) -> int:
    least = 1
    while least < batch:
        least *= _STEP
    return least


def planned_like_others(problem: Problem, device: str) -> Convolution:
    """The convolution by the record of that batch, else by the kernel of the batch that stands for it, which runs every smaller
    one, too, or by its config. Raises Unsupported."""
    other = problem.replace(n=_that_stands_for(problem.n))
    made: list[Convolution] = []

    def its_plan() -> Plan:
        made.append(Convolution(other, device, "any batch"))
        return made[0].plan

    if other.n == 1:
        return Convolution(problem, device)
    with contextlib.suppress(Unsupported):
        return Convolution(problem, device, "recorded batch")
    with contextlib.suppress(Unsupported, InvalidArgument):  # a config that this batch does not take
        # The plan alone is kept: a workspace for that many images would stay with the convolution. That one lives until this
        # batch's own shares its kernel.
        like = PLANS.get_or_make(("stands for others", other.key, device), its_plan)
        if like.algorithm not in _LAST_RESORTS:  # which are judged by where a plan is from
            return made[0] if made and other.n == problem.n else Convolution(problem, device, like.algorithm, like.config)
    return Convolution(problem, device)


def _let_others_record() -> None:
    """Has what this thread asks of CUDA, as loading a kernel, break no CUDA graph that another thread is recording."""
    relaxed = 2  # CU_STREAM_CAPTURE_MODE_RELAXED
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode(ctypes.byref(ctypes.c_int(relaxed)))


class _Behind:
    """Threads that make plans which nobody waits for, and end with the process."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._todo: queue.SimpleQueue[tuple[Any, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._under_way: set[Any] = set()
        self._threads: list[threading.Thread] = []
        self._ends = False

    def has(self, key: Any) -> bool:
        """True where that plan is waited for or being made. Takes no lock: whoever is told no asks `add`, which knows."""
        return key in self._under_way

    def add(self, key: Any, make: Callable[[], Any]) -> None:
        with self._lock:
            if key in self._under_way or self._ends:
                return
            self._under_way.add(key)
            if len(self._threads) < max(1, len(os.sched_getaffinity(0)) // 2):
                self._threads.append(threading.Thread(target=self._work, name="convtune plans", daemon=True))
                self._threads[-1].start()
        self._todo.put((key, make))

    def _work(self) -> None:
        with contextlib.suppress(OSError):  # Linux has a priority a thread: compilers leave the processors to calls
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        _let_others_record()
        while (one := self._todo.get()) is not None:
            key, make = one
            try:
                if not self._ends:
                    PLANS.get_or_make(key, make)
            except Exception as why:
                _log.warning("PyTorch's convolution runs, and the next call with that batch tries again: %s", why)
            with self._lock:
                self._under_way.discard(key)
                self._lock.notify_all()

    def settle(self, seconds: float) -> bool:
        with self._lock:
            return self._lock.wait_for(lambda: not self._under_way, seconds)

    def end(self) -> None:
        """Waits for what has begun: a library must not go while it compiles."""
        self._ends = True
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join()


_threads = _Behind()
atexit.register(lambda: _threads.end())


def _after_fork() -> None:
    """The threads stay with the parent."""
    global _threads
    _threads = _Behind()


os.register_at_fork(after_in_child=_after_fork)


def behind(key: Any, make: Callable[[], Any]) -> None:
    """Has `make` called by another thread, and its result kept under `key` in PLANS."""
    _threads.add(key, make)


def is_behind(key: Any) -> bool:
    """True where another thread has that plan to make."""
    return _threads.has(key)


def settle(seconds: float = 60.0) -> bool:
    """Waits until no plan is being made; whether that was so within the seconds."""
    return _threads.settle(seconds)
