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


@pytest.fixture
def taken(monkeypatch):
    """The kernel of the CPU in the place of a GPU's: steps that it computed."""
    seen = []

    def pair_for(x, first, second, dilation, slope):
        seen.append(x)
        return Pair(PairProblem(*x.shape, first.shape[2], dilation, second.shape[2], "bf16", slope), "cpu")

    monkeypatch.setattr(pairs, "_pair_for", pair_for)
    monkeypatch.setattr(pairs, "_has_kernels", lambda x: x.dtype is torch.bfloat16)
    return seen


@pytest.mark.parametrize("shape", [(8,), (8, 1), (1, 8, 1)])
@pytest.mark.parametrize("by_kernel", [False, True])
def test_numbers_of_a_snake_in_any_shape(request, shape, by_kernel):
    taken = request.getfixturevalue("taken") if by_kernel else []
    x, first, second = rows(8, 8, 12), rows(8, 8, 3), rows(8, 8, 3)
    flat = [torch.linspace(0.5, 4, 8), torch.linspace(2, 0.5, 8)]
    exact = x.double()
    for weight in (first, second):
        alpha, scale = (one.double()[:, None] for one in flat)
        exact = functional.conv1d(exact + scale * (alpha * exact).sin().square(), weight.double(), padding=1)
    exact = exact + x.double()
    snake = [one.view(shape) for one in flat]
    y = residual_pair1d(x, first, second, first_snake=snake, second_snake=snake)
    assert len(taken) == by_kernel and float((y.double() - exact).norm() / exact.norm()) < 0.05


def test_the_kernel_is_for_ordinary_tensors(taken):
    """Gradients in forward mode, transforms and modes are PyTorch's."""
    from torch.autograd import forward_ad
    from torch.utils.flop_counter import FlopCounterMode

    x, first, second = rows(), rows(8, 8, 3), rows(8, 8, 3)

    def step(x, first=first):
        return residual_pair1d(x, first, second, slope=0.1)

    y = step(x)
    assert len(taken) == 1
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(step(forward_ad.make_dual(x, x))).tangent is not None
    value, tangent = torch.func.jvp(step, (x,), (x,))
    assert tangent.norm() > 0 and torch.allclose(value.float(), y.float(), atol=0.05, rtol=0.05)
    assert torch.vmap(step)(x[:, None]).shape == (2, 1, 8, 40)
    assert torch.func.grad(lambda first: step(x, first).float().sum())(first).norm() > 0
    with FlopCounterMode(display=False) as counter:
        step(x)
    assert counter.get_total_flops() == 2 * 2 * 40 * 64 * 6 and len(taken) == 1
    step(x)
    assert len(taken) == 2


@pytest.mark.parametrize("own, others", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32), (torch.float32, torch.bfloat16)])
@pytest.mark.parametrize("how", ["leaky", "snake"])
def test_a_call_under_autocast(taken, own, others, how):
    x, first, second, bias = rows(dtype=own), *(rows(*shape, dtype=others) for shape in ((8, 8, 3), (8, 8, 3), (8,)))
    snake = rows(8, dtype=torch.float32) + 1.5, rows(8, dtype=torch.float32) + 1.5
    words = {"slope": 0.1} if how == "leaky" else {"first_snake": snake, "second_snake": snake}
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        y = residual_pair1d(x, first, second, bias, **words)
    exact = residual_pair1d(*(one.double() for one in (x, first, second, bias)), **words)
    assert y.dtype is torch.bfloat16 and not taken and float((y.double() - exact).norm() / exact.norm()) < 0.02


@pytest.mark.parametrize("wrong", [
    dict(x=[1]), dict(x=rows(8, 40)), dict(first=rows(8, 8, 4)), dict(second=rows(8, 4, 3)), dict(first_bias=rows(7)), dict(dilation=0),
    dict(dilation=True), dict(slope=None), dict(first_snake=(rows(8), rows(8))), dict(slope=None, first_snake=(rows(8), rows(8))),
    dict(slope=None, first_snake=(rows(8), rows(7)), second_snake=(rows(8), rows(8))), dict(second=rows(8, 8, 3).float()),
    dict(slope="0.1"), dict(slope=True), dict(slope=None, first_snake=1, second_snake=1), dict(slope=None, first_snake=rows(2, 8), second_snake=2),
])  # fmt: skip
def test_wrong_calls(wrong):
    with pytest.raises(convtune.InvalidArgument):
        residual_pair1d(**{"x": rows(), "first": rows(8, 8, 3), "second": rows(8, 8, 3), "slope": 0.1, **wrong})


def test_snakes_of_modules_are_as_written():
    x = rows(1, 8, 5, dtype=torch.float64)
    with torch.no_grad():
        for way in ("div", "dac", "product"):
            assert torch.allclose(Snake(8, way).double()(x), Snake(8).double()(x), atol=1e-8)
