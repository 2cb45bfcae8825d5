"""Problem: its text goes both ways, it is a value, and a wrong one says which number is wrong."""

import pickle

import convtune
import pytest
from convtune import Problem


@pytest.mark.parametrize(
    "text",
    [
        "mb1ic3ih224oc96kh11sh4ph2",
        'mb1ic3ih224oc96kh11sh4ph2n"alexnet"',
        'ic3ih9iw8oc4kh3kw2n"a b" precision=tf32 act=relu bias=0 pad_bottom=1 pad_right=0',
        "g4mb0ic8ih5oc12kh2dh1dw3 layout=nhwc dtype=bf16",
        "alexnet_conv1",
    ],
)
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


@pytest.mark.parametrize(
    "text, key, name",
    [
        ("mb1ic3iw16oc8kw3pw1nconv_1d*5", "mb1ic3ih1iw16oc8kh1kw3ph0pw1", "conv_1d*5"),
        ("mb1_ic3oc4_id1od1kd1_ih8oh8kh3_iw8ow8kw3_n\"a b\" act=relu", "mb1ic3ih8oc4kh3ph1 act=relu", "a b"),
        ("ic3ih300oc4oh150kh3sh2n", "ic3ih300oc4kh3sh2 pad_bottom=1 pad_right=1", ""),
        ("ic3ih8oc4kh3n" + "x" * 600, "ic3ih8oc4kh3", "x" * 600),
    ],
)
def test_benchdnns_lines(text, key, name):
    problem = Problem.parse(text)
    assert (problem.key, problem.name) == (key, name)
    assert Problem.parse(str(problem)) == problem and Problem.parse(str(problem)).name == name


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


@pytest.mark.parametrize(
    "changes, words",
    [
        (dict(n=-1), "n (mb) is -1"),
        (dict(c=0), "c (ic) is 0"),
        (dict(c=2**70), "64 bits"),
        (dict(n=1.5), "1.5"),
        (dict(n=True), "True"),
        (dict(groups=2), "must divide c (ic), which is 3"),
        (dict(stride=0), "stride_h (sh) is 0"),
        (dict(stride=(1, 2, 3)), "(1, 2, 3)"),
        (dict(dilation=(1, 0)), "dilation_w (dw + 1) is 0"),
        (dict(padding=-1), "pad_top (ph) is -1"),
        (dict(padding=(1, 2, 3)), "(1, 2, 3)"),
        (dict(padding="some"), "'some'"),
        (dict(padding="same", stride=2), "stride 1, not 2 x 2"),
        (dict(r=10), "r (kh) 10 at dilation_h (dh + 1) 1 spans more than h (ih) 9"),
        (dict(n=2**40, c=2**20), "too large"),
        (dict(precision="fp8"), "'fp8'; it is one of auto, fp32, tf32, fp16, bf16"),
        (dict(activation="gelu"), "'gelu'"),
        (dict(dtype="f64"), "'f64'"),
        (dict(layout="chwn"), "'chwn'"),
        (dict(name='a"b'), "double quote"),
    ],
)
def test_a_wrong_one_says_what_is_wrong(changes, words):
    with pytest.raises(convtune.InvalidArgument) as caught:
        Problem(**{**dict(n=1, c=3, h=9, w=9, k=4, r=3, s=3), **changes})
    assert words in str(caught.value)
    assert isinstance(caught.value, ValueError) and isinstance(caught.value, convtune.Error)


@pytest.mark.parametrize(
    "text", ["", "  ", "nosuchcase", "ic3", "mb1ic3ih9oc4kh3 act=gelu", "ic3ih\0", "ic3ih9oc4kh30"]
)
def test_a_wrong_text_says_so(text):
    with pytest.raises(convtune.InvalidArgument):
        Problem.parse(text)
