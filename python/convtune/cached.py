"""A property that is computed once. functools.cached_property holds a lock meanwhile in Python 3.10 and 3.11, which a
child that is forked in that moment never gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

__all__ = ["cached_property"]

Value = TypeVar("Value")


class cached_property(Generic[Value]):  # noqa: N801
    """Keeps the value in the object's __dict__, as functools' does. Two threads may both compute it."""

    def __init__(self, compute: Callable[[Any], Value]) -> None:
        self.compute, self.__doc__ = compute, compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> cached_property[Value]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Value: ...
    def __get__(self, instance: object | None, owner: type) -> cached_property[Value] | Value:
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
