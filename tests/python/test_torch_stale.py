"""Weights whose memory comes again: PyTorch counts no version when a tensor gets other memory (`p.data = ...`), and the
allocator hands out at once what the first of two assignments has freed. No call may take what was packed before.

`python tests/python/test_torch_stale.py` prints how many calls of 20 were stale, by type and size, on a GPU where there is
one."""

import copy
import sys

import pytest
from torch_support import each_device, torch

import convtune
import convtune.torch.backend  # registers the backend
from convtune.torch.modules import whole
from convtune.torch.modules.structure import followers
from convtune.torch.watched import Watched

nn, functional = torch.nn, torch.nn.functional
CALLS = 12


def tensors(device="cpu", channels=16, dtype=torch.float32):
    torch.manual_seed(0)
    x = torch.rand(1, channels, 8, 8, device=device).to(dtype)
    w = (torch.rand(channels, channels, 3, 3, device=device) - 0.5).to(dtype)
    return x, nn.Parameter(w, requires_grad=False), nn.Parameter(torch.rand(channels, device=device).to(dtype), False)


def twice(parameter, number):
    """Two assignments; the second gets the memory that the first has freed."""
    parameter.data = parameter.data * 0.5
    parameter.data = parameter.data + (1 + number) / 8


def stale(change, ours, theirs, calls=CALLS):
    """How many of the calls gave another answer than PyTorch's, which is asked of the same tensors."""
    found = 0
    for number in range(calls):
        with torch.no_grad():
            ours()
            change(number)
            y, expected = ours(), theirs()
            error = (y.double() - expected.double()).abs().max() / expected.double().square().mean().sqrt()
            found += bool(error > (1e-4 if y.dtype is torch.float32 and not y.is_cuda else 0.02))
    return found


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [16, 64, 256])
def test_a_function_of_a_weight(device, dtype, channels):
    x, w, bias = tensors(device, channels, dtype)
    ours, theirs = lambda: convtune.conv2d(x, w, bias), lambda: functional.conv2d(x, w, bias)
    assert stale(lambda number: twice(w, number), ours, theirs) == 0
    assert stale(lambda number: twice(bias, number), ours, theirs) == 0


@each_device
def test_adapters_out_and_in(device):
    x, w, bias = tensors(device, 64)
    plain = nn.Conv2d(64, 64, 3, device=device)
    plain.weight, plain.bias = w, bias
    module, deltas = convtune.nn.Conv2d.from_torch(plain).eval(), torch.rand(2, *w.shape, device=device) - 0.5

    def out_and_in(number):
        w.data = w.data - deltas[number % 2]
        w.data = w.data + deltas[1 - number % 2]

    assert stale(out_and_in, lambda: module(x), lambda: plain(x)) == 0


def other_memory(assign):
    """A change of one tensor of a module by `assign(module, name, values)`, twice."""

    def change(module, name, number):
        for times in (0.5, 1.5 + number / 8):
            assign(module, name, getattr(module, name).detach() * times)

    return change


def by_dictionary(module, name, values):
    module.load_state_dict({**module.state_dict(), name: values}, assign=True)


def by_swapping(module, name, values):
    other = values.clone() if name.startswith("running") else nn.Parameter(values, False)
    convtune.torch.forget_packed(module)  # PyTorch swaps no tensor that has weak references
    torch.utils.swap_tensors(getattr(module, name), other)


CHANGES = {
    "data": lambda module, name, values: setattr(getattr(module, name), "data", values),
    "set_": lambda module, name, values: getattr(module, name).set_(values),
    "another tensor": lambda module, name, values: setattr(
        module, name, values if name.startswith("running") else nn.Parameter(values, False)
    ),
    "load_state_dict": by_dictionary,
    "vector_to_parameters": lambda module, name, values: (
        setattr(module, name, values)
        if name.startswith("running")
        else nn.utils.vector_to_parameters(values.flatten(), [getattr(module, name)])
    ),
    "to": lambda module, name, values: (
        setattr(getattr(module, name), "data", values),
        module.double(),
        module.float(),
    ),
    "a view of a larger one": lambda module, name, values: setattr(
        getattr(module, name), "data", torch.stack([values, values])[1]
    ),
    "in another order": lambda module, name, values: setattr(
        getattr(module, name),
        "data",
        values.to(memory_format=torch.channels_last) if values.dim() == 4 else values.flip(0).clone(),
    ),
    "an array of NumPy": lambda module, name, values: setattr(
        getattr(module, name), "data", torch.from_numpy(values.numpy().copy())
    ),
    "none between": lambda module, name, values: (
        setattr(getattr(module, name), "data", torch.empty(0)),
        setattr(getattr(module, name), "data", values),
    ),
}


@pytest.mark.parametrize("how", CHANGES)
@pytest.mark.parametrize("channels", [8, 64])
def test_every_way_to_other_memory(how, channels):
    """A convolution, and a convolution that does the work of its norm: its weight, and what the norm has."""
    torch.manual_seed(0)
    x = torch.rand(1, channels, 8, 8)
    plain = nn.Sequential(nn.Conv2d(channels, channels, 3), nn.BatchNorm2d(channels), nn.ReLU()).eval()
    plain[1].running_var.mul_(0.01)
    plain.requires_grad_(False)
    alone = convtune.nn.Conv2d.from_torch(plain[0]).eval()
    found = copy.deepcopy(plain)
    for convolution, behind in followers(found).items():
        whole.swap(convolution, "", False, behind)
    change = other_memory(CHANGES[how])

    def same_tensors():
        alone.weight, alone.bias = plain[0].weight, plain[0].bias
        return alone(x)

    for at, name in ((0, "weight"), (0, "bias")):
        assert stale(lambda number: change(plain[at], name, number), same_tensors, lambda: plain[0](x)) == 0, name
    for at, name in ((0, "weight"), (0, "bias"), (1, "weight"), (1, "bias"), (1, "running_mean"), (1, "running_var")):

        def both(number):
            change(found[at], name, number)
            for one, other in zip([*plain.parameters(), *plain.buffers()], [*found.parameters(), *found.buffers()]):
                one.data = other.data.clone()

        assert stale(both, lambda: found(x), lambda: plain(x), 5) == 0, name


def test_weights_that_autocast_casts():
    x, w, bias = tensors(channels=64)
    with torch.autocast("cpu", torch.bfloat16):
        found = stale(lambda n: twice(w, n), lambda: convtune.conv2d(x, w, bias), lambda: functional.conv2d(x, w, bias))
    assert found == 0


@pytest.mark.parametrize("channels", [8, 64])
def test_compiled_graphs(channels, afresh):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(channels, channels, 3, bias=False), nn.BatchNorm2d(channels), nn.ReLU()).eval()
    x, options = torch.rand(1, channels, 8, 8), {"convtune.force": True}
    with torch.no_grad():
        compiled = torch.compile(model, backend="convtune", options=options)
        compiled(x)

        def change(number):
            for times in (0.5, 1.5 + number / 8):
                vector = nn.utils.parameters_to_vector(model.parameters()) * times
                nn.utils.vector_to_parameters(vector, model.parameters())
                twice(model[0].weight, number)

        assert stale(change, lambda: compiled(x), lambda: model(x)) == 0


def test_what_tells_without_cpp(monkeypatch):
    from convtune.torch import watched

    monkeypatch.setattr(watched, "watch", lambda *_: None)
    x, w, bias = tensors()
    seen = Watched((w, bias), (x,))
    assert seen.hold((w, bias)) and not seen.hold((bias, w)) and not seen.hold((w,))
    twice(w, 0)
    assert not seen.hold((w, bias))
    seen = Watched((w, bias), (x,))
    x.add_(1)
    assert not seen.hold((w, bias))
    with torch.inference_mode(), pytest.raises(RuntimeError):
        Watched((torch.ones(1),))


def test_no_memory_is_held():
    """The old one is free as soon as the weight has another."""
    from torch.multiprocessing.reductions import StorageWeakRef

    x, w, bias = tensors(channels=64)
    module = convtune.nn.Conv2d(64, 64, 3, bias=False).eval()
    module.weight = w
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=False):
        convtune.conv2d(x, w, bias), module(x)
    before = StorageWeakRef(w.untyped_storage())
    assert not before.expired()
    w.data = w.data + 1
    assert before.expired()


def test_writes_that_nobody_counts_until_all_is_forgotten():
    """`.data.add_`, as adapters are merged: clear_caches is for those, whatever has kept weights."""
    torch.manual_seed(0)
    x, plain = torch.rand(1, 8, 8, 8), nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
    fused, compiled = copy.deepcopy(plain), copy.deepcopy(plain)
    for convolution, behind in followers(fused).items():
        whole.swap(convolution, "", False, behind)
    run = torch.compile(compiled, backend="convtune", options={"convtune.force": True})
    with torch.no_grad():
        run(x), fused(x)
        for model in (plain, fused, compiled):
            model[0].weight.data.add_(0.5)
            model[1].running_mean.data.add_(0.5)
        convtune.clear_caches()
        for y in (run(x), fused(x)):
            assert (y - plain(x)).abs().max() < 1e-4


def main():
    device, worst = "cuda" if torch.cuda.is_available() else "cpu", 0
    print(f"stale of 20 calls on {device}: PyTorch {torch.__version__}, {convtune.torch.operator}")
    for dtype in (torch.bfloat16, torch.float32):
        for channels in (64, 256):
            x, w, _ = tensors(device, channels, dtype)
            function = stale(lambda n: twice(w, n), lambda: convtune.conv2d(x, w), lambda: functional.conv2d(x, w), 20)
            x, w, _ = tensors(device, channels, dtype)
            plain = nn.Conv2d(channels, channels, 3, bias=False, device=device, dtype=dtype).eval()
            plain.weight = w
            module, delta = convtune.nn.Conv2d.from_torch(plain), torch.rand_like(w) - 0.5

            def out_and_in(number):
                w.data = w.data - delta
                w.data = w.data + delta * (1 + number)

            layer = stale(out_and_in, lambda: module(x), lambda: plain(x), 20)
            name = str(dtype).removeprefix("torch.")
            print(f"{name:9} {channels:4} channels: conv2d {function:2}, nn.Conv2d {layer:2}")
            worst = max(worst, function, layer)
    return worst > 0


if __name__ == "__main__":
    sys.exit(main())
