#!/usr/bin/env python3
"""Whole PyTorch models on a GPU, for inference: eager, torch.compile (also with CUDA graphs, and frozen),
torch.compile(backend="convtune") with CUDA graphs, convtune.graphed, and frozen ones recorded as one CUDA graph by hand.

    python bench/torch_models.py --json out/                      # all models, one file a model
    python bench/torch_models.py --models resnet50 --budget 60    # 60 seconds of tuning before it is measured
    python bench/torch_models.py --models vgg16:32 --type float32 # batch 32; TF32 products, NCHW

Each way is a process of its own, as its user's would be; the processes wait for each other and take turns, so that all
ways of a model are in one run. --at-once of them compile at the same time, in the order of --models and --ways; what runs
first, and is measured to choose by (cudnn.benchmark, convtune's contests), has the GPU alone. Turns are on the same four processors,
and each says what a loop of Python's took there. Random weights with the statistics of a batch, channels last in half precision,
cudnn.benchmark on. An error is the root mean square of the difference from the model in exact float32, over that
model's. Needs PyTorch, the wheels that torch_zoo.py names, the convtune package and a GPU; nothing is downloaded.
"""

import argparse
import datetime
import json
import math
import os
import statistics
import sys
import time

from torch_model_numbers import errors, kernels_of, kinds_of, launch_us, peak_mib, queued_us, timed, wait
from torch_zoo import MODELS, model_of
from turns import AT_ONCE, Turn, Worker, alone, loop_ms, make_ready

START = time.monotonic()
WAYS = ("eager", "graphs", "convtune", "recorded", "graphed", "frozen", "compile")
OURS = ("convtune", "graphed", "optimize")
CONTIGUOUS = "_nchw"  # behind the name of a way: its tensors are not channels last
LAUNCHED = "_launched"  # behind convtune: without CUDA graphs, as backend="convtune" is by default
GRAPHS = {"triton.cudagraphs": True}


def is_ours(way):
    return way.removesuffix(CONTIGUOUS).removesuffix(LAUNCHED) in OURS


def built(name, args):
    """(the model in exact float32, the model and its inputs as they are to be measured)."""
    import copy

    import torch

    formats = {} if args.way.endswith(CONTIGUOUS) else {4: torch.channels_last, 5: torch.channels_last_3d}

    def laid(one):
        return one.contiguous(memory_format=formats.get(one.dim(), torch.contiguous_format))

    torch.manual_seed(0)
    exact, inputs = model_of(name, args.batch, args.size, args.device)
    exact.to(args.device).eval()
    norms = [module for module in exact.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None  # the mean over what it sees
        norm.train()
    if norms:
        exact(*inputs)
    exact.eval()
    if args.type == "float32":
        return exact, exact, inputs
    dtype = getattr(torch, args.type)
    model = copy.deepcopy(exact).to(dtype)
    for one in model.parameters():
        one.data = laid(one.data)

    def as_measured(one):
        return laid(one.to(dtype)) if one.is_floating_point() else one

    if hasattr(model, "longer"):
        model.longer = tuple(map(as_measured, model.longer))
    return exact, model, tuple(map(as_measured, inputs))


# torch.compile's options; of "graphs" they are those of mode="reduce-overhead". "compile_whole": with what our backend gives
# Dynamo (convtune.torch.dynamo), sizes that are numbers, and no limit of recompilations that is ever reached.
OPTIONS = {"compile": {}, "compile_whole": {}, "graphs": GRAPHS, "frozen": GRAPHS, "recorded": {}}


def recorded(run, inputs):
    """One CUDA graph of a call, whose inputs are copied in."""
    import torch

    static = [one.clone() for one in inputs]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            run(*static)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run(*static)

    def call(*inputs):
        for to, one in zip(static, inputs):
            to.copy_(one, non_blocking=True)
        graph.replay()
        return y

    return call


def way_of(way, model, inputs, args, turn):
    """The model as that way runs it; its first call compiles, and then takes the turn."""
    import torch

    if way in ("frozen", "recorded"):  # not as an option: Dynamo asks for it, too, and else hands parameters over as inputs
        import torch._inductor.config

        torch._inductor.config.freezing = True
    def compiled(**how):
        if not hasattr(model, "part"):
            return torch.compile(model, **how)
        owner, name = model.part
        setattr(owner, name, torch.compile(getattr(owner, name), **how))
        return model

    if way == "compile_whole":
        from convtune.torch.dynamo import teach

        teach()
        torch._dynamo.config.recompile_limit = 64
    if way in OPTIONS:

        def backend(graph, inputs):
            from torch._inductor.compile_fx import compile_fx

            code = compile_fx(graph, inputs, config_patches=OPTIONS[way])
            if not hasattr(model, "part"):
                turn.take()
            return code

        run = compiled(backend=backend, **({"dynamic": False} if way == "compile_whole" else {}))
        return recorded(run, inputs) if way == "recorded" else run
    turn.take()
    if way == "eager":
        return model
    import convtune
    import convtune.torch.backend

    if way == "optimize":
        return convtune.optimize(model, inputs, budget=args.budget, progress=False)
    if way == "graphed":
        return convtune.graphed(model, inputs, args.budget, whole=args.whole)
    options = {"convtune.budget": args.budget, "convtune.whole": args.whole, **GRAPHS}
    if hasattr(model, "part") or way.endswith(LAUNCHED):  # the part's outputs are kept for the next frame
        del options["triton.cudagraphs"]
    return compiled(backend="convtune", options=options)


def work(args):
    """One way of one model in this process: answers lines of its input by lines of JSON."""
    turn = Turn()
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = True
    with torch.no_grad():
        seconds = [("imported", time.monotonic() - START)]
        exact, model, inputs = built(args.models, args)
        seconds.append(("built", time.monotonic() - START))
        begin = time.monotonic()
        torch.backends.cudnn.benchmark = True
        compiled = way_of(args.way.removesuffix(CONTIGUOUS), model, inputs, args, turn)
        if hasattr(model, "part") and not turn.taken:  # several graphs, all of which are compiled beside the others'
            torch.backends.cudnn.benchmark = False
            compiled(*inputs)
            turn.take()
            torch.backends.cudnn.benchmark = True

        def run(*given):
            return compiled(*(given or inputs))

        y = run().clone()
        wait()
        seconds += [("first call", time.monotonic() - begin), ("of it waiting", turn.waited)]
        timed(run, 5)
        queued = queued_us(run, args.calls)
        facts = {"peak_mib": peak_mib(run)}
        if hasattr(model, "longer"):
            compiled(*model.longer)
            facts |= {"longer_us": statistics.median(timed(lambda: compiled(*model.longer), 2)),
                      "longer_peak_mib": peak_mib(lambda: compiled(*model.longer))}
        seconds.append(("more calls", time.monotonic() - begin))
        error, same = errors(exact, inputs, y)
        seconds = ", ".join(f"{name} {after:.1f} s" for name, after in seconds)
        facts |= {"seconds": seconds, "error": error, "same_top1": same, "queued_us": queued}
        if is_ours(args.way):
            from convtune.torch.backend import last_report

            report = getattr(compiled, "convtune_report", None) or last_report()
            facts["table"] = str(report)
            print(f"{args.models}\n{report}", flush=True)
            layers = report.layers if report else []
            facts["layers"] = [{**vars(one), "problem": str(one.problem or "")} for one in layers]
        del exact, y
        torch.cuda.empty_cache()
        turn.answer(facts)
        for line in turn.asked(args.device == "cuda"):
            if line == "time":
                loop = min(loop_ms() for _ in range(3))
                timed(run, 3)
                turn.answer({"us": timed(run, args.calls), "launch_us": launch_us(run, args.calls), "loop_ms": loop})
            elif line == "kernels":
                turn.answer(kernels_of(run, min(5, args.calls)))


def worker(way, name, batch, args):
    own = {"way": way, "models": name, "batch": batch}
    same = {one: getattr(args, one) for one in ("size", "type", "budget", "calls", "device")}
    options = [word for option, value in {**own, **same}.items() for word in (f"--{option}", str(value))]
    return Worker(name, way, [__file__, *([] if args.whole else ["--no-whole"]), *options])


def look(worker, most):
    row = worker.row
    with alone():
        row["kernels"] = worker.ask("kernels", time.monotonic() + 60) or {}
    print(f"{worker.name} {worker.way} after {time.monotonic() - START:.0f} s: {row['seconds']}; error "
          f"{row['error']:.2e}; us and times a call:")  # fmt: skip
    if is_ours(worker.way) or worker.way == "frozen":
        for kernel, (times, us, idle) in list(row["kernels"].items())[:most]:
            print(f"{us:8.1f} {times:5.1f} {idle:6.1f}  {kernel[:150]}")
    us, idle = (sum(one[at] for one in row["kernels"].values()) for at in (1, 2))
    print(f"{us:8.1f} altogether, {idle:.1f} between them, {row['queued_us']:.0f} a call in a row", flush=True)


def measure(name, batch, workers, args):
    alive, loops, launches = [one for one in workers if one.row is not None], {}, {}
    with alone():
        for turn in range(args.rounds):
            for one in alive if turn % 2 == 0 else alive[::-1]:
                if (turn == 0 or time.monotonic() - START < args.deadline) and (found := one.ask("time", time.monotonic() + 60)):
                    one.samples += found["us"]
                    loops.setdefault(one.way, []).append(found["loop_ms"])
                    launches.setdefault(one.way, []).append(found["launch_us"])
    alive = [one for one in alive if one.samples]
    print(f"== {name}, batch {batch}, {args.type}")
    for one in alive:
        row, us = one.row, statistics.median(one.samples)
        mad = statistics.median(abs(sample - us) for sample in one.samples)
        row["us"] = {"median": us, "mad": mad, "n": len(one.samples)}
        row["loop_ms"] = {"median": statistics.median(loops[one.way]), "slowest": max(loops[one.way])}
        row["launch_us"] = statistics.median(launches[one.way])
        row["busy_us"], row["idle_us"] = (sum(of[at] for of in row["kernels"].values()) for at in (1, 2))
        kernels = sum(of[0] for of in row["kernels"].values())
        print(
            f"{one.way:9} {us:8.0f} ± {mad:3.0f} us, busy {row['busy_us']:6.0f}, idle {row['idle_us']:3.0f} between "
            f"{kernels:.0f} kernels, {row['launch_us']:.0f} until the call returns; error {row['error']:.2e}, same first {100 * row['same_top1']:.1f} %, {row['peak_mib']} MiB; "
            f"the processor's loop {row['loop_ms']['median']:.2f} ms, at most {row['loop_ms']['slowest']:.2f}",
            flush=True,
        )
        if kernels:
            print("         ", ", ".join(f"{kind} {ms:.2f} ms" for kind, ms in kinds_of(row["kernels"]).items()))
        if "longer_us" in row:
            print(f"          longer: {row['longer_us']:.0f} us, {row['longer_peak_mib']} MiB", flush=True)
    return {"model": name, "batch": batch, "type": args.type, "size": args.size,
            "ways": {one.way: one.row for one in workers}}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--models", default=",".join(MODELS), help="comma-separated, each with :BATCH where not its own"
    )
    parser.add_argument("--ways", default=",".join(WAYS), help="comma-separated; optimize, too; with _nchw behind it: not channels last; convtune_launched: "
                        "without CUDA graphs")
    parser.add_argument("--type", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--budget", type=float, default=0, help="seconds of search a model")
    parser.add_argument("--rounds", type=int, default=4, help="turns of each way")
    parser.add_argument("--calls", type=int, default=20, help="timed in a turn")
    parser.add_argument(
        "--no-whole", dest="whole", action="store_false", help="takes convtune's graph unproven: faster"
    )
    parser.add_argument("--together", action="store_true", help="all models are compiled before one is timed")
    parser.add_argument("--at-once", type=int, default=AT_ONCE, metavar="N",
                        help="processes that compile at the same time")  # fmt: skip
    parser.add_argument("--deadline", type=float, default=math.inf,
                        help="seconds: a way that is not ready after 85 % of them is left out")  # fmt: skip
    parser.add_argument("--top", type=int, default=25, help="kernels that are printed")
    parser.add_argument("--json", help="a folder, for one file a model")
    parser.add_argument("--device", default="cuda", help="cpu: to see that it works")
    parser.add_argument("--way", help=argparse.SUPPRESS)  # be a worker
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        work(args)
        return 0
    import torch

    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("torch_models: PyTorch sees no GPU here")
    head = {
        "format": "convtune-torch-models", "version": 2,
        "device": torch.cuda.get_device_name() if args.device == "cuda" else args.device,
        "versions": {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()},
        "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%dT%H:%M:%SZ}",
    }  # fmt: skip
    asked = [one.partition(":") for one in args.models.split(",")]
    models = {name: int(batch or MODELS[name]) for name, _, batch in asked}
    ways, missing = args.ways.split(","), False
    for some in [list(models)] if args.together else [[name] for name in models]:
        workers = {name: [worker(way, name, models[name], args) for way in ways] for name in some}
        every = [one for of in workers.values() for one in of]
        make_ready(every, args.at_once, START + 0.85 * args.deadline, lambda one: look(one, args.top))
        for name in some:
            row = measure(name, models[name], workers[name], args)
            if args.json:
                os.makedirs(args.json, exist_ok=True)
                with open(os.path.join(args.json, f"{name}-{args.type}.json"), "w", encoding="utf-8") as file:
                    json.dump({**head, **row}, file, indent=1)
            for one in workers[name]:
                one.end()
                missing |= one.row is None
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
