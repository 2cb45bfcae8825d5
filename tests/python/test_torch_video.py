"""Decoders of video by torch.compile(backend="convtune"): one graph a piece of other caches, whose frames are numbers, and caches that
hold no more than their own frames."""

from types import SimpleNamespace

import pytest
from torch_causal import Causal
from torch_support import torch

import convtune.torch.backend
from convtune.torch.dynamo import teach
from convtune.torch.graph import chains
from convtune.torch.how import How

nn, F = torch.nn, torch.nn.functional


class Decoder(nn.Module):
    """As diffusers' causal ones are: a list of caches, in which a word stands for the first."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Causal(8, 8, (3, 1, 1)), Causal(8, 8, (3, 1, 1))

    def forward(self, x, caches):
        for at, layer in enumerate((self.first, self.second)):
            kept = x[:, :, -2:].clone()
            if kept.shape[2] < 2 and caches[at] is not None:
                kept = torch.cat([torch.zeros_like(kept) if caches[at] == "Rep" else caches[at][:, :, -1:], kept], 2)
            x = F.silu(layer(x, None if caches[at] == "Rep" else caches[at]))
            caches[at] = kept if at == 0 or caches[at] is not None else "Rep"
        return x


def pieces(decoder, frames):
    caches, answers = [None, None], []
    for x in frames:
        answers.append(decoder(x, caches))
    return answers, caches


@pytest.fixture
def graphs(monkeypatch):
    """Graphs that the backend was given, as it has rewritten them; False where that failed."""
    torch._dynamo.reset()
    found, own = [], convtune.torch.backend.rewritten

    def noted(*arguments):
        found.append(False)
        made = own(*arguments)
        found[-1] = made[0]
        return made

    monkeypatch.setattr(convtune.torch.backend, "rewritten", noted)
    yield found
    torch._dynamo.reset()


def test_a_tensor_equals_no_string():
    teach()
    torch._dynamo.reset()

    def run(x):
        return x + 1 if x == "Rep" or not x != "Rep" else x * 2

    x = torch.ones(3)
    assert torch.equal(torch.compile(run, backend="eager", fullgraph=True)(x), x * 2)
    same = torch.compile(lambda x: (x == x, x == 2), backend="eager", fullgraph=True)(x)
    assert same[0].all() and not same[1].any()


@pytest.mark.parametrize("last", [False, True])
def test_pieces_of_one_frame_are_graphs_of_numbers(last, graphs):
    torch.manual_seed(0)
    decoder = Decoder().eval()
    frames = torch.rand(6, 1, 8, 1, 6, 5)
    frames = [x.contiguous(memory_format=torch.channels_last_3d) if last else x for x in frames]
    with torch.no_grad():
        expected = pieces(decoder, frames)
        compiled = torch.compile(decoder, backend="convtune", options={"convtune.force": True})
        pieces(compiled, frames)
        found = pieces(compiled, frames)  # again from the first piece
    for mine, theirs in zip([*found[0], *found[1]], [*expected[0], *expected[1]]):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert 3 <= len(graphs) <= 5
    texts = [str(one.graph.graph) for one in graphs]
    assert sum("cache=2" in text for text in texts) >= 1 and not any("conv2d_fused" in text for text in texts)


@pytest.mark.parametrize("forced", [False, True])
def test_caches_of_other_strides_are_measured(forced, graphs):
    """Views of pieces and joined tensors have different strides of their one image, which Dynamo makes symbols."""
    torch.manual_seed(0)
    decoder = Decoder().eval()
    frames = [one.contiguous(memory_format=torch.channels_last_3d) for one in torch.rand(5, 1, 8, 4, 6, 5)]
    options = {"convtune.force": True} if forced else {"convtune.whole": False}

    def of_views(decoder):
        answers, caches = [], [frames[0][:, :, -2:], frames[1][:, :, -2:]]
        for at, x in enumerate(frames):
            answers.append(decoder(x, caches))
            caches[:] = [torch.cat([one[:, :, :1], one[:, :, 1:]], 2) if at % 2 else frames[at][:, :, -1:] for one in caches]
        return answers

    with torch.no_grad():
        expected = of_views(decoder)
        found = of_views(torch.compile(decoder, backend="convtune", options=options))
    for mine, theirs in zip(found, expected):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
    assert graphs and False not in graphs


@pytest.mark.parametrize("last", [False, True])
def test_caches_hold_their_frames_alone(last):
    torch._dynamo.reset()
    torch.manual_seed(0)
    decoder = Decoder().eval()
    frames = torch.rand(3, 1, 8, 4, 6, 5)
    frames = [x.contiguous(memory_format=torch.channels_last_3d) if last else x for x in frames]
    with torch.no_grad():
        expected = pieces(decoder, frames)[1]
        caches = pieces(torch.compile(decoder, backend="convtune", options={"convtune.force": True}), frames)[1]
    for mine, theirs in zip(caches, expected):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)
        assert mine.stride()[1:] == theirs.stride()[1:]  # the stride from image to image means nothing for one
        assert mine.untyped_storage().nbytes() == mine.numel() * mine.element_size()


def test_a_layer_is_described_by_the_examples_sizes():
    """A contest makes tensors of them, also of a cache whose frames are a symbol."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

    any_frames = StatelessSymbolicContext([DimDynamic.DYNAMIC if axis == 2 else DimDynamic.STATIC for axis in range(5)])
    frames = torch.empty(1, 8, 2, 6, 5)
    with torch._subclasses.FakeTensorMode(shape_env=ShapeEnv()) as mode:
        cache = mode.from_tensor(frames, symbolic_context=any_frames)
        assert not isinstance(cache.shape[2], int) and not isinstance(cache.stride()[1], int)
        x, weight = torch.empty(1, 8, 1, 6, 5), torch.empty(8, 8, 3, 1, 1)
    node = [SimpleNamespace(meta={"val": one}) for one in (x, weight, cache)]
    chain = SimpleNamespace(
        x=node[0], weight=node[1], cache=node[2], residual=None, has_bias=False, linear=False, how=How((1,) * 3, (0,) * 6, (1,) * 3),
        convolution=SimpleNamespace(name="convolution", args=(None, None, None)), fold=SimpleNamespace(places=(None,) * 3),
    )  # fmt: skip
    found = chains._described(chain).cache
    assert found == ((1, 8, 2, 6, 5), (480, 60, 30, 5, 1)) and all(type(size) is int for part in found for size in part)


def test_sequences_of_any_length_stay_of_any(graphs):
    """Joined and padded to one length, which no convolution of volumes reads."""
    class Padded(nn.Conv1d):
        def forward(self, x, before):
            joined = torch.cat([before, x], 2)
            return super().forward(F.pad(joined, (0, 64 - joined.shape[2])))

    model, before = Padded(8, 8, 3).eval(), torch.rand(1, 8, 1)
    compiled = torch.compile(model, backend="convtune", options={"convtune.force": True})
    with torch.no_grad():
        for length in range(10, 40, 3):
            x = torch.rand(1, 8, length)
            torch.testing.assert_close(compiled(x, before), model(x, before), rtol=1e-4, atol=1e-4)
    assert len(graphs) <= 2
