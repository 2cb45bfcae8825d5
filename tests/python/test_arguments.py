"""Every wrong input is an exception with the numbers in it, before anything is touched; arrays in any order, read-only
or misaligned, are taken."""

import convtune
import numpy
import pytest
import reference


def zeros(*shape, dtype=numpy.float32):
    return numpy.zeros(shape, dtype)


@pytest.mark.parametrize("arguments, words", [
    ((zeros(1, 3, 8, 8, dtype=float), zeros(4, 3, 3, 3)), ["x is float64 (1, 3, 8, 8)", "float32"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3, dtype=numpy.float16)), ["w is float16 (4, 3, 3, 3)"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3, dtype=">f4")), ["w is float32 of swapped bytes"]),
    ((zeros(1, 3, 8, 8, dtype=int), zeros(4, 3, 3, 3)), ["x is int64"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), zeros(4, dtype=complex)), ["bias is complex128"]),
    ((zeros(3, 8, 8), zeros(4, 3, 3, 3)), ["x has the shape (3, 8, 8)", "(N, C, H, W)"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3)), ["w has the shape (4, 3, 3)", "(K, C/groups, R, S)"]),
    ((zeros(), zeros(4, 3, 3, 3)), ["x has the shape ()"]),
    ((zeros(1, 3, 8, 8), zeros(4, 2, 3, 3)), ["x has 3 channels", "w has 2 for each of 1 groups"]),
    ((zeros(1, 4, 8, 8), zeros(4, 4, 3, 3), None, 1, 0, 1, 2), ["x has 4 channels", "w has 4 for each of 2"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, 1, 0, 1, 2), ["groups (g) is 2", "which is 3"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), zeros(3)), ["bias has the shape (3,)", "(4,)"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), zeros(4, 1)), ["bias has the shape (4, 1)"]),
    ((zeros(1, 3, 0, 8), zeros(4, 3, 3, 3)), ["h (ih) is 0"]),
    ((zeros(1, 0, 8, 8), zeros(4, 0, 3, 3)), ["c (ic) is 0"]),
    ((zeros(1, 3, 8, 8), zeros(0, 3, 3, 3)), ["k (oc) is 0"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 0, 3)), ["r (kh) is 0"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 9, 3)), ["the output has no height", "9", "8"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, 0), ["stride_h (sh) is 0"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, (1, 2, 3)), ["stride", "(1, 2, 3)"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, "2"), ["stride", "'2'"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, {1: 2}), ["stride"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, 1, -1), ["pad_top (ph) is -1"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, 1, "SAME"), ["'SAME'"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, 1, 0, 0), ["dilation_h (dh + 1) is 0"]),
    ((zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), None, 1, 0, 1, 0), ["groups (g) is 0"]),
    (([[1.0]], zeros(4, 3, 3, 3)), ["x: a list is not an array"]),
    ((zeros(1, 3, 8, 8), None), ["w: a NoneType is not an array"]),
    ((None, zeros(4, 3, 3, 3)), ["x: a NoneType is not an array"]),
    ((numpy.ma.zeros((1, 3, 8, 8), numpy.float32), zeros(4, 3, 3, 3)), ["x: a MaskedArray"]),
])  # fmt: skip
def test_wrong_arguments(arguments, words):
    with pytest.raises(convtune.InvalidArgument) as caught:
        convtune.conv2d(*arguments)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    "named, words", [(dict(precision="fp8"), "'fp8'"), (dict(activation="tanh"), "'tanh'"), (dict(activation=3), "3")]
)
def test_wrong_words(named, words):
    with pytest.raises(convtune.InvalidArgument, match=words):
        convtune.conv2d(zeros(1, 3, 8, 8), zeros(4, 3, 3, 3), **named)


def test_an_unknown_device():
    with pytest.raises(convtune.NoDevice, match="cpu"):
        convtune.plan("alexnet_conv1", device="cuda:99")
    with pytest.raises(convtune.InvalidArgument, match="tpu"):
        convtune.plan("alexnet_conv1", device="tpu")
    with pytest.raises(convtune.InvalidArgument, match="3"):
        convtune.plan("alexnet_conv1", device=3)


def test_a_device_by_what_stands_for_it():
    cpu = convtune.devices()[-1]
    conv = convtune.plan("mb1ic3ih8oc4kh3", device=cpu)
    assert conv.device == "cpu" and convtune.plan("mb1ic3ih8oc4kh3", device="cpu") is conv
    assert convtune.Convolution("mb1ic3ih8oc4kh3", cpu).device == "cpu"
    assert convtune.bench("mb1ic3ih8oc4kh3", cpu, seconds=0.05).own is not None


@pytest.mark.parametrize("wrong", [None, 3, b"mb1ic3ih8oc4kh3"])
def test_a_problem_that_is_no_text(wrong):
    with pytest.raises(convtune.InvalidArgument, match=repr(wrong)):
        convtune.Problem.parse(wrong)
    with pytest.raises(convtune.InvalidArgument, match=repr(wrong)):
        convtune.bench(wrong, "cpu")


@pytest.fixture
def planned():
    conv = convtune.plan(convtune.Problem(2, 3, 8, 8, 4, 3, 3))
    return conv, convtune.pack(conv, numpy.ones((4, 3, 3, 3), numpy.float32), zeros(4))


def test_wrong_weights_to_pack(planned):
    conv, _ = planned
    with pytest.raises(convtune.InvalidArgument, match=r"\(4, 3, 3, 2\).*\(4, 3, 3, 3\)"):
        convtune.pack(conv, zeros(4, 3, 3, 2), zeros(4))
    with pytest.raises(convtune.InvalidArgument, match="bias is None"):
        convtune.pack(conv, zeros(4, 3, 3, 3))
    with pytest.raises(convtune.InvalidArgument, match=r"\(5,\)"):
        convtune.pack(conv, zeros(4, 3, 3, 3), zeros(5))


def test_wrong_arguments_to_run(planned):
    conv, packed = planned
    with pytest.raises(convtune.InvalidArgument, match=r"\(1, 3, 8, 8\).*\(2, 3, 8, 8\)"):
        convtune.run(conv, zeros(1, 3, 8, 8), packed)
    with pytest.raises(convtune.InvalidArgument, match="pack"):
        convtune.run(conv, zeros(2, 3, 8, 8), zeros(4, 3, 3, 3))
    other = convtune.plan(convtune.Problem(1, 3, 8, 8, 4, 3, 3))
    with pytest.raises(convtune.InvalidArgument, match="packed for"):
        convtune.run(other, zeros(1, 3, 8, 8), packed)
    x = zeros(2, 3, 8, 8)
    with pytest.raises(convtune.InvalidArgument, match=r"\(2, 4, 6, 5\).*\(2, 4, 6, 6\)"):
        convtune.run(conv, x, packed, out=zeros(2, 4, 6, 5))
    with pytest.raises(convtune.InvalidArgument, match="not contiguous"):
        convtune.run(conv, x, packed, out=zeros(2, 4, 6, 12)[..., ::2])
    with pytest.raises(convtune.InvalidArgument, match="float64"):
        convtune.run(conv, x, packed, out=zeros(2, 4, 6, 6, dtype=float))
    out = zeros(2, 4, 6, 6)
    out.flags.writeable = False
    with pytest.raises(convtune.InvalidArgument, match="read-only"):
        convtune.run(conv, x, packed, out=out)
    block = zeros(374 + 288)
    x, out = block[:384].reshape(2, 3, 8, 8), block[374:].reshape(2, 4, 6, 6)
    with pytest.raises(convtune.InvalidArgument, match="shares memory"):
        convtune.run(conv, x, packed, out=out)


def ordered(random, shape):
    """Equal numbers in other orders of memory."""
    whole = random.standard_normal(shape, numpy.float32)
    yield "plain", whole
    yield "fortran", numpy.asfortranarray(whole)
    yield "channels last", numpy.ascontiguousarray(whole.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2)
    wide = numpy.empty((*shape[:3], 2 * shape[3]), numpy.float32)
    wide[..., ::2] = whole
    yield "every second", wide[..., ::2]
    yield "backwards", numpy.ascontiguousarray(whole[::-1, :, ::-1])[::-1, :, ::-1]
    bytes_of = numpy.empty(whole.nbytes + 1, numpy.uint8)
    off = bytes_of[1:].view(numpy.float32).reshape(shape)
    off[...] = whole
    yield "misaligned", off
    fixed = whole.copy()
    fixed.flags.writeable = False
    yield "read-only", fixed
    yield "broadcast", numpy.broadcast_to(whole, shape)


def test_any_order_of_memory():
    random = numpy.random.default_rng(1)
    for name, x in ordered(random, (2, 3, 8, 9)):
        for other, w in ordered(random, (4, 3, 3, 2)):
            bias = random.standard_normal(8, numpy.float32)[::2]
            before = x.copy(), w.copy()
            y = convtune.conv2d(x, w, bias, padding=1)
            reference.close(y, reference.conv2d(x, w, bias, padding=(1, 1, 1, 1)), 18)
            assert y.flags.c_contiguous, (name, other)
            assert (x == before[0]).all() and (w == before[1]).all(), (name, other)


def test_an_extent_of_1_has_any_stride():
    x = numpy.lib.stride_tricks.as_strided(numpy.ones(12, numpy.float32), (1, 3, 2, 2), (999, 16, 8, 4))
    assert convtune.conv2d(x, numpy.ones((1, 3, 2, 2), numpy.float32)) == 12
