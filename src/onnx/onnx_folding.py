"""Constants that nodes of an ONNX file compute of other constants, as the amounts of padding that exporters write: worked out
by onnx.reference, so that shapes can be inferred behind them. Only few operators, small tensors and a limited time: nothing
that a file asks for can take much. For onnx_file.py.
"""

import math
import time

import numpy

from onnx_graph import MOST_CONSTANT_ELEMENTS, attribute, constant_of, onnx

FOLDED = {"Abs", "Add", "And", "Cast", "Ceil", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Flatten", "Floor", "Gather",
          "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Range",
          "ReduceMax", "ReduceMin", "ReduceProd", "ReduceSum", "Reshape", "Shape", "Size", "Slice", "Split", "Sqrt", "Squeeze",
          "Sub", "Tile", "Transpose", "Unsqueeze", "Where"}
MOST_VALUES = 64  # values that one node reads or makes
MOST_SECONDS = 10  # seconds of the processor for one file


def array_of(tensor):
    """The numbers of a small tensor; None where they are not there or are no numbers."""
    if tensor.data_location == onnx.TensorProto.EXTERNAL or math.prod(tensor.dims) > MOST_CONSTANT_ELEMENTS:
        return None
    try:
        found = onnx.numpy_helper.to_array(tensor)
    except Exception:  # values that are left out, of another count than its shape says, of a type of another time
        return None
    return found if found.dtype.kind in "biuf" else None


def made_elements(node, inputs):
    """The most numbers that a node can make."""
    sizes = [one.size for one in inputs if one is not None]
    if node.op_type in ("ConstantOfShape", "Expand", "Tile"):
        shape = [int(extent) for extent in inputs[-1].reshape(-1)]
        return math.prod(shape) * (sizes[0] if len(sizes) > 1 else 1) if min(shape, default=0) >= 0 else math.inf
    if node.op_type == "Range":
        start, limit, step = (float(one.reshape(())) for one in inputs)
        return (limit - start) / step
    return sum(sizes) if node.op_type == "Concat" else math.prod(size + 1 for size in sizes)


class Folding:
    """Works nodes of one graph out, in place: they become initializers."""

    def __init__(self, model):
        self.graph = model.graph
        self.opsets = {one.domain if one.domain != "ai.onnx" else "": one.version for one in model.opset_import}
        self.arrays = {one.name: array_of(one) for one in self.graph.initializer}
        for node in self.graph.node:
            if node.op_type == "Constant" and len(node.output) == 1 and (tensor := constant_of(node)) is not None:
                self.arrays[node.output[0]] = array_of(tensor)
        self.seconds = MOST_SECONDS

    def further(self, shapes):
        """True if a node could be worked out that could not before. `shapes`: what is known of them, for Shape."""
        folded = set()
        for at, node in enumerate(self.graph.node):
            if node.op_type in FOLDED and node.domain in ("", "ai.onnx") and self.seconds > 0:
                begun = time.process_time()
                try:
                    if self.fold(node, shapes):
                        folded.add(at)
                except Exception:  # per node that is none: it stays
                    pass
                self.seconds -= time.process_time() - begun
        if folded:
            rest = [node for at, node in enumerate(self.graph.node) if at not in folded]
            del self.graph.node[:]
            self.graph.node.extend(rest)
        return bool(folded)

    def fold(self, node, shapes):
        if not 0 < len(node.output) <= MOST_VALUES or not 0 < len(node.input) <= MOST_VALUES:
            return False
        if node.op_type in ("Shape", "Size"):
            extents = shapes.get(node.input[0], (None, None))[1]
            if extents is None or None in extents:
                return False
            begin, end = attribute(node, "start", 0), attribute(node, "end", None)
            made = [numpy.array(extents[begin:end] if node.op_type == "Shape" else math.prod(extents), numpy.int64)]
        else:
            inputs = [self.arrays.get(name) if name else None for name in node.input]
            if any(one is None and name for one, name in zip(inputs, node.input)):
                return False
            if not made_elements(node, inputs) <= MOST_CONSTANT_ELEMENTS**2:
                return False
            made = self.computed(node, dict(zip(node.input, inputs)))
        if not all(one.size <= MOST_CONSTANT_ELEMENTS and one.dtype.kind in "biuf" for one in made):
            return False
        for name, one in zip(node.output, made):
            if name:
                self.arrays[name] = one
                self.graph.initializer.append(onnx.numpy_helper.from_array(one, name))
        return True

    def computed(self, node, given):
        import onnx.reference  # for the files that need it

        infos = [onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(one.dtype), one.shape)
                 for name, one in given.items() if name]
        outputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.UNDEFINED, None) for name in node.output if name]
        graph = onnx.helper.make_graph([node], "one", infos, outputs)
        opsets = [onnx.helper.make_opsetid("", self.opsets.get("", 1))]
        runner = onnx.reference.ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=opsets))
        with numpy.errstate(all="ignore"):
            return [numpy.asarray(one) for one in runner.run(None, {name: one for name, one in given.items() if name})]
