"""graphed: what is replayed and what is not, that changes of the model are seen, what it refuses. Where there is no GPU
a recording is a call into the same outputs. The graph that inductor would be given runs as it is but in the last test."""

import copy

import pytest
from torch_support import on_gpu, torch

import convtune
from convtune.torch import graphed as torch_graphed
from convtune.torch.graphed import Graphed

nn = torch.nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.Linear(16, 5)

    def forward(self, x, scale=1.0):
        y = torch.relu(self.norm(self.conv(x)))
        return {"map": y * scale, "classes": self.head(y.mean((2, 3)))}


class _Again:
    """A recording where there are no CUDA graphs."""

    count = 0

    def __init__(self, run, inputs):
        self.outputs = run(*inputs)
        _Again.count += 1

        def replay():
            with torch_graphed._guarded():  # a CUDA graph compiles nothing, this may
                for name, y in run(*inputs).items():
                    self.outputs[name].copy_(y)

        self.replay = replay


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=on_gpu)])
def device(request, monkeypatch):
    torch._dynamo.reset()
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    if request.param == "cpu":
        _Again.count = 0
        monkeypatch.setattr(torch_graphed, "_Recording", _Again)
    monkeypatch.setattr("torch._inductor.compile_fx.compile_fx", lambda module, inputs, **_: module)
    yield request.param
    torch._dynamo.reset()


def net_of(device):
    torch.manual_seed(0)
    model = Net().to(device).eval()
    model.norm.running_mean.uniform_(-1, 1)
    return model


def graphed(model, *args, names=()):
    return Graphed(model, args, names, {"convtune.force": True}, whole=False)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, y in expected.items():
        assert torch.allclose(found[name], y, rtol=1e-3, atol=1e-4), name
        assert not found[name].requires_grad


def images(device, n=2):
    return torch.rand(n, 3, 12, 10, device=device)


def test_other_inputs_of_the_same_form_are_replayed(device):
    model = net_of(device)
    fast = graphed(model, images(device))
    replays = []
    replay = fast._recording.replay
    fast._recording.replay = lambda: replays.append(1) or replay()
    for _ in range(3):
        x = images(device)
        assert_same(fast(x), model(x))
    x = images(device).to(memory_format=torch.channels_last)
    assert_same(fast(x), model(x))
    assert len(replays) == 4
    x = images(device, 5)
    assert_same(fast(x), model(x))  # another form: compiled
    assert len(replays) == 4


def test_other_values_are_no_replay(device):
    model = net_of(device)
    x = images(device)
    fast = graphed(model, x, 2.0)
    assert_same(fast(x, 2.0), model(x, 2.0))
    assert_same(fast(x, 3.0), model(x, 3.0))
    assert_same(fast(x), model(x))
    named = graphed(model, x, 2.0, names=("x", "scale"))
    assert_same(named(x=x, scale=2.0), model(x, 2.0))
    assert_same(named(x, 2.0), model(x, 2.0))
    assert_same(named(x, scale=4.0), model(x, 4.0))


class Told(Net):
    """Takes a dict beside the image."""

    def forward(self, x, told):
        return super().forward(x, told["scale"])


def test_a_changed_argument_is_no_replay(device):
    model, told = Told().to(device).eval(), {"scale": 2.0}
    x = images(device)
    fast = graphed(model, x, told)
    assert_same(fast(x, told), model(x, told))
    told["scale"] = 3.0
    assert_same(fast(x, told), model(x, told))


def test_refuses_arguments_that_cannot_be_compared(device):
    x = images(device)
    with pytest.raises(convtune.InvalidArgument, match="within a dict"):
        graphed(Told().to(device).eval(), x, {"scale": torch.ones((), device=device)})
    with pytest.raises(convtune.InvalidArgument, match="type object does not equal its own copy"):
        graphed(Net().to(device).eval(), x, object())


class Counting(Net):
    """Counts its forwards in a buffer."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return super().forward(x, self.calls)


def test_buffers_that_a_forward_writes_are_written_once_a_call(device, monkeypatch):
    torch.manual_seed(0)
    model, x = Counting().to(device).eval(), images(device)
    once = Net().to(device).eval()
    once.load_state_dict({name: one for name, one in model.state_dict().items() if name != "calls"})
    fast = graphed(model, x)
    assert model.calls == 0, "a recording runs the model"
    for calls in (1.0, 2.0):
        assert_same(fast(x), once(x, calls))
    with monkeypatch.context() as context:
        context.setattr(torch.backends.cudnn, "deterministic", not torch.backends.cudnn.deterministic)
        assert_same(fast(x), once(x, 3.0))
    with torch.no_grad():
        for net in (model, once):
            net.head.weight.mul_(2)
    assert_same(fast(x), once(x, 4.0))
    assert model.calls == 4


class Rebinding(Counting):
    def forward(self, x):
        self.calls = self.calls + 1
        return Net.forward(self, x)


def test_refuses_a_forward_that_replaces_its_buffers(device):
    with pytest.raises(convtune.InvalidArgument, match="in the place of the buffer calls"):
        graphed(Rebinding().to(device).eval(), images(device))


@pytest.mark.parametrize("change", [
    lambda net: net.conv.weight.mul_(-0.5),
    lambda net: net.head.weight.mul_(3),
    lambda net: setattr(net.conv, "weight", nn.Parameter(torch.rand_like(net.conv.weight))),
    lambda net: setattr(net.head.bias, "data", torch.rand_like(net.head.bias)),
    lambda net: net.norm.running_var.add_(2),
    lambda net: net.load_state_dict({name: one + 1 for name, one in net.state_dict().items()}),
], ids=["packed, in place", "in place", "another parameter", "other data", "a norm's buffer", "load_state_dict"])  # fmt: skip
def test_a_change_of_the_model_is_seen(device, change):
    model = net_of(device)
    x = images(device)
    fast = graphed(model, x)
    fast(x)
    with torch.no_grad():
        change(model)
    for _ in range(2):
        assert_same(fast(x), model(x))


class Bare(nn.Module):
    """A convolution without a bias, and a part without parameters."""

    def __init__(self):
        super().__init__()
        self.conv, self.part = nn.Conv2d(3, 4, 3, bias=False), nn.Identity()

    def forward(self, x):
        y = self.conv(x)
        return {"map": y if not self.part._parameters and not self.part._buffers else y * self.part.scale}


@pytest.mark.parametrize("change", [
    lambda net: setattr(net.conv, "bias", nn.Parameter(torch.rand_like(net.conv.weight[:, 0, 0, 0]))),
    lambda net: net.part.register_parameter("scale", nn.Parameter(torch.rand_like(net.conv.weight[:, :1, :1, 0]))),
    lambda net: net.part.register_buffer("scale", torch.rand_like(net.conv.weight[:, :1, :1, 0])),
], ids=["in the place of None", "a first parameter", "a first buffer"])  # fmt: skip
def test_a_parameter_where_none_was_is_seen(device, change):
    torch.manual_seed(0)
    model, x = Bare().to(device).eval(), images(device)
    fast = graphed(model, x)
    assert_same(fast(x), model(x))
    recorded, recording = _Again.count, fast._recording
    change(model)
    for _ in range(2):
        assert_same(fast(x), model(x))
    assert fast._recording is not recording and _Again.count == recorded + (device == "cpu")
    if model.conv.bias is not None:
        model.conv.bias = None
        for _ in range(2):
            assert_same(fast(x), model(x))


def test_inputs_that_record_gradients(device):
    """A copy of one would give the graph's own input a history."""
    model = net_of(device)
    fast = graphed(model, images(device))
    x = images(device).requires_grad_()
    for enabled in (True, False):
        with torch.set_grad_enabled(enabled):
            assert_same(fast(x), model(x.detach()))
    assert not fast._static[0].requires_grad and fast._static[0].grad_fn is None
    if device == "cuda":  # no part of a recording is in inference mode
        with torch.inference_mode():
            assert_same(fast(x), model(x))


def test_settings_are_looked_at_behind_the_launch(device, monkeypatch):
    model = net_of(device)
    fast, x = graphed(model, images(device)), images(device)
    asked = []
    monkeypatch.setattr(fast, "_as_compiled", lambda *given: asked.append(given) or {"map": x})
    fast(x)
    assert not asked
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", not torch.backends.cudnn.deterministic)
    fast(x)
    assert asked == [((x,), {})]


class Scaled(nn.Module):
    """No module of it has a buffer: `double` and `float` change its parameters' data alone, which no dict of theirs shows."""

    def __init__(self):
        super().__init__()
        self.conv, self.scale = nn.Conv2d(3, 16, 3, padding=1), nn.Parameter(torch.rand(16, 1, 1))

    def forward(self, x):
        return {"map": torch.sin(self.conv(x)) * self.scale}


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_gpu)])
def test_another_type_of_data_is_seen(device, monkeypatch):
    """By inductor itself, whose kernels would read one type's memory as another's."""
    torch._dynamo.reset()
    if device == "cpu":
        monkeypatch.setattr(torch_graphed, "_Recording", _Again)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    model, x = Scaled().to(device).eval(), images(device)
    fast = graphed(model, x)
    for _ in range(2):
        assert_same(fast(x), model(x))
    model.scale.data = model.scale.data.double()
    for _ in range(2):
        assert_same(fast(x), model(x))
    model.double()
    for run in (model, fast, fast):
        with pytest.raises(RuntimeError):
            run(x)
    model.float()
    assert_same(fast(x), model(x))
    torch._dynamo.reset()


def test_in_training_mode_it_is_pytorchs(device):
    model = net_of(device)
    x = images(device)
    fast = graphed(model, x)
    model.train()
    other = copy.deepcopy(model)
    with torch.no_grad():
        assert_same(fast(x), other(x))
    model.eval()
    assert_same(fast(x), model(x))


def test_what_it_refuses(device):
    model, x = net_of("cpu"), images("cpu")
    with pytest.raises(convtune.InvalidArgument, match="on one GPU"):
        convtune.graphed(model, x)
    with pytest.raises(convtune.InvalidArgument, match="training mode"):
        convtune.graphed(model.train(), x)
    with pytest.raises(convtune.InvalidArgument, match="before torch.compile"):
        convtune.graphed(torch.compile(model), x)


@on_gpu
def test_the_whole_is_proven(monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # a folded norm has other products to round
    torch._dynamo.reset()
    model = net_of("cuda")
    x = images("cuda")
    fast = convtune.graphed(model, x)
    assert fast.report is None or fast.report.before_us > 0
    assert_same(fast(x), model(x))
    with torch.inference_mode():
        assert_same(fast(x), model(x))
    y = fast(x)["map"]
    assert y.data_ptr() == fast(x)["map"].data_ptr()
