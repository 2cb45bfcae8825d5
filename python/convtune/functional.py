"""conv2d on anybody's arrays, and the same in steps: plan, pack, run. Nothing here measures; see tuning.py."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from . import _library, arrays
from .caches import PLANS
from .convolution import Convolution
from .errors import InvalidArgument
from .memory import HostMemory
from .problem import Padding, Pair, Problem, as_problem, padding_of, pair_of, whole

__all__ = [
    "Device",
    "PackedWeights",
    "conv2d",
    "devices",
    "pack",
    "plan",
    "problem_of",
    "run",
    "set_cpu_threads",
]

# Arrays of any library: what comes back is of the same one.
Arr = TypeVar("Arr")

_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}


def problem_of(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    has_bias: bool,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    precision: str | None = None,
    activation: str | None = None,
) -> Problem:
    """The problem of conv2d's arguments: x (N, C, H, W), w (K, C/groups, R, S). Raises InvalidArgument with the
    numbers."""
    if len(x_shape) != 4:
        more = "; x[None] adds a batch of 1" if len(x_shape) == 3 else ""
        raise InvalidArgument(f"x has the shape {tuple(x_shape)}; it must be (N, C, H, W){more}")
    if len(w_shape) != 4:
        raise InvalidArgument(f"w has the shape {tuple(w_shape)}; it must be (K, C/groups, R, S)")
    n, c, h, w = (int(extent) for extent in x_shape)
    k, c_of_group, r, s = (int(extent) for extent in w_shape)
    steps, holes = pair_of(stride, "stride"), pair_of(dilation, "dilation")
    problem = Problem(
        n, c, h, w, k, r, s, groups, steps, padding_of(padding, (r, s), steps, holes), holes, has_bias,
        precision=precision or "auto", activation=activation or "none",
    )  # fmt: skip
    if c_of_group * problem.groups != c:
        raise InvalidArgument(
            f"x has {c} channels, but w has {c_of_group} for each of {problem.groups} groups: x {tuple(x_shape)}, "
            f"w {tuple(w_shape)}"
        )
    return problem


def _planned(problem: Problem, device: str | None) -> Convolution:
    return PLANS.get_or_make((problem, device), lambda: Convolution(problem, device))  # type: ignore[no-any-return]


def planned(key: Any, make_problem: Callable[[], Problem], device: str | None) -> Convolution:
    """From the cache, where `key` holds all that the problem and the device follow from; else made now."""
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
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
    device: Any = None,
) -> Convolution:
    """The planned convolution of a Problem, of its text or a built-in case's name, or of conv2d's arguments (of
    which the shapes and the device count). Answers from records and estimates, and never measures; on a GPU a
    kernel may be compiled. `device`: "cpu", "cuda:0", a Device, a torch.device; None: the best there is, or where the
    arrays are.

    What was planned before is returned again; `Convolution(problem, ...)` plans anew, and takes an algorithm.
    """
    device = None if device is None else str(device)
    if isinstance(problem, (Problem, str)):
        if w is not None:
            raise InvalidArgument("plan takes a problem, or arrays x and w: not a problem and arrays")
        return _planned(as_problem(problem), device)
    x = arrays.describe(problem, "x")
    weights = arrays.describe(w, "w")
    where = device or x.device
    if precision is None and x.library.name == "torch":
        from .tensors import allowed_precision

        precision = allowed_precision(-1 if where == "cpu" else 0)
    asked = problem_of(
        x.shape, weights.shape, bias is not None, stride, padding, dilation, groups, precision, activation
    )
    return _planned(asked, where)


@dataclass(frozen=True)
class PackedWeights:
    """Weights and bias in the order that one convolution's kernel reads; made by `pack`, and never changed. The
    arrays that they were made of may be changed or freed."""

    convolution: Convolution
    pointer: int
    memory: Any

    def __repr__(self) -> str:
        return f"<convtune.PackedWeights of {self.convolution.problem}: {self.convolution.packed_bytes} bytes>"


def _packed(convolution: Convolution, weights: arrays.Array, bias: arrays.Array | None, stream: int) -> Any:
    """(memory, pointer)."""
    if convolution.device == "cpu":
        memory: Any = HostMemory(convolution.packed_bytes)
    else:
        memory = weights.library.empty((max(convolution.packed_bytes, 1),), "uint8", convolution.device)
    convolution.pack_raw(weights.pointer, bias.pointer if bias else 0, memory.pointer, stream)
    return memory, memory.pointer


def _read_weights(problem: Problem, w: Any, bias: Any, like: arrays.Array | None) -> Any:
    """(weights, bias or None), checked against the problem."""
    dtype = _DTYPES[problem.dtype]
    weights = arrays.read(w, "w", dtype, like)
    if weights.shape != problem.weight_shape:
        raise InvalidArgument(f"w has the shape {weights.shape}; {problem} takes {problem.weight_shape}")
    if (bias is not None) != problem.bias:
        raise InvalidArgument(f"{problem} has {'a' if problem.bias else 'no'} bias, and bias is {_kind(bias)}")
    if bias is None:
        return weights, None
    biases = arrays.read(bias, "bias", dtype, like or weights)
    if biases.shape != (problem.k,):
        raise InvalidArgument(f"bias has the shape {biases.shape}; it must be ({problem.k},), one a channel of y")
    return weights, biases


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def pack(convolution: Convolution, w: Any, bias: Any = None) -> PackedWeights:
    """Reorders w [K][C/groups][R][S] and bias [K] for the convolution's kernel; again when they change. On a GPU the
    work is queued on the library's current stream. Raises InvalidArgument with the numbers."""
    weights, biases = _read_weights(convolution.problem, w, bias, None)
    if weights.device != convolution.device:
        raise InvalidArgument(f"w is on {weights.device} ({weights}), the convolution on {convolution.device}")
    memory, pointer = _packed(convolution, weights, biases, weights.library.stream(weights.device))
    return PackedWeights(convolution, pointer, memory)


def run(convolution: Convolution, x: Arr, weights: PackedWeights, out: Arr | None = None) -> Arr:
    """y = act(conv(x, w) + bias), in a new array of x's library, or in `out`, which must be contiguous and apart from
    x. It has no gradients: those are conv2d's. On a GPU the work is queued on the library's current stream: the one
    that packed the weights, or one that the caller has made wait for it. Raises InvalidArgument with the numbers."""
    problem = convolution.problem
    if not isinstance(weights, PackedWeights):
        raise InvalidArgument(f"weights are {_kind(weights)}; convtune.pack(convolution, w, bias) makes them")
    if weights.convolution is not convolution and weights.convolution.plan_key != convolution.plan_key:
        raise InvalidArgument(f"the weights were packed for {weights.convolution}, not for {convolution}")
    dtype = _DTYPES[problem.dtype]
    image = arrays.read(x, "x", dtype)
    if image.device != convolution.device:
        raise InvalidArgument(f"x is on {image.device} ({image}), the convolution on {convolution.device}")
    torch = sys.modules["torch"] if image.library.name == "torch" else None
    if torch is not None and torch.is_grad_enabled():
        for tensor, name in ((x, "x"), (out, "out")):
            if getattr(tensor, "requires_grad", False):
                raise InvalidArgument(
                    f"{name} requires gradients, which run has none of: convtune.conv2d, or {name}.detach()"
                )
    if image.shape != problem.input_shape:
        raise InvalidArgument(f"x has the shape {image.shape}; {problem} takes {problem.input_shape}")
    if out is None:
        y = image.library.empty(convolution.output_shape, dtype, image.device)
    else:
        y = arrays.write(out, "out", dtype, image)
        if y.shape != convolution.output_shape:
            raise InvalidArgument(f"out has the shape {y.shape}; {problem} gives {convolution.output_shape}")
        if arrays.overlap(y, image):
            raise InvalidArgument("out shares memory with x; it must be apart")
    convolution.run_raw(image.pointer, weights.pointer, y.pointer, image.library.stream(image.device))
    if torch is not None and out is not None:
        torch.autograd.graph.increment_version(out)  # PyTorch did not see the change
    return out if out is not None else image.library.finish(y)


def _conv2d(
    x: Any,
    w: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: Any,
    precision: Any,
    activation: Any,
) -> Any:
    """conv2d on any library's arrays; PyTorch's have a shorter way."""
    image = arrays.read(x, "x")
    weights = arrays.read(w, "w", like=image)
    shapes = image.shape, weights.shape, bias is not None
    rest = stride, padding, dilation, groups, precision, activation
    if 0 in image.shape[:1]:  # nothing to compute, but wrong arguments are wrong
        problem = problem_of(*shapes, *rest)
        _read_weights(problem, w, bias, image)
        return image.library.finish(image.library.empty(problem.output_shape, "float32", image.device))
    key = "conv2d", *shapes, *rest, image.device
    convolution = planned(key, lambda: problem_of(*shapes, *rest), image.device)
    biases = None
    if bias is not None:
        biases = arrays.read(bias, "bias", like=image)
        if biases.shape != weights.shape[:1]:
            raise InvalidArgument(f"bias has the shape {biases.shape}; it must be {weights.shape[:1]}")
    stream = image.library.stream(image.device)
    packed, pointer = _packed(convolution, weights, biases, stream)
    y = image.library.empty(convolution.output_shape, "float32", image.device)
    convolution.run_raw(image.pointer, pointer, y.pointer, stream)
    del packed  # it has served: see arrays.py on the order in which memory goes back
    return image.library.finish(y)


# conv2d by the type of x, so that PyTorch's tensors take one look-up.
_ways: dict[type, Callable[..., Any]] = {}


def _way(kind: type) -> Callable[..., Any]:
    torch = sys.modules.get("torch")
    if torch is not None and issubclass(kind, torch.Tensor):
        from .torch import conv2d_of_tensors

        way: Callable[..., Any] = conv2d_of_tensors
    else:
        way = _conv2d
    if len(_ways) < 64:
        _ways[kind] = way
    return way


def conv2d(
    x: Arr,
    w: Any,
    bias: Any = None,
    stride: Pair = 1,
    padding: Padding = 0,
    dilation: Pair = 1,
    groups: int = 1,
    *,
    precision: str | None = None,
    activation: str | None = None,
) -> Arr:
    """y = activation(conv2d(x, w) + bias), with the plan that convtune has for this problem on this device.

    `x`: (N, C, H, W) and `w`: (K, C/groups, R, S), float32 arrays of NumPy, PyTorch, CuPy or JAX (CPU), or anything
    in host memory with DLPack; `bias`: (K,) or None. On one device, and of one library where that is a GPU. What is
    not contiguous is copied by its library. y: (N, K, P, Q), contiguous, a new array of x's library; a batch of 0
    gives an empty one. `stride`, `dilation`: a number or (vertical, horizontal). `padding`: a number, a pair,
    (top, left, bottom, right), "same" or "valid". `precision` of the products: "fp32", "tf32", "fp16", "bf16"; None:
    the device's default, and for PyTorch on a GPU what torch.backends.cudnn allows. `activation`: None or "relu".

    The first call for a problem plans it (on a GPU: may compile a kernel); `tune` searches for the fastest way, once
    and for all. On a GPU the work is queued on the current stream and nothing waits. Weights are packed in every
    call, for no other library tells of changes in place; for PyTorch they are packed when they change. `plan`, `pack`
    and `run` take that apart.

    Raises InvalidArgument (a ValueError) with the numbers, before anything is touched; Unsupported; OutOfMemory.
    """
    kind = type(x)
    way = _ways.get(kind) or _way(kind)
    return way(x, w, bias, stride, padding, dilation, groups, precision, activation)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Device:
    """Something to run on. `units`: threads or multiprocessors. `fingerprint`: what records are kept under."""

    device: str
    name: str
    fingerprint: str
    isa: str
    units: int
    memory_bytes: int

    def __str__(self) -> str:
        return self.device


def devices() -> list[Device]:
    """What this machine has to run on, the best first; the CPU is always the last."""
    found = _library.take_json(_library.library.convtune_devices)["devices"]
    fields = Device.__dataclass_fields__
    return [Device(**{name: one[name] for name in fields}) for one in found]


def set_cpu_threads(threads: int) -> None:
    """How many CPU threads convolutions may use from now on; those planned by the caller keep their number."""
    number = whole(threads, "threads")
    if abs(number) >= 2**31:
        raise InvalidArgument(f"threads is {number}; no machine has as many")
    _library.check(_library.library.convtune_set_cpu_threads(number))
    PLANS.clear()
