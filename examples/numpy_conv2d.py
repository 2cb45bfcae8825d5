"""AlexNet's first layer on NumPy arrays: no PyTorch, no GPU needed.

python examples/numpy_conv2d.py            # with the plan that convtune has for this machine
python examples/numpy_conv2d.py --tune     # searches for a better one first, about half a minute, and keeps it
"""

import sys
import time

import convtune
import numpy


def milliseconds(call, seconds=1.0):
    """Median of as many calls as fit, after one that does not count."""
    call()
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        begin = time.perf_counter()
        call()
        times.append(1e3 * (time.perf_counter() - begin))
    return sorted(times)[len(times) // 2]


random = numpy.random.default_rng(0)
x = random.standard_normal((8, 3, 224, 224), numpy.float32)
w = random.standard_normal((96, 3, 11, 11), numpy.float32)
bias = random.standard_normal(96, numpy.float32)

if "--tune" in sys.argv[1:]:
    problem = convtune.plan(x, w, bias, stride=4, padding=2, device="cpu").problem
    print(convtune.tune(problem, "cpu", budget=20))

# In one call: plans at the first, packs the weights at every one.
y = convtune.conv2d(x, w, bias, stride=4, padding=2)

# Takes steps for weights that stay: plan once, pack once, run often.
conv = convtune.plan(x, w, bias, stride=4, padding=2)
weights = convtune.pack(conv, w, bias)
assert (convtune.run(conv, x, weights) == y).all()

time_ms = milliseconds(lambda: convtune.run(conv, x, weights, out=y))
print(f"{conv.problem} on {conv.device}")
print(f"{conv.plan}")
print(f"y {y.shape}: {time_ms:.2f} ms, {conv.problem.flops / time_ms / 1e6:.0f} GFLOP/s")
