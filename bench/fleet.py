#!/usr/bin/env python3
"""A list of problems tuned by one device, by several, and by several of which one's worker is killed at a random moment.

    python bench/fleet.py --workers 2 --problems 30 --budget 4                                       # two GPUs
    OMP_NUM_THREADS=1 python bench/fleet.py --device cpu --workers 2 --suite stem --problems 4 --budget 1

Each way is a process with caches and records of its own, which begin empty; its workers are a ProcessPoolExecutor's, each with a
folder of records of its own, as another machine's. Said are seconds and speed-up, and of the records: whether one is there for
every problem that one machine has one for, on the same kind of device; how many have another kernel, and how long theirs take
beside one machine's; and whether the fastest record of any worker is the merged one. Status 1 where a problem or record is
lost, or nobody was killed. Needs no PyTorch.
"""

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path

CASES = Path(__file__).resolve().parents[1] / "cases"
WAYS = ("one", "all", "killed")


def lines(args):
    text = (CASES / f"{args.suite}.txt").read_text().splitlines()
    return [line for line in text if line.strip() and not line.startswith("#")][: args.problems]


def alone(folder):
    """Gives a worker a folder of its own for records."""
    os.environ["CONVTUNE_DATA_DIR"] = f"{folder}/worker-{os.getpid()}"


def records_of(args, folder):
    """{(problem, device): record} of a folder."""
    ran = subprocess.run([args.convtune, "db", "export", "-"], stdout=subprocess.PIPE, text=True, check=True,
                         env={**os.environ, "CONVTUNE_DATA_DIR": str(folder)})  # fmt: skip
    found = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    return {(one["problem"], one["device"]): one for one in found}


class Killer:
    """Kills a worker while the fleet works: up to `most` seconds after a problem by chance was answered."""

    def __init__(self, problems, most):
        self.at, self.after, self.killed = random.randrange(max(problems - 1, 1)), random.uniform(0, most), None

    def __call__(self, step=None):
        if step is None or step.done == self.at:
            threading.Timer(self.after, self.kill).start()
            self.at = None

    def kill(self):
        workers = active_children()
        if workers:
            chosen = random.choice(workers)
            os.kill(chosen.pid, signal.SIGKILL)
            self.killed = chosen.pid
            print(f"worker {chosen.pid} of {len(workers)} is killed", file=sys.stderr, flush=True)


def work(args):
    import convtune

    workers, problems = 1 if args.way == "one" else args.workers, lines(args)
    folder = Path(os.environ["CONVTUNE_DATA_DIR"])
    pool = partial(ProcessPoolExecutor, workers, get_context("spawn"), alone, (folder.parent,))
    killer = Killer(len(problems), args.budget) if args.way == "killed" else None
    if killer and killer.at == 0:
        killer()
    begin = time.monotonic()
    failed = ""
    try:
        convtune.tune_all(problems, pool, device=args.device, budget=args.budget, progress=killer or False)
    except convtune.Error as why:
        failed = str(why)[:300]
    seconds = time.monotonic() - begin
    if killer and killer.killed is None:
        failed = failed or "NOBODY WAS KILLED"
    merged, lost = records_of(args, folder), 0
    for one in folder.parent.glob("worker-*"):
        for key, record in records_of(args, one).items():
            lost += key not in merged or merged[key]["time_us"] > record["time_us"]
    print(json.dumps({"seconds": seconds, "failed": failed, "lost": lost, "killed": killer and killer.killed,
                      "records": list(merged.values())}))  # fmt: skip


def beside(row, one):
    """(words on the records beside one machine's, whether a problem is missing)."""
    ours, theirs = ({(record["problem"], record["device"]): record for record in way["records"]} for way in (row, one))
    both = [(ours[key], theirs[key]) for key in ours if key in theirs]
    others = sum((a["algorithm"], a["config"]) != (b["algorithm"], b["config"]) for a, b in both)
    ratios = [a["time_us"] / b["time_us"] for a, b in both] or [float("nan")]
    same = bool(ours) and ours.keys() == theirs.keys()
    words = f"{len(ours)} records, of {'the same problems' if same else 'OTHER PROBLEMS than one machine'}"
    if row is not one:
        words += f", {others} by another config; theirs take {statistics.median(ratios):.3f} of one's time (the worst {max(ratios):.2f})"
    return words + (f"; {row['lost']} LOST" if row["lost"] else ", none lost"), not same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", default="modern")
    parser.add_argument("--problems", type=int, default=30)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", help="as convtune.tune takes it")
    parser.add_argument("--budget", type=float, default=4, help="seconds a problem")
    parser.add_argument("--deadline", type=float, default=1e6, help="seconds after which no way is begun, and one ends")
    parser.add_argument("--convtune", default="convtune", help="the command")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--way", help=argparse.SUPPRESS)  # be one of them
    args = parser.parse_args()
    if args.way:
        work(args)
        return 0
    start, found, bad = time.monotonic(), {}, False
    for way in args.ways:
        left = args.deadline - (time.monotonic() - start)
        row = None
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            environment = {**os.environ, "CONVTUNE_DATA_DIR": f"{folder}/data", "CONVTUNE_CACHE_DIR": f"{folder}/cache"}
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way]
            try:
                ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=max(left, 0.1), check=False)
                row = json.loads(ran.stdout.splitlines()[-1]) if ran.returncode == 0 else None
                print("" if row else f"{way}: failed\n", end="", flush=True)
            except subprocess.TimeoutExpired:
                print(f"{way}: no time left", flush=True)
        if row is None:
            bad = True
            continue
        found[way] = row
        speed = f"{found['one']['seconds'] / row['seconds']:.2f}x" if "one" in found else ""
        words, missing = beside(row, found["one"]) if "one" in found else (f"{len(row['records'])} records, beside no other way's", not row["records"])
        bad |= missing or bool(row["lost"] or row["failed"])
        print(f"{way:7} {row['seconds']:7.1f} s {speed} {words}; {row['failed'] or 'all answered'}", flush=True)
        if args.json:
            Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
