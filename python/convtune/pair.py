"""Pair: two convolutions of a residual step in one kernel, y = x + conv2(act(conv1(act(x)))), planned once and run often.

Rows alone, in half precision and channels last: x and y are dense (N, L, C), C to C channels, stride 1, odd filters, zeros on
both sides so that y is as long as x; the first convolution may be dilated. `act` is one leaky ReLU, or a Snake in front of each:
x + scale * sin(alpha * x)^2, with two numbers a channel. torch/pairs.py has the operator, and the two convolutions where no
kernel is."""

from __future__ import annotations

import re
from ctypes import byref, c_void_p, sizeof
from dataclasses import dataclass
from typing import Any

from . import _library
from ._library import DTYPES, SNAKES, CPairProblem, CPairWeights, fail
from .cached import cached_property
from .errors import InvalidArgument
from .words import activation_of, activation_text, one_of

__all__ = ["Pair", "PairProblem"]

_TEXT = re.compile(r"pair n(\d+)c(\d+)t(\d+)k(\d+)d(\d+)k(\d+) dtype=(\w+) act=(\S+)(?: snake=(\w+))?( activated=1)?")
_SIZE_OF_WEIGHTS = sizeof(CPairWeights)
_pack = _library.library.convtune_pair_pack
_run = _library.library.convtune_pair_run
_free = _library.library.convtune_pair_free


@dataclass(frozen=True)
class PairProblem:
    """A residual step by its sizes. `n, c, t`: images, channels and positions; `first_taps`, `dilation`, `second_taps`: of the
    filters, of which the second has no dilation; `dtype`: "f16" or "bf16", of all tensors; `slope`: of the leaky ReLU in front of
    both, None of Snakes; `snake`: none, or one more behind the sum, of what is stored: after, y is what it makes, or beside, y has
    twice the batch, and those behind. `activated`: behind x, which has twice the batch then, lies what the first activation makes of it.
    Raises InvalidArgument."""

    n: int
    c: int
    t: int
    first_taps: int
    dilation: int
    second_taps: int
    dtype: str
    slope: float | None
    snake: str = "none"
    activated: bool = False

    def __post_init__(self) -> None:
        for name in ("n", "c", "t", "first_taps", "dilation", "second_taps"):
            if (value := getattr(self, name)) < 1:
                raise InvalidArgument(f"a pair's {name} is {value}; it is at least 1")
        if not (self.first_taps % 2 and self.second_taps % 2):
            raise InvalidArgument(f"a pair's filters have {self.first_taps} and {self.second_taps} taps: both must be odd")
        one_of(self.dtype, DTYPES[1:], "dtype")
        one_of(self.snake, SNAKES, "snake")

    @staticmethod
    def parse(text: str) -> PairProblem:
        found = _TEXT.fullmatch(text)
        if found is None:
            raise InvalidArgument(f"{text!r} is no pair: pair nNcCtLkTAPSdDILATIONkTAPS dtype=TYPE act=leaky_relu:SLOPE or snake, snake=after or beside, activated=1")
        *sizes, dtype, act, snake, activated = found.groups()
        slope = None if act == "snake" else activation_of(act)[1][0]
        return PairProblem(*map(int, sizes), dtype, slope, snake or "none", activated is not None)  # type: ignore[call-arg, arg-type]

    def __str__(self) -> str:
        act = "snake" if self.slope is None else activation_text("leaky_relu", (self.slope,))
        sizes = f"n{self.n}c{self.c}t{self.t}k{self.first_taps}d{self.dilation}k{self.second_taps}"
        behind = ("" if self.snake == "none" else f" snake={self.snake}") + (" activated=1" if self.activated else "")
        return f"pair {sizes} dtype={self.dtype} act={act}{behind}"

    @property
    def flops(self) -> int:
        return 2 * self.n * self.t * self.c * self.c * (self.first_taps + self.second_taps)

    def to_c(self) -> CPairProblem:
        slope = 0.0 if self.slope is None else self.slope
        sizes = self.n, self.c, self.t, self.first_taps, self.dilation, self.second_taps
        return CPairProblem(sizeof(CPairProblem), *sizes, DTYPES.index(self.dtype), int(self.slope is None), slope, SNAKES.index(self.snake), self.activated, 0)


class Pair:
    """A planned pair. Immutable: any number of threads may run it, and CUDA graphs record it. Planning compiles its kernel, once a
    shape, and never measures. `config`: None, and the kernel's estimate chooses.

    Attributes: `problem`, `device` ("cuda:0"), `config`, `configs` (all that there are, first what should be fastest),
    `packed_bytes` (of weights, on the device), `packing` (equal for two pairs whose packed weights serve both). Raises
    Unsupported where no kernel is for it, or for this device."""

    _handle: int | None

    def __init__(self, problem: PairProblem, device: Any, config: str | None = None) -> None:
        self._handle = None
        handle = c_void_p()
        asked = byref(problem.to_c()), _library.device_text(device), _library.c_text(config), byref(handle)
        _library.check(_library.library.convtune_pair_plan(*asked))
        self._handle, self.problem = handle.value, problem
        facts = _library.take_json(_library.library.convtune_pair_json, handle)
        self.device, self.config, self.configs = facts["device"], facts["config"], facts["configs"]
        self.packing = f"pair {facts['packed_order']}"
        self.packed_bytes = _library.library.convtune_pair_packed_bytes(handle)

    def pack_raw(
        self, first: int, first_bias: int, second: int, second_bias: int, first_alpha: int, first_scale: int,
        second_alpha: int, second_scale: int, packed: int, stream: int = 0, behind_alpha: int = 0, behind_scale: int = 0,
    ) -> None:  # fmt: skip
        """Queues the packing of weights [C][C][taps] and biases [C] (0 where there is none), of the problem's type, and of the
        Snakes' numbers, floats [C] (0 where there is none), all contiguous on the device, into `packed_bytes` of memory there,
        aligned to 256 bytes."""
        of = (first, first_bias, second, second_bias, first_alpha, first_scale, second_alpha, second_scale, behind_alpha, behind_scale)
        weights = CPairWeights(_SIZE_OF_WEIGHTS, *of)
        if status := _pack(self._handle, byref(weights), packed, stream):
            fail(status)

    def run_raw(self, x: int, packed: int, y: int, stream: int = 0) -> None:
        """Queues the pair on dense tensors [n][t][c] aligned to 16 bytes; y must not overlap x."""
        if status := _run(self._handle, x, packed, y, stream):
            fail(status)

    @cached_property
    def shape(self) -> tuple[int, int, int]:
        """The shape of x and of the sums, channels first."""
        return self.problem.n, self.problem.c, self.problem.t

    def __repr__(self) -> str:
        return f"<convtune.Pair {self.problem} on {self.device}: {self.config}>"

    def __del__(self, free: Any = _free) -> None:
        handle, self._handle = getattr(self, "_handle", None), None
        if handle:
            free(handle)
