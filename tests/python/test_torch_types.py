"""Tensors that convtune has no kernels for, and images without a batch: convtune.conv2d gives what PyTorch's does."""

import pytest
from torch_support import torch

import convtune
import convtune.torch
from convtune.torch import functional

F = torch.nn.functional
OTHERS = [torch.float64, torch.complex64, torch.complex128, torch.int64, torch.int32, torch.int8, torch.uint8]
GEOMETRIES = [
    dict(),
    dict(stride=2, padding=1),
    dict(stride=(2, 1), padding=(1, 2)),
    dict(padding="same"),
    dict(groups=2),
]


def drawn(shape, dtype):
    generator = torch.Generator().manual_seed(len(shape))
    made = 8 * torch.rand((*shape, 2), generator=generator) - 4
    if dtype.is_complex:
        return torch.view_as_complex(made.double()).to(dtype)
    return made[..., 0].abs().to(dtype) if dtype is torch.uint8 else made[..., 0].to(dtype)


@pytest.fixture(autouse=True)
def warned(monkeypatch):
    monkeypatch.setattr(functional, "_warned", set())


@pytest.mark.parametrize("dtype", OTHERS, ids=str)
@pytest.mark.parametrize("call", [convtune.conv2d, convtune.torch.conv2d])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_other_types(dtype, call, batch):
    for number, how in enumerate(GEOMETRIES):
        groups = how.get("groups", 1)
        x, w, bias = drawn((*batch, 4, 7, 8), dtype), drawn((6, 4 // groups, 3, 3), dtype), drawn((6,), dtype)
        for own in (None, bias):
            expected = F.conv2d(x, w, own, **how)
            if number == 0 and own is None:
                with pytest.warns(UserWarning, match=f"no kernels for {dtype}"):
                    y = call(x, w, own, **how)
            else:
                y = call(x, w, own, **how)  # one warning a type
            assert y.dtype is dtype
            torch.testing.assert_close(y, expected)
    with pytest.raises(convtune.InvalidArgument, match="nothing is converted"):
        call(x, w.to(torch.float32))


@pytest.mark.filterwarnings("ignore:convtune has no kernels")
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.complex128], ids=str)
def test_gradients_of_other_types(dtype):
    x, w = drawn((2, 3, 6, 6), dtype).requires_grad_(), drawn((4, 3, 3, 3), dtype).requires_grad_()
    how = (1, 1), (1, 1, 1, 1), (1, 1), 1
    for call in (convtune.conv2d, lambda x, w, padding: torch.ops.convtune.conv2d(x, w, None, *how)):
        own = torch.autograd.grad(call(x, w, padding=1).abs().square().sum(), (x, w))
        theirs = torch.autograd.grad(F.conv2d(x, w, padding=1).abs().square().sum(), (x, w))
        torch.testing.assert_close(own, theirs)


@pytest.mark.filterwarnings("ignore:convtune has no kernels")
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64], ids=str)
def test_other_types_compiled(dtype):
    x, w = drawn((2, 3, 6, 6), dtype), drawn((4, 3, 3, 3), dtype)
    compiled = torch.compile(lambda x, w: convtune.conv2d(x, w, padding=1), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, w), F.conv2d(x, w, padding=1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("records", [False, True])
def test_an_image_without_a_batch(dtype, records):
    x = (torch.rand(4, 9, 10) - 0.5).to(dtype).requires_grad_(records)
    w, bias, z = (torch.rand(shape).to(dtype) for shape in ((6, 4, 3, 3), (6,), (6, 9, 10)))
    close = dict(atol=1e-5, rtol=1e-5) if dtype is torch.float32 else dict(atol=0.15, rtol=0.05)
    expected = F.conv2d(x, w, bias, padding=1)
    for _ in range(2):  # packed, then ready
        torch.testing.assert_close(convtune.conv2d(x, w, bias, padding=1), expected, **close)
    y = convtune.conv2d(x, w, bias, padding=1, residual=z, activation="relu")
    torch.testing.assert_close(y, (expected + z).relu(), **close)
    compiled = torch.compile(lambda x: convtune.conv2d(x, w, bias, padding=1), backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, **close)
    mapped = torch.vmap(lambda x: convtune.conv2d(x, w, bias, padding=1))(x[None])
    torch.testing.assert_close(mapped[0], expected, **close)
    with pytest.raises(convtune.InvalidArgument, match="residual"):
        convtune.conv2d(x, w, bias, padding=1, residual=z[None])


def test_other_ranks_are_refused():
    for shape in ((4, 9), (1, 1, 4, 9, 9)):
        with pytest.raises(convtune.InvalidArgument, match=r"\(N, C, H, W\)"):
            convtune.conv2d(torch.rand(shape), torch.rand(6, 4, 3, 3))
