#!/usr/bin/env python3
"""Whole models on a CPU, for inference in fp32: PyTorch eager and compiled, contiguous and channels last, after
convtune.optimize, by torch.compile(backend="convtune"), and by ONNX Runtime.

    python bench/torch_cpu_models.py --json models.json                     # five models at batch 1
    python bench/torch_cpu_models.py --models resnet50 --budget 30          # 30 seconds of tuning for each of ours

Random weights. Each way is a process of its own, as its user's would be. They are made ready one after the other, since
convtune measures there, and then take turns: all ways of a model are in one run, timed by the wall clock, a forward at a
time; a gain is the best of PyTorch's medians over ours, of `optimize`, which leaves a model eager, over PyTorch's eager ways too,
each in the better of both layouts. An error is the root mean square of the difference from PyTorch's
eager answer over that of the answer. What was decided and compiled before is used again (CONVTUNE_DATA_DIR,
TORCHINDUCTOR_CACHE_DIR); `--rounds 0` only makes ready. With --deadline models and their ways have equal shares of
what is left; ways that are not ready in that are told and left out.
Needs PyTorch, torchvision, onnx and onnxruntime, and ultralytics for yolo11n; nothing is downloaded.
"""

import argparse
import datetime
import io
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import time

import torch

WAYS = ("eager", "eager nhwc", "onnxruntime", "optimize", "backend", "compile nhwc", "compile", "optimize nhwc")
MODELS = "resnet50,mobilenet_v3_large,efficientnet_b0,convnext_tiny,yolo11n"


class First(torch.nn.Module):
    """The first of a model's outputs: a detector's boxes of all scales."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x)[0]


def model_and_size(name):
    """The model in eval mode, its norms with statistics of a batch, and the height of its images."""
    torch.manual_seed(0)
    if name.startswith("yolo"):
        from ultralytics.nn.tasks import DetectionModel

        return First(DetectionModel(f"{name}.yaml", verbose=False).eval().fuse(verbose=False)).eval(), 640
    import torchvision

    model = torchvision.models.get_model(name, weights=None)
    for norm in model.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.momentum = None  # the mean over what it sees
    with torch.no_grad():
        model.train()(torch.randn(4, 3, 224, 224))
    return model.eval(), 224


def session_of(model, x, threads):
    """A run of ONNX Runtime on the exported model."""
    import onnxruntime

    file, options = io.BytesIO(), onnxruntime.SessionOptions()
    torch.onnx.export(model, (x,), file, dynamo=False, opset_version=17)
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    feed = {session.get_inputs()[0].name: x.numpy()}
    return (lambda: session.run(None, feed)[0]), onnxruntime.__version__


def way_of(args, model, x):
    """(the model as that way runs it, what is said of it)."""
    if args.way.startswith("compile"):
        return torch.compile(model), {}
    if args.way == "onnxruntime":
        run, version = session_of(model, x, args.threads)
        return (lambda _: run()), {"version": version}
    if args.way.startswith("eager"):
        return model, {}
    import convtune

    convtune.set_cpu_threads(args.threads)
    if args.way.startswith("optimize"):
        report = convtune.optimize(model, x, budget=args.budget, progress=False).convtune_report
        return model, {"kept": report.kept, "table": str(report)}
    import convtune.torch.backend

    run = torch.compile(model, backend="convtune", options={"convtune.budget": args.budget})
    run(x)
    return run, {"table": str(convtune.torch.backend.last_report())}


def work(args):
    """A process of one way: it says when it is ready, and answers each line with the times of a turn."""
    torch.set_num_threads(args.threads)
    model, size = model_and_size(args.models)
    with torch.inference_mode() if args.way.split()[0] in ("eager", "optimize") else torch.no_grad():
        x = torch.randn(args.batch, 3, size, size)
        expected = model(x).clone()
        if args.way.endswith("nhwc"):
            model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
        begin = time.monotonic()
        run, facts = way_of(args, model, x)
        found = torch.as_tensor(run(x))
        facts |= {"seconds": time.monotonic() - begin}
        facts |= {"error": float((found - expected).norm() / expected.norm())}
        print(json.dumps(facts), file=args.answers, flush=True)
        for line in sys.stdin:
            for _ in range(3):
                run(x)
            samples, end = [], time.perf_counter() + float(line)
            while len(samples) < 5 or time.perf_counter() < end:
                start = time.perf_counter_ns()
                run(x)
                samples.append((time.perf_counter_ns() - start) / 1000)
            print(json.dumps(samples), file=args.answers, flush=True)


class Worker:
    def __init__(self, way, name, args, seconds):
        command = [sys.executable, __file__, "--way", way, "--models", name]
        for option in ("batch", "threads", "budget"):
            command += [f"--{option}", str(getattr(args, option))]
        self.way, self.samples = way, []
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
        self.process = subprocess.Popen(command, text=True, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""}, **pipes)
        self.row = self.answer(seconds) or {"failed": True}

    def answer(self, seconds=None):
        """None where the process has ended, or is ended since it takes longer; what it said is on the error stream."""
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            os.killpg(self.process.pid, signal.SIGKILL)  # and the compilers that it has started
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def turn(self, seconds):
        print(seconds, file=self.process.stdin, flush=True)
        self.samples += self.answer()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def measure(name, args, seconds):
    workers, ways = [], args.ways.split(",")
    end = None if seconds is None else time.monotonic() + seconds - args.rounds * len(ways) * (args.seconds + 0.5)
    for i, way in enumerate(ways):
        share = None if end is None else max(end - time.monotonic(), 0) / (len(ways) - i)
        workers.append(Worker(way, name, args, share))
        print(name, way, {key: value for key, value in workers[-1].row.items() if key != "table"}, flush=True)
    alive = [one for one in workers if "failed" not in one.row]
    for turn in range(args.rounds):
        for one in alive if turn % 2 == 0 else alive[::-1]:
            one.turn(args.seconds)
    row = {"model": name, "batch": args.batch, "threads": args.threads}
    if args.rounds:
        us = {one.way: statistics.median(one.samples) for one in alive}
        for way, median in us.items():
            print(f"{name:20} {way:14} {median:9.0f} us", flush=True)
        row |= {f"{way.replace(' ', '_')}_us": round(median, 1) for way, median in us.items()}
        pytorch = min((median for way, median in us.items() if way.startswith(("eager", "compile"))), default=0)
        eager = min((median for way, median in us.items() if way.startswith("eager")), default=0)
        ours = {way: min((us[one] for one in (way, f"{way} nhwc") if one in us), default=0) for way in ("optimize", "backend")}
        row |= {f"{way}_gain": round(pytorch / ours[way], 3) for way in ours if ours[way] and pytorch}
        # optimize leaves a model eager, and all else in it to PyTorch.
        if eager and ours["optimize"]:
            row["optimize_gain_over_eager"] = round(eager / ours["optimize"], 3)
        row |= {f"{one.way.replace(' ', '_')}_kept": one.row["kept"] for one in alive if "kept" in one.row}
        row["largest_error"] = max((one.row["error"] for one in alive), default=None)
    for one in workers:
        one.end()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=MODELS, help="comma-separated")
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--budget", type=float, default=0, help="seconds of search a model, for each of ours")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each way")
    parser.add_argument("--seconds", type=float, default=0.5, help="of a turn")
    parser.add_argument("--deadline", type=float, help="seconds for all models; without, as long as it takes")
    parser.add_argument("--json", help="a file; models that it has already stay")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)  # be a worker
    args = parser.parse_args()
    if args.way:
        args.answers, sys.stdout = sys.stdout, sys.stderr
        return work(args)
    rows, names, end = [], args.models.split(","), time.monotonic() + (args.deadline or 0)
    if args.json and os.path.exists(args.json):
        with open(args.json, encoding="utf-8") as file:
            rows = json.load(file)["rows"]
    for i, name in enumerate(names):
        row = measure(name, args, (end - time.monotonic()) / (len(names) - i) if args.deadline else None)
        rows = [one for one in rows if one["model"] != name] + [row]
        if args.json and args.rounds:
            environment = {"date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}", "torch": torch.__version__}
            environment |= {"budget_seconds": args.budget, "threads": args.threads}
            with open(args.json, "w", encoding="utf-8") as file:
                lines = ",\n  ".join(map(json.dumps, rows))
                file.write(f'{{\n "environment": {json.dumps(environment)},\n "rows": [\n  {lines}\n ]\n}}\n')
    return None


if __name__ == "__main__":
    sys.exit(main())
