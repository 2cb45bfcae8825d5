"""Host memory of our own, aligned: where packed weights are kept when the caller's arrays bring no library
that could allocate (and on the CPU always, because numpy promises 16 bytes of alignment only)."""

from __future__ import annotations

import ctypes

from .errors import OutOfMemory

__all__ = ["HostMemory"]


class HostMemory:
    """`size` bytes of host memory at `pointer`, freed with this object."""

    __slots__ = ("_block", "pointer", "size")

    def __init__(self, size: int, alignment: int = 64) -> None:
        try:
            self._block = bytearray(size + alignment)  # never resized, so that it stays where it is
        except (MemoryError, OverflowError):
            raise OutOfMemory(f"no memory for {size} bytes of packed weights") from None
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._block))
        self.pointer = address + -address % alignment
        self.size = size
