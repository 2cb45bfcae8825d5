"""The operators `convtune::conv1d`, `conv2d` and `conv3d`: registration, gradients and shapes, and the ways past the
dispatcher."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..geometry import Padding, Steps
from ..problem import SHAPES
from ..problem import problem_of as problem_of_shapes
from ..problem import transposed_problem_of
from ..tensors import check_like
from . import autocast
from .batches import ANY_BATCH
from .caches import find_best_configs, tag
from .frames import check_kept, joined, keep_frames
from .gradients import with_gradients
from .how import How, kept_as_written, written
from .layout import empty, output_last
from .native import LIBRARY, conv2d_forward, define, forward, if_ready
from .ordinary import is_ordinary, is_transformed
from .run import (
    TYPES, activated, choice, kernel, like_output, of_other_types, problem_for,
    pytorch_convolution, run,
)  # fmt: skip

__all__ = [
    "call", "call_if_ready", "call_with_cache", "conv1d", "conv2d", "conv3d", "is_plain", "of_tensors",
    "transposed_of_tensors",
]  # fmt: skip

_plain_or_none = (Tensor, torch.nn.Parameter, type(None))
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_below_autograd: Any = torch._C._AutoDispatchBelowAutograd
_function_modes: Any = torch._C._len_torch_function_stack
_profiling: Any = torch._C._autograd._profiler_enabled
_forward_mode: Any = torch.autograd.forward_ad
_check: Any = torch._check


def _fake(x: Tensor, weight: Tensor, bias: Tensor | None, *words: Any) -> Tensor:
    return fake_sum(x, weight, bias, None, How.of(*words))


def fake_sum(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, how: How) -> Tensor:
    """Shape and strides of what `run` gives, sizes possibly symbolic."""
    find_best_configs()  # whoever compiles what is traced here
    axes, (shape_of_x, shape_of_w) = how.axes, SHAPES[how.axes]
    if how.transposed:
        shape_of_w = shape_of_w.replace("K, C/", "C, K/")
    _check(x.dim() == axes + 2, lambda: f"x has the shape {tuple(x.shape)}; it must be {shape_of_x}")
    _check(weight.dim() == axes + 2, lambda: f"w has the shape {tuple(weight.shape)}; it must be {shape_of_w}")
    n, c, *image = x.shape
    first, second, *taps = weight.shape
    k = how.channels(weight)
    _check(
        (first if how.transposed else second * how.groups) == c,
        lambda: f"x has {c} channels, but w has {first if how.transposed else second} for each of {how.groups} groups",
    )
    _check(
        bias is None or (bias.dim() == 1 and bias.shape[0] == k),
        lambda: f"bias has the shape {tuple(bias.shape)}; it must be ({k},)",  # type: ignore[union-attr]
    )
    stride, padding, dilation, _ = how.geometry
    edges = [first + last for first, last in zip(padding, padding[axes:])]
    seen = [hole * (size - 1) + 1 for hole, size in zip(dilation, taps)]  # by a filter
    if how.transposed:
        ends = zip(image, stride, seen, how.output_padding, edges)
        output = [(size - 1) * step + window + more - edge for size, step, window, more, edge in ends]
    else:
        output = [(size + edge - window) // step + 1 for size, edge, window, step in zip(image, edges, seen, stride)]
    for size in output:
        _check(size > 0, lambda: f"the output would be {' x '.join(map(str, output))}: the filter does not fit")
    y = empty((n, k, *output), x, output_last(x, weight))
    _check(
        residual is None or residual.shape == y.shape,
        lambda: f"residual has the shape {tuple(residual.shape)}; it must be {tuple(y.shape)}",  # type: ignore[union-attr]
    )
    return y


def _fake_forward(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, how: str) -> Tensor:
    return fake_sum(x, weight, bias, residual, How.parse(how))


def _below(x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
    """The operator whose text holds the numbers; where one is a symbol, the one that takes numbers."""
    with _below_autograd():
        if how.is_symbolic:
            return _operator(x, weight, bias, how)
        return conv2d_forward(x, weight, bias, None, how.text)  # type: ignore[no-any-return]


def _is_chosen(x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> bool:
    """True where `how.choices` have a line for a forward of those tensors, or, of sizes that are symbols, may have one."""
    if how.is_symbolic or not all(type(size) is int for size in (*x.shape, *weight.shape)):
        return True
    device = f"cuda:{x.get_device()}" if x.is_cuda else "cpu"
    problem = problem_for(x, weight, how, None if bias is None else bias.dtype)
    return choice(how.choices, device, problem) is not None


def _below_or_pytorch(x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
    """The operator; where optimize has chosen none for this forward, as where gradients alone gain, PyTorch's own
    convolution, which a compiler knows."""
    if how.choices not in ("", ANY_BATCH) and not is_ordinary(x, weight, bias) and not _is_chosen(x, weight, bias, how):
        return pytorch_convolution(x, weight, bias, how)
    return _below(x, weight, bias, how)


def _records_gradients(x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    return x.requires_grad or weight.requires_grad or (bias is not None and bias.requires_grad)


def _autograd(x: Tensor, weight: Tensor, bias: Tensor | None, *words: Any) -> Tensor:
    how = How.of(*words)
    if _is_grad_enabled() and _records_gradients(x, weight, bias):
        if x.dtype not in TYPES:  # a complex convolution has other gradients
            return of_other_types(x, weight, bias, how)
        return with_gradients(x, weight, bias, how, _below_or_pytorch)
    if is_ordinary(x, weight, bias):  # past the dispatcher, which would call Python a second time
        return run(x, weight, bias, how)
    return _below(x, weight, bias, how)


def _autocast(key: torch._C.DispatchKey) -> Any:
    """The operator below autocast, of what that would cast for PyTorch's convolution."""
    guard: Any = torch._C._ExcludeDispatchKeyGuard
    keys = torch._C.DispatchKeySet(key)

    def kernel(x: Tensor, weight: Tensor, bias: Tensor | None, *words: Any) -> Tensor:
        dtype = autocast.type_of(x) or x.dtype
        if dtype not in TYPES:
            return pytorch_convolution(x, weight, bias, How.of(*words))
        keeps = words[7:8] != (False,) and not _is_compiling() and is_ordinary(x, weight, bias)
        x, weight, bias, _ = autocast.cast(dtype, x, weight, bias, None, keeps)
        with guard(keys):
            return _operator(x, weight, bias, How.of(*words))

    return kernel


def _defined(axes: int, transposed: bool) -> Any:
    words = "str precision='auto', str activation='none', str choices='', bool reuse=True, SymInt[] output_padding=[]"
    if transposed:  # PyTorch hands no argument over that is as its schema has it
        words = f"str precision, str activation, str choices, bool reuse, SymInt[{axes}] output_padding"
    name = "conv_transpose" if transposed else "conv"
    return define(
        f"{name}{axes}d(Tensor x, Tensor weight, Tensor? bias, SymInt[{axes}] stride, SymInt[{2 * axes}] padding, "
        f"SymInt[{axes}] dilation, SymInt groups, {words}, str rounding='once') -> Tensor",
        kernel, _fake, Autograd=_autograd, AutocastCPU=_autocast(torch._C.DispatchKey.AutocastCPU),
        AutocastCUDA=_autocast(torch._C.DispatchKey.AutocastCUDA),
    )  # fmt: skip


_operators = {(axes, transposed): _defined(axes, transposed) for axes in (1, 2, 3) for transposed in (False, True)}


def _operator(x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
    """The operator of as many axes."""
    return _operators[how.axes, how.transposed](x, weight, bias, *how.words)  # type: ignore[no-any-return]


torch.library.register_fake("convtune::conv2d_forward", _fake_forward, lib=LIBRARY)
tag()


def _is_pytorchs(x: Tensor) -> bool:
    """Gradients in forward mode, of which convtune has nothing, and what autocast would cast still or not at all."""
    return _forward_mode._current_level >= 0 or autocast.type_of(x) not in (None, x.dtype)


def is_plain(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None = None) -> bool:
    """An eager call on ordinary tensors that nobody watches, of types that autocast leaves: gradients alone are to be
    asked for."""
    return is_ordinary(x, weight, bias, residual) and not (_function_modes() or _profiling() or _is_pytorchs(x))


def call_with_cache(
    x: Tensor, weight: Tensor, bias: Tensor | None, how: How, residual: Tensor | None, cache: Tensor | None,
    cache_out: Tensor | None,
) -> Tensor:  # fmt: skip
    """`call` with frames before x's first in a tensor of their own, and with those that the next call needs written to
    another. Where gradients are recorded or somebody watches, PyTorch joins and copies them."""
    if cache is not None and cache.dim() == 5 and cache.shape[2] == 0:
        cache = None
    if not _is_compiling() and x.dtype in TYPES and autocast.type_of(x) in (None, x.dtype):
        if is_plain(x, weight, bias, residual) and type(cache) in _plain_or_none and type(cache_out) in _plain_or_none:
            recorded = any(one is not None and one.requires_grad for one in (x, weight, bias, residual, cache))
            if not (recorded and _is_grad_enabled()):
                return run(x, weight, bias, how, residual, cache=cache, cache_out=cache_out)
    whole, own = (x, how) if cache is None else joined(cache, x, how)
    y = call(whole, weight, bias, own, residual)
    if cache_out is not None:
        check_kept(cache_out, x, weight, how)
        with torch.no_grad():
            keep_frames(cache_out, cache, x)
    return y


def call(x: Tensor, weight: Tensor, bias: Tensor | None, how: How, residual: Tensor | None = None) -> Tensor:
    """The operator, by the shortest way that PyTorch leaves open: its dispatcher takes 4 us to call Python, and 13
    with gradients, so eager calls on ordinary tensors go past it. PyTorch adds the residual where gradients are recorded
    or somebody watches."""
    if not _is_compiling():
        dtype = autocast.type_of(x)
        if dtype in TYPES:
            keeps = how.reuse and is_ordinary(x, weight, bias, residual)
            x, weight, bias, residual = autocast.cast(dtype, x, weight, bias, residual, keeps)  # type: ignore[arg-type]
        if is_plain(x, weight, bias, residual):
            recorded = _records_gradients(x, weight, bias) or (residual is not None and residual.requires_grad)
            if not (recorded and _is_grad_enabled()):
                return forward(x, weight, bias, residual, how)
            if residual is None and x.dtype in TYPES:
                return with_gradients(x, weight, bias, how, run)
    if (x.dtype not in TYPES and autocast.type_of(x) not in TYPES) or how.is_pytorchs:
        return of_other_types(x, weight, bias, how, residual)
    if residual is not None:
        # Not by dataclasses.replace, which Dynamo did not always take.
        words = how.precision, "none", how.choices, how.reuse, how.output_padding, how.rounding
        y = call(x, weight, bias, How(*how.geometry, *words))
        if torch.is_autocast_enabled(x.device.type):  # the operator in the graph has cast the others
            residual = residual.to(y.dtype)
        return activated(y + like_output(residual, y), how.activation)
    if not _is_compiling():
        if is_transformed() or not (x.is_cuda or x.is_cpu) or _is_pytorchs(x):
            return pytorch_convolution(x, weight, bias, how)
    if torch.onnx.is_in_onnx_export():  # a file of ONNX has no operator of ours
        return pytorch_convolution(x, weight, bias, how)
    return _operator(x, weight, bias, how)


_warned: set[torch.dtype] = set()


def _spelled(axes: int, stride: Any, padding: Any, *rest: Any) -> str | None:
    """The operator's text of the words between bias and residual; None where it depends on the filter's size."""
    return None if isinstance(padding, str) else kept_as_written((1,) * axes, stride, padding, *rest).text


_if_ready = {axes: if_ready(partial(_spelled, axes)) for axes in (1, 2, 3)}


def call_if_ready(axes: int, *arguments: Any) -> Tensor | None:
    """`call`, where it would find everything ready in C++, and nothing at all is set that could forbid to go past the
    dispatcher: most of what a call costs is on its way there. None where that is not so. Takes the number of axes, x,
    weight, bias, stride, padding, dilation, groups, precision or None, activation or None, choices, and the residual or
    None."""
    return None if _is_compiling() else _if_ready[axes](*arguments)


def _check_types(x: Any, weight: Any, bias: Any) -> None:
    """Raises InvalidArgument for what is no tensor; one warning for types that the operator is not for."""
    for name, tensor in (("w", weight), ("bias", bias)):
        if tensor is not None and not isinstance(tensor, Tensor):
            check_like(tensor, name, x)
    if x.dtype not in TYPES and x.dtype not in _warned:
        _warned.add(x.dtype)
        warnings.warn(f"convtune has no kernels for {x.dtype}: PyTorch's own convolution runs", stacklevel=5)


def of_tensors(
    axes: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, precision: Any,
    activation: Any, residual: Any = None, cache: Any = None, cache_out: Any = None, rounding: Any = None, reuse: bool = True,
) -> Tensor:  # fmt: skip
    """convtune.conv1d, conv2d or conv3d, where x is a tensor."""
    words = stride, padding, dilation, groups, precision, activation, ""
    if reuse and cache is cache_out is rounding is None:
        y = call_if_ready(axes, x, weight, bias, *words, residual)
        if y is not None:
            return y
    if x.dim() == axes + 1:  # an image without a batch
        others = (one.unsqueeze(0) if isinstance(one, Tensor) else one for one in (residual, cache, cache_out))
        return of_tensors(axes, x.unsqueeze(0), weight, bias, *words[:-1], *others, rounding, reuse).squeeze(0)
    if not _is_compiling():
        if x.dtype not in TYPES or not isinstance(weight, Tensor) or not (bias is None or isinstance(bias, Tensor)):
            _check_types(x, weight, bias)
        if x.dim() != axes + 2 or weight.dim() != axes + 2:
            problem_of_shapes(x.shape, weight.shape, bias is not None, axes=axes)  # raises
    how = written(weight.shape[2:], *words, reuse, None, rounding)
    if cache is not None or cache_out is not None:
        for name, tensor in (("cache", cache), ("cache_out", cache_out)):
            if tensor is not None and not isinstance(tensor, Tensor):
                check_like(tensor, name, x)
        return call_with_cache(x, weight, bias, how, residual, cache, cache_out)
    return call(x, weight, bias, how, residual)


def transposed_of_tensors(
    axes: int, x: Any, weight: Any, bias: Any, stride: Any, padding: Any, output_padding: Any, groups: Any, dilation: Any,
    precision: Any, activation: Any, residual: Any = None,
) -> Tensor:  # fmt: skip
    """convtune.conv_transpose1d and its like, where x is a tensor."""
    if x.dim() == axes + 1:  # an image without a batch
        added = residual.unsqueeze(0) if isinstance(residual, Tensor) else residual
        words = stride, padding, output_padding, groups, dilation, precision, activation, added
        return transposed_of_tensors(axes, x.unsqueeze(0), weight, bias, *words).squeeze(0)
    words = stride, padding, dilation, groups, precision, activation, "", True, output_padding
    if not _is_compiling():
        _check_types(x, weight, bias)
        if x.dim() != axes + 2 or weight.dim() != axes + 2:
            transposed_problem_of(x.shape, weight.shape, bias is not None, axes=axes)  # raises
    return call(x, weight, bias, written(weight.shape[2:], *words), residual)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    rounding: str | None = None,
    reuse: bool = True,
) -> Tensor:
    """`conv2d` of rows: x (N, C, L), or (C, L) without a batch, contiguous or a transposed (N, L, C). The arguments are
    convtune.conv1d's."""
    words = stride, padding, dilation, groups, precision, activation
    return of_tensors(1, x, weight, bias, *words, residual, rounding=rounding, reuse=reuse)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    rounding: str | None = None,
    reuse: bool = True,
) -> Tensor:
    """activation(conv2d(x, weight) + bias + residual) by convtune's plan for this problem, differentiable. The arguments
    are convtune.conv2d's; x (C, H, W), without a batch, gives y (K, P, Q). `reuse=False` packs the weights in this call:
    for writes that `_version` does not count.

    Tensors that are not float32, float16 or bfloat16 (double, complex, integers) are computed by PyTorch's own
    convolution, with one warning a type. Where
    gradients are recorded the residual, and activations other than ReLU, are PyTorch's after ours; so is the residual
    where somebody watches (a profiler, a dispatch mode): in half precision the sum is then rounded twice. Raises
    InvalidArgument with the numbers where shapes, types or devices do not fit each other.
    """
    words = stride, padding, dilation, groups, precision, activation
    return of_tensors(2, x, weight, bias, *words, residual, rounding=rounding, reuse=reuse)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Tensor | None = None,
    cache: Tensor | None = None,
    cache_out: Tensor | None = None,
    rounding: str | None = None,
    reuse: bool = True,
) -> Tensor:
    """`conv2d` with a depth: x (N, C, D, H, W), or (C, D, H, W) without a batch, contiguous or channels_last_3d. The
    arguments are convtune.conv3d's."""
    words = stride, padding, dilation, groups, precision, activation
    return of_tensors(3, x, weight, bias, *words, residual, cache, cache_out, rounding, reuse)
