"""Runs a Triton file whose list holds one config, in a process of its own, and times it when asked.

Started by `convtune refine --measure`. The first line of standard input is JSON: the file's text and place, what to
call, and what to feed it; `pick` asks which config Triton's autotuner picks from the list that there is. Answers are
lines of JSON on standard output: one about the first run, then one for every line "sample" on standard input.
"""

import ast
import json
import os
import sys
import tempfile

from python_modules import load

PLACES, SUMS = 4096, 1024  # outputs that are compared one by one; the others by sums of so many parts
SAMPLE_US, MOST_RUNS = 20000.0, 9  # a sample is the median of as many runs as fill this time, an odd number
MOST_OUTPUTS = 16

answers = os.fdopen(os.dup(1), "w")


def answer(**what):
    answers.write(json.dumps(what) + "\n")
    answers.flush()


def refuse(kind, message):
    answer(refused=kind, message=message)
    sys.exit(0)


def autotuner(module, spec):
    for name in spec["names"]:
        tuner = getattr(module, name, None)
        while tuner is not None and not hasattr(tuner, "configs"):  # @triton.heuristics may lie outside
            tuner = getattr(tuner, "fn", None)
        if tuner is not None:
            return tuner
    return refuse("file", f"{spec['names'][0]} has no list of configs once the file is loaded")


def inputs_of(torch, module, spec, device):
    """The file's own inputs, or the problem's."""
    def put(value):
        return value.to(device) if isinstance(value, torch.Tensor) else value

    if hasattr(module, "get_inputs"):
        return [put(value) for value in module.get_inputs()]
    if not spec["input"]:
        refuse("file", "what to feed it is not known: give --problem or --call, or the file a get_inputs()")
    x = torch.rand(spec["input"], dtype=torch.float32) * 2 - 1  # on the CPU: the same in every process
    return [x.to(device, getattr(torch, spec["dtype"]))]


def work_of(torch, module, spec, device, folder):
    """Returns the function to time, which takes no arguments, and the arguments that it may write to."""
    call = spec["call"]
    if call.endswith(".py"):
        with open(call, encoding="utf-8") as text:
            other = load(text.read(), None, tempfile.mkdtemp(dir=folder))
        if not callable(getattr(other, "prepare", None)):
            refuse("file", f"{call} has no function prepare(module), which returns what is to be timed")
        return other.prepare(module), []
    if call:
        node = ast.parse(call.strip(), mode="eval").body
        if not isinstance(node, ast.Call):
            refuse("file", f"--call '{call}' is no call, as in \"matmul(torch.rand(64, 64, device='cuda'), b)\"")
        names = {"torch": torch, "mod": module, "module": module, **vars(module)}

        def value(part):
            return eval(compile(ast.Expression(part), "<call>", "eval"), names)

        function, args = value(node.func), []
        for part in node.args:
            args += list(value(part.value)) if isinstance(part, ast.Starred) else [value(part)]
        words = {word.arg: value(word.value) for word in node.keywords}
        return (lambda: function(*args, **words)), [*args, *words.values()]
    if not callable(getattr(module, "ModelNew", None)):
        refuse("file", "the file has no class ModelNew to run, and there is no --call")
    model = module.ModelNew(*getattr(module, "get_init_inputs", list)()).to(device).eval()
    inputs = inputs_of(torch, module, spec, device)
    return (lambda: model(*inputs)), []


def tensors_of(torch, value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_of(torch, item)]
    return []


def summary(torch, y):
    """Returns the digest that is compared between two processes: every bit in one number, every output in one of the sums, some
    of the outputs themselves."""
    integer = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[y.element_size()]
    flat = y.detach().contiguous().flatten()
    count = flat.numel()
    real = flat if flat.is_floating_point() and flat.element_size() > 1 else flat.to(torch.float64)
    found = {"shape": list(y.shape), "dtype": str(y.dtype).removeprefix("torch."),
             "finite": bool(torch.isfinite(real).all()), "bits": int(flat.view(integer).sum(dtype=torch.int64))}
    if found["finite"]:
        part = max(count // SUMS, 1)
        whole = count // part * part
        sums = real[:whole].view(-1, part).sum(1, dtype=torch.float64).cpu().tolist()
        places = (torch.arange(PLACES, device=y.device) * 2654435761) % count
        found |= {"rms": float(torch.linalg.vector_norm(real, dtype=torch.float64)) / count**0.5,
                  "part": part, "sums": sums + [float(real[whole:].sum(dtype=torch.float64))],
                  "values": real[places].double().cpu().tolist()}
    return found


def main():
    os.dup2(2, 1)  # text that the file prints is no answer
    spec = json.loads(sys.stdin.readline())
    with tempfile.TemporaryDirectory(prefix="convtune_") as folder:
        run(spec, folder)


def run(spec, folder):
    try:
        import torch
        import triton
    except ImportError as error:
        refuse("modules", f"{sys.executable} cannot import PyTorch and Triton: {error}")
    if not torch.cuda.is_available():
        refuse("device", "PyTorch sees no GPU here")
    device = torch.device("cuda", 0)
    module = load(spec["source"], spec["path"], folder)
    torch.manual_seed(1)  # equal weights and arguments in every process
    work, arguments = work_of(torch, module, spec, device, folder)
    flush = torch.empty(max(8 * torch.cuda.get_device_properties(device).L2_cache_size, 256 << 20) // 4,
                        dtype=torch.int32, device=device)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def time_us():
        flush.add_(1)  # nothing of the last run is left in L2; and the host has queued all before this ends
        start.record()
        work()
        stop.record()
        stop.synchronize()
        return 1000 * start.elapsed_time(stop)

    def outputs():
        """Returns the call's result, or its arguments if it returns nothing."""
        found = tensors_of(torch, work()) or tensors_of(torch, arguments)
        return [y for y in found if y.numel() > 0 and not y.is_complex()][:MOST_OUTPUTS]

    with torch.no_grad():
        y = outputs()
        if spec["pick"]:
            tuner = autotuner(module, spec)
            names = [str(config) for config in tuner.configs]
            best = str(getattr(tuner, "best_config", tuner.configs[0]))
            answer(picked=best, index=names.index(best), of=len(names))
            return
        if not y:
            refuse("file", "what is called returns no tensor, and is given none")
        found = [summary(torch, one) for one in y]
        if not arguments:  # a second run on the same arguments might add to what is there
            shapes = [(one.shape, one.dtype) for one in y]
            del y
            unwritten = [torch.full(shape, float("nan"), dtype=dtype, device=device) for shape, dtype in shapes
                         if dtype.is_floating_point]
            del unwritten  # the next answer lies here: what the kernel does not write is no number
            found = [summary(torch, one) for one in outputs()]
        once = sorted(time_us() for _ in range(3))[1]
        runs = min(MOST_RUNS, int(SAMPLE_US / max(once, 1.0))) // 2 * 2 + 1
        answer(time_us=once, runs=runs, device=torch.cuda.get_device_name(device),
               capability="{}.{}".format(*torch.cuda.get_device_capability(device)), torch=torch.__version__,
               triton=triton.__version__, outputs=found)
        for line in sys.stdin:
            if line.strip() == '"sample"':
                samples = [time_us() for _ in range(runs)]
                answer(time_us=sorted(samples)[runs // 2], samples=samples)


if __name__ == "__main__":
    main()
