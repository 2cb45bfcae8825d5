"""PyTorch's tensors on their way to a kernel: stream, precision, packed weights. The way itself is
convtune.torch's. What a call costs is counted in microseconds there, so a weight is checked only when it is packed.

PyTorch is imported by whoever made the tensors; this file is not imported without it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .caches import PACKS, Seen
from .convolution import Convolution
from .errors import InvalidArgument
from .memory import HostMemory

__all__ = [
    "allowed_precision", "alone", "between_reads", "check_like", "current_stream", "describe", "pack", "packed_weights", "renew",
    "seen",
]  # fmt: skip

_float32 = torch.float32
_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_fp32_precision: Any = getattr(torch._C, "_get_fp32_precision_getter", None)


def current_stream(index: int) -> int:
    """The current stream of cuda:`index` as an int; 0 on the CPU (index -1)."""
    if index < 0:
        return 0
    if _raw_stream is not None:
        return _raw_stream(index)  # type: ignore[no-any-return]
    return int(torch.cuda.current_stream(index).cuda_stream)


def allowed_precision(index: int) -> str:
    """The precision that PyTorch allows its own convolution on that device. On a GPU: since 2.9 what
    torch.backends.cudnn.conv's fp32_precision says, which inherits from cudnn's and from the global one while it is
    "none", and which `allow_tf32` sets; to read `allow_tf32` is an error after some settings. Before 2.9 what
    `allow_tf32` says."""
    if index < 0:
        return "fp32"
    if _fp32_precision is not None:
        return "tf32" if _fp32_precision("cuda", "conv") == "tf32" else "fp32"
    return "tf32" if torch.backends.cudnn.allow_tf32 else "fp32"


def seen(tensor: torch.Tensor) -> Seen:
    """Raises RuntimeError for a tensor that was made in inference mode: nobody counts its changes."""
    return Seen(tensor, StorageWeakRef(tensor.untyped_storage()))


def describe(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)} on {tensor.device}"


def check_like(tensor: Any, name: str, x: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise InvalidArgument(f"{name} is a {type(tensor).__name__}, x a PyTorch tensor ({describe(x)})")
    if tensor.dtype is not x.dtype:
        raise InvalidArgument(f"{name} is {describe(tensor)}, x {describe(x)}: nothing is converted in silence")
    if tensor.device != x.device:
        raise InvalidArgument(f"{name} is {describe(tensor)}, x {describe(x)}: they must be on one device")


def _contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Itself, or a copy where its memory is in another order, negated in the reading, or not aligned."""
    if tensor.is_contiguous() and not tensor.is_neg() and not tensor.data_ptr() & 3:
        return tensor
    return tensor.resolve_neg().clone(memory_format=torch.contiguous_format)


def pack(
    convolution: Convolution, w: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor, stream: int
) -> tuple[Any, int]:
    """(memory, address) of weights packed now, on `stream`, which must be the current one of x's device."""
    check_like(w, "w", x)
    if bias is not None:
        if bias.dtype is not _float32 or bias.device != x.device:  # a float32 bias goes with every type
            check_like(bias, "bias", x)
        problem = convolution.problem
        channels = problem.c if problem.direction == "bwd_d" else problem.k
        if bias.shape != (channels,):
            raise InvalidArgument(f"bias has the shape {tuple(bias.shape)}; it must be ({channels},)")
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


def lying(convolution: Convolution, w: torch.Tensor, x: torch.Tensor) -> int:
    """The weight's own address where it is what the convolution reads, else 0: then it is packed."""
    if not convolution.reads_weights or w.is_neg() or not w.movedim(1, -1).is_contiguous():
        return 0
    check_like(w, "w", x)
    pointer = w.data_ptr()
    return 0 if pointer % 256 else pointer


def pack_into(memory: torch.Tensor, convolution: Convolution, w: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Packs into memory of the caller's, on the current stream of its device. Weight and bias are of the problem's
    types."""
    stream = torch.cuda.current_stream(memory.device).cuda_stream if memory.is_cuda else 0
    w = _contiguous(w)
    bias = None if bias is None else _contiguous(bias)
    convolution.pack_raw(w.data_ptr(), 0 if bias is None else bias.data_ptr(), memory.data_ptr(), stream)


_writing: dict[torch.device, threading.Lock] = {}
os.register_at_fork(after_in_child=_writing.clear)  # whoever held one is not in the child


def _devices(tensors: tuple[torch.Tensor, ...]) -> list[torch.device]:
    return sorted({one.device for one in tensors}, key=str)


@contextlib.contextmanager
def alone(*tensors: torch.Tensor) -> Iterator[None]:
    """Lets one thread at a time pack weights on these tensors' devices: a second one finds it done. Each device has a lock of its
    own: whoever holds it may wait for that device, whose work may wait for what a thread launches on another one."""
    with contextlib.ExitStack() as locks:
        for device in _devices(tensors):  # in one order
            locks.enter_context(_writing.setdefault(device, threading.Lock()))
        yield


@contextlib.contextmanager
def between_reads(*tensors: torch.Tensor) -> Iterator[None]:
    """Surrounds writes, on these tensors' devices, to packed weights that any stream may read, and replays of CUDA graphs, which
    ask nobody: what was launched before has read them, and what is launched afterwards finds them written. The host waits for
    both, once for each change of weights. While a CUDA graph is recorded nothing is waited for: the writes are the graph's own."""
    gpus = [device for device in _devices(tensors) if device.type == "cuda"]
    if gpus and torch.cuda.is_current_stream_capturing():
        gpus = []
    for gpu in gpus:
        torch.cuda.synchronize(gpu)
    yield
    for gpu in gpus:
        torch.cuda.current_stream(gpu).synchronize()


def _of_a_compiled_graph(index: int, stream: int) -> bool:
    """True in the run before torch.compile records a CUDA graph. Its memory is of the graph's pool, and PyTorch raises
    an error where any of it is kept."""
    trees: Any = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is None:
        return False
    try:
        manager = trees.get_container(index).tree_manager
        return manager is not None and manager.stream.cuda_stream == stream
    except (AttributeError, AssertionError, LookupError):  # PyTorch of another version, or a thread that compiled nothing
        return True


def renew(w: torch.Tensor, whatever: bool = False) -> None:
    """Packs the weight anew where CUDA graphs read it packed, if it has changed, or `whatever` PyTorch has counted."""
    for entry in PACKS.recorded(w):
        bias = None if entry.bias is None else entry.bias()
        if (bias is None) != (entry.bias is None) or torch.cuda.is_current_stream_capturing():
            continue
        if not whatever and entry.holds_for(w, bias):
            continue
        with alone(entry.memory), torch.no_grad():
            if not whatever and entry.holds_for(w, bias):  # by now: another thread was faster
                continue
            of_w, of_bias = seen(w), None if bias is None else seen(bias)
            with between_reads(entry.memory):
                pack_into(entry.memory, entry.convolution, w, bias)
            entry.of_w, entry.of_bias = of_w, of_bias


def packed_weights(
    convolution: Convolution, w: torch.Tensor, bias: torch.Tensor | None, x: torch.Tensor, stream: int
) -> tuple[Any, int]:
    """(the object that keeps the memory, its address): from the cache where the tensors have not changed since, else packed
    now."""
    try:
        found = PACKS.find(w, bias, convolution, stream)
        if found is not None:
            return found, found.pointer
        of_w, of_bias = seen(w), None if bias is None else seen(bias)
    except RuntimeError:  # made in inference mode: nobody counts its changes
        return pack(convolution, w, bias, x, stream)
    memory, pointer = pack(convolution, w, bias, x, stream)
    renew(w)
    if not (x.is_cuda and _of_a_compiled_graph(x.get_device(), stream)):
        return PACKS.keep(w, bias, (of_w, of_bias), convolution, stream, memory, pointer), pointer
    return memory, pointer
