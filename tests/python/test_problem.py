"""Problem: its text goes both ways, it is a value, and a wrong one says which number is wrong."""

import pickle

import convtune
import pytest
from convtune import Problem


@pytest.mark.parametrize("text", [
    "mb1ic3ih224oc96kh11sh4ph2",
    'mb1ic3ih224oc96kh11sh4ph2n"alexnet"',
    'ic3ih9iw8oc4kh3kw2n"a b" precision=tf32 act=relu bias=0 pad_bottom=1 pad_right=0',
    "g4mb0ic8ih5oc12kh2dh1dw3 layout=nhwc dtype=bf16",
    "alexnet_conv1",
    "mb1ic4id6ih8iw9oc6kd2kh3kw3sd2pd1ph1dd1 layout=nhwc dtype=bf16:bf16:f32 act=clip:-1:6 residual=1 pad_back=3",
    "ic3id1ih9iw9oc4kd1kh3kw3pd1",
    "mb1ic3ih9oc4kh3 act=leaky_relu:0.01 rounding=eager dtype=f16:f16:f16:f32",
    "mb1ic3ih9oc4kh3 act=clip:-inf:0.333333343",
    "mb1ic3ih9oc4kh3 dir=bwd_d",
    "mb1ic3ih9oc4kh3 dir=bwd_w bias=0",
    "mb1ic3ih9oc4kh3 --dt=bf16 --dir=FWD_D --attr-post-ops=sum+swish:1",
])  # fmt: skip
def test_text_goes_both_ways(text):
    problem = Problem.parse(text)
    again = Problem.parse(str(problem))
    assert again == problem and again.name == problem.name and str(again) == str(problem)
    assert Problem.parse(problem.key) == problem and Problem.parse(problem.key).name == ""


def test_the_letters_are_understood():
    problem = Problem.parse('g2mb3ic4ih10iw9oc6kh3kw2sh2sw1ph1pw0dh0dw1n"x" precision=tf32 act=relu bias=0 pad_right=2')
    assert (problem.n, problem.c, problem.h, problem.w) == (3, 4, 10, 9)
    assert (problem.k, problem.r, problem.s, problem.groups) == (6, 3, 2, 2)
    assert problem.stride == (2, 1) and problem.dilation == (1, 2) and problem.padding == (1, 0, 1, 2)
    assert (problem.precision, problem.activation, problem.bias, problem.name) == ("tf32", "relu", False, "x")
    assert problem.input_shape == (3, 4, 10, 9) and problem.weight_shape == (6, 2, 3, 2)
    assert problem.output_shape == (3, 6, 5, 9)
    assert problem.flops == 2 * 3 * 6 * 5 * 9 * 2 * 3 * 2
    assert problem.bytes == 4 * (3 * 4 * 90 + 6 * 2 * 6 + 3 * 6 * 45)


@pytest.mark.parametrize("text, key, name", [
    ("mb1ic3iw16oc8kw3pw1nconv_1d*5", "mb1ic3ih1iw16oc8kh1kw3ph0pw1", "conv_1d*5"),
    ('mb1_ic3oc4_id1od1kd1_ih8oh8kh3_iw8ow8kw3_n"a b" act=relu', "mb1ic3ih8oc4kh3ph1 act=relu", "a b"),
    ("ic3ih300oc4oh150kh3sh2n", "ic3ih300oc4kh3sh2 pad_bottom=1 pad_right=1", ""),
    ("ic3ih8oc4kh3n" + "x" * 600, "ic3ih8oc4kh3", "x" * 600),
])  # fmt: skip
def test_benchdnns_lines(text, key, name):
    problem = Problem.parse(text)
    assert (problem.key, problem.name) == (key, name)
    assert Problem.parse(str(problem)) == problem and Problem.parse(str(problem)).name == name


def test_a_depth_is_understood():
    problem = Problem.parse("mb1g2ic4id6ih8iw9oc6kd2kh3kw3sd2pd1ph1dd1 dtype=bf16:bf16:f32 residual=1 pad_back=3")
    assert problem.has_depth and (problem.d, problem.t) == (6, 2)
    assert problem.stride == (2, 1, 1) and problem.dilation == (2, 1, 1) and problem.padding == (1, 1, 0, 3, 1, 0)
    assert problem.output_size == (4, 8, 7) and problem.dtypes == ("bf16", "bf16", "f32", "bf16")
    assert problem.input_shape == (1, 4, 6, 8, 9) and problem.weight_shape == (6, 2, 2, 3, 3)
    assert problem.output_shape == (1, 6, 4, 8, 7)
    assert problem.replace(layout="nhwc").input_shape == (1, 6, 8, 9, 4)
    assert problem.flops == 2 * 6 * 4 * 8 * 7 * 2 * 2 * 3 * 3
    # With strides and steps of 2 only every second plane is read.
    assert problem.bytes == 2 * (4 * 3 * 8 * 9 + 6 * 2 * 2 * 9 + 6) + 4 * 2 * (6 * 4 * 8 * 7)
    assert eval(repr(problem)) == problem


def test_a_depth_is_said():
    cube = Problem(1, 3, 9, 9, 4, 3, 3, d=9, t=3, stride=2, padding=1)
    assert cube == Problem.parse("mb1ic3id9oc4kd3sd2pd1")
    assert cube == Problem(1, 3, 9, 9, 4, 3, 3, d=9, t=3, stride=(2, 2, 2), padding=(1, 1, 1))
    same = Problem(1, 3, 9, 7, 4, 4, 3, d=5, t=2, padding="same")
    assert same.padding == (0, 1, 1, 1, 2, 1) and same.output_size == (5, 9, 7)
    assert Problem(1, 3, 9, 9, 4, 3, 3, d=9, t=3, padding="valid").output_size == (7, 7, 7)
    # One plane without padding is none, however it is said; with padding it is one.
    flat = Problem(1, 3, 9, 9, 4, 3, 3, stride=(1, 2, 2), padding=(0, 1, 2, 0, 3, 4))
    assert flat == Problem(1, 3, 9, 9, 4, 3, 3, stride=2, padding=(1, 2, 3, 4)) and not flat.has_depth
    assert flat.stride == (2, 2) and flat.output_shape == (1, 4, 6, 7)
    assert Problem(1, 3, 9, 9, 4, 3, 3, padding=(1, 0, 0, 1, 0, 0)).output_size == (3, 7, 7)
    assert Problem(1, 3, 9, 9, 4, 3, 3, padding=(1, 0, 0)).output_size == (3, 7, 7)


@pytest.mark.parametrize("three", [dict(stride=(1, 2, 3)), dict(stride=[2, 1, 1]), dict(dilation=(3, 1, 2)),
                                   dict(padding=(0, 1, 2)), dict(stride=(2, 2, 2), dilation=(2, 2, 2), padding=(0, 1, 1))])  # fmt: skip
def test_three_numbers_of_a_single_plane(three):
    two = {name: tuple(numbers)[1:] for name, numbers in three.items()}
    assert Problem(1, 3, 9, 9, 4, 3, 3, d=1, t=1, **three) == Problem(1, 3, 9, 9, 4, 3, 3, **two)


def test_words_have_one_form():
    def asked(**words):
        return Problem(1, 3, 9, 9, 4, 3, 3, **words)

    assert asked(activation="clip:0:6.0") == asked(activation="clip:-0:6")
    assert asked(activation="leaky_relu:1e-2").activation == "leaky_relu:0.01"
    assert asked(activation="clip:-inf:1e30").activation == "clip:-inf:1e+30"
    assert (
        asked(dtype="bf16:bf16:bf16:bf16").dtype == "bf16" and asked(dtype="f16:bf16:f32:bf16").dtype == "f16:bf16:f32"
    )
    assert asked(direction="bwd_d").bias is False and asked(direction="bwd_w").bias is True
    assert asked(residual=1).residual is True and asked(rounding="eager") != asked()


def test_the_case_has_its_name():
    problem = Problem.parse("alexnet_conv1")
    assert problem.name == "alexnet_conv1" and (problem.n, problem.k, problem.stride) == (256, 96, (4, 4))


def test_paddings():
    assert Problem(1, 3, 9, 9, 4, 3, 3, padding=2).padding == (2, 2, 2, 2)
    assert Problem(1, 3, 9, 9, 4, 3, 3, padding=(1, 2)).padding == (1, 2, 1, 2)
    assert Problem(1, 3, 9, 9, 4, 3, 3, padding=(0, 1, 2, 3)).padding == (0, 1, 2, 3)
    same = Problem(1, 3, 9, 7, 4, 4, 2, padding="same", dilation=(1, 3))
    assert same.padding == (1, 1, 2, 2) and same.output_shape == (1, 4, 9, 7)


def test_nhwc_shapes():
    problem = Problem(2, 3, 9, 8, 4, 3, 3, layout="nhwc")
    assert problem.input_shape == (2, 9, 8, 3) and problem.output_shape == (2, 7, 6, 4)


def test_it_is_a_value():
    a = Problem(1, 3, 9, 9, 4, 3, 3, stride=2, name="a")
    b = Problem(1, 3, 9, 9, 4, 3, 3, stride=(2, 2), name="b")
    assert a == b and hash(a) == hash(b) and a != a.replace(n=2)
    assert pickle.loads(pickle.dumps(a)) == a and pickle.loads(pickle.dumps(a)).name == "a"
    with pytest.raises(AttributeError):
        a.n = 3
    assert eval(repr(a)) == a


@pytest.mark.parametrize("changes, words", [
    (dict(n=-1), "n (mb) is -1"),
    (dict(c=0), "c (ic) is 0"),
    (dict(c=2**70), "64 bits"),
    (dict(n=1.5), "1.5"),
    (dict(n=True), "True"),
    (dict(groups=2), "must divide c (ic), which is 3"),
    (dict(stride=0), "stride_h (sh) is 0"),
    (dict(stride=(1, 2, 3, 4)), "two (vertical, horizontal), not (1, 2, 3, 4)"),
    (dict(stride=(0, 2, 3)), "stride_d (sd) is 0"),
    (dict(stride=(1, 2, 3), padding=(1, 2)), "six (front, top, left, back, bottom, right)"),
    (dict(dilation=(1, 0)), "dilation_w (dw + 1) is 0"),
    (dict(padding=-1), "pad_top (ph) is -1"),
    (dict(padding=(1, 2, 3, 4, 5)), "(1, 2, 3, 4, 5)"),
    (dict(padding="some"), "'some'"),
    (dict(padding="same", stride=2), "stride 1, not 2 x 2"),
    (dict(r=10), "r (kh) 10 at dilation_h (dh + 1) 1 spans more than h (ih) 9"),
    (dict(n=2**40, c=2**20), "too large"),
    (dict(precision="fp8"), "'fp8'; it is one of auto, fp32, tf32, fp16, bf16"),
    (dict(activation="gelu"), "'gelu'"),
    (dict(dtype="f64"), "'f64'"),
    (dict(layout="chwn"), "'chwn'"),
    (dict(dtype="f32:f32"), "x:w:y or x:w:y:bias"),
    (dict(dtype="f32:f32:f64"), "'f64'"),
    (dict(activation=3), "activation is 3"),
    (dict(activation="clip"), "it must be clip:LOW:HIGH"),
    (dict(activation="clip:6:0"), "clip's bounds are 6 and 0"),
    (dict(activation="relu:1"), "it must be relu"),
    (dict(activation="leaky_relu:nan"), "leaky_relu:SLOPE has one parameter, a finite number"),
    (dict(direction="bwd"), "'bwd'"),
    (dict(direction="bwd_w", activation="relu"), "no activation"),
    (dict(direction="bwd_w", residual=True), "no residual"),
    (dict(rounding="twice"), "'twice'"),
    (dict(d=0), "d (id) is 0"),
    (dict(t=2), "the output has no depth"),
    (dict(d=4, t=2, stride=(1, 2)), "three (depth, vertical, horizontal), not (1, 2)"),
    (dict(d=4, t=2, padding=(1, 2, 3, 4)), "six (front, top, left, back, bottom, right)"),
    (dict(d=4, t=2, padding="same", stride=(2, 1, 1)), "stride 1, not 2 x 1 x 1"),
    (dict(name='a"b'), "double quote"),
])  # fmt: skip
def test_a_wrong_one_says_what_is_wrong(changes, words):
    with pytest.raises(convtune.InvalidArgument) as caught:
        Problem(**{**dict(n=1, c=3, h=9, w=9, k=4, r=3, s=3), **changes})
    assert words in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, convtune.Error)


@pytest.mark.parametrize("text", ["", "  ", "nosuchcase", "ic3", "mb1ic3ih9oc4kh3 act=gelu", "ic3ih\0", "ic3ih9oc4kh30"])
def test_a_wrong_text_says_so(text):
    with pytest.raises(convtune.InvalidArgument):
        Problem.parse(text)
