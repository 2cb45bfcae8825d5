"""Host time of one call of convtune's operators in PyTorch: by C++ beside by Python, PyTorch's own convolution beside them.

    python bench/torch_operator.py [cpu|cuda] [--rounds 5]

A problem so small that the host's time is nearly all there is (on a CPU the kernel's own time is in it: the row "kernel").
conv_gradients and "packs" are what the graphs of a step of training call: gradients, and a forward that packs its weight.
Each round is a fresh process of each kind, in turn; a number is the median over rounds of the least mean of a
loop, in microseconds a call. The rows of compiled models are a forward over its convolutions, all else included.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

CONVOLUTIONS = 24


def least_us(call, count, synchronize):
    for _ in range(20):
        call()
    synchronize()
    found = []
    for _ in range(15):
        begin = time.perf_counter()
        for _ in range(count):
            call()
        found.append((time.perf_counter() - begin) / count * 1e6)
        synchronize()
    return min(found)


def step_rows(x, w, how, synchronize):
    """Times of the operators that a step's graphs call, beside PyTorch's own."""
    import torch

    import convtune
    from convtune.torch.backward import conv_gradients, gradient_problem, pytorch_gradients, text_of
    from convtune.torch.how import How
    from convtune.torch.run import choice_line

    how, device, rows = How(*how), "cuda:0" if x.is_cuda else "cpu", {}
    forward, packs = torch.ops.convtune.conv2d_forward.default, How(*how.geometry, reuse=False).text
    rows["conv2d_forward that packs"] = least_us(lambda: forward(x, w, None, None, packs), 200, synchronize)
    for of, mask in (("x", (True, False, False)), ("w", (False, True, False)), ("xw", (True, True, False))):
        lines = []
        for one in of:
            problem = gradient_problem(one, x, w, how)
            plan = convtune.Convolution(problem, device, "ours").plan
            lines.append(choice_line(device, problem, problem, plan.algorithm, plan.config))
        text, name = text_of(None, How(*how.geometry, choices="\n".join(lines)), mask), " and ".join(f"d{one}" for one in of)
        rows[f"aten.convolution_backward, {name}"] = least_us(lambda: pytorch_gradients(x, x, w, None, how, mask), 200, synchronize)
        rows[f"conv_gradients, {name}"] = least_us(lambda: conv_gradients(x, x, w, text), 200, synchronize)
    return rows


def measure(device):
    import torch

    import convtune.torch
    import convtune.torch.backend
    from convtune.torch.how import How

    torch.set_num_threads(1)
    convtune.set_cpu_threads(1)
    gpu = device == "cuda"
    synchronize = torch.cuda.synchronize if gpu else (lambda: None)
    dtype = torch.bfloat16 if gpu else torch.float32
    how = (1, 1), (1, 1, 1, 1), (1, 1), 1
    x, w = torch.rand(1, 16, 8, 8, device=device, dtype=dtype), torch.rand(16, 16, 3, 3, device=device, dtype=dtype)
    if gpu:
        x = x.to(memory_format=torch.channels_last)
    bias = torch.rand(16, device=device)
    text = How(*how, activation="relu").text
    forward, fused = torch.ops.convtune.conv2d_forward.default, torch.ops.convtune.conv2d_fused.default
    own = bias.to(dtype)
    rows = {}
    with torch.no_grad():
        convolution = convtune.torch.convolution_of(x, w, None, *how)
        packed = torch.empty(convolution.packed_bytes + 256, dtype=torch.uint8, device=device)
        y = torch.empty_like(x)
        addresses = x.data_ptr(), packed.data_ptr() + -packed.data_ptr() % 256, y.data_ptr()
        convolution.pack_raw(w.data_ptr(), 0, addresses[1])
        rows["kernel"] = least_us(lambda: convolution.run_raw(*addresses), 200, synchronize)
        rows["torch.conv2d"] = least_us(lambda: torch.conv2d(x, w, own, padding=1), 200, synchronize)
        rows["torch.ops.convtune.conv2d_forward"] = least_us(lambda: forward(x, w, bias, x, text), 200, synchronize)
        rows["torch.ops.convtune.conv2d_fused"] = least_us(
            lambda: fused(x, w, bias, x, *how, "auto", "relu"), 200, synchronize
        )
        if not gpu:
            rows["convtune.conv2d"] = least_us(lambda: convtune.conv2d(x, w, own, padding=1), 200, synchronize)
        rows.update(step_rows(x, w, how, synchronize))
        layers = [torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(CONVOLUTIONS)]
        model = torch.nn.Sequential(*layers).eval().to(device, dtype)
        if gpu:
            model = model.to(memory_format=torch.channels_last)
        for name, backend, options in (("inductor", "inductor", {}), ("convtune", "convtune", {"convtune.force": True})):
            torch._dynamo.reset()
            compiled = torch.compile(model, backend=backend, options=options)
            rows[f"compiled by {name}, a convolution"] = least_us(lambda: compiled(x), 10, synchronize) / CONVOLUTIONS
    return {"operator": convtune.torch.operator, "torch": torch.__version__, "rows": rows}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("device", nargs="?", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--once", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.once:
        print(json.dumps(measure(arguments.device)))
        return
    found = {"c++": [], "python": []}
    for _ in range(arguments.rounds):
        for kind, results in found.items():
            done = subprocess.run(
                [sys.executable, __file__, arguments.device, "--once"], stdout=subprocess.PIPE, text=True, check=True,
                env={**os.environ, "CONVTUNE_TORCH_OPERATOR": kind},
            )  # fmt: skip
            results.append(json.loads(done.stdout.splitlines()[-1]))
    native = found["c++"][0]
    print(f"{arguments.device}, PyTorch {native['torch']}, {arguments.rounds} rounds; {native['operator']}")
    print(f"{'us a call':42} {'C++':>8} {'Python':>8}")
    for row in found["c++"][0]["rows"]:
        native, python = (statistics.median(one["rows"][row] for one in found[kind]) for kind in ("c++", "python"))
        print(f"{row:42} {native:8.2f} {python:8.2f}", flush=True)


if __name__ == "__main__":
    main()
