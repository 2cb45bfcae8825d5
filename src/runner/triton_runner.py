"""Runs one config of a Triton file's autotune list in a process of its own, and times it when asked.

Started by `convtune refine --measure`:  python3 -c THIS FILE SPEC.  SPEC is JSON: the kernel's name, which config
of its list, num_warps and num_stages in place of the list's, and what to feed it; no config asks which one Triton's
autotuner picks from the list. Answers are lines of JSON on standard output: one about the first run, then one for
every line "sample" on standard input.
"""

import copy
import importlib.machinery
import importlib.util
import json
import os
import sys

PLACES, SUMS = 4096, 1024  # outputs that are compared one by one; the others by sums of so many parts
SAMPLE_US, MOST_RUNS = 20000.0, 9  # a sample is the median of as many runs as fill this time, an odd number

answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)  # what the file prints is no answer


def answer(**what):
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def refuse(kind, message):
    answer(refused=kind, message=message)
    sys.exit(0)


def load(path):
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    loader = importlib.machinery.SourceFileLoader("convtune_refined_file", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.modules[loader.name] = module
    loader.exec_module(module)
    return module


def autotuner(module, spec):
    tuner = getattr(module, spec["kernel"], None)
    while tuner is not None and not hasattr(tuner, "configs"):  # @triton.heuristics may lie outside
        tuner = getattr(tuner, "fn", None)
    if tuner is None:
        refuse("file", f"{spec['kernel']} has no list of configs once the file is loaded")
    if len(tuner.configs) != spec["listed"]:
        refuse("file", f"{spec['kernel']} has {len(tuner.configs)} configs once the file is loaded, and "
                       f"{spec['listed']} in its text")
    return tuner


def leave_only(tuner, spec):
    """One config: nothing is tried out, and no other kernel is compiled."""
    config = copy.copy(tuner.configs[spec["config"]])
    config.num_warps, config.num_stages = spec["num_warps"], spec["num_stages"]
    tuner.configs = [config]


def inputs_of(torch, module, spec, device):
    """The file's own inputs, or the problem's."""
    def put(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if hasattr(module, "get_inputs"):
        return [put(value) for value in module.get_inputs()]
    if not spec["input"]:
        refuse("file", "what to feed it is not known: give --problem, or the file a get_inputs()")
    x = torch.rand(spec["input"], dtype=torch.float32) * 2 - 1  # on the CPU: the same in every process
    return [x.to(device, getattr(torch, spec["dtype"]))]


def summary(torch, y):
    """What is compared between two processes: every bit in one number, every output in one of the sums, some of
    the outputs themselves."""
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[y.element_size()]
    flat = y.detach().contiguous().flatten()
    count = flat.numel()
    found = {"shape": list(y.shape), "dtype": str(y.dtype).removeprefix("torch."),
             "finite": bool(torch.isfinite(flat).all()), "bits": int(flat.view(integer).sum(dtype=torch.int64))}
    if found["finite"]:
        part = max(count // SUMS, 1)
        whole = count // part * part
        sums = flat[:whole].view(-1, part).sum(1, dtype=torch.float64).cpu().tolist()
        places = (torch.arange(PLACES, device=y.device) * 2654435761) % count
        found |= {"rms": float(torch.linalg.vector_norm(flat, dtype=torch.float64)) / count**0.5,
                  "part": part, "sums": sums + [float(flat[whole:].sum(dtype=torch.float64))],
                  "values": flat[places].double().cpu().tolist()}
    return found


def main():
    path, spec = sys.argv[1], json.loads(sys.argv[2])
    try:
        import torch
        import triton
    except ImportError as error:
        refuse("modules", f"{sys.executable} cannot import PyTorch and Triton: {error}")
    if not torch.cuda.is_available():
        refuse("device", "PyTorch sees no GPU here")
    device = torch.device("cuda", 0)
    module = load(path)
    tuner = autotuner(module, spec)
    if spec["config"] is not None:
        leave_only(tuner, spec)
    if not callable(getattr(module, "ModelNew", None)):
        refuse("file", "the file has no class ModelNew to run")
    torch.manual_seed(1)  # the same weights in every process
    model = module.ModelNew(*getattr(module, "get_init_inputs", list)()).to(device).eval()
    inputs = inputs_of(torch, module, spec, device)
    flush = torch.empty(max(8 * torch.cuda.get_device_properties(device).L2_cache_size, 256 << 20) // 4,
                        dtype=torch.int32, device=device)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_us():
        flush.add_(1)  # nothing of the last run is left in L2; and the host has queued all before this ends
        start.record()
        model(*inputs)
        stop.record()
        stop.synchronize()
        return 1000 * start.elapsed_time(stop)

    with torch.no_grad():
        y = model(*inputs)
        if spec["config"] is None:
            names = [str(config) for config in tuner.configs]
            answer(picked=names.index(str(tuner.best_config)))
            return
        if not isinstance(y, torch.Tensor) or not y.is_floating_point() or y.numel() == 0:
            refuse("file", "ModelNew's answer is not one tensor of real numbers")
        shape, dtype = y.shape, y.dtype
        del y
        unwritten = torch.full(shape, float("nan"), dtype=dtype, device=device)
        del unwritten  # the next answer lies here: what the kernel does not write is no number
        found = summary(torch, model(*inputs))
        once = sorted(time_us() for _ in range(3))[1]
        runs = min(MOST_RUNS, int(SAMPLE_US / max(once, 1.0))) // 2 * 2 + 1
        answer(time_us=once, runs=runs, device=torch.cuda.get_device_name(device),
               capability="{}.{}".format(*torch.cuda.get_device_capability(device)), torch=torch.__version__,
               triton=triton.__version__, output=found)
        for line in sys.stdin:
            if line.strip() == "sample":
                samples = [time_us() for _ in range(runs)]
                answer(time_us=sorted(samples)[runs // 2], samples=samples)


main()
