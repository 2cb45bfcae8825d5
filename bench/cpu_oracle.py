"""A problem's random tensors, and sampled outputs in double precision; used by cpu_peers.py in every process. NumPy is
imported by the functions that need it.
"""

import math

from cpu_libraries import Data

SAMPLES = 2048  # output elements that are compared with sums in double precision


def make_data(problem):
    """Random tensors of a problem, the same in every process."""
    import numpy as np
    random = np.random.default_rng(1)

    def uniform(*shape):
        values = random.random(shape, dtype=np.float32) * 2 - 1
        return values if problem.dtype == "f32" else (values.view(np.uint32) >> 16).astype(np.uint16)

    a = problem
    return Data(uniform(*a.x_shape), uniform(*a.w_shape), uniform(a.k) if a.bias else None,
                uniform(*a.y_shape) if a.residual else None)


def as_floats(data):
    """bf16 as float32, exactly."""
    return Data(*(array if array is None else widen(array).astype("float32")
                  for array in (data.x, data.w, data.bias, data.residual)))


def widen(array):
    """bf16's bits, or floats, as doubles."""
    import numpy as np
    return (array.astype(np.uint32) << 16).view(np.float32).astype(float) if array.dtype == np.uint16 \
        else array.astype(float)


def activate(values, name, parameters):
    """An activation of convtune/tensor.h, in double precision."""
    import numpy as np

    def sigmoid(v):
        return 1 / (1 + np.exp(-v))

    return {"none": lambda v: v, "relu": lambda v: np.maximum(v, 0), "clip": lambda v, *bounds: np.clip(v, *bounds),
            "silu": lambda v: v * sigmoid(v), "sigmoid": sigmoid,
            "gelu_erf": lambda v: v * (1 + np.vectorize(math.erf)(v / math.sqrt(2))) / 2,
            "gelu_tanh": lambda v: v * (1 + np.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2,
            "hardswish": lambda v: v * np.clip(v + 3, 0, 6) / 6,
            "leaky_relu": lambda v, slope: np.where(v > 0, v, slope * v)}[name](values, *parameters)


class Oracle:
    """Sampled outputs and the sums of |x*w| behind them, in double precision."""

    def __init__(self, a):
        import numpy as np
        random, data = np.random.default_rng(2), make_data(a)
        count = min(SAMPLES, math.prod(a.y_shape))
        self.np, self.problem = np, a
        self.at = n, k, *_ = tuple(random.integers(0, extent, count) for extent in a.y_shape)
        channels, filters = a.c // a.groups, a.k // a.groups
        first = k // filters * channels
        values, magnitudes = np.zeros(count), np.zeros(count)
        for i in range(count):
            taps, pixels = zip(*(self.met(axis, int(at[i])) for axis, at in enumerate(self.at[2:])), strict=True)
            of_group = np.arange(first[i], first[i] + channels)
            w = data.w[of_group, k[i] % filters] if a.transposed else data.w[k[i]]
            w = w[np.ix_(np.arange(channels), *taps)]
            products = widen(data.x[n[i]][np.ix_(of_group, *pixels)]) * widen(w)
            values[i], magnitudes[i] = products.sum(), abs(products).sum()
        if a.bias:
            values += widen(data.bias)[k]
            magnitudes += abs(widen(data.bias)[k])
        if a.residual:
            values += widen(data.residual)[self.at]
            magnitudes += abs(widen(data.residual)[self.at])
        self.values, self.magnitudes = activate(values, *a.activation), magnitudes

    def met(self, axis, at):
        """(taps, the pixels of x that they meet) of the output at `at`, along an axis."""
        a, np = self.problem, self.np
        taps = np.arange(a.w_shape[2 + axis])
        if a.transposed:
            pixels = at + a.before[axis] - taps * a.dilations[axis]
            taps, pixels = (some[pixels % a.strides[axis] == 0] for some in (taps, pixels))
            pixels = pixels // a.strides[axis]
        else:
            pixels = at * a.strides[axis] - a.before[axis] + taps * a.dilations[axis]
        inside = (pixels >= 0) & (pixels < a.x_shape[2 + axis])
        return taps[inside], pixels[inside]

    def judge(self, sampled):
        """(the greatest error against the values' root mean square, what is wrong or "")."""
        np, a = self.np, self.problem
        error = abs(sampled - self.values)
        limit = 8 * 2.0**-24 * math.sqrt(math.prod(a.w_shape) // a.k + 1)
        # A bf16 output is rounded once, and a library may round the sum before the bias, the residual, the activation.
        rounding = 0.0 if a.dtype == "f32" else (2 + 2 * (a.residual or a.act not in ("none", "relu"))) * 2.0**-8
        limit += 0.0 if a.act in ("none", "relu") else 2.0**-20  # exponentials are approximated
        wrong = np.flatnonzero(~(error <= limit * self.magnitudes + rounding * (abs(self.values) + 1)))
        where = f"y{[int(index[wrong[0]]) for index in self.at]} is {sampled[wrong[0]]}, double precision says " \
                f"{self.values[wrong[0]]}" if wrong.size else ""
        return float(error.max() / max(np.sqrt(np.mean(self.values**2)), 1e-300)), where
