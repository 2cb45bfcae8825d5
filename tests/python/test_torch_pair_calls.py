"""The operator of a residual step, its texts and plans, and the step as a call."""

import pytest
from torch_pairs import Pair, Snake, kernels, rows  # noqa: F401  (a fixture)
from torch_support import assert_near, torch

import convtune
from convtune.pair import Pair as own_pair
from convtune.pair import PairProblem
from convtune.torch import pairs
from convtune.torch.pairs import pair1d_packed, residual_pair1d

functional = torch.nn.functional
pytestmark = pytest.mark.usefixtures("afresh", "kernels")


def test_the_operator():
    problem = PairProblem(2, 8, 40, 3, 2, 5, "bf16", 0.1)
    plan = pairs.pair_line(Pair(problem, "cpu"))
    assert pairs.pair_of(plan)[1] == problem and PairProblem.parse(str(problem)) == problem
    x = rows()
    weights = [rows(8, 8, 3), rows(8), rows(8, 8, 5), None]
    packed = pairs.pack_pair(plan, x, weights, [])
    torch.library.opcheck(pair1d_packed, (x.transpose(1, 2).contiguous().transpose(1, 2), packed, plan),
                          test_utils=("test_schema", "test_faketensor"))  # fmt: skip
    for wrong in ((x[:1], packed, plan), (x.half(), packed, plan), (x, packed[:8], plan), (x, packed, "plan"),
                  (x, packed, "another device" + plan[plan.index("\t") :])):  # fmt: skip
        with pytest.raises(convtune.InvalidArgument):
            pair1d_packed(*wrong)
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        pair1d_packed(x, packed, plan)
    assert counter.get_total_flops() == 2 * 2 * 40 * 64 * 8 == problem.flops


@pytest.mark.parametrize("wrong", [dict(c=0), dict(first_taps=4), dict(second_taps=2), dict(dtype="f32"), dict(dilation=0)])
def test_wrong_pairs(wrong):
    with pytest.raises(convtune.InvalidArgument):
        PairProblem(**{"n": 1, "c": 8, "t": 9, "first_taps": 3, "dilation": 1, "second_taps": 3, "dtype": "f16", "slope": 0.1, **wrong})


@pytest.mark.parametrize("text", ["", "pair n1", "pair n1c8t9k3d1k3 dtype=bf16 act=tanh", "pair n1c8t9k2d1k3 dtype=bf16 act=snake"])
def test_wrong_texts_of_pairs(text):
    with pytest.raises(convtune.InvalidArgument):
        PairProblem.parse(text)


@pytest.mark.parametrize("slope", [0.1, None])
def test_the_library_has_none_for_cpus(slope):
    with pytest.raises(convtune.Unsupported):
        own_pair(PairProblem(1, 32, 64, 3, 1, 3, "bf16", slope), "cpu")
    with pytest.raises(convtune.Error):
        own_pair(PairProblem(1, 32, 64, 3, 1, 3, "bf16", slope), "cuda:77")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", ["leaky", "snake"])
def test_a_step_as_a_call(dtype, kind):
    x, first, second, bias = (rows(*shape, dtype=dtype) for shape in ((2, 8, 40), (8, 8, 3), (8, 8, 5), (8,)))
    alpha, scale = (rows(8, dtype=torch.float32) + 1.5 for _ in range(2))

    def act(value):
        return functional.leaky_relu(value, 0.1) if kind == "leaky" else value + scale[:, None] * (alpha[:, None] * value).sin().square()

    wide = [one.double() for one in (x, first, second, bias)]
    exact = functional.conv1d(act(wide[0]), wide[1], wide[3], padding=4, dilation=4)
    exact = wide[0] + functional.conv1d(act(exact), wide[2], None, padding=2)
    how = {"slope": 0.1} if kind == "leaky" else {"first_snake": (alpha, scale), "second_snake": (alpha, scale)}
    y = convtune.residual_pair1d(x, first, second, bias, dilation=4, **how)
    assert y.dtype is dtype and y.shape == x.shape
    if dtype is torch.float32:
        assert_near(y, exact)
    else:
        assert float((y.double() - exact).norm() / exact.norm()) < 0.02


def test_a_call_records_gradients():
    x, first, second = (rows(*shape, dtype=torch.float32).requires_grad_() for shape in ((1, 8, 12), (8, 8, 3), (8, 8, 1)))
    residual_pair1d(x, first, second, slope=0.1).sum().backward()
    assert all(one.grad is not None and one.grad.abs().sum() > 0 for one in (x, first, second))


@pytest.mark.parametrize("wrong", [
    dict(x=[1]), dict(x=rows(8, 40)), dict(first=rows(8, 8, 4)), dict(second=rows(8, 4, 3)), dict(first_bias=rows(7)), dict(dilation=0),
    dict(dilation=True), dict(slope=None), dict(first_snake=(rows(8), rows(8))), dict(slope=None, first_snake=(rows(8), rows(8))),
    dict(slope=None, first_snake=(rows(8), rows(7)), second_snake=(rows(8), rows(8))), dict(second=rows(8, 8, 3).float()),
])  # fmt: skip
def test_wrong_calls(wrong):
    with pytest.raises(convtune.InvalidArgument):
        residual_pair1d(**{"x": rows(), "first": rows(8, 8, 3), "second": rows(8, 8, 3), "slope": 0.1, **wrong})


def test_snakes_of_modules_are_as_written():
    x = rows(1, 8, 5, dtype=torch.float64)
    with torch.no_grad():
        for way in ("div", "dac", "product"):
            assert torch.allclose(Snake(8, way).double()(x), Snake(8).double()(x), atol=1e-8)
