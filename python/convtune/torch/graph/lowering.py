"""How inductor compiles `convtune::conv2d_packed`: its code calls the kernel itself, on memory that inductor has planned,
and not PyTorch's dispatcher, which costs more than all the rest of a call.

    from convtune.torch.graph.lowering import bound
    convtune_0123456789ab = bound("a plan", -1)
    ...
    convtune_0123456789ab(x, packed, residual, out=y)

Sizes, types and devices are not looked at: a graph that has a plan is of fixed ones, and inductor's code checks its inputs.
docs/decisions/0062-what-a-compiled-graph-calls.md has the reasons.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from ...pair import Pair
from ..native import bound as bound_in_c
from ..native import is_native
from ..packed import conv2d_packed, fields_of, layout_of, output_shape, planned
from ..pairs import pair1d_packed, pair_of, planned_pair, stored
from ..run import Planned
from .operators.snakes import bound_snake, snake1d
from .operators import rows

__all__ = ["bound", "bound_pair", "bound_snake", "install"]

_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_kept: list[Planned | Pair] = []  # plans that inductor's code calls, which is never unloaded; CUDA graphs may have recorded it


def bound(plan: str, index: int) -> Callable[..., None]:
    """The function that the code calls for that plan on the GPU `index`, or on the CPU (-1): tensors lie as its kernel
    reads and writes."""
    of = planned(plan, index)
    _kept.append(of)
    assert of.convolution is not None
    run, run_tensors = of.convolution.run_raw, of.convolution.run_tensors_raw

    def call(x: Tensor, packed: Tensor, residual: Tensor | None = None, out: Any = None) -> None:
        stream = 0 if index < 0 else _raw_stream(index)
        address, added = x.data_ptr(), 0 if residual is None else residual.data_ptr()
        if (address | added) & 3:  # an odd place in half precision, which no kernel reads
            out.copy_(conv2d_packed(x, packed, residual, plan))
        elif of.transposed:
            run_tensors(dy=address, residual=added, dx=out.data_ptr(), packed=packed.data_ptr(), stream=stream)
        elif residual is None:
            run(address, packed.data_ptr(), out.data_ptr(), stream)
        else:
            run_tensors(x=address, residual=added, y=out.data_ptr(), packed=packed.data_ptr(), stream=stream)

    return bound_in_c(of.convolution, index, call)


def bound_pair(plan: str, index: int) -> Callable[..., None]:
    """`bound` of a pair's line."""
    of = planned_pair(plan, index)
    _kept.append(of)

    def call(x: Tensor, packed: Tensor, out: Any = None) -> None:
        stream = 0 if index < 0 else _raw_stream(index)
        address, of_y = x.data_ptr(), out.data_ptr()
        if (address | of_y) & 15:  # a view, which no kernel reads
            out.copy_(pair1d_packed(x, packed, plan))
        else:
            of.run_raw(address, packed.data_ptr(), of_y, stream)

    return call


def _dense(size: Any, layout: str) -> list[Any]:
    """Strides."""
    order = [0, *range(2, len(size)), 1] if layout == "nhwc" else range(len(size))
    strides, stride = [1] * len(size), 1
    for axis in reversed(order):
        strides[axis], stride = stride, stride * size[axis]
    return strides


@cache
def install() -> None:
    """Inductor compiles the operator so from now on, where it is C++'s (docs/decisions/0047-the-operator-in-cpp.md)."""
    rows.install()
    if not is_native:
        return
    from torch._inductor import ir, lowering
    from torch._inductor.virtualized import V

    class Call(ir.ExternKernelOut):
        """A call of what `bound` gives, or, as `maker` says, another function here."""

        def __init__(self, plan: str, index: int, layout: Any, inputs: list[Any], maker: str = "bound") -> None:
            name = hashlib.sha256(f"{index} {plan}".encode()).hexdigest()[:12]
            self.maker, self.line = maker, f"convtune_{name} = {maker}({plan!r}, {index})"
            super().__init__(layout, inputs, python_kernel_name=f"convtune_{name}")

        def codegen(self, wrapper: Any) -> None:
            whole = wrapper
            while getattr(whole, "parent_wrapper", None) is not None:  # per part of the graph
                whole = whole.parent_wrapper
            whole.add_import_once(f"from {__name__} import {self.maker}")
            whole.add_import_once(self.line)
            super().codegen(wrapper)

    as_operator = lowering.fallback_handler(conv2d_packed, add_to_fallback_set=False)

    @lowering.register_lowering(conv2d_packed, type_promotion_kind=None)  # type: ignore[untyped-decorator, unused-ignore]
    def lowered(x: Any, packed: Any, residual: Any, plan: str) -> Any:
        problem, own = fields_of(plan)[1], layout_of(plan)
        images = [one for one in (x, residual) if one is not None]
        images = [ir.ExternKernel.require_exact_strides(one, _dense(one.get_size(), own)) for one in images]
        if V.graph.cpp_wrapper or own != problem.layout:  # it has no Python; it makes a copy of y
            return as_operator(images[0], packed, None if residual is None else images[1], plan)
        device, size = x.get_device(), list(output_shape(problem, len(x.get_size()) - 2))
        y = ir.FixedLayout(device, x.get_dtype(), size, _dense(size, own))
        inputs = [ir.ExternKernel.realize_input(one) for one in (images[0], packed, *images[1:])]
        return ir.TensorBox.create(Call(plan, device.index if device.type == "cuda" else -1, y, inputs))

    snake_as_operator = lowering.fallback_handler(snake1d, add_to_fallback_set=False)

    @lowering.register_lowering(snake1d, type_promotion_kind=None)  # type: ignore[untyped-decorator, unused-ignore]
    def lowered_snake(x: Any, alpha: Any, divisor: Any, how: str) -> Any:
        size, device = list(x.get_size()), x.get_device()
        if V.graph.cpp_wrapper:
            return snake_as_operator(x, alpha, divisor, how)
        x = ir.ExternKernel.require_exact_strides(x, _dense(size, "nhwc"))
        numbers = [ir.ExternKernel.require_contiguous(one) for one in (alpha, divisor)]
        y = ir.FixedLayout(device, x.get_dtype(), size, _dense(size, "nhwc"))
        inputs = [ir.ExternKernel.realize_input(one) for one in (x, *numbers)]
        return ir.TensorBox.create(Call(how, device.index if device.type == "cuda" else -1, y, inputs, "bound_snake"))

    pair_as_operator = lowering.fallback_handler(pair1d_packed, add_to_fallback_set=False)

    @lowering.register_lowering(pair1d_packed, type_promotion_kind=None)  # type: ignore[untyped-decorator, unused-ignore]
    def lowered_pair(x: Any, packed: Any, plan: str) -> Any:
        problem, device = pair_of(plan)[1], x.get_device()
        size = list(stored(problem))
        x = ir.ExternKernel.require_exact_strides(x, _dense(x.get_size(), "nhwc"))
        if V.graph.cpp_wrapper:
            return pair_as_operator(x, packed, plan)
        y = ir.FixedLayout(device, x.get_dtype(), size, _dense(size, "nhwc"))
        inputs = [ir.ExternKernel.realize_input(one) for one in (x, packed)]
        return ir.TensorBox.create(Call(plan, device.index if device.type == "cuda" else -1, y, inputs, "bound_pair"))
