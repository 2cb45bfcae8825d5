"""compute-sanitizer's memcheck of pairs of an algorithm and a problem (memcheck.txt), with two configs of each problem.

    python bench/gpu/memcheck.py OUT SECONDS [--pairs FILE] [--configs 2] [--target h200] [--jobs 7]

`convtune` is the one on PATH. Kernels are compiled first, without the tool, which would watch the compiler. A run that its
limit ends counts as bad. Status 1 where one is bad. 45 problems and 63 random gradients take about four minutes on 14 processors.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("out", type=Path)
parser.add_argument("seconds", type=float)
parser.add_argument("--pairs", type=Path, default=Path(__file__).with_name("memcheck.txt"))
parser.add_argument("--configs", type=int, default=2, help="of each problem, the first of the planner's order")
parser.add_argument("--target", default="h200", help="whose order it is")
parser.add_argument("--jobs", type=int, default=7)
parser.add_argument("--tool", default=shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer")
args = parser.parse_args()
end = time.monotonic() + args.seconds


def run(command, limit=90.0):
    """Exit code and all that was said; 124 where its time was up."""
    try:
        limit = max(min(limit, end - time.monotonic()), 1)
        done = subprocess.run(command, text=True, errors="replace", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=limit)  # fmt: skip
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as late:
        return 124, (late.stdout or b"").decode(errors="replace")


def commands_of(pair):
    """The runs of `convtune verify` for a pair, compiled; and what was said where there are none."""
    algorithm, problem = pair
    if problem.isdigit():
        command = ["convtune", "verify", "--random", problem, "--algorithm", algorithm, "--device", "cuda"]
        run(command)
        return [command], ""
    said = run(["convtune", "plan", problem, "--target", args.target, "--algorithm", algorithm, "--candidates", str(args.configs)])[1]
    configs = re.findall(rf"^\s*[\d.]+\s+{algorithm}\b.*?((?:\w+=-?\d+ ?)+)\s*$", said, re.M)
    own = ["convtune", "verify", problem, "--algorithm", algorithm, "--device", "cuda", "--config"]
    return [[*own, config.strip()] for config in configs], said


def check(command):
    """The command, whether it was right, and what was said under the tool."""
    code, said = run([args.tool, "--tool", "memcheck", "--target-processes", "application-only", "--error-exitcode", "99",
                      "--print-limit", "5", *command])  # fmt: skip
    errors = re.findall(r"ERROR SUMMARY: (\d+) error", said)
    checks = re.search(r"(\d+) checks?\b", said)
    return command, code == 0 and errors == ["0"], int(checks[1]) if checks else 0, f"status {code}\n{said}"


pairs = [tuple(part.strip() for part in line.split("|")) for line in args.pairs.read_text().splitlines() if "|" in line]
with ThreadPoolExecutor(args.jobs) as pool:
    found = list(zip(pairs, pool.map(commands_of, pairs)))
missing = [(pair, said) for pair, (commands, said) in found if not commands]
for (algorithm, problem), said in missing:
    print(f"NO CONFIG {algorithm} {problem}: {said.strip().splitlines()[-1:]}")
with ThreadPoolExecutor(args.jobs) as pool:
    checked = list(pool.map(check, [command for _, (commands, _) in found for command in commands]))
bad = [(command, said) for command, right, _, said in checked if not right]
args.out.mkdir(parents=True, exist_ok=True)
(args.out / "memcheck.log").write_text("\n".join(f"##### {' '.join(command)}\n{said}" for command, said in bad))
for command, said in bad:
    told = next((line for line in said.splitlines() if re.search("Invalid|MISMATCH|rror", line)), said.partition("\n")[0])
    print(f"BAD {' '.join(command[1:])}: {told[:150]}")
print(f"memcheck: {len(pairs)} pairs, {len(checked)} runs, {sum(checks for _, _, checks, _ in checked)} checks, {len(bad)} bad, {len(missing)} without a config")
sys.exit(bool(bad or missing))
