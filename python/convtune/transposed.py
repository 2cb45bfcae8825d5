"""conv_transpose1d to conv_transpose3d on anybody's arrays: up-sampling layers, which are backward data with bias, residual
and activation (docs/decisions/0116-transposed-convolutions.md)."""

from __future__ import annotations

import sys
from typing import Any, TypeVar

from . import arrays
from .errors import InvalidArgument
from .functional import planned
from .geometry import Padding, Steps
from .problem import transposed_problem_of
from .running import packed, read_weights, with_axes

__all__ = ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]

Arr = TypeVar("Arr")


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
