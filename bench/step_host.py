"""The processor's side of a step of training, for torch_training.py: milliseconds by part, where a device is fast the step's time."""

import cProfile
import statistics
import time

__all__ = ["host_of"]

_STEPS, _PROFILED, _ROWS = 15, 5, 40


def _times(step, wait):
    """{part: milliseconds}: what each part keeps the processor, and what is waited for after the last."""
    found = {}
    for _ in range(_STEPS):
        wait()
        marks = [("", time.perf_counter())]
        step(lambda part, marks=marks: marks.append((part, time.perf_counter())))
        wait()
        marks.append(("device", time.perf_counter()))
        for (_, before), (part, after) in zip(marks, marks[1:]):
            found.setdefault(part, []).append(1e3 * (after - before))
    return {part: statistics.median(of) for part, of in found.items()}


def _profile(step):
    """[calls, milliseconds, function] a step, most by itself first; under a profiler Python's own part is longer."""
    profile = cProfile.Profile()
    profile.runcall(lambda: [step(lambda part: None) for _ in range(_PROFILED)])
    rows = []
    for one in profile.getstats():
        code = one.code
        name = code if isinstance(code, str) else f"{'/'.join(code.co_filename.split('/')[-2:])}:{code.co_firstlineno} {code.co_name}"
        rows.append([one.callcount / _PROFILED, round(1e3 * one.inlinetime / _PROFILED, 4), name[:110]])
    return sorted(rows, key=lambda row: -row[1])[:_ROWS]


def host_of(step, wait):
    """`step(passed)` is one step, which calls passed(part) where a part of it ends. Backward runs in the caller's thread where it is
    profiled, for Python's profiler sees one thread."""
    import torch

    times = _times(step, wait)
    with torch.autograd.set_multithreading_enabled(False):
        own = _times(step, wait)
        rows = _profile(step)
    return {"ms": times, "one thread, ms": own, "functions": rows}
