"""optimize and restore: what is swapped, what is left, what is undone; with contests that are decided here."""

import copy
import io
import types
import warnings

import pytest
from torch_optimize_models import Model, Subclass, X, optimized
from torch_support import assert_near, torch

import convtune
from convtune.nn import Conv2d
from convtune.torch.how import How
from convtune.torch import run as torch_run
from convtune.torch.measure import check, contests, decide, sides as torch_sides

nn = torch.nn


def test_swaps_and_restores(decided):
    model = Model().eval()
    with torch.no_grad():
        expected = model(X)
    before = {name: (id(module), dict(vars(module))) for name, module in model.named_modules()}
    parameters = [(name, id(one)) for name, one in model.named_parameters()]
    assert optimized(model, X) is model
    report = model.convtune_report
    assert report.kept and report.functional == 1
    assert [type(one) for one in (model.stem, *model.body[::2], model.even)] == [Conv2d] * 4
    assert type(model.own) is Subclass
    assert model.same is model.body[0]
    by_name = {name: layer for layer in report.layers for name in layer.names}
    assert by_name["own"].decision == "left: it is a Subclass"
    assert set(by_name) == {"stem", "body.0", "body.2", "even", "own"}
    assert by_name["body.0"] is by_name["body.2"] and by_name["body.0"].calls == 3
    text = str(report)
    assert "stem" in text and "50.0 %" in text and "1 calls of torch.conv1d" in text
    with torch.no_grad():
        assert_near(model(X), expected)
    assert [(name, id(one)) for name, one in model.named_parameters()] == parameters
    assert convtune.restore(model) is model
    for name, module in model.named_modules():
        assert (id(module), vars(module)) == before[name]
    with torch.no_grad():
        assert torch.equal(model(X), expected)


def test_only_what_was_proven_runs_by_convtune(decided):
    model = optimized(nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), X)
    conv = model[0]

    def runs(x):
        how = conv.stride, convtune.torch.how.edges_of(conv), conv.dilation, conv.groups, "auto", "none", conv.choices
        return convtune.torch.convolution_of(x, conv.weight, conv.bias, *how)

    assert runs(X) is not None and runs(X).plan.source == "forced"
    for other in (X[:1], X[:, :, 1:], X.to(memory_format=torch.channels_last)):
        assert runs(other) is None
        with torch.no_grad():
            theirs = nn.Conv2d._conv_forward(conv, other, conv.weight, conv.bias)
            assert torch.equal(model(other), theirs)


@pytest.mark.parametrize("training", [False, True])
def test_modes(decided, training, monkeypatch):
    model = optimized(nn.Sequential(nn.Conv2d(3, 8, 3)).train(training), X)
    assert model.convtune_report.training == training
    calls = []
    import convtune.nn as ours

    original = ours.call
    monkeypatch.setattr(ours, "call", lambda *a: calls.append(1) or original(*a))
    model.eval()(X)
    assert len(calls) == 1
    model.train()(X).sum().backward()
    assert len(calls) == 1 + training  # proven in eval, it is PyTorch's in training
    assert model[0].weight.grad is not None


def test_a_model_in_training_is_untouched(decided):
    model = Model().train()
    state = copy.deepcopy(model.state_dict())
    random = torch.random.get_rng_state()
    optimized(model, X)
    assert torch.equal(torch.random.get_rng_state(), random)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    assert all(parameter.grad is None for parameter in model.parameters())


def test_backs_out_when_the_whole_does_not_gain(decided):
    decided["whole"] = 0.0
    model = optimized(Model().eval(), X)
    report = model.convtune_report
    assert not report.kept and not any(layer.swapped for layer in report.layers)
    assert not any(isinstance(module, Conv2d) for module in model.modules())
    assert "nothing swapped" in str(report) and "did not gain" in str(report)
    assert decided["asked"].count("whole") == 1  # every layer would lose as much again


def test_nothing_proven(decided):
    decided["layers"] = -0.1
    model = optimized(Model().eval(), X)
    assert decided["asked"] and "whole" not in decided["asked"]
    assert not any(isinstance(module, Conv2d) for module in model.modules())
    assert "is not proven" in str(model.convtune_report)


def test_left_alone(decided):
    double = optimized(nn.Sequential(nn.Conv2d(3, 8, 3)).double().eval(), X.double())
    assert double.convtune_report.layers[0].decision == "left: float64"
    with torch.autocast("cpu", torch.bfloat16):  # which casts no float64
        cast = optimized(nn.Sequential(nn.Conv2d(3, 8, 3)).double().eval(), X.double())
    assert "float64" in cast.convtune_report.layers[0].decision
    single = optimized(nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), X[0])
    assert "no batch" in single.convtune_report.layers[0].decision
    assert "no convolution ran" in str(optimized(nn.Linear(24, 2).eval(), X).convtune_report)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_swapped(decided, dtype):
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1)).to(dtype).eval(), X.to(dtype)
    with torch.no_grad():
        expected = model(x)
        optimized(model, x)
        assert [type(one) for one in model] == [Conv2d] * 2
        y = model(x)
    assert y.dtype is dtype
    assert (y.float() - expected.float()).abs().max() <= 4 * torch.finfo(dtype).eps * expected.float().abs().max()
    problem = str(model.convtune_report.layers[0].problem)
    assert {torch.float16: "f16", torch.bfloat16: "bf16"}[dtype] in problem


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_is_swapped(decided, dtype):
    """Convolutions run in the type that autocast casts to; without it PyTorch's, since nothing was proven of float32."""
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1, bias=False)).eval()
    with torch.no_grad(), torch.autocast("cpu", dtype):
        expected = model(X)
        optimized(model, X)
        assert [type(model[at]) for at in (0, 3)] == [Conv2d] * 2 and model[0].led is not None
        for _ in range(2):
            y = model(X)
            assert y.dtype is dtype
            assert (y.float() - expected.float()).abs().max() <= 8 * torch.finfo(dtype).eps * expected.abs().max()
    assert model.convtune_report.layers[0].problem.dtype.startswith({torch.float16: "f16", torch.bfloat16: "bf16"}[dtype])
    with torch.no_grad():
        assert model(X).dtype is torch.float32


def test_a_wrong_answer_is_never_swapped_in(decided, monkeypatch):
    monkeypatch.setattr(torch_sides, "call", lambda x, *a: convtune.torch.functional.call(x, *a) * 1.1)
    model = optimized(nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), X)
    assert type(model[0]) is nn.Conv2d
    assert "differs from PyTorch's" in model.convtune_report.layers[0].decision


def test_examples_of_every_form(decided):
    for example in ((X, 2.0), [X], {"x": X, "scale": 2.0}):
        assert optimized(Model().eval(), example).convtune_report.kept


def test_copies_of_an_optimized_model(decided):
    model = optimized(Model().eval(), X)
    with torch.no_grad():
        expected = model(X)
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        for made in (copy.deepcopy(model), torch.load(file, weights_only=False)):
            assert type(made.stem) is Conv2d and torch.equal(made(X), expected)
            assert type(convtune.restore(made).stem) is nn.Conv2d
            assert made.state_dict().keys() == model.state_dict().keys()
        model.stem.weight.mul_(2)
        changed = model(X)
        assert_near(changed, convtune.restore(model)(X))


def test_compiled_after_optimize(decided):
    torch._dynamo.reset()
    model = optimized(Model().eval(), X)
    with torch.no_grad():
        expected = model(X)
        compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
        assert_near(compiled(X), expected)
        compiled(X[:1])  # PyTorch's, by the same graph or another
    with pytest.raises(ValueError, match="before torch.compile"):
        convtune.optimize(compiled, X)
    with pytest.raises(ValueError, match="function"):
        convtune.optimize(lambda x: x, X)


def test_a_second_optimize_starts_afresh(decided):
    model = optimized(Model().eval(), X)
    decided["layers"] = 0.0
    contests.forget()
    optimized(model, X)
    assert type(model.stem) is nn.Conv2d


def test_for_real():
    """Whatever this machine decides, the answers stay and the report is whole."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3)).eval()
    with torch.no_grad():
        expected = model(X)
        convtune.optimize(model, X, budget=0, progress=False)
        report = model.convtune_report
        assert_near(model(X), expected)
    assert len(report.layers) == 2 and all(layer.pytorch_us > 0 for layer in report.layers)
    assert report.kept == any(isinstance(module, Conv2d) for module in model.modules())


def test_channels_last_runs_as_nchw_where_that_is_faster(decided):
    x = X.to(memory_format=torch.channels_last)
    model = optimized(nn.Sequential(nn.Conv2d(3, 8, 3, groups=1)).eval(), x)
    layer = model.convtune_report.layers[0]
    assert layer.problem.layout == "nhwc" and layer.swapped
    conv = model[0]
    run_as = layer.problem.replace(layout="nchw")
    plan = convtune.Convolution(run_as, "cpu").plan
    conv.choices = torch_run.choice_line("cpu", layer.problem, run_as, plan.algorithm, plan.config)
    with torch.no_grad():
        y, expected = model(x), nn.Conv2d._conv_forward(conv, x, conv.weight, conv.bias)
    assert_near(y, expected)
    assert y.stride() == expected.stride()
    how = conv.stride, convtune.torch.how.edges_of(conv), conv.dilation, conv.groups, "auto", "none", conv.choices
    assert convtune.torch.convolution_of(x, conv.weight, conv.bias, *how).problem.layout == "nchw"
    torch.library.opcheck(torch.ops.convtune.conv2d.default, (x, conv.weight.detach(), conv.bias.detach(), *how))


def test_measured_through_torch_compile(decided):
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval()
    optimized(model, X, compiled=True)
    assert model.convtune_report.kept and type(model[0]) is Conv2d
    assert "torch.compile default" in str(model.convtune_report)
    decided["whole"] = 0.0
    optimized(model, X, compiled="reduce-overhead")
    assert type(model[0]) is nn.Conv2d
    assert "torch.compile reduce-overhead" in str(model.convtune_report)
    for wrong in ("fast", None, 2):
        with pytest.raises(convtune.InvalidArgument, match="max-autotune"):
            convtune.optimize(model, X, compiled=wrong)


def test_warnings_of_the_tuning_are_one_line(decided, monkeypatch):
    def search(problem, *_, **__):
        changed = [f"cpu changed its speed {turn} times" for turn in range(40)]
        return types.SimpleNamespace(tuning=types.SimpleNamespace(all_warnings=changed))

    monkeypatch.setattr(decide, "search", search)
    monkeypatch.setattr(decide, "median_us", lambda *_: 100.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = convtune.optimize(Model().eval(), X, budget=30, progress=False).convtune_report
    assert [len(layer.warnings) for layer in report.layers if layer.problem] == [40] * 3
    assert str(report).count("changed its speed") == 1
    assert "3 of 4 kinds of layers were tuned with warnings" in str(report)


def test_half_precision_must_err_no_more_than_pytorch():
    """Beside double precision: bits that differ from PyTorch's, which rounds several times, are no fault."""
    torch.manual_seed(0)
    last = (16 * 144, 1, 16 * 12, 16)
    how = How(padding=(1, 1, 1, 1), activation="silu")
    fused = torch_sides.Fused("", (4, 16, 12, 12), last, (24, 16, 3, 3), (144, 9, 3, 1), torch.bfloat16,
                              torch.device("cpu"), torch.float32, how, None, True)  # fmt: skip
    sides = fused.sides()
    sides.x[0, :, 3:6, 3:6] *= 1000  # few large outputs: a unit in their last place is more than the others are
    right = sides.exact(4).bfloat16()
    near = torch.where(right == right.max(), right * (1 + 2**-7), right)
    assert (near - right).max() > 0.05 * right.float().square().mean().sqrt()
    for answer in (right, near, sides.expected()):
        check.check(sides, fused.problem.precision, answer)
    far = right.clone()
    far[3, 0, 9, 9] += right.float().square().mean().sqrt()  # per image beside which nothing is exact
    for answer, why in ((right * 1.02, "errs by"), (far, "differs"), (right * float("nan"), "differs")):
        with pytest.raises(convtune.Unsupported, match=why):
            check.check(sides, fused.problem.precision, answer)


@pytest.mark.parametrize("stride, edges", [((1, 1), (1, 1, 1, 1)), ((2, 1), (2, 0, 1, 1))])
def test_of_large_images_the_first_rows_are_exact(monkeypatch, stride, edges):
    how = How(stride, edges, activation="relu")
    fused = torch_sides.Fused("", (2, 8, 40, 12), (8 * 480, 1, 96, 8), (16, 8, 3, 3), (72, 9, 3, 1), torch.bfloat16,
                              torch.device("cpu"), torch.float32, how, None, True)  # fmt: skip
    sides = fused.sides()
    whole = sides.exact(2)
    monkeypatch.setattr(torch_sides, "_EXACT_FLOPS", fused.problem.flops / 4)
    rows = sides.exact(2)
    assert 0 < rows.shape[2] < whole.shape[2] / 2 and torch.equal(rows, whole[:, :, : rows.shape[2]])
    check.check(sides, fused.problem.precision, sides.expected())
    with pytest.raises(convtune.Unsupported, match="errs by"):
        check.check(sides, fused.problem.precision, sides.expected() * 1.02)
