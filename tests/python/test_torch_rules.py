"""PyTorch's own rules: its samples of convolutions, its tests of modules, and deterministic algorithms."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from torch_support import each_device, torch

import convtune
from convtune.torch.fused import conv2d_fused

OP = torch.ops.convtune.conv2d.default


@pytest.mark.parametrize("tests", ["torch_samples.py", "torch_modules.py"])
def test_pytorchs_own(tests):
    if importlib.util.find_spec("expecttest") is None:
        pytest.skip("expecttest is not installed here, which they need")
    file = Path(__file__).parent / tests
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and " passed" in done.stdout, done.stdout[-8000:] + done.stderr[-2000:]


@each_device
def test_deterministic_algorithms(device):
    generator = torch.Generator().manual_seed(0)
    x, w, z = (
        torch.rand(shape, generator=generator).to(device) for shape in ((2, 8, 20, 20), (8, 8, 3, 3), (2, 8, 20, 20))
    )
    how = (1, 1), (1, 1, 1, 1), (1, 1), 1
    before = torch.are_deterministic_algorithms_enabled()
    plain = OP(x, w, None, *how), conv2d_fused(x, w, None, z, *how, "auto", "silu")
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(3):
            again = OP(x, w, None, *how), conv2d_fused(x, w, None, z, *how, "auto", "silu")
            assert all(torch.equal(one, other) for one, other in zip(again, plain))
        leaf = w.clone().requires_grad_()
        convtune.conv2d(x, leaf, padding=1, activation="silu", residual=z).sum().backward()
        assert leaf.grad is not None and leaf.grad.isfinite().all()
    finally:
        torch.use_deterministic_algorithms(before)
