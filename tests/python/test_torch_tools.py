"""PyTorch's tools on convtune's layers: FLOP counters, ONNX, TorchScript, quantisation."""

import pytest
from torch_support import torch

import convtune
import convtune.torch
from convtune.torch.modules.structure import followers
from convtune.torch.modules.whole import swap
from convtune.torch.run import choice_line, problem_of
from torch.utils.flop_counter import FlopCounterMode

nn = torch.nn
IMAGE = torch.rand(2, 3, 10, 10, generator=torch.Generator().manual_seed(1))


def plain():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16, bias=False), nn.BatchNorm2d(16), nn.ReLU6(),
    ).eval()  # fmt: skip


def swapped(with_followers):
    """As convtune.optimize leaves a model whose every layer it has proven."""
    model = plain()
    behind, x = followers(model) if with_followers else {}, IMAGE
    for layer, same in zip(model, plain()):
        if type(layer) is nn.Conv2d:
            behind_it = behind.get(layer)
            has_bias = layer.bias is not None or (behind_it is not None and behind_it.norm is not None)
            activation = "none" if behind_it is None else behind_it.activation
            how = layer.stride, convtune.torch.how.edges_of(layer), layer.dilation, layer.groups, "auto", activation
            problem = problem_of(x, layer.weight, has_bias, *how)
            plan = convtune.plan(problem, device="cpu").plan
            swap(layer, choice_line("cpu", problem, problem, plan.algorithm, plan.config), False, behind_it)
        x = same(x)
    return model


each_swap = pytest.mark.parametrize("with_followers", [False, True])


def assert_right(y):
    torch.testing.assert_close(y, plain()(IMAGE), atol=1e-5, rtol=1e-5)


def flops_of(run):
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@each_swap
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad, torch.inference_mode])
def test_flops_of_a_swapped_model(with_followers, mode):
    model = swapped(with_followers)
    with mode():
        assert flops_of(lambda: model(IMAGE)) == flops_of(lambda: plain()(IMAGE)) > 0


def test_flops_of_operators():
    import convtune.torch.fused  # noqa: F401  (defines it)

    w, how = torch.rand(4, 3, 3, 3), ((1, 1), (0, 0, 0, 0), (1, 1), 1)
    expected = flops_of(lambda: torch.conv2d(IMAGE, w))
    own = torch.ops.convtune
    for call in (lambda: convtune.conv2d(IMAGE, w), lambda: own.conv2d(IMAGE, w, None, *how),
                 lambda: own.conv2d_fused(IMAGE, w, None, None, *how)):  # fmt: skip
        assert flops_of(call) == expected > 0
    grouped = torch.rand(6, 1, 3, 3)
    assert flops_of(lambda: convtune.conv2d(IMAGE, grouped, groups=3)) == flops_of(
        lambda: torch.conv2d(IMAGE, grouped, groups=3)
    )


@each_swap
def test_torch_export_and_trace(with_followers):
    model = swapped(with_followers)
    assert_right(model(IMAGE))
    assert_right(torch.export.export(model, (IMAGE,)).module()(IMAGE))
    assert_right(torch.jit.trace(model, IMAGE)(IMAGE))


@each_swap
@pytest.mark.parametrize("dynamo", [False, True])
def test_onnx(with_followers, dynamo, tmp_path):
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed here")
    if dynamo:
        pytest.importorskip("onnxscript", reason="PyTorch's exporter needs onnxscript")
    file = str(tmp_path / "model.onnx")
    torch.onnx.export(swapped(with_followers), (IMAGE,), file, dynamo=dynamo)
    operators = [node.op_type for node in onnx.load(file).graph.node]
    assert operators.count("Conv") == 2 and not any(node.domain for node in onnx.load(file).graph.node), operators
    session = pytest.importorskip("onnxruntime").InferenceSession(file)
    inputs = {session.get_inputs()[0].name: IMAGE.numpy()}
    assert_right(torch.from_numpy(session.run(None, inputs)[0]))


@each_swap
def test_script_says_what_to_do(with_followers):
    model = swapped(with_followers)
    with pytest.raises(convtune.Unsupported, match=r"convtune\.restore\(model\)"):
        torch.jit.script(model)
    assert_right(model(IMAGE))
    assert_right(torch.jit.script(convtune.restore(model))(IMAGE))


@each_swap
def test_quantisation_says_what_to_do(with_followers):
    quantize_fx = pytest.importorskip("torch.ao.quantization.quantize_fx")
    mapping = torch.ao.quantization.get_default_qconfig_mapping()
    with pytest.warns(UserWarning, match=r"convtune\.restore\(model\)"):
        quantize_fx.prepare_fx(swapped(with_followers), mapping, (IMAGE,))
