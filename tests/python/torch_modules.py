"""PyTorch's own tests of modules, with ours in place of its convolutions: those of torch.testing in double with gradcheck and
gradgradcheck, the same in float32, which our kernels compute, gradients too, and its samples of modules. Not collected with
the other tests, as torch_samples.py is not: test_torch_rules.py runs both."""

import copy
import types

import pytest
from torch_support import assert_near, torch

import convtune.nn
import convtune.torch
from convtune.torch import backward
from convtune.torch.run import Planned

theirs = pytest.importorskip("torch.testing._internal.common_nn")
samples = pytest.importorskip("torch.testing._internal.common_modules")
OURS = {f"Conv{kind}{axes}d": getattr(convtune.nn, f"Conv{kind}{axes}d") for kind in ("", "Transpose") for axes in (1, 2, 3)}


def asked():
    """The words of each test of a convolution, by its name."""
    every = theirs.get_new_module_tests() if hasattr(theirs, "get_new_module_tests") else theirs.new_module_tests
    found = {}
    for words in every:
        name = words.get("fullname", words.get("module_name", ""))
        if name.partition("_")[0] in OURS:
            if "fullname" not in words and words.get("desc"):
                name += "_" + words["desc"]
            found[name] = words
    return found


ASKED = asked()


@pytest.fixture(autouse=True)
def gradients(monkeypatch):
    """Notes for each gradient that is asked for if it is ours: here all are that we compute, elsewhere only proven ones."""
    found, planned = [], backward._planned

    def plan(problem, how, index):
        try:
            return Planned(convtune.Convolution(problem, "cpu", "ours"), problem, axes=how.axes)
        except convtune.Unsupported:
            return Planned(None, problem, axes=how.axes)

    def noted(*words):
        found.append(planned(*words))
        return found[-1]

    monkeypatch.setattr(backward, "_plan", plan)
    monkeypatch.setattr(backward, "_planned", noted)
    return found


class Case(theirs.NNTestCase):
    """A case with the methods that PyTorch's module tests ask of whoever runs them."""

    __test__ = False

    def runTest(self):
        raise NotImplementedError

    def _forward(self, module, input):
        return module(*input) if isinstance(input, tuple) else module(input)

    def _backward(self, module, input, output, grad_output, create_graph=False):
        output.backward(grad_output, retain_graph=True, create_graph=create_graph)
        return tuple(one.grad for one in input) if isinstance(input, tuple) else input.grad

    def _get_parameters(self, module):
        leaves = list(module.parameters())
        return leaves, [one.grad for one in leaves]

    def _zero_grad_parameters(self, module):
        module.zero_grad(set_to_none=False)


class InFloat(theirs.NewModuleTest):
    """Gradients beside PyTorch's in double, since differences in float32 say nothing."""

    def _check_gradients(self, test_case, module, input_tuple):
        wide = copy.deepcopy(module).double()
        xs = [one.detach().clone().requires_grad_() for one in input_tuple]
        wides = [one.detach().double().requires_grad_() for one in input_tuple]
        y, expected = module(*xs), wide(*wides)
        assert_near(y, expected)
        dy = torch.rand_like(y)
        found = torch.autograd.grad(y, (*xs, *module.parameters()), dy)
        for one, other in zip(found, torch.autograd.grad(expected, (*wides, *wide.parameters()), dy.double())):
            assert_near(one, other)


@pytest.mark.parametrize("dtype", [torch.double, torch.float])
@pytest.mark.parametrize("name", ASKED)
@pytest.mark.filterwarnings("ignore")
def test_modules(name, dtype, monkeypatch, gradients):
    words, made = dict(ASKED[name]), []
    for one in ("cpp_constructor_args", "cpp_var_map", "decorator"):
        words.pop(one, None)
    words["default_dtype"] = dtype
    monkeypatch.setattr(theirs, "nn", types.SimpleNamespace(**{**vars(torch.nn), **OURS}))  # a test's constructor reads it
    constructor = words.pop("constructor", None) or OURS[words.pop("module_name")]

    def noted(*args, **kwargs):
        made.append(constructor(*args, **kwargs))
        return made[-1]

    words.setdefault("fullname", name)
    kind = theirs.NewModuleTest if dtype is torch.double else InFloat
    torch.manual_seed(0)
    kind(constructor=noted, **words)(Case())
    assert made and all(type(one) in OURS.values() for one in made)
    assert any(gradients) == (dtype is torch.float)


def test_every_kind_is_among_them():
    assert {name.partition("_")[0] for name in ASKED} == set(OURS)
    assert len(ASKED) > 60


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", OURS)
@pytest.mark.filterwarnings("ignore")
def test_samples_of_modules(name, training, gradients):
    info = next(one for one in samples.module_db if one.module_cls is getattr(torch.nn, name))
    inputs = info.module_inputs_func(info, device="cpu", dtype=torch.float32, requires_grad=True, training=training)
    for one in inputs:
        words, x = one.constructor_input, one.forward_input.args[0]
        ours, other = OURS[name](*words.args, **words.kwargs), info.module_cls(*words.args, **words.kwargs)
        other.load_state_dict(ours.state_dict())
        for module in (ours, other):
            module.train(training)
        formats = [torch.contiguous_format]
        if 4 <= x.dim() == len(ours.kernel_size) + 2:
            formats.append(torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
        for form in formats:
            lies = x.detach().contiguous(memory_format=form).requires_grad_()
            ours, other = ours.to(memory_format=form), other.to(memory_format=form)
            y, expected = ours(lies), other(lies)
            assert_near(y, expected)
            assert y.stride() == expected.stride()
            found = torch.autograd.grad(y.square().sum(), (lies, *ours.parameters()))
            for left, right in zip(found, torch.autograd.grad(expected.square().sum(), (lies, *other.parameters()))):
                assert_near(left, right)
        if one.reference_fn is not None:
            assert_near(ours(x), one.reference_fn(ours, x))
    assert len(inputs) >= 2 and any(gradients)
