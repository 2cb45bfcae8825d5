#!/usr/bin/env python3
"""Whole steps of training: torch.compile(backend="convtune") and convtune.optimize(train=True) beside PyTorch eager and compiled.

    python bench/torch_training.py --models convnext_tiny resnet50 --batch 256 --json training.json
    python bench/torch_training.py --models tiny --batch 2 --size 32 --device cpu --type float32
    python bench/torch_training.py --models convnext_tiny:256 unet3d:2 --deadline 540 --json training.json
    python bench/torch_training.py --models efficientnet_v2_s:64:compiled_graphs+backend_graphs resnet50:256

A step is zero_grad, forward under bf16 autocast, cross entropy, backward, SGD with momentum, on synthetic images (or volumes:
unet3d, of --depth) with random labels. Ways: eager and compiled (PyTorch's default mode), channels first and last; backend:
torch.compile(backend="convtune"); compiled_graphs, compiled_first_graphs and backend_graphs, the same in mode="reduce-overhead", and
rewritten, rewritten_graphs, convtune's graph whether or not it is proven as a whole, if they are asked for; ours, as optimize left the eager model that lies channels last; ours compiled: that model
through torch.compile. Each is a process of its own (turns.py); they compile at the same time, in the order of --models and
--ways, measure to choose by alone on the GPU, and take turns in steps. The memory of a way is PyTorch's allocator at the peak of
a step, with what CUDA graphs keep. What the --deadline keeps from being ready is left out, and said. Gradients of the first step and losses of the first
four are held against eager's in float32 (step_answers.py); dropouts and stochastic depth are off for that. At the end the processor's
part of a step is measured, in turns, too (step_host.py), and each way's kernels and functions are profiled; beside a GPU all of these
turns, and those of steps, are on the same four processors. yolo11m (the mean square of its outputs is the loss) needs ultralytics,
sd_unet diffusers; the others torchvision; nothing is downloaded.
"""

import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import tempfile
import time

from step_answers import compared, gradients_of, said, without_chance
from step_host import functions_of, times_of, together
from torch_model_numbers import kernels_of, peak_mib
from turns import AT_ONCE, Turn, Worker, alone, make_ready

START = time.monotonic()
WAYS = ("eager", "eager_first", "backend", "compiled", "compiled_first", "ours", "ours_compiled")  # who is short is soon ready
GRAPHS = "_graphs"  # mode="reduce-overhead": not among them by default
ASKED = ("rewritten", *(f"{way}{GRAPHS}" for way in ("backend", "compiled", "compiled_first", "rewritten")))  # nor are these
THEIRS = ("compiled", "compiled_first", "eager", "eager_first", "compiled_graphs", "compiled_first_graphs")
EXACT = "exact"  # no way to be timed


def wait(device):
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def module_and_data(name, args):
    """(the model in training mode, its inputs, the loss of its outputs), channels first."""
    import torch
    from torch.nn.functional import cross_entropy, mse_loss

    torch.manual_seed(0)
    with torch.device(args.device):
        if name in ("yolo11m", "sd_unet"):
            from torch_zoo import model_of, yolo

            if name == "sd_unet":
                model, inputs = model_of(name, args.batch, args.size, args.device)
                noise = torch.randn_like(inputs[0])
                return model.train(), inputs, lambda y: mse_loss(y.float(), noise)
            return yolo(name, whole=True).train(), (torch.randn(args.batch, 3, 640, 640),), mean_square
        if name == "unet3d":
            from torch_generators import unet3d

            size = (args.depth,) * 3
            model = unet3d() if args.depth >= 64 else unet3d((8, 16, 16))
            inputs, labels = (torch.randn(args.batch, 1, *size),), torch.randint(0, 2, (args.batch, *size))
        else:
            inputs, labels = (torch.randn(args.batch, 3, args.size, args.size),), torch.randint(0, 10, (args.batch,))
            if name == "tiny":  # to see that it works
                ends = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(16, 10)
                model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3), torch.nn.ReLU(), *ends)
            else:
                import torchvision

                model = torchvision.models.get_model(name, weights=None).train()
        return model, inputs, lambda y: cross_entropy(y.float(), labels)


def mean_square(outputs):
    from torch.utils._pytree import tree_leaves

    return sum(one.float().square().mean() for one in tree_leaves(outputs) if one.is_floating_point())


def compiled(model, turn, options):
    """By inductor; forward and backward are compiled before the GPU is taken."""
    import torch
    from torch._inductor.compile_fx import compile_fx

    def backend(graph, inputs):
        with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
            code = compile_fx(graph, inputs, config_patches=options or None)
        turn.take()
        return code

    return torch.compile(model, backend=backend)


def beside_each_other(theirs, ours, inputs):
    """{"inductor", "convtune": the processor's part, functions and kernels} of forward and backward of both graphs in one process,
    whichever is kept: what differs is the graphs', and no process's."""
    from convtune.torch.measure import proof

    def step(graph):
        return lambda passed: (proof._forward_and_backward(graph, inputs), passed("forward and backward"))

    steps, device = {"inductor": step(theirs), "convtune": step(ours)}, proof._device(inputs)
    turns = {name: [] for name in steps}
    with proof._unchanged_inputs(inputs):
        for turn in range(6):
            for name in list(steps)[:: 1 if turn % 2 == 0 else -1]:
                turns[name].append(times_of(steps[name], lambda: wait(device)))
        return {name: {**together(turns[name]), "functions": functions_of(run), "kernels": shortened(kernels_of(lambda run=run: run(len), 2))}
                for name, run in steps.items()}  # fmt: skip


def convtunes(model, turn, options, stage, found):
    """By convtune, which has the GPU to itself where it measures, and leaves it to others while inductor compiles. `stage` is told
    each phase of the first step; `found` is given a function that looks at both graphs of each contest of a whole."""
    import torch

    import convtune.torch.backend
    from convtune.torch.measure import proof
    from convtune.torch.measure.phases import Phases

    plain, whole_step = Phases.__call__, convtune.torch.backend.whole_step

    def contest_and_look(theirs, ours, inputs, *rest):
        outcome = whole_step(theirs, ours, inputs, *rest)
        if proof._device(inputs).type == "cuda" and not options.get("triton.cudagraphs"):
            found.append(lambda: beside_each_other(theirs, ours, inputs))
        return outcome

    convtune.torch.backend.whole_step = contest_and_look

    @contextlib.contextmanager
    def phase(self, name):
        held = turn.taken
        stage(name)
        (turn.take if "contest" in name or "search" in name else turn.leave)()
        try:
            with plain(self, name):
                yield
        finally:
            (turn.take if held else turn.leave)()

    def backend(graph, inputs):
        code = convtune.torch.backend.backend(graph, inputs, options=options)
        turn.take()
        return code

    Phases.__call__ = phase
    return torch.compile(model, backend=backend)


def shortened(kernels, most=120):
    """[name, times, microseconds] a kernel; of templates whose names begin alike so far, together."""
    found = {}
    for name, (times, us, _) in kernels.items():
        of = found.setdefault(name[:most], [0.0, 0.0])
        of[0], of[1] = of[0] + times, of[1] + us
    return [[name, round(times, 1), round(us, 1)] for name, (times, us) in found.items()]


def work(args):
    """One way of one model in this process: answers lines of its input by lines of JSON."""
    turn = Turn()
    import torch

    def stage(text):  # tells how far a way came that is not ready in time
        print(f"stage: {args.models[0]} {args.way} at {time.monotonic() - START:.0f} s: {text}", file=sys.stderr, flush=True)

    is_exact = args.way == EXACT
    torch.backends.cudnn.benchmark = not is_exact
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = not is_exact
    device, dtype = torch.device(args.device), torch.float32 if is_exact else getattr(torch, args.type)
    model, inputs, loss_of = module_and_data(args.models[0], args)
    stage("the model is there")
    without_chance(model)
    way, graphs = args.way.removesuffix(GRAPHS), {"triton.cudagraphs": True} if args.way.endswith(GRAPHS) else {}
    if not is_exact and not way.endswith("_first"):
        last = {4: torch.channels_last, 5: torch.channels_last_3d}
        model = model.to(memory_format=last[inputs[0].dim()])
        inputs = tuple(one.to(memory_format=last[one.dim()]) if one.dim() in last else one for one in inputs)

    def step(model, optimizer=None, passed=lambda part: None):
        model.zero_grad(set_to_none=True)
        passed("zero_grad")
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            outputs = model(*inputs)
            passed("forward")
            loss = loss_of(outputs)
        passed("loss")
        loss.backward()
        passed("backward")
        if optimizer is not None:
            optimizer.step()
            passed("optimizer")
        return loss.detach()

    begin, report, kept, run, contests = time.monotonic(), None, None, model, []
    if way in ("ours", "ours_compiled"):
        import convtune

        turn.take()
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):  # the example's types, as a step has them
            convtune.optimize(model, inputs, budget=args.budget, progress=False, train=step)
        report, kept = model.convtune_report, model.convtune_report.kept
        if way == "ours_compiled":
            turn.leave()
    if way in ("backend", "rewritten"):
        unproven = {"convtune.whole": False} if way == "rewritten" else {}
        run = convtunes(model, turn, {"convtune.budget": args.budget, **unproven, **graphs}, stage, contests)
    elif way.removesuffix("_first").endswith("compiled"):
        run = compiled(model, turn, graphs)
    else:
        turn.take()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    stage("first step")
    losses = [step(run, optimizer)]
    wait(device)
    stage("second step")
    facts = {"seconds": time.monotonic() - begin - turn.waited, "mib": 0.0, "kept": kept, "won": {}}
    gradients = gradients_of(model)
    losses += [step(run, optimizer) for _ in range(3)]
    torch.save({"gradients": gradients, "losses": [float(one) for one in losses]}, args.answers)
    if is_exact:
        del model, run, optimizer, inputs
        return turn.answer(facts)
    if device.type == "cuda":
        facts["mib"] = peak_mib(lambda: step(run, optimizer))
        torch.cuda.empty_cache()
    if way in ("backend", "rewritten"):
        report = sys.modules["convtune.torch.backend"].last_report()
    if report is not None:
        print(f"{args.models[0]} {args.way}\n{report}", flush=True)
        facts["table"], facts["said"] = str(report), {phase: round(took, 1) for phase, took in report.seconds.items()}
        for layer in report.layers:
            if layer.swapped:
                count, saved = facts["won"].get(layer.problem.direction, (0, 0.0))
                facts["won"][layer.problem.direction] = count + layer.calls, saved + layer.calls * (layer.pytorch_us - layer.convtune_us)
    turn.answer(facts)
    for line in turn.asked(device.type == "cuda"):
        if line == "kernels":
            turn.answer(shortened(kernels_of(lambda: step(run, optimizer), 3)))
            continue
        if line == "host":
            turn.answer(times_of(lambda passed: step(run, optimizer, passed), lambda: wait(device)))
            continue
        if line == "beside":
            turn.answer(contests[-1]() if contests else {})
            continue
        if line == "functions":
            turn.answer(functions_of(lambda passed: step(run, optimizer, passed)))
            continue
        samples, end = [], time.monotonic() + args.seconds
        step(run, optimizer)
        while time.monotonic() < end or len(samples) < 3:
            wait(device)
            since = time.perf_counter()
            step(run, optimizer)
            wait(device)
            samples.append(1e3 * (time.perf_counter() - since))
        if device.type == "cuda":
            torch.cuda.empty_cache()
        turn.answer(samples)


def asked(text, args, parser):
    """(name, batch, ways) of a model as --models has it."""
    name, batch, ways = (*text.split(":"), "", "")[:3]
    ways = ways.split("+") if ways else args.ways
    unknown = set(ways) - {*WAYS, *ASKED}
    if unknown:
        parser.error(f"{text}: no way {', '.join(unknown)}; they are {', '.join((*WAYS, *ASKED))}")
    return name, int(batch or args.batch), ways


def worker(way, name, batch, ways, args, folder):
    same = {one: getattr(args, one) for one in ("size", "depth", "type", "budget", "device")}
    options = {"way": way, "models": name, "batch": batch, "seconds": args.seconds / len(ways) / args.rounds, **same,
               "answers": os.path.join(folder, f"{name}-{batch}-{ways[0]}-{way}")}  # a model may be asked for twice
    found = Worker(name, way, [__file__, *(word for option, value in options.items() for word in (f"--{option}", str(value)))])
    found.answers = options["answers"]
    return found


def look(one):
    more = f", {'kept' if one.row['kept'] else 'put back'}" if one.row["kept"] is not None else ""
    print(f"[{time.monotonic() - START:.0f} s] {one.name} {one.way}: first step {one.row['seconds']:.1f} s{more} {one.row.get('said', '')}", flush=True)


def answers_of(workers):
    """The comparison by step_answers.py of the ways that are ready, by way."""
    import torch

    found = {one.way: torch.load(one.answers) for one in workers if one.row is not None}
    for one in workers:
        if os.path.exists(one.answers):
            os.unlink(one.answers)
    return compared(found, THEIRS) if EXACT in found else {}


def measured(name, batch, workers, args):
    """The row of a model: steps in turns."""
    answers = answers_of(workers)
    workers = [one for one in workers if one.way != EXACT]
    alive = [one for one in workers if one.row is not None]
    for turn in range(args.rounds):
        for one in alive if turn % 2 == 0 else alive[::-1]:
            if turn == 0 or time.monotonic() - START < args.deadline:
                one.samples += one.ask("time", time.monotonic() + 60) or []
    turns = {one.way: [] for one in alive}
    for turn in range(args.rounds):
        for one in alive if turn % 2 == 0 else alive[::-1]:
            if time.monotonic() - START < args.deadline and (found := one.ask("host", time.monotonic() + 60)):
                turns[one.way].append(found)
    for one in alive:  # profiles, which may leave launches slower
        if time.monotonic() - START < args.deadline:
            one.row["kernels"] = one.ask("kernels", time.monotonic() + 60) or []
            functions = one.ask("functions", time.monotonic() + 60) or []
            one.row["beside"] = one.ask("beside", time.monotonic() + 60) or {}
            one.row["host"] = {**together(turns[one.way]), "functions": functions} if turns[one.way] else None
    ways = {one.way: {"ms": statistics.median(one.samples), **one.row, "answers": answers.get(one.way)} for one in alive if one.samples}
    for way, one in ways.items():
        print(f"{name} {way}: {one['ms']:.2f} ms, {said(one['answers']) if one['answers'] else 'answers not compared'}", flush=True)
    return {"model": name, "batch": batch, "type": args.type, "ways": ways, "missing": [one.way for one in workers if one.way not in ways]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["convnext_tiny", "resnet50"],
                        help="torchvision's names, unet3d, tiny, yolo11m, sd_unet, each with :BATCH where not --batch, and :WAY+WAY where not --ways")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=[*WAYS, *ASKED])
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--depth", type=int, default=128, help="of a volume, each way")
    parser.add_argument("--type", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of search")
    parser.add_argument("--seconds", type=float, default=15.0, help="of the comparison of a model")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each way")
    parser.add_argument("--deadline", type=float, default=math.inf, help="seconds: what is not ready when steps must be timed is left out")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N", help="processes that compile at the same time")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--json", help="the file that the rows go to")
    parser.add_argument("--way", help=argparse.SUPPRESS)  # be a worker
    parser.add_argument("--answers", help=argparse.SUPPRESS)  # its file
    args = parser.parse_args()
    if args.way:
        work(args)
        return 0
    import torch

    name = torch.cuda.get_device_name() if args.device != "cpu" else "cpu"
    result = {"format": "convtune-torch-training", "version": 5, "device": name, "torch": torch.__version__, "rows": []}
    models = [asked(one, args, parser) for one in args.models]
    until = max(0.6 * args.deadline, args.deadline - max(40, 1.5 * args.seconds * len(models)))
    with tempfile.TemporaryDirectory() as folder:
        workers = [[worker(way, name, batch, ways, args, folder) for way in (*ways, EXACT)] for name, batch, ways in models]
        make_ready([one for of in workers for one in of], args.at_once, START + until, look)
        for (model, batch, _), of in zip(models, workers):
            with alone():
                result["rows"].append(measured(model, batch, of, args))
            for one in of:
                one.end()
            if args.json:
                with open(args.json, "w") as file:
                    json.dump(result, file, indent=1)
    if any(one["answers"] and not one["answers"]["agree"] for row in result["rows"] for one in row["ways"].values()):
        print("answers of a way differ", flush=True)
        return 1
    return 1 if any(row["missing"] for row in result["rows"]) else 0


if __name__ == "__main__":
    sys.exit(main())
