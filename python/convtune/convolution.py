"""Convolution: a problem planned once and run often. Here: the handle, its facts, and the calls of the hot
path that take plain addresses; what takes arrays is in functional.py.

For those who build on it (convtune.torch does):

    conv = Convolution(problem, "cuda:0")            # seconds where a kernel must be compiled, else milliseconds
    packed = torch.empty(conv.packed_bytes, dtype=torch.uint8, device="cuda:0")
    conv.pack_raw(w.data_ptr(), bias.data_ptr(), packed.data_ptr(), stream)
    conv.run_raw(x.data_ptr(), packed.data_ptr(), y.data_ptr(), stream)
    conv.run_tensors_raw(dy=dy.data_ptr(), dx=dx.data_ptr(), packed=packed.data_ptr(), stream=stream)

All is queued on `stream` (an int: a CUstream, 0 the default stream) and nothing waits. The memory must live until
the stream has passed: an allocator that frees in the order of that stream (PyTorch's, CuPy's) may be given it
back at once. A Convolution must live as long as a CUDA graph that recorded it; work that is queued goes on without.
"""

from __future__ import annotations

import json
from ctypes import byref, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any

from . import _library
from ._library import CTensors, fail
from .cached import cached_property
from .problem import Problem, as_problem
from .table import html_table

__all__ = ["Convolution", "Plan"]

_pack = _library.library.convtune_pack
_run = _library.library.convtune_run
_run_tensors = _library.library.convtune_run_tensors
_SIZE_OF_TENSORS = sizeof(CTensors)
_free = _library.library.convtune_convolution_free


@dataclass(frozen=True)
class Plan:
    """The chosen algorithm and config, and why. `source`: "tuned" (measured here), "unproven" (measured here, but the
    contest with the vendor is not decided), "nearest" (from a record of a like problem), "estimate" (no record) or
    "forced" (by the caller)."""

    algorithm: str
    config: str
    source: str
    why: str

    def __str__(self) -> str:
        how = f"{self.algorithm} {self.config}".rstrip()
        return f"{how} ({self.source}: {self.why})"

    def _repr_html_(self) -> str:
        """A table, in a notebook."""
        return html_table(["algorithm", "config", "source", "why"], [[self.algorithm, self.config, self.source, self.why]])


class Convolution:
    """A planned convolution. Immutable: any number of threads may run it. Planning never measures.

    `problem`: a Problem or its text. `device`: "cpu", "cuda:0", a Device, a torch.device, or None for the best.
    `algorithm` and `config` ("vectors=4 channels=6"): None, and records and estimates choose.

    Attributes: `problem` (its precision resolved to the device's default), `device` ("cuda:0"), `plan` (a Plan),
    `packed_bytes` (memory that packed weights take, on the device).

    Raises InvalidArgument for a bad problem, algorithm or config; Unsupported with the algorithm's own reason;
    NoDevice that lists what there is.
    """

    _handle: int | None
    problem: Problem
    device: str
    plan: Plan
    packed_bytes: int
    packing: str  # equal for two convolutions on one device whose packed weights serve both

    def __init__(
        self, problem: Problem | str, device: Any = None, algorithm: str | None = None, config: str | None = None
    ) -> None:
        self._handle = None
        asked = as_problem(problem)
        handle = c_void_p()
        _library.check(
            _library.library.convtune_plan(
                *(byref(asked.to_c()), _library.device_text(device), _library.c_text(algorithm)),
                *(_library.c_text(config), byref(handle)),
            )
        )
        self._handle = handle.value
        plan = _library.take_text(_library.library.convtune_plan_json, handle)
        facts: dict[str, Any] = json.loads(plan)
        self.packing = facts["packed_order"] or plan
        # Packed weights are the filter itself, channels last: one that lies so is given as it is.
        self.reads_weights = facts["packed_order"] == "krsc"
        self.can_lay_dw_last = bool(facts.get("can_lay_dw_last"))
        resolved = Problem.parse(facts["problem"])
        self.problem = resolved.replace(name=asked.name) if asked.name else resolved
        self.device = facts["device"]
        self.plan = Plan(facts["algorithm"], facts["config"], facts["source"], facts["why"])
        self.packed_bytes = _library.library.convtune_packed_bytes(handle)

    def pack_raw(self, w: int, bias: int, packed: int, stream: int = 0) -> None:
        """Queues the packing of weights [K][C/groups][T][R][S] and bias [K] (0 where there is none; [3][K] with a Snake), both
        of the problem's types and contiguous on the device, into `packed_bytes` of memory there, aligned to 256 bytes (64
        on a CPU)."""
        status = _pack(self._handle, w, bias, packed, stream)
        if status:
            fail(status)

    def run_raw(self, x: int, packed: int, y: int, stream: int = 0) -> None:
        """Queues y = act(conv(x, w) + bias) on contiguous tensors of the problem's shapes, types and layout; y must not
        overlap the others. Nothing is checked but null pointers."""
        status = _run(self._handle, x, packed, y, stream)
        if status:
            fail(status)

    def run_tensors_raw(
        self, *, x: int = 0, residual: int = 0, dy: int = 0, y: int = 0, dx: int = 0, dw: int = 0, dbias: int = 0,
        cache: int = 0, cache_out: int = 0, packed: int = 0, stream: int = 0, dw_last: bool = False,
    ) -> None:  # fmt: skip
        """`run_raw` for every problem: with a residual (which may be y), with a cache, or a gradient from dy. What the
        problem has no use for is left out; backward weights has no packed weights. `cache_out`: where the frames that
        the next call needs are written, or 0. `dw_last`: dw is stored channels last, where `can_lay_dw_last` says so."""
        tensors = CTensors(_SIZE_OF_TENSORS, x, residual, dy, y, dx, dw, dbias, cache, cache_out, dw_last)
        status = _run_tensors(self._handle, tensors, packed, stream)
        if status:
            fail(status)

    def explain(self) -> str:
        """A few lines: the problem, the plan, where it came from, what the other algorithms answered."""
        return _library.take_text(_library.library.convtune_explain, self._handle)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        return self.problem.output_shape

    def __repr__(self) -> str:
        return f"<convtune.Convolution {self.problem} on {self.device}: {self.plan}>"

    def __reduce__(self) -> Any:
        # Planned again where it is unpickled, by that machine's records, unless the caller chose.
        forced = self.plan.source == "forced"
        how = (self.plan.algorithm, self.plan.config) if forced else (None, None)
        return Convolution, (self.problem, self.device, *how)

    def __del__(self, free: Any = _free) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            free(handle)
