"""The processor's side of a step of training, for torch_training.py: milliseconds by part, where a device is fast the step's time.

One way after the other, as these were measured once, is no comparison: of two ways with the same calls the first took 72 ms and the
second 53, each function a fifth to a third longer. So the ways take turns, and each turn says how fast the processor was, by a loop
that is always the same (turns.py)."""

import cProfile
import statistics
import time

from turns import loop_ms

__all__ = ["functions_of", "times_of", "together"]

_STEPS, _PROFILED, _ROWS = 6, 5, 40


def times_of(step, wait):
    """A turn: {part: milliseconds that each step's kept the processor}; "device" is what is waited for after the last. `step(passed)`
    is one step, which calls passed(part) where a part of it ends; its backward runs in the thread that autograd has for the device."""
    found = {"loop": [loop_ms() for _ in range(3)]}
    step(lambda part: None)
    for _ in range(_STEPS):
        wait()
        marks = [("", time.perf_counter())]
        step(lambda part, marks=marks: marks.append((part, time.perf_counter())))
        wait()
        marks.append(("device", time.perf_counter()))
        for (_, before), (part, after) in zip(marks, marks[1:]):
            found.setdefault(part, []).append(1e3 * (after - before))
    return found


def together(turns):
    """{part: the median of all turns' milliseconds} but of the loop, and that and the slowest turn's over the fastest's, of the loop."""
    parts = {part: [ms for turn in turns for ms in turn[part]] for part in turns[0]}
    loops = [min(turn["loop"]) for turn in turns]
    ms = {part: statistics.median(of) for part, of in parts.items() if part != "loop"}
    return {"ms": ms, "loop, ms": statistics.median(loops), "slowest turn": max(loops) / min(loops)}


def functions_of(step):
    """[calls, milliseconds, function] a step, most by itself first. Under a profiler Python's own part is longer, and backward runs in
    the caller's thread, for Python's profiler sees one: its milliseconds are no other way's, its calls are."""
    import torch

    profile = cProfile.Profile()
    with torch.autograd.set_multithreading_enabled(False):
        step(lambda part: None)
        profile.runcall(lambda: [step(lambda part: None) for _ in range(_PROFILED)])
    rows = []
    for one in profile.getstats():
        code = one.code
        name = code if isinstance(code, str) else f"{'/'.join(code.co_filename.split('/')[-2:])}:{code.co_firstlineno} {code.co_name}"
        rows.append([one.callcount / _PROFILED, round(1e3 * one.inlinetime / _PROFILED, 4), name[:110]])
    return sorted(rows, key=lambda row: -row[1])[:_ROWS]
