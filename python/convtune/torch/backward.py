"""Gradients of a convolution: of x, of the weight and of the bias, each by a plan of convtune's where one is proven, else by
PyTorch's own convolution backward; `convtune::conv_backward`, the operator; and `convtune::conv_gradients`, with all that it is
told in one text, which graphs hold where a plan is and C++ runs (native.py).

    dx, dw, db = torch.ops.convtune.conv_backward(
        dy, x, weight, None, (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", "", (), (True, True, False))
    dx, dw, db = torch.ops.convtune.conv_gradients(dy, x, weight, text_of(None, how, (True, True, False)))

A plan is proven by a record (`convtune tune`), or by a line of `choices` (convtune.optimize). Neither asks a vendor's
library, which PyTorch has, too. The same tensors give the same bits, every time.
docs/decisions/0135-gradients-chosen-alone.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..caches import PLANS
from ..convolution import Convolution
from ..errors import InvalidArgument, Unsupported
from ..problem import Problem
from ..tensors import allowed_precision, lying, pack
from .batches import ANY_BATCH
from .how import How
from .layout import empty, laid, output_last, wants_channels_last
from .native import conv_gradients, define, define_gradients, is_native, offer_gradients
from .ordinary import is_batched, is_ordinary, is_transformed
from .run import TYPES, Planned, as_recorded, choice, launched, pads_of, problem_for, read_as, refuse_in_capture

__all__ = ["backward_of", "conv_backward", "conv_gradients", "gradient_problem", "gradients", "pytorch_gradients", "text_of", "told"]

_Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
_below_autograd: Any = torch._C._AutoDispatchBelowAutograd


def gradient_problem(of: str, x: Tensor, weight: Tensor, how: How, bias_type: torch.dtype | None = None) -> Problem:
    """The problem of a gradient of that layer, transposed or not: `of` "x", or "w", with the bias's in the same pass where
    `bias_type` is not None. A transposed layer's gradient of x is the convolution whose gradient the layer is."""
    problem = problem_for(x, weight, how.alone, bias_type).replace(rounding="once")
    if of == "w":
        return problem.replace(direction="bwd_w", bias=bias_type is not None and not how.transposed)
    return problem.replace(direction="fwd" if how.transposed else "bwd_d", bias=False)


def _plan(problem: Problem, how: How, index: int) -> Planned:
    device = "cpu" if index < 0 else f"cuda:{index}"
    plan: tuple[Problem, str, str | None] | None = problem, "recorded", None
    is_chosen = how.choices not in ("", ANY_BATCH)
    if is_chosen:
        plan = choice(how.choices, device, problem)
    if plan is None or problem.n == 0:
        return Planned(None, problem, axes=how.axes)
    refuse_in_capture(problem, device)
    try:
        return Planned(Convolution(plan[0], device, *plan[1:]), problem, axes=how.axes)
    except Unsupported:
        return Planned(None, problem, axes=how.axes)
    except InvalidArgument:
        if not is_chosen:  # else proven by another version of convtune, whose configs were others
            raise
        return Planned(None, problem, axes=how.axes)


def _planned(of: str, x: Tensor, weight: Tensor, bias_type: torch.dtype | None, how: How) -> Planned | None:
    """The proven plan of a gradient; None where PyTorch's own is to run. Asks nothing of the tensors' numbers."""
    if x.dtype not in TYPES or weight.dtype is not x.dtype or how.is_symbolic or how.is_pytorchs:
        return None
    if not all(type(size) is int for size in (*x.shape, *weight.shape)):
        return None
    index = x.get_device() if x.is_cuda else -1
    precision = allowed_precision(index) if x.dtype is torch.float32 else ""
    key = of, x.shape, weight.shape, bias_type, how.alone, precision, index, output_last(x, weight), x.dtype
    found: Any = PLANS.peek(key)
    if found is None:
        problem = gradient_problem(of, x, weight, how, bias_type)
        found = PLANS.get_or_make(key, lambda: _plan(problem, how, index))
    return found if found.convolution is not None else None


def _check_size(grad: Tensor, shape: Any) -> None:
    """Raises InvalidArgument: a kernel would read beyond dy."""
    if grad.shape != tuple(shape):
        raise InvalidArgument(f"dy has the shape {tuple(grad.shape)}; it must be {tuple(shape)}")


def _of_x(planned: Planned, grad: Tensor, weight: Tensor, last: bool) -> Tensor:
    convolution: Any = planned.convolution
    _check_size(grad, planned.input_shape)
    stream = as_recorded(convolution, grad)
    kept, packed = None, lying(convolution, weight, grad)
    if not packed:
        kept, packed = pack(convolution, weight, None, grad, stream)
    dx = launched(planned, grad, packed, None, last, stream)
    del kept  # freed in the order of the stream
    return dx


def _of_weight(
    planned: Planned, grad: Tensor, x: Tensor, weight: Tensor, bias_type: torch.dtype | None, transposed: bool
) -> tuple[Tensor, Tensor | None]:
    convolution: Any = planned.convolution
    _check_size(grad, planned.input_shape if transposed else planned.output_shape)
    image, of_output = (read_as(one, x, planned.last) for one in ((grad, x) if transposed else (x, grad)))
    # Channels last at once where the kernel can, else copied so behind it.
    last = _weight_last(weight)
    at_once = last and convolution.can_lay_dw_last
    dw, db = empty(weight.shape, weight, at_once), None
    if convolution.problem.bias:
        db = torch.empty(weight.shape[0], dtype=bias_type, device=weight.device)
    convolution.run_tensors_raw(
        x=image.data_ptr(), dy=of_output.data_ptr(), dw=dw.data_ptr(), dbias=0 if db is None else db.data_ptr(),
        stream=as_recorded(convolution, x), dw_last=at_once,
    )  # fmt: skip
    return laid(dw, last), db


def _weight_last(weight: Tensor) -> bool:
    return weight.dim() > 3 and wants_channels_last(weight)


def pytorch_gradients(
    grad: Tensor, x: Tensor, weight: Tensor, bias_type: torch.dtype | None, how: How, mask: Sequence[bool]
) -> _Gradients:
    """PyTorch's own, which has no uneven padding. `mask`: which of x's, the weight's and the bias's are wanted. On a CPU
    PyTorch computes the weight's with the bias's, wanted or not, so that one alone is a sum here."""
    stride, padding, dilation, groups = how.geometry
    axes = how.axes
    if mask[2] and not mask[1]:
        dx = pytorch_gradients(grad, x, weight, None, how, (True, False, False))[0] if mask[0] else None
        return dx, None, grad.sum([0, *range(2, axes + 2)], dtype=bias_type)
    before, even, none = padding[:axes], padding[:axes] == padding[axes:], (0,) * axes
    if how.transposed and not even:  # outputs that were cut off have no gradient
        grad, even, before = torch.nn.functional.pad(grad, pads_of(padding)), True, none
    padded = x if even else torch.nn.functional.pad(x, pads_of(padding))
    sizes = [how.channels(weight)] if mask[2] else None
    dx, dw, db = torch.ops.aten.convolution_backward(
        grad, padded, weight, sizes, stride, before if even else none, dilation, how.transposed,
        how.output_padding or none, groups, list(mask),
    )  # fmt: skip
    if dx is not None and not even:
        image = [slice(first, first + size) for first, size in zip(before, x.shape[2:])]
        dx = dx[(slice(None), slice(None), *image)]
    return dx, dw, db


def gradients(
    grad: Tensor, x: Tensor, weight: Tensor, bias_type: torch.dtype | None, how: How, mask: Sequence[bool]
) -> _Gradients:
    """The gradients of x, the weight and the bias that `mask` wants, for tensors with memory; None in the place of others.
    `bias_type`: of the bias, where there is one."""
    wants_x, wants_w, wants_b = mask
    dx = dw = db = None
    if wants_x and (planned := _planned("x", x, weight, None, how)):
        dx = _of_x(planned, grad, weight, output_last(x, weight))
    of_bias = bias_type if wants_b and not how.transposed else None
    if wants_w and (planned := _planned("w", x, weight, of_bias, how)):
        dw, db = _of_weight(planned, grad, x, weight, of_bias, how.transposed)
    left = wants_x and dx is None, wants_w and dw is None, wants_b and db is None
    if any(left):
        theirs = pytorch_gradients(grad, x, weight, bias_type, how, left)
        dx, dw, db = (own if own is not None else other for own, other in zip((dx, dw, db), theirs))
    return dx, dw, db


def backward_of(
    grad: Tensor, x: Tensor, weight: Tensor, bias_type: torch.dtype | None, how: How, mask: Sequence[bool]
) -> _Gradients:
    """`gradients` for autograd. PyTorch's where they record gradients themselves or are batched; of traced tensors the operator where a
    plan is proven, and PyTorch's for the rest, so that compilers see it."""
    if torch.is_grad_enabled() or is_transformed() or is_batched(grad):
        return pytorch_gradients(grad, x, weight, bias_type, how, mask)
    if is_ordinary(grad, x, weight):
        return gradients(grad, x, weight, bias_type, how, mask)
    of_bias = bias_type if mask[2] and not how.transposed else None
    of_x = mask[0] and _planned("x", x, weight, None, how) is not None
    of_w = mask[1] and _planned("w", x, weight, of_bias, how) is not None
    ours = of_x, of_w, of_w and of_bias is not None
    left = tuple(wanted and not own for wanted, own in zip(mask, ours))
    dx, dw, db = conv_gradients(grad, x, weight, text_of(bias_type, how, ours)) if any(ours) else (None,) * 3
    if any(left):
        theirs = pytorch_gradients(grad, x, weight, bias_type, how, left)
        dx, dw, db = (one if own else other for own, one, other in zip(ours, (dx, dw, db), theirs))
    return dx, dw, db


def text_of(bias_type: torch.dtype | None, how: How, mask: Sequence[bool]) -> str:
    """The text that `convtune::conv_gradients` takes: which gradients, the bias's type, and the convolution (how.py)."""
    wanted = "".join("xwb"[place] for place in range(3) if mask[place])
    return f"{wanted} {str(bias_type).removeprefix('torch.')} {how.alone.packing.text}"


@lru_cache(4096)
def told(text: str) -> tuple[torch.dtype | None, How, tuple[bool, ...]]:
    wanted, bias_type, how = text.split(" ", 2)
    return getattr(torch, bias_type, None), How.parse(how), tuple(one in wanted for one in "xwb")


def _how(words: tuple[Any, ...]) -> How:
    *geometry, precision, choices, output_padding = words
    return How.of(*geometry, precision, "none", choices, True, output_padding)


def _kernel(grad: Tensor, x: Tensor, weight: Tensor, bias_type: Any, *words: Any) -> _Gradients:
    return _run(grad, x, weight, bias_type, _how(words[:-1]), words[-1])


def _kernel_of_text(grad: Tensor, x: Tensor, weight: Tensor, text: str) -> _Gradients:
    """Planned and run by Python; by C++ from then on, where nothing was left to PyTorch."""
    bias_type, how, mask = told(text)
    made = _run(grad, x, weight, bias_type, how, mask)
    if not is_native:
        return made
    of_bias = (bias_type or grad.dtype) if mask[2] and not how.transposed else None
    own = [_planned("x", x, weight, None, how) if mask[0] else None, _planned("w", x, weight, of_bias, how) if mask[1] else None]
    if [one is not None for one in own] == [*mask[:2]] and (mask[1] and of_bias is not None) == mask[2]:
        of_x, of_weight = ((one.convolution, one.last) if one else (None, False) for one in own)
        offer_gradients((grad, x, weight), made, text, how, of_x, of_weight)
    return made


def _run(grad: Tensor, x: Tensor, weight: Tensor, bias_type: Any, how: How, mask: Sequence[bool]) -> _Gradients:
    _check(grad, x, weight, how)
    dx, dw, db = gradients(grad, x, weight, bias_type or grad.dtype, how, mask)
    if dx is not None:
        dx = laid(dx, output_last(x, weight))
    if dw is not None:
        dw = laid(dw, _weight_last(weight))
    return dx, dw, None if db is None else db.to(bias_type or grad.dtype)


def _check(grad: Tensor, x: Tensor, weight: Tensor, how: How) -> None:
    """Raises InvalidArgument where the tensors are not of one type, or of another number of axes."""
    if not (x.dim() == weight.dim() == grad.dim() == how.axes + 2) or not (x.dtype is weight.dtype is grad.dtype):
        shapes = ", ".join(f"{name} {one.dtype} {tuple(one.shape)}" for name, one in (("dy", grad), ("x", x), ("w", weight)))
        raise InvalidArgument(f"the gradients of a convolution of {how.axes} axes take tensors of one type: {shapes}")
    if grad.shape[:2] != (x.shape[0], how.channels(weight)):
        raise InvalidArgument(
            f"dy has the shape {tuple(grad.shape)}; it must begin with {(x.shape[0], how.channels(weight))}: "
            f"x {tuple(x.shape)}, w {tuple(weight.shape)}"
        )


def _fake(grad: Tensor, x: Tensor, weight: Tensor, bias_type: Any, *words: Any) -> _Gradients:
    return _like(grad, x, weight, bias_type, _how(words[:-1]), words[-1])


def _like(grad: Tensor, x: Tensor, weight: Tensor, bias_type: Any, how: How, mask: Sequence[bool]) -> _Gradients:
    """Gradients without their numbers."""
    wants_x, wants_w, wants_b = mask
    channels = how.channels(weight)
    return (
        empty(x.shape, x, output_last(x, weight)) if wants_x else None,
        empty(weight.shape, weight, _weight_last(weight)) if wants_w else None,
        grad.new_empty((channels,), dtype=bias_type or grad.dtype) if wants_b else None,
    )


def _autograd(grad: Tensor, x: Tensor, weight: Tensor, bias_type: Any, *words: Any) -> _Gradients:
    if torch.is_grad_enabled() and (grad.requires_grad or x.requires_grad or weight.requires_grad):
        return pytorch_gradients(grad, x, weight, bias_type, _how(words[:-1]), words[-1])
    with _below_autograd():
        return conv_backward(grad, x, weight, bias_type, *words)  # type: ignore[no-any-return]


conv_backward: Any = define(
    "conv_backward(Tensor grad, Tensor x, Tensor weight, ScalarType? bias, SymInt[] stride, SymInt[] padding, "
    "SymInt[] dilation, SymInt groups, str precision, str choices, SymInt[] output_padding, bool[3] mask) "
    "-> (Tensor, Tensor, Tensor)",
    _kernel, _fake, Autograd=_autograd,
)  # fmt: skip

define_gradients(_kernel_of_text, lambda grad, x, weight, text: _like(grad, x, weight, *told(text)))
