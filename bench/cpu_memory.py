#!/usr/bin/env python3
"""Times convtune's plans on a CPU with x and y in memory of several kinds, in turns in one process: at a line of the
cache, 16 bytes behind one (where NumPy's and std::vector's large ones begin), 32 bytes, and the first in small pages.

    VENV/bin/python bench/cpu_memory.py --suite bench/cpu_memory.txt --tune 3 --json memory.json

Plans are those of records or estimates; --tune searches first, with tensors at lines. A time is the median of all samples.
The library is CONVTUNE_LIBRARY, or this checkout's build/release. Exit codes: 0 done, 2 bad input.
"""

import argparse
import inspect
import math
import mmap
import os
import sys
from dataclasses import replace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cpu_libraries import Convtune, medians_in_turns, write_rows  # noqa: E402
from cpu_oracle import make_data  # noqa: E402
from problem_lines import BadInput, end_with, find, load_suite, to_line  # noqa: E402

# Bytes behind a line, and whether pages are huge.
WAYS = {"line": (0, True), "16": (16, True), "32": (32, True), "line_small_pages": (0, False)}
ROUNDS = 12


class Tensor:
    """Memory of `size` bytes, `line` lines and `offset` bytes behind a huge page's beginning."""

    def __init__(self, size, line, offset, huge):
        two = 2 << 20
        self.memory = mmap.mmap(-1, size + 2 * two, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.memory.madvise(14 if huge else 15)  # MADV_HUGEPAGE, MADV_NOHUGEPAGE
        import numpy as np
        whole = np.frombuffer(self.memory, np.uint8)
        first = -whole.ctypes.data % two + 64 * line + offset
        self.bytes = whole[first:first + size]
        self.at = self.bytes.ctypes.data


def measure(library, problem, seconds, tune):
    import numpy as np
    line, module, data = to_line(replace(problem, name="")), library.module, make_data(problem)
    if tune:
        module.tune(line, "cpu", tune, progress=False)
    planned = module.Convolution(line, "cpu")
    packed = module.pack(planned, *(library.typed(problem, a) for a in (data.w, data.bias)))
    kept, runs = [], {}
    for name, (offset, huge) in WAYS.items():
        x = Tensor(data.x.nbytes, 5, offset, huge)
        y = Tensor(math.prod(planned.output_shape) * data.x.itemsize, 37, offset, huge)
        x.bytes[...] = np.ascontiguousarray(data.x).reshape(-1).view(np.uint8)
        y.bytes[...] = 0
        kept += [x, y]
        runs[name] = (lambda x=x, y=y: planned.run_raw(x.at, packed.pointer, y.at))
    times = medians_in_turns(runs, seconds, ROUNDS)
    plan = f"{planned.plan.algorithm} {planned.plan.config}"
    return {"layer": problem.name or line, "problem": line, "line_us": times["line"],
            **{name + "_over_line": times[name] / times["line"] for name in list(WAYS)[1:]}, "plan": plan}


def main(argv):
    parser = argparse.ArgumentParser(prog="cpu_memory.py", description=inspect.cleandoc(__doc__),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", nargs="*", metavar="PROBLEM", help="case names or benchdnn lines")
    parser.add_argument("--suite", help="all problems of a suite or file")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--tune", type=float, default=0, metavar="SECONDS", help="search so long before each row")
    parser.add_argument("--seconds", type=float, default=2, help="measuring time of a row (default: 2)")
    parser.add_argument("--json", metavar="FILE", help="write the results here, after every row")
    options = parser.parse_args(argv)
    problems = find(options.problem) + (load_suite(options.suite) if options.suite else [])
    if not problems:
        raise BadInput("no problem given: name a case, write a benchdnn line, or use --suite")
    library = Convtune(options.threads)
    library.load()
    rows = []
    for problem in problems:
        rows.append(measure(library, problem, options.seconds, options.tune))
        print(*(f"{value:.3g}" if isinstance(value, float) else value for value in rows[-1].values()), flush=True)
        if options.json:
            write_rows(options.json, library.environment(), rows)


if __name__ == "__main__":
    end_with(main)
