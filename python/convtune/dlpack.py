"""DLPack capsules, read through ctypes: where an array's memory is, without a copy and without its library."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_int32, c_int64, c_uint8, c_uint16, c_uint32, c_uint64, c_void_p
from typing import Any

from .errors import InvalidArgument

__all__ = ["CPU", "CUDA", "CUDA_HOST", "CUDA_MANAGED", "Capsule", "device_of"]

# DLDeviceType.
CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13

_READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

# DLDataTypeCode, where its name and its bits are numpy's.
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}


class _DLTensor(ctypes.Structure):
    _fields_ = (
        [("data", c_void_p), ("device_type", c_int32), ("device_id", c_int32), ("ndim", c_int32)]
        + [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]
        + [("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)), ("byte_offset", c_uint64)]
    )  # fmt: skip


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]


def device_of(array: Any) -> tuple[int, int]:
    """(DLDeviceType, number) of an array with __dlpack_device__."""
    kind, number = array.__dlpack_device__()
    return int(kind), int(number)


class Capsule:
    """A tensor as its capsule describes it. The memory lives as long as this object: the capsule is never marked as
    used, so that its own destructor gives the memory back to the producer."""

    __slots__ = ("_capsule", "device", "dtype", "pointer", "shape", "strides", "writable")

    def __init__(self, array: Any) -> None:
        # No stream is asked for, because only host memory is read so. Producers from before version 1.0 do not know
        # the argument; those after it may refuse read-only memory without it.
        try:
            self._capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:
            self._capsule = array.__dlpack__()
        self.writable = True  # as long as nothing else is said
        if _is_valid(self._capsule, b"dltensor_versioned"):
            # A DLManagedTensorVersioned: version, context, deleter and flags come before its DLTensor.
            start = _get_pointer(self._capsule, b"dltensor_versioned")
            version = c_uint32.from_address(start).value
            if version > 1:
                raise InvalidArgument(f"DLPack of version {version} is not understood")
            self.writable = not c_uint64.from_address(start + 24).value & _READ_ONLY
            tensor = _DLTensor.from_address(start + 32)
        else:
            # A DLManagedTensor begins with its DLTensor.
            tensor = _DLTensor.from_address(_get_pointer(self._capsule, b"dltensor"))
        self.device = tensor.device_type, tensor.device_id
        self.pointer = (tensor.data or 0) + tensor.byte_offset
        self.shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
        # In elements; none: contiguous.
        self.strides = tuple(tensor.strides[: tensor.ndim]) if tensor.strides and tensor.ndim else None
        if tensor.lanes != 1:
            raise InvalidArgument(f"a DLPack tensor of vectors of {tensor.lanes} numbers is not understood")
        kind = _KINDS.get(tensor.code, f"DLPack type {tensor.code} of bits ")
        self.dtype = kind if kind == "bool" else f"{kind}{tensor.bits}"

    @property
    def contiguous(self) -> bool:
        """True for row-major order without gaps; strides of extents of 1 mean nothing."""
        if self.strides is None or 0 in self.shape:
            return True
        expected = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides)):
            if extent != 1 and stride != expected:
                return False
            expected *= extent
        return True
