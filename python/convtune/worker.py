"""The worker's part of tune_all: one problem searched on a device of this host that no other worker searches on. What goes
there and back is plain data, so that every executor can send it."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from . import _library
from .errors import DeviceLost, Error, FileError, NoDevice
from .machine import Device, devices
from .problem import Problem
from .tuning import search

__all__ = [
    "Found", "Work", "devices_of", "import_records", "kind_of", "kinds", "known_records", "name", "search_here", "stop",
    "work_of",
]  # fmt: skip

_WAIT_SECONDS = 0.05  # between two looks for a free device

_stopped: set[str] = set()  # calls of tune_all in this process that were
_lost: set[str] = set()  # devices of this process that are


@dataclass(frozen=True)
class Work:
    """A problem to search on a device with the fingerprint `kind`. `records`: the caller's own of it, lines of JSON.
    `caller`: its host and process, of which this is one `call`."""

    problem: str
    kind: str
    budget: float
    min_gain: float
    trials: int
    retune: bool
    records: str = ""
    caller: str = ""
    call: str = ""


@dataclass(frozen=True)
class Found:
    """A worker's answer: the record as a line of JSON, and the report of tune; or the name of an error and its words."""

    worker: str
    records: str = ""
    report: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    why: str = ""


def work_of(asked: Work, problem: str, kind: str, records: str) -> Work:
    return replace(asked, problem=problem, kind=kind, records=records)


def kind_of(device: str | None) -> str:
    """The fingerprint of "cpu", "cuda", "cuda:1", a fingerprint, or of the best device here. Raises NoDevice."""
    here = devices()
    for one in here:
        if device is None or device in (one.device, one.fingerprint) or device == one.device.partition(":")[0]:
            return one.fingerprint
    raise NoDevice(f"there is no device {device} on {name()}; there is " + ", ".join(map(_both, here)))


def kinds(device: str | None) -> tuple[str, list[str]]:
    """The kind to search for, and the other kinds of GPU that are here, where none was asked for."""
    kind = kind_of(device)
    others = {one.fingerprint for one in devices() if one.device.startswith("cuda")} - {kind}
    return kind, sorted(others) if device is None else []


def devices_of(kind: str) -> list[Device]:
    return [one for one in devices() if one.fingerprint == kind]


def search_here(work: Work) -> Found:
    """The whole of a worker's work. What the library refuses is in the answer. A process that is not the caller's ends
    where its device is lost, since only a new one can use it again."""

    def go_on(_: object = None) -> None:
        if work.call in _stopped:
            raise KeyboardInterrupt("tune_all was stopped")

    try:
        with _free_device(work.kind, go_on) as device:
            if work.records:
                import_records(work.records, "the caller's records")
            report = search(
                Problem.parse(work.problem), device, work.budget, work.min_gain, go_on, work.trials, work.retune, True
            )
        assert report.tuning is not None
        if report.tuning.not_recorded or report.tuning.record is None:
            raise FileError(f"the result is not recorded: {report.tuning.not_recorded}")
        return Found(name(), Path(report.tuning.record).read_text("utf-8"), report.json)
    except Error as why:
        if isinstance(why, DeviceLost) and work.caller != name():
            print(f"convtune: worker {name()} ends: {why}", file=sys.stderr, flush=True)
            os._exit(4)
        return Found(name(), error=type(why).__name__, why=str(why))


def stop(call: str) -> None:
    """Ends what threads of this process search for the call, at their next step."""
    _stopped.add(call)


def import_records(lines: str, source: str) -> dict[str, Any]:
    """Merges a pack as `convtune db import` does: {"imported": ..., "kept": ..., "rejected": ..., "problems": ...}."""
    found: dict[str, Any] = _library.take_json(
        _library.library.convtune_import_records, _library.c_text(lines), _library.c_text(source)
    )
    return found


def known_records(kind: str) -> dict[Problem, str]:
    """This user's records of that kind of device, by their problems with the precision left open."""
    found: dict[Problem, str] = {}
    for line in _library.take_text(_library.library.convtune_export_records).splitlines():
        record = json.loads(line)
        if record["device"] == kind:
            problem = Problem.parse(record["problem"]).replace(precision="auto")
            found[problem] = found.get(problem, "") + line + "\n"
    return found


def name() -> str:
    """The host and process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _both(device: Device) -> str:
    return f"{device.device} ({device.fingerprint})"


@contextlib.contextmanager
def _free_device(kind: str, go_on: Any) -> Iterator[Device]:
    """A device of that kind that is this thread's while the context lasts, and by its side no other's of this host: a
    name among its abstract sockets says so, which nobody has to tidy up. Of a CPU, as many of its threads."""
    mine = [(one, place) for one in devices_of(kind) if one.device not in _lost for place in _places(one)]
    if not mine and (gone := [one.device for one in devices_of(kind) if one.device in _lost]):
        raise DeviceLost(f"a kernel broke {', '.join(gone)} for this process; a new process can use it again")
    if not mine:
        raise NoDevice(
            f"there is no {kind} here, but " + ", ".join(map(_both, devices()))
            + "; all workers need devices of one kind: call tune_all for each kind with workers of its own"
        )  # fmt: skip
    while True:
        go_on()
        for one, place in mine:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as held:
                try:
                    held.bind("\0convtune " + place)
                except OSError as why:
                    if why.errno != errno.EADDRINUSE:
                        raise
                    continue
                try:
                    yield one
                except DeviceLost:
                    _lost.add(one.device)
                    raise
                return
        time.sleep(_WAIT_SECONDS)


def _places(device: Device) -> list[str]:
    """The names of a device's places: a GPU has one, a CPU one for each share of its processors."""
    if device.device.startswith("cuda"):
        return [_bus_id(int(device.device.partition(":")[2]))]
    processors = sorted(os.sched_getaffinity(0))
    mine = hashlib.sha256(repr(processors).encode()).hexdigest()[:16]
    return [f"cpu {mine} {share}" for share in range(max(1, len(processors) // device.units))]


def _bus_id(index: int) -> str:
    """The GPU's address, which is the same in every process of the host, whatever CUDA_VISIBLE_DEVICES hides there."""
    driver = ctypes.CDLL("libcuda.so.1")  # loaded: the device was found by it
    device, text = ctypes.c_int(), ctypes.create_string_buffer(32)
    if driver.cuDeviceGet(ctypes.byref(device), index) or driver.cuDeviceGetPCIBusId(text, len(text), device):
        raise NoDevice(f"cuda:{index} does not tell its address on {name()}")
    return text.value.decode()
