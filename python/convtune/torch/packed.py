"""`convtune::conv2d_packed`: activation(conv2d(x, weight) + bias + residual) by one proven kernel, which reads weights
that were packed before: what graphs of fixed sizes hold. A CUDA graph that packs them packs them in each replay.

    y = torch.ops.convtune.conv2d_packed(x, packed, residual, plan)
    y = torch.ops.convtune.conv3d_packed(x, packed, residual, cache, plan)

`plan` is a line of run.choice_line, `packed` the memory that Packing made for it; the second reads a cache's frames before
x's. There are no gradients. A library in C++ (src/torch) has the kernel of the first; the one here is for the second, and
for PyTorch before 2.10, where that does not load.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..caches import PLANS
from ..convolution import Convolution
from ..errors import InvalidArgument
from ..problem import Problem
from .layout import empty
from .native import LIBRARY, conv2d_packed, define, is_native
from .run import Planned, as_recorded, fingerprint, launched, refuse_in_capture

__all__ = ["conv2d_packed", "conv3d_packed", "fields_of", "layout_of", "output_shape", "planned"]


def output_shape(problem: Problem, axes: int) -> tuple[int, ...]:
    """The shape of y, of tensors with `axes` axes in space, channels first."""
    if problem.direction == "bwd_d":
        return problem.stored_images, problem.c, *(problem.d, problem.h, problem.w)[-axes:]
    return problem.stored_images, problem.k, *(1, *problem.output_size)[-axes:]


@lru_cache(4096)
def fields_of(plan: str) -> tuple[str, Problem, str, str, str]:
    """(fingerprint of the device, problem, layout that it runs in, algorithm, config)."""
    fields = plan.split("\t")
    if len(fields) != 5:
        raise InvalidArgument(f"{plan!r} is no plan: fingerprint, problem, layout, algorithm and config, by tabs")
    return fields[0], Problem.parse(fields[1]), fields[2], fields[3], fields[4]


def layout_of(plan: str) -> str:
    """The layout in which the plan's kernel reads and writes."""
    return fields_of(plan)[2]


def planned(plan: str, index: int, axes: int = 2) -> Planned:
    """The convolution of that line on the GPU `index`, or on the CPU (-1), of tensors with `axes` axes. Raises
    InvalidArgument where it is of another kind of device."""

    def make() -> Planned:
        own, problem, layout, algorithm, config = fields_of(plan)
        device = "cpu" if index < 0 else f"cuda:{index}"
        if fingerprint(device) != own:
            raise InvalidArgument(f"{device} is {fingerprint(device)!r}; the graph was compiled for {own!r}")
        refuse_in_capture(problem, device)
        return Planned(Convolution(problem.replace(layout=layout), device, algorithm, config), problem, axes=axes)

    found: Any = PLANS.peek((plan, index, axes))
    return found or PLANS.get_or_make((plan, index, axes), make)  # type: ignore[no-any-return]


def _kernel(x: Tensor, packed: Tensor, residual: Tensor | None, plan: str) -> Tensor:
    return _run(x, packed, residual, None, plan)


def _kernel3d(x: Tensor, packed: Tensor, residual: Tensor | None, cache: Tensor | None, plan: str) -> Tensor:
    return _run(x, packed, residual, cache, plan)


def _run(x: Tensor, packed: Tensor, residual: Tensor | None, cache: Tensor | None, plan: str) -> Tensor:
    of = planned(plan, x.get_device() if x.is_cuda else -1, x.dim() - 2)
    convolution: Any = of.convolution
    if x.shape != of.input_shape or x.dtype is not of.dtype or packed.numel() < convolution.packed_bytes:
        raise InvalidArgument(
            f"x is {x.dtype} of the shape {tuple(x.shape)} and there are {packed.numel()} bytes of packed weights; "
            f"{plan!r} takes {of.dtype}, {of.input_shape} and {convolution.packed_bytes}"
        )
    if residual is not None and (residual.shape != of.output_shape or residual.dtype is not x.dtype):
        raise InvalidArgument(
            f"residual is {residual.dtype} of the shape {tuple(residual.shape)}; it must be {x.dtype}, {of.output_shape}"
        )
    frames = (*of.input_shape[:2], convolution.problem.cache, *of.input_shape[3:])
    if (cache is None) != (frames[2] == 0) or (cache is not None and (cache.shape != frames or cache.dtype is not x.dtype)):
        raise InvalidArgument(f"{plan!r} takes a cache of the shape {frames}, where that has frames, and x's type")
    for other in (packed, residual, cache):
        if other is not None and other.device != x.device:
            raise InvalidArgument(f"x is on {x.device}, and its packed weights, residual or cache on {other.device}")
    stream = as_recorded(convolution, x)
    return launched(of, x, packed.data_ptr(), residual, of.wanted_last, stream, cache=cache)


def _fake(x: Tensor, packed: Tensor, residual: Tensor | None, plan: str) -> Tensor:
    problem = fields_of(plan)[1]
    return empty(output_shape(problem, x.dim() - 2), x, problem.layout == "nhwc")


def _fake3d(x: Tensor, packed: Tensor, residual: Tensor | None, cache: Tensor | None, plan: str) -> Tensor:
    return _fake(x, packed, residual, plan)


conv3d_packed: Any = define(
    "conv3d_packed(Tensor x, Tensor packed, Tensor? residual, Tensor? cache, str plan) -> Tensor", _kernel3d, _fake3d
)

if not is_native:
    for _key in ("CPU", "CUDA"):
        LIBRARY.impl("conv2d_packed", _kernel, _key)
torch.library.register_fake("convtune::conv2d_packed", _fake, lib=LIBRARY)
