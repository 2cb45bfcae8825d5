"""PyTorch's own samples of its convolutions: what its tests ask of conv1d and conv2d is asked of ours. Not collected
with the other tests: test_torch_rules.py runs it in a process of its own, since what the samples come with changes
PyTorch's settings for the process, and freezes them."""

import pytest
from torch_support import assert_near, each_device, torch

import convtune
import convtune.torch
from convtune.torch.fused import conv2d_fused

common = pytest.importorskip("torch.testing._internal.common_methods_invocations")
OPS = {op.name.rpartition(".")[2]: op for op in common.op_db if op.name in ("nn.functional.conv1d", "nn.functional.conv2d")}
OP = torch.ops.convtune.conv2d.default


@pytest.fixture(autouse=True)
def exact():
    with torch.backends.cudnn.flags(allow_tf32=False):
        yield


def arguments_of(sample, name):
    """(x, w, bias, stride, padding, dilation, groups) of a 2-D convolution with a batch, and what makes its answer that
    of the sample."""
    given = dict(zip(("weight", "bias", "stride", "padding", "dilation", "groups"), sample.args)) | sample.kwargs
    x, w = sample.input, given["weight"]
    batched = x.dim() == (3 if name == "conv1d" else 4)
    x = x if batched else x.unsqueeze(0)
    settings = {one: given.get(one, default) for one, default in (("stride", 1), ("padding", 0), ("dilation", 1))}
    if name == "conv1d":
        x, w = x.unsqueeze(2), w.unsqueeze(2)
        for one, default in (("stride", 1), ("padding", 0), ("dilation", 1)):
            value = settings[one]
            if not isinstance(value, str):
                settings[one] = (default, value[0] if isinstance(value, (tuple, list)) else value)

    def back(y):
        y = y.squeeze(2) if name == "conv1d" else y
        return y if batched else y.squeeze(0)

    return (x, w, given.get("bias"), *settings.values(), given.get("groups", 1)), back


@each_device
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.filterwarnings("ignore")
def test_samples(device, name, dtype):
    seen = 0
    for sample in OPS[name].sample_inputs(device, dtype, requires_grad=dtype is torch.float32):
        expected = OPS[name](sample.input, *sample.args, **sample.kwargs)
        given, back = arguments_of(sample, name)
        got = back(convtune.conv2d(*given))
        assert got.dtype is dtype and got.shape == expected.shape, sample
        if dtype is torch.float32:
            assert_near(got, expected)
            leaves = [one for one in (sample.input, *sample.args, *sample.kwargs.values()) if isinstance(one, torch.Tensor)]
            leaves = [one for one in leaves if one.requires_grad]
            theirs = torch.autograd.grad(expected.square().sum(), leaves)
            ours = torch.autograd.grad(got.square().sum(), leaves)
            for one, other in zip(ours, theirs):
                assert torch.allclose(one, other, rtol=1e-4, atol=1e-2), sample
        else:
            assert torch.equal(got, expected) or torch.allclose(got, expected, rtol=1e-2, atol=1e-2), sample
        seen += 1
    assert seen >= 10


@each_device
@pytest.mark.parametrize("name", OPS)
def test_operators_on_samples(device, name):
    """opcheck's schema, fake tensors and autograd on each; convtune.torch's tests have all of it on some."""
    from convtune.torch.how import written

    for number, sample in enumerate(OPS[name].sample_inputs(device, torch.float32, requires_grad=False)):
        (x, w, bias, stride, padding, dilation, groups), _ = arguments_of(sample, name)
        how = written(w.shape[2:], stride, padding, dilation, groups).geometry
        if x.numel() == 0 or number % 3:
            continue
        utils = "test_schema", "test_faketensor", "test_autograd_registration"
        torch.library.opcheck(OP, (x, w, bias, *how), test_utils=utils)
        torch.library.opcheck(conv2d_fused, (x, w, bias, None, *how, "auto", "relu"), test_utils=utils)
        assert_near(conv2d_fused(x, w, bias, None, *how, "auto", "relu"), OP(x, w, bias, *how).relu())


@each_device
@pytest.mark.parametrize("name", OPS)
@pytest.mark.filterwarnings("ignore")
def test_what_pytorch_refuses_is_refused(device, name):
    if OPS[name].error_inputs_func is None:
        pytest.skip("this PyTorch has no error inputs for it")
    for error in OPS[name].error_inputs(device):
        with pytest.raises(Exception):  # noqa: B017: PyTorch's own is as wide
            OPS[name](error.sample_input.input, *error.sample_input.args, **error.sample_input.kwargs)
        with pytest.raises((convtune.InvalidArgument, RuntimeError, TypeError, ValueError)):
            given, _ = arguments_of(error.sample_input, name)
            convtune.conv2d(*given)
