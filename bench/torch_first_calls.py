#!/usr/bin/env python3
"""What the first call of a compiled model takes: inductor alone beside backend="convtune" with nothing known, with the data
folder of that run on a machine whose caches are empty, and each in a second process; and what a call takes afterwards.

    python bench/torch_first_calls.py --models resnet50,mobilenet_v3_large --deadline 500 --json first.json
    python bench/torch_first_calls.py --models resnet18 --size 64 --batch 2 --device cpu --calls 5

Each way is a process with folders of its own for the caches of inductor, Triton and convtune. As many run at a time as there
are --lanes, each on processors of its own and all on as many, so that seconds are to be compared; the GPU is shared. Models go
in their order. Seconds are from torch.compile to the first answer: what importing and making the model take is left out. Times
of a call are medians, in turns. torchvision's names, timm's (hrnet_w18) and yolo11s of ultralytics; random weights, bf16 and
channels last on a GPU.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

START = time.monotonic()
# By names: the way before, whose folder (all of it, or what its contests decided) it takes over.
WAYS = {"inductor, cold": None, "convtune, cold": None, "convtune, contests known": "convtune, cold",
        "inductor, second process": "inductor, cold", "convtune, second process": "convtune, cold"}
FOLDERS = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton", "CONVTUNE_CACHE_DIR": "cache", "CONVTUNE_DATA_DIR": "data"}


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
            if name.startswith("hrnet"):
                import timm

                model = timm.create_model(name)
            else:
                import torchvision

                model = torchvision.models.get_model(name, weights=None)
            x = torch.randn(args.batch, 3, size, size)
    last = torch.channels_last if args.device != "cpu" else torch.contiguous_format
    return model.eval().to(dtype=dtype, memory_format=last), x.to(dtype=dtype, memory_format=last)


def work(args):
    """One process: the first call's seconds, then microseconds of calls for each line of its input."""
    answers, sys.stdout = sys.stdout, sys.stderr
    if args.processors:
        os.sched_setaffinity(0, map(int, args.processors.split(",")))
    import torch

    torch.backends.cudnn.benchmark = True

    def wait():
        if args.device != "cpu":
            torch.cuda.synchronize()

    model, x = built(args.models, args)
    said = ""
    with torch.no_grad():
        if args.way == "convtune":
            import convtune.torch.backend
        wait()
        begin = time.monotonic()
        run = torch.compile(model, backend=args.way, options={"triton.cudagraphs": args.device != "cpu"})
        run(x)
        wait()
        seconds = time.monotonic() - begin
        if args.way == "convtune" and (report := convtune.torch.backend.last_report()) is not None:
            said = ", ".join(f"{phase} {took:.1f}" for phase, took in report.seconds.items())
            print(report, flush=True)
        for _ in range(5):
            run(x)
        print(json.dumps({"seconds": seconds, "said": said}), file=answers, flush=True)
        for _ in sys.stdin:
            samples = []
            for _ in range(args.calls):
                wait()
                begin = time.perf_counter()
                run(x)
                wait()
                samples.append(1e6 * (time.perf_counter() - begin))
            print(json.dumps(samples), file=answers, flush=True)


class Way:
    """One way of a model, and its process."""

    def __init__(self, model, name, folder):
        self.model, self.name, self.folder = model, name, Path(folder) / model / name.split(",")[0].replace(" ", "_")
        if name == "convtune, contests known":
            self.folder = self.folder.with_name("known")
        self.before, self.row, self.process, self.state = None, {}, None, "waits"

    def run(self, args, processors):
        """Until the first call is answered, or the deadline."""
        if self.name == "convtune, contests known":
            shutil.copytree(self.before.folder / "data", self.folder / "data")
        command = [sys.executable, __file__, "--models", self.model, "--way", self.name.split(",")[0], "--batch", str(args.batch),
                   "--size", str(args.size), "--calls", str(args.calls), "--device", args.device, "--processors", processors]  # fmt: skip
        environment = {**os.environ, **{key: str(self.folder / below) for key, below in FOLDERS.items()}}
        self.process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        late = threading.Timer(max(args.deadline - (time.monotonic() - START), 0.1), self.process.kill)
        late.start()
        line = self.process.stdout.readline()
        late.cancel()
        self.row = json.loads(line) if line else {"said": "failed, or no time left"}
        print(f"[{time.monotonic() - START:.0f} s] {self.model} {self.name}: {self.row.get('seconds', float('nan')):.1f} s; {self.row['said']}", flush=True)

    def time(self):
        with contextlib.suppress(BrokenPipeError):
            print("time", file=self.process.stdin, flush=True)
            line = self.process.stdout.readline()
            return json.loads(line) if line else []
        return []

    def end(self):
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def finish(ways, rows, args):
    """Times what is ready of a model in turns, and writes its rows."""
    alive = [way for way in ways if way.row.get("seconds")]
    samples = {way: [] for way in alive}
    for turn in range(4 if time.monotonic() - START < args.deadline else 0):
        for way in alive if turn % 2 == 0 else alive[::-1]:
            samples[way] += way.time()
    first = {way.name: way.row.get("seconds") for way in ways}
    for way in ways:
        way.end()
        us = statistics.median(samples[way]) if samples.get(way) else float("nan")
        base = first["inductor, second process" if "second" in way.name else "inductor, cold"]
        seconds = way.row.get("seconds", float("nan"))
        rows.append({"model": way.model, "way": way.name, "seconds": seconds, "over_inductor": seconds / (base or float("nan")), "us": us,
                     "said": way.row.get("said", "no time left")})
    if args.json:
        found = {"format": "convtune-first-calls", "version": 2, "lanes": args.lanes, "rows": rows}
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
            except (OSError, ValueError) as why:
                way.row = {"said": f"failed: {why}"}
        with changed:
            way.state = "done"
            ways = next(ways for ways in models if way in ways)
            if all(one.state == "done" for one in ways):
                finish(ways, rows, args)
            changed.notify_all()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="resnet50,mobilenet_v3_large,yolo11s,densenet121,hrnet_w18", help="comma-separated")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--calls", type=int, default=20, help="timed in each of four turns")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--lanes", type=int, default=max(1, len(os.sched_getaffinity(0)) // 5), help="processes at a time")
    parser.add_argument("--deadline", type=float, default=1e6, help="seconds after which no process is begun, and one ends")
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
        models = [[Way(name, way, folder) for way in WAYS] for name in args.models.split(",")]
        for ways in models:
            for way in ways:
                way.before = next((one for one in ways if one.name == WAYS[way.name]), None)
        lanes = [threading.Thread(target=lane, args=(",".join(map(str, here[at * share : (at + 1) * share])), models, rows, args, changed))
                 for at in range(args.lanes)]  # fmt: skip
        for one in lanes:
            one.start()
        for one in lanes:
            one.join()
    every = len(models) * len(WAYS)
    return 0 if len(rows) == every and all(row["seconds"] == row["seconds"] and row["us"] == row["us"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
