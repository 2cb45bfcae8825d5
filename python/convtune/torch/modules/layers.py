"""Finds the convolutions that a model runs on an example, grouped by problem. For optimize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily

from ...nn import Conv3d
from ...optimize_report import Layer
from ...problem import Problem
from .. import autocast
from ..backward import gradient_problem
from ..how import How
from ..measure.gradient_sides import GradientSides
from ..measure.sides import Fused, FusedSides, Sides, how_of
from ..run import TYPES, problem_for
from .joining import Frames, JoiningFrames, forward_joining, mode_now
from .structure import Followers

__all__ = ["Seen", "find", "grouped"]

# Attributes of a swapped module: a subclass that has one of these means something else by it.
_TRANSPOSED = nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d
_MODULES = nn.Conv1d, nn.Conv2d, nn.Conv3d, *_TRANSPOSED
_FUNCTIONS = (
    torch.conv1d, torch.conv2d, torch.conv3d, torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d,
)  # fmt: skip
_OUR_NAMES = frozenset(name for name in dir(Conv3d) if not hasattr(nn.Conv3d, name))


class _CountedConvolutions(TorchFunctionMode):
    """How often torch.conv1d to conv3d are called, by modules or otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in _FUNCTIONS
        return func(*args, **(kwargs or {}))


@dataclass
class Seen:
    """One module's convolution of one problem."""

    module: Any
    name: str
    problem: Problem | None
    refusal: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    calls: int = 0
    how: How | None = None  # geometry of a call whose frames its forward joins or pads
    cache: Tensor | None = None  # an example of those before, without memory
    behind: Followers | None = None
    gradient: str = ""  # "x" or "w": the problem is that gradient's
    bias_type: torch.dtype | None = None  # the type of a bias whose gradient comes with the weight's
    rounding: str = "once"

    @property
    def label(self) -> str:
        """The layer's name in a report."""
        return (self.name or "the model") + (f" d{self.gradient}" if self.gradient else "")

    @property
    def kind(self) -> str:
        """A text by which contests of different layers differ."""
        fused = self._fused()
        return fused.kind if fused else repr((str(self.problem), self.shape, self.strides, self.device))

    def sides(self) -> Sides | FusedSides | GradientSides:
        if self.gradient:
            how, tensor = how_of(self.module), (self.shape, self.strides, self.dtype, self.device)
            return GradientSides(self.gradient, self.module.weight, how, *tensor, self.bias_type)
        fused = self._fused()
        if fused:
            return fused.sides()
        return Sides(self.module, self.shape, self.strides, self.dtype, self.device, self.how, self.cache, self.rounding)

    def _fused(self) -> Fused | None:
        """The convolution with the modules behind it, where an operator is to do their work."""
        module, behind = self.module, self.behind
        if behind is None:
            return None
        how = replace(how_of(module), activation=behind.activation)
        return Fused(
            self.name, self.shape, self.strides, tuple(module.weight.shape), module.weight.stride(), self.dtype,
            self.device, behind.bias_type(module.bias), how, None, behind.norm is not None,
            eager=True,
        )  # fmt: skip


def _calls_conv_forward(module: nn.Module) -> bool:
    """True of a Conv1d or Conv3d, and of a subclass that leaves the convolution itself, behind what its forward does, to
    PyTorch's `_conv_forward`. Parametrized ones are taken apart by their class, which has to stay."""
    kind: Any = type(module)
    base: Any = next((one for one in (nn.Conv1d, nn.Conv3d) if isinstance(module, one)), None)
    return (
        base is not None
        and kind._conv_forward is base._conv_forward
        and not is_parametrized(module)
        and not any(name in vars(one) for one in kind.__mro__ if one not in base.__mro__ for name in _OUR_NAMES)
    )


def _refusal(module: Any, x: Tensor) -> str:
    """Why that call is none of ours; "" where it is."""
    if is_parametrized(module) or "weight" not in module._parameters:
        return "left: its weight is computed in every forward (weight_norm, a parametrization); remove that first"
    if type(module) not in (nn.Conv2d, *_TRANSPOSED) and not _calls_conv_forward(module):
        return f"left: it is a {type(module).__name__}"
    if type(x) is not Tensor or not (x.is_cuda or x.is_cpu):
        return f"left: its input is a {type(x).__name__} on {x.device}"
    cast = autocast.type_of(x)
    if x.dtype not in TYPES or (module.weight.dtype not in TYPES if cast else module.weight.dtype is not x.dtype):
        return f"left: {str(module.weight.dtype).removeprefix('torch.')}"
    if x.dim() != module.weight.dim():
        return "left: its input has no batch"
    if how_of(module).is_pytorchs:
        return "left: its output padding is beyond what a convolution's gradient has"
    return ""


def find(
    model: torch.nn.Module, run: Callable[[], object], behind: Mapping[torch.nn.Module, Followers], joins: bool = True,
    train: bool = False, rounding: str = "once",
) -> tuple[list[Seen], int]:  # fmt: skip
    """(the convolutions of modules that one forward runs, the number of all others). `behind`: what stands behind those
    whose work one operator is to do; `joins`: subclasses of Conv3d are asked for the frames before they join and pad them,
    as they run where they are not compiled; `train`: the gradients that a backward asks of each are found, too."""
    found: dict[Any, Seen] = {}
    of_modules = 0

    def hook(module: Any, args: Any, kwargs: Any) -> None:
        with_size = len(args) > 1 or kwargs.get("output_size") is not None
        note(module, args[0] if args else next(iter(kwargs.values())), "left: it is given an output_size" if with_size else "")

    def convolve(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        note(module, x)
        if not isinstance(mode_now(), JoiningFrames):
            return type(module)._conv_forward(module, x, weight, bias)  # type: ignore[no-any-return]
        with _pop_mode_temporarily():
            whole = x.tensor if isinstance(x, Frames) else x
            return type(module)._conv_forward(module, whole, weight, bias)  # type: ignore[no-any-return]

    def note(module: Any, given: Any, why: str = "") -> None:
        nonlocal of_modules
        of_modules += 1
        frames = given if isinstance(given, Frames) else None
        how_of_frames = None if frames is None else frames.how(module)
        x, cache = (given, None) if frames is None else (frames.x, frames.cache)
        if frames is not None and how_of_frames is None:
            x, cache = frames.tensor, None
        refusal, problem, follow = _refusal(module, x) or why, None, None
        if not refusal and how_of_frames is not None:
            x, weight, bias, cache = autocast.cast(
                autocast.type_of(x) or x.dtype, x, module.weight, module.bias, cache, keeps=False
            )
            bias_type, before = None if bias is None else bias.dtype, 0 if cache is None else cache.shape[2]
            problem = problem_for(x, weight, replace(how_of_frames, rounding=rounding), bias_type, False, before)
        elif not refusal:
            if module.padding_mode != "zeros":
                x = torch.nn.functional.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode)
            x, weight, bias, _ = autocast.cast(
                autocast.type_of(x) or x.dtype, x, module.weight, module.bias, None, keeps=False
            )
            follow = behind.get(module)
            bias_type = None if bias is None else bias.dtype
            how = replace(how_of(module), rounding=rounding)
            if follow is not None:
                bias_type, how = follow.bias_type(bias), replace(how, activation=follow.activation)
            problem = problem_for(x, weight, how, bias_type)
            if train and x.requires_grad:
                add(module, x, gradient_problem("x", x, weight, how), gradient="x")
            if train and weight.requires_grad:
                of_bias = bias_type if bias is not None and bias.requires_grad else None
                add(module, x, gradient_problem("w", x, weight, how, of_bias), gradient="w", bias_type=of_bias)
        kept = None if cache is None else cache.to("meta")
        add(module, x, problem, refusal, how=how_of_frames, cache=kept, behind=follow)

    def add(module: Any, x: Tensor, problem: Problem | None, refusal: str = "", **more: Any) -> None:
        own = names[id(module)], problem, refusal, tuple(x.shape), x.stride(), x.dtype, x.device
        found.setdefault((id(module), problem, refusal), Seen(module, *own, **more, rounding=rounding)).calls += 1

    names: dict[int, str] = {}
    hooks, wrapped = [], []
    for name, module in model.named_modules():
        if not isinstance(module, _MODULES):
            continue
        names[id(module)] = name
        if _calls_conv_forward(module) and "_conv_forward" not in vars(module):
            module._conv_forward = partial(convolve, module)  # type: ignore[method-assign]
            wrapped.append((module, "_conv_forward"))
            if joins and isinstance(module, nn.Conv3d) and type(module) is not nn.Conv3d and "forward" not in vars(module):
                module.forward = partial(forward_joining, type(module), module)
                wrapped.append((module, "forward"))
        else:
            hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    counted = _CountedConvolutions()
    try:
        with counted:
            run()
    finally:
        for one in hooks:
            one.remove()
        for each, name in wrapped:
            delattr(each, name)
    return list(found.values()), max(0, counted.count - of_modules)


def grouped(found: list[Seen]) -> list[tuple[Layer, list[Seen]]]:
    groups: dict[Any, tuple[Layer, list[Seen]]] = {}
    for seen in found:
        layer, members = groups.setdefault(
            (seen.problem, seen.refusal, seen.device, seen.behind and (seen.behind.norm is None)),
            (Layer([], seen.problem, decision=seen.refusal), []),
        )
        layer.names.append(seen.label)
        layer.calls += seen.calls
        members.append(seen)
    return list(groups.values())
