"""The kernel of the operator: tensors with memory, no gradients; planned, packed, launched. All of convtune.torch ends
here, or in the convolution of PyTorch itself. What a call costs is counted in microseconds."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..caches import PACKS, PLANS
from ..convolution import Convolution
from ..errors import Error, InvalidArgument, Unsupported
from ..geometry import Padding, Steps
from ..machine import devices
from ..problem import Problem
from ..problem import problem_of as problem_of_shapes
from ..problem import transposed_problem_of
from ..tensors import allowed_precision, check_like, lying, pack, packed_weights
from ..words import activation_of
from .batches import ANY_BATCH, behind, is_behind, planned_like_others, waits_for_kernels
from .frames import check_cache, check_kept, joined, keep_frames
from .how import How, written
from .layout import copied, empty, laid, lies, output_last

__all__ = [
    "PYTORCHS", "TYPES", "Planned", "activated", "as_recorded", "choice", "choice_line", "convolution_of", "fingerprint",
    "kernel", "launched", "like_output", "of_other_types", "pads_of", "problem_for", "problem_of",
    "pytorch_convolution", "read_as", "refuse_in_capture", "run",
]  # fmt: skip

_float32 = torch.float32
TYPES = (_float32, torch.float16, torch.bfloat16)  # that convtune computes
_DTYPES = dict(zip(("f32", "f16", "bf16"), TYPES))
PYTORCHS: dict[int, Any] = {1: torch.conv1d, 2: torch.conv2d, 3: torch.conv3d}  # by axes
_TRANSPOSED: dict[int, Any] = {1: torch.conv_transpose1d, 2: torch.conv_transpose2d, 3: torch.conv_transpose3d}
# Only a PyTorch that was built with CUDA has these.
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None)
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)

# Convolutions that a CUDA graph has recorded stay: nobody says how long the graph may be replayed.
_recorded: set[Convolution] = set()
_functional = torch.nn.functional
_ACTIVATIONS: dict[str, Any] = {
    "none": lambda y: y,
    "relu": torch.relu,
    "clip": torch.clamp,
    "silu": _functional.silu,
    "gelu_erf": _functional.gelu,
    "gelu_tanh": lambda y: _functional.gelu(y, approximate="tanh"),
    "hardswish": _functional.hardswish,
    "leaky_relu": _functional.leaky_relu,
    "sigmoid": torch.sigmoid,
}


def activated(y: Tensor, activation: str) -> Tensor:
    """The activation of y by PyTorch, with its gradients."""
    name, parameters = activation_of(activation)
    return _ACTIVATIONS[name](y, *parameters)  # type: ignore[no-any-return]


def pads_of(padding: tuple[Any, ...]) -> list[Any]:
    """The padding as torch.nn.functional.pad takes it: the last axis first, before and behind it."""
    axes = len(padding) // 2
    return [end for axis in reversed(range(axes)) for end in padding[axis::axes]]


def pytorch_convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, how: How, residual: Tensor | None = None
) -> Tensor:
    """PyTorch's own convolution, which has no uneven padding, and takes a bias of x's type alone."""
    if bias is not None and bias.dtype is not x.dtype:
        bias = bias.to(x.dtype)
    stride, padding, dilation, groups = how.geometry
    before, convolve = padding[: how.axes], PYTORCHS[how.axes]
    if how.transposed:
        even, none = before == padding[how.axes :], (0,) * how.axes
        y = _TRANSPOSED[how.axes](x, weight, bias, stride, before if even else none, how.output_padding, groups, dilation)
        if not even:
            ends = zip(y.shape[2:], before, padding[how.axes :])
            y = y[(..., *(slice(first, size - last) for size, first, last in ends))]
    elif before == padding[how.axes :]:
        y = convolve(x, weight, bias, stride, before, dilation, groups)
    else:
        y = convolve(_functional.pad(x, pads_of(padding)), weight, bias, stride, 0, dilation, groups)
    return activated(y if residual is None else y + residual, how.activation)


def like_output(residual: Tensor, y: Tensor) -> Tensor:
    """The residual. Raises InvalidArgument where it has not y's shape, type and device: nothing is broadcast."""
    check_like(residual, "residual", y)
    if residual.shape != y.shape:
        raise InvalidArgument(f"residual has the shape {tuple(residual.shape)}; it must be {tuple(y.shape)}")
    return residual


def of_other_types(x: Tensor, weight: Tensor, bias: Tensor | None, how: How, residual: Tensor | None = None) -> Tensor:
    """PyTorch's own convolution of tensors that are not of TYPES, complex and integer ones among them."""
    check_like(weight, "w", x)
    if bias is not None:
        check_like(bias, "bias", x)
    y = pytorch_convolution(x, weight, bias, how.alone)
    if residual is not None:
        y = y + like_output(residual, y)
    return activated(y, how.activation)


class Planned:
    """A convolution, and what a call must know of it. `convolution` is None where PyTorch's own is to run, or, where
    `apart`, what runs without the activation, and PyTorch's activation after it; `last`: it reads and writes channels
    last, `wanted_last`: the problem's y lies so. `apart` also leaves a residual to PyTorch. `axes`: of the
    tensors, which have a depth also where the problem has none, and no height where it is one."""

    __slots__ = ("apart", "convolution", "dtype", "input_shape", "last", "output_shape", "stored_shape", "transposed", "wanted_last")

    def __init__(
        self, convolution: Convolution | None, problem: Problem, apart: bool = False, axes: int = 2
    ) -> None:
        self.convolution, self.apart = convolution, apart
        self.dtype = _DTYPES[problem.dtype.partition(":")[0]]
        shapes = [
            (problem.n, problem.c, *(problem.d, problem.h, problem.w)[-axes:]),
            (problem.n, problem.k, *(1, *problem.output_size)[-axes:]),
        ]
        self.transposed = problem.direction == "bwd_d"
        self.input_shape, self.output_shape = reversed(shapes) if self.transposed else shapes
        self.stored_shape = (problem.stored_images, *self.output_shape[1:])
        self.last = convolution is not None and convolution.problem.layout == "nhwc"
        self.wanted_last = problem.layout == "nhwc"


_fingerprints: dict[str, str] = {}
PLANS.cleared.append(_fingerprints.clear)  # a CPU's tells how many threads it may use


def fingerprint(device: str) -> str:
    """The name under which records of that device are kept; "" where convtune does not see it."""
    if device not in _fingerprints:
        _fingerprints.update({one.device: one.fingerprint for one in devices()})
    return _fingerprints.get(device, "")


def choice_line(device: str, problem: Problem, run_as: Problem, algorithm: str, config: str) -> str:
    """A line of what optimize leaves in a module: how `problem` runs on that kind of device, proven. `run_as` is the
    problem, or the same in the other layout, with copies before and after."""
    return "\t".join((fingerprint(device), problem.key, run_as.layout, algorithm, config))


def choice(choices: str, device: str, problem: Problem) -> tuple[Problem, str, str] | None:
    """(the problem to plan, algorithm, config) by the line for that problem on that device, if there is one."""
    wanted = [fingerprint(device), problem.key]
    for line in choices.splitlines():
        fields = line.split("\t")
        if len(fields) == 5 and fields[:2] == wanted:
            return problem.replace(layout=fields[2]), fields[3], fields[4]
    return None


def problem_of(
    x: Tensor, weight: Tensor, has_bias: bool, stride: Steps, padding: Padding, dilation: Steps, groups: int,
    precision: str = "auto", activation: str = "none", residual: bool = False, bias_type: Any = None, cache: int = 0,
) -> Problem:  # fmt: skip
    """The problem that a call with those tensors asks: only their shape, type, memory format and device count.
    `bias_type`: where it is not x's; `cache`: the frames of one."""
    how = written(weight.shape[2:], stride, padding, dilation, groups, precision, activation)
    return problem_for(x, weight, how, (bias_type or x.dtype) if has_bias else None, residual, cache)


def problem_for(
    x: Tensor, weight: Tensor, how: How, bias_type: torch.dtype | None, residual: bool = False, cache: int = 0
) -> Problem:
    """`problem_of` a call that does so. `bias_type`: None where there is no bias."""
    dtype = str(x.dtype).removeprefix("torch.") if x.dtype in TYPES else "float32"
    shapes, words = (x.shape, weight.shape, bias_type is not None), (how.precision, how.activation, dtype, residual, how.axes)
    if how.transposed:
        stride, padding, dilation, groups = how.geometry
        problem = transposed_problem_of(*shapes, stride, padding, how.output_padding, groups, dilation, *words)
    else:
        problem = problem_of_shapes(*shapes, *how.geometry, *words, cache)
    if bias_type is _float32 and dtype != "float32":
        problem = problem.replace(dtype=":".join([problem.dtype] * 3 + ["f32"]))
    if how.precision == "auto" and dtype == "float32":
        problem = problem.replace(precision=allowed_precision(x.get_device() if x.is_cuda else -1))
    if how.rounding == "eager" and dtype != "float32" and x.is_cuda:  # a CPU's rounds a sum with its bias: _plan
        problem = problem.replace(rounding="eager")
    return problem.replace(layout="nhwc") if output_last(x, weight) else problem


def refuse_in_capture(problem: Problem, device: str) -> None:
    """Raises Error while a CUDA graph is being recorded: there is nothing yet that it could record."""
    if device != "cpu" and _capturing():
        raise Error(
            f"{problem} has not run on {device} yet, and a CUDA graph is being recorded: a plan may have to compile, "
            "which cannot be recorded. Call the convolution (or its module's prepare) once before"
        )


def as_recorded(convolution: Convolution, x: Tensor) -> int:
    """The current stream of x's device; the convolution stays where a CUDA graph is being recorded."""
    if not x.is_cuda:
        return 0
    if _capturing():
        _recorded.add(convolution)
    return int(_raw_stream(x.get_device()))


def _asked(x: Tensor, weight: Tensor, bias: Any, how: How, residual: bool, cache: Tensor | None) -> Problem:
    """The problem of a call. Raises InvalidArgument."""
    if cache is not None:
        check_cache(cache, x, how)
    if bias is not None and bias.shape != (how.channels(weight),):
        raise InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be ({how.channels(weight)},)")
    frames = 0 if cache is None else cache.shape[2]
    return problem_for(x, weight, how, None if bias is None else bias.dtype, residual, frames)


def _plan(problem: Problem, how: How, index: int) -> Planned:
    device, any_batch = "cpu" if index < 0 else f"cuda:{index}", how.choices == ANY_BATCH
    followed = how.activation != "none" or problem.residual
    apart = followed and how.rounding == "eager" and index < 0 and problem.dtype != "f32"
    plan: tuple[Problem, str | None, str | None] | None = problem, None, None
    if how.choices and not any_batch:
        plan = choice(how.choices, device, problem)
    if plan is None or apart or problem.n == 0:
        return Planned(None, problem, apart, how.axes)
    refuse_in_capture(problem, device)
    try:
        convolution = planned_like_others(problem, device) if any_batch else Convolution(plan[0], device, *plan[1:])
    except Unsupported:
        pass
    except InvalidArgument:
        if not how.choices:  # else proven by another version of convtune, whose configs were others
            raise
    else:
        if not _is_slow(convolution):
            return Planned(convolution, problem, axes=how.axes)
    return Planned(None, problem, followed, how.axes)


def _is_slow(convolution: Convolution) -> bool:
    """True of what is right and slower than PyTorch's own: the oracle, and the kernel for what no other takes where no
    measurement chose it."""
    plan = convolution.plan
    return plan.algorithm == "reference" or (plan.algorithm == "general_sm80" and plan.source == "estimate")


def convolution_of(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any, groups: int,
    precision: str = "auto", activation: str = "none", choices: str = "", residual: bool = False,
    cache: Tensor | None = None, output_padding: Any = None,
) -> Convolution | None:  # fmt: skip
    """The convolution that the operator runs for those arguments, planned if it was not; None where PyTorch's own
    runs. For tests and for the curious."""
    words = precision, activation, choices, True, output_padding
    how = written(weight.shape[2:], stride, padding, dilation, groups, *words)
    problem = _asked(x, weight, bias, how, residual, cache)
    return _plan(problem, how, x.get_device() if x.is_cuda else -1).convolution


def run(
    x: Tensor, weight: Tensor, bias: Tensor | None, how: How, residual: Tensor | None = None, offer: Any = None,
    cache: Tensor | None = None, cache_out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The operator on a CPU and on a GPU: no gradients, tensors with memory. x of TYPES is convtune's, with a bias of its
    type or float32; any other type is PyTorch's. `residual` has the output's shape and x's type. `offer` is called with
    what keeps the packed weights, their address, the stream, whether the kernel's tensors lie channels last, and y.
    `cache`, `cache_out`: conv3d's; without frames the first is None."""
    dtype = x.dtype
    if dtype not in TYPES or weight.dtype is not dtype or how.is_pytorchs:
        y = of_other_types(x, weight, bias, how, residual)
        return laid(y, output_last(x, weight))
    index, capturing, stream = -1, False, 0
    if x.is_cuda:
        index, capturing = x.get_device(), _capturing()
        stream = _raw_stream(index)
    precision = how.precision
    if precision == "auto" and dtype is _float32:
        precision = allowed_precision(index)
    if x.dim() != len(how.stride) + 2 or weight.dim() != x.dim():
        of_shapes = transposed_problem_of if how.transposed else problem_of_shapes
        of_shapes(x.shape, weight.shape, bias is not None, axes=how.axes)  # raises
    if x.is_contiguous() and weight.is_contiguous() and x.stride(1) != 1 and weight.stride(1) != 1:
        as_wanted, last = True, False
    else:
        last = output_last(x, weight)
        as_wanted = lies(x, last)
    # Nothing is checked twice: shapes when they are planned, weight and bias when they are packed.
    key = (
        x.shape, weight.shape, None if bias is None else bias.dtype, how, precision, index, last, dtype,
        residual is None, None if cache is None else cache.shape,
    )  # fmt: skip
    planned = PLANS.peek(key)
    if planned is None:
        if how.choices == ANY_BATCH and waits_for_kernels(index):  # PyTorch's own, while another thread compiles
            if not capturing and not is_behind(key):
                problem = _asked(x, weight, bias, how, residual is not None, cache)  # 0.2 ms: once a batch, not in every call
                behind(key, lambda: _plan(problem, how, index))
            return laid(pytorch_convolution(x, weight, bias, how, residual), last)
        planned = PLANS.get_or_make(key, lambda: _plan(_asked(x, weight, bias, how, residual is not None, cache), how, index))
    convolution = planned.convolution
    if cache_out is not None:
        check_kept(cache_out, x, weight, how)
        if cache is None and (convolution is None or planned.apart):
            y = run(x, weight, bias, how, residual)
            keep_frames(cache_out, None, x)
            return y
    if cache is not None and (convolution is None or (capturing and convolution.plan.algorithm == "cudnn")):
        whole, without = joined(cache, x, how)
        y = run(whole, weight, bias, without, residual)
        if cache_out is not None:
            keep_frames(cache_out, cache, x)
        return y
    if residual is not None and (residual.shape != planned.output_shape or residual.dtype is not dtype):
        check_like(residual, "residual", x)
        raise InvalidArgument(f"residual has the shape {tuple(residual.shape)}; it must be {planned.output_shape}")
    if planned.apart:
        y = run(x, weight, bias, how.alone)
        return activated(y if residual is None else y.add_(residual), how.activation)
    # cuDNN's workspace is ours and of one stream: a graph takes PyTorch's, from the graph's own memory.
    if convolution is None or (capturing and convolution.plan.algorithm == "cudnn"):
        y = pytorch_convolution(x, weight, bias, how, residual)
        return laid(y, last)
    if capturing:
        _recorded.add(convolution)
    if capturing and how.reuse and _hold(weight, bias, how) and (recorded := PACKS.record(weight, bias, convolution)):
        kept, packed = recorded, recorded.pointer
    elif capturing or not how.reuse:
        kept, packed = None, lying(convolution, weight, x)
        if not packed:
            kept, packed = pack(convolution, weight, bias, x, stream)
    else:
        kept, packed = packed_weights(convolution, weight, bias, x, stream)
    y = launched(planned, x, packed, residual, last, stream, as_wanted, cache, cache_out)
    if offer is not None:
        offer(kept, convolution, packed, stream, planned.last, y)
    del kept  # freed in the order of the stream
    return y


def _hold(weight: Tensor, bias: Tensor | None, how: How) -> bool:
    """True where a CUDA graph may read weights that were packed before it was recorded: parameters that record no
    gradients, or of a module that optimize has swapped. docs/decisions/0118-weights-that-graphs-read.md"""
    return all(
        one is None or (type(one) is torch.nn.Parameter and (not one.requires_grad or how.choices not in ("", ANY_BATCH)))
        for one in (weight, bias)
    )


def launched(
    planned: Planned, x: Tensor, packed: int, residual: Tensor | None, last: bool, stream: int,
    as_wanted: bool | None = None, cache: Tensor | None = None, cache_out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """y, channels last or first, of a convolution with its weights packed at that address. `as_wanted`: whether x lies
    so, too, where that is known."""
    own, convolution = planned.last, planned.convolution
    assert convolution is not None
    if as_wanted is None or own is not last:
        as_wanted = lies(x, own)
    address = x.data_ptr()
    if not as_wanted or address & 3 or x.is_neg():
        x = copied(x, own)
        address = x.data_ptr()
    y = empty(planned.stored_shape, x, own)
    if planned.transposed:
        added = 0 if residual is None else read_as(residual, x, own).data_ptr()
        convolution.run_tensors_raw(dy=address, residual=added, dx=y.data_ptr(), packed=packed, stream=stream)
    elif residual is cache is cache_out is None:
        convolution.run_raw(address, packed, y.data_ptr(), stream)
    else:
        added = None if residual is None else read_as(residual, x, own)
        before = None if cache is None else read_as(cache, x, own)
        # Frames may be kept where the cache lies, once y is there; others are copied by PyTorch.
        written = cache_out is not None and lies(cache_out, own) and not cache_out.is_neg()
        written = written and (cache_out is not cache or before is cache)
        convolution.run_tensors_raw(
            x=address, residual=0 if added is None else added.data_ptr(), y=y.data_ptr(), packed=packed, stream=stream,
            cache=0 if before is None else before.data_ptr(),
            cache_out=cache_out.data_ptr() if written else 0,  # type: ignore[union-attr]
        )  # fmt: skip
        if cache_out is not None:
            if written:
                torch.autograd.graph.increment_version(cache_out)
            else:
                keep_frames(cache_out, cache, x)
    return y if own is last else laid(y, last)


def read_as(residual: Tensor, x: Tensor, last: bool) -> Tensor:
    """Itself, or a copy that a kernel can read."""
    if residual.device != x.device:
        check_like(residual, "residual", x)
    if lies(residual, last) and not residual.data_ptr() & 3 and not residual.is_neg():
        return residual
    return copied(residual, last)


def kernel(x: Tensor, weight: Tensor, bias: Tensor | None, *words: Any) -> Tensor:
    """`run`, as the dispatcher calls it."""
    return run(x, weight, bias, How.of(*words))
