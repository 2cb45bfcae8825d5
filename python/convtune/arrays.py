"""Arrays of other libraries as addresses, and back: NumPy, PyTorch, CuPy and JAX by name, anything else in host
memory by DLPack or __array_interface__.

* No copy is made of an array that is contiguous, aligned to its element and of the right type. One that is not
  contiguous is made so by its own library: a copy. Other types are refused: nothing is converted in silence.
* Results are arrays of the caller's library. JAX arrays never change, so theirs are made from host memory of NumPy's,
  handed over by DLPack; JAX on a GPU is refused, because its streams take no work from outside. Libraries that are
  not named above get NumPy arrays.
* On a GPU work is queued on the library's current stream and nothing waits. All memory comes from the library's own
  allocator, which frees in the order of that stream: nothing needs to be kept until the work is done.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from ctypes import addressof, c_char
from dataclasses import dataclass
from typing import Any, Protocol

from . import dlpack
from .errors import Error, InvalidArgument, Unsupported

__all__ = ["Array", "Library", "describe", "floats", "library_of", "overlap", "read", "write"]

ELEMENT_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "uint8": 1}
_FLOATS = ("float32", "float16", "bfloat16")


class Library(Protocol):
    """The questions to an array library. `device`: "cpu" or "cuda:0"."""

    name: str

    def describe(self, array: Any) -> Array:
        """The array as it is, contiguous or not."""

    def contiguous(self, array: Any) -> Any:
        """A copy in row-major order, aligned."""

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        """Uninitialised."""

    def finish(self, array: Array) -> Any:
        """The result for the caller of what `empty` made."""

    def stream(self, device: str) -> int:
        """The current one."""


@dataclass
class Array:
    """An array's place in memory, its shape and type. `keep`: the object that its memory lives by."""

    keep: Any
    library: Library
    pointer: int
    shape: tuple[int, ...]
    dtype: str
    device: str
    contiguous: bool
    writable: bool = True

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape} on {self.device}"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * ELEMENT_BYTES.get(self.dtype, 1)


def _index(device: str) -> int:
    """3 of "cuda:3"; -1 of "cpu"."""
    return -1 if device == "cpu" else int(device.rpartition(":")[2])


@functools.lru_cache(64)
def _name_of_numpy_type(dtype: Any) -> str:
    # The name alone says nothing of the order of the bytes.
    return str(dtype.name) if dtype.isnative else f"{dtype.name} of swapped bytes"


def _type_for_numpy(dtype: str) -> Any:
    """NumPy and those like it know a bfloat16 by ml_dtypes alone."""
    if dtype != "bfloat16":
        return dtype
    try:
        return importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        raise Unsupported("a bfloat16 result is an array of NumPy's only where ml_dtypes is installed") from None


class _NumPy:
    name = "numpy"

    def describe(self, array: Any) -> Array:
        if hasattr(array, "mask"):
            raise InvalidArgument(f"a {type(array).__name__} would lose its mask; numpy.asarray says that it may")
        flags = array.flags
        contiguous = flags.c_contiguous and flags.aligned
        dtype = _name_of_numpy_type(array.dtype)
        # __array_interface__ always has the address, and takes four times as long.
        if contiguous and flags.writeable and array.size and dtype in ("float32", "float16"):
            address = addressof(c_char.from_buffer(array))
        else:
            address = array.__array_interface__["data"][0]
        return Array(array, self, address, array.shape, dtype, "cpu", contiguous, flags.writeable)

    def contiguous(self, array: Any) -> Any:
        import numpy

        return numpy.array(array, order="C", copy=True, subok=False)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        return _of_numpy(_aligned(shape, dtype), self)

    def finish(self, array: Array) -> Any:
        return array.keep

    def stream(self, device: str) -> int:
        return 0


class _Torch:
    name = "torch"

    def describe(self, array: Any) -> Array:
        if array.is_cuda:
            device = f"cuda:{array.get_device()}"
        elif array.is_cpu:
            device = "cpu"
        else:
            raise Unsupported(f"a PyTorch tensor on {array.device}: convtune runs on cpu and cuda")
        dtype = str(array.dtype).removeprefix("torch.")
        contiguous = array.is_contiguous() and not array.is_neg()
        return Array(array, self, array.data_ptr(), tuple(array.shape), dtype, device, contiguous)

    def contiguous(self, array: Any) -> Any:
        return array.resolve_neg().clone(memory_format=sys.modules["torch"].contiguous_format)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        torch = sys.modules["torch"]
        return self.describe(torch.empty(shape, dtype=getattr(torch, dtype), device=device))

    def finish(self, array: Array) -> Any:
        return array.keep

    def stream(self, device: str) -> int:
        from .tensors import current_stream

        return current_stream(_index(device))


class _CuPy:
    name = "cupy"

    def describe(self, array: Any) -> Array:
        device = f"cuda:{array.device.id}"
        contiguous = bool(array.flags.c_contiguous)
        return Array(array, self, array.data.ptr, tuple(array.shape), array.dtype.name, device, contiguous)

    def contiguous(self, array: Any) -> Any:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(array.device.id):
            return cupy.array(array, order="C", copy=True)

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Array:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(_index(device)):
            return self.describe(cupy.empty(shape, _type_for_numpy(dtype)))

    def finish(self, array: Array) -> Any:
        return array.keep

    def stream(self, device: str) -> int:
        cupy = sys.modules["cupy"]
        with cupy.cuda.Device(_index(device)):
            return int(cupy.cuda.get_current_stream().ptr)


class _HostOnly(_NumPy):
    """Libraries that are read through DLPack or __array_interface__, in host memory; results are NumPy's."""

    name = "dlpack"

    def describe(self, array: Any) -> Array:
        kind = f"{type(array).__module__}.{type(array).__qualname__}".removeprefix("builtins.")
        if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
            device, number = dlpack.device_of(array)
            if device not in (dlpack.CPU, dlpack.CUDA_HOST):
                where = f"cuda:{number}" if device in (dlpack.CUDA, dlpack.CUDA_MANAGED) else f"DLPack device {device}"
                raise Unsupported(
                    f"a {kind} on {where}: convtune queues work on the streams of PyTorch and CuPy alone; "
                    "torch.from_dlpack or cupy.from_dlpack takes it without a copy"
                )
            capsule = dlpack.Capsule(array)
            place = capsule.pointer, capsule.shape, capsule.dtype, "cpu"
            return Array(capsule, self, *place, capsule.contiguous, capsule.writable and self.name != "jax")
        if hasattr(array, "__cuda_array_interface__"):
            raise Unsupported(f"a {kind} on a GPU: cupy.asarray takes it without a copy, and convtune takes that")
        if hasattr(array, "__array_interface__"):
            import numpy

            return _NUMPY.describe(numpy.asarray(array))
        raise InvalidArgument(f"a {kind} is not an array: it has neither __dlpack__ nor __array_interface__")

    def contiguous(self, array: Any) -> Any:
        import numpy

        return numpy.array(numpy.from_dlpack(array), order="C", copy=True)


class _Jax(_HostOnly):
    name = "jax"

    def describe(self, array: Any) -> Array:
        if not hasattr(array, "__dlpack_device__"):
            raise Unsupported(f"a {type(array).__name__} has no numbers yet: call convtune outside of jax.jit and jax.grad")
        return super().describe(array)

    def finish(self, array: Array) -> Any:
        jax = sys.modules["jax"]
        if array.dtype == "bfloat16":  # NumPy has no DLPack for it
            return jax.numpy.asarray(array.keep)
        return jax.dlpack.from_dlpack(array.keep)


def _aligned(shape: tuple[int, ...], dtype: str) -> Any:
    """An array of NumPy's that begins at a line of the cache: a CPU stores outputs fastest there, and XLA copies none."""
    import numpy

    size = math.prod(shape) * ELEMENT_BYTES[dtype]
    block = numpy.empty(size + 64, numpy.uint8)
    start = -addressof(c_char.from_buffer(block)) % 64
    return block[start : start + size].view(_type_for_numpy(dtype)).reshape(shape)


def _of_numpy(array: Any, library: Library) -> Array:
    """Memory of NumPy's that serves another library."""
    described = _NUMPY.describe(array)
    described.library = library
    return described


_NUMPY, _TORCH, _CUPY, _JAX, _HOST = _NumPy(), _Torch(), _CuPy(), _Jax(), _HostOnly()


def _has_ancestor(kind: type, module: str, name: str) -> bool:
    """True where `kind` is that class of a library that is imported already. Nothing is imported to find out."""
    loaded = sys.modules.get(module)
    ancestor = getattr(loaded, name, None) if loaded is not None else None
    return isinstance(ancestor, type) and issubclass(kind, ancestor)


def library_of(array: Any) -> Library:
    kind = type(array)
    if _has_ancestor(kind, "numpy", "ndarray"):
        return _NUMPY
    if _has_ancestor(kind, "torch", "Tensor"):
        return _TORCH
    if _has_ancestor(kind, "cupy", "ndarray"):
        return _CUPY
    if "jax" in sys.modules and isinstance(array, sys.modules["jax"].Array):
        return _JAX
    return _HOST


def describe(array: Any, name: str) -> Array:
    """The array's place in memory, whatever its type and order. Raises InvalidArgument or Unsupported, with `name`."""
    try:
        return library_of(array).describe(array)
    except Error as why:
        raise type(why)(f"{name}: {why}") from None
    except (BufferError, TypeError, RuntimeError, AttributeError, ValueError) as why:  # its library's own words
        raise InvalidArgument(f"{name} cannot be read: {why}") from why


def floats(array: Any, name: str) -> Array:
    """`describe`, of an array of a type that there are convolutions of."""
    return _described(array, name, _FLOATS)


def _described(array: Any, name: str, dtypes: tuple[str, ...]) -> Array:
    found = describe(array, name)
    if found.dtype not in dtypes:
        known = " or ".join(dtypes)
        raise InvalidArgument(f"{name} is {found}; it must be {known}, and is not converted in silence")
    return found


def read(array: Any, name: str, dtype: str | None = None, like: Array | None = None) -> Array:
    """An input called `name`, contiguous and aligned: itself, or a copy made by its library. `dtype`: None for any type
    that there are convolutions of. `like`: the array whose library and device it must share."""
    found = _described(array, name, (dtype,) if dtype else _FLOATS)
    if like is not None and found.device != like.device:
        raise InvalidArgument(f"{name} is on {found.device} ({found}), the input on {like.device} ({like})")
    if like is not None and found.device != "cpu" and found.library is not like.library:
        raise InvalidArgument(
            f"{name} is an array of {found.library.name}, the input of {like.library.name}: on a GPU they must share "
            "a library, whose stream the work is queued on"
        )
    if found.contiguous and found.pointer % ELEMENT_BYTES[found.dtype] == 0:
        return found
    copied = found.library.contiguous(array)
    return (found.library if library_of(copied) is found.library else _NUMPY).describe(copied)


def write(array: Any, name: str, dtype: str, like: Array) -> Array:
    """An output of the caller's: contiguous, writable and in its place, or refused."""
    found = _described(array, name, (dtype,))
    if found.device != like.device or found.library is not like.library:
        raise InvalidArgument(
            f"{name} is an array of {found.library.name} on {found.device}, the input of {like.library.name} on "
            f"{like.device}"
        )
    if not found.contiguous or found.pointer % ELEMENT_BYTES[dtype]:
        raise InvalidArgument(f"{name} ({found}) is not contiguous; what is written to must be")
    if not found.writable:
        raise InvalidArgument(f"{name} ({found}) is read-only")
    return found


def overlap(a: Array, b: Array) -> bool:
    return a.device == b.device and a.pointer < b.pointer + b.bytes and b.pointer < a.pointer + a.bytes
