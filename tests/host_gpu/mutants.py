#!/usr/bin/env python3
"""Faults put into copies of the kernels, one at a time (faults.py): is each found?   mutants.py HOST_KERNEL [WORD]

HOST_KERNEL is the built program host_kernel; WORD chooses faults by their names. Prints a line a fault, and exits with
1 where one is not found."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from faults import FAULTS, PROBLEMS

SOURCES = pathlib.Path(__file__).resolve().parents[2] / "src"
MODES = ["late watch", "shuffled watch nan seed=1"]


def found(program, word, tree):
    """How a fault shows, or nothing."""
    algorithm, problem, config = PROBLEMS[word]
    for mode in MODES:
        environment = dict(os.environ, CONVTUNE_KERNEL_DIR=str(tree))
        try:
            done = subprocess.run(
                [program, algorithm, problem, config, mode],
                env=environment,
                capture_output=True,
                text=True,
                timeout=600,
            )
        except subprocess.TimeoutExpired:
            return f"{mode}: it does not end"
        if done.returncode == 2 or "does not compile" in done.stdout:
            sys.exit(f"mutants: '{word}' could not be run: {done.stderr or done.stdout[:2000]}")
        if done.returncode != 0:
            mark = next((one for one in ("LAUNCH_FAILED (", ": y[", ": dw[") if one in done.stdout), None)
            text = done.stdout.split(mark, 1)[1].splitlines()[0] if mark else "a crash"
            return f"{mode}: {text[:160]}"
    return ""


def main():
    program, word = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    chosen = [fault for fault in FAULTS if word in fault[0]]
    for problem in sorted({fault[1] for fault in chosen}):
        if how := found(program, problem, SOURCES):
            sys.exit(f"mutants: '{problem}' is wrong without a fault: {how}")
    missed = 0
    for name, problem, file, text, instead in chosen:
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder) / "src"
            shutil.copytree(SOURCES, tree)
            path = tree / "cuda" / file.format(PROBLEMS[problem][0])
            before = path.read_text()
            if text not in before:
                sys.exit(f"mutants: {path.relative_to(tree)} has changed, and '{name}' cannot be put in")
            path.write_text(before.replace(text, instead))
            how = found(program, problem, tree)
        missed += not how
        print(f"{name} | {PROBLEMS[problem][0]} | {how or 'NOT FOUND'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} found")
    sys.exit(1 if missed else 0)


main()
