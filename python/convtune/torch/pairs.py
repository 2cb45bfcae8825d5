"""`convtune::pair1d_packed`: a residual step, y = x + conv2(act(conv1(act(x)))), by one proven kernel which reads weights that were
packed before; what it is packed of; and `residual_pair1d`, the step as a call.

    y = torch.ops.convtune.pair1d_packed(x, packed, plan)     # x (N, C, L) whose channels come last in memory

`plan` is a line of pair_line. There are no gradients. docs/decisions/0175-a-residual-step-as-one-operator.md has the reasons.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ..caches import PLANS
from ..errors import InvalidArgument, Unsupported
from ..pair import Pair, PairProblem
from ..tensors import check_like
from .folding import Fold
from .layout import copied, empty, lies
from .native import OF_PLAN, define
from .ordinary import is_ordinary, is_transformed
from .run import fingerprint, refuse_in_capture

__all__ = ["PairFold", "Snake", "pack_pair", "pair1d_packed", "pair_line", "pair_of", "planned_pair", "residual_pair1d", "stored"]

_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_TYPES = {torch.float16: "f16", torch.bfloat16: "bf16"}
_DTYPES = {name: dtype for dtype, name in _TYPES.items()}


def pair_line(pair: Pair) -> str:
    """The line by which a graph says which kernel runs a pair, on that kind of device."""
    return "\t".join((fingerprint(pair.device), str(pair.problem), pair.config))


@lru_cache(4096)
def pair_of(plan: str) -> tuple[str, PairProblem, str]:
    """(fingerprint of the device, problem, config) of a line."""
    fields = plan.split("\t")
    if len(fields) != 3:
        raise InvalidArgument(f"{plan!r} is no plan of a pair: fingerprint, pair and config, by tabs")
    return fields[0], PairProblem.parse(fields[1]), fields[2]


def planned_pair(plan: str, index: int) -> Pair:
    """The pair of that line on the GPU `index`, or on the CPU (-1). Raises InvalidArgument on another kind of device."""

    def make() -> Pair:
        own, problem, config = pair_of(plan)
        device = "cpu" if index < 0 else f"cuda:{index}"
        if fingerprint(device) != own:
            raise InvalidArgument(f"{device} is {fingerprint(device)!r}; the graph was compiled for {own!r}")
        refuse_in_capture(problem, device)
        return Pair(problem, device, config)

    return PLANS.get_or_make((plan, index), make)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Snake:
    """x + scale * sin(alpha * x)^2 by the places of two tensors among a graph's inputs, of a number for each channel: alpha, which
    is the first one or its exponential; and scale, one over (the second or its exponential, and eps)."""

    alpha: int
    alpha_is_log: bool
    scale: int
    scale_is_log: bool
    eps: float

    def of(self, inputs: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """alpha and scale as the kernel reads them, float32."""
        alpha, scale = (inputs[at].detach().double().flatten() for at in (self.alpha, self.scale))
        alpha = alpha.exp() if self.alpha_is_log else alpha
        scale = scale.exp() if self.scale_is_log else scale
        return alpha.float().contiguous(), (1 / (scale + self.eps)).float().contiguous()


@dataclass(frozen=True)
class PairFold:
    """The sources of what a pair is packed of, as Fold is what a convolution is packed of: without norms. `snakes`: two, none, or three
    of which the last one stands behind the sum."""

    first: Fold
    second: Fold
    snakes: tuple[Snake, ...] = ()

    @property
    def dtype(self) -> torch.dtype:
        return self.first.dtype

    @property
    def places(self) -> tuple[int | None, ...]:
        """The first fold's, which say that there is no norm, the second's, then those of the snakes."""
        of_snakes = (place for snake in self.snakes for place in (snake.alpha, snake.scale))
        return *self.first.places, *self.second.places, *of_snakes

    def at(self, places: Sequence[int | None]) -> PairFold:
        """The folds of this pair with their tensors at other places among the inputs."""
        of_first = len(self.first.places)
        of_both = of_first + len(self.second.places)
        first, second, rest = places[:of_first], places[of_first:of_both], iter(places[of_both:])
        snakes = tuple(replace(snake, alpha=next(rest), scale=next(rest)) for snake in self.snakes)
        return PairFold(self.first.at(first), self.second.at(second), snakes)

    def fits(self, inputs: Sequence[Any]) -> None:
        return None

    def pack(self, memory: Tensor, pair: Pair, inputs: Sequence[Any]) -> None:
        (first, first_bias), (second, second_bias) = self.first.of(inputs), self.second.of(inputs)
        numbers = [number for snake in self.snakes for number in snake.of(inputs)] or [None] * 4
        _pack(memory, pair, (first, first_bias, second, second_bias), numbers)


def _pack(memory: Tensor, pair: Pair, weights: Sequence[Tensor | None], numbers: Sequence[Tensor | None]) -> None:
    """Packs on the current stream of the memory's device. `weights`: first, its bias, second, its bias; `numbers`: alpha and scale
    of both Snakes in float32, and of one behind them, or None."""
    dtype = _DTYPES[pair.problem.dtype]
    tensors = [None if one is None else one.to(dtype).contiguous() for one in weights]
    addresses = [0 if one is None else one.data_ptr() for one in (*tensors, *numbers)]
    stream = _raw_stream(memory.get_device()) if memory.is_cuda else 0
    pair.pack_raw(*addresses[:8], memory.data_ptr(), stream, *addresses[8:])


def pack_pair(plan: str, x: Tensor, weights: Sequence[Tensor | None], numbers: Sequence[Tensor]) -> Tensor:
    """Memory with weights packed for that line, on x's device: first, its bias, second, its bias, and of Snakes alpha and scale of
    each."""
    return _packed(planned_pair(plan, x.get_device() if x.is_cuda else -1), x, weights, numbers)


def _packed(pair: Pair, x: Tensor, weights: Sequence[Tensor | None], numbers: Sequence[Tensor]) -> Tensor:
    packed = torch.empty(max(pair.packed_bytes, 1), dtype=torch.uint8, device=x.device)
    _pack(packed, pair, weights, numbers or [None] * 4)
    return packed


def given(problem: PairProblem) -> tuple[int, int, int]:
    """The shape of x, channels first."""
    return problem.n * (2 if problem.activated else 1), problem.c, problem.t


def stored(problem: PairProblem) -> tuple[int, int, int]:
    """The shape of what is stored, channels first."""
    return problem.n * (2 if problem.snake == "beside" else 1), problem.c, problem.t


def _kernel(x: Tensor, packed: Tensor, plan: str) -> Tensor:
    index = x.get_device() if x.is_cuda else -1
    pair = planned_pair(plan, index)
    if x.shape != given(pair.problem) or x.dtype is not _DTYPES[pair.problem.dtype] or packed.numel() < pair.packed_bytes:
        raise InvalidArgument(
            f"x is {x.dtype} of the shape {tuple(x.shape)} and there are {packed.numel()} bytes of packed weights; "
            f"{plan!r} takes {given(pair.problem)} and {pair.packed_bytes}"
        )
    if packed.device != x.device:
        raise InvalidArgument(f"x is on {x.device}, and its packed weights on {packed.device}")
    return _run(pair, x, packed)


def _run(pair: Pair, x: Tensor, packed: Tensor) -> Tensor:
    if not lies(x, True) or x.data_ptr() & 15 or x.is_neg():
        x = copied(x, True)
    y = empty(stored(pair.problem), x, True)
    stream = _raw_stream(x.get_device()) if x.is_cuda else 0
    pair.run_raw(x.data_ptr(), packed.data_ptr(), y.data_ptr(), stream)
    return y


def _fake(x: Tensor, packed: Tensor, plan: str) -> Tensor:
    return empty(stored(pair_of(plan)[1]), x, True)


pair1d_packed: Any = define("pair1d_packed(Tensor x, Tensor packed, str plan) -> Tensor", _kernel, _fake, OF_PLAN)


def _activated(x: Tensor, slope: float | None, snake: Sequence[Tensor] | None) -> Tensor:
    if snake is None:
        return torch.nn.functional.leaky_relu(x, slope)  # type: ignore[arg-type]
    alpha, scale = (one.to(x.dtype).reshape(-1, 1) for one in snake)
    return x + scale * (alpha * x).sin().square()


def _two(
    x: Tensor, first: Tensor, first_bias: Tensor | None, second: Tensor, second_bias: Tensor | None, dilation: int,
    slope: float | None, snakes: Sequence[Sequence[Tensor] | None],
) -> Tensor:  # fmt: skip
    """The step by two convolutions."""
    from .functional import conv1d

    y = conv1d(_activated(x, slope, snakes[0]), first, first_bias, padding=dilation * (first.shape[2] // 2), dilation=dilation)
    y = _activated(y, slope, snakes[1])
    return conv1d(y, second, second_bias, padding=second.shape[2] // 2, residual=x)  # type: ignore[no-any-return]


def _check_tensors(x: Tensor, weights: Sequence[Any], biases: Sequence[Any]) -> None:
    """Raises InvalidArgument."""
    c = x.shape[1]
    for name, w in zip(("first", "second"), weights):
        check_like(w, name, x)
        if w.dim() != 3 or w.shape[:2] != (c, c) or w.shape[2] % 2 == 0:
            raise InvalidArgument(f"{name} has the shape {tuple(w.shape)}; it must be ({c}, {c}, S), S odd")
    for name, bias in zip(("first_bias", "second_bias"), biases):
        if bias is not None:
            check_like(bias, name, x)
            if bias.shape != (c,):
                raise InvalidArgument(f"{name} has the shape {tuple(bias.shape)}; it must be ({c},)")


def _check_numbers(x: Tensor, dilation: Any, slope: Any, snakes: Sequence[Any]) -> None:
    """Raises InvalidArgument."""
    c = x.shape[1]
    if isinstance(dilation, bool) or not isinstance(dilation, int) or dilation < 1:
        raise InvalidArgument(f"dilation is {dilation!r}; it is a whole number of at least 1")
    if slope is not None and (isinstance(slope, bool) or not isinstance(slope, (int, float))):
        raise InvalidArgument(f"slope is {slope!r}; it is a number")
    if (slope is None) != all(one is not None for one in snakes) or (slope is not None and any(one is not None for one in snakes)):
        raise InvalidArgument("a step has either slope=, of a leaky ReLU in front of both, or first_snake= and second_snake=")
    for name, snake in zip(("first_snake", "second_snake"), snakes):
        if snake is not None:
            is_two = isinstance(snake, (tuple, list)) and len(snake) == 2
            if not is_two or any(not isinstance(one, Tensor) or one.numel() != c or one.device != x.device for one in snake):
                raise InvalidArgument(f"{name} is (alpha, scale): two tensors of {c} numbers on x's device")


def _pair_for(x: Tensor, first: Tensor, second: Tensor, dilation: int, slope: float | None) -> Pair | None:
    """The kernel for that step; None where there is none, or where a CUDA graph is recorded that a plan would break."""
    key = "pair1d", tuple(x.shape), first.shape[2], second.shape[2], dilation, slope, x.dtype, x.get_device()
    found = PLANS.peek(key)
    if found is None:
        if _capturing():
            return None

        def make() -> tuple[Pair | None]:
            n, c, t = x.shape
            try:
                problem = PairProblem(n, c, t, first.shape[2], dilation, second.shape[2], _TYPES[x.dtype], slope)
                return (Pair(problem, f"cuda:{x.get_device()}"),)
            except Unsupported:
                return (None,)

        found = PLANS.get_or_make(key, make)
    return found[0]  # type: ignore[no-any-return]


def _has_kernels(x: Tensor) -> bool:
    return x.is_cuda and x.dtype in _TYPES and x.numel() > 0


def _takes_kernel(tensors: Sequence[Tensor | None]) -> bool:
    """True of an eager call that records no gradients, of ordinary tensors, as convtune's other calls count them."""
    if torch.compiler.is_compiling() or is_transformed():
        return False
    given = [one for one in tensors if one is not None]
    recorded = torch.is_grad_enabled() and any(one.requires_grad for one in given)
    return not recorded and all(is_ordinary(one, one, None) for one in given)


def residual_pair1d(
    x: Tensor, first: Tensor, second: Tensor, first_bias: Tensor | None = None, second_bias: Tensor | None = None, *,
    dilation: int = 1, slope: float | None = None, first_snake: Sequence[Tensor] | None = None,
    second_snake: Sequence[Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """y = x + conv2(act(conv1(act(x)))), a residual step of a vocoder, by one kernel where there is one.

    `x`: (N, C, L). `first`, `second`: filters (C, C, S), S odd; both are padded with zeros so that y has x's length. `dilation`: of
    the first, counted from 1. The activation in front of each is a leaky ReLU (`slope`: of what is below 0), or a Snake,
    x + scale * sin(alpha * x)^2, by `first_snake` and `second_snake`: (alpha, scale), C numbers each.

    The kernel is for half precision on GPUs of compute capability 9.0; weights are packed in each call, and y's channels come last
    in memory. Everything else, and what records gradients, are two convolutions, with the same answer but for rounding: between
    them the kernel rounds once, behind the activation. y has x's type. Under autocast it is two
    convolutions as well, y has autocast's type, and tensors may be of several. Raises InvalidArgument for tensors that do not fit
    each other."""
    snakes = first_snake, second_snake
    if not isinstance(x, Tensor) or x.dim() != 3:
        raise InvalidArgument("x must be a PyTorch tensor (N, C, L)")
    _check_numbers(x, dilation, slope, snakes)
    if torch.is_autocast_enabled(x.device.type):
        return _two(x, first, first_bias, second, second_bias, dilation, slope, snakes)
    _check_tensors(x, (first, second), (first_bias, second_bias))
    tensors = [x, first, second, first_bias, second_bias, *(one for snake in snakes if snake is not None for one in snake)]
    pair = None
    if _has_kernels(x) and _takes_kernel(tensors):
        pair = _pair_for(x, first, second, dilation, slope)
    if pair is None:
        return _two(x, first, first_bias, second, second_bias, dilation, slope, snakes)
    numbers = [one.float().flatten().contiguous() for snake in snakes if snake is not None for one in snake]
    return _run(pair, x, _packed(pair, x, (first, first_bias, second, second_bias), numbers))
