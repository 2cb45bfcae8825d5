"""The numbers of one call of a model: its time, memory, kernels and error. Parts of torch_models.py."""

import re
import statistics
import time


def wait():
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()


def errors(exact, inputs, y):
    """The error of y: the root mean square of its difference, and the share of equal largest numbers of an image."""
    import torch

    tf32 = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.benchmark = False
    right = exact(*(one.float() if one.is_floating_point() else one for one in inputs))
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = tf32
    error = (y.double() - right.double()).square().mean().sqrt() / right.double().square().mean().sqrt()
    return float(error), float((y.argmax(1) == right.argmax(1)).float().mean())


def timed(run, calls):
    """Microseconds of each call, from the call to the device's last result."""
    samples = []
    for _ in range(calls):
        wait()
        begin = time.perf_counter()
        run()
        wait()
        samples.append(1e6 * (time.perf_counter() - begin))
    return samples


def launch_us(run, calls=20):
    """Microseconds from a call to its return where the device has nothing else to do: the host's part, all of which an idle device waits
    for."""
    samples = []
    for _ in range(calls):
        wait()
        begin = time.perf_counter()
        run()
        samples.append(1e6 * (time.perf_counter() - begin))
    wait()
    return statistics.median(samples)


def queued_us(run, calls=20):
    """Microseconds a call where nobody waits for one before the next: without what the host and a launch cost."""
    wait()
    begin = time.perf_counter()
    for _ in range(calls):
        run()
    wait()
    return 1e6 * (time.perf_counter() - begin) / calls


def peak_mib(run):
    """The most memory that PyTorch holds in a call, with what CUDA graphs keep to write to: a replay allocates nothing, so that
    PyTorch's own peak leaves it out."""
    import torch

    if not torch.cuda.is_available():
        return 0
    torch.cuda.reset_peak_memory_stats()
    run()
    wait()
    graphs = (one for one in torch.cuda.memory_snapshot() if tuple(one["segment_pool_id"]) != (0, 0))
    kept = sum(one["total_size"] - one["allocated_size"] for one in graphs)
    return (torch.cuda.max_memory_allocated() + kept) >> 20


def kinds_of(kernels):
    """Milliseconds of a call by kind of kernel: convolutions, changes of layout, copies (joining and padding, too), the rest."""
    found = {"convolutions": 0.0, "layouts": 0.0, "copies": 0.0, "rest": 0.0}
    for name, (_, us, _) in kernels.items():
        name = name.lower()
        kind = "rest"
        if re.search(r"convtune::|conv|fprop|dgrad|wgrad|implicit_gemm|xmma|cutlass", name) and "triton_" not in name:
            kind = "convolutions"
        elif re.search(r"nchwtonhwc|nhwctonchw|transpose|permute", name):
            kind = "layouts"
        elif re.search(r"memcpy|memset|copy|catarray|constant_pad|fill", name):
            kind = "copies"
        elif name.startswith("triton_") and not set(re.split(r"_+", re.sub(r"^triton_\w\w\w_fused_|\d+$", "", name))) - {
                "cat", "constant", "pad", "nd", "clone", "copy", "slice", "select", "view", "unsqueeze", "to", "convolution", ""}:
            kind = "copies"
        found[kind] += us / 1e3
    return found


def counted(events):
    """{name: (times, microseconds, idle ones before it)} of kernels as (name, begin, end), in microseconds. Overlaps count once,
    for the kernel that began first: those of convtune's begin while the one before them runs and wait for it, so that they seem longer."""
    found, ended = {}, None
    for name, begin, end in sorted(events, key=lambda one: one[1:]):
        times, us, idle = found.get(name, (0, 0.0, 0.0))
        before = 0.0 if ended is None else max(begin - ended, 0.0)
        idle += before if before < 50 else 0.0  # else another call begins
        ended = begin if ended is None else ended
        found[name] = times + 1, us + max(end - max(begin, ended), 0.0), idle
        ended = max(ended, end)
    return found


def kernels_of(run, calls=5):
    """Returns the GPU's work in one call, by kernel, as `counted` does, most first."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    if not torch.cuda.is_available():
        return {}
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(calls):
            run()
        wait()
    events = [one for one in seen.events() if one.device_type == torch.autograd.DeviceType.CUDA]
    found = counted((one.name, one.time_range.start, one.time_range.end) for one in events)
    return {name: tuple(number / calls for number in of) for name, of in sorted(found.items(), key=lambda one: -one[1][1])}
