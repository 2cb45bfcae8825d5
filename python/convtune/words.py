"""The words of a problem that are more than a name: element types, "bf16:bf16:f32", and activations, "clip:0:6"."""

from __future__ import annotations

from ctypes import c_float
from typing import Any

from ._library import ACTIVATION_USAGES, DTYPES
from .errors import InvalidArgument

__all__ = ["NAMES", "TYPES", "activation_of", "activation_text", "one_of", "parameters_of", "types_of", "types_text"]

# The element types' names in array libraries, and the other way round.
TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
NAMES = {of_arrays: name for name, of_arrays in TYPES.items()}


def one_of(value: Any, words: tuple[str, ...], what: str) -> str:
    if value not in words:
        raise InvalidArgument(f"{what} is {value!r}; it is one of {', '.join(words)}")
    return value  # type: ignore[no-any-return]


def types_of(text: Any) -> tuple[str, str, str, str]:
    """The element types of x, w, y and bias."""
    if text in DTYPES:
        return text, text, text, text
    types = tuple(one_of(one, DTYPES, "dtype") for one in (text.split(":") if isinstance(text, str) else [text]))
    if len(types) not in (3, 4):
        raise InvalidArgument(f"dtype is {text!r}; it is one type, x:w:y or x:w:y:bias")
    return types[0], types[1], types[2], types[-1] if len(types) == 4 else types[1]


def types_text(x: str, w: str, y: str, bias: str) -> str:
    if x == w == y == bias:
        return x
    return ":".join((x, w, y) if bias == w else (x, w, y, bias))


def activation_of(text: Any) -> tuple[str, tuple[float, ...]]:
    """The name and the parameters."""
    name, *numbers = text.split(":") if isinstance(text, str) else [""]
    if name not in ACTIVATION_USAGES:
        raise InvalidArgument(f"activation is {text!r}; it is one of {', '.join(ACTIVATION_USAGES.values())}")
    try:
        parameters = tuple(float(number) for number in numbers)
    except ValueError:
        parameters = ()
    if len(parameters) != len(numbers) or len(numbers) != ACTIVATION_USAGES[name].count(":"):
        raise InvalidArgument(f"activation is {text!r}; it must be {ACTIVATION_USAGES[name]}")
    return name, parameters


def activation_text(name: str, parameters: tuple[float, ...]) -> str:
    return ":".join((name, *map(_shortest, parameters)))


def parameters_of(name: str, alpha: float, beta: float) -> tuple[float, ...]:
    """The parameters, of the two, that the activation has."""
    return (alpha, beta)[: ACTIVATION_USAGES[name].count(":")]


def _shortest(number: float) -> str:
    """The fewest digits that make this number as the library keeps it, in 32 bits. There is one zero: bounds do not
    tell 0 from -0."""
    kept = c_float(number + 0.0).value
    texts = (f"{kept:.{digits}g}" for digits in range(1, 10))
    return next((text for text in texts if c_float(float(text)).value == kept), str(kept))
