"""Sizes, strides and paddings as callers write them, turned into the numbers that are meant. Axes are one
(along a row), two (vertical, horizontal), or three with the depth before them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from .errors import InvalidArgument

__all__ = ["Padding", "Steps", "padding_of", "real", "seconds_of", "steps_of", "whole"]

# A number for all axes, or one for each.
Steps = int | Sequence[int]
# One number for both ends of each axis; or all that come before the image, then all behind; or "valid" or "same".
Padding = int | Sequence[int] | str

_INT64 = range(-(2**63), 2**63)
_STEPS = {1: "one", 2: "two (vertical, horizontal)", 3: "three (depth, vertical, horizontal)"}
_EDGES = {1: "two (left, right)", 2: "four (top, left, bottom, right)", 3: "six (front, top, left, back, bottom, right)"}


def whole(value: Any, what: str) -> int:
    """An int of 64 bits, from anything that is a whole number (numpy's too)."""
    if type(value) is int and value in _INT64:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what} needs whole numbers, not {value!r}") from None
    if isinstance(value, bool):
        raise InvalidArgument(f"{what} needs whole numbers, not {value!r}")
    if number not in _INT64:
        raise InvalidArgument(f"{what} is {number}; it does not fit in 64 bits")
    return number


def real(value: Any, what: str, kind: str = "a number") -> float:
    """A float, from anything that is a number (numpy's too); text is none. `kind`: what it must be, in words."""
    try:
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidArgument(f"{what} is {value!r}; it must be {kind}")


def seconds_of(value: Any, what: str, most: int = 7 * 86_400, least: str = "0 or more") -> float:
    """A time limit. `least`: "0 or more", or "above 0"."""
    seconds = real(value, what, "a number of seconds")
    if not 0 <= seconds <= most or (seconds == 0 and least == "above 0"):
        raise InvalidArgument(f"{what} is {value!r}; it must be {least} and at most {most} seconds")
    return seconds


def steps_of(value: Steps, what: str, axes: int = 2, number: Callable[[Any, str], int] = whole) -> tuple[int, ...]:
    """A number for each axis. `number` reads one: `whole`, or what also takes a framework's symbols."""
    if type(value) is int or not isinstance(value, Sequence):
        return (number(value, what),) * axes
    if len(value) not in (1, axes):
        raise InvalidArgument(f"{what} takes a number or {_STEPS[axes]}, not {tuple(value)!r}")
    numbers = tuple(number(one, what) for one in value)
    return numbers if len(numbers) == axes else numbers * axes


def padding_of(
    value: Padding,
    filter_size: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    number: Callable[[Any, str], int] = whole,
) -> tuple[int, ...]:
    """The padding before the image along each axis, then the padding behind it. "same" keeps the image's size at
    stride 1; an odd row or column goes behind, as in PyTorch. `number`: as in `steps_of`."""
    axes = len(filter_size)
    if type(value) is int:
        return (number(value, "padding"),) * (2 * axes)
    if isinstance(value, str):
        if value == "valid":
            return (0,) * (2 * axes)
        if value != "same":
            raise InvalidArgument(f"padding is {value!r}; as a word it is 'same' or 'valid'")
        if any(step != 1 for step in stride):
            raise InvalidArgument(f"padding='same' needs stride 1, not {' x '.join(map(str, stride))}")
        both = [step * (size - 1) for size, step in zip(filter_size, dilation)]
        before = [one // 2 for one in both]
        return *before, *(one - half for one, half in zip(both, before))
    if isinstance(value, Sequence) and len(value) == 2 * axes:
        return tuple(number(one, "padding") for one in value)
    if isinstance(value, Sequence) and len(value) not in (1, axes):
        raise InvalidArgument(
            f"padding takes a number, {_STEPS[axes]}, {_EDGES[axes]}, 'same' or 'valid', not {tuple(value)!r}"
        )
    return steps_of(value, "padding", axes, number) * 2
