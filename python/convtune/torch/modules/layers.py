"""Finds the convolutions that a model runs on an example, grouped by problem. For optimize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...optimize_report import Layer
from ...problem import Problem
from .. import autocast
from ..measure.sides import Fused, FusedSides, Sides, how_of
from ..run import TYPES, problem_for
from .structure import Followers

__all__ = ["Seen", "find", "grouped"]


class _CountedConvolutions(TorchFunctionMode):
    """How often torch.conv2d is called, by modules or otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.conv2d
        return func(*args, **(kwargs or {}))


@dataclass
class Seen:
    """One module's convolution of one problem."""

    module: torch.nn.Conv2d
    name: str
    problem: Problem | None
    refusal: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    calls: int = 0

    behind: Followers | None = None

    @property
    def kind(self) -> str:
        """A text by which contests of different layers differ."""
        fused = self._fused()
        return fused.kind if fused else repr((str(self.problem), self.shape, self.strides, self.device))

    def sides(self) -> Sides | FusedSides:
        fused = self._fused()
        return fused.sides() if fused else Sides(self.module, self.shape, self.strides, self.dtype, self.device)

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


def _refusal(module: torch.nn.Conv2d, x: Tensor) -> str:
    """Why that call is none of ours; "" where it is."""
    if type(module) is not torch.nn.Conv2d:
        return f"left: it is a {type(module).__name__}"
    if type(x) is not Tensor or not (x.is_cuda or x.is_cpu):
        return f"left: its input is a {type(x).__name__} on {x.device}"
    cast = autocast.type_of(x)
    if x.dtype not in TYPES or (module.weight.dtype not in TYPES if cast else module.weight.dtype is not x.dtype):
        return f"left: {str(module.weight.dtype).removeprefix('torch.')}"
    if x.dim() != 4:
        return "left: its input has no batch"
    return ""


def find(
    model: torch.nn.Module, run: Callable[[], object], behind: Mapping[torch.nn.Module, Followers]
) -> tuple[list[Seen], int]:
    """(the convolutions of modules that one forward runs, the number of all others). `behind`: what stands behind those
    whose work one operator is to do."""
    found: dict[Any, Seen] = {}
    of_modules = 0

    def hook(module: Any, args: Any, kwargs: Any) -> None:
        nonlocal of_modules
        of_modules += 1
        x = args[0] if args else kwargs["input"]
        refusal, problem, follow = _refusal(module, x), None, None
        if not refusal:
            if module.padding_mode != "zeros":
                x = torch.nn.functional.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode)
            x, weight, bias, _ = autocast.cast(
                autocast.type_of(x) or x.dtype, x, module.weight, module.bias, None, keeps=False
            )
            follow = behind.get(module)
            bias_type = None if bias is None else bias.dtype
            how = how_of(module)
            if follow is not None:
                bias_type, how = follow.bias_type(bias), replace(how, activation=follow.activation)
            problem = problem_for(x, weight, how, bias_type)
        seen = found.setdefault(
            (id(module), problem, refusal),
            Seen(module, names[id(module)], problem, refusal, tuple(x.shape), x.stride(), x.dtype, x.device, behind=follow),
        )
        seen.calls += 1

    names: dict[int, str] = {}
    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Conv2d):
            names[id(module)] = name
            hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    counted = _CountedConvolutions()
    try:
        with counted:
            run()
    finally:
        for one in hooks:
            one.remove()
    return list(found.values()), max(0, counted.count - of_modules)


def grouped(found: list[Seen]) -> list[tuple[Layer, list[Seen]]]:
    groups: dict[Any, tuple[Layer, list[Seen]]] = {}
    for seen in found:
        layer, members = groups.setdefault(
            (seen.problem, seen.refusal, seen.device, seen.behind and (seen.behind.norm is None)),
            (Layer([], seen.problem, decision=seen.refusal), []),
        )
        layer.names.append(seen.name or "the model")
        layer.calls += seen.calls
        members.append(seen)
    return list(groups.values())
