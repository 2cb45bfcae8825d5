#!/usr/bin/env python3
"""A list of problems tuned by one device, by several, and by several of which one's worker is killed at a random moment.

    python bench/fleet.py --workers 2 --problems 30 --budget 4                                       # two GPUs
    OMP_NUM_THREADS=1 python bench/fleet.py --device cpu --workers 2 --suite stem --problems 4 --budget 1

Each way is a process with caches and records of its own, which begin empty; its workers are a ProcessPoolExecutor's. What is said:
seconds and speed-up, problems answered, and whether the records name the same problems. Needs no PyTorch.
"""

import argparse
import json
import os
import random
import signal
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


def kill_one(after):
    time.sleep(after)
    workers = active_children()
    if workers:
        chosen = random.choice(workers)
        print(f"worker {chosen.pid} is killed after {after:.1f} s", file=sys.stderr, flush=True)
        os.kill(chosen.pid, signal.SIGKILL)


def work(args):
    import convtune

    workers = 1 if args.way == "one" else args.workers
    if args.way == "killed":
        threading.Thread(target=kill_one, args=(random.uniform(0.1, 0.7) * args.seconds,), daemon=True).start()
    begin = time.monotonic()
    failed = ""
    try:
        convtune.tune_all(lines(args), partial(ProcessPoolExecutor, workers, get_context("spawn")), device=args.device,
                          budget=args.budget, progress=False)  # fmt: skip
    except convtune.Error as why:
        failed = str(why)[:300]
    seconds = time.monotonic() - begin
    exported = subprocess.run([args.convtune, "db", "export", "-"], stdout=subprocess.PIPE, text=True, check=True).stdout
    records = sorted(str(json.loads(line).get("problem")) for line in exported.splitlines() if line.startswith("{"))
    print(json.dumps({"seconds": seconds, "failed": failed, "records": records}))


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
    parser.add_argument("--seconds", type=float, default=10, help=argparse.SUPPRESS)  # that the way before took
    args = parser.parse_args()
    if args.way:
        return work(args)
    start, found = time.monotonic(), {}
    for way in args.ways:
        left = args.deadline - (time.monotonic() - start)
        if left < 5:
            print(f"{way}: no time left")
            continue
        before = next((found[one]["seconds"] for one in ("all", "one") if one in found), 10)
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "CONVTUNE_DATA_DIR": f"{folder}/data", "CONVTUNE_CACHE_DIR": f"{folder}/cache"}
            command = [sys.executable, __file__, *sys.argv[1:], "--way", way, "--seconds", str(before)]
            try:
                ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=left, check=False)
            except subprocess.TimeoutExpired:
                print(f"{way}: no time left")
                continue
        if ran.returncode != 0:
            print(f"{way}: failed")
            continue
        row = found[way] = json.loads(ran.stdout.splitlines()[-1])
        speed = f"{found['one']['seconds'] / row['seconds']:.2f}x" if "one" in found else ""
        same = "the same problems" if row["records"] == found.get("one", row)["records"] else "OTHER PROBLEMS than one's"
        print(f"{way:7} {row['seconds']:7.1f} s {speed} {len(row['records'])} records, {same}; {row['failed'] or 'all answered'}", flush=True)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")
    return None


if __name__ == "__main__":
    main()
