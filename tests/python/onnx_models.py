"""ONNX files for the tests of --model, made by onnx.helper: networks that everybody knows, without their numbers, since
nothing of them is run. Weights are external data whose file is not there, so that nothing may need it."""

import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import onnx
from onnx import TensorProto, helper

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "src" / "onnx"))
import onnx_reader  # noqa: E402

# A sanitizer in the process that reads a file takes more memory than that one may have.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}


def run(*arguments):
    arguments = [shutil.which("convtune"), *map(str, arguments)]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, env=ENVIRONMENT)


def listed(path, *options):
    """By the whole command: {the problem: how often}, and the JSON."""
    ran = run("cases", "--model", path, "--python", sys.executable, "--json", "-", *options)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    for one in found["convolutions"]:
        assert one["count"] == len(one["layers"]) > 0
    return {one["problem"]: one["count"] for one in found["convolutions"]}, found


def refused(path, *options, command="cases"):
    ran = run(command, "--model", path, "--python", sys.executable, *options)
    assert ran.returncode == 2 and ran.stdout == "", ran
    errors = [line for line in ran.stderr.splitlines() if line.startswith("convtune: error: ")]
    assert len(errors) == 1, ran.stderr
    return ran.stderr


def read(model, batch=None, shapes=None):
    """In this process, and each line as a Problem: (name, Problem, count)..., skipped."""
    import convtune  # not at the top: tests/fuzz/onnx_fuzz.py does without

    found = onnx_reader.read(onnx.ModelProto.FromString(model.SerializeToString()), batch, shapes or {})
    rows = found["convolutions"]
    return [(row["layers"][0], convtune.Problem.parse(row["problem"]), row["count"]) for row in rows], found["skipped"]


def one(model, **options):
    (found,), skipped = read(model, **options)
    assert not skipped
    return found[1]


class Maker:
    """A graph as it is written down: values are names, shapes are left to ONNX."""

    def __init__(self, elements=TensorProto.FLOAT):
        self.nodes, self.weights, self.elements, self.count = [], [], elements, 0

    def name(self, kind):
        self.count += 1
        return f"{kind}_{self.count}"

    def weight(self, *extents):
        tensor = TensorProto(name=self.name("weight"), dims=extents, data_type=self.elements,
                             data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="nowhere.bin")
        self.weights.append(tensor)
        return tensor.name

    def constant(self, value, elements=None):
        tensor = helper.make_tensor(self.name("constant"), elements or self.elements, [], [value])
        self.weights.append(tensor)
        return tensor.name

    def node(self, kind, *inputs, outputs=1, **attributes):
        name = self.name(kind)
        made = [name if at == 0 else f"{name}_{at}" for at in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, made, name="/" + name, **attributes))
        return made[0]

    def integers(self, *values):
        """A Constant node, as exporters write it."""
        return self.node("Constant", value=helper.make_tensor("", TensorProto.INT64, [len(values)], values))

    def pad(self, x, *amounts, **attributes):
        """F.pad as PyTorch's older exporter writes it: amounts from the last axis on, filled up and turned by nodes."""
        rest = self.node("ConstantOfShape", self.integers(8 - len(amounts)), value=helper.make_tensor("", TensorProto.INT64, [1], [0]))
        pairs = self.node("Reshape", self.node("Concat", self.integers(*amounts), rest, axis=0), self.integers(-1, 2))
        ends = [self.integers(at) for at in (-1, -(2**63) + 1, 0, -1)]
        turned = self.node("Transpose", self.node("Slice", pairs, *[ends[at] for at in (0, 1, 2, 3)]), perm=[1, 0])
        pads = self.node("Cast", self.node("Reshape", turned, self.integers(-1)), to=TensorProto.INT64)
        return self.node("Pad", x, pads, **attributes)

    def fused(self, kind, x, inputs, outputs, filter_size, *more, **attributes):
        """A convolution as ONNX Runtime fuses it; `more`: bias, what is added."""
        return self.node(kind, x, self.weight(outputs, inputs, filter_size, filter_size), *more, domain="com.microsoft",
                         kernel_shape=[filter_size] * 2, pads=[filter_size // 2] * 4, **attributes)

    def conv(self, x, inputs, outputs, filter_size, stride=1, groups=1, bias=False, **attributes):
        more = [self.weight(outputs)] if bias else []
        if "auto_pad" not in attributes and "pads" not in attributes:
            attributes["pads"] = [filter_size // 2] * 4
        return self.node("Conv", x, self.weight(outputs, inputs // groups, filter_size, filter_size), *more,
                         strides=[stride, stride], group=groups, **attributes)

    def norm(self, x, channels):
        return self.node("BatchNormalization", x, *[self.weight(channels) for _ in range(4)])

    def gelu_by_erf(self, y):
        erf = self.node("Erf", self.node("Div", y, self.constant(2**0.5)))
        return self.node("Mul", self.node("Mul", y, self.node("Add", erf, self.constant(1.0))), self.constant(0.5))

    def gelu_by_tanh(self, y):
        cube = self.node("Mul", self.node("Pow", y, self.constant(3.0)), self.constant(0.044715))
        inner = self.node("Tanh", self.node("Mul", self.node("Add", y, cube), self.constant((2 / math.pi) ** 0.5)))
        return self.node("Mul", self.node("Mul", self.constant(0.5), y), self.node("Add", self.constant(1.0), inner))

    def hardswish_by_clip(self, y):
        part = self.node("Clip", self.node("Add", y, self.constant(3.0)), self.constant(0.0), self.constant(6.0))
        return self.node("Div", self.node("Mul", y, part), self.constant(6.0))

    def model(self, result, shape, opset=17, domains=(), **more):
        graph = helper.make_graph(self.nodes, "graph", [helper.make_tensor_value_info("input", self.elements, shape)],
                                  [helper.make_tensor_value_info(result, self.elements, None)], self.weights)
        versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=versions, ir_version=8, **more)


def resnet50(shape=("N", 3, 224, 224), elements=TensorProto.FLOAT):
    make = Maker(elements)

    def unit(x, inputs, outputs, filter_size, stride=1, act=True):
        x = make.norm(make.conv(x, inputs, outputs, filter_size, stride), outputs)
        return make.node("Relu", x) if act else x

    x = make.node("MaxPool", unit("input", 3, 64, 7, 2), kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    inputs = 64
    for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for block in range(blocks):
            step = stride if block == 0 else 1
            y = unit(unit(unit(x, inputs, width, 1), width, width, 3, step), width, 4 * width, 1, act=False)
            if block == 0:
                x = unit(x, inputs, 4 * width, 1, step, act=False)
            x, inputs = make.node("Relu", make.node("Add", y, x)), 4 * width
    x = make.node("Flatten", make.node("GlobalAveragePool", x))
    return make.model(make.node("Gemm", x, make.weight(1000, 2048), make.weight(1000), transB=1), shape)


def mobilenet_v2(shape=(1, 3, 224, 224)):
    """ReLU6 as PyTorch exports it: Clip with bounds of constants."""
    make = Maker()
    low, high = make.constant(0.0), make.constant(6.0)

    def unit(x, inputs, outputs, filter_size, stride=1, groups=1):  # batch normalisation is folded already
        return make.node("Clip", make.conv(x, inputs, outputs, filter_size, stride, groups, bias=True), low, high)

    x, inputs = unit("input", 3, 32, 3, 2), 32
    for expand, outputs, blocks, stride in ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
                                            (6, 160, 3, 2), (6, 320, 1, 1)):
        for block in range(blocks):
            step, width = (stride if block == 0 else 1), inputs * expand
            y = unit(x, inputs, width, 1) if expand > 1 else x
            y = make.conv(unit(y, width, width, 3, step, groups=width), width, outputs, 1, bias=True)
            x = make.node("Add", x, y) if step == 1 and inputs == outputs else y
            inputs = outputs
    return make.model(make.node("GlobalAveragePool", unit(x, 320, 1280, 1)), shape)


def yolo(shape=("batch", 3, "height", "width")):
    """Blocks of YOLOv5's: SiLU as Sigmoid and Mul, shortcuts behind the activation, upsampling, concatenation."""
    make = Maker()

    def unit(x, inputs, outputs, filter_size, stride=1):
        y = make.conv(x, inputs, outputs, filter_size, stride, bias=True)
        return make.node("Mul", y, make.node("Sigmoid", y))

    def stage(x, channels, blocks):
        y, z = unit(x, channels, channels // 2, 1), unit(x, channels, channels // 2, 1)
        for _ in range(blocks):
            y = make.node("Add", y, unit(unit(y, channels // 2, channels // 2, 1), channels // 2, channels // 2, 3))
        return unit(make.node("Concat", y, z, axis=1), channels, channels, 1)

    x = unit(unit("input", 3, 32, 3, 2), 32, 64, 3, 2)
    deep = stage(unit(stage(x, 64, 1), 64, 128, 3, 2), 128, 2)
    scales = make.name("scales")
    make.weights.append(helper.make_tensor(scales, TensorProto.FLOAT, [4], [1, 1, 2, 2]))
    up = make.node("Resize", unit(deep, 128, 64, 1), "", scales, mode="nearest")
    return make.model(make.conv(make.node("Concat", up, x, axis=1), 128, 255, 1, bias=True), shape)


def unet(shape=(2, 1, 64, 64)):
    """Two scales with leaky ReLU, transposed convolutions on the way up, SAME padding."""
    make = Maker()

    def unit(x, inputs, outputs):
        return make.node("LeakyRelu", make.conv(x, inputs, outputs, 3, bias=True, auto_pad="SAME_UPPER"), alpha=0.1)

    first = unit(unit("input", 1, 16), 16, 16)
    second = unit(make.conv(first, 16, 32, 2, 2, pads=[0] * 4), 32, 32)
    up = make.node("ConvTranspose", second, make.weight(32, 16, 2, 2), make.weight(16), strides=[2, 2])
    return make.model(make.conv(unit(make.node("Concat", up, first, axis=1), 32, 16), 16, 2, 1), shape)


def computed_pads(shape=(1, 3, 32, 32)):
    """Zeros and reflections, and a size that depends on the image's."""
    make = Maker()
    x = make.node("Relu", make.conv(make.pad("input", 1, 1, 1, 1), 3, 8, 3, pads=[0] * 4))
    x = make.conv(make.pad(x, 2, 2, 2, 2, mode="reflect"), 8, 8, 5, pads=[0] * 4)
    height = make.node("Gather", make.node("Shape", x), make.constant(2, TensorProto.INT64))
    more = make.node("Sub", make.constant(40, TensorProto.INT64), height)
    behind = make.node("Concat", make.integers(0, 0, 0, 0, 0, 0), make.node("Unsqueeze", more, make.integers(0)), make.integers(0), axis=0)
    return make.model(make.conv(make.node("Pad", x, behind), 8, 4, 3, pads=[0] * 4), shape)


def fused(shape=(1, 3, 16, 16)):
    """Nodes that ONNX Runtime writes: channels first, with an activation, a residual, both; channels last."""
    make = Maker()
    x = make.fused("FusedConv", "input", 3, 8, 3, make.weight(8), activation="Clip", activation_params=[0.0, 6.0])
    x = make.fused("FusedConv", x, 8, 8, 3, make.weight(8), x, activation="Relu")
    x = make.fused("NhwcFusedConv", make.node("Transpose", x, perm=[0, 2, 3, 1]), 8, 8, 3, activation="Sigmoid")
    x = make.node("Transpose", make.fused("NhwcConv", x, 8, 4, 1), perm=[0, 3, 1, 2])
    return make.model(make.conv(x, 4, 4, 3), shape, domains=["com.microsoft"])


def save(model, path):
    onnx.save(model, str(path))
    return str(path)
