"""Tensors that something was made of, and whether they still are what they were: the same objects, in the same memory,
not written to since, as PyTorch counts."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..caches import PLANS
from ..tensors import seen
from .native import watch

__all__ = ["Watched", "forget_all", "make_watchable"]

_times = 0  # that all was forgotten: what was seen before holds no more


def forget_all() -> None:
    """Forgets all that was seen until now: after writes that PyTorch does not count."""
    global _times
    _times += 1


PLANS.cleared.append(forget_all)


def make_watchable(model: nn.Module) -> None:
    """Makes parameters and buffers that were made in inference mode ordinary ones over the same memory: PyTorch counts the
    writes to those. They stay the same objects, which an optimizer may hold."""
    for one in [*model.parameters(), *model.buffers()]:
        if type(one) in (Tensor, nn.Parameter) and one.is_inference():
            with contextlib.suppress(RuntimeError):  # refused where others refer to the tensor: its weights are packed always
                torch.utils.swap_tensors(one, _ordinary(one))


def _ordinary(tensor: Tensor) -> Tensor:
    with torch.inference_mode(False), torch.no_grad():
        same = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
        same.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
        if isinstance(tensor, nn.Parameter):
            same = nn.Parameter(same, tensor.requires_grad)
    same.__dict__.update(vars(tensor))
    return same


class Watched:
    """The tensors, and `counters`: tensors of which only the version counts. Raises RuntimeError for tensors that were
    made in inference mode: nobody counts their changes."""

    def __init__(self, tensors: tuple[Tensor, ...], counters: Sequence[Tensor] = ()) -> None:
        self._times = _times
        self._counters = [(one, one._version) for one in counters]
        self._seen = [seen(one) for one in tensors]
        # An id is another's once its tensor is gone.
        self._owners: Any = [weakref.ref(one, self._forget()) for one in tensors]
        self._same = watch(tensors, tuple(counters))

    def hold(self, tensors: tuple[Tensor, ...]) -> bool:
        """True where these are the watched tensors, and unchanged."""
        same, owners = self._same, self._owners  # read once: another thread may forget them meanwhile
        if owners is None or self._times != _times:
            return False
        if same is not None:
            return same(tensors)  # type: ignore[no-any-return]
        try:
            return (
                len(tensors) == len(owners)
                and all(was() is one for was, one in zip(owners, tensors))
                and all(was.holds_for(one) for was, one in zip(self._seen, tensors))
                and all(one._version == version for one, version in self._counters)
            )
        except RuntimeError:
            return False

    def _forget(self) -> Callable[[Any], None]:
        own = weakref.ref(self)

        def forget(_: Any) -> None:
            found = own()
            if found is not None:
                found._owners = found._same = None

        return forget
