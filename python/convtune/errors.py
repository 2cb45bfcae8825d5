"""The errors that convtune raises. Every message names what was wrong, where, and the numbers; where the library itself
said no, the message is the library's own. An error is also the built-in exception that a caller would expect."""

from __future__ import annotations

__all__ = [
    "DeviceLost",
    "Error",
    "FileError",
    "InternalError",
    "InvalidArgument",
    "NoDevice",
    "OutOfMemory",
    "Unsupported",
]


class Error(RuntimeError):
    """Everything that convtune raises, and anything that has no narrower name."""


class InvalidArgument(Error, ValueError):
    """A bad problem, array, name or option."""


class Unsupported(Error, NotImplementedError):
    """Understood, but nothing here can do it."""


class NoDevice(Error):
    """The device asked for is not in this machine."""


class FileError(Error, OSError):
    """A file could not be read or written."""


class DeviceLost(Error):
    """A kernel broke the device for this process: only a new process can use it again."""


class InternalError(Error):
    """convtune, or a library under it, broke a promise."""


class OutOfMemory(Error, MemoryError):
    """The host has no memory left. Too little on a GPU is Unsupported, and the memory of arrays is their own library's,
    which raises its own."""
