"""Paddings of a convolution in an ONNX graph: its own, and the zeros that Pad nodes put around its image. For onnx_reader.py.
"""

from onnx_graph import attribute, integers


class Skipped(Exception):
    """Why a node is not listed."""


def zeros_around(graph, name):
    """The image before zeros were put around it by Pad nodes, and how many: in front and behind of each axis of
    `name`, batch and channels included."""
    rank = len(graph.extents(name) or [])
    front, back = [0] * rank, [0] * rank
    while (node := graph.makers.get(name)) is not None and node.op_type == "Pad" and node.domain in ("", "ai.onnx"):
        pads, axes = pads_of(graph, node, rank)
        if not pads or len(graph.extents(node.input[0]) or []) != rank or None in graph.extents(node.input[0]):
            break
        for at, axis in enumerate(axes):
            front[axis] += pads[at]
            back[axis] += pads[at + len(axes)]
        name = node.input[0]
    return name, front, back


def pads_of(graph, node, rank):
    """Amounts and axes of a Pad that puts zeros around its image; (None, None) of another."""
    inputs = [*node.input, "", "", "", ""][:4]
    if attribute(node, "mode", b"constant") != "constant":
        return None, None
    if inputs[1]:
        value, axes = graph.number(inputs[2]) if inputs[2] else 0, graph.integers(inputs[3]) if inputs[3] else list(range(rank))
        pads = graph.integers(inputs[1])
    else:  # before opset 11
        value, pads, axes = attribute(node, "value", 0.0), attribute(node, "pads", None), list(range(rank))
    if value != 0 or not isinstance(pads, list) or axes is None or len(pads) != 2 * len(axes) or min(pads, default=0) < 0:
        return None, None
    axes = [axis + rank if axis < 0 else axis for axis in axes]
    spatial = all(2 <= axis < rank or axis >= 0 and pads[at] == pads[at + len(axes)] == 0 for at, axis in enumerate(axes))
    return (pads, axes) if spatial and all(axis < rank for axis in axes) else (None, None)


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
        raise Skipped(f"its auto_pad is {repr(auto[:80])}")
    pads = integers(node, "pads", [0] * (2 * axes), 2 * axes)
    return pads[:axes], pads[axes:]


def split(totals, more_behind):
    less, more = [one // 2 for one in totals], [one - one // 2 for one in totals]
    return (less, more) if more_behind else (more, less)


def transposed_paddings(node, image, filters, strides, dilations):
    """Reads a ConvTranspose: its paddings, and its output's extents, which must be those of a gradient."""
    axes = len(image)
    auto = attribute(node, "auto_pad", b"NOTSET")
    extra = integers(node, "output_padding", [0] * axes, axes)
    wanted = integers(node, "output_shape", [], 0, axes, axes + 2)
    full = [step * (size - 1) + more + (taps - 1) * hole + 1
            for size, taps, step, hole, more in zip(image, filters, strides, dilations, extra)]
    if not wanted and auto in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [size * step for size, step in zip(image, strides)]
    if wanted:
        wanted = wanted[-axes:]  # if they are more than there are, nothing is cut off and zeros follow
        front, back = split([max(size - want, 0) for size, want in zip(full, wanted)], auto == "SAME_UPPER")
    else:
        front, back = paddings(node, image, filters, strides, dilations)
        wanted = [size - one - other for size, one, other in zip(full, front, back)]
    for size, out, one, other, taps, step, hole in zip(image, wanted, front, back, filters, strides, dilations):
        if (out + one + other - (taps - 1) * hole - 1) // step + 1 != size:
            raise Skipped(f"no convolution's gradient has its output of {'x'.join(map(str, wanted))}")
    return front, back, wanted
