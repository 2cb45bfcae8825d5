"""Packed weights forgotten, and packed again where CUDA graphs read them: docs/decisions/0118-weights-that-graphs-read.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ..caches import PACKS
from ..tensors import renew
from . import autocast
from .watched import forget_all

__all__ = ["forget_packed", "forget_weights", "release_weights"]


def forget_weights(module: Any) -> None:
    """Packs the weights of a module, or one tensor, anew at the next call, and at once where CUDA graphs of eager calls
    read them; what compiled graphs keep stays."""
    for tensor in [module] if isinstance(module, Tensor) else module.parameters():
        PACKS.forget(tensor)
        renew(tensor, whatever=True)
        autocast.forget(tensor)


def release_weights(module: Any) -> Callable[[], None]:
    """Drops all weak references to the parameters of a module, for PyTorch exchanges no tensor that has some. What is given
    back packs for CUDA graphs again."""
    released = []
    for tensor in module.parameters():
        released.append((tensor, PACKS.release(tensor)))
        autocast.forget(tensor)

    def resume() -> None:
        for tensor, entries in released:
            PACKS.resume(tensor, entries)
            renew(tensor, whatever=True)

    return resume


def forget_packed(module: Any) -> None:
    """Packs the weights of a module, of all modules in it, or of one tensor anew at the next call, and folds and packs
    those of compiled graphs and of `graphed` models. Needed only after writes that PyTorch does not count: through
    `weight.data` (so adapters are merged), or through the memory's address."""
    forget_weights(module)
    forget_all()
