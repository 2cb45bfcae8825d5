"""The devices of this machine."""

from __future__ import annotations

from dataclasses import dataclass

from . import _library
from .caches import PLANS
from .errors import InvalidArgument
from .geometry import whole

__all__ = ["Device", "devices", "set_cpu_threads"]


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
    """The devices of this machine, the best first; the CPU is always the last."""
    found = _library.take_json(_library.library.convtune_devices)["devices"]
    fields = Device.__dataclass_fields__
    return [Device(**{name: one[name] for name in fields}) for one in found]


def set_cpu_threads(threads: int) -> None:
    """Sets how many CPU threads convolutions that are planned from now on may use; a plan that the caller holds keeps its number.
    Raises InvalidArgument for what is no whole number, and from 2**31 on."""
    number = whole(threads, "threads")
    if abs(number) >= 2**31:
        raise InvalidArgument(f"threads is {number}; no machine has as many")
    _library.check(_library.library.convtune_set_cpu_threads(number))
    PLANS.clear()
