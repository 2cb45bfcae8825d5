"""PyTorch tensors, eagerly and without gradients: the short way from conv2d to the kernel. Everything else that
PyTorch can ask for (gradients, autocast, torch.compile, tensor subclasses) is convtune.torch's.

What a call costs is counted here in microseconds, so nothing is checked twice: a weight is checked when it is
packed, a shape when it is planned. PyTorch is imported by whoever made the tensors; this file is not imported
without it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torch

from . import functional
from .caches import PACKS
from .convolution import Convolution
from .errors import Error, InvalidArgument, Unsupported
from .memory import HostMemory
from .problem import Padding, Pair, Problem

__all__ = [
    "allowed_precision",
    "conv2d",
    "current_stream",
    "is_capturing",
    "needs_operator",
    "pack",
    "packed_weights",
    "planned",
    "run",
]

_float32 = torch.float32
_plain = (torch.Tensor, torch.nn.Parameter)
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_grad_enabled = torch.is_grad_enabled
_autocast_enabled: Any = getattr(torch._C, "_is_any_autocast_enabled", None) or torch.is_autocast_enabled
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None) or torch.cuda.is_current_stream_capturing
_dispatch_modes: Any = getattr(torch._C, "_len_torch_dispatch_stack", None) or (lambda: 0)
_transform: Any = getattr(getattr(torch._C, "_functorch", None), "peek_interpreter_stack", None) or (lambda: None)

# Convolutions that a CUDA graph has recorded: their kernels must stay loaded as long as the graph may be replayed,
# and nobody says how long that is.
_recorded: set[Convolution] = set()


def current_stream(index: int) -> int:
    """The current stream of cuda:`index` as an int; 0 on the CPU (index -1)."""
    if index < 0:
        return 0
    if _raw_stream is not None:
        return int(_raw_stream(index))
    return int(torch.cuda.current_stream(index).cuda_stream)


def is_capturing(index: int) -> bool:
    """Is the current stream recorded into a CUDA graph?"""
    return index >= 0 and bool(_capturing())


def allowed_precision(index: int) -> str:
    """What PyTorch's own convolution may do on that device: "tf32" where torch.backends.cudnn allows it."""
    if index < 0:
        return "fp32"
    try:
        return "tf32" if torch.backends.cudnn.allow_tf32 else "fp32"
    except RuntimeError:  # the newer settings, by operator, are in use, and the older cannot be asked any more
        return "tf32" if torch.backends.cudnn.conv.fp32_precision == "tf32" else "fp32"


def _device(index: int) -> str:
    return "cpu" if index < 0 else f"cuda:{index}"


def _describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} on {tensor.device}"


def _refuse_device(tensor: torch.Tensor, name: str) -> NoReturn:
    raise Unsupported(f"{name} is {_describe(tensor)}: convtune runs on cpu and cuda")


def _index(x: torch.Tensor) -> int:
    """The number of x's GPU; -1 on the CPU."""
    if x.is_cuda:
        return int(x.get_device())
    if not x.is_cpu:
        _refuse_device(x, "x")
    return -1


def planned(
    x: torch.Tensor, w: torch.Tensor, has_bias: bool, stride: Pair, padding: Padding, dilation: Pair, groups: int,
    precision: str | None, activation: str | None, index: int,
) -> Convolution:  # fmt: skip
    """The planned convolution of those arguments (shapes count, data do not), from the cache or made now. The first
    call for a problem on a GPU may compile a kernel, for about a second."""
    shapes = tuple(x.shape), tuple(w.shape), has_bias
    rest: tuple[Any, ...] = (
        stride,
        padding,
        dilation,
        groups,
        precision or allowed_precision(index),
        activation,
    )

    def make() -> Problem:
        problem = functional.problem_of(*shapes, *rest)
        if is_capturing(index):
            raise Error(f"{problem} is not planned yet, and a CUDA graph is being recorded: call it once before")
        return problem

    return functional.planned(("torch", *shapes, *rest, index), make, _device(index))


def _check_like(tensor: Any, name: str, x: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"{name} is a {type(tensor).__name__}, x a PyTorch tensor ({_describe(x)})")
    if tensor.dtype is not _float32:
        raise InvalidArgument(f"{name} is {_describe(tensor)}; it must be float32, and is not converted in silence")
    if tensor.device != x.device:
        raise InvalidArgument(f"{name} is {_describe(tensor)}, x {_describe(x)}: they must be on one device")


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Itself, or a copy where its memory is in another order, negated in the reading, or not aligned."""
    if tensor.is_contiguous() and not tensor.is_neg() and not tensor.data_ptr() & 3:
        return tensor
    return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)


def pack(
    convolution: Convolution, w: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor, stream: int
) -> tuple[Any, int]:
    """(memory, address) of weights packed now, on `stream`, which must be the current one of x's device."""
    _check_like(w, "w", x)
    if bias is not None:
        _check_like(bias, "bias", x)
        if bias.shape != w.shape[:1]:
            raise InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be {tuple(w.shape[:1])}")
    w = _contiguous(w)
    bias = None if bias is None else _contiguous(bias)
    memory: Any
    if x.is_cuda:
        memory = torch.empty(max(convolution.packed_bytes, 1), dtype=torch.uint8, device=x.device)
        pointer = memory.data_ptr()
    else:
        memory = HostMemory(convolution.packed_bytes)
        pointer = memory.pointer
    convolution.pack_raw(w.data_ptr(), 0 if bias is None else bias.data_ptr(), pointer, stream)
    return memory, pointer


def packed_weights(
    convolution: Convolution,
    w: torch.Tensor,
    bias: torch.Tensor | None,
    x: torch.Tensor,
    index: int,
    stream: int,
) -> tuple[Any, int]:
    """(what keeps the memory, its address): from the cache where the tensors have not changed since, else packed now.
    A CUDA graph that is being recorded gets a packing of its own, which it repeats with every replay: it sees changes
    of the weights as PyTorch's convolution does, and depends on no memory outside of it."""
    if index >= 0 and _capturing():
        _recorded.add(convolution)
        return pack(convolution, w, bias, x, stream)
    try:
        found = PACKS.find(w, bias, convolution, stream)
        if found is not None:
            return found, found.pointer
        versions = w._version, None if bias is None else bias._version
    except (
        RuntimeError,
        AttributeError,
    ):  # made in inference mode: nobody counts its changes; or no tensor at all
        return pack(convolution, w, bias, x, stream)
    memory, pointer = pack(convolution, w, bias, x, stream)
    PACKS.keep(w, bias, versions, convolution, stream, memory, pointer)
    return memory, pointer


def run(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None, stride: Pair, padding: Padding, dilation: Pair,
    groups: int, precision: str | None = None, activation: str | None = None,
) -> torch.Tensor:  # fmt: skip
    """conv2d without gradients, on tensors that have memory; every operator of convtune.torch ends here."""
    if x.dtype is not _float32:
        raise InvalidArgument(f"x is {_describe(x)}; it must be float32, and is not converted in silence")
    index = _index(x)
    if not isinstance(w, torch.Tensor):
        _check_like(w, "w", x)
    if x.dim() and not x.shape[0]:  # nothing to compute, but wrong arguments are wrong
        _check_like(w, "w", x)
        problem = functional.problem_of(
            x.shape, w.shape, bias is not None, stride, padding, dilation, groups, precision, activation
        )
        return x.new_empty(problem.output_shape)
    convolution = planned(x, w, bias is not None, stride, padding, dilation, groups, precision, activation, index)
    stream = current_stream(index)
    keep, packed = packed_weights(convolution, w, bias, x, index, stream)
    if not x.is_contiguous() or x.is_neg():
        x = _contiguous(x)
    address = x.data_ptr()
    if address & 3:
        x = x.clone()
        address = x.data_ptr()
    y = x.new_empty(convolution.output_shape)
    convolution.run_raw(address, packed, y.data_ptr(), stream)
    return y


def needs_operator(x: Any, w: Any, bias: Any) -> bool:
    """Does PyTorch ask for more than the answer: gradients, autocast, a trace, a transform, a subclass?"""
    return (
        torch.compiler.is_compiling()
        or type(x) not in _plain
        or type(w) not in _plain
        or (_grad_enabled() and (x.requires_grad or w.requires_grad or (bias is not None and bias.requires_grad)))
        or _autocast_enabled()
        or _dispatch_modes() > 0
        or _transform() is not None
    )


def conv2d(
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
    """convtune.conv2d on PyTorch's tensors."""
    if needs_operator(x, w, bias):
        if not isinstance(w, torch.Tensor):
            _check_like(w, "w", x)
        if bias is not None and not isinstance(bias, torch.Tensor):
            _check_like(bias, "bias", x)
        from .torch import conv2d as operator

        return operator(x, w, bias, stride, padding, dilation, groups, precision=precision, activation=activation)
    return run(x, w, bias, stride, padding, dilation, groups, precision, activation)
