"""Batch norms folded into the weights of the convolution before them, and weights packed as a kernel reads them: once,
and again when a tensor that they were made of has changed, into the same memory, so that compiled graphs and CUDA
graphs read what holds then."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch import Tensor

from ..convolution import Convolution
from ..tensors import pack_into
from .native import watch

__all__ = ["Fold", "Folded", "Packing", "folded"]

_version: Any = attrgetter("_version")
_address: Any = Tensor.data_ptr


def folded(
    weight: Tensor, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None, gamma: Tensor | None,
    beta: Tensor | None, eps: float, dtype: torch.dtype,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Weight, of type `dtype`, and bias of the convolution that does the norm as well: made in double precision, so
    that each is rounded once. The bias is float32: it costs a kernel nothing, and half precision has too few digits.
    Without mean and variance gamma alone scales; without any of them weight and bias are only converted. A matrix is
    the weight of a 1x1 filter."""
    if weight.dim() == 2:
        weight = weight[:, :, None, None]
    if mean is None or variance is None:
        if gamma is None:
            return weight.to(dtype), None if bias is None else bias.float()
        mean, variance, eps = torch.zeros_like(gamma), torch.ones_like(gamma), 0.0
    scale = (variance.double() + eps).rsqrt()
    if gamma is not None:
        scale = scale * gamma.double()
    scale = scale.flatten()
    shift = (0 if bias is None else bias.double()) - mean.double().flatten()
    shift = shift * scale if beta is None else shift * scale + beta.double()
    return (weight.double() * scale.view(-1, 1, 1, 1)).to(dtype), shift.float()


@dataclass(frozen=True)
class Fold:
    """One convolution with its norm, by the places of (weight, bias, mean, variance, gamma, beta) among a graph's
    inputs; None for those that are not there. `as_they_are`: there is no norm, and nothing to convert."""

    places: tuple[int | None, ...]
    eps: float
    dtype: torch.dtype
    as_they_are: bool = False

    def of(self, inputs: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
        weight, bias, mean, variance, gamma, beta = (None if at is None else inputs[at] for at in self.places)
        if self.as_they_are:
            return weight, bias  # type: ignore[return-value]
        return folded(weight, bias, mean, variance, gamma, beta, self.eps, self.dtype)  # type: ignore[arg-type]

    def renew(self, memory: Sequence[Tensor | None], inputs: Sequence[Any]) -> None:
        for old, new in zip(memory, self.of(inputs)):
            if old is not None and new is not None:
                old.copy_(new)


@dataclass(frozen=True)
class Packing:
    """What a fold gives, packed for one kernel."""

    fold: Fold
    convolution: Convolution

    @property
    def places(self) -> tuple[int | None, ...]:
        return self.fold.places

    def of(self, inputs: Sequence[Any]) -> tuple[Tensor]:
        weight = inputs[self.fold.places[0]]  # type: ignore[index]
        memory = torch.empty(max(self.convolution.packed_bytes, 1), dtype=torch.uint8, device=weight.device)
        self.renew([memory], inputs)
        return (memory,)

    def renew(self, memory: Sequence[Tensor | None], inputs: Sequence[Any]) -> None:
        pack_into(memory[0], self.convolution, *self.fold.of(inputs))  # type: ignore[arg-type]


def _counters(means: Sequence[Tensor]) -> list[Tensor]:
    """What the norms of these running means count their forwards in training mode by: their writes to the running
    statistics change no `_version`. Dynamo hands over the tensors alone; the module is found by who holds them."""
    if not means:
        return []
    known = set(map(id, means))
    holders = [one for one in gc.get_referrers(*means) if isinstance(one, dict) and id(one.get("running_mean")) in known]
    counters = [one.get("num_batches_tracked") for one in holders]
    return [one for one in counters if isinstance(one, Tensor)]


class Folded:
    """The memory of all that is folded and packed in one graph, and whether it still holds: by identity, address and
    `_version` of everything that it was made of, as packed weights are kept. `counters`: by which its norms count, where
    the caller knows them."""

    def __init__(
        self, folds: Sequence[Fold | Packing], inputs: Sequence[Any], counters: list[Tensor] | None = None
    ) -> None:
        self.folds = list(folds)
        if counters is None:
            counters = _counters([inputs[fold.places[2]] for fold in folds if fold.places[2] is not None])
        self._counters = counters
        places = sorted({at for fold in folds for at in fold.places if at is not None})
        self._sources: Any = itemgetter(*places, places[0])  # a tuple also of one
        own = {id(one) for one in self._sources(inputs)}

        def apart(memory: Tensor | None) -> Tensor | None:
            """What renewing writes must be nobody else's: a bias that is float32 already comes back as it is."""
            return memory.clone() if memory is not None and id(memory) in own else memory

        with torch.inference_mode(False), torch.no_grad():  # what is kept is for calls in any mode
            self.tensors: list[Any] = [tuple(map(apart, fold.of(inputs))) for fold in folds]
        self._seen: Any = None
        self._same: Any = None  # the same, told by C++
        self._remember(self._sources(inputs))

    def refresh(self, inputs: Sequence[Any]) -> bool:
        """Makes it hold again; whether it did not."""
        sources = self._sources(inputs)
        same = self._same  # read once: another thread may forget it meanwhile
        if same is not None:
            if same(sources):
                return False
        elif self._seen is not None:
            try:
                if self._seen == self._state(sources):
                    return False
            except RuntimeError:  # made in inference mode: nobody counts its changes
                pass
        with torch.inference_mode(False), torch.no_grad():
            for fold, memory in zip(self.folds, self.tensors):
                fold.renew(memory, inputs)
        self._remember(sources)
        return True

    @property
    def is_known(self) -> bool:
        """Whether refresh can tell that nothing has changed; it cannot of tensors that were made in inference mode."""
        return self._seen is not None

    def _state(self, sources: tuple[Tensor, ...]) -> Any:
        trained = list(map(_version, self._counters))
        return list(map(id, sources)), list(map(_address, sources)), list(map(_version, sources)), trained

    def _remember(self, sources: tuple[Tensor, ...]) -> None:
        try:
            self._seen = self._state(sources)
        except RuntimeError:
            self._seen = self._same = None
            return
        # An id is another's once its tensor is gone.
        self._owners = [weakref.ref(one, self._forget()) for one in sources]
        self._same = watch(sources, tuple(self._counters))

    def _forget(self) -> Callable[[Any], None]:
        own = weakref.ref(self)

        def forget(_: Any) -> None:
            found = own()
            if found is not None:
                found._seen = found._same = None

        return forget
