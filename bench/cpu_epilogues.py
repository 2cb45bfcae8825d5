#!/usr/bin/env python3
"""What of convtune's gain over oneDNN on a CPU stays where an activation or a residual is fused behind a layer: each layer with
its epilogue and alone, by convtune and by oneDNN, in turns in one process, so that all four meet the same machine.

    VENV/bin/python bench/cpu_epilogues.py --dtype bf16 --layout nhwc --tune 1 --json kept.json       bench/cpu_epilogues.txt
    VENV/bin/python bench/cpu_epilogues.py 'g96mb1ic96ih56oc96kh3ph1 act=silu' --suite ''             one layer

`kept` is (oneDNN's time over ours with the epilogue) over (the same without). A time is the median of all samples; oneDNN's is that
of its faster layout. Tensors are at lines of the cache. Rows are those whose plan is not oneDNN's own in both; plans are of records
or estimates, and --tune searches first. Exit codes: 0 done, 2 bad input.
"""

import argparse
import inspect
import math
import os
import statistics
import sys
from dataclasses import replace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cpu_libraries import ROOT, Convtune, medians_in_turns, write_rows  # noqa: E402
from cpu_oracle import make_data  # noqa: E402
from problem_lines import BadInput, end_with, find, load_suite  # noqa: E402

ROUNDS = 16
FORMS = ("fused", "bare")


def measure(library, problem, seconds):
    ways, plans = {}, {}
    for form, asked in zip(FORMS, (problem, replace(problem, act="none", residual=False)), strict=True):
        for name, way in library.ways(asked, make_data(asked)).items():
            if isinstance(way, str):
                print(f"{problem.name}, {form}: {name}: {way}", file=sys.stderr)
                continue
            ways[form, name.split()[0], name] = way
            if name == "convtune":
                plans[form] = way.config
    if len(plans) < len(FORMS) or all(plan.startswith("onednn ") for plan in plans.values()):
        return None
    times = medians_in_turns({name: way.run for name, way in ways.items()}, seconds, ROUNDS)
    best = {(form, who): min(time_us for (f, w, _), time_us in times.items() if (f, w) == (form, who))
            for form in FORMS for who in ("convtune", "onednn")}
    gains = {form: best[form, "onednn"] / best[form, "convtune"] for form in FORMS}
    return {"layer": problem.name or problem.key(), "problem": problem.line(),
            **{f"{form}_us": best[form, "convtune"] for form in FORMS},
            **{f"onednn_{form}_us": best[form, "onednn"] for form in FORMS},
            "kept": gains["fused"] / gains["bare"], "plan": plans["fused"]}


def main(argv):
    parser = argparse.ArgumentParser(prog="cpu_epilogues.py", description=inspect.cleandoc(__doc__),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", nargs="*", metavar="PROBLEM", help="case names or benchdnn lines")
    parser.add_argument("--suite", default=str(ROOT / "bench/cpu_epilogues.txt"), help="all problems of a suite or file")
    parser.add_argument("--dtype", choices=("f32", "bf16"), help="of all tensors, instead of the problem's")
    parser.add_argument("--layout", choices=("nchw", "nhwc"), help="instead of the problem's")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--tune", type=float, default=0, metavar="SECONDS", help="search so long before each form of a row")
    parser.add_argument("--seconds", type=float, default=2, help="measuring time of a row (default: 2)")
    parser.add_argument("--json", metavar="FILE", help="write the results here, after every row")
    options = parser.parse_args(argv)
    problems = find(options.problem) + (load_suite(options.suite) if options.suite else [])
    changes = {key: value for key, value in (("dtype", options.dtype), ("layout", options.layout)) if value}
    problems = [replace(problem, **changes) for problem in problems]
    problems = [problem for problem in problems if problem.act != "none" or problem.residual]
    if not problems:
        raise BadInput("no problem with an activation or a residual was given")
    library, rows = Convtune(options.threads, tune=options.tune), []
    library.load()
    for problem in problems:
        if (row := measure(library, problem, options.seconds)) is None:
            continue
        rows.append(row)
        print(*(f"{value:.3g}" if isinstance(value, float) else value for value in row.values()), flush=True)
        if options.json:
            write_rows(options.json, library.environment(), rows)
    kept = [row["kept"] for row in rows]
    print(f"{len(rows)} rows; kept {math.exp(statistics.fmean(map(math.log, kept))) if kept else 0:.3f} in the mean, "
          f"below 0.9 in {sum(one < 0.9 for one in kept)}")


if __name__ == "__main__":
    end_with(main)
