"""convtune.nn.Conv2d as a drop-in: state, copies, settings, training side by side with torch.nn.Conv2d."""

import copy
import io
import os
import pickle
import tempfile

import pytest
from torch_support import assert_near, double_conv2d, each_device, torch

import convtune
import convtune.torch
from convtune.nn import Conv2d
from convtune.torch import run

nn = torch.nn


def pair(device="cpu", *args, **kwargs):
    """PyTorch's and ours with equal weights; products in fp32."""
    theirs = nn.Conv2d(*(args or (3, 8, 3)), **kwargs).to(device)
    ours = Conv2d(*(args or (3, 8, 3)), **kwargs, precision="fp32").to(device)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


SETTINGS = [
    dict(),
    dict(stride=2, padding=1),
    dict(padding="same", dilation=2),
    dict(padding="same", bias=False),
    dict(padding="valid"),
    dict(padding=(2, 1), padding_mode="reflect"),
    dict(padding="same", padding_mode="circular"),
    dict(padding=2, padding_mode="replicate", stride=(1, 2)),
    dict(groups=3),
]


@each_device
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_settings(device, settings, exact_products):
    k = (6, (2, 4) if settings.get("padding") == "same" else 3)
    theirs, ours = pair(device, 3, *k, **settings)
    for shape in ((2, 3, 12, 14), (3, 12, 14)):
        x = torch.rand(shape, device=device)
        assert_near(ours(x), theirs(x))
        assert_near(Conv2d.from_torch(theirs)(x), theirs(x))


def test_state_dict_and_representation():
    theirs, ours = pair()
    assert list(theirs.state_dict()) == list(ours.state_dict())
    theirs.load_state_dict(ours.state_dict())
    assert repr(ours).startswith("Conv2d(3, 8, kernel_size=(3, 3)") and "convtune" in repr(ours)
    assert isinstance(ours, nn.Conv2d)


def test_from_torch_shares_parameters():
    theirs = nn.Conv2d(3, 8, 3, padding=1, bias=False).eval()
    ours = Conv2d.from_torch(theirs)
    assert ours.weight is theirs.weight and ours.bias is None and not ours.training
    with pytest.raises(TypeError, match="Linear"):
        Conv2d.from_torch(nn.Linear(2, 2))


@each_device
def test_copies(device):
    _, ours = pair(device)
    x = torch.rand(2, 3, 9, 9, device=device)
    y = ours(x).detach()
    file = io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for made in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)):
        assert type(made) is Conv2d and made.precision == "fp32"
        assert torch.equal(made(x), y)
        with torch.no_grad():
            made.weight.zero_()
    assert torch.equal(ours(x), y)


@each_device
def test_moves_and_types(device):
    theirs, ours = pair(device)
    x = torch.rand(2, 3, 9, 9, device=device)
    for dtype in (torch.float64, torch.bfloat16, torch.float32):
        ours, theirs, x = ours.to(dtype), theirs.to(dtype), x.to(dtype)
        y = ours(x)
        assert y.dtype == dtype
        if dtype is torch.bfloat16:  # rounded once, where PyTorch rounds as it likes
            assert (y - theirs(x)).abs().max() <= 2**-7 * y.abs().max()
        else:
            assert_near(y, theirs(x), tf32=dtype is torch.float32)
    assert torch.equal(ours.cpu()(x.cpu()), convtune.conv2d(x.cpu(), ours.weight, ours.bias))


def test_traced_by_fx():
    """A proxy has no numbers: the graph holds PyTorch's convolution, as of any module that it looks into."""
    theirs, ours = pair("cpu", 3, 8, 3, padding=(2, 1), padding_mode="reflect")
    traced = torch.fx.symbolic_trace(nn.Sequential(ours, nn.ReLU()))
    x = torch.rand(2, 3, 9, 9)
    assert torch.equal(traced(x), theirs(x).relu())


@pytest.fixture
def swapped_parameters():
    """The way of moving and loading parameters that PyTorch announces; it takes no tensor with weak references."""
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


@each_device
def test_moves_and_loads_by_swapping_tensors(device, swapped_parameters):
    theirs, ours = pair(device)
    x, model = torch.rand(2, 3, 9, 9, device=device), nn.Sequential(ours)
    with torch.no_grad():
        model(x)  # packed, and kept by its tensors
        assert model.double()(x.double()).dtype == torch.float64
        assert_near(model.float()(x), theirs.float()(x))
        model[0].load_state_dict({name: one + 1 for name, one in theirs.state_dict().items()})
        assert_near(model(x), torch.conv2d(x.double(), theirs.weight.double() + 1, theirs.bias.double() + 1))


@each_device
def test_changed_weights_are_seen(device):
    theirs, ours = pair(device)
    ours.eval()
    x = torch.rand(2, 3, 9, 9, device=device)

    def check():
        assert_near(ours(x), double_conv2d(x, ours.weight, ours.bias))

    with torch.no_grad():
        check()
        ours.weight.add_(1)
        check()
        ours.load_state_dict(theirs.state_dict())
        check()
        ours.load_state_dict({name: value.clone() for name, value in theirs.state_dict().items()}, assign=True)
        check()
        ours.weight.data.mul_(2)
        ours.eval()
        check()
        ours.bias.data.mul_(2)
        ours.repack()
        check()
        ours.weight = nn.Parameter(torch.rand_like(ours.weight))
        check()


@each_device
def test_trains_as_pytorchs_does(device):
    torch.manual_seed(0)
    losses = []
    theirs, ours = pair(device, 3, 8, 3, padding=1)
    x = torch.rand(4, 3, 10, 10, device=device)
    for module in (theirs, ours):
        optimizer = torch.optim.AdamW(module.parameters(), lr=0.01)
        for _ in range(5):
            optimizer.zero_grad()
            loss = (module(x) - x.mean()).square().mean()
            loss.backward()
            optimizer.step()
        losses.append(float(loss))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_parametrized_weights():
    _, ours = pair()
    nn.utils.parametrizations.weight_norm(ours)
    x = torch.rand(2, 3, 9, 9)
    assert_near(ours(x).detach(), double_conv2d(x, ours.weight, ours.bias).detach())


@each_device
def test_prepare(device):
    _, ours = pair(device)
    assert ours.prepare((4, 3, 20, 22), torch.rand(1, 3, 8, 8, device=device)) is ours


def _rank(rank, folder):
    torch.distributed.init_process_group("gloo", f"file://{folder}/store", rank=rank, world_size=2)
    torch.manual_seed(rank)
    model = nn.Sequential(Conv2d(3, 8, 3), nn.ReLU(), Conv2d(8, 4, 3))
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(7)
    batches = [torch.rand(4, 3, 8, 8, generator=generator) for _ in range(3)]
    plain = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    plain.load_state_dict(model.state_dict())
    theirs = torch.optim.SGD(plain.parameters(), lr=0.1)
    for batch in batches:  # each rank its half of the batch; PyTorch in one process has all of it
        optimizer.zero_grad()
        parallel(batch[2 * rank : 2 * rank + 2]).square().mean().backward()
        optimizer.step()
        theirs.zero_grad()
        plain(batch).square().mean().backward()
        theirs.step()
    for one, other in zip(model.parameters(), plain.parameters()):
        assert torch.allclose(one, other, rtol=1e-3, atol=1e-5)
    # Every rank takes what rank 0 decided.
    import convtune.torch.optimize as module

    module.tune = lambda *a, **k: None
    chosen = []
    module._measure = lambda *a: chosen.append(rank) or (
        module.OptimizeReport("cpu", False), {"0": f"{run.fingerprint('cpu')}\tp\tnchw\tdirect\t"}
    )  # fmt: skip
    made = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Conv2d(3, 8, 3)))
    convtune.optimize(made, batches[0], budget=0, progress=False)
    assert type(made.module[0]) is Conv2d and chosen == ([0] if rank == 0 else [])
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this PyTorch has no torch.distributed")
def test_two_processes_by_gloo():
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        torch.multiprocessing.spawn(_rank, (folder,), nprocs=2)
