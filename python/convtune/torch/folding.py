"""Batch norms folded into the weights of the convolution before them, and weights packed as a kernel reads them: once,
and again when a tensor that they were made of has changed, into the same memory, so that compiled graphs and CUDA
graphs read what holds then."""

from __future__ import annotations

import contextlib
import gc
import logging
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from ..convolution import Convolution
from ..tensors import allowed_precision, alone, between_reads, pack_into
from .watched import Watched

__all__ = ["Fold", "Folded", "Packing", "as_allowed", "folded", "refreshing"]

_log = logging.getLogger("convtune")
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
_RECORDED_TOO_EARLY = (
    "a CUDA graph is recorded between a change of weights and the call that packs them: every replay runs PyTorch's own "
    "uncompiled operators. Call the model once behind the change, and record the graph then"
)
_HALF_AN_ULP = 2.0**-11  # half an ulp of float16


class _Shared:
    """Packed weights that graphs hold together: a decoder's graphs, of no cache, of one frame and of two. `watched`: of what they
    are packed now; None where nobody can tell. `graphs`: who reads them; one of them packs them again, for all."""

    def __init__(self, memory: Tensor, sources: tuple[Tensor, ...], gone: Callable[[Any], None]) -> None:
        self.watched: Watched | None = Watched(sources)
        self.memory = weakref.ref(memory, gone)
        self.graphs: weakref.WeakSet[Folded] = weakref.WeakSet()

    def holds(self, sources: tuple[Tensor, ...]) -> bool:
        return self.watched is not None and self.watched.hold(sources)

    def note(self, watched: Watched | None, own: Folded) -> None:
        """The weights were packed again, of these: the other graphs look again in their next call."""
        self.watched = watched
        for graph in self.graphs:
            if graph is not own:
                graph.look_again()


_shared: dict[Any, _Shared] = {}  # by what they are packed of, as long as one graph lives


def _scale(variance: Tensor | None, gamma: Tensor | None, eps: float) -> Tensor | None:
    """The factor of each channel that the norm multiplies by, in double precision."""
    if variance is None:
        return None if gamma is None else gamma.double().flatten()
    scale = (variance.double() + eps).rsqrt()
    return (scale if gamma is None else scale * gamma.double()).flatten()


def _filters(weight: Tensor) -> Tensor:
    """A matrix is the weight of a 1x1 filter."""
    return weight[:, :, None, None] if weight.dim() == 2 else weight


def _by_filter(scale: Tensor, weight: Tensor, axis: int) -> Tensor:
    """One number for each filter, to be multiplied by the weight, whose filters are along that axis."""
    return scale.view(*[1] * axis, -1, *[1] * (weight.dim() - axis - 1))


def folded(
    weight: Tensor, bias: Tensor | None, mean: Tensor | None, variance: Tensor | None, gamma: Tensor | None,
    beta: Tensor | None, eps: float, dtype: torch.dtype, axis: int = 0,
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """Weight, of type `dtype`, and bias of the convolution that does the norm as well: made in double precision, so
    that each is rounded once. The bias is float32: it costs a kernel nothing, and half precision has too few digits.
    Without mean and variance gamma alone scales; without any of them weight and bias are only converted."""
    weight, scale = _filters(weight), _scale(variance, gamma, eps)
    if scale is None:
        return weight.to(dtype), None if bias is None else bias.float()
    shift = torch.zeros_like(scale) if bias is None else bias.double()
    if mean is not None:
        shift = shift - mean.double().flatten()
    shift = shift * scale if beta is None else shift * scale + beta.double()
    return (weight.double() * _by_filter(scale, weight, axis)).to(dtype), shift.float()


@dataclass(frozen=True)
class Fold:
    """One convolution with its norm, by the places of (weight, bias, mean, variance, gamma, beta) among a graph's
    inputs; None for those that are not there. A seventh is that of the magnitude of weight_norm, whose direction the weight
    is. `as_they_are`: there is no norm, and nothing to convert. `axis`: of the weight, along which its filters are."""

    places: tuple[int | None, ...]
    eps: float
    dtype: torch.dtype
    as_they_are: bool = False
    axis: int = 0

    @property
    def is_of_inputs(self) -> bool:
        """True where the result is a weight and a bias among the graph's inputs."""
        return self.as_they_are and len(self.places) == 6

    def of(self, inputs: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
        weight, bias, mean, variance, gamma, beta = self._six(inputs)
        if self.as_they_are:
            return weight, bias
        return folded(weight, bias, mean, variance, gamma, beta, self.eps, self.dtype, self.axis)

    def _six(self, inputs: Sequence[Any]) -> tuple[Any, ...]:
        """The weight, computed where it is weight_norm's, bias, mean, variance, gamma and beta."""
        weight, *rest = (None if at is None else inputs[at] for at in self.places[:6])
        return (torch._weight_norm(weight, inputs[self.places[6]], 0) if self.places[6:] else weight, *rest)  # type: ignore[index]

    def fits(self, inputs: Sequence[Any]) -> Tensor | None:
        """True where each channel's weights lose no more than rounding takes in `dtype`'s normal range: on the root mean
        square at most half a unit in the last place. float16 ends at 6e-5 and 65504. None where nothing is to be asked."""
        weight, _, _, variance, gamma, _ = self._six(inputs) if self.dtype is torch.float16 else (None,) * 6
        scale = _scale(variance, gamma, self.eps)
        if scale is None:
            return None
        filters = _filters(weight)
        exact = (filters.double() * _by_filter(scale, filters, self.axis)).transpose(0, self.axis).flatten(1)
        lost = (exact.to(self.dtype).double() - exact).norm(dim=1)
        return (lost <= _HALF_AN_ULP * exact.norm(dim=1)).all()

    def at(self, places: Sequence[int | None]) -> Fold:
        """This fold with its tensors at other places among the inputs."""
        return replace(self, places=tuple(places))

    def renew(self, memory: Sequence[Tensor | None], inputs: Sequence[Any]) -> None:
        for old, new in zip(memory, self.of(inputs)):
            if old is not None and new is not None:
                old.copy_(new)

    def pack(self, memory: Tensor, convolution: Convolution, inputs: Sequence[Any]) -> None:
        pack_into(memory, convolution, *self.of(inputs))


@dataclass(frozen=True)
class Packing:
    """The result of a fold, packed for one kernel: of a convolution, or of a pair (pairs.PairFold and pair.Pair)."""

    fold: Any
    convolution: Any = field(compare=False)
    packing: str = field(init=False)  # the convolution's: others with the same read this memory, too

    def __post_init__(self) -> None:
        object.__setattr__(self, "packing", self.convolution.packing)

    @property
    def places(self) -> tuple[int | None, ...]:
        return self.fold.places

    def fits(self, inputs: Sequence[Any]) -> Tensor | None:
        return self.fold.fits(inputs)  # type: ignore[no-any-return]

    def sources(self, inputs: Sequence[Any]) -> tuple[Tensor, ...]:
        return tuple(inputs[at] for at in self.fold.places if at is not None)

    def of(self, inputs: Sequence[Any]) -> tuple[Tensor]:
        """The memory of another graph that holds the same, or new memory."""
        sources = self.sources(inputs)
        own = tuple(None if at is None else id(inputs[at]) for at in self.fold.places)
        key = self.fold.at(own), self.packing
        found = _shared.get(key)
        memory = found and found.memory()
        if memory is not None and found.holds(sources):  # type: ignore[union-attr]
            return (memory,)
        memory = torch.empty(max(self.convolution.packed_bytes, 1), dtype=torch.uint8, device=sources[0].device)
        if self.fold.places[2] is None:  # no norm: what its training changes is counted elsewhere
            with contextlib.suppress(RuntimeError):  # tensors made in inference mode count no changes
                memory.shared = _shared[key] = _Shared(memory, sources, lambda _: _shared.pop(key, None))  # type: ignore[attr-defined]
        self.renew([memory], inputs)
        return (memory,)

    def renew(self, memory: Sequence[Tensor | None], inputs: Sequence[Any]) -> None:
        self.fold.pack(memory[0], self.convolution, inputs)


def _counters(means: Sequence[Tensor]) -> list[Tensor]:
    """The counters of forwards in training mode of the norms with these running means: their writes to the running
    statistics change no `_version`. Dynamo hands over the tensors alone; the module is found by who holds them."""
    if not means:
        return []
    known = set(map(id, means))
    tables = (one for one in gc.get_objects() if type(one) is dict and "running_mean" in one)
    counters = [one.get("num_batches_tracked") for one in tables if id(one["running_mean"]) in known]
    return [one for one in counters if isinstance(one, Tensor)]


class _Changed:
    """Stands for what a graph has seen where that says no more what its memory holds."""

    def hold(self, tensors: tuple[Tensor, ...]) -> bool:
        return False


class Folded:
    """The memory of all that is folded and packed in one graph, and whether it still holds: packed weights are kept so.
    `counters`: by which its norms count, where the caller knows them. `fits`: whether the types of its weights have the
    digits for what is folded into them; else the norm must be computed by itself."""

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
            """Memory of its own, since renewing writes to it: a bias that is float32 already comes back as it is."""
            return memory.clone() if memory is not None and id(memory) in own else memory

        # Before, so that a change meanwhile is seen by the next call.
        self._watched: Watched | _Changed | None = _watch(self._sources(inputs), self._counters)
        with self._alone(inputs), between_reads(*self._sources(inputs)):
            self.tensors: list[Any] = [tuple(map(apart, fold.of(inputs))) for fold in folds]
            self.fits = _fit(folds, inputs)
        self._shared = [getattr(memory[0], "shared", None) for memory in self.tensors]
        for shared in self._shared:
            if shared is not None:
                shared.graphs.add(self)

    def look_again(self) -> None:
        """Makes the next call see whether the memory still holds: another graph wrote to what both read."""
        self._watched = self._watched and _Changed()

    def hold(self, inputs: Sequence[Any]) -> bool:
        """True where the memory still holds; nothing is changed."""
        watched = self._watched
        return watched is not None and watched.hold(self._sources(inputs))

    def refresh(self, inputs: Sequence[Any]) -> bool:
        """Makes it hold again; whether it did not. A CUDA graph that is recorded writes to nothing that others read: where the
        answer is True, it does not hold yet."""
        if self.hold(inputs):
            return False
        recorded = any(source.is_cuda for source in self._sources(inputs)) and _capturing()
        if recorded and self.is_known:
            return True
        with self._alone(inputs):
            if self.hold(inputs):  # by now: another thread was faster
                return True
            watched = _watch(self._sources(inputs), self._counters)
            packed: list[tuple[_Shared, Watched | None]] = []
            with between_reads(*self._sources(inputs)):
                for fold, memory, shared in zip(self.folds, self.tensors, self._shared):
                    if shared is None:
                        fold.renew(memory, inputs)
                    elif not shared.holds(sources := fold.sources(inputs)):  # type: ignore[union-attr]
                        packed.append((shared, _watch(sources)))
                        fold.renew(memory, inputs)
                if not recorded:  # which takes no question to the device
                    self.fits = _fit(self.folds, inputs)
            for shared, of in packed:  # now that they are written: who looks takes no lock
                shared.note(of, self)
            self._watched = watched
        return True

    @contextlib.contextmanager
    def _alone(self, inputs: Sequence[Any]) -> Iterator[None]:
        """Surrounds the look at what is kept and the writes to it, for calls in any mode."""
        with alone(*self._sources(inputs)), torch.inference_mode(False), torch.no_grad():
            yield

    @property
    def is_known(self) -> bool:
        """True where refresh can tell that nothing has changed; it cannot for tensors that were made in inference
        mode."""
        return self._watched is not None


def _watch(tensors: tuple[Tensor, ...], counters: Sequence[Tensor] = ()) -> Watched | None:
    """None for tensors that were made in inference mode."""
    try:
        return Watched(tensors, counters)
    except RuntimeError:
        return None


def _fit(folds: Sequence[Fold | Packing], inputs: Sequence[Any]) -> bool:
    """One question to the device."""
    found = [one for one in (fold.fits(inputs) for fold in folds) if one is not None]
    return not found or bool(torch.stack(found).all())


def refreshing(
    compiled: Callable[..., Any], original: Callable[..., Any], folded: Folded, may_run_twice: bool
) -> Callable[..., Any]:
    """The function that torch.compile calls: the packed weights follow the model's. On a GPU the look at hundreds of
    tensors takes none of the device's time where it comes after the launch; what was launched with old weights is
    launched again. Where their type has not the digits for the norms in them, or a CUDA graph is recorded before they were packed
    again, Dynamo's graph runs as it is."""

    def follow(*inputs: Any) -> Any:
        """Behind a change of weights."""
        stale = folded.is_known and not folded.hold(inputs)
        if stale:
            _log.warning(_RECORDED_TOO_EARLY)
        return (original if stale or not folded.fits else compiled)(*inputs)

    def run(*inputs: Any) -> Any:
        if folded.refresh(inputs):
            return follow(*inputs)
        return (compiled if folded.fits else original)(*inputs)

    def run_first(*inputs: Any) -> Any:
        if not (folded.is_known and folded.fits):
            return run(*inputs)
        y = compiled(*inputs)
        if not folded.refresh(inputs):
            return y
        del y  # a CUDA graph writes where the last outputs were
        return follow(*inputs)

    return run_first if may_run_twice else run


def as_allowed(compiled: Callable[..., Any], original: Callable[..., Any], index: int) -> Callable[..., Any]:
    """A plan in float32 is of one precision; where PyTorch's settings allow another one now (TF32 or not), of which
    Dynamo takes no notice, Dynamo's graph runs as it is."""
    precision = allowed_precision(index)

    def run(*inputs: Any) -> Any:
        return (compiled if allowed_precision(index) == precision else original)(*inputs)

    return run
