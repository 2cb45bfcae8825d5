"""Snakes between convolutions of a graph that is recorded: x + sin(alpha x)^2 / (divisor + eps), each an operator whose kernel begins
while the one in front of it ends, as convtune's own do. Inductor's does not: behind it and in front of it the GPU stands still.

    y = torch.ops.convtune.snake1d(x, alpha, divisor, how)     # x (N, C, L) whose channels come last in memory

`how`: whether exponentials of alpha and of the divisor are meant, and eps, as text. docs/decisions/0177-snakes-that-overlap.md has the
reasons.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._python_dispatch import _disable_current_modes

from ...layout import copied, empty, lies
from ...native import OF_PLAN, define
from ...packed import conv2d_packed
from ...pairs import pair1d_packed
from ..capture import Values, fakes_of
from ..pairs import closed_between, same, snake_of
from ..patterns import Weights, aten

__all__ = ["bound_snake", "launches_overlap", "snake1d", "take_snakes"]

_log = logging.getLogger("convtune")
_HALF = (torch.float16, torch.bfloat16)
_MOST_ELEMENTS = 1 << 31  # the kernel counts in 32 bits


@cache
def _kernels() -> Any:
    """The module, None without Triton, or where it has no words for launches that overlap."""
    try:
        from . import snake_kernels
    except ImportError:
        return None
    return snake_kernels if snake_kernels.can_overlap() else None


@cache
def _works(index: int) -> bool:
    """True where a launch that overlaps gives a Snake on that GPU: Triton, its compiler and the driver have to play along."""
    try:
        with _disable_current_modes(), torch.cuda.device(index):
            x = torch.linspace(-3, 3, 1024, dtype=torch.float16, device="cuda").reshape(1, 32, 32).transpose(1, 2)
            alpha, y = torch.linspace(0.5, 2, 32, dtype=torch.float16, device="cuda"), empty(x.shape, x, True)
            bound_snake("plain plain 1e-09", index)(x, alpha, alpha, out=y)
            factor = alpha.double()[:, None]
            return torch.allclose(y.double(), x.double() + (factor * x.double()).sin().square() / factor, rtol=1e-3, atol=1e-3)
    except Exception:
        _log.warning("Snakes stay inductor's: a kernel of Triton's that overlaps does not run", exc_info=True)
        return False


def launches_overlap(index: int) -> bool:
    """True where a kernel in Triton may begin on cuda:`index` while the one in front of it ends, and gives what it gives alone."""
    return _kernels() is not None and torch.cuda.get_device_capability(index) >= (9, 0) and _works(index)


def _words(how: str) -> tuple[bool, bool, float]:
    alpha_is_log, divisor_is_log, eps = how.split()
    return alpha_is_log == "log", divisor_is_log == "log", float(eps)


def bound_snake(how: str, index: int) -> Callable[..., None]:
    """The function that inductor's code calls: (x, alpha, divisor, out=y), on the GPU `index`, or on the CPU (-1)."""
    alpha_is_log, divisor_is_log, eps = _words(how)
    launch = None if index < 0 else _kernels().launch_snake

    def call(x: Tensor, alpha: Tensor, divisor: Tensor, out: Any = None) -> None:
        if launch is not None:
            launch(x, alpha, divisor, out, alpha_is_log, divisor_is_log, eps, True)
            return
        factor, below = (one.float().reshape(-1, 1) for one in (alpha, divisor))
        factor = factor.exp() if alpha_is_log else factor
        below = below.exp() if divisor_is_log else below
        out.copy_(x.float() + (factor * x.float()).sin().square() / (below + eps))

    return call


def _kernel(x: Tensor, alpha: Tensor, divisor: Tensor, how: str) -> Tensor:
    x = x if lies(x, True) else copied(x, True)
    y = empty(x.shape, x, True)
    bound_snake(how, x.get_device() if x.is_cuda else -1)(x, alpha.contiguous(), divisor.contiguous(), out=y)
    return y


def _fake(x: Tensor, alpha: Tensor, divisor: Tensor, how: str) -> Tensor:
    return empty(x.shape, x, True)


snake1d: Any = define("snake1d(Tensor x, Tensor alpha, Tensor divisor, str how) -> Tensor", _kernel, _fake, OF_PLAN)


def _is_own(node: Any) -> bool:
    return isinstance(node, Node) and node.target in (conv2d_packed, pair1d_packed)


def _tail(node: Node) -> Node:
    """The last view of its own shape that is all that reads it."""
    while len(node.users) == 1 and same(user := next(iter(node.users))) is same(node):
        node = user
    return node


def _takes(value: Any) -> bool:
    """True of rows in half precision, channels last, on a GPU whose launches overlap."""
    if not isinstance(value, Tensor) or value.dim() != 3 or value.dtype not in _HALF or not value.is_cuda:
        return False
    return lies(value, True) and 0 < value.numel() < _MOST_ELEMENTS and launches_overlap(value.get_device())


def take_snakes(module: GraphModule, inputs: Sequence[Any]) -> int:
    """Makes operators of the Snakes that stand between two of convtune's, so that no pass of inductor's loses what it would have
    been fused with. How many."""
    if _kernels() is None or not module.graph.find_nodes(op="call_function", target=aten.sin.default):
        return 0
    mode, fakes = fakes_of(inputs)
    if any(not isinstance(one, Tensor) or any(type(size) is not int for size in one.shape) for one in fakes):
        return 0
    with mode, torch.no_grad():
        Values(module, mode).run(*fakes)
    graph, taken = module.graph, 0
    entries, weights = graph.find_nodes(op="placeholder"), Weights(graph, lambda place: True)
    for total in graph.find_nodes(op="call_function", target=aten.add.Tensor):
        node = _tail(total)
        if not _takes(node.meta["val"]) or not node.users or not all(map(_is_own, node.users)):
            continue
        found = snake_of(node, node.meta["val"].shape[1], weights)
        x = None if found is None else same(total.args[found[1]])
        if found is None or found[0] is not total or not _is_own(x) or not closed_between(node, x):
            continue
        snake = found[2]
        how = f"{'log' if snake.alpha_is_log else 'plain'} {'log' if snake.scale_is_log else 'plain'} {snake.eps!r}"
        with graph.inserting_after(node):
            made = graph.call_function(snake1d, (x, entries[snake.alpha], entries[snake.scale], how))
        made.meta = dict(node.meta)
        node.replace_all_uses_with(made)
        taken += 1
    if taken:
        graph.eliminate_dead_code()
        module.recompile()
    return taken
