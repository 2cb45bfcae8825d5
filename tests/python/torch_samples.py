"""PyTorch's own samples of its convolutions: what its tests ask of conv1d to conv3d and of the transposed ones is asked of
ours. Not collected
with the other tests: test_torch_rules.py runs it in a process of its own, since what the samples come with changes
PyTorch's settings for the process, and freezes them."""

import pytest
from torch_support import assert_near, each_device, torch

import convtune
import convtune.torch
from convtune.torch.backward import conv_backward, gradient_problem, pytorch_gradients
from convtune.torch.fused import conv2d_fused
from convtune.torch.how import How, written
from convtune.torch.run import choice_line, pytorch_convolution

common = pytest.importorskip("torch.testing._internal.common_methods_invocations")
NAMES = [f"conv{kind}{axes}d" for kind in ("", "_transpose") for axes in (1, 2, 3)]
OPS = {op.name.rpartition(".")[2]: op for op in common.op_db if op.name.rpartition(".")[2] in NAMES}


@pytest.fixture(autouse=True)
def exact():
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def ours(name, sample):
    named = {"w" if one == "weight" else one: value for one, value in sample.kwargs.items()}
    return getattr(convtune, name)(sample.input, *sample.args, **named)


def in_double(operator, sample):
    def wide(value):
        return value.double() if isinstance(value, torch.Tensor) else value

    named = {name: wide(value) for name, value in sample.kwargs.items()}
    return operator(wide(sample.input), *map(wide, sample.args), **named)


@each_device
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
@pytest.mark.filterwarnings("ignore")
def test_samples(device, name, dtype):
    if not OPS[name].supports_dtype(dtype, device):
        pytest.skip("PyTorch has none of this type")
    seen = 0
    for sample in OPS[name].sample_inputs(device, dtype, requires_grad=dtype is torch.float32):
        expected = OPS[name](sample.input, *sample.args, **sample.kwargs)
        got = ours(name, sample)
        assert got.dtype is dtype and got.shape == expected.shape, sample
        if dtype is torch.float32:
            assert_near(got, expected)
            leaves = [one for one in (sample.input, *sample.args, *sample.kwargs.values()) if isinstance(one, torch.Tensor)]
            leaves = [one for one in leaves if one.requires_grad]
            theirs = torch.autograd.grad(expected.square().sum(), leaves)
            for one, other in zip(torch.autograd.grad(got.square().sum(), leaves), theirs):
                assert torch.allclose(one, other, rtol=1e-4, atol=1e-2), sample
        elif dtype is torch.bfloat16:  # PyTorch's own transposed layers on a CPU are off by more in places
            right = torch.allclose(got.double(), in_double(OPS[name], sample), rtol=1e-2, atol=1e-2)
            assert torch.equal(got, expected) or right, sample
        else:
            assert torch.equal(got, expected) or torch.allclose(got, expected, rtol=1e-2, atol=1e-2), sample
        seen += 1
    assert seen >= 5


def geometry(name, sample):
    """(x, w, bias, the operator's geometry, its output padding or None) of a sample."""
    transposed = "transpose" in name
    order = ("output_padding", "groups", "dilation") if transposed else ("dilation", "groups")
    given = dict(zip(("weight", "bias", "stride", "padding", *order), sample.args)) | sample.kwargs
    w, more = given["weight"], given.get("output_padding", 0) if transposed else None
    settings = given.get("stride", 1), given.get("padding", 0), given.get("dilation", 1), given.get("groups", 1)
    how = written(w.shape[2:], *settings, None, None, "", True, more)
    return sample.input, w, given.get("bias"), how.geometry, how.output_padding


@each_device
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_operators_on_samples(device, name):
    """opcheck's schema, fake tensors and autograd on each; convtune.torch's tests have all of it on some."""
    operator = getattr(torch.ops.convtune, name).default
    utils = "test_schema", "test_faketensor", "test_autograd_registration"
    for number, sample in enumerate(OPS[name].sample_inputs(device, torch.float32, requires_grad=False)):
        x, w, bias, how, more = geometry(name, sample)
        if x.numel() == 0 or number % 3 or x.dim() != w.dim():
            continue
        own = (*how, "auto", "none", "", True, more) if more else how
        torch.library.opcheck(operator, (x, w, bias, *own), test_utils=utils)
        fused = x, w, bias, None, *how, "auto", "relu", *(("", more) if more else ())
        torch.library.opcheck(conv2d_fused, fused, test_utils=utils)
        assert_near(conv2d_fused(*fused), operator(x, w, bias, *own).relu())


@each_device
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_gradients_of_samples(device, name):
    """Each gradient by a kernel of convtune's, where there is one, and the operator that holds it."""
    utils, taken = ("test_schema", "test_faketensor", "test_autograd_registration"), 0
    for number, sample in enumerate(OPS[name].sample_inputs(device, torch.float32, requires_grad=False)):
        x, w, bias, (stride, padding, dilation, groups), more = geometry(name, sample)
        how = How(stride, padding, dilation, groups, output_padding=more)
        if x.numel() == 0 or x.dim() != w.dim() or how.is_pytorchs:
            continue
        lines, where = [], "cpu" if device == "cpu" else "cuda:0"
        for of in ("x", "w"):
            problem = gradient_problem(of, x, w, how, torch.float32 if of == "w" else None)
            try:
                plan = convtune.Convolution(problem, where, "ours").plan
            except convtune.Unsupported:
                continue
            lines.append(choice_line(where, problem, problem, plan.algorithm, plan.config))
            taken += 1
        dy = torch.rand_like(pytorch_convolution(x, w, None, how))
        own = *how.geometry, "auto", "\n".join(lines), more, (True, True, True)
        expected = pytorch_gradients(dy, x, w, torch.float32, how, own[-1])
        for one, other in zip(conv_backward(dy, x, w, None, *own), expected):
            assert_near(one, other)
        if number % 3 == 0:
            torch.library.opcheck(conv_backward, (dy, x, w, None, *own), test_utils=utils)
    assert taken >= 4


@each_device
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore")
def test_what_pytorch_refuses_is_refused(device, name):
    if OPS[name].error_inputs_func is None:
        pytest.skip("this PyTorch has no error inputs for it")
    for error in OPS[name].error_inputs(device):
        with pytest.raises(Exception):  # noqa: B017: PyTorch's own is as wide
            OPS[name](error.sample_input.input, *error.sample_input.args, **error.sample_input.kwargs)
        with pytest.raises((convtune.InvalidArgument, RuntimeError, TypeError, ValueError)):
            ours(name, error.sample_input)
