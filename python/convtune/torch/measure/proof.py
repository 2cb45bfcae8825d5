"""A compiled graph with convtune's operators beside the one that inductor makes alone: the layers are proven one by
one, but what is around them is inductor's to fuse, and the host's time counts where no CUDA graph hides it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from ..._contest import Contest, contest
from .timing import calls_of_a_sample, wall_us

__all__ = ["aside", "whole"]

_WARM_UP = 4  # runs: cuDNN's search, a CUDA graph's recording, its first replays


def aside(compile: Callable[..., Any], module: GraphModule, inputs: Sequence[Any]) -> Any:
    """`module` compiled, but neither it nor what Dynamo knows of its frame is changed."""
    context: Any = torch._guards.TracingContext.try_get()
    with torch._guards.tracing(copy.copy(context)):
        return compile(copy.deepcopy(module), inputs)


def whole(theirs: Callable[..., Any], ours: Callable[..., Any], inputs: Sequence[Any]) -> Contest:
    """The contest by the wall clock, on the inputs that the graph is compiled for."""
    device = next((one.device for one in inputs if isinstance(one, Tensor) and one.is_cuda), torch.device("cpu"))

    def side(graph: Callable[..., Any]) -> Callable[[int], float]:
        def step() -> None:
            torch.compiler.cudagraph_mark_step_begin()  # the last outputs, which were dropped, may be overwritten
            graph(*inputs)

        return lambda calls: wall_us(step, device, calls)

    before, after = side(theirs), side(ours)
    with torch.no_grad():
        for _ in range(_WARM_UP):
            before(1), after(1)
        calls = calls_of_a_sample(max(before(1), after(1)))
        return contest(lambda: before(calls), lambda: after(calls), 0.0, max_seconds=5)
