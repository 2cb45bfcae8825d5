"""convtune.nn.Conv3d as a drop-in, and models with subclasses of torch.nn.Conv3d, as video decoders have them."""

import copy
import io
import pickle

import pytest
from torch_support import assert_near, each_device, torch

import convtune
import convtune.torch
from convtune.nn import Conv2d, Conv3d
from convtune.torch.modules.whole import swap

nn, F = torch.nn, torch.nn.functional


class CausalConv3d(nn.Conv3d):
    """Joins the frames before, or zeros, in front: as the decoders of Wan do."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        frames, rows, columns = self.padding
        self.edges = (columns, columns, rows, rows, 2 * frames, 0)
        self.padding = (0, 0, 0)

    def forward(self, x, cache=None):
        edges = list(self.edges)
        if cache is not None and edges[4] > 0:
            x = torch.cat([cache, x], dim=2)
            edges[4] = max(edges[4] - cache.shape[2], 0)
        return super().forward(F.pad(x, edges))


class Direct(nn.Conv3d):
    """A convolution of its own in place of PyTorch's."""

    def _conv_forward(self, x, weight, bias):
        return F.conv3d(x, weight, bias) + 1


class Named(CausalConv3d):
    """An attribute that a swapped module uses otherwise."""

    precision = "high"


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.plain = CausalConv3d(8, 8, (3, 1, 1), padding=(1, 0, 0)), nn.Conv3d(8, 8, (3, 1, 1))
        self.image, self.own, self.named = nn.Conv2d(8, 8, 3), Direct(8, 8, 1), Named(8, 8, 1)

    def forward(self, x, cache):
        h = self.named(self.own(self.plain(self.first(x, cache))))
        return F.conv3d(self.image(h[:, :, 0])[:, :, None], self.own.weight)


EXAMPLE = torch.rand(1, 8, 3, 7, 6), torch.rand(1, 8, 2, 7, 6)


@each_device
@pytest.mark.parametrize(
    "settings",
    [
        dict(), dict(stride=(1, 2, 2), padding=1), dict(padding="same", dilation=(1, 2, 1)), dict(padding="valid"),
        dict(padding=(1, 2, 1), padding_mode="reflect"), dict(padding="same", padding_mode="circular"),
        dict(padding=1, padding_mode="replicate", bias=False), dict(groups=2),
    ],
    ids=str,
)  # fmt: skip
def test_settings(device, settings, exact_products):
    theirs = nn.Conv3d(4, 6, (2, 3, 2) if settings.get("padding") == "same" else 3, **settings).to(device)
    ours = Conv3d.from_torch(theirs)
    assert ours.weight is theirs.weight and ours.bias is theirs.bias
    for shape in ((2, 4, 5, 7, 6), (4, 5, 7, 6)):
        x = torch.rand(shape, device=device)
        assert_near(ours(x), theirs(x))


def test_state_copies_and_pickles():
    theirs, ours = nn.Conv3d(4, 6, 3), Conv3d(4, 6, 3, precision="fp32")
    ours.load_state_dict(theirs.state_dict())
    x, file = torch.rand(1, 4, 4, 6, 5), io.BytesIO()
    torch.save(ours, file)
    file.seek(0)
    for made in (ours, copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), torch.load(file, weights_only=False)):
        assert type(made) is Conv3d and made.precision == "fp32"
        assert_near(made(x), theirs(x))
    assert repr(ours).startswith("Conv3d(4, 6, kernel_size=(3, 3, 3)") and "convtune" in repr(ours)
    assert ours.prepare(x, (1, 4, 5, 6, 5)).repack() is ours
    assert ours.train(False).to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16
    with pytest.raises(convtune.Unsupported, match="convtune.nn.Conv3d"):
        torch.jit.script(ours)


def test_from_torch_refuses_what_it_would_lose():
    with pytest.raises(TypeError, match="takes a torch.nn.Conv3d, not a Conv2d"):
        Conv3d.from_torch(nn.Conv2d(3, 4, 3))
    with pytest.raises(TypeError, match="takes a torch.nn.Conv2d, not a Conv3d"):
        Conv2d.from_torch(nn.Conv3d(3, 4, 3))
    with pytest.raises(TypeError, match="a CausalConv3d has a forward of its own"):
        Conv3d.from_torch(CausalConv3d(3, 4, 3))


def test_a_subclass_keeps_its_forward():
    module = CausalConv3d(8, 8, 3, padding=1).eval()
    x, cache = torch.rand(1, 8, 1, 6, 5), torch.rand(1, 8, 2, 6, 5)
    expected = module(x), module(x, cache)
    swap(module, "", False)
    kind = type(module)
    assert issubclass(kind, CausalConv3d) and issubclass(kind, Conv3d) and kind.__name__ == "CausalConv3d"
    for made in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(made) is kind
        assert_near(made(x), expected[0])
        assert_near(made(x, cache), expected[1])
        assert type(convtune.restore(made)) is CausalConv3d and not {"choices", "led"} & set(vars(made))


def test_a_second_swap_changes_no_class():
    for module in (CausalConv3d(4, 4, 3), torch.nn.Conv3d(4, 4, 3), torch.nn.Conv2d(4, 4, 3)):
        swap(module, "", False)
        kind = type(module)
        swap(module, "", False)
        assert type(module) is kind


def test_optimize_swaps_and_restore_undoes(decided):
    model = Decoder().eval()
    expected, kinds = model(*EXAMPLE), [type(one) for one in model.modules()]
    convtune.optimize(model, EXAMPLE, budget=0, progress=False)
    decisions = {name: layer.decision for layer in model.convtune_report.layers for name in layer.names}
    assert decisions["first"].startswith("convtune") and decisions["plain"].startswith("convtune")
    assert decisions["own"] == "left: it is a Direct" and decisions["named"] == "left: it is a Named"
    assert model.convtune_report.functional == 1
    assert isinstance(model.first, Conv3d) and isinstance(model.first, CausalConv3d) and type(model.plain) is Conv3d
    assert not any("_conv_forward" in vars(one) for one in model.modules())
    assert_near(model(*EXAMPLE), expected)
    for shape in ((2, 8, 3, 7, 6), (1, 8, 1, 7, 6)):  # proven for none of these: PyTorch's
        assert model.first(torch.rand(shape)).shape == shape
    convtune.restore(model)
    assert [type(one) for one in model.modules()] == kinds
    assert torch.equal(model(*EXAMPLE), expected)


def test_model_problems_of_causal_modules():
    found = convtune.model_problems(Decoder().eval(), EXAMPLE)
    texts = {layer: str(one.problem) for one in found.convolutions for layer in one.layers}
    assert "id5ih7iw6oc8kd3kh1kw1" in texts["first"] and "id3ih7iw6oc8kd3kh1kw1" in texts["plain"]
    first = convtune.model_problems(CausalConv3d(4, 4, 3, padding=1), torch.rand(1, 4, 1, 6, 5)).convolutions[0]
    assert first.problem.padding == (2, 1, 1, 0, 1, 1)


def test_compiled_subclasses():
    module = CausalConv3d(8, 8, 3, padding=1).eval()
    x, cache = torch.rand(1, 8, 1, 6, 5), torch.rand(1, 8, 2, 6, 5)
    expected = module(x, cache)
    swap(module, "", False)
    torch._dynamo.reset()
    with torch.no_grad():
        assert_near(torch.compile(module, backend="aot_eager", fullgraph=True)(x, cache), expected)
