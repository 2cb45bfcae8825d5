"""convtune::conv_backward: each gradient by its own plan or by PyTorch, in both layouts, of one to three axes, transposed or
not; what it gives when it is traced, compiled, checkpointed, scaled and differentiated again."""

import itertools

import pytest
from torch_support import assert_near, each_device, torch

import convtune
import convtune.torch
from convtune.convolution import Convolution
from convtune.errors import InvalidArgument, Unsupported
from convtune.torch.backward import backward_of, conv_backward, gradient_problem, gradients, pytorch_gradients
from convtune.torch.how import How
from convtune.torch.layout import laid, output_last
from convtune.torch.run import choice_line, fingerprint

pytestmark = pytest.mark.usefixtures("exact_products")
MASKS = [mask for mask in itertools.product((False, True), repeat=3) if any(mask)]
CASES = {  # shapes of x and w, then How's arguments
    "3x3": ((2, 8, 9, 7), (6, 8, 3, 3), {"padding": (1, 1, 1, 1)}),
    "stride": ((2, 4, 11, 9), (8, 4, 3, 3), {"stride": (2, 2), "padding": (1, 1, 1, 1)}),
    "uneven": ((1, 4, 8, 8), (4, 4, 3, 2), {"padding": (0, 1, 2, 0)}),
    "dilated": ((2, 4, 9, 9), (4, 4, 3, 3), {"padding": (2, 2, 2, 2), "dilation": (2, 2)}),
    "groups": ((2, 8, 6, 6), (8, 4, 3, 3), {"padding": (1, 1, 1, 1), "groups": 2}),
    "depthwise": ((2, 16, 9, 9), (16, 1, 5, 5), {"padding": (2, 2, 2, 2), "groups": 16}),
    "1x1": ((3, 16, 5, 5), (8, 16, 1, 1), {}),
    "row": ((2, 6, 17), (4, 6, 3), {"stride": (1,), "padding": (1, 1), "dilation": (1,)}),
    "volume": (
        (1, 4, 4, 6, 5), (4, 4, 3, 3, 3), {"stride": (1, 1, 1), "padding": (1,) * 6, "dilation": (1, 1, 1)}
    ),
    "transposed": (
        (2, 8, 5, 6), (8, 4, 4, 4), {"stride": (2, 2), "padding": (1, 1, 1, 1), "output_padding": (0, 0)}
    ),
    "transposed row": (
        (2, 8, 9), (8, 4, 3), {"stride": (1,), "padding": (1, 1), "dilation": (1,), "output_padding": (0,)}
    ),
}  # fmt: skip
each_case = pytest.mark.parametrize("case", CASES)


def layer(device, case, last=False, dtype=torch.float32, seed=3):
    """(dy, x, w, the geometry) of small whole numbers, so that every order of a sum is exact."""
    shape, filters, words = CASES[case]
    generator, how = torch.Generator().manual_seed(seed), How(**words)
    x, w = (torch.randint(-3, 4, one, generator=generator).to(device, dtype) for one in (shape, filters))
    y = convtune.torch.run.pytorch_convolution(x, w, None, how)
    dy = torch.randint(-3, 4, y.shape, generator=generator).to(device, dtype)
    return laid(dy, last), laid(x, last), w, how


def chosen(device, x, w, how, bias_type=None, ours=("x", "w")):
    """The geometry with choices: whatever runs those gradients, convtune's own where it has a kernel."""
    where, lines = "cpu" if device == "cpu" else "cuda:0", []
    for of in ours:
        problem = gradient_problem(of, x, w, how, bias_type if of == "w" else None)
        try:
            plan = Convolution(problem, where, "ours").plan
        except Unsupported:
            plan = Convolution(problem, where, None if where == "cuda:0" else "reference").plan
        lines.append(choice_line(where, problem, problem, plan.algorithm, plan.config))
    words = {name: getattr(how, name) for name in ("stride", "padding", "dilation", "groups", "output_padding")}
    return How(**words, choices="\n".join(lines))


def words(how):
    return *how.geometry, how.precision, how.choices, how.output_padding


@each_device
@each_case
@pytest.mark.parametrize("last", [False, True])
def test_plans_answer_as_pytorch_does(device, case, last):
    dy, x, w, how = layer(device, case, last)
    own = chosen(device, x, w, how, torch.float32)
    for mask in MASKS:
        expected = pytorch_gradients(dy, x, w, torch.float32, how, mask)
        for one, other in zip(gradients(dy, x, w, torch.float32, own, mask), expected):
            assert (one is None) == (other is None)
            assert one is None or torch.equal(one, other), mask
        assert expected[0] is None or output_last(gradients(dy, x, w, None, own, mask)[0], w) == output_last(x, w)


@each_device
@pytest.mark.parametrize("of", ["x", "w"])
def test_each_gradient_is_chosen_alone(device, of, monkeypatch):
    dy, x, w, how = layer(device, "3x3")
    own = chosen(device, x, w, how, torch.float32, of)
    asked = []

    def theirs(grad, x, weight, bias_type, how, mask):
        asked.append(tuple(mask))
        return pytorch_gradients(grad, x, weight, bias_type, how, mask)

    monkeypatch.setattr(convtune.torch.backward, "pytorch_gradients", theirs)
    found = gradients(dy, x, w, torch.float32, own, (True, True, True))
    assert asked == [(False, True, True) if of == "x" else (True, False, False)]
    for one, other in zip(found, pytorch_gradients(dy, x, w, torch.float32, how, (True, True, True))):
        assert torch.equal(one, other)
    asked.clear()
    gradients(dy, x, w, torch.float32, how, (True, True, True))
    assert asked == [(True, True, True)], "nothing is recorded, and nothing was chosen"


@each_device
@each_case
@pytest.mark.parametrize("mask", [(True, True, True), (False, True, False)])
@pytest.mark.parametrize("ours", [False, True])
def test_opcheck(device, case, mask, ours):
    for last in (False, True):
        dy, x, w, how = layer(device, case, last)
        own = chosen(device, x, w, how, torch.float32) if ours else how
        utils = "test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_dynamic"
        torch.library.opcheck(conv_backward, (dy, x, w, None, *words(own), mask), test_utils=utils)


@each_device
def test_weights_that_lie_channels_last_have_gradients_that_do(device):
    dy, x, w, how = layer(device, "3x3", True)
    w = w.to(memory_format=torch.channels_last)
    own = chosen(device, x, w, how)
    dx, dw, _ = conv_backward(dy, x, w, None, *words(own), (True, True, False))
    assert dx.is_contiguous(memory_format=torch.channels_last) and dw.stride() == w.stride()


@each_device
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_float32_bias_has_a_float32_gradient(device, dtype):
    dy, x, w, how = layer(device, "3x3", True, dtype)
    for one in (how, chosen(device, x, w, how, torch.float32)):
        dx, dw, db = conv_backward(dy, x, w, torch.float32, *words(one), (True, True, True))
        assert (dx.dtype, dw.dtype, db.dtype) == (dtype, dtype, torch.float32)
        assert torch.equal(db, dy.float().sum((0, 2, 3)))


@pytest.mark.parametrize("case", ["3x3", "stride", "uneven", "groups", "transposed"])
def test_gradcheck_and_again(case):
    """In double, where PyTorch computes all of it, through the modules' own way."""
    _, x, w, how = layer("cpu", case, dtype=torch.float64)
    leaves = [(one / 4).requires_grad_() for one in (x, w)]
    call = lambda x, w: convtune.torch.functional.call(x, w, None, how)  # noqa: E731
    assert torch.autograd.gradcheck(call, leaves)
    assert torch.autograd.gradgradcheck(call, leaves)


@each_device
@pytest.mark.parametrize("case", ["3x3", "stride", "transposed"])
def test_gradients_of_gradients(device, case):
    """In float32, where the first backward is ours: what is differentiated again is PyTorch's, with the same numbers."""
    _, x, w, how = layer(device, case)
    own, found = chosen(device, x, w, how), []
    for one in (own, how):
        leaves = [leaf.clone().requires_grad_() for leaf in (x, w)]
        y = convtune.torch.functional.call(*leaves, None, one)
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(one.square().sum() for one in first), leaves))
    for one, other in zip(*found):
        assert_near(one, other)


@each_device
def test_numbers_by_differences(device):
    """Against differences of the forward, in float32 with as much tolerance as that has."""
    _, x, w, how = layer(device, "3x3")
    own = chosen(device, x, w, how)
    leaves = [(one / 4).requires_grad_() for one in (x, w)]
    call = lambda x, w: convtune.torch.functional.call(x, w, None, own)  # noqa: E731
    assert torch.autograd.gradcheck(call, leaves, eps=1e-2, atol=5e-2, rtol=5e-2, nondet_tol=0.0)


@pytest.mark.parametrize("kind", ["Conv2d", "ConvTranspose2d"])
def test_modules_train_by_their_plans(kind):
    module = getattr(convtune.nn, kind)(8, 4, 3, padding=1)
    theirs = getattr(torch.nn, kind)(8, 4, 3, padding=1)
    theirs.load_state_dict(module.state_dict())
    x = torch.rand(2, 8, 9, 7)
    more = (0, 0) if "Transpose" in kind else ()
    how = How(padding=(1, 1, 1, 1), output_padding=more)
    module.choices = chosen("cpu", x, module.weight, how, torch.float32).choices
    found = []
    for one in (module, theirs):
        leaf = x.clone().requires_grad_()
        one(leaf).square().sum().backward()
        found.append((leaf.grad, one.weight.grad, one.bias.grad))
    for one, other in zip(*found):
        assert_near(one, other)


def test_traced_graphs_hold_plans_alone():
    """A compiler sees PyTorch's operator wherever no plan is proven."""
    from torch.fx.experimental.proxy_tensor import make_fx

    dy, x, w, how = layer("cpu", "3x3")

    def graph(how):
        def run(dy, x, w):
            with torch.no_grad():
                return backward_of(dy, x, w, torch.float32, how, (True, True, True))

        made = make_fx(run)(dy, x, w)
        for one, other in zip(made(dy, x, w), run(dy, x, w)):
            assert torch.equal(one, other)
        nodes = [str(node.target) for node in made.graph.nodes if node.op == "call_function"]
        return [name for name in nodes if "backward" in name or "gradients" in name]

    assert graph(how) == ["aten.convolution_backward.default"]
    both = ["convtune.conv_gradients.default", "aten.convolution_backward.default"]
    assert graph(chosen("cpu", x, w, how, torch.float32, "x")) == both
    assert graph(chosen("cpu", x, w, how, torch.float32)) == both[:1]


@each_device
def test_compiled_steps_are_eager_ones(device):
    x = torch.rand(2, 8, 9, 7, device=device)
    module = convtune.nn.Conv2d(8, 4, 3, padding=1).to(device)
    module.choices = chosen(device, x, module.weight, How(padding=(1, 1, 1, 1)), torch.float32).choices
    found = []
    for one in (module, torch.compile(module, fullgraph=True)):
        leaf = x.clone().requires_grad_()
        module.zero_grad()
        one(leaf).square().sum().backward()
        found.append((leaf.grad, module.weight.grad, module.bias.grad))
    for one, other in zip(*found):
        assert_near(one, other)


def test_wrong_tensors_are_named():
    dy, x, w, how = layer("cpu", "3x3")
    with pytest.raises(InvalidArgument, match="one type: dy torch.float32"):
        conv_backward(dy, x.double(), w, None, *words(how), (True, True, True))
    with pytest.raises(InvalidArgument, match="must begin with"):
        conv_backward(dy[:, :3], x, w, None, *words(how), (True, True, True))


@each_case
@pytest.mark.parametrize("of", ["x", "w"])
def test_wrong_sizes_are_refused_before_a_kernel_reads(case, of):
    dy, x, w, how = layer("cpu", case)
    own = chosen("cpu", x, w, how, None, of)
    with pytest.raises(InvalidArgument, match="dy has the shape"):
        conv_backward(dy[..., :-1], x, w, None, *words(own), (of == "x", of == "w", False))


def test_a_batch_of_none():
    dy, x, w, how = layer("cpu", "3x3")
    dx, dw, db = conv_backward(dy[:0], x[:0], w, None, *words(how), (True, True, True))
    assert dx.shape == x[:0].shape and not dw.any() and not db.any()


def test_choices_of_another_device_are_pytorchs(monkeypatch):
    dy, x, w, how = layer("cpu", "3x3")
    own = chosen("cpu", x, w, how)
    other = How(padding=(1, 1, 1, 1), choices=own.choices.replace(fingerprint("cpu"), "another"))
    monkeypatch.setattr(convtune.torch.backward, "launched", None)
    for one, expected in zip(gradients(dy, x, w, None, other, (True, True, False)),
                             pytorch_gradients(dy, x, w, None, how, (True, True, False))):  # fmt: skip
        assert one is expected or torch.equal(one, expected)


@each_case
def test_flops_are_counted_as_pytorchs(case):
    from torch.utils.flop_counter import FlopCounterMode

    dy, x, w, how = layer("cpu", case)
    if how.padding[: how.axes] != how.padding[how.axes :] or how.groups > 1:
        pytest.skip("PyTorch counts the padded image, and other groups' weights")
    found = []
    for run in (conv_backward, pytorch_gradients):
        with FlopCounterMode(display=False) as counter:
            rest = words(how) if run is conv_backward else (how,)
            run(dy, x, w, None, *rest, (True, True, False))
        found.append(counter.get_total_flops())
    assert found[0] == found[1] > 0


@pytest.mark.parametrize("of", ["x", "weight", "bias"])
@pytest.mark.parametrize("way", ["batched", "forward mode"])
def test_batched_and_forward_mode_gradients_are_pytorchs(way, of):
    _, x, w, how = layer("cpu", "3x3")
    ours = convtune.nn.Conv2d(8, 6, 3, padding=1)
    theirs = torch.nn.Conv2d(8, 6, 3, padding=1)
    theirs.load_state_dict(ours.state_dict())
    ours.choices = chosen("cpu", x, w, how, torch.float32).choices
    dys, found = torch.rand(3, 2, 6, 9, 7), []
    for module in (ours, theirs):
        leaf = x.clone().requires_grad_()
        asked = leaf if of == "x" else getattr(module, of)
        y = module(leaf)
        if way == "batched":
            found.append(torch.autograd.grad(y, asked, dys, is_grads_batched=True)[0])
            continue
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(dys[0], dys[1])
            found.append(torch.autograd.forward_ad.unpack_dual(torch.autograd.grad(y, asked, dual)[0]).tangent)
    assert_near(*found)
