"""Every combination of PyTorch's settings: convtune does what they allow PyTorch's own convolution."""

import itertools

import pytest
from torch_support import on_gpu, torch

import convtune
from convtune.tensors import allowed_precision

if not hasattr(torch._C, "_get_fp32_precision_getter"):
    pytest.skip("this PyTorch has no fp32_precision", allow_module_level=True)

cudnn = torch.backends.cudnn


@pytest.fixture(autouse=True)
def as_it_was():
    yield
    torch.backends.fp32_precision = cudnn.fp32_precision = "none"
    cudnn.allow_tf32 = True  # sets that of conv and of rnn


def settings():
    """(settings in their order, True where PyTorch's convolution rounds to TF32 then). The nearest that is not
    "none" decides: conv's, cudnn's, the global one; `allow_tf32` is conv's under an older name, with "none" for False;
    bf16 is nothing that cuDNN has."""
    values = ("none", "ieee", "tf32")
    for everywhere, of_cudnn, conv in itertools.product((*values, "bf16"), values, (*values, True, False, None)):
        own = {True: "tf32", False: "none", None: "tf32"}.get(conv, conv)  # None: left alone
        decides = next((one for one in (own, of_cudnn, everywhere) if one != "none"), "none")
        made = (("everywhere", everywhere), ("cudnn", of_cudnn), ("conv", conv))
        for order in itertools.permutations(made):
            yield order, decides == "tf32"


def put(order):
    for name, value in order:
        if name == "everywhere":
            torch.backends.fp32_precision = value
        elif name == "cudnn":
            cudnn.fp32_precision = value
        elif isinstance(value, bool):
            cudnn.allow_tf32 = value
        elif value is not None:
            cudnn.conv.fp32_precision = value


def test_every_combination():
    unreadable = 0
    for order, allowed in settings():
        cudnn.allow_tf32 = True
        put(order)
        assert allowed_precision(0) == ("tf32" if allowed else "fp32"), order
        assert allowed_precision(-1) == "fp32"
        try:
            cudnn.allow_tf32  # noqa: B018
        except RuntimeError:
            unreadable += 1
    assert unreadable > 0


@on_gpu
def test_as_pytorch_does_it():
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.rand(shape, generator=generator).cuda() for shape in ((8, 64, 32, 32), (64, 64, 3, 3)))
    exact = torch.conv2d(x.double(), w.double())
    rounded = {}
    for order, allowed in settings():
        cudnn.allow_tf32 = True
        put(order)
        how = (1, 1), (0, 0, 0, 0), (1, 1), 1
        problem = convtune.torch.problem_of(x, w, False, *how)
        assert problem.precision == ("tf32" if allowed else "fp32"), order
        error = float((torch.conv2d(x, w) - exact).abs().max() / exact.square().mean().sqrt())
        rounded.setdefault(allowed, []).append(error > 1e-5)
    assert not any(rounded[False]) and all(rounded[True])
