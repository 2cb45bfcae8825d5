"""Which convolutions a model runs on an example, grouped by problem. For optimize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ...nn import Conv2d
from ...optimize_report import Layer
from ...problem import Problem
from .. import autocast
from ..measure.sides import Fused, FusedSides, Sides
from ..run import TYPES, problem_of
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
        """What makes a contest of it another than of others."""
        fused = self._fused()
        return fused.kind if fused else repr((str(self.problem), self.shape, self.strides, self.device))

    def sides(self) -> Sides | FusedSides:
        fused = self._fused()
        return fused.sides() if fused else Sides(self.module, self.shape, self.strides, self.dtype, self.device)

    def _fused(self) -> Fused | None:
        """Where an operator is to do the work of modules behind it."""
        module, behind = self.module, self.behind
        if behind is None:
            return None
        how = module.stride, Conv2d._edges(module), module.dilation, module.groups  # type: ignore[arg-type]
        return Fused(
            self.name, self.shape, self.strides, tuple(module.weight.shape), module.weight.stride(), self.dtype,
            self.device, behind.bias_type(module.bias), how, None, behind.activation, behind.norm is not None,
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


def _padded(module: torch.nn.Conv2d, x: Tensor) -> tuple[Tensor, tuple[int, int, int, int]]:
    """The convolution's own input and zero padding."""
    if module.padding_mode != "zeros":
        x = torch.nn.functional.pad(x, module._reversed_padding_repeated_twice, mode=module.padding_mode)
    return x, Conv2d._edges(module)  # type: ignore[arg-type]


def find(
    model: torch.nn.Module, run: Callable[[], object], behind: Mapping[torch.nn.Module, Followers]
) -> tuple[list[Seen], int]:
    """What one forward runs, and how many convolutions of it are no module's. `behind`: what stands behind those whose
    work one operator is to do."""
    found: dict[Any, Seen] = {}
    of_modules = 0

    def hook(module: Any, args: Any, kwargs: Any) -> None:
        nonlocal of_modules
        of_modules += 1
        x = args[0] if args else kwargs["input"]
        refusal, problem, follow = _refusal(module, x), None, None
        if not refusal:
            x, edges = _padded(module, x)
            x, weight, bias, _ = autocast.cast(
                autocast.type_of(x) or x.dtype, x, module.weight, module.bias, None, keeps=False
            )
            follow = behind.get(module)
            bias_type = None if bias is None else bias.dtype
            activation = "none"
            if follow is not None:
                bias_type, activation = follow.bias_type(bias), follow.activation
            how = module.stride, edges, module.dilation, module.groups, "auto", activation, False, bias_type
            problem = problem_of(x, weight, bias_type is not None, *how)
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
