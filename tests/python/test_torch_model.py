"""model_problems: what a run of a PyTorch model says of its convolutions, what follows them, and how often they run."""

import collections
import json
import shutil
import subprocess

import pytest
from torch_support import torch

import convtune
from convtune.model import ModelConvolution, ModelProblems

nn = torch.nn
F = torch.nn.functional
X = torch.rand(1, 8, 6, 6)


class Net(nn.Module):
    """A convolution of 8 channels, and what `follow` makes of its output and of its input."""

    def __init__(self, follow, **more):
        super().__init__()
        self.conv, self.follow = nn.Conv2d(8, 8, 3, padding=1, bias=False, **more), follow
        self.norm, self.row, self.channel = nn.BatchNorm2d(8), nn.Parameter(torch.ones(6)), nn.Parameter(torch.ones(8, 1, 1))

    def forward(self, x):
        return self.follow(self, self.conv(x), x)


def epilogue(follow):
    one, = convtune.model_problems(Net(follow).eval(), X)
    return one.problem.bias, one.problem.residual, one.problem.activation


@pytest.mark.parametrize("function, expected", [
    (F.relu, "relu"),
    (lambda y: F.relu(y, inplace=True), "relu"),
    (lambda y: torch.clamp(y, min=0), "relu"),
    (F.relu6, "clip:0:6"),
    (lambda y: F.hardtanh(y, -2, 3), "clip:-2:3"),
    (F.silu, "silu"),
    (lambda y: y * torch.sigmoid(y), "silu"),
    (lambda y: torch.sigmoid(y) * y, "silu"),
    (F.hardswish, "hardswish"),
    (lambda y: y * F.relu6(y + 3) / 6, "hardswish"),
    (F.gelu, "gelu_erf"),
    (lambda y: 0.5 * y * (1 + torch.erf(y / 2**0.5)), "gelu_erf"),
    (lambda y: F.gelu(y, approximate="tanh"), "gelu_tanh"),
    (torch.sigmoid, "sigmoid"),
    (lambda y: F.leaky_relu(y, 0.1), "leaky_relu:0.1"),
    (lambda y: F.leaky_relu(y, 0.1, inplace=True), "leaky_relu:0.1"),
    (lambda y: F.relu6(y, inplace=True), "clip:0:6"),
    (lambda y: F.hardswish(y, inplace=True), "hardswish"),
    (lambda y: F.silu(y, inplace=True), "silu"),
    (lambda y: torch.ops.aten.gelu_(y), "gelu_erf"),
    (torch.tanh, "none"),
    (lambda y: y * torch.sigmoid(1.702 * y), "none"),
    (lambda y: F.silu(y) + y, "none"),
    (lambda y: (y, F.relu(y)), "none"),  # it is stored
    (lambda y: F.relu(y) * torch.sigmoid(y), "none"),
    (lambda y: F.relu(y.flatten(1)), "none"),
])
def test_activations(function, expected):
    assert epilogue(lambda net, y, x: function(y)) == (False, False, expected)


@pytest.mark.parametrize("follow, expected", [
    (lambda net, y, x: net.norm(y), (True, False, "none")),
    (lambda net, y, x: F.relu(net.norm(y) + x), (True, True, "relu")),
    (lambda net, y, x: F.relu(x.add(net.norm(y))), (True, True, "relu")),
    (lambda net, y, x: net.norm(y).add_(x).relu_(), (True, True, "relu")),
    (lambda net, y, x: F.relu(y) + x, (False, False, "relu")),  # behind the activation
    (lambda net, y, x: net.norm(y + x), (False, True, "none")),  # no weights to fold it into
    (lambda net, y, x: y + net.channel, (True, False, "none")),
    (lambda net, y, x: y + 1.0, (True, False, "none")),
    (lambda net, y, x: y + net.row, (False, False, "none")),  # along the rows
    (lambda net, y, x: y + y, (False, False, "none")),
    (lambda net, y, x: torch.add(y, x, alpha=2), (False, False, "none")),
    (lambda net, y, x: y + x.mean((2, 3), keepdim=True), (False, False, "none")),  # broadcast
    (lambda net, y, x: F.relu(F.dropout(y, 0.5, net.training)), (False, False, "relu")),
])
def test_sums(follow, expected):
    assert epilogue(follow) == expected


def test_in_training_nothing_folds_and_nothing_moves():
    net = Net(lambda net, y, x: F.relu(net.norm(y))).train()
    before, random = {name: one.clone() for name, one in net.state_dict().items()}, torch.random.get_rng_state()
    one, = convtune.model_problems(net, X)
    assert (one.problem.bias, one.problem.activation) == (False, "none")
    assert all(torch.equal(one, before[name]) for name, one in net.state_dict().items())
    assert torch.equal(torch.random.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in net.modules())


def test_weights_that_are_computed():
    class Standardised(nn.Conv2d):
        def forward(self, x):
            return F.conv2d(x, self.weight - self.weight.mean((1, 2, 3), keepdim=True), self.bias)

    class Dynamic(nn.Module):
        def forward(self, x):
            return F.batch_norm(F.conv2d(x, x[:, :, :1, :1].expand(8, 8, 1, 1)), torch.zeros(8), torch.ones(8))

    fixed = nn.Sequential(Standardised(8, 8, 3, bias=False), nn.BatchNorm2d(8)).eval()
    assert [one.problem.bias for one in convtune.model_problems(fixed, X)] == [True]
    assert [one.problem.bias for one in convtune.model_problems(Dynamic(), X)] == [False]


@pytest.mark.parametrize("module, shape, line", [
    (nn.Conv1d(4, 6, 5, 2, 1, 2, 2), (3, 4, 30), "g2mb3ic4oc6ih1kh1iw30kw5sw2pw1dw1"),
    (nn.Conv2d(4, 6, (3, 5), (2, 1), (1, 2), bias=False), (1, 4, 9, 11), "mb1ic4oc6ih9kh3sh2ph1iw11kw5pw2 bias=0"),
    (nn.Conv2d(4, 6, 2, padding="same"), (1, 4, 9, 9), "mb1ic4oc6ih9kh2 pad_bottom=1 pad_right=1"),
    (nn.Conv3d(4, 6, 3, padding=1), (1, 4, 5, 6, 7), "mb1ic4oc6id5kd3pd1ih6kh3ph1iw7kw3pw1"),
    (nn.ConvTranspose2d(6, 4, 3, 2, 1, 1), (1, 6, 5, 5), "mb1ic4oc6ih10kh3sh2ph1 dir=bwd_d bias=1"),
    (nn.Sequential(nn.ZeroPad2d((1, 2, 3, 4)), nn.Conv2d(4, 6, 3, padding=1)), (1, 4, 9, 9),
     "mb1ic4oc6ih9kh3ph4iw9kw3pw2 pad_bottom=5 pad_right=3"),
    (nn.Conv2d(4, 6, 3).half(), (1, 4, 9, 9), "mb1ic4oc6ih9kh3 dtype=f16"),
    (nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), (1, 4, 9, 9), "mb1ic4oc6ih11kh3"),
])
def test_geometry(module, shape, line):
    with torch.device("meta"):  # nothing is computed
        x = torch.empty(shape, dtype=next(module.parameters()).dtype)
    one, = convtune.model_problems(module.to("meta"), x)
    assert one.problem == convtune.Problem.parse(line)


def test_layouts():
    conv = nn.Conv2d(8, 8, 3)
    last = torch.channels_last
    assert [one.problem.layout for one in convtune.model_problems(conv, X.to(memory_format=last))] == ["nhwc"]
    assert [one.problem.layout for one in convtune.model_problems(conv, X)] == ["nchw"]
    pointwise = nn.Conv2d(8, 8, 1)  # an image of one pixel lies both ways
    assert [one.problem.layout for one in convtune.model_problems(pointwise, X[:, :, :1, :1].contiguous())] == ["nchw"]


def test_names_counts_and_what_is_skipped():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.exact = nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1).double()
            self.again = nn.ModuleList([nn.Conv2d(8, 8, 3)])

        def forward(self, x, times=1):
            y = self.first(x) + torch.conv2d(x, self.first.weight)
            for _ in range(times):
                y = y + self.again[0](x)
            return y.sum() + self.exact(x.double()).sum()

    found = convtune.model_problems(torch.compile(Own()), (X, 3))
    assert found.name == "Own"
    # The sums come later than what they add: each claims the one before it as its residual.
    assert sum(one.count for one in found) == 5
    assert {name for one in found for name in one.layers} == {"first", "Own", "again.0"}
    skipped, = found.skipped
    assert (skipped.why, skipped.count, skipped.layers) == ("its numbers are float64", 1, ["exact"])
    assert "skipped convolution (exact): its numbers are float64" in str(found)
    with pytest.raises(convtune.InvalidArgument, match="torch.nn.Module"):
        convtune.model_problems(torch.relu, X)
    with pytest.raises(RuntimeError):
        convtune.model_problems(Own(), X[:, :3])


def test_under_inference_mode_and_autocast():
    class Inference(nn.Conv2d):
        @torch.inference_mode()
        def forward(self, x):
            return F.relu(super().forward(x))

    one, = convtune.model_problems(Inference(8, 8, 3), X)
    assert one.problem.activation == "relu"
    with torch.autocast("cpu", torch.bfloat16):
        one, = convtune.model_problems(nn.Sequential(nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)).eval(), X)
    assert one.problem.dtype == "bf16"


def test_what_convtune_computes_already():
    found = convtune.model_problems(nn.Sequential(convtune.nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 1)), X)
    assert len(found) == 1 and [one.why for one in found.skipped] == ["convtune computes it already"]


def test_convolutions_of_other_kinds():
    ops = pytest.importorskip("torchvision").ops

    class Deformed(nn.Module):
        def forward(self, x):
            return ops.deform_conv2d(x, torch.zeros(1, 18, 4, 4), torch.zeros(8, 8, 3, 3))

    found = convtune.model_problems(Deformed(), X)
    assert [one.why for one in found.skipped] == ["it is the operator torchvision::deform_conv2d"]


def test_resnet50_is_what_its_onnx_file_says():
    """Two readers, two ways: a run of torchvision's model, and ONNX's inference on a graph made by hand."""
    torchvision = pytest.importorskip("torchvision")
    onnx_models = pytest.importorskip("onnx_models", reason="the Python package onnx is not installed here")
    import sys
    from pathlib import Path
    sys.path.insert(0, str(Path(__file__).parent.parent.parent / "src" / "onnx"))
    import onnx_reader
    ours = convtune.model_problems(torchvision.models.resnet50().eval(), torch.rand(2, 3, 224, 224))
    theirs = collections.Counter()
    for one in onnx_reader.read(onnx_models.resnet50(), 2, {})["convolutions"]:
        theirs[convtune.Problem.parse(one["problem"])] += one["count"]
    expected = collections.Counter()
    for one in ours:
        expected[one.problem] += one.count
    assert sum(expected.values()) == 53 and sum(count for one, count in expected.items() if one.residual) == 16
    assert expected == theirs


def test_the_command_takes_the_list(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)).eval()
    found = convtune.model_problems(net, torch.rand(1, 3, 12, 12))
    found.save(tmp_path / "net.json")
    ran = subprocess.run([shutil.which("convtune"), "cases", "--model", tmp_path / "net.json", "--json", "-"],
                         capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    again = json.loads(ran.stdout)
    assert again == json.loads((tmp_path / "net.json").read_text())
    assert [one["layers"] for one in again["convolutions"]] == [["0"], ["2"], ["3"]]


def test_where_the_time_goes(tmp_path):
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *[nn.Conv2d(8, 8, 3, padding=1) for _ in range(3)],
                        nn.ConvTranspose2d(8, 8, 2, 2)).eval()
    found = convtune.model_problems(net, torch.rand(1, 3, 24, 24))
    report = found.bench("cpu", seconds=0.05)
    text = str(report)
    assert "where the time goes" in text and "2 and 2 more" in text and "100.0 %" in text
    assert report.time_us == pytest.approx(sum(row.convolution.count * row.report.own.time_us for row in report.rows))
    shares = [row.peer_us for row in report.rows]
    assert report.best_peer_us == pytest.approx(sum(shares)) and len(shares) == 3 and not report.skipped
    report.save(tmp_path / "net.html")
    page = (tmp_path / "net.html").read_text()
    assert "Where the time goes" in page and "2 and 2 more" in page
    report.save(tmp_path / "net.json")
    saved = json.loads((tmp_path / "net.json").read_text())
    assert sorted(row["count"] for row in saved["rows"])[-1] == 3
    tuned = ModelProblems("net", [ModelConvolution(found.convolutions[0].problem, 2, ["first"])]).tune(
        "cpu", budget=0.5, progress=False, save=False)
    assert tuned.rows[0].us > 0 and "first" in str(tuned)
    eager = convtune.Problem.parse("mb1ic3ih9oc4kh3sh2ph1 dtype=bf16 dir=bwd_d residual=1 rounding=eager")
    slow = ModelProblems("net", [ModelConvolution(eager, 1, ["eager"])])
    why = "only the reference runs it, which is right, and slow"
    assert [(one.why, one.layers) for one in slow.bench("cpu", seconds=0.05).skipped] == [(why, ["eager"])]
    tuned = slow.tune("cpu", budget=0.5, progress=False, save=False)
    assert not tuned.rows and "nothing was measured" in str(tuned)
    assert "there is nothing to tune: no fast algorithm runs" in tuned.skipped[0].why
