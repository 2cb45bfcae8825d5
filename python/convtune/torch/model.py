"""model_problems: the convolutions that a PyTorch model runs, as problems. In the package's face as
convtune.model_problems."""

from __future__ import annotations

from typing import Any

import torch

from ..errors import InvalidArgument
from ..model import ModelConvolution, ModelProblems, SkippedLayers
from ..problem import Problem
from .modules.epilogue import Epilogues
from .modules.trace import Operation, Value, recorded
from .optimize import as_arguments, _untouched
from .run import allowed_precision

__all__ = ["model_problems"]

_TYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16"}
_CONVOLUTIONS = ("aten::convolution", "aten::_convolution")


class _Skipped(Exception):
    """Why a convolution is not listed."""


def _channels_last(x: Value) -> bool:
    """True where the tensor lies channels last and cannot be taken to lie channels first."""
    axes = len(x.shape)
    order = [0, *range(2, axes), 1]
    dense, stride = [0] * axes, 1
    for axis in reversed(order):
        dense[axis], stride = stride, stride * x.shape[axis]
    return x.shape[1] > 1 and max(x.shape[2:]) > 1 and all(
        size == 1 or have == want for size, have, want in zip(x.shape, x.strides, dense)
    )  # fmt: skip


def _padded(x: Value, axes: int) -> tuple[Value, tuple[int, ...], tuple[int, ...]]:
    """The image before zeros were put around it, and how many: before it and behind it along each axis."""
    before, behind = [0] * axes, [0] * axes
    while (maker := x.maker) is not None and maker.name == "aten::constant_pad_nd":
        pads = list(maker.args[1])
        if float(maker.argument("value", 0)) != 0 or min(pads) < 0 or len(pads) > 2 * axes:
            break
        for axis, (first, last) in enumerate(zip(pads[::2], pads[1::2]), 1):  # the last axis comes first
            before[-axis] += first
            behind[-axis] += last
        x = maker.args[0]
    return x, tuple(before), tuple(behind)


def _problem(operation: Operation, epilogues: Epilogues) -> Problem:
    x, weight = operation.argument("input"), operation.argument("weight")
    axes = len(weight.shape) - 2
    stride, padding, dilation = (
        tuple(operation.argument(name) * (1 if len(operation.argument(name)) == axes else axes))
        for name in ("stride", "padding", "dilation")
    )
    groups, transposed = int(operation.argument("groups")), bool(operation.argument("transposed"))
    if x.dtype not in _TYPES:
        raise _Skipped(f"its numbers are {str(x.dtype).removeprefix('torch.')}")
    if axes not in (1, 2, 3) or len(x.shape) != axes + 2:
        raise _Skipped(f"its input has the shape {x.shape}, its weights {weight.shape}")
    if min(padding) < 0:
        raise _Skipped("a padding is negative")
    bias, residual, activation = epilogues.of(operation)
    more: dict[str, Any] = {"bias": bias, "residual": residual, "activation": activation}
    if transposed:  # the gradient of the image of a convolution that makes its input of its output
        y = operation.outputs[0]
        image, channels, filters = y.shape[2:], weight.shape[1] * groups, x.shape[1]
        sizes = zip(image, weight.shape[2:], stride, padding, dilation)
        ends = [(size + 2 * pad - (taps - 1) * hole - 1) // step + 1 for size, taps, step, pad, hole in sizes]
        if tuple(ends) != x.shape[2:]:
            raise _Skipped(f"no convolution's gradient has its output of {'x'.join(map(str, image))}")
        before, behind = padding, padding
        more["direction"] = "bwd_d"
    else:
        filters = weight.shape[0]
        x, before, behind = _padded(x, axes)
        before, behind = (tuple(map(sum, zip(padding, one))) for one in (before, behind))
        image, channels = x.shape[2:], x.shape[1]
    taps = weight.shape[2:]
    if axes == 1:
        image, taps, stride, dilation = (1, *image), (1, *taps), (1, *stride), (1, *dilation)
        before, behind = (0, *before), (0, *behind)
    if axes == 3:
        more.update(d=image[0], t=taps[0])
    if x.dtype is torch.float32 and x.device.type == "cuda":
        more["precision"] = allowed_precision(x.device.index)
    return Problem(
        x.shape[0], channels, *image[-2:], filters, *taps[-2:], groups, stride, (*before, *behind), dilation,
        dtype=_TYPES[x.dtype], layout="nhwc" if _channels_last(x) else "nchw", **more,
    )  # fmt: skip


def _reason(operation: Operation) -> str:
    """Why what is called a convolution is none of ours; "" where it is one or something else."""
    name = operation.name
    if name in _CONVOLUTIONS or "conv" not in name.partition("::")[2] or "convert" in name:
        return ""
    return "convtune computes it already" if name.startswith("convtune::") else f"it is the operator {name}"


def _add(to: dict[Any, Any], key: Any, new: Any, layer: str) -> None:
    """Equal ones are one, with the names of their layers, each once."""
    one = to.setdefault(key, new)
    one.count += 1
    if layer not in one.layers:
        one.layers.append(layer)


def model_problems(model: torch.nn.Module, example: Any) -> ModelProblems:
    """The convolutions that the model runs on the example, each with what of bias, residual and activation follows it
    and how often it runs: what `convtune --model` finds in an ONNX file, found by one run, modules or none.

    `example`: a tensor, a tuple of arguments or a dict of keyword arguments; its shapes, types and memory formats are
    those of the problems, and a model and an example on the device "meta" compute nothing. The model runs as it
    stands, without gradients: call `eval()` first for batch norms that fold into the weights. Where it is in training
    mode its buffers and random numbers are put back. Convolutions that are no problem here are in `skipped`, with the
    reason. Raises InvalidArgument, and whatever the model raises.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"model_problems takes a torch.nn.Module, not a {type(model).__name__}")
    model = getattr(model, "_orig_mod", model)  # the module that torch.compile compiled
    args, kwargs = as_arguments(example)
    with _untouched(model):
        operations = recorded(model, lambda: model(*args, **kwargs), (args, kwargs))
    epilogues, problems = Epilogues(), dict[int, Any]()
    for operation in reversed(operations):
        if operation.name in _CONVOLUTIONS:
            try:
                problems[id(operation)] = _problem(operation, epilogues)
            except (_Skipped, InvalidArgument) as why:
                problems[id(operation)] = str(why).splitlines()[0]
    found: dict[Problem, ModelConvolution] = {}
    skipped: dict[Any, SkippedLayers] = {}
    for operation in operations:
        layer = operation.module or type(model).__name__
        problem = problems.get(id(operation), _reason(operation))
        if isinstance(problem, Problem):
            _add(found, problem, ModelConvolution(problem.replace(name=layer), 0, []), layer)
        elif problem:
            _add(skipped, problem, SkippedLayers("convolution", problem, 0, []), layer)
    return ModelProblems(type(model).__name__, list(found.values()), list(skipped.values()))
