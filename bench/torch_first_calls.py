#!/usr/bin/env python3
"""What the first call of a compiled model takes: inductor alone beside backend="convtune" with nothing known, with records that
are imported and nothing else, and each in a second process; and what a call takes afterwards, beside a tuned model's.

    python bench/torch_first_calls.py --models resnet50,mobilenet_v3_large --deadline 500 --json first.json
    python bench/torch_first_calls.py --models tiny --size 64 --batch 2 --device cpu --calls 5 --tune 5

Each way is a process with folders of its own for the caches of inductor, Triton and convtune. "tuned" goes on with the first
process' caches and --tune seconds of search, of which each graph has its share; its records, exported and imported into an empty
folder, are all that "records" has.
As many run at a time as there are --lanes, each on processors of its own and all on as many, so that seconds are to be compared; the GPU is
shared. Models go in their order: long ones first, each with the ways that --ways has, or with its own: densenet121:cold+second has those
whose names have one of these words; densenet121:second:3 has three second processes of each, whatever --repeat says. Seconds are from torch.compile to the first answer: what importing and making the model
take is left out; those by what they were spent on are of all of a model's graphs. Times of a call are medians, in turns, while all other
processes are stopped, whose seconds do not count that, and no other program measures (turns.py): `us` of ten calls that follow each
other, `waited_us` of one that is waited for, whose host's part depends on the processors that the process has. torchvision's names, timm's (hrnet_w18), yolo11s of ultralytics, and tiny;
random weights, bf16 and channels last on a GPU.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

import turns

START = time.monotonic()
# By names: the way that must be done before.
WAYS = {"inductor, cold": None, "convtune, cold": None, "convtune, tuned": "convtune, cold", "convtune, records": "convtune, tuned",
        "inductor, second process": "inductor, cold", "convtune, second process": "convtune, cold"}
FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CONVTUNE_CACHE_DIR": "cache"}


def built(name, args):
    import torch

    torch.manual_seed(0)
    dtype = torch.bfloat16 if args.device != "cpu" else torch.float32
    size = args.size
    with torch.device(args.device):
        if name == "yolo11s":
            from torch_zoo import model_of

            model, (x,) = model_of(name, args.batch, size, args.device)
        else:
            if name == "tiny":  # to see that it works
                model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.BatchNorm2d(16), torch.nn.ReLU(), torch.nn.Conv2d(16, 8, 3))
            elif name.startswith("hrnet"):
                import timm

                model = timm.create_model(name)
            else:
                import torchvision

                model = torchvision.models.get_model(name, weights=None)
            x = torch.randn(args.batch, 3, size, size)
    last = torch.channels_last if args.device != "cpu" else torch.contiguous_format
    return model.eval().to(dtype=dtype, memory_format=last), x.to(dtype=dtype, memory_format=last)


def seconds_of(reports):
    """By what they were spent on, of all graphs."""
    phases = dict.fromkeys(phase for one in reports for phase in one.seconds)
    return {phase: sum(one.seconds.get(phase, 0.0) for one in reports) for phase in phases}


@contextlib.contextmanager
def sampled(file):
    """Samples what the thread that enters does, 200 times a second: a line a stack, its milliseconds last, as flame graphs are made of.
    cProfile doubles what Dynamo takes. A call that keeps the interpreter to itself is looked at when it is over."""
    own, found, ended = threading.get_ident(), Counter(), threading.Event()

    def look():
        last = time.monotonic()
        while not ended.wait(0.005):
            frame, stack, now = sys._current_frames().get(own), [], time.monotonic()
            while frame is not None:
                stack.append(f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{frame.f_code.co_name}:{frame.f_lineno}")
                frame = frame.f_back
            found[";".join(reversed(stack))] += now - last
            last = now

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    Path(file).write_text("".join(f"{stack} {1e3 * took:.0f}\n" for stack, took in found.most_common()))


def dynamos_seconds():
    """Counts by Dynamo, AOTAutograd and inductor themselves: what their caches answered, then seconds, where phases within others are
    counted twice."""
    with contextlib.suppress(ImportError, AttributeError):
        from torch._dynamo.utils import compilation_time_metrics, counters

        sums = {name: sum(took) for name, took in compilation_time_metrics.items()}
        found = {name: round(took, 3) for name, took in sorted(sums.items(), key=lambda one: -one[1]) if took >= 0.02}
        return {**{name: of[name] for of in counters.values() for name in of if "_cache_" in name}, **found}
    return {}


def work(args):
    """One process: the first call's seconds, then microseconds of calls that follow each other, and of calls that are waited for, for
    each line of its input."""
    answers, sys.stdout = sys.stdout, sys.stderr
    if args.processors:
        os.sched_setaffinity(0, map(int, args.processors.split(",")))
    import torch

    torch.backends.cudnn.benchmark = True

    def wait():
        if args.device != "cpu":
            torch.cuda.synchronize()

    model, x = built(args.models, args)
    said, graphs = "", 0
    with torch.no_grad():
        if args.way == "convtune":
            import convtune.torch.backend
        wait()
        begin = time.monotonic()
        options = {"triton.cudagraphs": args.device != "cpu"}
        if args.tune:
            options["convtune.budget"] = args.tune
        with sampled(args.profile) if args.profile else contextlib.nullcontext():
            run = torch.compile(model, backend=args.way, options=options)
            run(x)
            wait()
        end = time.monotonic()
        if args.way == "convtune":
            reports = convtune.torch.backend.reports()
            phases = seconds_of(reports)
            phases["Dynamo and the rest"] = end - begin - sum(phases.values())
            graphs = len(reports)
            said = f"{graphs} graphs: " + ", ".join(f"{phase} {took:.1f}" for phase, took in phases.items())
            print(*reports, sep="\n", flush=True)
        for _ in range(5):
            run(x)
        row = {"begin": begin, "end": end, "said": said, "graphs": graphs, "counted": dynamos_seconds()}
        print(json.dumps(row), file=answers, flush=True)

        def us_of(calls):
            """Microseconds a call of `calls` in a row, measured as often as fits into a fifth of a second."""
            found, end = [], time.perf_counter() + 0.2
            while not found or (time.perf_counter() < end and len(found) < args.calls):
                wait()
                begin = time.perf_counter()
                for _ in range(calls):
                    run(x)
                wait()
                found.append(1e6 * (time.perf_counter() - begin) / calls)
            return found

        for _ in sys.stdin:
            print(json.dumps([us_of(10), us_of(1)]), file=answers, flush=True)


class Way:
    """One way of a model, and its process."""

    def __init__(self, model, name, folder, repeat):
        self.model, self.name, self.folder = model, name, Path(folder) / model / name.split(",")[0]
        self.repeat = repeat if "second" in name else 1
        self.data = self.folder / "data"
        if name == "convtune, records":
            self.folder, self.data = self.folder.with_name("records"), self.folder.with_name("records") / "data"
        elif name == "convtune, tuned":  # the second process is to find the first one's
            self.data = self.folder.with_name("tuned")
        self.before, self.row, self.process, self.state, self.pauses, self.runs = None, {}, None, "waits", [], []

    def environment(self):
        return {**os.environ, **{key: str(self.folder / below) for key, below in FOLDERS.items()}, "CONVTUNE_DATA_DIR": str(self.data)}

    def run(self, args, processors):
        """Until the first call is answered, or the deadline; of second processes as many as are to be."""
        if self.name == "convtune, tuned":
            with contextlib.suppress(FileNotFoundError):  # nothing was decided
                shutil.copytree(self.before.data, self.data)
        records = self.folder.parent / "records.jsonl"
        if self.name == "convtune, records":
            if not records.exists() or not records.stat().st_size:
                raise ValueError("nothing was tuned")
            self.records(records, "import")
        command = [sys.executable, __file__, "--models", self.model, "--way", self.name.split(",")[0], "--batch", str(args.batch),
                   "--size", str(args.size), "--calls", str(args.calls), "--device", args.device, "--processors", processors,
                   "--tune", str(args.tune / max(1, self.before.row["graphs"]) if self.name == "convtune, tuned" else 0)]  # fmt: skip
        if args.profile and "second" in self.name:
            command += ["--profile", f"{args.profile}.{self.model}.{self.name.split(',')[0]}"]
        for _ in range(self.repeat):
            self.end()
            self.begin(command, args.deadline)
        if self.runs:
            self.row["seconds"] = statistics.median(self.runs)
        if self.runs and self.name == "convtune, tuned":
            self.records(records, "export")
            if args.records:
                Path(args.records).mkdir(parents=True, exist_ok=True)
                shutil.copy(records, Path(args.records) / f"{self.model}.jsonl")
        print(f"[{time.monotonic() - START:.0f} s] {self.model} {self.name}: {' '.join(f'{took:.1f}' for took in self.runs)} s; {self.row['said']}", flush=True)
        if "second" in self.name:
            print("   counted: " + ", ".join(f"{name} {took:.3g}" for name, took in self.row.get("counted", {}).items()), flush=True)

    def records(self, file, word):
        """Exports or imports this way's."""
        subprocess.run(["convtune", "db", word, str(file)], env=self.environment(), check=True, stdout=subprocess.DEVNULL)

    def begin(self, command, deadline):
        """Begins a process and waits for its first call, or the deadline."""
        self.process = subprocess.Popen(command, env=self.environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        late = threading.Timer(max(deadline - (time.monotonic() - START), 0.1), self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        self.row = json.loads(line) if line else self.row or {"said": "failed, or no time left"}
        if line:
            stopped = sum(max(0.0, min(self.row["end"], end) - max(self.row["begin"], begin)) for begin, end in self.pauses)
            self.runs.append(self.row["end"] - self.row["begin"] - stopped)

    def time(self):
        with contextlib.suppress(BrokenPipeError):
            print("time", file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            return json.loads(line) if line else ([], [])
        return [], []

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def alone(others):
    """Stops the processes of those ways."""
    running, begin = [way for way in others if way.state == "runs" and way.process is not None and way.process.poll() is None], time.monotonic()
    for way in running:
        way.process.send_signal(signal.SIGSTOP)
    time.sleep(0.2)  # until the work that they gave the GPU ends
    try:
        yield
    finally:
        for way in running:
            way.pauses.append((begin, time.monotonic()))
            way.process.send_signal(signal.SIGCONT)


def finish(ways, others, rows, args):
    """Times what is ready of a model in turns, and writes its rows."""
    alive = [way for way in ways if way.row.get("seconds")]
    samples, waited = {way: [] for way in alive}, {way: [] for way in alive}
    with turns.alone(), alone(others):
        for turn in range(4):
            if turn and time.monotonic() - START > args.deadline:
                break
            for way in alive if turn % 2 == 0 else alive[::-1]:
                for kept, found in zip((samples, waited), way.time()):
                    kept[way] += found
    first = {way.name: way.row.get("seconds") for way in ways}
    us, waited_us = ({way.name: statistics.median(of[way]) if of.get(way) else float("nan") for way in ways} for of in (samples, waited))
    for way in ways:
        way.end()
        base = first.get("inductor, second process" if "second" in way.name else "inductor, cold")
        seconds = way.row.get("seconds", float("nan"))
        rows.append({"model": way.model, "way": way.name, "seconds": seconds, "over_inductor": seconds / (base or float("nan")),
                     "us": us[way.name], "waited_us": waited_us[way.name], "of_tuned": us.get("convtune, tuned", float("nan")) / us[way.name],
                     "said": way.row.get("said", "no time left"), "counted": way.row.get("counted", {})})
    if args.json:
        found = {"format": "convtune-first-calls", "version": 6, "lanes": args.lanes, "tune": args.tune, "rows": rows}
        Path(args.json).write_text(json.dumps(found, indent=1) + "\n")


def lane(processors, models, rows, args, changed):
    """Runs the first way that can be, until there is none."""
    while True:
        with changed:
            waiting = [way for ways in models for way in ways if way.state == "waits"]
            if not waiting:
                return
            ready = [way for way in waiting if way.before is None or way.before.state == "done"]
            if not ready:
                changed.wait()
                continue
            way = ready[0]
            way.state = "runs"
        if args.deadline - (time.monotonic() - START) > 5 and (way.before is None or way.before.row.get("seconds")):
            try:
                way.run(args, processors)
            except (OSError, ValueError, subprocess.SubprocessError) as why:
                way.row = {"said": f"failed: {why}"}
        with changed:
            way.state = "done"
            ways = next(ways for ways in models if way in ways)
            if all(one.state == "done" for one in ways):
                finish(ways, [way for others in models for way in others if others is not ways], rows, args)
            changed.notify_all()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="hrnet_w18,yolo11s,densenet121,resnet50,mobilenet_v3_large", help="MODEL[:WORD+WORD[:TIMES]], comma-separated")
    parser.add_argument("--ways", type=lambda text: text.split(";"), default=list(WAYS), metavar="WAY;WAY",
                        help="of those: " + "; ".join(WAYS))  # fmt: skip
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--calls", type=int, default=20, help="timed in each of four turns, at most")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tune", type=float, default=30, help="seconds of search of a model, all its graphs together")
    parser.add_argument("--lanes", type=int, default=max(1, len(os.sched_getaffinity(0)) // 4), help="processes at a time")
    parser.add_argument("--deadline", type=float, default=1e6, help="seconds after which no process is begun, and one ends")
    parser.add_argument("--repeat", type=int, default=1, help="second processes of a way, one after the other, whose median counts")
    parser.add_argument("--profile", metavar="FILE", help="second processes write what Python did to FILE.MODEL.WAY, sampled")
    parser.add_argument("--records", metavar="FOLDER", help="for a pack of each model, of what was tuned")
    parser.add_argument("--json", help="the file that the rows go to")
    parser.add_argument("--way", help=argparse.SUPPRESS)  # be a process
    parser.add_argument("--processors", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        return work(args)
    here = sorted(os.sched_getaffinity(0))
    share = len(here) // args.lanes
    rows, changed = [], threading.Condition()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        models = []
        for name, own, repeat in ((*one.split(":"), "", "")[:3] for one in args.models.split(",")):
            models.append([Way(name, way, folder, int(repeat or args.repeat)) for way in WAYS
                           if way in args.ways and (not own or any(word in way for word in own.split("+")))])  # fmt: skip
        for ways in models:
            for way in ways:
                way.before = next((one for one in ways if one.name == WAYS[way.name]), None)
        lanes = [threading.Thread(target=lane, args=(",".join(map(str, here[at * share : (at + 1) * share])), models, rows, args, changed))
                 for at in range(args.lanes)]  # fmt: skip
        for one in lanes:
            one.start()
        for one in lanes:
            one.join()
    every = sum(map(len, models))
    return 0 if len(rows) == every and all(row["seconds"] == row["seconds"] and row["us"] == row["us"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
