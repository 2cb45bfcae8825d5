"""Copies of volumes to channels first, which a graph leaves out where they lie channels last: when, and what stays as it was."""

import pytest
from torch_support import torch

import convtune.torch.backend
from convtune.torch.graph import capture, joined
from convtune.torch.graph.operators import volumes

nn, F, aten = torch.nn, torch.nn.functional, torch.ops.aten


@pytest.fixture
def clones_of(monkeypatch):
    """Gives how many tensors the graph of that function of a volume copies, where its answer is PyTorch's and lies as PyTorch's does."""
    torch._dynamo.reset()
    monkeypatch.setattr(volumes, "_DEVICES", ("cpu",))
    found = []

    def of(run, dtype=torch.bfloat16, last=True):
        def noted(module, inputs):
            found.append(capture.captured(module, inputs))
            return found[-1]

        torch.manual_seed(0)
        x = (torch.rand(2, 8, 3, 4, 5) - 0.5).to(dtype)
        x = x.contiguous(memory_format=torch.channels_last_3d) if last else x
        with torch.no_grad():
            expected, before = run(x), x.clone()
            got = torch.compile(run, backend=noted, fullgraph=True)(x)
        torch.testing.assert_close(got, expected, rtol=2e-2, atol=2e-2)
        assert got.stride() == expected.stride() and torch.equal(x, before)
        return sum(node.target in (aten.clone.default, aten.replication_pad3d.default) for node in found[-1].graph.nodes)

    yield of
    torch._dynamo.reset()


WEIGHT = ((torch.rand(8, 8, 3, 3, 3, generator=torch.Generator().manual_seed(1)) - 0.5) / 5).to(torch.bfloat16)
LAST = WEIGHT.contiguous(memory_format=torch.channels_last_3d)


def convolved(x, weight=LAST):
    return torch.conv3d(x, weight.to(x.dtype), None, 1, 1)


def block(x):
    """As HunyuanVideo's residual blocks begin and end."""
    x = convolved(x).contiguous()
    return convolved(F.silu(F.group_norm(x, 4))) + x


def test_blocks_copy_nothing(clones_of):
    assert clones_of(lambda x: convolved(block(x))) == 0


def test_padding_of_nothing_copies_nothing(clones_of):
    def shortcut(x):
        x = convolved(x)
        return convolved(x + torch.conv3d(F.pad(x, (0,) * 6, mode="replicate"), LAST[:, :, :1, :1, :1]))

    assert clones_of(shortcut) == 0


def test_others_are_copied(clones_of):
    assert clones_of(lambda x: convolved(convolved(x).contiguous()), dtype=torch.float32) > 0
    assert clones_of(lambda x: convolved(x).contiguous()) > 0  # an answer lies as it was asked to


def test_views_that_one_layout_has(clones_of):
    assert clones_of(lambda x: convolved(convolved(x).contiguous().view(2, 4, 6, 4, 5).reshape(2, 8, 3, 4, 5))) > 0


def test_what_asks_for_strides(clones_of):
    assert clones_of(lambda x: convolved(torch.as_strided(convolved(x).contiguous(), (2, 8, 3, 4, 5), (480, 60, 20, 5, 1)))) > 0


def frames_of_x(x):
    y = x[:, :, :2].contiguous()
    return convolved(F.silu(F.group_norm(y, 4))).mean(), y.flatten(2)


def written_behind(x):
    found = frames_of_x(x)
    x.mul_(2)
    return found


def volume_written_behind(x):
    y = x[:, :, 1:].contiguous()
    mean = convolved(F.silu(F.group_norm(y, 4))).mean()
    x.mul_(2)
    return mean, y[:, :, 1:].contiguous(memory_format=torch.channels_last_3d)


def beside_its_copy(x):
    x = convolved(x)
    y = x.contiguous()
    return x, convolved(F.silu(F.group_norm(y, 4))).mean(), y.flatten(2)


def part_of_its_copy(x):
    x = convolved(x)
    y = x.contiguous()
    return x, convolved(F.silu(F.group_norm(y, 4))).mean(), y[:, :, 1:].contiguous(memory_format=torch.channels_last_3d)


VIEWED = [
    frames_of_x, written_behind, volume_written_behind, beside_its_copy, part_of_its_copy,
    lambda x: (block(x).mean(), convolved(x).contiguous().flatten(2)),
    lambda x: (block(x).mean(), convolved(x).contiguous()[0]),
    lambda x: (block(x).mean(), convolved(x).contiguous()[:, :, 0]),
]  # fmt: skip


@pytest.mark.parametrize("images", [1, 2])
@pytest.mark.parametrize("run", VIEWED)
def test_views_of_copies_as_answers(run, images, monkeypatch):
    """They lie as PyTorch's do, in memory that no input and no other answer has."""
    monkeypatch.setattr(volumes, "_DEVICES", ("cpu",))
    torch._dynamo.reset()
    x = (torch.rand(images, 8, 3, 4, 5, generator=torch.Generator().manual_seed(2)) - 0.5).to(torch.bfloat16)
    theirs, own = (x.contiguous(memory_format=torch.channels_last_3d).clone() for _ in range(2))
    with torch.no_grad():
        expected, got = run(theirs), torch.compile(run, backend=capture.captured, fullgraph=True)(own)
    torch._dynamo.reset()
    torch.testing.assert_close((*got, own), (*expected, theirs), rtol=2e-2, atol=2e-2)
    assert [one.stride() for one in got] == [one.stride() for one in expected]
    memory = [one.untyped_storage().data_ptr() for one in (*got, own)]
    assert len(set(memory)) == len(memory)


def test_a_copy_is_written_alone(clones_of):
    def run(x):
        x = convolved(x)
        y = x.contiguous()
        y.mul_(2)
        return convolved(x + 1) + convolved(y)

    clones_of(run)


def test_the_backend_takes_such_blocks(monkeypatch):
    monkeypatch.setattr(volumes, "_DEVICES", ("cpu",))
    torch._dynamo.reset()
    x = (torch.rand(1, 8, 3, 4, 5) - 0.5).to(torch.bfloat16).contiguous(memory_format=torch.channels_last_3d)

    def run(x):
        return convolved(block(x))

    with torch.no_grad():
        got = torch.compile(run, backend="convtune", options={"convtune.force": True})(x)
        torch.testing.assert_close(got, run(x), rtol=3e-2, atol=3e-2)
    torch._dynamo.reset()


@pytest.mark.parametrize("ends", [(1, 1, 1, 1, 2, 0), (0, 0, 0, 0, 1, 1), (2, 0, 0, 0, 0, 3), (0, 0, 2, 1, 0, 0), (0, 1, 0, 0, 0, 0), (0,) * 6])
def test_padding_by_edges_is_one_gather(ends, monkeypatch):
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(x):
        return F.pad(x, ends, mode="replicate").relu()

    monkeypatch.setattr(joined, "_reads_channels_last", lambda user, padded: True)
    for dtype, count in ((torch.bfloat16, 0), (torch.float32, 1)):
        x = torch.rand(2, 4, 3, 4, 5).to(dtype)
        traced = make_fx(run, tracing_mode="fake")(x)
        joined.pad_as_they_are(traced.graph)
        traced.recompile()
        assert len(traced.graph.find_nodes(op="call_function", target=aten.replication_pad3d.default)) == count
        assert torch.equal(traced(x), run(x))


def test_joined_and_padded_volumes_are_joined_last(monkeypatch):
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(x):
        return F.pad(torch.cat([x[:, :, :1], x], 2), (1, 1, 1, 1, 2, 0), mode="replicate").relu()

    x = torch.rand(2, 4, 3, 4, 5).to(torch.bfloat16)
    traced = make_fx(run, tracing_mode="fake")(x)
    pad = traced.graph.find_nodes(op="call_function", target=aten.replication_pad3d.default)[0]
    own = joined._reads_channels_last
    monkeypatch.setattr(joined, "_reads_channels_last", lambda user, of: of is pad or own(user, of))
    joined.join_channels_last(traced.graph)
    traced.recompile()
    (cat,) = traced.graph.find_nodes(op="call_function", target=aten.cat.default)
    assert cat.args[1] == 1 and torch.equal(traced(x), run(x))


ONE = torch.empty(8, 8, 1, 1, 1, dtype=torch.bfloat16).copy_(LAST[:, :, 1:2, 1:2, 1:2])  # one tap, whose strides alone say how it lies
ONE_LAST = torch.empty_strided((8, 8, 1, 1, 1), (8, 1, 8, 8, 8), dtype=torch.bfloat16).copy_(ONE)


@pytest.mark.parametrize("weight, last", [(LAST, True), (WEIGHT, False), (ONE_LAST, True), (ONE, False)])
def test_pytorchs_own_convolutions_read_so_too(weight, last):
    from torch.fx.experimental.proxy_tensor import make_fx

    def run(x, weight):
        return torch.conv3d(F.pad(torch.cat([x[:, :, :1], x], 2), (1, 1, 1, 1, 2, 0), mode="replicate"), weight)

    x = (torch.rand(1, 8, 3, 4, 5) - 0.5).to(torch.bfloat16)
    traced = make_fx(run, tracing_mode="fake")(x, weight)
    joined.join_channels_last(traced.graph)
    joined.pad_as_they_are(traced.graph)
    traced.recompile()
    (cat,) = traced.graph.find_nodes(op="call_function", target=aten.cat.default)
    pads = traced.graph.find_nodes(op="call_function", target=aten.replication_pad3d.default)
    assert (cat.args[1] == 1) is last and (not pads) is last
    torch.testing.assert_close(traced(x, weight), run(x, weight), rtol=2e-2, atol=2e-2)
