"""Planned convolutions on anybody's arrays: weights packed once, then forward or a gradient, as often as asked. Every
tensor's type, shape and place is checked against the problem before anything is touched."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TypeVar

from . import arrays
from .arrays import Array
from .convolution import Convolution
from .errors import InvalidArgument
from .memory import HostMemory
from .problem import Problem
from .words import TYPES

__all__ = ["PackedWeights", "backward_data", "backward_weights", "pack", "packed", "read_weights", "run", "with_axes"]

# Arrays of any library: what comes back is of the same one.
Arr = TypeVar("Arr")

_DOES = {"fwd": "computes y: convtune.run", "bwd_d": "computes dx: convtune.backward_data",
         "bwd_w": "computes dw: convtune.backward_weights"}  # fmt: skip


@dataclass(frozen=True)
class PackedWeights:
    """Weights and bias in the order that one convolution's kernel reads; made by `pack`, and never changed. The
    arrays that they were made of may be changed or freed."""

    convolution: Convolution
    pointer: int
    memory: Any

    def __repr__(self) -> str:
        return f"<convtune.PackedWeights of {self.convolution.problem}: {self.convolution.packed_bytes} bytes>"


def with_axes(problem: Problem, shape: tuple[int, ...], axes: int, before: int | None = None) -> tuple[int, ...]:
    """A tensor's shape as code of `axes` axes has it: where the problem has no depth, 3-D code has one plane, `before`
    that axis; where all tensors are one row high, 1-D code has no height."""
    at = (2 if problem.layout == "nchw" else 1) if before is None else before
    if axes == 3 and not problem.has_depth:
        return (*shape[:at], 1, *shape[at:])
    if axes == 1 and not problem.has_depth and (problem.h, problem.r, *problem.padding[::2]) == (1, 1, 0, 0):
        return (*shape[:at], *shape[at + 1 :])
    return shape


def packed(convolution: Convolution, weights: Array, bias: Array | None, stream: int) -> Any:
    """(memory, pointer)."""
    if convolution.device == "cpu":
        memory: Any = HostMemory(convolution.packed_bytes)
    else:
        memory = weights.library.empty((max(convolution.packed_bytes, 1),), "uint8", convolution.device)
    convolution.pack_raw(weights.pointer, bias.pointer if bias else 0, memory.pointer, stream)
    return memory, memory.pointer


def read_weights(problem: Problem, w: Any, bias: Any, like: Array | None) -> Any:
    """(weights, bias or None), checked against the problem."""
    _, type_of_w, _, type_of_bias = problem.dtypes
    weights = arrays.read(w, "w", TYPES[type_of_w], like)
    if weights.shape != with_axes(problem, problem.weight_shape, len(weights.shape) - 2, 2):
        raise InvalidArgument(f"w has the shape {weights.shape}; {problem} takes {problem.weight_shape}")
    if (bias is not None) != problem.bias:
        raise InvalidArgument(f"{problem} has {'a' if problem.bias else 'no'} bias, and bias is {_kind(bias)}")
    if bias is None:
        return weights, None
    biases = arrays.read(bias, "bias", TYPES[type_of_bias], like or weights)
    channels, result = (problem.c, "dx") if problem.direction == "bwd_d" else (problem.k, "y")
    if problem.snake != "none" and biases.shape != (3, channels):
        raise InvalidArgument(
            f"bias has the shape {biases.shape}; it must be (3, {channels}): biases, alphas and scales of {result}"
        )
    if problem.snake == "none" and biases.shape != (channels,):
        raise InvalidArgument(f"bias has the shape {biases.shape}; it must be ({channels},), one a channel of {result}")
    return weights, biases


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def pack(convolution: Convolution, w: Any, bias: Any = None) -> PackedWeights:
    """Reorders w [K][C/groups][T][R][S] and bias [K] ([C] for bwd_d) for the convolution's kernel; again when they change.
    With a Snake, bias is [3][K] or [3][C]: biases, alphas and scales. On a GPU the work is queued on the library's current
    stream. Raises InvalidArgument with the numbers."""
    if convolution.problem.direction == "bwd_w":
        raise InvalidArgument(f"{convolution.problem} reads no weights: there is nothing to pack")
    weights, biases = read_weights(convolution.problem, w, bias, None)
    if weights.device != convolution.device:
        raise InvalidArgument(f"w is on {weights.device} ({weights}), the convolution on {convolution.device}")
    memory, pointer = packed(convolution, weights, biases, weights.library.stream(weights.device))
    return PackedWeights(convolution, pointer, memory)


def _check(convolution: Convolution, direction: str, weights: PackedWeights | None) -> None:
    problem = convolution.problem
    if problem.direction != direction:
        raise InvalidArgument(f"{problem} {_DOES[problem.direction]}")
    if direction == "bwd_w":
        return
    if not isinstance(weights, PackedWeights):
        raise InvalidArgument(f"weights are {_kind(weights)}; convtune.pack(convolution, w, bias) makes them")
    if weights.convolution is not convolution and weights.convolution.packing != convolution.packing:
        raise InvalidArgument(f"the weights were packed for {weights.convolution}, not for {convolution}")


def _check_gradients(array: Any, name: str, library: arrays.Library) -> None:
    if library.name == "torch" and getattr(array, "requires_grad", False) and sys.modules["torch"].is_grad_enabled():
        raise InvalidArgument(f"{name} requires gradients, which this has none of: convtune.conv2d, or {name}.detach()")


def _read(convolution: Convolution, array: Any, name: str, dtype: str, shape: tuple[int, ...]) -> Array:
    found = arrays.read(array, name, TYPES[dtype])
    if found.device != convolution.device:
        raise InvalidArgument(f"{name} is on {found.device} ({found}), the convolution on {convolution.device}")
    _check_gradients(array, name, found.library)
    if found.shape != with_axes(convolution.problem, shape, len(found.shape) - 2):
        raise InvalidArgument(f"{name} has the shape {found.shape}; {convolution.problem} takes {shape}")
    return found


def _write(out: Any, name: str, dtype: str, shape: tuple[int, ...], *apart: tuple[Array, str]) -> Array:
    """`out`, or a new array where it is None, of the library and on the device of the first of the inputs, from all of
    which it must be apart."""
    like = apart[0][0]
    if out is None:
        return like.library.empty(shape, TYPES[dtype], like.device)
    found = arrays.write(out, name, TYPES[dtype], like)
    _check_gradients(out, name, found.library)
    if found.shape != shape:
        raise InvalidArgument(f"{name} has the shape {found.shape}; it must be {shape}")
    for array, of in apart:
        if arrays.overlap(found, array):
            raise InvalidArgument(f"{name} shares memory with {of}; it must be apart")
    return found


def _finish(out: Any, array: Array) -> Any:
    if out is None:
        return array.library.finish(array)
    if array.library.name == "torch":
        sys.modules["torch"].autograd.graph.increment_version(out)  # PyTorch did not see the change
    return out


def run(
    convolution: Convolution,
    x: Arr,
    weights: PackedWeights,
    out: Arr | None = None,
    residual: Arr | None = None,
    cache: Arr | None = None,
    cache_out: Arr | None = None,
) -> Arr:
    """y = act(conv(x, w) + bias + residual), in a new array of x's library, or in `out`, which must be contiguous and
    apart from x; it may be the residual itself. It has no gradients: those are conv2d's. On a GPU the work is queued on
    the library's current stream: the one that packed the weights, or one that the caller has made wait for it. Where the
    problem has no depth, tensors may have one of a single plane, as 3-D code does, and where it has one row none of that,
    as 1-D code: y has the axes of x; with snake="beside" it has twice the images. `cache` and `cache_out` are conv3d's, of a
    problem with so many frames of it. Raises InvalidArgument with the numbers."""
    problem = convolution.problem
    _check(convolution, "fwd", weights)
    type_of_x, _, type_of_y, _ = problem.dtypes
    image = _read(convolution, x, "x", type_of_x, problem.input_shape)
    shape = (problem.stored_images, *with_axes(problem, convolution.output_shape, len(image.shape) - 2)[1:])
    if (cache is not None) != (problem.cache > 0):
        raise InvalidArgument(f"{problem} has {problem.cache} frames of a cache, and cache is {_kind(cache)}")
    more, apart = {}, [(image, "x")]
    if cache is not None:
        before = _read(convolution, cache, "cache", type_of_x, problem.cache_shape)
        more["cache"] = before.pointer
        apart.append((before, "cache"))
    if cache_out is not None:
        kept = arrays.write(cache_out, "cache_out", TYPES[type_of_x], image)
        if kept.shape != problem.kept_shape:
            raise InvalidArgument(f"cache_out has the shape {kept.shape}; it must be {problem.kept_shape}")
        more["cache_out"] = kept.pointer
        apart.append((kept, "cache_out"))
    if residual is None and not problem.residual and not more:
        y = _write(out, "out", type_of_y, shape, (image, "x"))
        convolution.run_raw(image.pointer, weights.pointer, y.pointer, image.library.stream(image.device))
        return _finish(out, y)  # type: ignore[no-any-return]
    if (residual is not None) != problem.residual:
        raise InvalidArgument(
            f"{problem} has {'a' if problem.residual else 'no'} residual, and residual is {_kind(residual)}"
        )
    if residual is not None:
        added = _read(convolution, residual, "residual", type_of_y, convolution.output_shape)
        more["residual"] = added.pointer
        if out is not residual:
            apart.append((added, "residual"))
    y = _write(out, "out", type_of_y, shape, *apart)
    stream = image.library.stream(image.device)
    convolution.run_tensors_raw(x=image.pointer, y=y.pointer, packed=weights.pointer, stream=stream, **more)
    if cache_out is not None:
        _finish(cache_out, kept)
    return _finish(out, y)  # type: ignore[no-any-return]


def backward_data(
    convolution: Convolution, dy: Arr, weights: PackedWeights, out: Arr | None = None, residual: Arr | None = None
) -> Arr:
    """dx, the gradient of sum(y * dy) in x, of a convolution whose problem has direction="bwd_d", as `run` gives y; with
    bias, residual (of dx's shape and type) and activation the output of a transposed layer whose input is dy."""
    problem = convolution.problem
    _check(convolution, "bwd_d", weights)
    type_of_x, _, type_of_y, _ = problem.dtypes
    gradient = _read(convolution, dy, "dy", type_of_y, convolution.output_shape)
    shape = (problem.stored_images, *with_axes(problem, problem.input_shape, len(gradient.shape) - 2)[1:])
    if (residual is not None) != problem.residual:
        raise InvalidArgument(
            f"{problem} has {'a' if problem.residual else 'no'} residual, and residual is {_kind(residual)}"
        )
    added = _read(convolution, residual, "residual", type_of_x, problem.input_shape) if problem.residual else None
    apart = [(gradient, "dy")] if added is None or out is residual else [(gradient, "dy"), (added, "residual")]
    dx = _write(out, "out", type_of_x, shape, *apart)
    convolution.run_tensors_raw(
        dy=gradient.pointer,
        residual=added.pointer if added is not None else 0,
        dx=dx.pointer,
        packed=weights.pointer,
        stream=gradient.library.stream(gradient.device),
    )
    return _finish(out, dx)  # type: ignore[no-any-return]


def backward_weights(
    convolution: Convolution, x: Arr, dy: Arr, out: Arr | None = None, out_bias: Arr | None = None
) -> tuple[Arr, Arr | None]:
    """(dw, dbias), the gradients of sum(y * dy) in w and bias, of a convolution whose problem has direction="bwd_w";
    dbias is None where the problem has no bias. Nothing is packed for it."""
    problem = convolution.problem
    _check(convolution, "bwd_w", None)
    type_of_x, type_of_w, type_of_y, type_of_bias = problem.dtypes
    image = _read(convolution, x, "x", type_of_x, problem.input_shape)
    gradient = _read(convolution, dy, "dy", type_of_y, convolution.output_shape)
    inputs = [(image, "x"), (gradient, "dy")]
    shape = with_axes(problem, problem.weight_shape, len(image.shape) - 2, 2)
    dw = _write(out, "out", type_of_w, shape, *inputs)
    if out_bias is not None and not problem.bias:
        raise InvalidArgument(f"{problem} has no bias, and out_bias is {_kind(out_bias)}")
    dbias = None
    if problem.bias:
        dbias = _write(out_bias, "out_bias", type_of_bias, (problem.k,), *inputs, (dw, "out"))
    convolution.run_tensors_raw(
        x=image.pointer,
        dy=gradient.pointer,
        dw=dw.pointer,
        dbias=dbias.pointer if dbias else 0,
        stream=image.library.stream(image.device),
    )
    return _finish(out, dw), _finish(out_bias, dbias) if dbias else None
