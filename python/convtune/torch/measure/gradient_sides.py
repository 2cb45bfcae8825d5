"""The two ways of one direction of a layer in a step of training: PyTorch's and convtune's, on random data that lie as the
model's do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from ..backward import gradients, pytorch_gradients
from ..how import How
from ..layout import empty, output_last
from ..run import problem_for
from .sides import Sides, random

__all__ = ["ForwardSides", "GradientSides"]

_EXACT_FLOPS = 2e10  # in double precision; cuDNN's gradients in it have no fast kernels


class ForwardSides(Sides):
    """A forward without bias, whose weight is packed in every call."""

    def __init__(self, weight: Tensor, how: How, shape: Any, strides: Any, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(SimpleNamespace(weight=weight, bias=None), shape, strides, dtype, device, replace(how, reuse=False))

    def pytorch(self) -> Tensor:
        with torch.no_grad():
            return super().pytorch()

    def alone(self) -> Tensor:
        """PyTorch's way: nothing is fused with it."""
        return self.pytorch()

    def convtune(self, line: str) -> Callable[[], Tensor]:
        ours = super().convtune(line)

        def run() -> Tensor:
            with torch.no_grad():
                return ours()

        return run


class GradientSides:
    """`of`: "x", or "w", with the bias's in the same call where `bias_type` is one."""

    def __init__(
        self, of: str, weight: Tensor, how: How, shape: Any, strides: Any, dtype: torch.dtype, device: torch.device,
        bias_type: torch.dtype | None,
    ) -> None:  # fmt: skip
        self._of, self._how, self._bias_type = of, how, bias_type if of == "w" else None
        self.x, self.weight = random(shape, strides, dtype, device), weight.detach().to(dtype)
        self._problem = problem_for(self.x, self.weight, how, None)
        convolved = self._problem if not how.transposed else self._problem.replace(direction="fwd")
        image = (self._problem.d, self._problem.h, self._problem.w) if how.transposed else (1, *convolved.output_size)
        y = empty((shape[0], how.channels(self.weight), *image[-how.axes :]), self.x, output_last(self.x, self.weight))
        self.dy = random(y.shape, y.stride(), dtype, device)

    def _asked(self, run: Callable[..., Any], how: How, *tensors: Tensor) -> Tensor:
        dx, dw, _ = run(*tensors, self._bias_type, how, (self._of == "x", self._of == "w", self._bias_type is not None))
        return dx if self._of == "x" else dw  # type: ignore[no-any-return]

    def expected(self) -> Tensor:
        return self.pytorch()

    def exact(self, images: int) -> Tensor:
        """The gradient in double precision: of x for the first `images`, of the weight over all; of as many of the first groups
        or, of one group, of the first channels of x or rows of the weight, as `_EXACT_FLOPS` are enough for."""
        x, dy, weight, how = self.x, self.dy, self.weight, self._how
        if self._of == "x":
            x, dy = x[:images], dy[:images]
        share = min(1.0, _EXACT_FLOPS / max(self._problem.flops * len(x) / max(len(self.x), 1), 1))

        def first(channels: int) -> int:
            return max(int(channels * share), 1)

        if how.groups > 1:
            groups = first(how.groups)
            x, dy = (one[:, : one.shape[1] // how.groups * groups] for one in (x, dy))
            weight, how = weight[: weight.shape[0] // how.groups * groups], replace(how, groups=groups)
        elif self._of == "x" and not how.transposed:
            x, weight = x[:, : first(x.shape[1])], weight[:, : first(x.shape[1])]
        else:  # rows of the weight are the channels of x in a transposed layer, else of dy
            weight = weight[: first(weight.shape[0])]
            x, dy = (x[:, : weight.shape[0]], dy) if how.transposed else (x, dy[:, : weight.shape[0]])
        return self._asked(pytorch_gradients, how, dy.double(), x.double(), weight.double())

    def pytorch(self) -> Tensor:
        with torch.no_grad():
            return self._asked(pytorch_gradients, self._how, self.dy, self.x, self.weight)

    def alone(self) -> Tensor:
        """PyTorch's way: nothing follows a gradient."""
        return self.pytorch()

    def convtune(self, line: str) -> Callable[[], Tensor]:
        how = replace(self._how, choices=line)

        def run() -> Tensor:
            with torch.no_grad():
                return self._asked(gradients, how, self.dy, self.x, self.weight)

        return run
