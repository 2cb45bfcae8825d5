"""`--model FILE.onnx`: what the command lists of files that everybody knows, of ONNX's own cases, and of files of every
odd kind, each made here by onnx.helper."""

import json
import shutil
import subprocess
import sys

import convtune
import numpy
import pytest

onnx = pytest.importorskip("onnx", reason="the Python package onnx is not installed here: --model is not tested")
import onnx_models as models  # noqa: E402
from onnx import TensorProto, helper  # noqa: E402
from onnx_models import ENVIRONMENT, ROOT, Maker, listed, one, onnx_reader, read, refused, run  # noqa: E402

def test_resnet50(tmp_path):
    counts, found = listed(models.save(models.resnet50(), tmp_path / "net.onnx"), "--batch", 8)
    assert sum(counts.values()) == 53 and len(counts) == 27 and found["model"] == "net" and not found["skipped"]
    assert counts["mb8ic3ih224oc64kh7sh2ph3 act=relu"] == 1
    assert counts["mb8ic256ih14oc256kh3ph1 act=relu"] == 5
    assert counts["mb8ic256ih14oc1024kh1 act=relu residual=1"] == 5
    # In a block that changes its width, the sum is the shortcut's, which comes last.
    assert counts["mb8ic1024ih14oc2048kh1sh2 act=relu residual=1"] == 1
    assert counts["mb8ic512ih7oc2048kh1"] == 1
    half, _ = listed(models.save(models.resnet50(elements=TensorProto.FLOAT16), tmp_path / "half.onnx"), "--batch", 1)
    assert all("dtype=f16" in line for line in half)
    last, _ = listed(tmp_path / "net.onnx", "--batch", 1, "--dtype", "bf16", "--layout", "nhwc")
    assert all("dtype=bf16" in line and "layout=nhwc" in line for line in last) and len(last) == 27


# A shortcut of yolo's comes behind the activation and is no residual; its last layer is behind Resize and Concat.
@pytest.mark.parametrize("network, options, total, some", [
    (models.mobilenet_v2, (), 52, {"mb1ic3ih224oc32kh3sh2ph1 act=clip:0:6": 1, "mb1ic384ih14oc64kh1 residual=1": 3,
                                   "g384mb1ic384ih14oc384kh3ph1 act=clip:0:6": 4}),
    (models.yolo, ("--shape", "input=1x3x320x320"), 17, {"mb1ic64ih40oc64kh3ph1 act=silu": 2, "mb1ic128ih80oc255kh1": 1}),
    (models.unet, (), 7, {"ic16ih64oc32kh2sh2 dir=bwd_d bias=1": 1, "ic32ih64oc16kh3ph1 act=leaky_relu:0.1": 1}),
])
def test_networks(network, options, total, some, tmp_path):
    path = models.save(network(), tmp_path / "net.onnx")
    counts, _ = listed(path, *options)
    assert sum(counts.values()) == total and some.items() <= counts.items()
    if network is models.mobilenet_v2:
        of_eight, _ = listed(path, "--batch", 8)  # though the file says 1
        assert sum(of_eight.values()) == 52 and all("mb8" in line for line in of_eight)
    if network is models.yolo:
        assert sum("act=silu" in line for line in counts) == 11
        assert "--shape input=1x3x224x224" in refused(path)
        assert "--shape input=4x3x224x224" in refused(path, "--batch", 4)


def test_the_list_is_a_model(tmp_path):
    path = models.save(models.mobilenet_v2(), tmp_path / "net.onnx")
    counts, found = listed(path)
    (tmp_path / "list.json").write_text(json.dumps(found))
    assert listed(tmp_path / "list.json")[1] == found
    assert set(listed(tmp_path / "list.json", "--batch", 3)[0]) == {line.replace("mb1", "mb3") for line in counts}


def test_onnxs_own_cases(monkeypatch):
    """As their authors wrote them: the same output, computed from the problem that is listed by convtune's reference."""
    from onnx.backend.test.case.node import conv, convtranspose

    seen = []

    def expect(node, inputs, outputs, name, **_):
        graph = helper.make_graph(
            [node], name,
            [helper.make_tensor_value_info(at, TensorProto.FLOAT, value.shape) for at, value in zip(node.input, inputs)],
            [helper.make_tensor_value_info(at, TensorProto.FLOAT, None) for at in node.output])
        problem = one(helper.make_model(graph))
        x, w = (numpy.asarray(value, numpy.float32) for value in inputs[:2])
        if x.ndim == 3:  # a height of 1
            x, w, outputs = x[:, :, None], w[:, :, None], [outputs[0][:, :, None]]
        planned = convtune.plan(problem, device="cpu")
        if node.op_type == "Conv":
            y = convtune.run(planned, x, convtune.pack(planned, w, None))
        else:
            y = convtune.backward_data(planned, x, convtune.pack(planned, w))
        numpy.testing.assert_allclose(y, outputs[0], rtol=1e-5, atol=1e-5, err_msg=name)
        seen.append(name)

    for module, name in ((conv, "Conv"), (convtranspose, "ConvTranspose")):
        monkeypatch.setattr(module, "expect", expect)
        cases = getattr(module, name)
        for export in (export for export in dir(cases) if export.startswith("export")):
            getattr(cases, export)()
    assert len(seen) >= 17 and len(set(seen)) == len(seen), seen


@pytest.mark.parametrize("size, taps, stride, hole", [(9, 3, 2, 1), (8, 3, 2, 1), (7, 4, 1, 1), (10, 3, 3, 2), (5, 2, 1, 1)])
@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
def test_auto_pad(auto_pad, size, taps, stride, hole):
    make = Maker()
    x = make.conv("input", 3, 4, taps, stride, auto_pad=auto_pad, dilations=[hole, hole])
    problem = one(make.model(x, [1, 3, size, size]))
    top, _, bottom, _ = problem.padding
    assert (top, bottom) == (0, 0) if auto_pad == "VALID" else problem.output_size == (-(-size // stride),) * 2
    assert 0 <= (top - bottom if auto_pad == "SAME_LOWER" else bottom - top) <= 1


def test_dimensions_paddings_and_dynamic_weights():
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 2, 3, 4, 5, 6], strides=[1, 2, 3], dilations=[1, 2, 1], group=2)]
    shapes = {"x": [2, 4, 9, 10, 11], "w": [6, 2, 3, 3, 3]}
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(name, TensorProto.BFLOAT16, of) for name, of in shapes.items()],
                              [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, None)])
    problem = one(helper.make_model(graph))
    assert (problem.d, problem.h, problem.w, problem.t, problem.groups) == (9, 10, 11, 3, 2)
    assert problem.padding == (1, 2, 3, 4, 5, 6) and problem.stride == (1, 2, 3) and problem.dilation == (1, 2, 1)
    assert problem.dtype == "bf16" and not problem.bias


@pytest.mark.parametrize("follow, expected, opset", [(*row, 17) if len(row) == 2 else row for row in [
    (lambda make, y: make.node("Relu", y), "relu"),
    (lambda make, y: make.node("Identity", make.node("Relu", make.node("Dropout", y))), "relu"),
    (lambda make, y: make.node("Sigmoid", y), "sigmoid"),
    (lambda make, y: make.node("Mul", y, make.node("Sigmoid", y)), "silu"),
    (lambda make, y: make.node("Div", y, make.node("Add", make.node("Exp", make.node("Neg", y)), make.constant(1.0))), "silu"),
    (lambda make, y: make.node("HardSwish", y), "hardswish"),
    (lambda make, y: make.node("Mul", make.node("HardSigmoid", y, alpha=1 / 6), y), "hardswish"),
    (Maker.hardswish_by_clip, "hardswish"),
    (Maker.gelu_by_erf, "gelu_erf"),
    (Maker.gelu_by_tanh, "gelu_tanh"),
    (lambda make, y: make.node("LeakyRelu", y, alpha=0.2), "leaky_relu:0.2"),
    (lambda make, y: make.node("LeakyRelu", y), "leaky_relu:0.01"),
    (lambda make, y: make.node("Clip", y, make.constant(-1.0), make.constant(2.0)), "clip:-1:2"),
    (lambda make, y: make.node("Clip", y, make.constant(0.0)), "relu"),
    (lambda make, y: make.node("Clip", make.node("Relu", y), "", make.constant(6.0)), "clip:0:6"),
    (lambda make, y: make.node("Max", y, make.constant(0.0)), "relu"),
    (lambda make, y: make.node("Gelu", y), "gelu_erf", 20),
    (lambda make, y: make.node("Gelu", y, approximate="tanh"), "gelu_tanh", 20),
    (lambda make, y: make.node("Clip", y, min=0.0, max=6.0), "clip:0:6", 9),
    # Left, since it is none of them.
    (lambda make, y: make.node("Tanh", y), "none"),
    (lambda make, y: make.node("Mul", y, make.node("Sigmoid", make.node("Mul", y, make.constant(1.702)))), "none"),
    (lambda make, y: make.node("HardSigmoid", y), "none"),
    (lambda make, y: make.node("Elu", y), "none"),
    (lambda make, y: make.node("Relu", make.node("Mul", y, make.constant(2.0))), "none"),
    (lambda make, y: make.node("Cast", make.node("Relu", make.node("Cast", y, to=10)), to=1), "none"),
    # Stored as it is, since others read it.
    (lambda make, y: make.node("Concat", y, make.node("Relu", y), axis=1), "none"),
    # Sums, and norms.
    (lambda make, y: make.norm(y, 8), (True, False, "none")),
    (lambda make, y: make.node("Add", y, make.weight(8, 1, 1)), (True, False, "none")),
    (lambda make, y: make.node("Add", make.weight(1, 8, 1, 1), y), (True, False, "none")),
    (lambda make, y: make.node("Add", y, make.weight(6)), (False, False, "none")),  # along the rows
    (lambda make, y: make.node("Relu", make.node("Add", make.norm(y, 8), "input")), (True, True, "relu")),
    (lambda make, y: make.node("Add", make.node("Relu", y), "input"), (False, False, "relu")),  # behind the activation
    (lambda make, y: make.norm(make.node("Add", y, "input"), 8), (False, True, "none")),  # no weights to fold it into
    (lambda make, y: make.node("Add", y, y), (False, False, "none")),
    (lambda make, y: make.node("Add", y, make.node("GlobalAveragePool", "input")), (False, False, "none")),  # broadcast
    (lambda make, y: make.node("Add", y, make.weight(1, 8, 6, 6)), (False, False, "none")),
]])
def test_epilogues(follow, expected, opset):
    """`follow` puts nodes behind a 3x3 convolution of 8 channels; expected: (bias, residual, activation), or the last."""
    make = Maker()
    result = follow(make, make.conv("input", 8, 8, 3))
    (_, problem, _), = read(make.model(result, [1, 8, 6, 6], opset))[0]
    assert (problem.bias, problem.residual, problem.activation) == (expected if isinstance(expected, tuple) else (False, False, expected))


def test_a_value_that_is_an_output_is_stored():
    make = Maker()
    y = make.conv("input", 8, 8, 3)
    model = make.model(make.node("Relu", y), [1, 8, 6, 6])
    model.graph.output.append(helper.make_tensor_value_info(y, TensorProto.FLOAT, None))
    assert one(model).activation == "none"


def test_what_is_no_convolution_is_skipped_with_a_word(tmp_path):
    make = Maker()
    x = make.conv("input", 3, 4, 3)
    make.nodes += [helper.make_node("ConvTransposeWithDynamicPads", [x, make.weight(4, 4, 1, 1)], ["z"], domain="com.microsoft"),
                   helper.make_node("QLinearConv", [x] * 8, ["q"], "quantized"),
                   helper.make_node("ConvInteger", [x, x], ["i"], "first"),
                   helper.make_node("ConvInteger", [x, x], ["j"], "second")]
    make.conv("z", 4, 4, 3)
    branch = helper.make_graph([helper.make_node("Conv", [x, x], ["b"], "inner")], "branch", [],
                               [helper.make_tensor_value_info("b", TensorProto.FLOAT, None)])
    make.node("If", make.constant(True, TensorProto.BOOL), then_branch=branch, else_branch=branch)
    double = Maker(TensorProto.DOUBLE)
    model = make.model(x, [1, 3, 8, 8], domains=["com.microsoft"])
    ran = run("cases", "--model", models.save(model, tmp_path / "net.onnx"), "--python", sys.executable)
    assert ran.returncode == 0 and "mb1ic3ih8oc4kh3ph1" in ran.stdout
    for needle in ("skipped ConvTransposeWithDynamicPads (z): it is of the domain 'com.microsoft'",
                   "skipped QLinearConv (quantized): the model is quantised: its tensors are integers",
                   "skipped 2 of ConvInteger (first and 1 more): the model is quantised", "cannot be inferred",
                   "skipped 2 of Conv (inner and 1 more): how often it runs is decided by a If"):
        assert needle in ran.stderr
    assert "of Conv: its numbers are double" not in ran.stderr
    only = models.save(double.model(double.conv("input", 3, 4, 3), [1, 3, 8, 8]), tmp_path / "double.onnx")
    assert "its numbers are double" in refused(only)


def lines(model, **options):
    """Text and layout of each problem, in order, each node by itself."""
    return [str(problem) for _, problem, count in read(model, **options)[0] for _ in range(count)]


@pytest.mark.parametrize("opset, pad", [(9, {"pads": [0, 0, 1, 2, 0, 0, 3, 0]}), (13, None)])
@pytest.mark.parametrize("attributes", [{}, {"pads": [1] * 4}, {"auto_pad": "SAME_UPPER"}])
def test_zeros_of_a_pad_count_to_the_convolution(opset, pad, attributes):
    make = Maker()
    x = make.node("Pad", "input", **pad) if pad else make.pad("input", 2, 0, 1, 3)
    problem = one(make.model(make.conv(x, 3, 4, 3, pads=[0] * 4) if not attributes else make.conv(x, 3, 4, 3, **attributes),
                             [1, 3, 8, 9], opset))
    inner = 1 if attributes else 0
    assert (problem.h, problem.w) == (8, 9) and problem.padding == tuple(one + inner for one in (1, 2, 3, 0))


def test_what_a_pad_does_not_give_the_convolution():
    """Other numbers than zero, other axes, a cut, reflections: the image is the padded one."""
    make = Maker()
    pads = make.integers(0, 0, 1, 1, 0, 0, 1, 1)
    assert one(make.model(make.conv(make.node("Pad", "input", pads, make.constant(1.0)), 3, 4, 3), [1, 3, 8, 8])).h == 10
    for amounts, channels, height in (((1, 1, 1, 1, 0, 1), 4, 10), ((1, 1, -1, -1), 3, 6)):
        make = Maker()
        problem = one(make.model(make.conv(make.pad("input", *amounts), channels, 4, 3), [1, 3, 8, 8]))
        assert (problem.h, problem.c, problem.padding) == (height, channels, (1, 1, 1, 1))
    make = Maker()  # both convolutions have them, and of two pads one convolution has both
    x = make.pad(make.node("Pad", "input", make.integers(0, 0, 1, 1, 0, 0, 1, 1)), 1, 1, 1, 1)
    found = lines(make.model(make.node("Add", make.conv(x, 3, 4, 5, pads=[0] * 4), make.conv(x, 3, 4, 5, pads=[0] * 4)), [1, 3, 8, 8]))
    assert found == ["mb1ic3ih8oc4kh5ph2 bias=0", "mb1ic3ih8oc4kh5ph2 bias=0 residual=1"]


def test_constants_that_ask_for_much_are_left():
    """Each with a convolution behind it, whose shapes then are not known, or known without it: never time or memory."""
    for kind, words in (("ConstantOfShape", [2**40]), ("ConstantOfShape", [2**20, 2**20, 2**20]), ("Tile", [2**40]), ("Expand", [2**40])):
        make = Maker()
        given = [make.integers(*words)] if kind == "ConstantOfShape" else [make.integers(1), make.integers(*words)]
        x = make.node("Reshape", make.conv("input", 3, 4, 3), make.node(kind, *given))
        make.conv(x, 4, 4, 3)
        assert len(read(make.model(make.nodes[-1].output[0], [1, 3, 8, 8]))[0]) == 1, kind
    make = Maker()  # a value that doubles at each node: beyond 1,024 it is left
    value = make.integers(1)
    for _ in range(12):
        value = make.node("Concat", value, value, axis=0)
    x = make.node("Reshape", make.conv("input", 3, 4, 3), value)
    assert len(read(make.model(make.conv(x, 4, 4, 3), [1, 3, 8, 8]))[0]) == 1
    make = Maker()
    numbers = [make.constant(value, TensorProto.INT64) for value in (0, 2**60, 1)]
    x = make.node("Reshape", make.conv("input", 3, 4, 3), make.node("Range", *numbers))
    assert len(read(make.model(make.conv(x, 4, 4, 3), [1, 3, 8, 8]))[0]) == 1


@pytest.mark.parametrize("model, expected", [
    (models.computed_pads, ["mb1ic3ih32oc8kh3ph1 act=relu bias=0", "mb1ic8ih36oc8kh5 bias=0", "mb1ic8ih32oc4kh3 bias=0 pad_bottom=8"]),
    (models.fused, [
        "mb1ic3ih16oc8kh3ph1 act=clip:0:6", "mb1ic8ih16oc8kh3ph1 act=relu residual=1", "mb1ic8ih16oc8kh3ph1 layout=nhwc act=sigmoid bias=0",
        "mb1ic8ih16oc4kh1 layout=nhwc bias=0", "mb1ic4ih16oc4kh3ph1 bias=0"]),
])
def test_paddings_that_nodes_compute_and_onnx_runtimes_fused_convolutions(model, expected):
    assert lines(model()) == expected


@pytest.mark.parametrize("kind, attributes, word", [
    ("Gelu", {}, "gelu_erf"), ("FastGelu", {}, "gelu_tanh"), ("QuickGelu", {"alpha": 1.0}, "silu"), ("QuickGelu", {}, "none"),
    ("FusedConv", {"activation": "LeakyRelu", "activation_params": [0.2]}, "leaky_relu:0.2"),
    ("FusedConv", {"activation": "HardSigmoid", "activation_params": [0.2, 0.5]}, "none"),
    ("FusedConv", {"activation": "Tanh"}, "none"),
])
def test_onnx_runtimes_activations(kind, attributes, word):
    make = Maker()
    fused = kind == "FusedConv" and make.fused(kind, "input", 3, 4, 3, **attributes)
    x = fused or make.node(kind, make.conv("input", 3, 4, 3), domain="com.microsoft", **attributes)
    assert [problem.activation for _, problem, _ in read(make.model(make.conv(x, 4, 4, 1), [1, 3, 8, 8]))[0]] == [word, "none"]


def test_a_bias_in_an_activation_of_onnx_runtime():
    make = Maker()
    x = make.node("BiasGelu", make.conv("input", 3, 4, 3), make.weight(4, 1, 1), domain="com.microsoft")
    found = one(make.model(x, [1, 3, 8, 8]))
    assert found.bias and found.activation == "gelu_erf"


def test_channels_last_with_weights_in_either_order():
    for of_weights in ((8, 4, 3, 3), (8, 3, 3, 4)):
        make = Maker()
        y = make.node("NhwcConv", "input", make.weight(*of_weights), domain="com.microsoft", kernel_shape=[3, 3], strides=[2, 2])
        assert str(one(make.model(y, [1, 9, 9, 4]))) == "mb1ic4ih9oc8kh3sh2 layout=nhwc bias=0"
    make = Maker()  # the tensor that is added lies channels last, too
    y = make.node("NhwcFusedConv", "input", make.weight(4, 4, 3, 3), "", "input", domain="com.microsoft", activation="Relu", pads=[1] * 4)
    assert str(one(make.model(y, [1, 9, 9, 4]))) == "mb1ic4ih9oc4kh3ph1 layout=nhwc act=relu bias=0 residual=1"


def test_channels_that_were_filled_up(tmp_path):
    make = Maker()
    y = make.node("Conv", "input", make.weight(16, 3, 3, 3), domain="com.microsoft.nchwc")
    make.node("Conv", y, make.weight(16, 16, 3, 3), domain="com.microsoft.nchwc")
    model = make.model(make.nodes[-1].output[0], [1, 3, 8, 8], domains=["com.microsoft.nchwc"])
    ran = refused(models.save(model, tmp_path / "net.onnx"))
    assert "of 2 Conv, ONNX Runtime filled its channels up" in ran and "ORT_ENABLE_EXTENDED" in ran


def test_a_quantised_model_is_named(tmp_path):
    def stored(make, name, shape, kind=TensorProto.INT8):
        make.weights.append(TensorProto(name=name, dims=shape, data_type=kind, raw_data=bytes(numpy.prod(shape))))
        return make.node("DequantizeLinear", name, make.constant(0.1), make.constant(0, kind))

    make = Maker()
    x = make.node("QuantizeLinear", "input", make.constant(0.1), make.constant(0, TensorProto.INT8))
    x = make.node("DequantizeLinear", x, make.constant(0.1), make.constant(0, TensorProto.INT8))
    y = make.node("Conv", x, stored(make, "w", [4, 3, 3, 3]))
    ran = refused(models.save(make.model(y, [1, 3, 8, 8]), tmp_path / "net.onnx"))
    assert "of 1 Conv, the model is quantised" in ran
    # Weights alone that are stored as integers, or that a node has: it computes with numbers.
    value = helper.make_tensor("", TensorProto.FLOAT, [4, 3, 3, 3], numpy.zeros(4 * 27))
    for make, weights in ((Maker(), None), (Maker(), value)):
        w = make.node("Constant", value=weights) if weights else stored(make, "w", [4, 3, 3, 3])
        assert one(make.model(make.node("Conv", "input", w), [1, 3, 8, 8])).k == 4


def test_functions_are_written_out():
    body = [helper.make_node("Conv", ["a", "b"], ["c"], pads=[1, 1, 1, 1]), helper.make_node("Relu", ["c"], ["d"])]
    block = helper.make_function("mine", "Block", ["a", "b"], ["d"], body, [helper.make_opsetid("", 17)])
    make = Maker()
    x = "input"
    for _ in range(3):
        x = make.node("Block", x, make.weight(8, 8, 3, 3), domain="mine")
    model = make.model(x, [1, 8, 6, 6], functions=[block], domains=["mine"])
    (_, problem, count), = read(model)[0]
    assert count == 3 and problem.activation == "relu"
    model.functions[0].node.append(helper.make_node("Block", ["d", "b"], ["e"], domain="mine"))
    with pytest.raises(onnx_reader.Refused, match="calls itself"):
        read(model)


def test_a_bomb_of_functions():
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    functions = [helper.make_function("mine", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], imports)]
    for level in range(1, 40):
        nodes = [helper.make_node(f"F{level - 1}", [f"v{at}" if at else "a"], [f"v{at + 1}"], domain="mine") for at in range(10)]
        functions.append(helper.make_function("mine", f"F{level}", ["a"], ["v10"], nodes, imports))
    make = Maker()
    result = make.node("F39", make.conv("input", 3, 4, 3), domain="mine")
    model = make.model(result, [1, 3, 8, 8], domains=["mine"], functions=functions)
    with pytest.raises(onnx_reader.Refused, match="over 1000000 nodes"):
        read(model)


def test_old_files():
    """Before version 4 of the format initializers were inputs, too; before opset 7 a bias was an Add with an axis."""
    make = Maker()
    y = make.conv("input", 3, 4, 3)
    model = make.model(make.node("Add", y, make.weight(4), axis=1, broadcast=1), ["N", 3, 8, 8], opset=6)
    for weight in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(weight.name, weight.data_type, list(weight.dims)))
    model.ir_version = 3
    assert one(model, batch=5).bias and one(model, batch=5).n == 5


def test_bad_files(tmp_path):
    net = models.save(models.resnet50(), tmp_path / "net.onnx")
    assert "there is no model file" in refused(tmp_path / "no.onnx")
    assert "there is no model file" in refused(tmp_path)
    for name, data in [("empty", b""), ("text", b"mb1ic3ih8oc4kh3"), ("cut", (tmp_path / "net.onnx").read_bytes()[:-7])]:
        (tmp_path / f"{name}.onnx").write_bytes(data)
        assert "no ONNX model" in refused(tmp_path / f"{name}.onnx", command="plan")
    assert "'x'" in refused(net, "--shape", "x=1x3x224x224")
    for shape in ("input", "=1", "input=", "input=1x", "input=1x-3", "input=axb"):
        assert "write input=1x3x224x224" in refused(net, "--shape", shape)
    assert "has 2 dimensions" in refused(net, "--shape", "input=1x3")
    make, none = Maker(), Maker()
    make.nodes.append(helper.make_node("Relu", [make.conv("later", 3, 4, 3)], ["later"]))
    none.node("Relu", "input", outputs=1)
    for model, why in ((make.model("later", [1, 3, 8, 8]), "nothing before it makes"),
                       (none.model(none.nodes[0].output[0], [1, 3, 8, 8]), "it has no convolution")):
        assert why in refused(models.save(model, tmp_path / "odd.onnx"))


def test_some_of_the_changed_files(tmp_path):
    """10,000 of them: tests/fuzz/onnx_fuzz.py, as its head says."""
    fuzz = [sys.executable, "-B", ROOT / "tests" / "fuzz" / "onnx_fuzz.py", "300", shutil.which("convtune"), "50"]
    ran = subprocess.run(fuzz, capture_output=True, text=True, timeout=600, cwd=tmp_path, env=ENVIRONMENT)
    assert ran.returncode == 0 and ran.stdout.startswith("300 files: "), ran.stdout + ran.stderr


def test_tune_bench_and_plan(tmp_path):
    make = Maker()
    x = make.node("Relu", make.conv("input", 3, 8, 3, bias=True))
    for _ in range(2):
        x = make.node("Relu", make.conv(x, 8, 8, 3, bias=True))
    path = models.save(make.model(x, [1, 3, 16, 16]), tmp_path / "net.onnx")
    options = ["--model", path, "--python", sys.executable, "--device", "cpu", "--threads", 1]
    ran = run("plan", *options)
    assert ran.returncode == 0 and "and 1 more" in ran.stdout and "2 kinds have no recorded time" in ran.stdout
    ran = run("tune", *options, "--budget", "2t", "--json", tmp_path / "out.json")
    assert ran.returncode == 0, ran.stderr
    table = ran.stdout[ran.stdout.index("where the time goes"):]
    assert "100.0 %" in table and "all convolutions" in table and "and 1 more" in table
    report = json.loads((tmp_path / "out.json").read_text())
    assert sorted(row["count"] for row in report["rows"]) == [1, 2]
    total = sum(row["count"] * row["providers"][0]["time_us"] for row in report["rows"])
    assert report["model_times"]["time_us"] == pytest.approx(total) and report["model_times"]["rows_without"] == 0
    ran = run("plan", *options)
    assert ran.returncode == 0 and "100.0 %" in ran.stdout and "no recorded time" not in ran.stdout
    ran = run("bench", *options, "--seconds", "0.05")
    assert ran.returncode == 0 and "where the time goes" in ran.stdout
