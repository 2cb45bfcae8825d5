"""Problems of any kind that the contract has, small, drawn at random: types, dimensions, layouts, directions,
epilogues, paddings larger than filters, dilations past the image, depthwise and grouped channels, batches of 0."""

from convtune import Problem


def _axis(random, most):
    """size, filter, stride, dilation, padding before, padding behind; the filter fits."""
    size, taps = random.randint(1, most), random.choice([1, 1, 2, 3, 3, 4, 5])
    stride, dilation = random.choice([1, 1, 1, 2, 3]), random.choice([1, 1, 1, 2, 3])
    before, behind = random.choice([(0, 0), (1, 1), (2, 2), (0, 1), (3, 1), (0, 5)])
    missing = max(0, dilation * (taps - 1) + 1 - size - before - behind)
    return size, taps, stride, dilation, before + missing // 2, behind + missing - missing // 2


def _channels(random):
    groups = random.choice([1, 1, 1, 2, 3, 6])
    each = (1, 1) if groups > 3 else (random.randint(1, 6), random.randint(1, 6))
    return groups, groups * each[0], groups * each[1]


def _activation(random):
    return random.choice(
        ["none", "none", "relu", "clip:0:6", "clip:-1:1", "silu", "gelu_erf", "gelu_tanh", "hardswish", "sigmoid",
         "leaky_relu:0.01", "leaky_relu:1.5"]
    )  # fmt: skip


def random_problem(random):
    """`random`: a random.Random."""
    dimensions = random.choice([1, 2, 2, 3])
    groups, c, k = _channels(random)
    depth = _axis(random, 5) if dimensions == 3 else (1, 1, 1, 1, 0, 0)
    height = _axis(random, 8) if dimensions > 1 else (1, 1, 1, 1, 0, 0)
    d, h, w = depth, height, _axis(random, 40 if dimensions == 1 else 9)
    if (d[0], d[1], d[4], d[5]) == (1, 1, 0, 0):
        d = (1, 1, 1, 1, 0, 0)  # no depth: nothing to step over
    types = ("f32", "f16", "bf16")
    mixed = ":".join(random.choice(types) for _ in range(random.choice([3, 4])))
    direction = random.choice(["fwd", "fwd", "fwd", "bwd_d", "bwd_w"])
    forward = direction == "fwd"
    return Problem(
        random.choice([0, 1, 1, 1, 2, 2, 3]), c, h[0], w[0], k, h[1], w[1], groups,
        stride=(d[2], h[2], w[2]), dilation=(d[3], h[3], w[3]),
        padding=(d[4], h[4], w[4], d[5], h[5], w[5]), d=d[0], t=d[1],
        bias=random.random() < 0.5 and direction != "bwd_d", dtype=random.choice([*types, *types, mixed]),
        layout=random.choice(["nchw", "nhwc"]), direction=direction, residual=forward and random.random() < 0.4,
        activation=_activation(random) if forward else "none",
        rounding=random.choice(["once", "once", "eager"]) if forward else "once",
    )  # fmt: skip
