"""conv2d gives the right numbers: bit by bit on small integers, within rounding on random data, at the edges, and
where numbers are not finite."""

import convtune
import numpy
import pytest
import reference

# (x, w, arguments): every form of every argument, and edges.
CASES = [
    ((2, 3, 9, 11), (4, 3, 3, 3), {}),
    ((1, 3, 17, 19), (8, 3, 5, 3), dict(stride=2, padding=1)),
    ((1, 3, 17, 19), (8, 3, 5, 3), dict(stride=(2, 3), padding=(2, 1))),
    ((1, 3, 17, 19), (8, 3, 5, 3), dict(stride=[3, 2], padding=[0, 3])),
    ((2, 4, 12, 10), (6, 4, 3, 3), dict(padding=(0, 1, 2, 3))),
    ((2, 4, 12, 10), (6, 4, 4, 2), dict(padding="same")),
    ((2, 4, 12, 10), (6, 4, 4, 3), dict(padding="same", dilation=(2, 3))),
    ((2, 4, 12, 10), (6, 4, 4, 2), dict(padding="valid")),
    ((1, 5, 15, 16), (7, 5, 3, 3), dict(dilation=2, padding=2)),
    ((1, 5, 15, 16), (7, 5, 3, 2), dict(dilation=(1, 4))),
    ((2, 8, 9, 9), (8, 1, 3, 3), dict(groups=8, padding=1)),
    ((2, 8, 9, 9), (12, 4, 3, 3), dict(groups=2, padding=1)),
    ((1, 1, 1, 1), (1, 1, 1, 1), {}),
    ((1, 1, 1, 1), (1, 1, 3, 3), dict(padding=1)),
    ((1, 7, 1, 1), (5, 7, 1, 1), {}),
    ((3, 2, 5, 70), (3, 2, 1, 7), dict(padding=(0, 3))),
    ((1, 3, 8, 8), (4, 3, 2, 2), dict(stride=7)),
    ((1, 3, 5, 5), (4, 3, 3, 3), dict(padding=7)),
    ((1, 3, 4, 4), (2, 3, 3, 3), dict(dilation=5, padding=5)),
    ((1, 3, 32, 32), (16, 3, 11, 11), dict(stride=4, padding=2)),
]


def normal(w, stride=1, padding=0, dilation=1, groups=1, activation=None, precision=None):
    """As the reference takes them."""
    steps, holes = ((v, v) if isinstance(v, int) else tuple(v) for v in (stride, dilation))
    if padding == "same":
        whole = [d * (size - 1) for d, size in zip(holes, w[2:])]
        padding = (whole[0] // 2, whole[1] // 2, whole[0] - whole[0] // 2, whole[1] - whole[1] // 2)
    elif padding == "valid":
        padding = (0, 0, 0, 0)
    elif isinstance(padding, int):
        padding = (padding,) * 4
    elif len(padding) == 2:
        padding = (*padding, *padding)
    return dict(stride=steps, padding=tuple(padding), dilation=holes, groups=groups, relu=activation == "relu")


@pytest.mark.parametrize("x_shape, w_shape, arguments", CASES)
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("activation", [None, "relu"])
def test_integers_are_exact(x_shape, w_shape, arguments, with_bias, activation):
    random = numpy.random.default_rng(1)
    x = random.integers(-4, 5, x_shape).astype(numpy.float32)
    w = random.integers(-4, 5, w_shape).astype(numpy.float32)
    bias = random.integers(-9, 10, w_shape[0]).astype(numpy.float32) if with_bias else None
    y = convtune.conv2d(x, w, bias, **arguments, activation=activation)
    expected = reference.conv2d(x, w, bias, **normal(w_shape, **arguments, activation=activation))
    assert y.dtype == numpy.float32 and y.flags.c_contiguous and type(y) is numpy.ndarray
    numpy.testing.assert_array_equal(y, expected.astype(numpy.float32))


def test_random_problems():
    random = numpy.random.default_rng(2)
    done = 0
    while done < 60:
        groups = int(random.choice([1, 1, 1, 2, 3]))
        c, k = (groups * int(random.integers(1, 6)) for _ in range(2))
        r, s = (int(random.integers(1, 6)) for _ in range(2))
        stride, dilation = (tuple(int(v) for v in random.integers(1, 4, 2)) for _ in range(2))
        padding = tuple(int(v) for v in random.integers(0, 4, 4))
        h, w = (int(random.integers(1, 14)) for _ in range(2))
        shape = (int(random.integers(1, 4)), c, h, w)
        spans = [
            dilation[0] * (r - 1) + 1 - padding[0] - padding[2],
            dilation[1] * (s - 1) + 1 - padding[1] - padding[3],
        ]
        if spans[0] > h or spans[1] > w:
            continue
        done += 1
        x = random.standard_normal(shape, numpy.float32)
        weights = random.standard_normal((k, c // groups, r, s), numpy.float32)
        bias = random.standard_normal(k, numpy.float32)
        y = convtune.conv2d(x, weights, bias, stride, padding, dilation, groups)
        reference.close(y, reference.conv2d(x, weights, bias, stride, padding, dilation, groups), c // groups * r * s)


@pytest.mark.parametrize("value", [numpy.nan, numpy.inf, -numpy.inf])
def test_what_is_not_finite_spreads_as_it_should(value):
    random = numpy.random.default_rng(3)
    x = random.standard_normal((1, 3, 8, 9), numpy.float32)
    w = random.standard_normal((4, 3, 3, 3), numpy.float32)
    for where in [(0, 0), (0, 8), (4, 4), (7, 0), (7, 8)]:
        spoilt = x.copy()
        spoilt[0, 1, where[0], where[1]] = value
        y = convtune.conv2d(spoilt, w, padding=1)
        reference.close(y, reference.conv2d(spoilt, w, padding=(1, 1, 1, 1)), 27)
    spoilt = w.copy()
    spoilt[2, 1, 0, 0] = value  # meets the padding in row 0 and column 0, and must not multiply it
    y = convtune.conv2d(x, spoilt, padding=1)
    expected = reference.conv2d(x, spoilt, padding=(1, 1, 1, 1))
    assert numpy.isfinite(expected[0, 2, 0]).all() and not numpy.isfinite(expected[0, 2, 1, 1])
    reference.close(y, expected, 27)


def test_relu_keeps_nan():
    x = numpy.full((1, 1, 2, 2), numpy.nan, numpy.float32)
    y = convtune.conv2d(x, numpy.ones((1, 1, 1, 1), numpy.float32), activation="relu")
    assert numpy.isnan(y).all()


@pytest.mark.parametrize("extra", [dict(), dict(bias=numpy.zeros(4, numpy.float32))])
def test_batch_of_0(extra):
    w = numpy.ones((4, 3, 3, 3), numpy.float32)
    y = convtune.conv2d(numpy.empty((0, 3, 9, 8), numpy.float32), w, **extra, padding=(0, 1))
    assert y.shape == (0, 4, 7, 8) and y.dtype == numpy.float32
    with pytest.raises(convtune.InvalidArgument, match="channels"):
        convtune.conv2d(numpy.empty((0, 2, 9, 8), numpy.float32), w)
    with pytest.raises(convtune.InvalidArgument, match="bias"):
        convtune.conv2d(numpy.empty((0, 3, 9, 8), numpy.float32), w, numpy.zeros(3, numpy.float32))


def test_plan_pack_run_is_conv2d():
    random = numpy.random.default_rng(4)
    x = random.standard_normal((2, 3, 12, 12), numpy.float32)
    w, bias = random.standard_normal((5, 3, 3, 3), numpy.float32), random.standard_normal(5, numpy.float32)
    y = convtune.conv2d(x, w, bias, stride=2, padding=1, activation="relu")
    conv = convtune.plan(x, w, bias, stride=2, padding=1, activation="relu")
    assert conv.device == "cpu" and conv.problem.activation == "relu" and conv.output_shape == y.shape
    packed = convtune.pack(conv, w, bias)
    numpy.testing.assert_array_equal(convtune.run(conv, x, packed), y)
    out = numpy.empty_like(y)
    assert convtune.run(conv, x, packed, out=out) is out
    numpy.testing.assert_array_equal(out, y)


def test_the_packed_weights_outlive_their_arrays():
    random = numpy.random.default_rng(5)
    x, w = random.standard_normal((1, 3, 9, 9), numpy.float32), random.standard_normal((4, 3, 3, 3), numpy.float32)
    bias = random.standard_normal(4, numpy.float32)
    expected = convtune.conv2d(x, w, bias)
    conv = convtune.plan(x, w, bias)
    packed = convtune.pack(conv, w, bias)
    w[:], bias[:] = numpy.nan, numpy.nan
    del w, bias
    numpy.testing.assert_array_equal(convtune.run(conv, x, packed), expected)


def test_changed_weights_are_seen():
    x, w = numpy.ones((1, 1, 2, 2), numpy.float32), numpy.ones((1, 1, 1, 1), numpy.float32)
    assert convtune.conv2d(x, w)[0, 0, 0, 0] == 1
    w[:] = 3
    assert convtune.conv2d(x, w)[0, 0, 0, 0] == 3


def test_every_algorithm_and_layout():
    problem = convtune.Problem(2, 3, 9, 9, 4, 3, 3, padding=1, layout="nhwc")
    random = numpy.random.default_rng(6)
    x = random.standard_normal(problem.input_shape, numpy.float32)
    w, bias = random.standard_normal(problem.weight_shape, numpy.float32), numpy.ones(4, numpy.float32)
    expected = reference.conv2d(x.transpose(0, 3, 1, 2), w, bias, padding=(1, 1, 1, 1)).transpose(0, 2, 3, 1)
    for algorithm in ("direct", "reference"):
        conv = convtune.Convolution(problem, "cpu", algorithm)
        assert conv.plan.algorithm == algorithm and conv.plan.source == "forced"
        reference.close(convtune.run(conv, x, convtune.pack(conv, w, bias)), expected, 27)
    with pytest.raises(convtune.InvalidArgument, match="nosuch"):
        convtune.Convolution(problem, "cpu", "nosuch")
    with pytest.raises(convtune.InvalidArgument, match="nosuch"):
        convtune.Convolution(problem, "cpu", "direct", "nosuch=1")
