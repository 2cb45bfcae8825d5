"""convtune.conv3d on NumPy's arrays and those of DLPack, beside sums in double precision."""

import numpy
import pytest

import convtune


def exact(x, w, bias=None, stride=(1, 1, 1), padding=(0,) * 6, dilation=(1, 1, 1), groups=1):
    x = numpy.pad(x.astype("float64"), [(0, 0), (0, 0), *zip(padding[:3], padding[3:])])
    (n, c), (k, of_group), taps = x.shape[:2], w.shape[:2], w.shape[2:]
    output = [(x.shape[2 + i] - dilation[i] * (taps[i] - 1) - 1) // stride[i] + 1 for i in range(3)]
    y = numpy.zeros((n, k, *output))
    for tap in numpy.ndindex(*taps):
        at = [slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilation, output, stride)]
        seen = x[(slice(None), slice(None), *at)].reshape(n, groups, of_group, *output)
        filters = w[(..., *tap)].astype("float64").reshape(groups, k // groups, of_group)
        y += numpy.einsum("ngcdhw,gkc->ngkdhw", seen, filters).reshape(y.shape)
    return y if bias is None else y + bias.reshape(-1, 1, 1, 1)


def arrays(x=(2, 4, 4, 7, 6), k=6, taps=(3, 3, 3), groups=1):
    random = numpy.random.default_rng(0)
    return [random.uniform(-1, 1, of).astype("float32") for of in (x, (k, x[1] // groups, *taps), (k,))]


@pytest.mark.parametrize(
    "taps, stride, padding, dilation, groups, edges",
    [
        ((3, 3, 3), 1, 1, 1, 1, (1,) * 6),
        ((3, 3, 3), 1, (2, 1, 1, 0, 1, 1), 1, 1, (2, 1, 1, 0, 1, 1)),
        ((1, 3, 3), (1, 2, 2), (0, 1, 1), 1, 2, (0, 1, 1, 0, 1, 1)),
        ((3, 1, 1), 1, "same", 1, 1, (1, 0, 0, 1, 0, 0)),
        ((2, 2, 3), 1, "same", (1, 1, 2), 1, (0, 0, 2, 1, 1, 2)),
        ((1, 1, 1), 2, "valid", 1, 1, (0,) * 6),
    ],
    ids=str,
)
def test_it_computes_the_sum(taps, stride, padding, dilation, groups, edges):
    x, w, bias = arrays(taps=taps, groups=groups)
    steps, holes = (one if isinstance(one, tuple) else (one,) * 3 for one in (stride, dilation))
    expected = exact(x, w, bias, steps, edges, holes, groups)
    y = convtune.conv3d(x, w, bias, stride, padding, dilation, groups)
    assert y.shape == expected.shape and y.dtype == "float32"
    numpy.testing.assert_allclose(y, expected, atol=1e-4)
    assert convtune.plan(x, w, bias, stride, padding, dilation, groups).problem.weight_shape[0] == 6


def test_a_single_plane_keeps_its_axis():
    x, w, bias = arrays((2, 4, 1, 7, 6), taps=(1, 3, 3))
    added = numpy.ones((2, 6, 1, 5, 4), "float32")
    y = convtune.conv3d(x, w, bias, activation="relu", residual=added)
    numpy.testing.assert_allclose(y, numpy.maximum(exact(x, w, bias) + added, 0), atol=1e-4)
    assert convtune.conv3d(x[:0], w, bias).shape == (0, 6, 1, 5, 4)


@pytest.mark.parametrize(
    "wrong, words",
    [
        (dict(x=(4, 4, 7, 6)), r"x has the shape \(4, 4, 7, 6\); it must be \(N, C, D, H, W\); x\[None\] adds"),
        (dict(w=(6, 4, 3, 3)), r"w has the shape \(6, 4, 3, 3\); it must be \(K, C/groups, T, R, S\)"),
        (dict(w=(6, 3, 3, 3, 3)), "x has 4 channels, but w has 3 for each of 1 groups"),
        (dict(stride=(1, 2)), r"stride takes a number or three \(depth, vertical, horizontal\), not \(1, 2\)"),
        (dict(padding=(1, 1, 1, 1)), "padding takes a number, three .* six"),
        (dict(padding="same", stride=2), "needs stride 1, not 2 x 2 x 2"),
        (dict(w=(6, 4, 5, 3, 3)), "5"),
        (dict(bias=(5,)), r"bias has the shape \(5,\); it must be \(6,\)"),
        (dict(residual=(2, 6, 2, 5, 5)), r"residual has the shape \(2, 6, 2, 5, 5\); it must be \(2, 6, 2, 5, 4\)"),
    ],
    ids=str,
)
def test_what_is_wrong_is_named(wrong, words):
    x, w, bias = arrays()
    said = dict(x=x, w=w, bias=bias)
    for name, value in wrong.items():
        said[name] = numpy.ones(value, "float32") if name in ("x", "w", "bias", "residual") else value
    with pytest.raises(convtune.InvalidArgument, match=words) as raised:
        convtune.conv3d(**said)
    assert isinstance(raised.value, ValueError)


def test_jax_arrays():
    jax = pytest.importorskip("jax", reason="JAX is not installed here")
    x, w, bias = arrays()
    y = convtune.conv3d(*map(jax.numpy.asarray, (x, w, bias)))
    assert isinstance(y, jax.Array)
    numpy.testing.assert_allclose(numpy.asarray(y), exact(x, w, bias), atol=1e-4)
