"""optimize on eager models: batch norms and activations that structure proves to stand behind a convolution are done by
it; in training mode, under gradients and in copies everything is as it was."""

import copy
import pickle

import pytest
from torch_support import assert_near, torch, with_statistics

import convtune
from convtune.nn import Conv2d
from convtune.torch.modules import handover, whole
from convtune.torch.modules.structure import followers

nn = torch.nn
X = torch.rand(2, 3, 24, 24)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8), nn.SiLU(inplace=True))
        self.plain = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.ReLU6())
        self.conv, self.norm, self.relu = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU()
        self.twice, self.other = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)

    def forward(self, x):
        x = self.plain(self.stem(x))
        x = self.relu(self.norm(self.conv(x)) + x)
        y = self.twice(x)
        return self.relu(self.other(y) - y)


@pytest.fixture
def made():
    torch.manual_seed(0)
    return with_statistics(Model())


def optimized(model, example=X):
    return convtune.optimize(model, example, budget=0, progress=False)


def answer(model, x=X):
    with torch.no_grad():
        return model(x)


def fused_calls(model, x=X):
    """How many convolutions of a call did the work of their followers."""
    made = []
    with pytest.MonkeyPatch.context() as patch:
        computed = handover._computed
        patch.setattr(handover, "_computed", lambda *a: made.append(computed(*a)) or made[-1])
        answer(model, x)
    return sum(y is not None for y in made)


def test_what_structure_proves(made):
    found = followers(made)
    names = {id(module): name for name, module in made.named_modules()}
    proven = {names[id(one)]: ([names[id(m)] for m in behind.modules], behind.activation) for one, behind in found.items()}
    assert proven == {
        "stem.0": (["stem.1", "stem.2"], "silu"),
        "plain.0": (["plain.1"], "clip:0:6"),
        "conv": (["norm"], "none"),
    }
    made.norm.register_forward_hook(lambda *_: None)
    assert made.conv not in followers(made)
    assert not followers(made.train())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_are_folded_in_half_precision(made, decided, dtype):
    """As near to the float32 model as PyTorch's own model in that type is."""
    exact = answer(made)
    model, x = made.to(dtype), X.to(dtype)
    theirs = answer(model, x)
    assert optimized(model, x).convtune_report.kept
    ours = answer(model, x)
    assert ours.dtype is dtype and type(model.stem[0]) is Conv2d and model.stem[0].led is not None
    own, other = ((one.float() - exact).square().mean().sqrt() for one in (ours, theirs))
    assert own <= 1.5 * other, (float(own), float(other))


def test_parts_of_what_cannot_be_traced(made):
    class Untraceable(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x) if x.sum() > 0 else x

    assert list(followers(Untraceable(made).eval())) == list(followers(made))
    assert not followers(nn.ModuleList([nn.ModuleList([made.stem]), made.stem]).eval())


def test_fused_and_restored(made, decided):
    expected, classes = answer(made), [type(one) for one in made.modules()]
    keys = list(made.state_dict())
    optimized(made)
    assert made.convtune_report.kept
    assert [type(one) for one in (made.stem[0], made.plain[0], made.conv, made.twice)] == [Conv2d] * 4
    assert [one.led is not None for one in (made.stem[0], made.plain[0], made.conv, made.twice)] == [1, 1, 1, 0]
    problems = {layer.names[0]: str(layer.problem) for layer in made.convtune_report.layers}
    assert "act=silu" in problems["stem.0"] and "act=clip:0:6" in problems["plain.0"]
    assert_near(answer(made), expected)
    assert fused_calls(made) == 3 and list(made.state_dict()) == keys
    assert isinstance(made.stem[1], nn.BatchNorm2d) and isinstance(made.stem[2], nn.SiLU)
    convtune.restore(made)
    assert [type(one) for one in made.modules()] == classes
    assert not any("convtune_calls" in vars(one) or "led" in vars(one) for one in made.modules())
    assert torch.equal(answer(made), expected)


def test_every_other_way_to_run_it(made, decided):
    plain = copy.deepcopy(made)
    optimized(made)
    for x in (X[:1], torch.rand(3, 3, 30, 20), X.to(memory_format=torch.channels_last)):
        assert_near(answer(made, x), answer(plain, x))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert (made(X).float() - plain(X).float()).abs().max() < 0.05
    assert_near(answer(torch.fx.symbolic_trace(made)), answer(plain))
    torch._dynamo.reset()
    assert_near(answer(torch.compile(made, backend="aot_eager", fullgraph=True)), answer(plain))
    for mode in (False, True):  # eval with gradients, and training
        for model in (made, plain):
            model.train(mode).zero_grad()
            model(X).square().sum().backward()
        for one, other in zip(made.parameters(), plain.parameters()):
            assert torch.allclose(one.grad, other.grad, rtol=1e-3, atol=1e-3)
    assert torch.equal(made.norm.running_mean, plain.norm.running_mean)
    made.eval(), plain.eval()
    assert_near(answer(made), answer(plain))  # with the statistics of one step more


def test_weights_that_change(made, decided):
    plain, _ = copy.deepcopy(made), optimized(made)
    for model in (made, plain):
        with torch.no_grad():
            model.stem[0].weight.mul_(2)
            model.norm.bias.add_(1)
            model.plain[0].bias.sub_(0.5)
    assert_near(answer(made), answer(plain))
    state = {name: tensor * 0.9 for name, tensor in plain.state_dict().items()}
    for model in (made, plain):
        model.load_state_dict(state)
    assert_near(answer(made), answer(plain))
    assert_near(answer(made.double(), X.double()), answer(plain.double(), X.double()))


def test_what_training_does_to_statistics_is_seen(made, decided):
    """A norm's forward writes to them without a trace in their `_version`."""
    model = optimized(made)
    for _ in range(2):
        before = answer(model)
        model.train()
        model(2 * X + 3)
        model.eval()
        now = answer(model)
        assert not torch.equal(now, before)
        assert_near(now, answer(convtune.restore(copy.deepcopy(model))))


def test_copies(made, decided):
    expected = answer(optimized(made))
    for other in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert torch.equal(answer(other), expected)
        assert fused_calls(other) == 3
        with torch.no_grad():
            other.stem[1].weight.mul_(2)
        assert not torch.equal(answer(other), expected) and torch.equal(answer(made), expected)
        convtune.restore(other)
        assert type(other.stem[1]) is nn.BatchNorm2d and type(other.stem[0]) is nn.Conv2d


@pytest.mark.parametrize("name", ["torchvision mobilenet_v2", "timm efficientnet_lite0", "timm resnet18"])
def test_blocks_of_libraries(decided, name, monkeypatch):
    library, name = name.split()
    package = pytest.importorskip(library, reason=f"{library} is not installed here")
    torch.manual_seed(0)
    model = with_statistics(getattr(package.models, name)() if library == "torchvision" else package.create_model(name))
    found = followers(model)
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in model.modules())
    assert sum(behind.norm is not None for behind in found.values()) == norms
    if "net_" in name:
        assert sum(behind.activation == "clip:0:6" for behind in found.values()) > norms / 2
    x = torch.rand(1, 3, 48, 48)
    expected = answer(model, x)
    for module, behind in found.items():
        whole.swap(module, "", False, behind)
    error = (answer(model, x) - expected).abs().max() / expected.square().mean().sqrt()
    assert error < 1e-4
