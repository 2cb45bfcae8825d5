"""conv1d, conv2d and conv3d on anybody's arrays, and the plan of it; running.py has what runs a plan. Nothing here measures;
see tuning.py."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from . import arrays
from .caches import PLANS
from .convolution import Convolution
from .errors import InvalidArgument
from .geometry import Padding, Steps
from .problem import Problem, as_problem, problem_of
from .running import packed, read_weights, with_axes

__all__ = ["conv1d", "conv2d", "conv3d", "plan"]

# Arrays of any library: what comes back is of the same one.
Arr = TypeVar("Arr")


def _planned(problem: Problem, device: str | None) -> Convolution:
    return PLANS.get_or_make((problem, device), lambda: Convolution(problem, device))  # type: ignore[no-any-return]


def planned(key: Any, make_problem: Callable[[], Problem], device: str | None) -> Convolution:
    """The plan from the cache, where `key` holds all that problem and device follow from; else made now."""
    try:
        found = PLANS.get(key)
    except TypeError:  # a list among the arguments
        return _planned(make_problem(), device)
    if found is None:
        problem = make_problem()
        found = PLANS.get_or_make(key, lambda: _planned(problem, device))
    return found  # type: ignore[no-any-return]


def plan(
    problem: Any,
    w: Any = None,
    bias: Any = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Any = None,
    cache: Any = None,
    device: Any = None,
) -> Convolution:
    """The planned convolution of a Problem, of its text or a built-in case's name, or of conv1d's to conv3d's arguments (of
    which the shapes, x's type and the device count). Answers from records and estimates, and never measures; on a GPU a
    kernel may be compiled. `device`: "cpu", "cuda:0", a Device, a torch.device; None: the best there is, or where the
    arrays are.

    A problem planned before gets the same Convolution again; `Convolution(problem, ...)` plans anew, and takes an algorithm.
    """
    device = None if device is None else str(device)
    if isinstance(problem, (Problem, str)):
        if w is not None:
            raise InvalidArgument("plan takes a problem, or arrays x and w: not a problem and arrays")
        return _planned(as_problem(problem), device)
    x = arrays.floats(problem, "x")
    weights = arrays.describe(w, "w")
    where = device or x.device
    if precision is None and x.library.name == "torch":
        from .tensors import allowed_precision

        precision = allowed_precision(-1 if where == "cpu" else 0)
    asked = problem_of(
        x.shape, weights.shape, bias is not None, stride, padding, dilation, groups, precision, activation, x.dtype,
        residual is not None, {3: 1, 5: 3}.get(len(weights.shape), 2),
        0 if cache is None else arrays.describe(cache, "cache").shape[2],
    )  # fmt: skip
    return _planned(asked, where)


def _convolve(
    axes: int, x: Any, w: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: Any, precision: Any,
    activation: Any, residual: Any, cache: Any = None, cache_out: Any = None, rounding: Any = None,
) -> Any:  # fmt: skip
    """conv1d to conv3d on any library's arrays; PyTorch's have a shorter way."""
    image = arrays.read(x, "x")
    dtype = image.dtype
    weights = arrays.read(w, "w", dtype, image)
    shapes = image.shape, weights.shape, bias is not None
    before = None if cache is None else arrays.read(cache, "cache", dtype, image)
    frames = 0 if before is None else (*before.shape, 0, 0, 0)[2]
    rest = stride, padding, dilation, groups, precision, activation, dtype, residual is not None, axes, frames

    def asked() -> Problem:
        return problem_of(*shapes, *rest).replace(rounding=rounding or "once")

    if 0 in image.shape[:1]:  # nothing to compute, but wrong arguments are wrong
        problem = asked()
        read_weights(problem, w, bias, image)
        return image.library.finish(image.library.empty(_output_shape(problem, axes), dtype, image.device))
    key = "convolve", *shapes, *rest, rounding, image.device
    convolution = planned(key, asked, image.device)
    output_shape = _output_shape(convolution.problem, axes)
    biases = added = kept = None
    if before is not None and before.shape != (*image.shape[:2], frames, *image.shape[3:]):
        raise InvalidArgument(f"cache has the shape {before.shape}; it must be x's but for its frames: {image.shape}")
    if cache_out is not None:
        kept = arrays.write(cache_out, "cache_out", dtype, image)
        if kept.shape != convolution.problem.kept_shape:
            raise InvalidArgument(f"cache_out has the shape {kept.shape}; it must be {convolution.problem.kept_shape}")
    if bias is not None:
        biases = arrays.read(bias, "bias", dtype, image)
        if biases.shape != weights.shape[:1]:
            raise InvalidArgument(f"bias has the shape {biases.shape}; it must be {weights.shape[:1]}")
    if residual is not None:
        added = arrays.read(residual, "residual", dtype, image)
        if added.shape != output_shape:
            raise InvalidArgument(f"residual has the shape {added.shape}; it must be {output_shape}")
    stream = image.library.stream(image.device)
    memory, pointer = packed(convolution, weights, biases, stream)
    y = image.library.empty(output_shape, dtype, image.device)
    if added is before is kept is None:
        convolution.run_raw(image.pointer, pointer, y.pointer, stream)
    else:
        others = {"residual": added, "cache": before, "cache_out": kept}
        pointers = {name: array.pointer for name, array in others.items() if array is not None}
        convolution.run_tensors_raw(x=image.pointer, y=y.pointer, packed=pointer, stream=stream, **pointers)
    del memory  # it has served: see arrays.py on the order in which memory goes back
    return image.library.finish(y)


def _output_shape(problem: Problem, axes: int) -> tuple[int, ...]:
    return with_axes(problem, problem.output_shape, axes)


# By axes and the type of x, so that PyTorch's tensors take one look-up.
_ways: dict[int, dict[type, Callable[..., Any]]] = {1: {}, 2: {}, 3: {}}


def _way(kind: type, axes: int) -> Callable[..., Any]:
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        from .torch.functional import of_tensors

        way: Callable[..., Any] = partial(of_tensors, axes)
    else:
        way = partial(_convolve, axes)
    if len(_ways[axes]) < 64:
        _ways[axes][kind] = way
    return way


def conv1d(
    x: Arr,
    w: Any,
    bias: Any = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Any = None,
    rounding: str | None = None,
) -> Arr:
    """`conv2d` of rows (samples of a sound, tokens): y = activation(conv1d(x, w) + bias + residual).

    `x`: (N, C, L) and `w`: (K, C/groups, S); `residual`: (N, K, Q), as y. `stride`, `dilation`: a number. `padding`: a
    number, (left, right), "same" or "valid": ((S - 1) * dilation, 0) is that of a causal filter. Everything else is as
    conv2d has it.
    """
    kind = type(x)
    way = _ways[1].get(kind) or _way(kind, 1)
    return way(  # type: ignore[no-any-return]
        x, w, bias, stride, padding, dilation, groups, precision, activation, residual, None, None, rounding
    )


def conv2d(
    x: Arr,
    w: Any,
    bias: Any = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Any = None,
    rounding: str | None = None,
) -> Arr:
    """y = activation(conv2d(x, w) + bias + residual), with the plan that convtune has for this problem on this device.

    `x`: (N, C, H, W) and `w`: (K, C/groups, R, S), arrays of NumPy, PyTorch, CuPy or JAX (CPU), or anything in host
    memory with DLPack; `bias`: (K,) or None; `residual`: (N, K, P, Q) or None. All of one type, float32, float16 or
    bfloat16, on one device, and of one library where that is a GPU. What is not contiguous is copied by its library.
    y: (N, K, P, Q), contiguous, a new array of x's library; a batch of 0 gives an empty one. `stride`, `dilation`: a
    number or (vertical, horizontal). `padding`: a number, a pair, (top, left, bottom, right), "same" or "valid".
    `precision` of the products: "fp32", "tf32", "fp16", "bf16"; None: the device's default, and for PyTorch on a GPU
    what torch.backends.cudnn allows. `activation`: None, or the word of a Problem's: "relu", "clip:0:6",
    "leaky_relu:0.01" and so on.
    `rounding` of half precision: None or "once", at the end; "eager": after each of sum, bias, residual and activation, as
    frameworks do that run them one by one (of PyTorch's tensors: where PyTorch itself does, docs/pytorch.md).

    Problems that no kernel is for run on `reference`, right and slow, as `plan` says of them; for PyTorch's tensors
    PyTorch's own convolution runs then. These tensors may be of any type, and without a batch: convtune.torch.conv2d.

    The first call for a problem plans it (on a GPU: may compile a kernel); `tune` searches for the fastest way, once
    and for all. On a GPU the work is queued on the current stream and nothing waits. Weights are packed in every
    call, for no other library tells of changes in place; for PyTorch they are packed when they change. `plan`, `pack`
    and `run` take that apart.

    Raises InvalidArgument (a ValueError) with the numbers, before anything is touched; Unsupported; OutOfMemory.
    """
    kind = type(x)
    way = _ways[2].get(kind) or _way(kind, 2)
    return way(  # type: ignore[no-any-return]
        x, w, bias, stride, padding, dilation, groups, precision, activation, residual, None, None, rounding
    )


def conv3d(
    x: Arr,
    w: Any,
    bias: Any = None,
    stride: Steps = 1,
    padding: Padding = 0,
    dilation: Steps = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    residual: Any = None,
    cache: Any = None,
    cache_out: Any = None,
    rounding: str | None = None,
) -> Arr:
    """`conv2d` with a depth (frames of a video, slices of a volume): y = activation(conv3d(x, w) + bias + residual).

    `x`: (N, C, D, H, W) and `w`: (K, C/groups, T, R, S); `residual`: (N, K, Z, P, Q), as y. `stride`, `dilation`: a
    number or (depth, vertical, horizontal). `padding`: a number, three, (front, top, left, back, bottom, right), "same"
    or "valid": (2, 1, 1, 0, 1, 1) is that of a causal 3x3x3. Everything else is as conv2d has it.

    `cache`: (N, C, F, H, W), the F frames before x's first, which take the place of as many zeros of the front padding
    (F is at most that; frames that are still missing stay zeros). `cache_out`: (N, C, (T - 1) * dilation, H, W),
    contiguous, is written: the last frames of (cache, x), which the next call needs as its cache, with zeros before them
    where these are fewer; it may be the cache itself where x has half as many frames or more. Nothing is joined or
    padded first where a kernel reads both tensors: in half precision on compute capability 9.0, channels in eights.
    Elsewhere a copy of both is joined to one tensor.
    """
    kind = type(x)
    way = _ways[3].get(kind) or _way(kind, 3)
    return way(  # type: ignore[no-any-return]
        x, w, bias, stride, padding, dilation, groups, precision, activation, residual, cache, cache_out, rounding
    )
