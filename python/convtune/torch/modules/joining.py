"""Forwards of causal layers that join a cache to their frames and pad them before they convolve: neither is done where the
convolution is convtune's, which reads both tensors and leaves out what lies outside of them.

In such a forward torch.cat and torch.nn.functional.pad give `Frames`, which holds what was joined and how it is padded;
a convolution of convtune's takes it as it stands, and whatever else looks at it gets the tensor. So nothing is assumed
of the forward: docs/decisions/0119-caches-of-frames.md
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode, _pop_mode_temporarily
from torch.utils import _pytree as pytree

from ...nn import Conv3d
from ..functional import call_with_cache
from ..how import How, edges_of
from .handover import made_of

__all__ = ["Frames", "JoiningFrames", "forward_joining", "joining", "mode_now"]

_pad: Any = torch.nn.functional.pad
_joins = (torch.cat, torch.concat, torch.concatenate)
_is_compiling = torch.compiler.is_compiling


class Frames:
    """Frames of one or two tensors in a row, with zeros around them. `edges`: those before and behind each axis, as
    a Problem has them."""

    def __init__(self, cache: Tensor | None, x: Tensor, edges: tuple[int, ...] = (0,) * 6) -> None:
        self.cache, self.x, self.edges = cache, x, edges
        self._tensor: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        n, c, *image = self.x.shape
        image[0] += 0 if self.cache is None else self.cache.shape[2]
        return torch.Size((n, c, *(size + self.edges[at] + self.edges[3 + at] for at, size in enumerate(image))))

    def size(self, axis: int | None = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def dim(self) -> int:
        return 5

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    @property
    def device(self) -> torch.device:
        return self.x.device

    def how(self, module: Any, *words: Any) -> How | None:
        """The module's convolution of x, with the cache before it; None where it takes the whole tensor."""
        if self._tensor is not None or module.padding_mode != "zeros":
            return None
        edges = [mine + its for mine, its in zip(self.edges, edges_of(module))]
        edges[0] += 0 if self.cache is None else self.cache.shape[2]
        return How.of(module.stride, edges, module.dilation, module.groups, *words)

    @property
    def tensor(self) -> Tensor:
        """All of it, made once."""
        if self._tensor is None:
            with _pop_mode_temporarily() if torch._C._len_torch_function_stack() else _nothing:
                whole = self.x if self.cache is None else torch.cat([self.cache, self.x], 2)
                front, top, left, back, bottom, right = self.edges
                self._tensor = _pad(whole, (left, right, top, bottom, front, back)) if any(self.edges) else whole
        return self._tensor

    def padded(self, ends: Any) -> Frames | None:
        """With more zeros, as torch.nn.functional.pad takes them; None where some are taken away."""
        ends = (*ends, 0, 0, 0, 0, 0, 0)[:6] if len(ends) <= 6 and len(ends) % 2 == 0 else (-1,)
        if self._tensor is not None or any(type(one) is not int or one < 0 for one in ends):
            return None
        left, right, top, bottom, front, back = ends
        more = front, top, left, back, bottom, right
        return Frames(self.cache, self.x, tuple(map(sum, zip(self.edges, more))))  # type: ignore[arg-type]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _called(func, args, kwargs or {})

    def __getattr__(self, name: str) -> Any:
        return getattr(self.tensor, name)


def _delegate(name: str) -> Callable[..., Any]:
    return lambda self, *args: getattr(self.tensor, name)(*(_whole(one) for one in args))


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv matmul neg getitem setitem len bool float int eq ne lt le gt ge iter"
).split():
    setattr(Frames, f"__{_name}__", _delegate(f"__{_name}__"))


def _whole(value: Any) -> Any:
    return value.tensor if isinstance(value, Frames) else value


def _is_video(value: Any) -> bool:
    return type(value) in (Tensor, torch.nn.Parameter) and value.dim() == 5


def _joined(tensors: Any, dim: Any = 0) -> Frames | None:
    """Gives torch.cat of these, where it can stay as it is."""
    if not isinstance(tensors, (list, tuple)) or len(tensors) < 2 or dim not in (2, -3) or not all(map(_is_video, tensors)):
        return None
    *before, x = tensors
    alike = all(
        one.dtype is x.dtype and one.device == x.device and one.shape[:2] == x.shape[:2] and one.shape[3:] == x.shape[3:]
        for one in before
    )
    frames = sum(one.shape[2] for one in before)
    if not alike or not frames:
        return None
    return Frames(before[0] if len(before) == 1 else torch.cat(before, 2), x)


def _padded(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Frames | None:
    """Gives torch.nn.functional.pad of these, where it can stay as it is."""
    x = Frames(None, input) if _is_video(input) else input
    return x.padded(pad) if isinstance(x, Frames) and mode == "constant" and value in (None, 0) else None


def _called(func: Any, args: Any, kwargs: Any) -> Any:
    """A function of PyTorch's on Frames, or in such a forward."""
    made = None
    if func in _joins:
        made = _joined(*args, **kwargs) if set(kwargs) <= {"dim"} else None
    elif func is _pad:
        made = _padded(*args, **kwargs)
    if made is not None:
        return made
    return func(*pytree.tree_map(_whole, args), **pytree.tree_map(_whole, kwargs))


class JoiningFrames(TorchFunctionMode):
    """Within it torch.cat and torch.nn.functional.pad leave their work to whoever needs the whole tensor. What is written
    to in place is made first."""

    def __init__(self) -> None:
        super().__init__()
        self._made: list[Frames] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._made and (_writes(func) or "out" in kwargs):
            for frames in self._made:
                frames.tensor
        result = _called(func, args, kwargs)
        if isinstance(result, Frames):
            self._made.append(result)
        return result


    def make_what_was_kept(self) -> None:
        """After the forward: frames that somebody still holds become what they were then."""
        while self._made:
            frames = self._made.pop()
            if sys.getrefcount(frames) > 2:  # this name and the argument
                frames.tensor


def _writes(func: Any) -> bool:
    name = getattr(func, "__name__", "")
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__")) or name.startswith("__i")


class _Nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


_nothing: Any = _Nothing()


@cache
def joining(kind: type) -> type:
    """That subclass of torch.nn.Conv3d, whose forward stays, but the convolution that it calls is convtune's."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return forward_joining(kind, self, *args, **kwargs)

    def convolve(self: Any, input: Any, weight: Tensor, bias: Tensor | None) -> Tensor:
        if not isinstance(mode_now(), JoiningFrames):
            return Conv3d._conv_forward(self, _whole(input), weight, bias)
        with _pop_mode_temporarily():
            words = self.precision, "none", self.choices, True, (), self.rounding
            how = input.how(self, *words) if isinstance(input, Frames) else None
            if how is None:
                return Conv3d._conv_forward(self, _whole(input), weight, bias)
            return call_with_cache(input.x, weight, bias, how, None, input.cache, None)

    return made_of(kind, joining, Conv3d, forward=forward, _conv_forward=convolve)


def forward_joining(kind: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """The class's forward of that module; its frames are joined by whoever needs them so, where no gradients are."""
    if _is_compiling() or torch.is_grad_enabled() or module.training:
        return kind.forward(module, *args, **kwargs)
    with JoiningFrames() as mode:
        result = kind.forward(module, *args, **kwargs)
    if type(result) is not Tensor:
        result = pytree.tree_map(_whole, result)
    mode.make_what_was_kept()
    return result


def mode_now() -> Any:
    """The mode that sees functions of PyTorch's first, or None."""
    depth = torch._C._len_torch_function_stack()
    return torch._C._get_function_stack_at(depth - 1) if depth else None
