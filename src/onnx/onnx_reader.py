"""Lists the convolutions of an ONNX file for `convtune ... --model`: a line of the problem each, with the epilogue that
the graph proves. Nothing of the file is run, and its weights are not needed.

A request is a line of JSON on standard input, its answer a line of JSON on standard output.
"""

import json
import re
import sys

import onnx_graph
from onnx_file import Refused, ask_for_shapes, first_line, load, opened, shape_text, short
from onnx_graph import all_nodes, attribute, integers, onnx, subgraphs
from onnx_padding import paddings, Skipped, transposed_paddings, zeros_around

TYPES = {1: "f32", 10: "f16", 16: "bf16"}
BEHIND = {"d": "pad_back", "h": "pad_bottom", "w": "pad_right"}
NO_CONVOLUTIONS = {
    "ConvInteger": "the model is quantised: its tensors are integers",
    "QLinearConv": "the model is quantised: its tensors are integers",
    "QLinearConvTranspose": "the model is quantised: its tensors are integers",
    "DeformConv": "each output has taps of its own",
    "CausalConvWithState": "it keeps a state between calls",
}
BLOCKED = ("ONNX Runtime filled its channels up for the vectors of one processor: save the model at its level "
           "ORT_ENABLE_EXTENDED")


def line_of(node, graph):
    """The problem of a Conv or ConvTranspose as text."""
    transposed = node.op_type == "ConvTranspose"
    if len(node.input) < 2 or not node.output:
        raise Skipped("it has no weights")
    (kind, image), (_, weights) = (graph.shapes.get(name, (None, None)) for name in node.input[:2])
    if all(name in graph.makers and graph.makers[name].op_type == "DequantizeLinear" for name in node.input[:2]):
        raise Skipped("the model is quantised: its tensors are integers, which DequantizeLinear writes as numbers")
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
        inner, before, behind = zeros_around(graph, node.input[0])
        image = graph.extents(inner)[2:]
        front, back = ([one + more for one, more in zip(*pair)] for pair in ((front, before[2:]), (back, behind[2:])))
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
    if attribute(node, "layout", b"") == "nhwc":
        words.append("layout=nhwc")
    for axis, one, other in zip(axis_names, front, back):
        if one != other:
            words.append(f"{BEHIND[axis]}={other}")
    return " ".join([line, *words, *(["dir=bwd_d"] if transposed else []), *epilogue(node, graph)])


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
    if node.domain == "com.microsoft.nchwc":
        return BLOCKED if node.op_type == "Conv" else None
    if node.domain == "com.microsoft" and node.op_type in NO_CONVOLUTIONS:
        return NO_CONVOLUTIONS[node.op_type]
    return f"it is of the domain {short(node.domain)}" if re.search(r"Conv(?![a-z])|ConvTranspose", node.op_type) else None


def convolutions(graph):
    """(listed, skipped): (name, line) and (what, why, name), in the order of the file."""
    found = {}
    for node in reversed(graph.nodes):  # among two convolutions whose sum is taken the later one can add the other's
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
    proto, graph = opened(model, batch, shapes)
    listed, skipped = convolutions(graph)
    if any("cannot be inferred" in why for _, why, _ in skipped):
        ask_for_shapes(proto)
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
