"""convtune.conv3d with a cache of frames, causal modules, forwards that join frames, and weights that CUDA graphs read."""

import copy
import gc

import pytest
from torch_support import assert_near, each_device, on_gpu, tensors, torch

import convtune
import convtune.torch
from convtune.caches import PACKS
from convtune.nn import CausalConv3d, Conv3d
from convtune.torch import convolution_of
from convtune.torch.modules.joining import Frames, JoiningFrames
from convtune.torch.modules.layers import find
from convtune.torch.modules.whole import swap

nn, F = torch.nn, torch.nn.functional
CAUSAL = (2, 1, 1, 0, 1, 1)


def joined(x, cache, w, bias, stride, padding, dilation):
    front, top, left, back, bottom, right = padding
    whole = F.pad(torch.cat([cache, x], 2), (left, right, top, bottom, front - cache.shape[2], back))
    return F.conv3d(whole, w, bias, stride, 0, dilation)


SETTINGS = {
    "all of the padding": ((3, 3, 3), 1, CAUSAL, 1, 2),
    "one of two": ((3, 3, 3), 1, CAUSAL, 1, 1),
    "frames alone, with steps": ((3, 1, 1), (2, 1, 1), (1, 0, 0, 0, 0, 0), 1, 1),
    "dilated": ((3, 3, 1), 1, (4, 1, 0, 0, 1, 0), (2, 1, 1), 3),
}


@each_device
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last_3d"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.filterwarnings("ignore:convtune has no kernels")
def test_a_cache_is_what_is_joined(device, last, dtype, settings, exact_products):
    kernel, stride, padding, dilation, frames = settings
    form = torch.channels_last_3d if last else torch.contiguous_format
    x, w, bias = tensors(device, (2, 8, 3, 9, 7), 8, kernel)
    x, w, bias = x.to(dtype, memory_format=form), w.to(dtype), bias.to(dtype)
    cache = torch.rand(2, 8, frames, 9, 7).to(device, dtype).contiguous(memory_format=form)
    kept = torch.full((2, 8, padding[0] if stride == 1 else 2, 9, 7), 9.0).to(device, dtype).contiguous(memory_format=form)
    expected = joined(x, cache, w, bias, stride, padding, dilation)
    y = convtune.conv3d(x, w, bias, stride, padding, dilation, cache=cache, cache_out=kept)
    assert y.dtype == dtype and y.is_contiguous(memory_format=form)
    if dtype is torch.bfloat16:
        torch.testing.assert_close(y, expected, rtol=2e-2, atol=2e-2)
    else:
        assert_near(y, expected)
    whole = torch.cat([torch.zeros_like(kept), cache, x], 2)
    assert torch.equal(kept, whole[:, :, -kept.shape[2] :])
    one = convtune.torch.conv3d(x[0], w, bias, stride, padding, dilation, cache=cache[0])
    torch.testing.assert_close(one, y[0], rtol=2e-2, atol=2e-2)
    lying = convtune.conv3d(x, w, bias, stride, padding, dilation, cache=cache.to(memory_format=torch.preserve_format).mT.mT)
    assert torch.equal(lying, y)


@each_device
def test_the_next_cache_may_be_this_one_and_the_first_piece_has_none(device):
    x, w, _ = tensors(device, (1, 4, 6, 5, 6), 4, (3, 3, 3))
    cache, pieces = torch.full((1, 4, 2, 5, 6), 9.0, device=device), []
    pieces.append(convtune.conv3d(x[:, :, :1], w, None, 1, CAUSAL, cache_out=cache))
    assert torch.equal(cache, torch.cat([torch.zeros_like(x[:, :, :1]), x[:, :, :1]], 2))
    for at in (1, 2, 4):
        piece = x[:, :, at : at + (1 if at == 1 else 2)].clone()
        before = cache._version
        pieces.append(convtune.conv3d(piece, w, None, 1, CAUSAL, cache=cache, cache_out=cache))
        assert cache._version > before
    assert_near(torch.cat(pieces, 2), convtune.conv3d(x, w, None, 1, CAUSAL))
    assert torch.equal(cache, x[:, :, -2:])


def test_what_does_not_fit_is_refused():
    x, w, _ = tensors("cpu", (1, 4, 3, 5, 6), 4, (3, 3, 3))
    for words, bad in (
        ("cache has 3 frames, and no more than 2", {"cache": x}),
        ("it must be x's but for its frames", {"cache": x[:, :2, :2]}),
        ("float64", {"cache": x[:, :, :2].double()}),
        ("cache is a ndarray", {"cache": x[:, :, :2].numpy()}),
        ("cache_out has the shape", {"cache_out": torch.empty(1, 4, 1, 5, 6)}),
    ):
        with pytest.raises(convtune.InvalidArgument, match=words):
            convtune.conv3d(x, w, None, 1, CAUSAL, **bad)
    with pytest.raises(convtune.InvalidArgument, match="cache_out has the shape"):
        convtune.conv3d(x, w[:, :, :1], None, cache_out=torch.empty(1, 4, 0, 5, 6))


@each_device
def test_gradients_pass_through_a_cache(device):
    x, w, bias = tensors(device, (1, 4, 2, 5, 6), 4, (3, 3, 3))
    cache = torch.rand(1, 4, 2, 5, 6, device=device)
    kept = torch.empty_like(cache)
    leaves = [one.clone().requires_grad_() for one in (x, cache, w)]
    convtune.conv3d(leaves[0], leaves[2], bias, 1, CAUSAL, cache=leaves[1], cache_out=kept).square().sum().backward()
    others = [one.clone().requires_grad_() for one in (x, cache, w)]
    joined(others[0], others[1], others[2], bias, 1, CAUSAL, 1).square().sum().backward()
    for mine, theirs in zip(leaves, others):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-2, atol=2e-2)
    assert torch.equal(kept, x)


@each_device
def test_a_causal_module_sees_no_later_frame(device, exact_products):
    conv = CausalConv3d(4, 8, 3, padding=1, dilation=(2, 1, 1)).to(device)
    x, cache = torch.rand(2, 4, 3, 6, 5, device=device), torch.rand(2, 4, 4, 6, 5, device=device)
    edges = (1, 1, 1, 1, 4, 0)
    expected = F.conv3d(F.pad(x, edges), conv.weight, conv.bias, dilation=(2, 1, 1))
    assert_near(conv(x), expected)
    with torch.no_grad():
        assert_near(conv(x), expected)
        assert_near(conv(x[0]), expected[0])
        kept = torch.empty_like(cache)
        whole = F.conv3d(F.pad(torch.cat([cache, x], 2), edges), conv.weight, conv.bias, dilation=(2, 1, 1))
        assert_near(conv(x, cache, kept), whole[:, :, 4:])
        assert torch.equal(kept, torch.cat([cache, x], 2)[:, :, -4:])
        plain = Conv3d(4, 8, 3, padding=(2, 1, 1)).to(device)
        assert_near(plain(x, cache[:, :, :1])[:, :, :3], plain(torch.cat([cache[:, :, :1], x], 2))[:, :, 1:4])
    with pytest.raises(convtune.InvalidArgument, match="pads zeros"):
        CausalConv3d(4, 8, 3, padding_mode="replicate")


class Causal(nn.Conv3d):
    """As decoders have them; `mode` and `around` make it something else."""

    mode, around = "constant", None

    def __init__(self, c=8, k=8):
        super().__init__(c, k, 3)
        self.edges = (1, 1, 1, 1, 2, 0)

    def forward(self, x, cache=None):
        edges = list(self.edges)
        if cache is not None and self.edges[4] > 0:
            cache = cache.to(x.device)
            x = torch.cat([cache, x], dim=2)
            edges[4] -= cache.shape[2]
        x = F.pad(x, edges, mode=self.mode)
        if self.around is not None:
            x = self.around(x)
        return super().forward(x)


@pytest.fixture
def calls(monkeypatch):
    from convtune.torch.modules import joining

    seen, own = [], joining.call_with_cache

    def noted(x, weight, bias, how, residual, cache, cache_out):
        seen.append((x, cache, how.padding))
        return own(x, weight, bias, how, residual, cache, cache_out)

    monkeypatch.setattr(joining, "call_with_cache", noted)
    return seen


@each_device
def test_a_forward_that_joins_frames_hands_them_on(device, calls):
    x, cache = torch.rand(1, 8, 2, 6, 5, device=device), torch.rand(1, 8, 2, 6, 5, device=device)
    theirs = Causal().to(device).eval()
    ours = copy.deepcopy(theirs)
    swap(ours, "", False)
    with torch.no_grad():
        for given in ((x,), (x, cache), (x, cache[:, :, :1])):
            torch.testing.assert_close(ours(*given), theirs(*given), rtol=1e-2, atol=1e-2)
            seen, before, edges = calls.pop()
            assert seen is given[0] and edges == CAUSAL
            assert before is (given[1] if len(given) > 1 else None)
    torch.testing.assert_close(ours(x, cache), theirs(x, cache), rtol=1e-2, atol=1e-2)  # gradients: as it is written
    ours.train()
    with torch.no_grad():
        ours(x, cache)
    assert not calls


@pytest.mark.parametrize(
    "around",
    [
        lambda x: x * 2, lambda x: x[:, :, :-1], lambda x: F.silu(x), lambda x: torch.cat([x, x], 2), lambda x: 1 - x,
        lambda x: x.contiguous(), lambda x: x.mul_(3), lambda x: torch.cat([x[:, :, :1], x[:, :, 1:]], 2),
    ],
)  # fmt: skip
def test_whoever_looks_at_joined_frames_gets_the_tensor(around):
    x, cache = torch.rand(1, 8, 2, 6, 5), torch.rand(1, 8, 2, 6, 5)
    theirs = Causal().eval()
    theirs.around = around
    ours = copy.deepcopy(theirs)
    swap(ours, "", False)
    with torch.no_grad():
        torch.testing.assert_close(ours(x, cache), theirs(x, cache), rtol=1e-4, atol=1e-4)


def test_padding_with_other_numbers_is_pytorchs(calls):
    theirs = Causal().eval()
    theirs.mode = "replicate"
    ours = copy.deepcopy(theirs)
    swap(ours, "", False)
    x = torch.rand(1, 8, 2, 6, 5)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-4, atol=1e-4)
    assert not calls


def test_frames_that_are_written_to_are_made_first():
    x, cache = torch.rand(1, 2, 2, 3, 3), torch.rand(1, 2, 1, 3, 3)
    expected = F.pad(torch.cat([cache, x], 2), (1, 1))
    with JoiningFrames():
        frames = F.pad(torch.cat([cache, x], dim=2), (1, 1))
        assert isinstance(frames, Frames) and frames.shape == expected.shape and frames.size(4) == 5
        x.zero_()
    assert torch.equal(frames.tensor, expected)
    with JoiningFrames():
        frames = torch.cat([cache, x], 2)
        x[:, :, 0] = 1
    assert torch.equal(frames.tensor[:, :, 1], torch.zeros(1, 2, 3, 3))
    with JoiningFrames():
        assert not isinstance(torch.cat([x, x], 1), Frames)
        assert not isinstance(F.pad(x, (1, 1), value=1.0), Frames)
        assert not isinstance(F.pad(x, (-1, 1)), Frames)


def test_frames_that_a_forward_keeps_are_what_they_were():
    class Keeping(Causal):
        def forward(self, x, cache):
            self.kept = torch.cat([cache, x], 2)
            return super().forward(x, cache), [F.pad(x, (1, 0))]

    ours = Keeping().eval()
    x, cache = torch.rand(1, 8, 2, 6, 5), torch.rand(1, 8, 2, 6, 5)
    expected = torch.cat([cache, x], 2), F.pad(x, (1, 0))
    swap(ours, "", False)
    with torch.no_grad():
        _, (padded,) = ours(x, cache)
        x.zero_()
    assert torch.equal(ours.kept.tensor, expected[0]) and torch.equal(padded, expected[1])
    assert torch.equal(ours.kept * 2, expected[0] * 2) and ours.kept.mean() == expected[0].mean()


def test_optimize_asks_for_what_is_joined():
    model = nn.ModuleList([Causal(), Causal()]).eval()
    x, cache = torch.rand(1, 8, 2, 6, 5), torch.rand(1, 8, 2, 6, 5)
    with torch.no_grad():
        found, others = find(model, lambda: model[1](model[0](x), cache), {})
    assert not others and [str(seen.problem).partition(" ")[2] for seen in found] == [
        "precision=fp32 pad_back=0", "precision=fp32 pad_back=0 cache=2",
    ]  # fmt: skip
    assert all(seen.problem.padding == CAUSAL for seen in found)
    assert not any("forward" in vars(one) or "_conv_forward" in vars(one) for one in model)
    with torch.no_grad():
        compiled, _ = find(model, lambda: model[1](model[0](x), cache), {}, joins=False)
    assert [seen.problem.padding for seen in compiled] == [(0,) * 6] * len(compiled)
    for seen in found:
        sides = seen.sides()
        line = "\t".join((convtune.torch.run.fingerprint("cpu"), seen.problem.key, "nchw", "reference", ""))
        torch.testing.assert_close(sides.convtune(line)(), sides.pytorch(), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(sides.exact(1).float(), sides.pytorch(), rtol=1e-3, atol=1e-3)


def test_recorded_weights_stay_and_follow_their_parameter():
    x, w = torch.rand(1, 8, 2, 6, 5), nn.Parameter(torch.rand(8, 8, 3, 3, 3), requires_grad=False)
    with torch.no_grad():
        convtune.conv3d(x, w, None, 1, 1)
        made = convolution_of(x, w, None, 1, 1, 1, 1)
        entries = next(entries for owner, entries in PACKS._of.values() if owner() is w)
        entry = next(iter(entries.values()))
        assert PACKS.record(w, None, entry.convolution) is entry and PACKS.record(w, None, entry.convolution) is entry
        assert made is not None and PACKS.record(w, None, made) is entry  # planned alike, and so packed alike
        assert PACKS.recorded(w) == [entry]
        w.mul_(2)
        assert PACKS.record(w, None, entry.convolution) is None
        PACKS.forget(w)
        assert PACKS.recorded(w) == [entry]
        released = PACKS.release(w)
        assert PACKS.recorded(w) == [] and entry in PACKS._abandoned
        PACKS.resume(w, released)
        assert PACKS.recorded(w) == [entry] and entry not in PACKS._abandoned
        PACKS.release(w)
    number = len(PACKS._abandoned)
    del w
    gc.collect()
    assert len(PACKS._abandoned) == number


def test_convolutions_that_pack_alike_share_memory():
    class Planned:
        def __init__(self, packing):
            self.packing = packing

    w = nn.Parameter(torch.rand(4, 4, 1, 1, 1), requires_grad=False)
    seen = convtune.tensors.seen(w), None
    kept = PACKS.keep(w, None, seen, Planned("one"), 0, object(), 4096)
    assert PACKS.find(w, None, Planned("one"), 0) is kept and PACKS.find(w, None, Planned("other"), 0) is None
    assert PACKS.record(w, None, Planned("one")) is kept
    PACKS.release(w)


def recorded(run):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = run()
    return graph, y


@on_gpu
@pytest.mark.parametrize("trains", [False, True])
def test_a_graph_reads_what_was_packed(trains):
    x = torch.rand(1, 64, 2, 12, 10, device="cuda", dtype=torch.bfloat16)
    conv = CausalConv3d(64, 64, 3, padding=1, device="cuda", dtype=torch.bfloat16).eval().requires_grad_(trains)
    cache = torch.rand_like(x)
    with torch.no_grad():
        conv(x, cache)
        graph, y = recorded(lambda: conv(x, cache, cache))
        assert bool(PACKS.recorded(conv.weight)) is not trains
        for edit in (lambda: conv.weight.mul_(2), lambda: conv.weight.data.mul_(-1)):
            edit()
            conv.repack()
            cache.copy_(x.flip(2))
            expected = conv(x, cache)
            graph.replay()
            assert torch.equal(y, expected) and torch.equal(cache, x)


def test_a_call_that_reads_anothers_copy_runs_its_own_convolution(monkeypatch):
    monkeypatch.setattr("convtune.caches._order", lambda convolution: convolution.plan.algorithm)
    weight = torch.nn.Parameter(torch.rand(16, 16, 3, 3), requires_grad=False)
    images = [torch.rand(1, 16, rows, 16) for rows in (16, 20)]
    assert len({str(convtune.plan(x, weight, padding=1).plan.config) for x in images}) == 1  # so their copies are equal
    for _ in range(3):  # the first call prepares, later ones are ready in C++
        for x in images:
            torch.testing.assert_close(
                convtune.conv2d(x, weight, None, 1, 1), F.conv2d(x, weight, None, 1, 1), rtol=1e-3, atol=1e-3
            )
