"""Shared by the PyTorch tests: devices, a reference in double precision, and how near to it an answer must be."""

import os
from pathlib import Path

import pytest
from processes import python

torch = pytest.importorskip("torch", reason="PyTorch is not installed here: convtune.torch is not tested")

import convtune.torch  # noqa: E402

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU here")
by_cpp = pytest.mark.skipif(
    not convtune.torch.operator.startswith("C++"), reason=f"the operator here is {convtune.torch.operator}"
)
each_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])


def tensors(device, x=(2, 3, 13, 11), k=4, kernel=(3, 3), groups=1, bias=True, seed=0):
    generator = torch.Generator().manual_seed(seed)
    w = (k, x[1] // groups, *kernel)
    made = [torch.rand(shape, generator=generator) * 2 - 1 for shape in (x, w, (k,))]
    made = [one.to(device) for one in made]
    return made[0], made[1], made[2] if bias else None


def double_conv2d(x, w, bias, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1):
    top, left, bottom, right = padding
    x = torch.nn.functional.pad(x.double(), (left, right, top, bottom))
    return torch.conv2d(x, w.double(), None if bias is None else bias.double(), stride, 0, dilation, groups)


def assert_near(y, expected, tf32=False):
    """By the largest difference over the root mean square."""
    assert y.shape == expected.shape, (tuple(y.shape), tuple(expected.shape))
    scale = expected.double().square().mean().sqrt().clamp_min(1e-30)
    error = float((y.double() - expected.double()).detach().abs().max() / scale) if y.numel() else 0.0
    assert error < (1e-2 if tf32 else 1e-5), f"differs by {error:.3g} of the root mean square"


def run_in_the_interpreter(program):
    """Runs a program that ends by printing "all well" in Triton's interpreter, for kernels that no GPU here runs."""
    pytest.importorskip("triton", reason="Triton is not installed here")
    if torch.cuda.is_available():
        pytest.skip("they run on the GPU")
    folders = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    done = python("-c", program, TRITON_INTERPRET="1", PYTHONPATH=folders)
    assert "all well" in done.stdout, done.stderr


def with_statistics(model):
    """The model in eval mode, its batch norms with statistics as of training and weights of their own."""
    for module in model.modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
            for values, low, high in ((module.running_mean, -0.2, 0.2), (module.running_var, 0.5, 1.5),
                                      (module.weight, 0.5, 1.5), (module.bias, -0.5, 0.5)):  # fmt: skip
                torch.nn.init.uniform_(values, low, high)
    return model.eval()


def count(graph, *targets):
    """The number of a graph's calls of those functions."""
    return sum(len(graph.find_nodes(op="call_function", target=target)) for target in targets)
