"""torch.compile(backend="convtune"): what is fused, that the answers are PyTorch's, what is left alone. The graph that
inductor would be given runs as it is but where a test says otherwise: compiling takes most of a minute a model."""

import copy
import logging
import os
from pathlib import Path

import pytest
from processes import python
from torch_compiled_models import (
    NORMS,
    OURS,
    activation_of,
    block,
    compiled,
    fused,
    images,
    residual,
)
from torch_support import assert_near, count, each_device, torch, with_statistics

import convtune
from convtune.torch import backend, rewriting
from convtune.torch.fused import conv2d_fused
from convtune.torch.graph import capture, chains, patterns

nn, aten = torch.nn, torch.ops.aten
pytestmark = pytest.mark.usefixtures("afresh")


@pytest.mark.parametrize("name", ["resnet18", "resnet50", "efficientnet_b0", "mobilenet_v3_large", "convnext_tiny"])
def test_models(graphs, name):
    models = pytest.importorskip("torchvision", reason="torchvision is not installed here").models
    torch.manual_seed(0)
    model = with_statistics(getattr(models, name)())
    x = images(1, 3, 48, 48)
    with torch.no_grad():
        expected = model(x)
        got = compiled(model)(x)
    error = (got - expected).abs().max() / expected.square().mean().sqrt()
    assert error < 1e-4, error
    (graph,) = graphs
    convolutions = sum(isinstance(module, nn.Conv2d) for module in model.modules())
    assert count(graph, *OURS) == convolutions and count(graph, aten.convolution.default, *NORMS) == 0
    for node in fused(graph):
        (user,) = users if len(users := list(node.users)) == 1 else (node,)
        assert user.target not in (aten.relu.default, aten.silu.default, aten.gelu.default, aten.hardswish.default)
        assert user.target is not aten.add.Tensor or name == "mobilenet_v3_large"  # hardsigmoid is x + 3 and more


ACTIVATIONS = {
    "relu": nn.ReLU(inplace=True),
    "clip:0:6": nn.ReLU6(inplace=True),
    "clip:-1:1": nn.Hardtanh(),
    "silu": nn.SiLU(inplace=True),
    "gelu_erf": nn.GELU(),
    "gelu_tanh": nn.GELU("tanh"),
    "hardswish": nn.Hardswish(inplace=True),
    "leaky_relu:0.01": nn.LeakyReLU(inplace=True),
    "leaky_relu:0.2": nn.LeakyReLU(0.2),
    "sigmoid": nn.Sigmoid(),
}


@each_device
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(graphs, device, activation):
    model, x = block(activation=ACTIVATIONS[activation]).to(device), images(device=device)
    with torch.no_grad():
        assert_near(compiled(model)(x), model(x))
    found = fused(graphs[0])
    assert [activation_of(node) for node in found] == [activation, "relu", "clip:-1:1"]
    assert [residual(node) is not None for node in found] == [False, True, False]
    assert len([node for node in graphs[0].nodes if node.op == "call_function"]) == 3


@each_device
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("channels_last", [False, True])
def test_types_and_memory_formats(graphs, device, dtype, channels_last):
    exact, x = block().to(device), images(device=device).to(dtype)
    model = copy.deepcopy(exact).to(dtype)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    with torch.no_grad():
        theirs, ours, right = model(x), compiled(model)(x), exact(x.float())
    assert ours.dtype is dtype and ours.stride() == theirs.stride()
    assert count(graphs[0], *OURS) == 3
    if dtype is torch.float32:
        return assert_near(ours, theirs)
    # Rounded once where PyTorch rounds after each step, so nearer to the truth, but for the folded weights' rounding.
    assert (ours - right).square().mean() <= 2 * (theirs - right).square().mean()
    return None


@each_device
def test_autocast(graphs, device):
    model, x = block().to(device), images(device=device)
    with torch.no_grad(), torch.autocast(device, dtype=torch.bfloat16):
        theirs, ours = model(x), compiled(model)(x)
    assert ours.dtype is theirs.dtype is torch.bfloat16
    assert count(graphs[0], *OURS) == 3 and count(graphs[0], aten._to_copy.default) == 2  # copies of x and of the sum
    assert (ours.float() - theirs.float()).abs().max() < 0.05


def test_any_batch(graphs):
    model = block()
    run = compiled(model)
    with torch.no_grad():
        for batch in (2, 3, 5, 7):
            x = images(batch, 8, 12, 12)
            assert_near(run(x), model(x))
    assert len(graphs) == 2  # for batches of 2, and of any


def test_gradients_and_training_are_inductors(graphs, caplog):
    caplog.set_level(logging.INFO, "convtune")
    model, x = block(), images()
    run = compiled(model)
    expected = model(x)
    y = run(x)
    assert torch.equal(y, expected) and count(graphs[0], *OURS) == 0
    assert "records gradients" in caplog.text
    y.sum().backward()
    assert model.first.weight.grad is not None
    model.train()
    with torch.no_grad():
        run(x)
    assert count(graphs[-1], *NORMS) == 0 and model.norm.num_batches_tracked == 1
    assert activation_of(fused(graphs[-1])[0]) == "none"  # the norm in training mode is its own


def test_what_cannot_be_rewritten_is_inductors(graphs, caplog, monkeypatch):
    monkeypatch.setattr(rewriting, "chains", lambda *_: 1 / 0)
    model, x = block(), images()
    with torch.no_grad():
        assert_near(compiled(model, None)(x), model(x))
    assert "could not be rewritten" in caplog.text and count(graphs[0], *OURS) == 0


def test_values_that_are_used_twice_stay(graphs):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, x):
            y = self.conv(x)
            z = self.norm(y)
            return y, z.relu(), z.sigmoid()

    model, x = with_statistics(Twice()), images(2, 3, 9, 9)
    with torch.no_grad():
        for got, expected in zip(compiled(model)(x), model(x)):
            assert_near(got, expected)
    assert count(graphs[0], *OURS) == 1 and count(graphs[0], *NORMS) == 1


@pytest.mark.parametrize("channels_last", [False, True])
def test_parts_of_images_are_copied_by_inductor(graphs, channels_last):
    """Halves of an image's channels, read by a convolution and added to another: one copy of one half, for both."""

    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.third = nn.Conv2d(8, 16, 1), nn.Conv2d(8, 4, 3, padding=1), nn.Conv2d(4, 8, 1)

        def forward(self, x):
            left, right = self.first(x).chunk(2, 1)
            return torch.cat([left, right, self.third(self.second(right)) + right], 1)

    format = torch.channels_last if channels_last else torch.contiguous_format
    model, x = Halves().eval().to(memory_format=format), images().contiguous(memory_format=format)
    with torch.no_grad():
        assert_near(compiled(model)(x), model(x))
    (copy,) = graphs[0].find_nodes(op="call_function", target=aten.clone.default)
    _, second, third = fused(graphs[0])
    assert copy.meta["val"].is_contiguous(memory_format=format)
    assert second.args[0] is copy and residual(third) is copy


@pytest.mark.parametrize("channels_last", [False, True])
def test_graphs_of_a_gpu_are_matched_anywhere(channels_last):
    """As PyTorch traces them there; needs none."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    model = block()
    state = model.state_dict()

    def forward(x, *tensors):
        return torch.func.functional_call(model, dict(zip(state, tensors)), x)

    with torch._subclasses.FakeTensorMode() as mode, enable_python_dispatcher(), torch.no_grad():
        tensors = [mode.from_tensor(tensor).to("cuda") for tensor in state.values()]
        x = torch.empty(2, 8, 12, 12, device="cuda")
        if channels_last:
            x = x.to(memory_format=torch.channels_last)
        traced = make_fx(torch.func.functionalize(forward))(x, *tensors)
    traced.graph.eliminate_dead_code()
    found = patterns.chains(traced.graph, patterns.Weights(traced.graph, lambda place: place > 0))
    assert [(chain.activation, chain.total is not None, chain.fold.as_they_are) for chain in found] == [
        ("gelu_erf", False, False), ("relu", True, True), ("clip:-1:1", False, True),
    ]  # fmt: skip


@pytest.mark.parametrize("mode", [None, "reduce-overhead"])
def test_by_inductor(mode, monkeypatch):
    """torch.compile takes a mode or options."""
    forced = chains.Wanted(force=True)
    monkeypatch.setattr(backend, "Wanted", lambda **_: forced)
    model, x = block(), images()
    how = dict(options={"max_autotune": False}) if mode is None else dict(options=None, mode=mode)
    with torch.no_grad():
        run = compiled(model, **how)
        for _ in range(3):
            assert_near(run(x), model(x))
        model.norm.weight.mul_(2)
        assert_near(run(x), model(x))


def test_an_installed_package_has_the_backend(tmp_path):
    """By its entry point, before anything of convtune is imported."""
    root = Path(__file__).resolve().parents[2]
    if not root.joinpath("pyproject.toml").is_file():
        pytest.skip("the tests do not lie in the project, whose pyproject.toml has the entry point")
    section = root.joinpath("pyproject.toml").read_text().partition("[project.entry-points.torch_dynamo_backends]\n")[2]
    info = tmp_path / "convtune-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: convtune\nVersion: 1.0\n")
    entry = section.partition("\n")[0].replace('"', "")
    (info / "entry_points.txt").write_text(f"[torch_dynamo_backends]\n{entry}\n")
    program = (
        "import sys, torch; found = torch._dynamo.lookup_backend('convtune'); print(found.__module__, found.__name__)"
    )
    path = os.pathsep.join([str(tmp_path), str(root / "python"), os.environ.get("PYTHONPATH", "")])
    done = python("-c", program, PYTHONPATH=path)
    assert done.stdout.split() == ["convtune.torch.backend", "backend"], done.stderr


def test_unknown_options():
    with pytest.raises(Exception, match="'convtune.forced' is no option of convtune"), torch.no_grad():
        compiled(block(), {"convtune.forced": True})(images())


@each_device
@pytest.mark.parametrize(("dtype", "records"), [(torch.float32, True), (torch.bfloat16, False)])
def test_opcheck(device, dtype, records):
    def made(*shape):
        return images(*shape, device=device).to(dtype).requires_grad_(records)

    x, w, bias, z = made(2, 4, 9, 8), made(6, 4, 3, 3), made(6), made(2, 6, 9, 8)
    how = (1, 1), (1, 1, 1, 1), (1, 1), 1
    torch.library.opcheck(conv2d_fused, (x, w, bias, z, *how, "auto", "silu"))
    last = x.detach().to(memory_format=torch.channels_last)
    uneven = (2, 1), (0, 1, 2, 1), (1, 2), 1
    for arguments in ((x, w, None, None, *uneven), (last, w, bias, None, *how, "auto", "clip:0:6")):
        torch.library.opcheck(conv2d_fused, arguments, test_utils=("test_schema", "test_faketensor"))


def test_wrong_residuals():
    x, w = images(2, 4, 9, 8), images(6, 4, 3, 3)
    for residual in (images(2, 6, 9, 1), images(2, 6, 9, 8).double()):
        with pytest.raises(convtune.InvalidArgument, match="residual"):
            conv2d_fused(x, w, None, residual, (1, 1), (1, 1, 1, 1), (1, 1), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_half_precision_is_channels_last_inside(graphs, monkeypatch, dtype):
    monkeypatch.setattr(capture, "_DEVICES", ("cpu",))
    model, x = block().to(dtype), images().to(dtype)
    with torch.no_grad():
        expected, y = model(x), compiled(model)(x)
    assert y.stride() == expected.stride() and (y - expected).abs().max() < 0.05
    plans = [node.args[3] for node in fused(graphs[0])]
    half = dtype is torch.bfloat16
    assert len(plans) == 3 and all(("layout=nhwc" in plan) == half for plan in plans)
    assert count(graphs[0], aten.clone.default) == (2 if half else 0)  # places where it begins and where it ends

    class Views(nn.Module):  # shapes that channels last cannot be
        def __init__(self):
            super().__init__()
            self.convolution = nn.Conv2d(8, 8, 1)

        def forward(self, x):
            return self.convolution(x).view(x.shape[0], -1)

    model = Views().to(dtype)
    with torch.no_grad():
        y, expected = compiled(model)(x), model(x)
    assert y.stride() == expected.stride() and (y - expected).abs().max() < 0.05

    class Returns(Views):  # a view of its input, and views of one tensor
        def __init__(self, which):
            super().__init__()
            self.which = which

        def forward(self, x):
            y = self.convolution(x)
            return (y, x.flatten(1)) if self.which == "input" else (y, y[:, :4])

    for which in ("input", "output"):
        model = Returns(which).to(dtype)
        with torch.no_grad():
            y, view = compiled(model)(x)
        assert view.data_ptr() == (x if which == "input" else y).data_ptr()

    class Writes(Views):  # to its input, not to a copy of it
        def forward(self, x):
            return self.convolution(x.mul_(2))

    model = Writes().to(dtype)
    with torch.no_grad():
        y, expected = compiled(model)(first := x.clone()), model(second := x.clone())
    assert torch.equal(first, second) and (y - expected).abs().max() < 0.05
