"""An ONNX graph by its values: who makes one, who reads it, which are constants, and what follows a convolution that
its epilogue could compute: bias, a folded normalisation, a residual, an activation. For onnx_reader.py.
"""

import math
from collections import defaultdict

try:
    import onnx
    import onnx.inliner
    import onnx.numpy_helper
    import onnx.shape_inference
except ImportError as error:  # the reader's answer says so
    onnx, why_not = None, str(error)

MOST_CONSTANT_ELEMENTS = 1024  # tensors of which values are asked for: shapes, bounds, factors
MOST_POINTWISE = 16  # nodes of one activation
# Points at which two formulas are compared. An activation is recognised by its values, however a file spells it; constants
# may have been rounded to half precision, so that equal means equal to about three digits.
LARGE = 1e30  # stands for infinity
POINTS = [x / 4 for x in range(-48, 49)] + [-LARGE, LARGE]


def attribute(node, name, default=None):
    """Its value; the default where the node has none. Raises ValueError where it is of another type."""
    for one in node.attribute:
        if one.name == name:
            value = onnx.helper.get_attribute_value(one)
            if default is not None and type(value) is not type(default):
                raise ValueError(f"its attribute {name} is no {type(default).__name__}")
            return value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    return default.decode() if isinstance(default, bytes) else default


def integers(node, name, default, *counts):
    """Reads an attribute, as many as one of the counts says, or the default."""
    value = attribute(node, name, None) or default
    if not isinstance(value, list) or not all(isinstance(one, int) for one in value):
        raise ValueError(f"its attribute {name} is no list of integers")
    if len(value) not in counts:
        raise ValueError(f"its attribute {name} has {len(value)} integers instead of {counts[-1]}")
    return value


def subgraphs(node):
    for one in node.attribute:
        if one.type == onnx.AttributeProto.GRAPH:
            yield one.g
        elif one.type == onnx.AttributeProto.GRAPHS:
            yield from one.graphs


def all_nodes(graph):
    """Nodes of the graphs within, too."""
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            yield node
            graphs.extend(subgraphs(node))


def constant_of(node):
    """The tensor of a Constant; None where it has none, or a sparse one."""
    for one in node.attribute:
        if one.name == "value" and one.HasField("t"):
            return one.t
        if one.name in ("value_float", "value_floats"):
            numbers = [one.f] if one.name == "value_float" else one.floats
            return onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, [len(numbers)][one.name == "value_float":], numbers)
        if one.name in ("value_int", "value_ints"):
            numbers = [one.i] if one.name == "value_int" else one.ints
            return onnx.helper.make_tensor("", onnx.TensorProto.INT64, [len(numbers)][one.name == "value_int":], numbers)
    return None


def exponential(x):
    return math.exp(x) if x < 700 else math.inf


def sigmoid(x):
    return 1 / (1 + exponential(-x))


def clipped(x, low=-math.inf, high=math.inf):
    return min(max(x, low), high)


def gelu(x, form="none"):
    if form == "tanh":
        return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: max(x, 0.0),
    "silu": lambda x: x * sigmoid(x),
    "gelu_erf": gelu,
    "gelu_tanh": lambda x: gelu(x, "tanh"),
    "hardswish": lambda x: x * clipped(x / 6 + 0.5, 0, 1),
    "sigmoid": sigmoid,
}
ARITHMETIC = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: a / b,
    "Pow": lambda a, b: a**b,
    "Min": min,
    "Max": max,
    "Erf": math.erf,
    "Exp": exponential,
    "Tanh": math.tanh,
    "Neg": lambda a: -a,
    "Relu": lambda a: max(a, 0.0),
    "Sigmoid": sigmoid,
    "HardSwish": ACTIVATIONS["hardswish"],
    "Identity": lambda a: a,
}


def pointwise(node):
    """Returns an elementwise node as a function of its inputs' numbers; None for any other node.
    An input that is left out is None."""
    kind = node.op_type
    if node.domain not in ("", "ai.onnx"):
        return None
    if kind == "Clip":
        low, high = attribute(node, "min", None), attribute(node, "max", None)

        def clip(x, lower=low, upper=high):
            lower, upper = (low if lower is None else lower), (high if upper is None else upper)
            return clipped(x, -math.inf if lower is None else lower, math.inf if upper is None else upper)

        return clip
    if kind == "LeakyRelu":
        slope = attribute(node, "alpha", 0.01)
        return lambda x: x if x >= 0 else slope * x
    if kind == "HardSigmoid":
        alpha, beta = attribute(node, "alpha", 0.2), attribute(node, "beta", 0.5)
        return lambda x: clipped(alpha * x + beta, 0.0, 1.0)
    if kind == "Gelu":
        form = attribute(node, "approximate", b"none")
        return lambda x: gelu(x, form)
    if kind == "Swish":
        alpha = attribute(node, "alpha", 1.0)
        return lambda x: x * sigmoid(alpha * x)
    return ARITHMETIC.get(kind)


def activation_of(values):
    """The problem's word for a function by its values at POINTS: "silu", "clip:0:6"; None where it is none of them."""

    def distance(name):  # relative where numbers are large
        return max(abs(value - known[name](x)) / (1 + abs(known[name](x))) for x, value in zip(POINTS, values))

    if not all(isinstance(value, float) and math.isfinite(value) for value in values):
        return None
    known = dict(ACTIVATIONS)
    low, high = values[-2], values[-1]
    if low < high < LARGE:
        known[f"clip:{low:.6g}:{high:.6g}"] = lambda x: clipped(x, low, high)
    elif high == LARGE and -LARGE != low < 0:
        known[f"leaky_relu:{-low / LARGE:.6g}"] = lambda x: x if x >= 0 else x * (-low / LARGE)
    best = min(known, key=distance)
    return best if distance(best) < 1e-3 else None


class Graph:
    """`shapes`: by a value's name its element type and extents, what is not known None."""

    def __init__(self, graph, shapes):
        self.shapes = shapes
        self.nodes = list(graph.node)
        self.constants = {one.name: one for one in graph.initializer}
        self.dense = set(self.constants) | {one.values.name for one in graph.sparse_initializer}
        self.readers, self.makers = defaultdict(list), {}
        self.kept = {one.name for one in graph.output}
        self.claimed = set()  # nodes that are a convolution's epilogue, by id
        for node in self.nodes:
            for name in node.input:
                self.readers[name].append(node)
            self.makers.update((name, node) for name in node.output)
            if node.op_type == "Constant" and node.output:
                self.dense.add(node.output[0])
                if (tensor := constant_of(node)) is not None:
                    self.constants[node.output[0]] = tensor
            for inner in subgraphs(node):
                self.kept.update(name for one in all_nodes(inner) for name in one.input)
                self.kept.update(one.name for one in inner.output)

    def number(self, name):
        """The one number of a constant; None where it is not known or not one."""
        tensor = self.constants.get(name)
        if tensor is None or math.prod(tensor.dims) != 1 or tensor.data_location == onnx.TensorProto.EXTERNAL:
            return None
        try:
            return float(onnx.numpy_helper.to_array(tensor).reshape(()))
        except Exception:  # data of another size than its shape, an element type of another time
            return None

    def integers(self, name):
        """The integers of a small constant; None where they are not known."""
        tensor = self.constants.get(name)
        if tensor is None or math.prod(tensor.dims) > MOST_CONSTANT_ELEMENTS or tensor.data_location == (
                onnx.TensorProto.EXTERNAL):
            return None
        try:
            return [int(one) for one in onnx.numpy_helper.to_array(tensor).reshape(-1)]
        except Exception:  # data of another size than its shape, an element type of another time
            return None

    def is_constant(self, name):
        return name in self.dense

    def extents(self, name):
        return self.shapes.get(name, (None, None))[1]

    def only_reader(self, value):
        readers = self.readers[value]
        return readers[0] if len(readers) == 1 and value not in self.kept and id(readers[0]) not in self.claimed else None

    def is_per_channel(self, name, value, node):
        """Tells whether a constant is one number for each channel of `value`, or one for all."""
        of, extents = self.extents(value), self.extents(name)
        if not self.is_constant(name) or extents is None or None in extents or of is None or len(of) < 2:
            return False
        if math.prod(extents) == 1 and len(extents) <= len(of):
            return True
        if attribute(node, "axis", None) == 1 and len(extents) == 1:  # before opset 7
            return extents[0] == of[1]
        return [1] * (len(of) - len(extents)) + list(extents) == [1, of[1]] + [1] * (len(of) - 2)

    def sums(self, value, weights):
        """Finds the operands added to a convolution's sum: (the value after it, whether there is a bias, a residual)."""
        bias = residual = False
        while (node := self.only_reader(value)) is not None and node.output:
            kind, others = node.op_type, [name for name in node.input if name != value]
            if node.domain not in ("", "ai.onnx"):
                break
            if kind == "BatchNormalization":
                training = attribute(node, "training_mode", 0) or attribute(node, "is_test", 1) == 0
                constant = all(self.is_constant(name) for name in [weights, *others])
                if residual or training or not constant or node.input[0] != value or any(node.output[1:]):
                    break
                bias = True
            elif kind in ("Add", "Sum") and len(others) == 1 and len(node.input) == 2:
                if self.is_per_channel(others[0], value, node):
                    bias = True
                elif not residual and not self.is_constant(others[0]) and self.same_shape(others[0], value):
                    residual = True
                else:
                    break
            elif kind not in ("Identity", "Dropout") or (kind == "Dropout" and (len(node.input) > 2 or any(node.output[1:]))):
                break
            self.claimed.add(id(node))
            value = node.output[0]
        return value, bias, residual

    def same_shape(self, one, other):
        shape = self.shapes.get(one)
        return shape is not None and shape == self.shapes.get(other) and None not in (shape[1] or [None])

    def activation(self, value):
        """The word of the activation that follows, "none" where there is none that is known. Nodes are followed as
        long as they compute number by number of nothing but `value` and constants; where one leaves nothing of the
        ones before it to be read by others, it may be the end of an activation."""
        computed = {value: POINTS}
        inside, taken, found = [], {}, ("none", [])
        waiting = list(self.readers[value])
        while waiting and len(inside) < MOST_POINTWISE:
            node = next((one for one in waiting if self.values(one, computed) is not None), None)
            if node is None:
                break
            waiting = [one for one in waiting if one is not node]
            if id(node) in taken:
                continue
            computed[node.output[0]] = self.values(node, computed)
            taken[id(node)] = node
            inside.append(node)
            waiting += self.readers[node.output[0]]
            left = [name for name in computed if name != node.output[0]]
            if not any(name in self.kept or any(id(one) not in taken for one in self.readers[name]) for name in left):
                if (word := activation_of(computed[node.output[0]])) is not None:
                    found = (word, list(inside)) if word != "none" or found[0] == "none" else found
        self.claimed.update(id(node) for node in found[1])
        return found[0]

    def values(self, node, computed):
        """Values of its output at POINTS; None where it is not computed number by number from what is there."""
        if id(node) in self.claimed or len(node.output) != 1 or len(node.input) > 3:
            return None
        try:
            compute = pointwise(node)
            parts = [computed.get(name) or [None if not name else self.number(name)] * len(POINTS) for name in node.input]
            if compute is None or any(part[0] is None and name for part, name in zip(parts, node.input)):
                return None
            return [compute(*numbers) for numbers in zip(*parts)]
        except (ArithmeticError, ValueError, TypeError):
            return None
