#!/usr/bin/env python3
"""Times convtune's convolution on a CPU beside PyTorch's (channels first and last), ONNX Runtime's, OpenVINO's and
oneDNN's (plain, and in its best layout with both conversions counted), on a number of threads, in turns.

    scripts/setup_peers VENV                                         once: the libraries
    VENV/bin/python bench/cpu_peers.py alexnet_conv1 --batch 8       one row
    VENV/bin/python bench/cpu_peers.py --suite body --batch 1 --threads 1 --tune 30 --json body.json
    VENV/bin/python bench/cpu_peers.py --layers bench/cpu_axes.txt       1-D, 3-D and transposed layers

Every library lives in a process of its own that may run on the first --threads processors and no others. Out of
its turn a process is stopped whole (SIGSTOP), so that no pool of threads spins while another is timed. A turn warms
up with a run or more, then takes samples; turns go round and back, and a row's time is the median of all samples.
Each output is compared with sums in double precision before it is timed. Tensors stay where they are from run to
run, as warm as the caches hold them; freed memory is kept and lies in huge pages in every process alike.

People's machines are busy, and their memory lies anywhere: --busy N counts on N processes of the same processors
while the libraries are timed, and --offset N lets convtune's x and y begin N bytes behind a cache line (16 is where
NumPy's and std::vector's large ones begin; the other libraries' memory is what they take themselves). Who may choose
a model's layout has PyTorch's channels last; with --layouts convtune and oneDNN run in it, too, and ours is the better of the
two. Where other
work cannot be stopped, --clock thread takes the processor time of the one thread.

A bf16 problem is put beside the others' ways in fp32 as well, on the same numbers: who may choose takes the faster one.

convtune runs what its record or its estimate says (CONVTUNE_DATA_DIR is where records lie); --tune searches first,
and --plan forces a plan. The library is CONVTUNE_LIBRARY, or this checkout's build/release. Exit codes: 0 done, 1 a
wrong answer was found, 2 bad input, 3 no library could be loaded.
"""

import argparse
import contextlib
import ctypes
import datetime
import inspect
import json
import math
import multiprocessing
import os
import platform
import re
import signal
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cpu_axes import load_layers  # noqa: E402
from cpu_libraries import LIBRARIES  # noqa: E402
from cpu_oracle import Oracle, as_floats, make_data, widen  # noqa: E402
from peers import TIE, table, write  # noqa: E402
from problem_lines import ACTIVATIONS, NUMBER, SUITES, BadInput, end_with, find, load_suite  # noqa: E402

MIN_ROUNDS = 5
OTHERS = 0.05  # the part of a thread's time that others may work beside it
CLOCKS = {"wall": time.perf_counter_ns, "thread": time.thread_time_ns}
F32 = " f32"  # behind the names of the others' ways of the same in fp32, beside a bf16 problem
# Memory that is freed is kept by the process, and in huge pages where the system leaves that to programs.
MEMORY = "glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=68719476736"


# ---- In a worker's process ----------------------------------------------------------------------


def take_turn(way, seconds, clock):
    """Samples of one run each, in microseconds of `clock`; at least one after a warm-up. Where that is the calling thread's
    and other threads worked, too, the reason why there are none."""
    now = CLOCKS[clock]
    thread, process = time.thread_time_ns(), time.process_time_ns()
    end = time.perf_counter() + seconds / 4
    way.run()
    while time.perf_counter() < end:
        way.run()
    samples, end = [], time.perf_counter() + seconds
    while not samples or time.perf_counter() < end:
        start = now()
        way.run()
        samples.append((now() - start) / 1000)
    thread, process = time.thread_time_ns() - thread, time.process_time_ns() - process
    if clock == "thread" and process - thread > OTHERS * thread + 1e6:
        return f"other threads worked for {(process - thread) / 1e6:.0f} ms, which the clock of the calling one does not see"
    return samples


def work(pipe, make, arguments, processors):
    """A worker: makes the library, then answers ("prepare", problem, indices) and ("turn", way, seconds, clock)."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: a stopped process must not outlive its parent
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.sched_setaffinity(0, processors)
    library = make(**arguments)
    try:
        library.load()
        pipe.send((library.versions(), library.fingerprint()))
    except Exception as error:  # noqa: BLE001  whatever a library raises: it has no row
        pipe.send(f"{type(error).__name__}: {error}".splitlines()[0][:300])
        return
    ways = {}
    while True:
        asked, *rest = pipe.recv()
        if asked == "prepare":
            problem, at = rest
            data = make_data(problem)
            ways = library.ways(problem, data)
            if problem.dtype == "bf16":
                for called, way in library.rivals(replace(problem, dtype="f32"), as_floats(data)).items():
                    ways[called + F32] = way
            answer = {}
            for called, way in ways.items():
                if not isinstance(way, str):
                    way.run()
                    answer[called] = (widen(way.read()[at]), way.config)
                else:
                    answer[called] = way
            pipe.send(answer)
        else:
            pipe.send(take_turn(ways[rest[0]], *rest[1:]))


# ---- In the process that asks -------------------------------------------------------------------


class Worker:
    """A library in its process, stopped but where it is asked something."""

    def __init__(self, name, make, arguments, processors):
        context = multiprocessing.get_context("spawn")
        self.name, (self.pipe, theirs) = name, context.Pipe()
        self.process = context.Process(target=work, args=(theirs, make, arguments, processors), daemon=True)
        self.process.start()
        theirs.close()
        answer = self.receive()
        self.failure = answer if isinstance(answer, str) else ""
        self.versions, self.fingerprint = ({}, "") if self.failure else answer

    def receive(self):
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            self.process.join()
            return f"its process ended with code {self.process.exitcode}"
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGSTOP)
        return answer

    def ask(self, *question):
        os.kill(self.process.pid, signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):  # it died since: receive() says how
            self.pipe.send(question)
        answer = self.receive()
        if isinstance(answer, str):  # it died: no more of it
            self.failure = answer
        return answer

    def end(self):
        if self.process.is_alive():
            self.process.kill()
        self.process.join()


class Busy:
    """Processes that only count, on the same processors, while `with` lasts."""

    def __init__(self, count, processors):
        self.count, self.processors, self.processes = count, processors, []

    def __enter__(self):
        context = multiprocessing.get_context("spawn")
        self.processes = [context.Process(target=count_on, args=(self.processors,), daemon=True)
                          for _ in range(self.count)]
        for process in self.processes:
            process.start()
        if self.processes:
            time.sleep(1)  # all of them have begun

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.join()


def count_on(processors):
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    os.sched_setaffinity(0, processors)
    while True:
        pass


def is_own(name):
    return name.startswith("convtune")


def provider_json(name, config, samples=(), error=0.0, failure=""):
    median = statistics.median(samples) if samples else 0
    algorithm, _, rest = (config if is_own(name) else name).partition(" ")
    return {"name": name, "algorithm": algorithm, "config": rest, "time_us": median,
            "mad_us": statistics.median(abs(s - median) for s in samples) if samples else 0, "n": len(samples),
            **({"mean_us": statistics.fmean(samples), "p90_us": sorted(samples)[len(samples) * 9 // 10]} if samples else {}),
            "roofline_fraction": 0, "max_error": error} | ({"failure": failure} if failure else {})


def measure(workers, problem, seconds, busy, clock="wall"):
    """One row."""
    oracle, ways, failed = Oracle(problem), [], []
    for worker in workers:
        answers = {worker.name: worker.failure} if worker.failure else worker.ask("prepare", problem, oracle.at)
        if isinstance(answers, str):
            answers = {worker.name: answers}
        for name, answer in answers.items():
            if isinstance(answer, str):
                failed.append(provider_json(name, "", failure=answer))
                continue
            error, wrong = oracle.judge(answer[0])
            if wrong:
                failed.append(provider_json(name, answer[1], error=error, failure=f"wrong: {wrong}"))
            else:
                ways.append((worker, name, answer[1], error, []))
    with busy:
        end, turn = time.monotonic() + seconds, seconds / max(1, len(ways)) / (MIN_ROUNDS + 3)
        for round_ in range(1000):
            if round_ >= MIN_ROUNDS and time.monotonic() > end:
                break
            for worker, name, _, _, samples in ways if round_ % 2 == 0 else ways[::-1]:
                answer = worker.failure or worker.ask("turn", name, turn, clock)
                if not isinstance(answer, str):
                    samples.extend(answer)
    providers = [provider_json(name, config, samples, error, worker.failure)
                 for worker, name, config, error, samples in ways] + failed
    timed = {p["name"]: p["time_us"] for p in providers if not p.get("failure")}
    own = min((timed.pop(name) for name in list(timed) if is_own(name)), default=0)
    best = min(timed, key=timed.get, default=None)
    return {"case": problem.name, "problem": problem.line(), "device": "",
            "roofline": {"floor_us": 0, "bound": ""}, "gflop": problem.flops / 1e9, "providers": providers,
            "best_peer": best, "speedup": timed[best] / own if best and own else None}


def summary(rows):
    """One line a problem, then the geometric means over the best peer and over each, and the losses."""
    columns = ["convtune", "onednn blocked=0", "onednn blocked=1", "torch nhwc=0", "torch nhwc=1", "onnxruntime",
               "openvino"]
    if any(p["name"] == "convtune nhwc=1" for row in rows for p in row["providers"]):
        columns = [columns[0], "convtune nhwc=1", *columns[1:3], *(f"{name} nhwc=1" for name in columns[1:3]), *columns[3:]]
    if any(F32 in p["name"] for row in rows for p in row["providers"]):
        columns += [column + F32 for column in columns[1:]]
    lines = ["| row | " + " | ".join(columns) + " | over the best | our GFLOP/s |", "|---" * (len(columns) + 3) + "|"]
    ratios, losses = {column: [] for column in columns}, []
    for row in rows:
        times = {p["name"]: p["time_us"] for p in row["providers"] if not p.get("failure")}
        own = min((time for name, time in times.items() if is_own(name)), default=0)
        for column in times.keys() & ratios.keys() if own else ():
            ratios[column].append(times[column] / own)
        if row["speedup"] and row["speedup"] < 1 - TIE:
            losses.append(f'{row["case"] or row["problem"]} {row["speedup"]:.2f} ({row["best_peer"]})')
        cells = [f"{times[c]:.{0 if times[c] >= 100 else 1}f}" if c in times else "-" for c in columns]
        lines.append(f'| {row["case"] or row["problem"]} | ' + " | ".join(cells) +
                     (f' | {row["speedup"]:.2f}' if row["speedup"] else " | -") +
                     (f' | {row["gflop"] / own * 1e6:.0f} |' if own else " | - |"))
    means = [mean(ratios[column]) for column in columns]
    best = mean([row["speedup"] for row in rows if row["speedup"]])
    lines.append("| geometric mean over it | " + " | ".join(f"{m:.2f}" if m else "-" for m in means) +
                 (f" | {best:.2f} | |" if best else " | - | |"))
    return "\n".join([*lines, f"losses: {', '.join(losses) or 'none'}"])


def mean(ratios):
    return math.exp(statistics.fmean(map(math.log, ratios))) if ratios else None


def environment(workers, options):
    versions = {key: version for worker in workers for key, version in worker.versions.items()}
    name = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                 if line.startswith("model name")), platform.machine())
    fingerprint = next((worker.fingerprint for worker in workers if worker.fingerprint), "")
    return {"device": name, "fingerprint": fingerprint, "threads": options.threads, "versions": versions,
            **{key: value for key in ("busy", "offset", "layouts") if (value := getattr(options, key))},
            **({} if options.clock == "wall" else {"clock": options.clock}),
            "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}"}


def chosen(text):
    for library in text.split(","):
        if library not in LIBRARIES:
            raise argparse.ArgumentTypeError(f"'{library}' is none of {', '.join(LIBRARIES)}")
    return text.split(",")


def arguments(argv):
    parser = argparse.ArgumentParser(prog="cpu_peers.py", description=inspect.cleandoc(__doc__),
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", nargs="*", metavar="PROBLEM",
                        help="case names or benchdnn lines; words like layout=nhwc dtype=bf16 belong to the one before")
    parser.add_argument("--suite", help=f"all problems of {', '.join(SUITES)}, all, or of a file")
    parser.add_argument("--layers", metavar="FILE", help="1-D, 3-D and transposed layers: lines of convtune's problems")
    parser.add_argument("--batch", type=int, metavar="N", help="use this batch size instead of the problem's (mb)")
    parser.add_argument("--layout", choices=("nchw", "nhwc"), help="convtune's and oneDNN's, instead of the problem's")
    parser.add_argument("--layouts", action="store_true", help="convtune and oneDNN in channels last, too, of 2-D and 3-D")
    parser.add_argument("--dtype", choices=("f32", "bf16"), help="of all tensors, instead of the problem's")
    parser.add_argument("--act", metavar="ACT", help="activation, instead of the problem's: silu, leaky_relu:0.1, ...")
    parser.add_argument("--residual", action="store_true", help="add a tensor of y's shape")
    parser.add_argument("--busy", type=int, metavar="N", default=0, help="processes that only count beside the timed one")
    parser.add_argument("--offset", type=int, metavar="BYTES", default=0,
                        help="convtune's x and y begin so far behind a cache line (default: 0)")
    parser.add_argument("--clock", choices=tuple(CLOCKS), default="wall",
                        help="thread: processor time of the one thread, where other work cannot be stopped; of --threads 1")
    parser.add_argument("--threads", type=int, metavar="N", default=len(os.sched_getaffinity(0)),
                        help="threads, on as many processors; 1 is one pinned thread (default: all usable)")
    parser.add_argument("--libraries", type=chosen, default=list(LIBRARIES), metavar="LIST",
                        help=f"with commas between (default: {','.join(LIBRARIES)}); convtune brings oneDNN")
    parser.add_argument("--tune", type=float, metavar="SECONDS", default=0, help="let convtune search before each row")
    parser.add_argument("--plan", metavar="PLAN", default="", help='run this plan of convtune\'s: "direct vectors=4 ..."')
    parser.add_argument("--seconds", type=float, default=4, help="measuring time of a row, shared by all (default: 4)")
    parser.add_argument("--json", metavar="FILE", help="write the results here, after every row")
    parser.add_argument("--resume", action="store_true", help="keep the rows that FILE has, and measure the others")
    options = parser.parse_args(argv)
    processors = sorted(os.sched_getaffinity(0))
    if not 1 <= options.threads <= len(processors):
        raise BadInput(f"--threads {options.threads} is not 1 to {len(processors)}, the processors usable here")
    if options.clock == "thread" and options.threads != 1:
        raise BadInput("--clock thread counts one thread: it needs --threads 1")
    if not 0 < options.seconds <= 86400 or not 0 <= options.tune <= 86400:
        raise BadInput("--seconds and --tune must be above 0 and at most a day")
    if not 0 <= options.busy <= 1024 or not 0 <= options.offset < 64 or options.offset % 4:
        raise BadInput("--busy must be 0 to 1024, and --offset a multiple of 4 below 64")
    if options.resume and not options.json:
        raise BadInput("--resume goes on with the file that --json names, and there is none")
    problems = find(options.problem) + (load_suite(options.suite) if options.suite else [])
    problems += load_layers(options.layers) if options.layers else []
    if not problems:
        raise BadInput("no problem given: name a case, write a benchdnn line, or use --suite or --layers")
    changes = {key: value for key, value in
               {"n": options.batch, "layout": options.layout, "dtype": options.dtype, "act": options.act,
                "residual": options.residual or None}.items() if value is not None}
    if options.act and not any(re.fullmatch(form, options.act) for form in ACTIVATIONS):
        raise BadInput(f"--act {options.act}: it is one of {' '.join(ACTIVATIONS)}".replace(NUMBER, "N"))
    problems = [replace(problem, **changes) for problem in problems]
    for problem in problems:
        if problem.n < 1:
            raise BadInput(f"a batch of {problem.n} has nothing to measure")
        if problem.dtype == "f16" or problem.precision not in ("auto", "fp32" if problem.dtype == "f32" else "bf16"):
            raise BadInput(f"{problem.line()}: f32 and bf16 tensors at their own precision are compared here")
    return options, problems, set(processors[:options.threads])


def main(argv):
    options, problems, processors = arguments(argv)
    rows, before = [], None
    if options.resume and os.path.exists(options.json):
        before = json.loads(Path(options.json).read_text(encoding="utf-8"))
        rows = before["rows"]
    elif options.json:
        write(options.json, None)
    os.environ |= {"GLIBC_TUNABLES": MEMORY, "OMP_NUM_THREADS": str(options.threads), "CUDA_VISIBLE_DEVICES": ""}
    workers, code = [], 0
    try:
        for name in options.libraries:
            own = {"tune": options.tune, "plan": options.plan, "offset": options.offset,
                   "layouts": options.layouts} if name == "convtune" else {}
            workers.append(Worker(name, LIBRARIES[name], {"threads": options.threads, **own}, processors))
            if workers[-1].failure:
                print(f"cpu_peers.py: warning: no {name}: {workers[-1].failure}", file=sys.stderr)
        if all(worker.failure for worker in workers):
            print("cpu_peers.py: error: no library could be loaded; scripts/setup_peers brings them", file=sys.stderr)
            return 3
        where = environment(workers, options)
        if before and any(before["environment"].get(key) != where.get(key)
                          for key in ("device", "threads", "versions", "busy", "offset", "clock")):
            raise BadInput(f"{options.json} was measured with {before['environment']}, and this is {where}")
        for problem in problems:
            if any(row["problem"] == problem.line() for row in rows):
                continue
            row = measure(workers, problem, options.seconds, Busy(options.busy, processors), options.clock)
            row["device"] = where["fingerprint"]
            rows.append(row)
            code = code or int(any(p.get("failure", "").startswith("wrong") for p in row["providers"]))
            print(table(row), file=sys.stderr, flush=True)
            if options.json:
                speedups = [r["speedup"] for r in rows if r["speedup"]]
                write(options.json, json.dumps(
                    {"schema": 1, "environment": where, "rows": rows, "geomean_speedup": mean(speedups),
                     "wins": sum(s > 1 + TIE for s in speedups), "ties": sum(abs(s - 1) <= TIE for s in speedups),
                     "losses": sum(s < 1 - TIE for s in speedups)}, indent=2) + "\n")
        print(summary(rows))
    finally:
        for worker in workers:
            worker.end()
    return code


if __name__ == "__main__":
    end_with(main)
