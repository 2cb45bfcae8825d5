"""ONNX Runtime's fused convolutions and activations (com.microsoft), as files have them that it has optimised: written out
again as ONNX's own nodes, so that shapes and epilogues are found as everywhere. For onnx_file.py.
"""

import math

from onnx_graph import attribute, onnx

FUSED = ("FusedConv", "NhwcFusedConv", "NhwcConv")
ACTIVATIONS = ("Gelu", "BiasGelu", "FastGelu", "QuickGelu")
PARAMETERS = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max")}  # per activation


class Writer:
    def __init__(self, graph):
        self.graph, self.nodes = graph, []
        self.taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self.weights = {one.name: list(one.dims) for one in graph.initializer}

    def make(self, kind, inputs, after, **attributes):
        """A node whose output's name is new."""
        name = f"{after}/{kind}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        self.nodes.append(onnx.helper.make_node(kind, inputs, [name], **attributes))
        return name

    def number(self, value, after):
        return self.make("Constant", [], after, value_float=value)

    def quick_gelu(self, x, alpha):
        inner = x if alpha == 1 else self.make("Mul", [x, self.number(alpha, x)], x)
        return self.make("Mul", [x, self.make("Sigmoid", [inner], x)], x)

    def gelu(self, x):
        return self.gelu_of(x, self.make("Erf", [self.make("Mul", [x, self.number(math.sqrt(0.5), x)], x)], x))

    def fast_gelu(self, x):
        cube = self.make("Mul", [self.make("Pow", [x, self.number(3.0, x)], x), self.number(0.044715, x)], x)
        inner = self.make("Mul", [self.make("Add", [x, cube], x), self.number(math.sqrt(2 / math.pi), x)], x)
        return self.gelu_of(x, self.make("Tanh", [inner], x))

    def gelu_of(self, x, share):
        half = self.make("Mul", [x, self.number(0.5, x)], x)
        return self.make("Mul", [half, self.make("Add", [share, self.number(1.0, x)], x)], x)

    def write(self, node):
        if len(node.output) != 1 or not node.input or not node.input[0]:
            raise ValueError("it has no input or other outputs")
        if node.op_type in FUSED:
            self.convolution(node)
        else:
            x = node.input[0]
            if len(node.input) > 1 and node.input[1]:  # a bias
                x = self.make("Add", [x, node.input[1]], x)
            if node.op_type == "QuickGelu":
                self.quick_gelu(x, attribute(node, "alpha", 1.702))
            else:
                (self.fast_gelu if node.op_type == "FastGelu" else self.gelu)(x)
        self.nodes[-1].output[0] = node.output[0]

    def convolution(self, node):
        """Y = activation(Conv(X, W, B) + Z), channels last where its name begins with Nhwc."""
        x, weights, bias, z = (*node.input, "", "", "", "")[:4]
        activation = attribute(node, "activation", b"")
        parameters = attribute(node, "activation_params", None) or []
        names = PARAMETERS.get(activation, ())
        if not weights or len(parameters) not in (0, len(names)):
            raise ValueError("its inputs, outputs or parameters are not as they must be")
        out, last = node.output[0], node.op_type.startswith("Nhwc")
        taps = attribute(node, "kernel_shape", None) or []
        axes = len(taps) or len(self.weights.get(weights, [0] * 4)) - 2
        front = [0, axes + 1, *range(1, axes + 1)]  # channels last to channels first
        if last:
            x, z = self.make("Transpose", [x], x, perm=front), z and self.make("Transpose", [z], z, perm=front)
            if (of := self.weights.get(weights)) and taps and of[2:] != taps and of[1:-1] == taps:
                weights = self.make("Transpose", [weights], weights, perm=front)
        value = self.make("Conv", [x, weights, bias] if bias else [x, weights], out)
        conv = self.nodes[-1]
        conv.name = node.name
        conv.attribute.extend(one for one in node.attribute if not one.name.startswith("activation"))
        if last:
            conv.attribute.append(onnx.helper.make_attribute("layout", "nhwc"))  # for onnx_reader
        if z:
            value = self.make("Add", [value, z], out)
        if activation:
            value = self.make(activation, [value], out, **dict(zip(names, parameters)))
        if last:
            self.make("Transpose", [value], out, perm=[0, *range(2, axes + 2), 1])


def written_out(graph):
    """In place."""
    if not any(node.domain == "com.microsoft" for node in graph.node):
        return
    writer = Writer(graph)
    for node in graph.node:
        begun = len(writer.nodes)
        try:
            if node.op_type not in (*FUSED, *ACTIVATIONS) or node.domain != "com.microsoft":
                raise ValueError("it is another node")
            writer.write(node)
        except (ValueError, TypeError):
            del writer.nodes[begun:]
            writer.nodes.append(node)
    nodes = list(writer.nodes)
    del graph.node[:]
    graph.node.extend(nodes)
