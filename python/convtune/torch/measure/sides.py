"""The two ways of one layer that compete in optimize and in the compiler: PyTorch's and convtune's, on random data that
lie as the model's do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...problem import Problem
from ..frames import joined
from ..functional import call, call_with_cache
from ..how import How, edges_of
from ..native import forward
from ..run import PYTORCHS, activated, problem_for, pytorch_convolution, run

__all__ = ["Fused", "FusedSides", "Sides", "how_of", "random"]

_EXACT_FLOPS = 2e10  # in double precision, whose kernels for frames are slow


def random(shape: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor of numbers in -1..1, with those strides."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
    return torch.rand(extent, device=device).mul_(2).sub_(1).to(dtype).as_strided(shape, strides)


def how_of(module: Any) -> How:
    """A torch.nn.Conv1d's, Conv2d's or Conv3d's own, with its zero padding."""
    more = module.output_padding if isinstance(module, torch.nn.modules.conv._ConvTransposeNd) else ()
    return How(module.stride, edges_of(module), module.dilation, module.groups, output_padding=more)


def _exact(images: int, x: Tensor, weight: Tensor, bias: Tensor | None, how: How) -> Tensor:
    if how.transposed:  # whose rows at an end need what is behind it
        parts = None if bias is None else bias.detach().double()
        return pytorch_convolution(x[:images].double(), weight.double(), parts, replace(how, activation="none"))
    problem, height = problem_for(x, weight, how, None), x.shape[2]  # frames where there are some
    work = problem.flops / problem.n * min(images, problem.n)
    least = how.dilation[0] * (weight.shape[2] - 1) + 1
    rows = max(int(height * min(1.0, _EXACT_FLOPS / max(work, 1))), min(least, height))
    edges = list(how.padding)
    edges[how.axes] *= rows == height
    how = replace(how, padding=tuple(edges), activation="none")
    exact_bias = None if bias is None else bias.detach().double()
    return pytorch_convolution(x[:images, :, :rows].double(), weight.double(), exact_bias, how)


class Sides:
    """PyTorch's and convtune's way of one layer, on random data that lie as the model's do."""

    def __init__(
        self, module: Any, shape: Any, strides: Any, dtype: torch.dtype, device: torch.device, how: How | None = None,
        cache: Tensor | None = None, rounding: str = "once",
    ) -> None:  # fmt: skip
        """`how`: of a module whose forward pads its frames, or joins them to those of a cache like that one."""
        self.x = random(shape, strides, dtype, device)
        self.cache = None if cache is None else random(cache.shape, cache.stride(), dtype, device)
        self.weight, self.bias = module.weight.to(dtype), module.bias  # autocast: of another type
        self.pytorch_bias = None if module.bias is None else module.bias.to(dtype)
        self.joins, self.how = how is not None, replace(how or how_of(module), rounding=rounding)

    def expected(self) -> Tensor:
        return self.pytorch()

    @property
    def _whole(self) -> tuple[Tensor, How]:
        return (self.x, self.how) if self.cache is None else joined(self.cache, self.x, self.how)

    def exact(self, images: int) -> Tensor:
        """The answer for the first `images` in double precision; for large images their first rows or frames."""
        whole, how = self._whole
        return _exact(images, whole, self.weight.detach(), self.bias, how)

    def pytorch(self) -> Tensor:
        if self.joins:
            whole, how = self._whole
            return pytorch_convolution(whole, self.weight, self.pytorch_bias, how)
        if self.how.transposed:
            return pytorch_convolution(self.x, self.weight, self.pytorch_bias, self.how)
        stride, edges, dilation, groups = self.how.geometry
        axes = self.how.axes
        edges_or_same = edges[:axes] if edges[:axes] == edges[axes:] else "same"
        return PYTORCHS[axes](self.x, self.weight, self.pytorch_bias, stride, edges_or_same, dilation, groups)  # type: ignore[no-any-return]

    def convtune(self, line: str) -> Callable[[], Tensor]:
        how = replace(self.how, choices=line)
        if self.cache is not None:
            return lambda: call_with_cache(self.x, self.weight, self.bias, how, None, self.cache, None)
        return lambda: call(self.x, self.weight, self.bias, how)


@dataclass
class Fused:
    """A convolution with what follows it, by the shapes and strides of its tensors. `normed`: a batch norm is between
    convolution and residual in PyTorch's way. `eager`: PyTorch runs each of them by itself. `linear`: there it is a
    product of matrices, of images that lie channels last."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    weight_shape: tuple[int, ...]
    weight_strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    bias_type: torch.dtype | None
    how: How
    residual_strides: tuple[int, ...] | None
    normed: bool
    eager: bool = False
    linear: bool = False
    cache: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # shape and strides

    def empty(self) -> tuple[Tensor, Tensor]:
        """Image and weight, with no numbers in them yet."""
        kind: Any = {"dtype": self.dtype, "device": self.device}
        weight = torch.empty_strided(self.weight_shape, self.weight_strides, **kind)
        return torch.empty_strided(self.shape, self.strides, **kind), weight

    def empty_cache(self) -> Tensor | None:
        return None if self.cache is None else torch.empty_strided(*self.cache, dtype=self.dtype, device=self.device)

    @property
    def problem(self) -> Problem:
        frames = 0 if self.cache is None else self.cache[0][2]
        return problem_for(*self.empty(), self.how, self.bias_type, self.residual_strides is not None, frames)

    @property
    def kind(self) -> str:
        """A text by which contests of different layers differ."""
        return repr(replace(self, name=""))

    def sides(self) -> FusedSides:
        return FusedSides(self)


class FusedSides:
    """PyTorch's way, where it compiles, is its convolution and one more pass over the output, which is what a compiler
    makes of a norm, a sum and an activation at best; and of a bias on a GPU, where no more than a bias follows the
    convolution: nothing, for what reads the output adds it."""

    def __init__(self, fused: Fused) -> None:
        self.fused, device = fused, fused.device
        self.x = self.whole = random(fused.shape, fused.strides, fused.dtype, device)
        self.how, self.cache = fused.how, None
        if fused.cache is not None:  # joined beforehand: a compiler joins and pads in one pass
            self.cache = random(*fused.cache, fused.dtype, device)
            self.whole, self.how = joined(self.cache, self.x, fused.how)
        self.weight = random(fused.weight_shape, fused.weight_strides, fused.dtype, device)
        kind = fused.bias_type
        channels = fused.how.channels(self.weight)
        self.bias = None if kind is None else random((channels,), (1,), kind, device)
        self.residual: Tensor | None = None
        if fused.residual_strides is not None:
            shape = pytorch_convolution(self.whole, self.weight, None, self.how).shape
            self.residual = random(shape, fused.residual_strides, fused.dtype, device)
        self.norm: Any = [one.to(device) for one in (torch.zeros(channels), torch.ones(channels))]

    def expected(self) -> Tensor:
        return pytorch_convolution(self.whole, self.weight, self.bias, self.how, self.residual)

    def exact(self, images: int) -> Tensor:
        """The exact answer, as `Sides.exact` gives it."""
        y = _exact(images, self.whole, self.weight, self.bias, self.how)
        if self.residual is not None:
            y += self.residual[:images, :, : y.shape[2]].double()
        return activated(y, self.fused.how.activation)

    def alone(self, bias: Tensor | None = None) -> Tensor:
        """PyTorch's convolution without what follows it, which a compiler may have in a pass that is there anyway."""
        if self.fused.linear:
            return (self.x.permute(0, 2, 3, 1) @ self.weight.flatten(1).t()).permute(0, 3, 1, 2)
        return pytorch_convolution(self.whole, self.weight, bias, self.how.alone)

    def pytorch(self) -> Tensor:
        fused = self.fused
        is_apart = fused.normed or (fused.device.type == "cuda" and not fused.eager)
        y = self.alone(None if is_apart else self.bias)
        if fused.eager:
            if fused.normed:
                y = torch.nn.functional.batch_norm(y, *self.norm, *self.norm[::-1])
            return activated(y if self.residual is None else y + self.residual, fused.how.activation)
        if self.residual is not None:
            return y + self.residual
        if fused.how.activation != "none":
            return activated(y, fused.how.activation)
        return y + 1 if fused.normed else y

    def convtune(self, line: str) -> Callable[[], Tensor]:
        how = replace(self.fused.how, choices=line)
        if self.cache is not None:
            return lambda: run(self.x, self.weight, self.bias, how, self.residual, cache=self.cache)
        return lambda: forward(self.x, self.weight, self.bias, self.residual, how)
