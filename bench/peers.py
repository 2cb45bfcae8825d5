#!/usr/bin/env python3
"""Times what PyTorch offers for a convolution, and a Triton kernel from a file, as `convtune bench` would.

The peers: F.conv2d with its bias (eager), the same under torch.compile, cuDNN's fused convolution + bias +
ReLU, and whatever a file of the user's brings. The rows are those of `convtune bench --json`, so that one
table holds all; with --convtune the command is run on the same problems and its rows are taken in.
"""

import argparse
import inspect
import json
import math
import os
import statistics
import subprocess
import sys
from dataclasses import replace

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from problem_lines import SUITES, BadInput, end_with, find, load_suite, to_line  # noqa: E402
from torch_peers import Case, Machine, NoDevice, TritonFile  # noqa: E402

PEERS = ("eager", "compiled", "fused")
TIE = 0.02  # a speed-up within this share of 1 is a tie


def row_json(problem, device, providers, bench=None):
    """One case. `bench`: convtune's row for it, whose own result and peers then come first."""
    row = bench or {"case": problem.name, "problem": to_line(problem), "device": device,
                    "roofline": {"floor_us": 0, "bound": ""}, "providers": [], "best_peer": None,
                    "speedup": None}
    own = next((p for p in row["providers"] if p["name"] == "convtune" and not p.get("failure")), None)
    peers = [p for p in row["providers"] if p["name"] != "convtune"]
    theirs = [provider.json(row["roofline"]["floor_us"]) for provider in providers]
    row["providers"] = row["providers"] + theirs
    right = {provider.name for provider in providers if provider.answers}
    peers = [p for p in peers + [p for p in theirs if p["name"] in right]
             if not p.get("failure") and p["time_us"] > 0]
    if peers:
        best = min(peers, key=lambda p: p["time_us"])
        row["best_peer"] = best["name"]
        row["speedup"] = best["time_us"] / own["time_us"] if own and own["time_us"] > 0 else None
    return row


def report_json(rows, environment):
    speedups = [row["speedup"] for row in rows if row["speedup"]]
    return {"schema": 1, "environment": environment, "rows": rows,
            "geomean_speedup": math.exp(statistics.fmean(map(math.log, speedups))) if speedups else None,
            "wins": sum(s > 1 + TIE for s in speedups), "ties": sum(abs(s - 1) <= TIE for s in speedups),
            "losses": sum(s < 1 - TIE for s in speedups)}


def table(row):
    lines = [f'{row["case"] or row["problem"]}: {row["problem"]}']
    if row["roofline"]["floor_us"] > 0:
        lines[0] += f'; roofline {row["roofline"]["floor_us"]:.1f} us, bound by {row["roofline"]["bound"]}'
    for p in sorted(row["providers"], key=lambda p: p["time_us"] or math.inf):
        lines.append(f'  {p["name"]:<48} ' + (f'failed: {p["failure"]}' if p.get("failure") else
                     f'{p["time_us"]:9.1f} us  MAD {p["mad_us"]:6.1f}  n {p["n"]:4d}  error {p["max_error"]:.1e}'))
    return "\n".join(lines)


def convtune_row(command, problem, device, seconds):
    """Returns the times of `convtune bench` for the problem, in the same run though not in the same rounds."""
    line = to_line(replace(problem, name=""))
    asked = [command, "bench", *line.split(" "), "--device", f"cuda:{device}", "--seconds", str(seconds), "--json", "-"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, check=True)
        report = json.loads(done.stdout)
    except (OSError, ValueError) as error:
        raise BadInput(f"--convtune: '{command}' cannot be run: {error}") from None
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise BadInput(f"--convtune: '{command} bench' failed on {line}: {last}") from None
    report["rows"][0]["case"] = problem.name
    return report["rows"][0], report["environment"]["versions"]


def peers(text):
    chosen = text.split(",")
    for peer in chosen:
        if peer not in PEERS:
            raise argparse.ArgumentTypeError(f"'{peer}' is none of {', '.join(PEERS)}")
    return chosen


def arguments(argv):
    parser = argparse.ArgumentParser(
        prog="peers.py", description=inspect.cleandoc(__doc__), formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Examples:\n  bench/peers.py alexnet_conv1 --seconds 5 --json peers.json\n"
               "  bench/peers.py --suite stem --peers eager,fused --convtune convtune --json all.json\n"
               "  bench/peers.py alexnet_conv1 --triton kernel.py\n\n"
               "Exit codes: 0 done, 1 a wrong answer was found, 2 bad input, 3 no PyTorch or no GPU.")
    parser.add_argument("problem", nargs="*", metavar="PROBLEM",
                        help="case names or benchdnn lines; words like precision=fp32 belong to the one before")
    parser.add_argument("--suite", help=f"all problems of {', '.join(SUITES)}, all, or of a file")
    parser.add_argument("--batch", type=int, metavar="N", help="use this batch size instead of the problem's (mb)")
    parser.add_argument("--peers", type=peers, default=PEERS, metavar="LIST",
                        help=f"which of PyTorch's, with commas between (default: {','.join(PEERS)})")
    parser.add_argument("--triton", metavar="FILE.py[:FUNCTION]",
                        help="a Triton kernel from a file: its class ModelNew, or FUNCTION(x, w, bias, stride, "
                        "padding); the file is run, so it must be trusted")
    parser.add_argument("--convtune", metavar="COMMAND",
                        help="run this convtune on the same problems too, and take its rows in")
    parser.add_argument("--seconds", type=float, default=3,
                        help="measuring time of a case, shared by the peers (default: 3)")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="PyTorch's number of the GPU (default: 0)")
    parser.add_argument("--json", metavar="FILE",
                        help="write the results here, after every case (- is standard output, at the end)")
    options = parser.parse_args(argv)
    if not 0 < options.seconds <= 86400:
        raise BadInput(f"--seconds {options.seconds} is not above 0 and at most a day")
    if options.device < 0:
        raise BadInput(f"--device {options.device} is not a number of a GPU")
    options.left_out = []
    problems = find(options.problem) + (load_suite(options.suite, options.left_out) if options.suite else [])
    for reason in options.left_out:
        print(f"peers.py: warning: {reason}", file=sys.stderr)
    if not problems:
        raise BadInput("no problem given: name a case, write a benchdnn line, or use --suite")
    if options.batch is not None:
        if options.batch < 1:
            raise BadInput(f"--batch {options.batch} is not at least 1")
        problems = [replace(problem, n=options.batch) for problem in problems]
    kernel = TritonFile(options.triton) if options.triton else None
    return options, problems, kernel


def write(path, text):
    """Whole or not at all; without a text it is only tried."""
    try:
        with open(path + ".new", "w", encoding="utf-8") as file:
            file.write(text or "")
        if text is None:
            os.remove(path + ".new")
        else:
            os.replace(path + ".new", path)
    except OSError as error:
        raise BadInput(f"cannot write '{path}': {error.strerror}") from None


def measure(machine, problem, kernel, options, versions):
    """One row, and its exit code. What cannot be measured does not stop the others."""
    try:
        case = Case(machine, problem)
        bench = None
        if options.convtune:
            bench, theirs = convtune_row(options.convtune, case.problem, options.device, options.seconds)
            versions |= theirs
        providers = case.providers(options.peers, kernel)
        case.measure(providers, options.seconds)
    except (BadInput, machine.torch.cuda.OutOfMemoryError) as error:
        print(f"peers.py: error: {problem.name or to_line(problem)}: {error}", file=sys.stderr)
        return row_json(problem, machine.fingerprint(), []) | {"failure": str(error)}, 2
    row = row_json(case.problem, machine.fingerprint(), providers, bench)
    return row, 1 if any(provider.wrong for provider in providers) else 0


def main(argv):
    options, problems, kernel = arguments(argv)
    to_file = options.json and options.json != "-"
    if to_file:
        write(options.json, None)  # before anything is measured
    try:
        import torch
    except ImportError as error:
        raise NoDevice(f"PyTorch is needed, and cannot be imported: {error}") from None
    machine = Machine(torch, options.device)
    if kernel:
        kernel.load()
    environment, rows, code = machine.environment(), [], 2 if options.left_out else 0
    with torch.no_grad():
        for problem in problems:
            row, failed = measure(machine, problem, kernel, options, environment["versions"])
            rows.append(row)
            code = code or failed
            print(table(row), file=sys.stderr if options.json == "-" else sys.stdout, flush=True)
            report = json.dumps(report_json(rows, environment), indent=2) + "\n"
            if to_file:
                write(options.json, report)
    if options.json == "-":
        sys.stdout.write(report)
    return code


if __name__ == "__main__":
    end_with(main, [(NoDevice, 3)])
