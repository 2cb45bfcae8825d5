"""An ONNX file as a graph of which the shapes are known: read, checked against what ONNX promises and this reader
needs, its functions and fused convolutions written out, its small constants folded, its shapes inferred. For onnx_reader.py.
"""

import math
import os
import resource
import time

from onnx_folding import Folding, MOST_SECONDS
from onnx_fused import written_out
from onnx_graph import Graph, MOST_CONSTANT_ELEMENTS, all_nodes, onnx

MOST_NODES = 1_000_000
MOST_BYTES = 2**31 - 1  # protobuf's own limit
PLAIN_MEMORY = 4 << 30  # beside some copies of the file


class Refused(Exception):
    """Why a file cannot be read; what a person is shown."""


def short(name):
    return repr(name if len(name) <= 80 else name[:80] + "…")


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


def load(path):
    if not os.path.isfile(path):
        raise Refused("it is not a file")
    size = os.path.getsize(path)
    if size > MOST_BYTES:
        raise Refused("it is over 2 GiB, which ONNX keeps in several files: weights in a file beside it are not needed")
    limit = PLAIN_MEMORY + 6 * size
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
    with open(path, "rb") as file:
        data = file.read(MOST_BYTES)
    return parse(data)


def parse(data):
    try:
        model = onnx.ModelProto.FromString(data)
    except Exception as error:  # protobuf's own, of another class in each version
        raise Refused(f"it is no ONNX model: {first_line(error)}") from None
    if not model.graph.node:
        raise Refused("it is no ONNX model, or one without nodes")
    return model


def check_text(model):
    """Whatever is no UTF-8 protobuf hands out as bytes."""
    for graph in [model.graph, *model.functions]:
        names = [name for node in all_nodes(graph) for name in (node.name, node.op_type, node.domain, *node.input, *node.output)]
        if graph is model.graph:
            names += [one.name for one in [*graph.input, *graph.output, *graph.initializer]]
        else:
            names += [graph.name, graph.domain, graph.overload]
        if not all(isinstance(name, str) for name in names):
            raise Refused("a name in it is no UTF-8")


def without_weights(graph):
    """In place: shapes and types stay, and the values of small constants."""
    for tensor in [*graph.initializer, *[one.t for node in graph.node for one in node.attribute]]:
        if math.prod(tensor.dims) > MOST_CONSTANT_ELEMENTS or tensor.ByteSize() > 64 * MOST_CONSTANT_ELEMENTS:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data"):
                tensor.ClearField(field)


def inlined(model):
    """The model with its functions' nodes in their callers' places."""
    if not model.functions:
        return model
    functions = {(one.domain, one.name, one.overload): one for one in model.functions}
    sizes, open_ = {}, set()

    def size_of(key):
        if key in open_:
            raise Refused(f"its function {short(key[1])} calls itself")
        if key not in sizes:
            open_.add(key)
            sizes[key] = sum(node_size(node) for node in all_nodes(functions[key]))
            open_.discard(key)
        return sizes[key]

    def node_size(node):
        key = (node.domain, node.op_type, node.overload)
        return size_of(key) if key in functions else 1

    try:
        size = sum(node_size(node) for node in all_nodes(model.graph))
    except RecursionError:
        raise Refused("its functions call each other too deeply") from None
    if size > MOST_NODES:
        raise Refused(f"it is over {MOST_NODES} nodes, its functions written out")
    try:
        return onnx.inliner.inline_local_functions(model)
    except Exception as error:  # an exception of C++
        raise Refused(f"its functions cannot be written out: {first_line(error)}") from None


def check_order(graph):
    """ONNX's own rules: each value is made once, and before it is read."""
    made = {one.name for one in [*graph.input, *graph.initializer]} | {one.values.name for one in graph.sparse_initializer}
    for number, node in enumerate(graph.node, 1):
        for name in node.input:
            if name and name not in made:
                raise Refused(f"its node {number}, {node.op_type} {short(node.name)}, reads {short(name)}, which nothing "
                              "before it makes")
        for name in node.output:
            if name and name in made:
                raise Refused(f"its node {number}, {node.op_type} {short(node.name)}, makes {short(name)} again")
            made.add(name)


# Shapes

def extents_of(shape):
    """Numbers; a symbol's name or None for what is not known."""
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value >= 0 else dim.dim_param or None for dim in shape.dim]


def shape_text(extents):
    return "x".join("?" if one is None else str(one) for one in extents)


def image_inputs(graph):
    """Without those that initializers are given for, as in files of the first versions."""
    given = {one.name for one in graph.initializer}
    return [one for one in graph.input if one.name not in given and one.type.HasField("tensor_type")]


def set_shapes(graph, batch, asked):
    """In place: the inputs' extents by --shape and --batch."""
    inputs, symbols, changed = {one.name: one for one in image_inputs(graph)}, {}, False
    for name in asked:
        if name not in inputs:
            raise Refused(f"it has no input {short(name)} for --shape; it has {', '.join(map(short, list(inputs)[:20])) or 'none'}")

    def put(dim, value):
        nonlocal changed
        changed |= dim.HasField("dim_value") and dim.dim_value != value
        dim.dim_value = value

    for name, extents in asked.items():
        shape = inputs[name].type.tensor_type.shape
        own = extents_of(shape)
        if inputs[name].type.tensor_type.HasField("shape") and len(own) != len(extents):
            raise Refused(f"--shape {name}={shape_text(extents)} has {len(extents)} dimensions; the input has {shape_text(own)}")
        if not own:
            shape.dim.extend(onnx.TensorShapeProto.Dimension() for _ in extents)
            own = [None] * len(extents)
        for dim, old, value in zip(shape.dim, own, extents):
            if isinstance(old, str) and symbols.setdefault(old, value) != value:
                raise Refused(f"--shape makes the symbol {short(old)} both {symbols[old]} and {value}")
            put(dim, value)
    if batch is not None:
        batched = False
        for name, one in inputs.items():
            own = extents_of(one.type.tensor_type.shape)
            if name in asked or not own or (isinstance(own[0], int) and len(own) < 3):
                continue
            if isinstance(own[0], str):
                symbols.setdefault(own[0], batch)
            put(one.type.tensor_type.shape.dim[0], batch)
            batched = True
        if not batched and not asked:
            raise Refused("none of its inputs has a batch for --batch")
    for one in [*inputs.values(), *graph.value_info, *graph.output]:
        for dim in one.type.tensor_type.shape.dim if one.type.HasField("tensor_type") else ():
            if dim.dim_param in symbols:
                dim.dim_value = symbols[dim.dim_param]
    if changed:  # the file's text others is of the old ones
        del graph.value_info[:]
        for one in graph.output:
            if one.type.HasField("tensor_type"):
                one.type.tensor_type.ClearField("shape")


def inferred_shapes(model):
    """By name: element type and extents, None where they are not known."""
    # Inference makes lists of the values of integers, as many as their shape says.
    large = [one for one in model.graph.initializer if math.prod(one.dims) > MOST_CONSTANT_ELEMENTS and one.data_type in (
        onnx.TensorProto.INT32, onnx.TensorProto.INT64)]
    if large:
        bare = onnx.ModelProto()
        bare.CopyFrom(model)
        for one in large:  # an input whose shape is not known
            bare.graph.initializer.remove(one)
            bare.graph.input.append(onnx.helper.make_tensor_value_info(one.name, one.data_type, None))
        model = bare
    try:
        graph = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
    except Exception as error:
        raise Refused(f"its shapes cannot be inferred: {first_line(error)}") from None
    shapes = {}
    for one in [*graph.input, *graph.output, *graph.value_info]:
        if one.type.HasField("tensor_type"):
            tensor = one.type.tensor_type
            extents = [d if isinstance(d, int) else None for d in extents_of(tensor.shape)] if tensor.HasField("shape") else None
            shapes[one.name] = (tensor.elem_type, extents)
    for one in graph.initializer:
        shapes[one.name] = (one.data_type, list(one.dims))
    for one in graph.sparse_initializer:
        shapes[one.values.name] = (one.values.data_type, list(one.dims))
    return shapes


def folded_shapes(model):
    """Infers shapes again, once small constants and the shapes that they make are known."""
    folding = Folding(model)
    folding.further({})
    shapes, ends = inferred_shapes(model), time.process_time() + MOST_SECONDS
    while time.process_time() < ends and folding.further(shapes):
        shapes = inferred_shapes(model)
    return shapes


def ask_for_shapes(graph):
    """Refuses where an input's extents are what is missing."""
    for one in image_inputs(graph):
        own = extents_of(one.type.tensor_type.shape)
        if not one.type.tensor_type.HasField("shape"):
            raise Refused(f"its input {short(one.name)} has no shape: give it by --shape {one.name}=1x3x224x224")
        missing = [at for at, extent in enumerate(own) if not isinstance(extent, int)]
        if missing == [0]:
            raise Refused(f"the batch of its input {short(one.name)}, {shape_text(own)}, is open: give it by --batch 1")
        if missing:
            usual = [extent if isinstance(extent, int) else 1 if at == 0 else 3 if at == 1 else 224 for at, extent in enumerate(own)]
            raise Refused(f"the shape of its input {short(one.name)}, {shape_text(own)}, is open: give it by --shape "
                          f"{one.name}={shape_text(usual)}")


def opened(model, batch, shapes):
    """The model's graph as the file's own message, and as a Graph."""
    if len(model.graph.node) > MOST_NODES:
        raise Refused(f"it has over {MOST_NODES} nodes")
    check_text(model)
    without_weights(model.graph)
    model = inlined(model)
    check_order(model.graph)
    set_shapes(model.graph, batch, shapes)
    written_out(model.graph)
    return model.graph, Graph(model.graph, folded_shapes(model))
