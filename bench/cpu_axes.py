"""Layers in one and three dimensions, and transposed ones, for cpu_peers.py. convtune reads their lines, so its library has to
be there.
"""

import os
import sys
from dataclasses import dataclass
from math import prod
from pathlib import Path

from problem_lines import BadInput, Problem

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Layer:
    """A layer in its own sizes, from x to y; dilations count from 1. It is asked as problem_lines.Problem is."""
    x_shape: tuple
    w_shape: tuple
    y_shape: tuple
    groups: int
    strides: tuple
    dilations: tuple
    before: tuple
    behind: tuple
    transposed: bool
    act: str
    bias: bool
    residual: bool
    text: str
    name: str
    dtype: str = "f32"
    layout: str = "nchw"
    precision: str = "fp32"

    n = property(lambda self: self.x_shape[0])
    c = property(lambda self: self.x_shape[1])
    k = property(lambda self: self.y_shape[1])
    activation = Problem.activation

    @property
    def flops(self):
        narrow = self.x_shape if self.transposed else self.y_shape
        return 2 * self.n * prod(narrow[2:]) * prod(self.w_shape)

    @property
    def output_padding(self):
        sizes = zip(self.x_shape[2:], self.w_shape[2:], self.y_shape[2:], self.strides, self.dilations, self.before,
                    self.behind, strict=True)
        return tuple(y - ((x - 1) * stride + dilation * (taps - 1) + 1 - before - behind)
                     for x, taps, y, stride, dilation, before, behind in sizes)

    def key(self):
        return self.text if self.layout == "nchw" else f"{self.text} layout={self.layout}"

    line = key


def layer_of(convtune, line):
    """The layer of a line; an image of one row and a filter of one are 1-D."""
    a = convtune.Problem.parse(line)
    if a.direction == "bwd_w" or (a.dtype, a.layout) != ("f32", "nchw"):
        raise BadInput(f"{line}: --layers takes forward and transposed layers in f32, channels first")
    axes = len(a.stride)
    first = 1 if axes == 2 and a.h == a.r == 1 and not a.padding[0] and not a.padding[2] else 0

    def of_axes(shape):
        return (*shape[:2], *shape[2 + first:])

    x, y = of_axes(a.input_shape), of_axes(a.output_shape)
    transposed = a.direction == "bwd_d"
    if transposed:
        x, y = y, x
    return Layer(x, of_axes(a.weight_shape), y, a.groups, a.stride[first:], a.dilation[first:], a.padding[first:axes],
                 a.padding[axes + first:], transposed, a.activation, a.bias, a.residual, a.key, a.name)


def load_layers(path):
    """The layers of a file: a line each, and comments. Raises BadInput that names the file, and the line where one is wrong."""
    sys.path.insert(0, str(ROOT / "python"))
    built = ROOT / "build/release/src/c/libconvtune_c.so"
    if built.exists():
        os.environ.setdefault("CONVTUNE_LIBRARY", str(built))
    import convtune

    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return [layer_of(convtune, line) for line in lines if line and not line.startswith("#")]
    except (OSError, UnicodeDecodeError, convtune.InvalidArgument, BadInput) as error:
        raise BadInput(f"{path}: {error}") from None
