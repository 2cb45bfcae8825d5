#!/usr/bin/env python3
"""Times two builds of convtune's library beside each other on a CPU, in turns, by the plans of the later one: what a change costs.

    python3 bench/cpu_pairs.py --suite bench/cpu_people.txt --batch 8 --before OLD/libconvtune_c.so --json pairs.json

The later library is CONVTUNE_LIBRARY, or this checkout's build/release. A library lives in a process of its own, which is stopped out of
its turn, as in cpu_peers.py. Plans are the later library's, without a record; oneDNN's are left out, as both libraries call the same.
Each output is compared with sums in double precision. A time is the tenth percentile of all samples, which other work on the machine
moves less than it moves the median; both are kept. Exit codes: 0 done, 1 a wrong answer, 2 bad input.
"""

import argparse
import inspect
import os
import statistics
import sys
import time
from dataclasses import replace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cpu_libraries import Convtune, attempt, write_rows  # noqa: E402
from cpu_oracle import Oracle  # noqa: E402
from cpu_peers import MEMORY, Worker, mean  # noqa: E402
from problem_lines import BadInput, end_with, find, load_suite  # noqa: E402

ROUNDS = 12
NAMES = ("before", "after")


class Planned(Convtune):
    """The library with the plans that it is given: {problem's key: "algorithm config"}."""

    def __init__(self, threads, plans):
        super().__init__(threads)
        self.plans = plans

    def versions(self):
        return {"convtune": self.module.__version__}

    def ways(self, problem, data):
        algorithm, _, config = self.plans[problem.key()].partition(" ")
        return {"convtune": attempt(self.way, problem, data, problem.key(), algorithm, config or None)}


def plans_of(problems, threads):
    library = Convtune(threads)
    library.load()
    plans = {problem.key(): library.module.Convolution(problem.key(), "cpu").plan for problem in problems}
    return {key: f"{plan.algorithm} {plan.config}" for key, plan in plans.items() if not plan.algorithm.startswith("onednn")}


def measure(workers, problem, seconds, clock):
    oracle, samples = Oracle(problem), {name: [] for name in NAMES}
    for worker in workers.values():
        answers = worker.failure or worker.ask("prepare", problem, oracle.at)
        answer = answers if isinstance(answers, str) else answers["convtune"]
        wrong = answer if isinstance(answer, str) else oracle.judge(answer[0])[1]
        if wrong:
            return wrong
    turn = seconds / len(NAMES) / ROUNDS
    for round_ in range(ROUNDS):
        for name in NAMES if round_ % 2 == 0 else NAMES[::-1]:
            answer = workers[name].ask("turn", "convtune", turn, clock)
            if isinstance(answer, str):
                return answer
            samples[name].extend(answer)
    return {name: (sorted(found)[len(found) // 10], statistics.median(found)) for name, found in samples.items()}


def main(argv):
    parser = argparse.ArgumentParser(prog="cpu_pairs.py", description=inspect.cleandoc(__doc__),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", nargs="*", metavar="PROBLEM", help="case names or benchdnn lines")
    parser.add_argument("--before", required=True, metavar="FILE", help="the earlier library")
    parser.add_argument("--suite", action="append", default=[], help="all problems of a suite or file; more than once for more")
    parser.add_argument("--batch", type=int, metavar="N", help="use this batch size instead of the problem's (mb)")
    parser.add_argument("--threads", type=int, default=1, metavar="N")
    parser.add_argument("--clock", choices=("wall", "thread"), default="thread",
                        help="thread (default): processor time of the one thread, which leaves out what others took")
    parser.add_argument("--seconds", type=float, default=2, help="measuring time of a row (default: 2)")
    parser.add_argument("--json", metavar="FILE", help="write the results here, after every row")
    options = parser.parse_args(argv)
    problems = find(options.problem) + [problem for suite in options.suite for problem in load_suite(suite)]
    if not problems:
        raise BadInput("no problem given: name a case, write a benchdnn line, or use --suite")
    if options.clock == "thread" and options.threads != 1:
        raise BadInput("--clock thread counts one thread: it needs --threads 1")
    problems = [replace(problem, n=options.batch) for problem in problems] if options.batch else problems
    os.environ |= {"GLIBC_TUNABLES": MEMORY, "OMP_NUM_THREADS": str(options.threads)}
    plans, workers, rows, code = plans_of(problems, options.threads), {}, [], 0
    processors = set(sorted(os.sched_getaffinity(0))[:options.threads])
    try:
        for name in NAMES:
            if name == "before":
                after, os.environ["CONVTUNE_LIBRARY"] = os.environ["CONVTUNE_LIBRARY"], options.before
            else:
                os.environ["CONVTUNE_LIBRARY"] = after
            workers[name] = Worker(name, Planned, {"threads": options.threads, "plans": plans}, processors)
        for problem in problems:
            if problem.key() not in plans or any(row["problem"] == problem.line() for row in rows):
                continue
            found = measure(workers, problem, options.seconds, options.clock)
            if isinstance(found, str):
                code = 1
                print(f"{problem.name}: {found}", file=sys.stderr)
                continue
            (before, _), (after, _) = found["before"], found["after"]
            rows.append({"layer": problem.name or problem.key(), "problem": problem.line(), "threads": options.threads,
                         "plans": [{"library": name, "plan": plans[problem.key()], "time_us": found[name][0],
                                    "median_us": found[name][1]} for name in NAMES], "before_over_after": before / after})
            print(f"{rows[-1]['layer']:28} {before:9.1f} {after:9.1f} {before / after:.3f}", flush=True)
            if options.json:
                write_rows(options.json, {"fingerprint": workers["after"].fingerprint, "threads": options.threads}, rows)
        print(f"{len(rows)} rows, before over after {mean([row['before_over_after'] for row in rows]) or 0:.3f} in the mean, least "
              f"{min((row['before_over_after'] for row in rows), default=0):.3f}; {time.process_time():.0f} s of this process")
    finally:
        for worker in workers.values():
            worker.end()
    return code


if __name__ == "__main__":
    end_with(main)
