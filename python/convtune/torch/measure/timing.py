"""Stopwatches over PyTorch: one piece of work with cold caches, and a whole model by the wall clock."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["Stopwatch", "calls_of_a_sample", "wall_us", "without_collections"]

_SAMPLE_US = 20e3
_SLOW_SECONDS = 0.5  # a run beside which a change-over costs nothing


class Stopwatch:
    """Times one run at a time after the caches were flushed: on a GPU by events, with the flush long enough for the
    host to queue the run meanwhile; on a CPU by the clock."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._device = device
        if self._cuda:
            cache = torch.cuda.get_device_properties(device).L2_cache_size
            size = max(8 * cache, 256 << 20)
            event: Any = torch.cuda.Event
            self._start, self._stop = (event(enable_timing=True) for _ in range(2))
        else:
            size = 64 << 20
        self._flush = torch.zeros(size // 4, dtype=torch.int32, device=device)

    def time_us(self, run: Callable[[], Any]) -> float:
        self._flush.add_(1)
        if not self._cuda:
            start = time.perf_counter()
            run()
            return 1e6 * (time.perf_counter() - start)
        with torch.cuda.device(self._device):
            self._start.record()
            run()
            self._stop.record()
            self._stop.synchronize()
        return max(1e3 * float(self._start.elapsed_time(self._stop)), 1e-3)


def wall_us(run: Callable[[], Any], device: torch.device, calls: int = 1, waits: bool = True) -> float:
    """Mean of `calls` runs, each from the call to the device's last result: what a caller waits who waits for it. Without
    `waits` they are queued, and only the last is waited for. One goes before them untimed, since another's graph or model
    ran last, and to change over costs; a slow one is the sample."""

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    start = time.perf_counter()
    run()
    wait()
    if time.perf_counter() - start > _SLOW_SECONDS:
        return 1e6 * (time.perf_counter() - start)
    start = time.perf_counter()
    for call in range(calls):
        run()
        if waits or call == calls - 1:
            wait()
    return 1e6 * (time.perf_counter() - start) / calls


def calls_of_a_sample(one_us: float) -> int:
    """The number of calls (1 to 10) with which a sample takes 20 ms."""
    return max(1, min(10, round(_SAMPLE_US / max(one_us, 1))))


@contextlib.contextmanager
def without_collections() -> Iterator[None]:
    """Leaves Python's garbage until the end: behind a compilation a collection looks at millions of objects, for half a second, in
    whichever side's sample it falls."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
