"""Lists the convolutions of an ONNX file for `convtune ... --model`: a line of the problem each, with the epilogue that
the graph proves. Nothing of the file is run, and its weights are not needed.

A request is a line of JSON on standard input, its answer a line of JSON on standard output.
"""

import json
import math
import os
import re
import resource
import sys

import onnx_graph
from onnx_graph import Graph, MOST_CONSTANT_ELEMENTS, all_nodes, attribute, integers, onnx, subgraphs

MOST_NODES = 1_000_000
MOST_BYTES = 2**31 - 1  # protobuf's own limit
PLAIN_MEMORY = 4 << 30  # beside some copies of the file

TYPES = {1: "f32", 10: "f16", 16: "bf16"}
BEHIND = {"d": "pad_back", "h": "pad_bottom", "w": "pad_right"}
NO_CONVOLUTIONS = {
    "ConvInteger": "its tensors are integers",
    "QLinearConv": "its tensors are integers",
    "QLinearConvTranspose": "its tensors are integers",
    "DeformConv": "each output has taps of its own",
    "CausalConvWithState": "it keeps a state between calls",
}


class Refused(Exception):
    """Why a file cannot be read; what a person is shown."""


class Skipped(Exception):
    """Why a node is not listed."""


def short(name):
    return repr(name if len(name) <= 80 else name[:80] + "…")


def first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0][:300]


# The file

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
    """What is no UTF-8 protobuf hands out as bytes."""
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
    except Exception as error:  # of C++
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
    if changed:  # what the file says of the others is of the old ones
        del graph.value_info[:]
        for one in graph.output:
            if one.type.HasField("tensor_type"):
                one.type.tensor_type.ClearField("shape")


def inferred_shapes(model):
    """By name: element type and extents, None where they are not known."""
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


# Convolutions

def paddings(node, image, filters, strides, dilations):
    """In front and behind of each axis, and the outputs' extents."""
    axes = len(image)
    auto = attribute(node, "auto_pad", b"NOTSET")
    spans = [(size - 1) * hole + 1 for size, hole in zip(filters, dilations)]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        totals = [max((-(-size // step) - 1) * step + span - size, 0) for size, span, step in zip(image, spans, strides)]
        return split(totals, auto == "SAME_UPPER")
    if auto == "VALID":
        return [0] * axes, [0] * axes
    if auto not in ("NOTSET", ""):
        raise Skipped(f"its auto_pad is {short(auto)}")
    pads = integers(node, "pads", [0] * (2 * axes), 2 * axes)
    return pads[:axes], pads[axes:]


def split(totals, more_behind):
    less, more = [one // 2 for one in totals], [one - one // 2 for one in totals]
    return (less, more) if more_behind else (more, less)


def transposed_paddings(node, image, filters, strides, dilations):
    """Of a ConvTranspose: its paddings, and its output's extents, which must be those of a gradient."""
    axes = len(image)
    auto = attribute(node, "auto_pad", b"NOTSET")
    extra = integers(node, "output_padding", [0] * axes, axes)
    wanted = integers(node, "output_shape", [], 0, axes, axes + 2)
    full = [step * (size - 1) + more + (taps - 1) * hole + 1
            for size, taps, step, hole, more in zip(image, filters, strides, dilations, extra)]
    if not wanted and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * step for size, step in zip(image, strides)]
    if wanted:
        wanted = wanted[-axes:]  # where they are more than there are, nothing is cut off and zeros follow
        front, back = split([max(size - want, 0) for size, want in zip(full, wanted)], auto == "SAME_UPPER")
    else:
        front, back = paddings(node, image, filters, strides, dilations)
        wanted = [size - one - other for size, one, other in zip(full, front, back)]
    for size, out, one, other, taps, step, hole in zip(image, wanted, front, back, filters, strides, dilations):
        if (out + one + other - (taps - 1) * hole - 1) // step + 1 != size:
            raise Skipped(f"no convolution's gradient has its output of {shape_text(wanted)}")
    return front, back, wanted


def line_of(node, graph):
    """The problem of a Conv or ConvTranspose as text."""
    transposed = node.op_type == "ConvTranspose"
    if len(node.input) < 2 or not node.output:
        raise Skipped("it has no weights")
    (kind, image), (_, weights) = (graph.shapes.get(name, (None, None)) for name in node.input[:2])
    if image is None or weights is None or None in image or None in weights:
        raise Skipped("the shapes of its tensors cannot be inferred from the file")
    if kind not in TYPES:
        known = kind in onnx.TensorProto.DataType.values()
        raise Skipped(f"its numbers are {onnx.TensorProto.DataType.Name(kind).lower() if known else 'of no known type'}")
    axes = len(image) - 2
    if axes not in (1, 2, 3) or len(weights) != len(image):
        raise Skipped(f"its input is {shape_text(image)}, its weights are {shape_text(weights)}")
    groups, filters = attribute(node, "group", 1), weights[2:]
    (batch, channels), image = image[:2], image[2:]
    strides, dilations = (integers(node, name, [1] * axes, axes) for name in ("strides", "dilations"))
    if integers(node, "kernel_shape", filters, axes) != filters:
        raise Skipped(f"its kernel_shape is not that of its weights, {shape_text(weights)}")
    if groups < 1 or min(strides) < 1 or min(dilations) < 1 or channels != (weights[0] if transposed else weights[1] * groups):
        raise Skipped(f"its input has {channels} channels, its weights are {shape_text(weights)} in {groups} groups")
    if transposed:  # the gradient of the image of a convolution that makes its input of its output
        front, back, image = transposed_paddings(node, image, filters, strides, dilations)
        inputs, outputs = weights[1] * groups, channels
    else:
        front, back = paddings(node, image, filters, strides, dilations)
        inputs, outputs = channels, weights[0]
    if min(front + back) < 0:
        raise Skipped("a padding is negative")
    axis_names = "dhw"[-axes:]
    if axes == 3 and (image[0], filters[0], front[0], back[0]) == (1, 1, 0, 0):
        axis_names, image, filters, strides, dilations, front, back = "hw", *(
            one[1:] for one in (image, filters, strides, dilations, front, back))
    line = f"g{groups}mb{batch}ic{inputs}oc{outputs}"
    if axis_names == "w":
        line += "ih1kh1"
    for axis, *numbers in zip(axis_names, image, filters, strides, front, dilations):
        size, taps, step, pad, hole = numbers
        line += f"i{axis}{size}k{axis}{taps}s{axis}{step}p{axis}{pad}d{axis}{hole - 1}"
    words = [f"dtype={TYPES[kind]}"]
    for axis, one, other in zip(axis_names, front, back):
        if one != other:
            words.append(f"{BEHIND[axis]}={other}")
    return " ".join([line, *words, *(["dir=bwd_d"] if transposed else epilogue(node, graph))])


def epilogue(node, graph):
    bias = len(node.input) > 2 and node.input[2] != ""
    value, added, residual = graph.sums(node.output[0], node.input[1])
    return [f"bias={int(bias or added)}", f"residual={int(residual)}", f"act={graph.activation(value)}"]


def label(node):
    return (node.name or (node.output[0] if node.output else "") or node.op_type)[:1000]


def why_none(node):
    """Why what is called a convolution is none of ours; None where it is one or something else."""
    if node.domain in ("", "ai.onnx"):
        if node.op_type in ("Conv", "ConvTranspose"):
            return None
        return NO_CONVOLUTIONS.get(node.op_type)
    return f"it is of the domain {short(node.domain)}" if re.search(r"Conv(?![a-z])|ConvTranspose", node.op_type) else None


def convolutions(graph):
    """(listed, skipped): (name, line) and (what, why, name), in the order of the file."""
    found = {}
    for node in reversed(graph.nodes):  # of two convolutions whose sum is taken the later one can add the other's
        if node.op_type in ("Conv", "ConvTranspose") and node.domain in ("", "ai.onnx"):
            try:
                found[id(node)] = line_of(node, graph)
            except (Skipped, ValueError, OverflowError) as error:
                found[id(node)] = error
    listed, skipped = [], []
    for node in graph.nodes:
        if why := why_none(node):
            skipped.append((node.op_type, why, label(node)))
        elif id(node) in found:
            line = found[id(node)]
            if isinstance(line, str):
                listed.append((label(node), line))
            else:
                skipped.append((node.op_type, first_line(line), label(node)))
        for inner in subgraphs(node):
            for one in all_nodes(inner):
                if one.op_type in ("Conv", "ConvTranspose") or why_none(one):
                    skipped.append((one.op_type, f"how often it runs is decided by a {node.op_type}", label(one)))
    return listed, skipped


def merged(pairs):
    """By what comes first: how often, and the names."""
    groups = {}
    for *what, name in pairs:
        groups.setdefault(tuple(what), []).append(name)
    return groups.items()


def read(model, batch, shapes):
    if len(model.graph.node) > MOST_NODES:
        raise Refused(f"it has over {MOST_NODES} nodes")
    check_text(model)
    without_weights(model.graph)
    model = inlined(model)
    check_order(model.graph)
    set_shapes(model.graph, batch, shapes)
    graph = Graph(model.graph, inferred_shapes(model))
    listed, skipped = convolutions(graph)
    if any("cannot be inferred" in why for _, why, _ in skipped):
        ask_for_shapes(model.graph)
    return {
        "convolutions": [{"problem": line, "count": len(names), "layers": names}
                         for (line,), names in merged((line, name) for name, line in listed)],
        "skipped": [{"what": what, "why": why, "count": len(names), "layers": names} for (what, why), names in merged(skipped)],
    }


def answer(request):
    if onnx is None:
        return {"missing": onnx_graph.why_not}
    try:
        return read(load(request["path"]), request.get("batch"), request.get("shapes") or {})
    except Refused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "reading it takes too much memory"}
    except (RecursionError, OSError) as error:
        return {"refused": first_line(error)}


def main():
    print(json.dumps(answer(json.loads(sys.stdin.readline())), ensure_ascii=True))
