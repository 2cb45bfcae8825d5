"""conv_transpose1d to conv_transpose3d on anybody's arrays: up-sampling layers, which are backward data with bias, residual
and activation (docs/decisions/0116-transposed-convolutions.md)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from . import arrays
from .errors import InvalidArgument, Unsupported
from .functional import planned
from .geometry import Padding, Steps, padding_of, steps_of
from .problem import SHAPES, Problem
from .running import packed, read_weights, with_axes
from .words import NAMES

__all__ = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "transposed_problem_of"]

Arr = TypeVar("Arr")


def transposed_problem_of(
    x_shape: Sequence[int], w_shape: Sequence[int], has_bias: bool, stride: Steps = 1, padding: Padding = 0,
    output_padding: Steps = 0, groups: int = 1, dilation: Steps = 1, precision: str | None = None,
    activation: str | None = None, dtype: str = "float32", residual: bool = False, axes: int = 2,
) -> Problem:  # fmt: skip
    """The problem of conv_transpose's arguments: backward data of the convolution that makes x of y. Raises InvalidArgument
    with the numbers, and Unsupported where the output padding is beyond what such a convolution has."""
    shape_of_x, shape_of_w = SHAPES[axes][0], SHAPES[axes][1].replace("K, C/", "C, K/")
    if len(x_shape) != axes + 2:
        raise InvalidArgument(f"x has the shape {tuple(x_shape)}; it must be {shape_of_x}")
    if len(w_shape) != axes + 2:
        raise InvalidArgument(f"w has the shape {tuple(w_shape)}; it must be {shape_of_w}")
    n, c, *image = (int(extent) for extent in x_shape)
    c_of_w, k_of_group, *taps = (int(extent) for extent in w_shape)
    if c_of_w != c:
        raise InvalidArgument(f"x has {c} channels, but w has {c_of_w}: x {tuple(x_shape)}, w {tuple(w_shape)}")
    steps, holes = steps_of(stride, "stride", axes), steps_of(dilation, "dilation", axes)
    more = steps_of(output_padding, "output_padding", axes)
    edges = padding_of(padding, taps, steps, holes)
    if min(*steps, *holes) < 1:
        raise InvalidArgument(f"stride is {steps}, dilation {holes}; they must be at least 1")
    before, behind = edges[:axes], list(edges[axes:])
    output = []
    for at in range(axes):
        if not 0 <= more[at] < max(steps[at], holes[at]):
            raise InvalidArgument(f"output_padding is {more}; it must be less than stride {steps} or dilation {holes}")
        whole = (image[at] - 1) * steps[at] + holes[at] * (taps[at] - 1) + 1 + more[at]
        output.append(whole - before[at] - behind[at])
        if more[at] >= steps[at]:  # another convolution has as many windows, with less padding
            behind[at] -= more[at]
    if min(output) < 1:
        raise InvalidArgument(f"y would be {' x '.join(map(str, output))}: there is more padding than output")
    if min(behind) < 0:
        raise Unsupported(f"output_padding is {more}, beyond stride {steps} and padding {edges}")
    size, filter_size = output, taps
    if axes == 1:  # an image of one row
        size, filter_size, steps, holes = [1, *output], [1, *taps], (1, *steps), (1, *holes)
        before, behind = (0, *before), [0, *behind]
    depth = {"d": size[0], "t": filter_size[0]} if axes == 3 else {}
    return Problem(
        n, k_of_group * groups, *size[-2:], c, *filter_size[-2:], groups, steps, (*before, *behind), holes, has_bias,
        NAMES[dtype], precision=precision or "auto", activation=activation or "none", residual=residual,
        direction="bwd_d", **depth,
    )  # fmt: skip


def _of_arrays(axes: int, x: Any, w: Any, bias: Any, *words: Any) -> Any:
    """A transposed convolution of any library's arrays."""
    image = arrays.read(x, "x")
    dtype = image.dtype
    weights = arrays.read(w, "w", dtype, image)
    *how, residual = words
    asked = image.shape, weights.shape, bias is not None, *how, dtype, residual is not None, axes
    convolution = planned(("transposed", *asked, image.device), lambda: transposed_problem_of(*asked), image.device)
    problem = convolution.problem
    shape = with_axes(problem, problem.input_shape, axes)
    weights, biases = read_weights(problem, w, bias, image)
    added = None
    if residual is not None:
        added = arrays.read(residual, "residual", dtype, image)
        if added.shape != shape:
            raise InvalidArgument(f"residual has the shape {added.shape}; it must be {shape}")
    stream = image.library.stream(image.device)
    memory, pointer = packed(convolution, weights, biases, stream)
    y = image.library.empty(shape, dtype, image.device)
    convolution.run_tensors_raw(
        dy=image.pointer, residual=added.pointer if added else 0, dx=y.pointer, packed=pointer, stream=stream
    )
    del memory  # it has served: see arrays.py on the order in which memory goes back
    return image.library.finish(y)


def _of(axes: int, x: Any, *rest: Any) -> Any:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        from .torch.functional import transposed_of_tensors

        return transposed_of_tensors(axes, x, *rest)
    return _of_arrays(axes, x, *rest)


def conv_transpose1d(
    x: Arr,
    w: Any,
    bias: Any = None,
    stride: Steps = 1,
    padding: Padding = 0,
    output_padding: Steps = 0,
    groups: int = 1,
    dilation: Steps = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Any = None,
) -> Arr:
    """`conv_transpose2d` of rows: x (N, C, L), w (C, K/groups, S), y (N, K, Q)."""
    words = stride, padding, output_padding, groups, dilation, precision, activation, residual
    return _of(1, x, w, bias, *words)  # type: ignore[no-any-return]


def conv_transpose2d(
    x: Arr,
    w: Any,
    bias: Any = None,
    stride: Steps = 1,
    padding: Padding = 0,
    output_padding: Steps = 0,
    groups: int = 1,
    dilation: Steps = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Any = None,
) -> Arr:
    """y = activation(conv_transpose2d(x, w) + bias + residual): an up-sampling layer, whose arguments are PyTorch's.

    `x`: (N, C, H, W) and `w`: (C, K/groups, R, S); `bias`: (K,) or None; `residual`: y's shape, or None. y: (N, K, P, Q) with
    P = (H - 1) * stride - 2 * padding + dilation * (R - 1) + output_padding + 1. `padding` takes what is cut off the ends, as
    `conv2d` has it: (top, left, bottom, right), too. Libraries, types, errors and everything else are as conv2d has them.
    """
    words = stride, padding, output_padding, groups, dilation, precision, activation, residual
    return _of(2, x, w, bias, *words)  # type: ignore[no-any-return]


def conv_transpose3d(
    x: Arr,
    w: Any,
    bias: Any = None,
    stride: Steps = 1,
    padding: Padding = 0,
    output_padding: Steps = 0,
    groups: int = 1,
    dilation: Steps = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Any = None,
) -> Arr:
    """`conv_transpose2d` with a depth: x (N, C, D, H, W), w (C, K/groups, T, R, S), y (N, K, Z, P, Q)."""
    words = stride, padding, output_padding, groups, dilation, precision, activation, residual
    return _of(3, x, w, bias, *words)  # type: ignore[no-any-return]
