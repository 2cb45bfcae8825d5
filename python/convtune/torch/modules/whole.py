"""A whole model with convtune's layers beside the same model without, by the wall clock: as it stands, or through
torch.compile as its user will call it. For optimize; docs/decisions/0012-pytorch.md has the reasons."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import torch

from ..._contest import Contest, contest
from ...errors import InvalidArgument
from ...nn import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from ...optimize_report import Layer
from ..measure.timing import calls_of_a_sample, wall_us
from .handover import Led, hand_over, made_of, take_back
from .joining import joining
from .structure import Followers
from .training import Step, peak_bytes, takes_more

__all__ = ["WHOLE_GAIN", "Whole", "compile_mode", "swap", "unswap", "worth_their_cost"]

# The least gain of the whole forward: less is not worth other rounding, and two processes differ by as much.
WHOLE_GAIN = 0.01
_WARM_UP = 4  # samples: compiling, cuDNN's search, recording a CUDA graph, its first replays
_WARM_UP_SECONDS = 5.0  # after the first: fewer samples of a slow model
_CONTEST_SECONDS = 20.0
_Sides = tuple[Callable[[], float], Callable[[], float]]
_ROUNDS = 10  # that a proof needs, of four samples each, whatever time they take


_OURS: dict[type, type] = {
    one._pytorchs: one for one in (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
}
_PYTORCHS = {ours: theirs for theirs, ours in _OURS.items()}
_OUR_TYPES = tuple(_PYTORCHS)


@cache
def _convolving(kind: type) -> type:
    """That subclass of torch.nn.Conv1d, whose forward stays, but the convolution that it calls is convtune's."""
    return made_of(kind, _convolving, Conv1d, forward=kind.forward)  # type: ignore[attr-defined]


def swap(module: Any, choices: str, training: bool, behind: Followers | None = None, rounding: str = "once") -> None:
    """Makes the module convtune's in place: parameters, hooks, names and whoever holds the module stay as they are."""
    if not isinstance(module, _OUR_TYPES):  # a contest swaps before each sample, so perhaps twice in a row
        subclass = joining if isinstance(module, torch.nn.Conv3d) else _convolving
        module.__class__ = _OURS.get(type(module)) or subclass(type(module))
    if behind is not None:
        hand_over(module, behind)
    module.choices, module.rounding = choices, rounding
    module.proven_in_training = training


def unswap(model: torch.nn.Module) -> None:
    """Undoes `swap` in place: every module of the model that was swapped is PyTorch's again."""
    swapped: list[Any] = [one for one in model.modules() if isinstance(one, _OUR_TYPES) and "choices" in vars(one)]
    take_back(model)
    for module in swapped:
        module.__class__ = _PYTORCHS.get(type(module), type(module))
        for name in ("choices", "proven_in_training", "led", "rounding"):
            module.__dict__.pop(name, None)


def compile_mode(compiled: bool | str) -> str:
    """torch.compile's mode by optimize's argument; "" is eager."""
    if isinstance(compiled, bool):
        return "default" if compiled else ""
    modes = torch._inductor.list_mode_options()
    if not isinstance(compiled, str) or compiled not in modes:
        raise InvalidArgument(f"compiled is {compiled!r}; it must be True, False or a mode: {', '.join(modes)}")
    return compiled


def _twin(model: torch.nn.Module) -> torch.nn.Module:
    """A copy with the same parameters and buffers: not equal ones."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]})


class Whole:
    """The model, not swapped yet, and how it is to be run. `mode`: of torch.compile; "" runs it as it stands."""

    def __init__(
        self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device, mode: str,
        behind: Mapping[torch.nn.Module, Followers], train: Step | None = None, rounding: str = "once",
    ) -> None:  # fmt: skip
        """`train`: a step of training that is run in the place of the forward."""
        self._model, self._run = model, train or (lambda model: model(*args, **kwargs))
        self._trains, self.takes_more = train is not None, False
        self._device, self._mode, self._behind, self._rounding = device, mode, behind, rounding
        self._calls = 1  # per sample
        self.seconds = 0.0  # that contests took, without compiling
        self._modules: Any = dict(model.named_modules())
        self._leds: dict[str, Led] = {}  # swapped modules' folded weights: a sample that made them anew would time that
        # Classes that change between calls cost a compiled model a millisecond of guards: each side has its own model.
        self._incumbent = _twin(model) if mode else model

    def contest(self, swaps: dict[str, str], tell: Callable[[float], None]) -> Contest:
        """The model without against the model with those swaps, which are undone at the end. `tell` is called after each
        sample with the seconds that it may take still. What torch.compile has compiled in this process is forgotten,
        before and after: both sides begin as in a process of their own."""
        try:
            sides = self._compiled(swaps) if self._mode else self._eager(swaps)
            return self._of(*sides, tell)
        finally:
            unswap(self._model)
            if self._mode:
                torch._dynamo.reset()

    def _takes_more(self, before: Callable[[], float], after: Callable[[], float]) -> bool:
        """True where a step of training takes more memory with the swaps."""
        self.takes_more = self._trains and takes_more(*(peak_bytes(one, self._device) for one in (before, after)))
        return self.takes_more

    def _eager(self, swaps: dict[str, str]) -> _Sides:
        step = self._step(self._model)
        return self._side(step, lambda: unswap(self._model)), self._side(step, lambda: self._swap(swaps))

    def _compiled(self, swaps: dict[str, str]) -> _Sides:
        torch._dynamo.reset()
        self._swap(swaps)
        # Both models have one code, and so one list of compiled graphs, each tried by its guards. Another option, set
        # to what it is already, tells the incumbent's apart before that.
        inductor: Any = torch._inductor
        options = {**inductor.list_mode_options(self._mode), "trace.enabled": inductor.config.trace.enabled}
        incumbent: Any = torch.compile(self._incumbent, options=options)
        challenger: Any = torch.compile(self._model, mode=self._mode)
        return self._side(self._step(incumbent)), self._side(self._step(challenger))

    def _side(self, run: Callable[[], None], prepare: Callable[[], None] = lambda: None) -> Callable[[], float]:
        """A sample of that side, in microseconds."""

        def timed() -> float:
            prepare()
            return wall_us(run, self._device, self._calls)

        return timed

    def _of(self, before: Callable[[], float], after: Callable[[], float], tell: Callable[[float], None]) -> Contest:
        self._calls = 1
        before(), after()
        begin = time.monotonic()
        for _ in range(_WARM_UP - 1):
            if time.monotonic() - begin < _WARM_UP_SECONDS:
                before(), after()
        self._calls = calls_of_a_sample(max(before(), after()))
        if self._takes_more(before, after):
            return Contest()
        begin, samples = time.monotonic(), 0

        def told(side: Callable[[], float]) -> Callable[[], float]:
            def sample() -> float:
                nonlocal samples
                us = side()
                samples += 1
                spent = time.monotonic() - begin
                tell(max(_CONTEST_SECONDS - spent, spent * (4 * _ROUNDS / samples - 1)))
                return us

            return sample

        try:
            return contest(told(before), told(after), WHOLE_GAIN, min_rounds=_ROUNDS, max_seconds=_CONTEST_SECONDS)
        finally:
            self.seconds += time.monotonic() - begin

    def _step(self, model: Any) -> Callable[[], None]:
        begin: Any = torch.compiler.cudagraph_mark_step_begin if self._mode else lambda: None

        def step() -> None:
            begin()  # the last outputs, which were dropped, may be overwritten
            self._run(model)

        return step

    def _swap(self, swaps: dict[str, str]) -> None:
        for name, choices in swaps.items():
            module = self._modules[name]
            swap(module, choices, self._model.training or self._trains, self._behind.get(module), self._rounding)
            if "led" in vars(module):
                module.led = self._leds.setdefault(name, module.led)


def worth_their_cost(layers: list[Layer], outcome: Contest) -> list[Layer]:
    """The swapped layers that are worth another try after a contest of all of them was not won: which save
    more than the whole model lost by a swapped call (the host's time, fusions that PyTorch makes with its own)."""
    saved = sum((layer.pytorch_us - layer.convtune_us) * layer.calls for layer in layers)
    calls = sum(layer.calls for layer in layers)
    cost = (outcome.challenger_us - outcome.incumbent_us + saved) / max(calls, 1)
    worth = [layer for layer in layers if layer.pytorch_us - layer.convtune_us > cost]
    return worth if len(worth) < len(layers) else []
