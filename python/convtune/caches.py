"""Caches that a process keeps between calls: planned convolutions and packed weights, both bounded.

`PLANS` holds Convolutions by everything that they depend on; the least recently used goes first. Several threads
that ask for the same plan wait for one of them; other plans are made meanwhile. `PACKS` holds packed weights of
PyTorch tensors: see PackCache.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

__all__ = ["PACKS", "PLANS", "LeastRecentlyUsed", "PackCache", "Packed", "Seen", "clear"]

Value = TypeVar("Value")


class LeastRecentlyUsed(Generic[Value]):
    """A bounded map that makes what it lacks, once."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._lock = threading.Lock()
        self._values: OrderedDict[Hashable, Value] = OrderedDict()
        self._making: dict[Hashable, threading.Lock] = {}
        self.cleared: list[Callable[[], object]] = []  # called with every clear()

    def get(self, key: Hashable) -> Value | None:
        with self._lock:
            value = self._values.get(key)
            if value is not None:
                self._values.move_to_end(key)
            return value

    def peek(self, key: Hashable) -> Value | None:
        """get without a lock, and without a note of the use: for calls that are counted in microseconds."""
        return self._values.get(key)

    def get_or_make(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of that key, made where it is missing. An error of `make` is raised, and the next caller tries
        again."""
        value = self.get(key)
        if value is not None:
            return value
        with self._lock:
            own = self._making.setdefault(key, threading.Lock())
        with own:
            value = self.get(key)  # another thread made it while this one waited
            if value is not None:
                return value
            try:
                value = make()
                dropped = []  # destroyed outside of the lock
                with self._lock:
                    self._values[key] = value
                    while len(self._values) > self.bound:
                        dropped.append(self._values.popitem(last=False))
                return value
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def after_fork(self) -> None:
        """Makes new locks in the child, where whoever held one is not."""
        self._lock = threading.Lock()
        self._making = {}

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        with self._lock:
            dropped, self._values = self._values, OrderedDict()
        del dropped
        for follow in self.cleared:
            follow()


class Seen:
    """A PyTorch tensor as it was: how often it was written to, where its numbers are, and a weak reference to the storage
    that owns their memory. The address alone would not tell: a storage that is freed gives it to the next, as after
    `p.data = ...` twice. While the reference is held, the storage's own address (`cdata`) is no other's; the memory of the
    numbers is not held."""

    __slots__ = ("pointer", "storage", "version")

    def __init__(self, tensor: Any, storage: Any) -> None:
        self.version, self.pointer, self.storage = tensor._version, tensor.data_ptr(), storage

    def holds_for(self, tensor: Any) -> bool:
        """True where the tensor is unchanged. Raises RuntimeError on a tensor without versions (inference mode)."""
        return (
            self.version == tensor._version
            and self.pointer == tensor.data_ptr()
            and self.storage.cdata == tensor.untyped_storage()._cdata
        )


class Packed:
    """Packed weights of one (weight, bias, convolution, stream), and how to know that they still hold."""

    __slots__ = ("__weakref__", "bias", "convolution", "memory", "of_bias", "of_w", "pointer")

    def __init__(self, bias: Any, seen: tuple[Seen, Seen | None], convolution: Any, memory: Any, pointer: int) -> None:
        self.bias = None if bias is None else weakref.ref(bias)
        self.of_w, self.of_bias = seen
        self.convolution = convolution  # so that its id, which is in the key, is not another's
        self.memory, self.pointer = memory, pointer

    def holds_for(self, w: Any, bias: Any) -> bool:
        """True where these are the bias that it was made of, and w and bias are unchanged."""
        if not self.of_w.holds_for(w):
            return False
        if bias is None or self.of_bias is None:
            return bias is self.of_bias is None
        return self.bias is not None and self.bias() is bias and self.of_bias.holds_for(bias)


class PackCache:
    """Packed weights by the identity of the weight and bias tensors, what `Seen` tells of them, the
    order in which a convolution has them, and the stream that packed them.

    A weight's entries go when it goes; of one weight no more than `per_weight` are kept (batch sizes, streams), and
    of no more than `weights` of them: the oldest go first. An entry is packed anew when a version, an address or
    a storage has changed. The stream is part of the key, so that what one stream packs no other reads before it is there, and so
    that memory goes back in the order of the stream that used it. What PyTorch does not count is not seen: writes
    through `w.data` or through the memory's address; `convtune.clear_caches()` is for those.

    No lock: every step is one operation of a dict, and a lost race packs once more.
    """

    def __init__(self, weights: int, per_weight: int) -> None:
        self.weights, self.per_weight = weights, per_weight
        # By id(w): the weight, and its entries by (id(bias), order, stream).
        self._of: dict[int, tuple[weakref.ref[Any], dict[Hashable, Packed]]] = {}
        self._recorded: dict[int, tuple[weakref.ref[Any], list[Packed]]] = {}
        self._abandoned: list[Packed] = []

    def find(self, w: Any, bias: Any, convolution: Any, stream: int) -> Packed | None:
        """The entry, if it still holds. Raises RuntimeError on tensors without versions (inference mode)."""
        of = self._of.get(id(w))
        if of is None:
            return None
        owner: Any = of[0]()
        if owner is not w:
            return None
        entry = of[1].get((id(bias), _order(convolution), stream))
        return entry if entry is not None and entry.holds_for(w, bias) else None

    def keep(
        self, w: Any, bias: Any, seen: tuple[Seen, Seen | None], convolution: Any, stream: int, memory: Any, pointer: int
    ) -> Packed:
        """`seen`: of weight and bias before packing, so that a change meanwhile is seen by the next call. `memory`:
        the object that must live as long as `pointer` is used."""
        number, every = id(w), self._of
        of = every.get(number)
        if of is None or of[0]() is not w:

            def drop(gone: weakref.ref[Any]) -> None:
                found = every.get(number)
                if found is not None and found[0] is gone:  # and not a later tensor's of the same id
                    every.pop(number, None)

            of = every[number] = (weakref.ref(w, drop), {})
            _shrink(every, self.weights)
        for order, entry in list(of[1].items()):  # packs of what the weight was: memory that nobody reads any more
            if not entry.of_w.holds_for(w):
                of[1].pop(order, None)
        kept = of[1][id(bias), _order(convolution), stream] = Packed(bias, seen, convolution, memory, pointer)
        _shrink(of[1], self.per_weight)
        return kept

    def forget(self, w: Any) -> None:
        """The next call with that weight packs it."""
        self._of.pop(id(w), None)

    def record(self, w: Any, bias: Any, convolution: Any) -> Packed | None:
        """An entry that still holds, of any stream, which a CUDA graph that is being recorded is to read: it stays, whatever
        is forgotten, and `recorded` gives it to whoever packs the weight anew. None where there is none."""
        kept = self.recorded(w)
        of = self._of.get(id(w))
        for entry in [*kept, *(of[1].values() if of is not None and of[0]() is w else ())]:
            if _order(entry.convolution) == _order(convolution) and entry.holds_for(w, bias):
                if entry not in kept:
                    self._keep_recorded(w, [*kept, entry])
                return entry
        return None

    def recorded(self, w: Any) -> list[Packed]:
        """The entries of that weight which graphs read."""
        of = self._recorded.get(id(w))
        return of[1] if of is not None and of[0]() is w else []

    def release(self, w: Any) -> list[tuple[Packed, Any]]:
        """Drops all weak references to the weight and its biases, as those ask who exchange tensors. What graphs read of it
        stays, for nobody says how long they are replayed; `resume` takes it, with the biases."""
        self.forget(w)
        _, entries = self._recorded.pop(id(w), (None, []))
        self._abandoned += entries
        released = [(entry, None if entry.bias is None else entry.bias()) for entry in entries]
        for entry in entries:
            entry.bias = None
        return released

    def resume(self, w: Any, released: list[tuple[Packed, Any]]) -> None:
        for entry, bias in released:
            entry.bias = None if bias is None else weakref.ref(bias)
            self._abandoned.remove(entry)
        if released:
            self._keep_recorded(w, [entry for entry, _ in released])

    def _keep_recorded(self, w: Any, entries: list[Packed]) -> None:
        number, every = id(w), self._recorded

        def drop(gone: weakref.ref[Any]) -> None:
            found = every.get(number)
            if found is not None and found[0] is gone:
                self._abandoned += every.pop(number)[1]

        of = every.get(number)
        owner = of[0] if of is not None and of[0]() is w else weakref.ref(w, drop)
        every[number] = owner, entries

    def __len__(self) -> int:
        return sum(len(entries) for _, entries in list(self._of.values()))

    def clear(self) -> None:
        self._of.clear()


def _order(convolution: Any) -> Any:
    """In which order a convolution has packed weights: those of others with the same serve it, too."""
    return getattr(convolution, "packing", None) or id(convolution)


def _shrink(entries: dict[Any, Any], bound: int) -> None:
    while len(entries) > bound:
        try:
            entries.pop(next(iter(entries)), None)
        except (RuntimeError, StopIteration):  # another thread is at it
            return


PLANS: LeastRecentlyUsed[Any] = LeastRecentlyUsed(4096)  # 64 batches of 60 layers
os.register_at_fork(after_in_child=PLANS.after_fork)
PACKS = PackCache(weights=4096, per_weight=4)


def clear() -> None:
    """Forgets every planned convolution and every packed weight; the next calls make them anew."""
    PACKS.clear()
    PLANS.clear()
