"""Forward and both gradients on arrays: right by adjointness and by the oracle, in every type, and each wrong tensor is
refused by name. That `reference` itself is right, test_torch_oracle.py and the C++ tests hold."""

import itertools
import sys

import convtune
import numpy
import pytest
import reference
from convtune import Problem

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

PROBLEM = Problem(2, 4, 9, 8, 6, 3, 2, groups=2, stride=(2, 1), padding=(1, 0, 2, 1), dilation=(1, 2))
CUBE = Problem(1, 2, 5, 6, 3, 3, 2, d=4, t=2, stride=(1, 2, 1), padding=(1, 1, 0), layout="nhwc")


def whole(shape, seed, dtype=numpy.float32):
    """Small integers: exact in every type, and so are their sums."""
    return numpy.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


def planned(problem):
    conv = convtune.plan(problem, device="cpu")
    assert conv.problem == problem.replace(precision=conv.problem.precision)
    return conv


def forward(problem, x, w):
    conv = planned(problem.replace(bias=False))
    return convtune.run(conv, x, convtune.pack(conv, w))


@pytest.mark.parametrize("problem", [PROBLEM, CUBE, PROBLEM.replace(n=0)])
def test_gradients_are_adjoint(problem):
    """sum(y * dy) is linear in x and in w: its gradients give it back, for every tensor."""
    x, w, dy = (
        whole(shape, i) for i, shape in enumerate((problem.input_shape, problem.weight_shape, problem.output_shape))
    )
    y = forward(problem, x, w)
    assert y.shape == problem.output_shape
    data = planned(problem.replace(direction="bwd_d", bias=False))
    dx = convtune.backward_data(data, dy, convtune.pack(data, w))
    dw, dbias = convtune.backward_weights(planned(problem.replace(direction="bwd_w")), x, dy)
    assert dx.shape == x.shape and dw.shape == w.shape and dbias.shape == (problem.k,)
    assert (y * dy).sum() == (x * dx).sum() == (w * dw).sum()
    channel = problem.output_shape.index(problem.k) if problem.layout == "nchw" else len(dy.shape) - 1
    channel = 1 if problem.layout == "nchw" else channel
    numpy.testing.assert_array_equal(dbias, dy.sum(tuple(i for i in range(dy.ndim) if i != channel)))
    if problem.n:
        other = whole(problem.input_shape, 9)  # and not only along x itself
        assert (forward(problem, other, w) * dy).sum() == (other * dx).sum()
    without = planned(problem.replace(direction="bwd_w", bias=False))
    assert convtune.backward_weights(without, x, dy)[1] is None


def test_transposed_layers():
    """A gradient with an epilogue: a bias for each channel of dx, a residual and an activation."""
    plain = PROBLEM.replace(direction="bwd_d", bias=False)
    dy, w = whole(PROBLEM.output_shape, 1), whole(PROBLEM.weight_shape, 2)
    bias, residual = whole((PROBLEM.c,), 3), whole(PROBLEM.input_shape, 4)
    layer = planned(plain.replace(bias=True, residual=True, activation="relu"))
    data = planned(plain)
    sums = convtune.backward_data(data, dy, convtune.pack(data, w)) + residual
    sums += bias if PROBLEM.layout == "nhwc" else bias.reshape(-1, 1, 1)
    packed = convtune.pack(layer, w, bias)
    got = convtune.backward_data(layer, dy, packed, residual=residual)
    numpy.testing.assert_array_equal(got, sums.clip(0))
    assert convtune.backward_data(layer, dy, packed, out=residual, residual=residual) is residual
    numpy.testing.assert_array_equal(got, residual)
    with pytest.raises(convtune.InvalidArgument, match="one a channel of dx"):
        convtune.pack(layer, w, whole((PROBLEM.c + 1,), 3))
    with pytest.raises(convtune.InvalidArgument, match="has a residual, and residual is None"):
        convtune.backward_data(layer, dy, packed)
    asked = convtune.Problem.parse("mb1ic8ih5oc4kh4sh2ph1 dir=transposed")
    assert (asked.c, asked.k, asked.h, asked.direction, asked.bias) == (4, 8, 10, "bwd_d", True)


def test_outputs_in_place():
    x, w, dy = (
        whole(shape, i) for i, shape in enumerate((PROBLEM.input_shape, PROBLEM.weight_shape, PROBLEM.output_shape))
    )
    weights_conv = planned(PROBLEM.replace(direction="bwd_w"))
    dw, dbias = numpy.empty(PROBLEM.weight_shape, numpy.float32), numpy.empty(PROBLEM.k, numpy.float32)
    got = convtune.backward_weights(weights_conv, x, dy, out=dw, out_bias=dbias)
    assert got[0] is dw and got[1] is dbias
    for ours, new in zip(got, convtune.backward_weights(weights_conv, x, dy)):
        numpy.testing.assert_array_equal(ours, new)
    data = planned(PROBLEM.replace(direction="bwd_d", bias=False))
    packed, dx = convtune.pack(data, w), numpy.empty(PROBLEM.input_shape, numpy.float32)
    assert convtune.backward_data(data, dy, packed, out=dx) is dx
    numpy.testing.assert_array_equal(dx, convtune.backward_data(data, dy, packed))
    added = planned(PROBLEM.replace(residual=True))
    packed, residual = convtune.pack(added, w, whole(6, 5)), whole(PROBLEM.output_shape, 6)
    y = convtune.run(added, x, packed, residual=residual)
    assert convtune.run(added, x, packed, out=residual, residual=residual) is residual
    numpy.testing.assert_array_equal(residual, y)


ACTIVATIONS = {
    "none": lambda v: v,
    "relu": lambda v: numpy.maximum(v, 0),
    "clip:-2:4": lambda v: numpy.clip(v, -2, 4),
    "silu": lambda v: v / (1 + numpy.exp(-v)),
    "gelu_tanh": lambda v: v / 2 * (1 + numpy.tanh(numpy.sqrt(2 / numpy.pi) * (v + 0.044715 * v**3))),
    "hardswish": lambda v: v * numpy.clip(v + 3, 0, 6) / 6,
    "leaky_relu:0.25": lambda v: numpy.where(v > 0, v, v / 4),
    "sigmoid": lambda v: 1 / (1 + numpy.exp(-v)),
}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype, digits", [("float32", 2e-7), ("float16", 2e-3), ("bfloat16", 8e-3)])
@pytest.mark.parametrize("with_residual", [True, False])
def test_conv2d_of_every_type_and_epilogue(activation, dtype, digits, with_residual):
    if dtype == "bfloat16":
        if ml_dtypes is None:
            pytest.skip("NumPy has no bfloat16 without ml_dtypes, which is not installed here")
        dtype = ml_dtypes.bfloat16
    x, w, bias = whole((2, 3, 6, 5), 1, dtype), whole((4, 3, 3, 2), 2, dtype), whole(4, 3, dtype)
    residual = whole((2, 4, 6, 6), 4, dtype) if with_residual else None
    sums = reference.conv2d(x, w, bias, padding=(1, 1, 1, 1)) / 8  # in range of what bends
    w, bias = w / numpy.asarray(8, dtype), bias / numpy.asarray(8, dtype)
    y = convtune.conv2d(x, w, bias, padding=1, activation=activation, residual=residual)
    expected = ACTIVATIONS[activation](sums + (0 if residual is None else residual.astype(float)))
    assert y.dtype == numpy.dtype(dtype) and y.shape == (2, 4, 6, 6)
    numpy.testing.assert_allclose(y.astype(float), expected, rtol=digits, atol=1e-7)


def test_snakes_behind_sums():
    """In the place of the sums or behind them, with three rows of numbers beside the weights; nothing else is taken for them."""
    for direction, layout, rounding in itertools.product(("fwd", "bwd_d"), ("nchw", "nhwc"), ("once", "eager")):
        plain = PROBLEM.replace(direction=direction, layout=layout, bias=True, residual=True, rounding=rounding)
        shapes = plain.input_shape, plain.output_shape
        given, result = shapes if direction == "fwd" else reversed(shapes)
        channels = plain.k if direction == "fwd" else plain.c
        x, w, residual = whole(given, 1), whole(plain.weight_shape, 2), whole(result, 3)
        numbers = numpy.stack([whole(channels, 4), whole(channels, 5) / 2, whole(channels, 6) / 4])
        numbers[1, 0] = 0  # a Snake that changes nothing
        run = convtune.run if direction == "fwd" else convtune.backward_data

        def of(problem, bias, out=None):
            conv = planned(problem)
            return run(conv, x, convtune.pack(conv, w, bias), out=out, residual=residual)

        sums = of(plain, numbers[0])
        alpha, scale = (row.reshape((-1, 1, 1) if layout == "nchw" else -1) for row in numbers[1:])
        snaked = sums + scale * numpy.sin(alpha.astype(float) * sums) ** 2
        numpy.testing.assert_allclose(of(plain.replace(snake="after"), numbers), snaked, rtol=1e-6, atol=1e-6)
        both = of(plain.replace(snake="beside"), numbers)
        numpy.testing.assert_array_equal(both[:2], sums)
        numpy.testing.assert_allclose(both[2:], snaked, rtol=1e-6, atol=1e-6)
        beside = planned(plain.replace(snake="beside"))
        with pytest.raises(convtune.InvalidArgument, match=rf"must be \(3, {channels}\): biases, alphas and scales"):
            convtune.pack(beside, w, numbers[0])
        with pytest.raises(convtune.InvalidArgument, match=r"out has the shape .*must be \(4, "):
            of(beside.problem, numbers, out=numpy.empty_like(sums))
        of_sums = planned(plain)
        with pytest.raises(convtune.InvalidArgument, match=r"bias has the shape \(3, "):
            convtune.pack(of_sums, w, numbers)
        with pytest.raises(convtune.InvalidArgument, match="the weights were packed for"):
            run(beside, x, convtune.pack(of_sums, w, numbers[0]), residual=residual)


def test_types_that_are_mixed():
    problem = PROBLEM.replace(dtype="f16:f32:f32:f16")
    conv = planned(problem)
    x, w, bias = (
        whole(problem.input_shape, 1, numpy.float16),
        whole(problem.weight_shape, 2),
        whole(6, 3, numpy.float16),
    )
    y = convtune.run(conv, x, convtune.pack(conv, w, bias))
    assert y.dtype == numpy.float32
    expected = reference.conv2d(x, w, bias, (2, 1), (1, 0, 2, 1), (1, 2), 2)
    numpy.testing.assert_array_equal(y, expected)
    with pytest.raises(convtune.InvalidArgument, match=r"x is float32 .*must be float16"):
        convtune.run(conv, x.astype(numpy.float32), convtune.pack(conv, w, bias))
    with pytest.raises(convtune.InvalidArgument, match=r"bias is float32 .*must be float16"):
        convtune.pack(conv, w, bias.astype(numpy.float32))


def test_bfloat16_without_ml_dtypes(monkeypatch):
    class Foreign:
        """An array of bfloat16 of a library with DLPack, made of one of uint16."""

        def __init__(self, shape):
            self.memory = numpy.zeros(shape, numpy.uint16)

        def __dlpack_device__(self):
            return 1, 0

        def __dlpack__(self, **_):
            from convtune import dlpack

            capsule = self.memory.__dlpack__()
            pointer = dlpack._get_pointer(capsule, b"dltensor")
            dlpack._DLTensor.from_address(pointer).code = 4
            return capsule

    x, w = Foreign((1, 1, 3, 3)), Foreign((1, 1, 3, 3))
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(convtune.Unsupported, match="where ml_dtypes is installed"):
        convtune.conv2d(x, w)


def test_each_wrong_tensor_by_its_name():
    x, w, dy = (
        whole(shape, i) for i, shape in enumerate((PROBLEM.input_shape, PROBLEM.weight_shape, PROBLEM.output_shape))
    )
    y = dy.copy()
    fwd = planned(PROBLEM)
    added, data, weight = (
        planned(PROBLEM.replace(**how))
        for how in (dict(residual=True), dict(direction="bwd_d", bias=False), dict(direction="bwd_w"))
    )
    bias = whole(6, 1)
    packed = {conv: convtune.pack(conv, w, bias if conv.problem.bias else None) for conv in (fwd, added, data)}
    run, backward_data, backward_weights = convtune.run, convtune.backward_data, convtune.backward_weights
    for call, words in [
        (lambda: run(fwd, x, packed[fwd], residual=y), "has no residual, and residual is a ndarray"),
        (lambda: run(added, x, packed[added]), "has a residual, and residual is None"),
        (lambda: run(added, x, packed[added], residual=y[:1]), r"residual has the shape \(1, 6, 5, 7\)"),
        (lambda: run(added, x, packed[added], residual=y.astype(float)), "residual is float64"),
        (lambda: run(added, x, packed[added], out=y, residual=y[...]), "out shares memory with residual"),
        (lambda: run(data, dy, packed[data]), "computes dx: convtune.backward_data"),
        (lambda: run(weight, x, None), "computes dw: convtune.backward_weights"),
        (lambda: backward_data(fwd, dy, packed[fwd]), "computes y: convtune.run"),
        (lambda: backward_data(data, x, packed[data]), "dy has the shape"),
        (lambda: backward_data(data, dy, w), r"weights are a ndarray; convtune.pack"),
        (lambda: backward_data(data, dy, packed[fwd]), "packed for"),
        (lambda: backward_data(data, dy, packed[data], out=dy), "out has the shape"),
        (lambda: backward_weights(weight, dy, dy), "x has the shape"),
        (lambda: backward_weights(weight, x, x), "dy has the shape"),
        (lambda: backward_weights(weight, x, dy, out=x), "out has the shape"),
        (lambda: backward_weights(weight, x, dy, out_bias=whole(5, 1)), "out_bias has the shape"),
        (lambda: backward_weights(data, x, dy), "computes dx"),
        (lambda: convtune.pack(weight, w, bias), "reads no weights"),
        (lambda: convtune.pack(data, w, bias), "has no bias, and bias is a ndarray"),
        (
            lambda: convtune.conv2d(x, w, bias, groups=2, residual=y),
            r"residual has the shape .* it must be \(2, 6, 7, 7\)",
        ),
    ]:
        with pytest.raises(convtune.InvalidArgument, match=words):
            call()
    without = planned(PROBLEM.replace(direction="bwd_w", bias=False))
    with pytest.raises(convtune.InvalidArgument, match="has no bias, and out_bias is a ndarray"):
        backward_weights(without, x, dy, out_bias=bias)


def test_plain_addresses():
    conv = planned(Problem(1, 1, 1, 3, 1, 1, 2, residual=True, activation="clip:0:175"))
    x, w, bias, residual = (numpy.array(v, numpy.float32) for v in ([1, 2, 3], [10, 20], [100], [-1000, 1]))
    packed = convtune.memory.HostMemory(conv.packed_bytes)
    y = numpy.empty(2, numpy.float32)
    conv.pack_raw(w.ctypes.data, bias.ctypes.data, packed.pointer)
    conv.run_tensors_raw(x=x.ctypes.data, residual=residual.ctypes.data, y=y.ctypes.data, packed=packed.pointer)
    assert y.tolist() == [0, 175]
    for left_out, words in itertools.product(["x", "residual", "y", "packed"], [" is null"]):
        all_of_them = dict(x=x.ctypes.data, residual=residual.ctypes.data, y=y.ctypes.data, packed=packed.pointer)
        del all_of_them[left_out]
        with pytest.raises(convtune.InvalidArgument, match=left_out + words):
            conv.run_tensors_raw(**all_of_them)
    with pytest.raises(convtune.InvalidArgument, match="residual is null"):
        conv.run_raw(x.ctypes.data, packed.pointer, y.ctypes.data)


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_tensors_with_a_single_plane(layout):
    """3-D code that meets a depth of 1: the same numbers, a dimension more."""
    at = 2 if layout == "nchw" else 1
    random = numpy.random.default_rng(5)

    def drawn(shape):
        return random.standard_normal(shape, numpy.float32)

    def planned(**more):
        return convtune.plan(convtune.Problem(2, 4, 8, 9, 6, 3, 3, d=1, t=1, stride=(1, 1, 2), layout=layout, **more))

    conv, added = planned(), planned(residual=True)
    x, w, bias, z = (drawn(shape) for shape in (conv.problem.input_shape, (6, 4, 3, 3), (6,), conv.output_shape))
    flat = convtune.pack(conv, w, bias)
    deep = convtune.pack(conv, w[:, :, None], bias)
    y = convtune.run(conv, x, flat)
    cube = convtune.run(conv, numpy.expand_dims(x, at), deep)
    assert cube.shape == numpy.expand_dims(y, at).shape and numpy.array_equal(cube.squeeze(at), y)
    out = numpy.empty_like(cube)
    sum = convtune.run(added, numpy.expand_dims(x, at), convtune.pack(added, w[:, :, None], bias), out, z)
    assert sum is out and numpy.allclose(sum.squeeze(at), y + z, atol=1e-5)
    with pytest.raises(convtune.InvalidArgument, match="out has the shape"):
        convtune.run(conv, x, flat, out=out)

    gradient, of_x, of_w = drawn(conv.output_shape), planned(direction="bwd_d"), planned(direction="bwd_w")
    weights = convtune.pack(of_x, w)
    dx, deep_dx = (convtune.backward_data(of_x, dy, weights) for dy in (gradient, numpy.expand_dims(gradient, at)))
    assert numpy.array_equal(numpy.expand_dims(dx, at), deep_dx)
    dw, dbias = convtune.backward_weights(of_w, x, gradient)
    deep_dw, deep_dbias = convtune.backward_weights(of_w, numpy.expand_dims(x, at), numpy.expand_dims(gradient, at))
    assert numpy.array_equal(dw[:, :, None], deep_dw) and numpy.array_equal(dbias, deep_dbias)
    with pytest.raises(convtune.InvalidArgument, match="w has the shape"):
        convtune.pack(conv, w[:, None])
