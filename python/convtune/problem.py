"""Problem: what is asked. A plain value that knows its sizes and has one text form, as in the command and C++."""

from __future__ import annotations

import dataclasses
import operator
import re
from collections.abc import Sequence
from ctypes import byref, c_int64, sizeof
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from . import _library
from ._library import ACTIVATIONS, DTYPES, LAYOUTS, PRECISIONS, CProblem
from .errors import InvalidArgument

__all__ = ["Padding", "Pair", "Problem", "as_problem"]

Pair = int | Sequence[int]
# An int, a pair (vertical, horizontal), four (top, left, bottom, right), "valid" or "same".
Padding = int | Sequence[int] | str

_MAX_NAME_BYTES = 2048
# The letters of a line, and its name with or without quotes; a case's name is no such thing.
_LETTERS = re.compile(r"\s*(?:_|(?:mb|g|[io]c|[iokspd][dhw])\d+)+(?:n(?:\"([^\"]*)\"|(\S*)))?(?=\s|$)")
_INT64 = range(-(2**63), 2**63)


def whole(value: Any, what: str) -> int:
    """An int of 64 bits, from anything that is a whole number (numpy's too)."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what} needs whole numbers, not {value!r}") from None
    if isinstance(value, bool):
        raise InvalidArgument(f"{what} needs whole numbers, not {value!r}")
    if number not in _INT64:
        raise InvalidArgument(f"{what} is {number}; it does not fit in 64 bits")
    return number


def real(value: Any, what: str) -> float:
    """A float, from anything that is a number (numpy's too); text is none."""
    try:
        if not isinstance(value, (str, bytes, bytearray)):
            return float(value)
    except (TypeError, ValueError, OverflowError):
        pass
    raise InvalidArgument(f"{what} is {value!r}; it must be a number")


def pair_of(value: Pair, what: str) -> tuple[int, int]:
    """(vertical, horizontal) of an int or of two."""
    if not isinstance(value, Sequence):
        number = whole(value, what)
        return number, number
    if len(value) == 1:
        return whole(value[0], what), whole(value[0], what)
    if len(value) != 2:
        raise InvalidArgument(f"{what} takes a number or two (vertical, horizontal), not {tuple(value)!r}")
    return whole(value[0], what), whole(value[1], what)


def padding_of(
    value: Padding, filter_size: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int]
) -> tuple[int, int, int, int]:
    """(top, left, bottom, right) of any of the forms. "same" keeps the image's size at stride 1; an odd row or
    column goes to the bottom or right, as in PyTorch."""
    if isinstance(value, str):
        if value == "valid":
            return 0, 0, 0, 0
        if value != "same":
            raise InvalidArgument(f"padding is {value!r}; as a word it is 'same' or 'valid'")
        if stride != (1, 1):
            raise InvalidArgument(f"padding='same' needs stride 1, not {stride[0]} x {stride[1]}")
        both = [step * (size - 1) for size, step in zip(filter_size, dilation)]
        top, left = both[0] // 2, both[1] // 2
        return top, left, both[0] - top, both[1] - left
    if isinstance(value, Sequence) and len(value) == 4:
        top, left, bottom, right = (whole(one, "padding") for one in value)
        return top, left, bottom, right
    if isinstance(value, Sequence) and len(value) not in (1, 2):
        raise InvalidArgument(
            "padding takes a number, two (vertical, horizontal), four (top, left, bottom, right), 'same' or "
            f"'valid', not {tuple(value)!r}"
        )
    vertical, horizontal = pair_of(value, "padding")
    return vertical, horizontal, vertical, horizontal


def _word(value: str, words: tuple[str, ...], what: str) -> str:
    if value not in words:
        raise InvalidArgument(f"{what} is {value!r}; it is one of {', '.join(words)}")
    return value


@dataclass(frozen=True, init=False)
class Problem:
    """A forward 2-D convolution (cross-correlation, as in every framework).

    `n, c, h, w`: batch, input channels, image height and width; `k, r, s`: output channels, filter height and
    width; `groups` divides `c` and `k`. `stride` and `dilation` take a number or (vertical, horizontal);
    dilations count from 1. `padding` takes a number, a pair, (top, left, bottom, right), "same" or "valid".
    `dtype`: f32, f16, bf16; `layout`: nchw, nhwc; `precision` of the products: auto, fp32, tf32, fp16, bf16;
    `activation`: none, relu. `name` is a label for people, and no part of equality.

    A Problem is valid: making a wrong one raises InvalidArgument that names the field and the numbers. It is
    immutable and hashable; `str` gives the text that `Problem.parse` and the command take back.
    """

    n: int
    c: int
    h: int
    w: int
    k: int
    r: int
    s: int
    groups: int
    stride: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    bias: bool
    dtype: str
    layout: str
    precision: str
    activation: str
    name: str = field(compare=False)

    def __init__(
        self,
        n: int,
        c: int,
        h: int,
        w: int,
        k: int,
        r: int,
        s: int,
        groups: int = 1,
        stride: Pair = 1,
        padding: Padding = 0,
        dilation: Pair = 1,
        bias: bool = True,
        dtype: str = "f32",
        layout: str = "nchw",
        precision: str = "auto",
        activation: str = "none",
        name: str = "",
    ) -> None:
        sizes = dict(n=n, c=c, h=h, w=w, k=k, r=r, s=s, groups=groups)
        values: dict[str, Any] = {letter: whole(size, letter) for letter, size in sizes.items()}
        values["stride"] = pair_of(stride, "stride")
        values["dilation"] = pair_of(dilation, "dilation")
        values["padding"] = padding_of(padding, (values["r"], values["s"]), values["stride"], values["dilation"])
        values["bias"] = bool(bias)
        values["dtype"] = _word(dtype, DTYPES, "dtype")
        values["layout"] = _word(layout, LAYOUTS, "layout")
        values["precision"] = _word(precision, PRECISIONS, "precision")
        values["activation"] = _word(activation, ACTIVATIONS, "activation")
        if len(name.encode("utf-8", "replace")) > _MAX_NAME_BYTES or re.search(r"[\x00-\x1f\x7f\"]", name):
            raise InvalidArgument(
                f"the name {name!r} is longer than {_MAX_NAME_BYTES} bytes, or holds a double quote or a control "
                "character"
            )
        values["name"] = name
        for key, value in values.items():
            object.__setattr__(self, key, value)
        self.output_size  # validates

    @classmethod
    def parse(cls, text: str) -> Problem:
        """From a line of benchdnn's convolution grammar ("mb1ic3ih224oc96kh11sh4ph2 act=relu") or the name of
        a built-in case ("alexnet_conv1"). Raises InvalidArgument that names the column."""
        if not isinstance(text, str):
            raise InvalidArgument(f"{text!r} is neither a Problem nor the text of one")
        raw = CProblem(sizeof(CProblem))
        _library.check(_library.library.convtune_problem_parse(_library.c_text(text), byref(raw)))
        line = _LETTERS.match(text)
        return cls.from_c(raw, (line[1] or line[2] or "") if line else text.split(maxsplit=1)[0])

    @classmethod
    def from_c(cls, raw: CProblem, name: str = "") -> Problem:
        return cls(
            raw.n,
            raw.c,
            raw.h,
            raw.w,
            raw.k,
            raw.r,
            raw.s,
            raw.groups,
            (raw.stride_h, raw.stride_w),
            (raw.pad_top, raw.pad_left, raw.pad_bottom, raw.pad_right),
            (raw.dilation_h, raw.dilation_w),
            bool(raw.bias),
            DTYPES[raw.dtype],
            LAYOUTS[raw.layout],
            PRECISIONS[raw.precision],
            ACTIVATIONS[raw.activation],
            name,
        )

    def to_c(self) -> CProblem:
        return CProblem(
            sizeof(CProblem),
            *(self.n, self.c, self.h, self.w, self.k, self.r, self.s, self.groups),
            *self.stride,
            *self.dilation,
            *self.padding,
            DTYPES.index(self.dtype),
            LAYOUTS.index(self.layout),
            PRECISIONS.index(self.precision),
            ACTIVATIONS.index(self.activation),
            int(self.bias),
        )

    @cached_property
    def output_size(self) -> tuple[int, int]:
        """(p, q): the output's height and width."""
        p, q = c_int64(), c_int64()
        raw = self.to_c()
        _library.check(_library.library.convtune_output_size(byref(raw), byref(p), byref(q)))
        return p.value, q.value

    @property
    def input_shape(self) -> tuple[int, int, int, int]:
        """In the order of the layout: (n, c, h, w), or (n, h, w, c)."""
        return self._ordered(self.c, self.h, self.w)

    @property
    def weight_shape(self) -> tuple[int, int, int, int]:
        """(k, c / groups, r, s), whatever the layout."""
        return self.k, self.c // self.groups, self.r, self.s

    @property
    def output_shape(self) -> tuple[int, int, int, int]:
        """In the order of the layout: (n, k, p, q), or (n, p, q, k)."""
        return self._ordered(self.k, *self.output_size)

    @property
    def flops(self) -> int:
        """Multiplies and adds: 2*n*k*p*q*(c/groups)*r*s; products with padding count."""
        p, q = self.output_size
        return 2 * self.n * self.k * p * q * (self.c // self.groups) * self.r * self.s

    @property
    def bytes(self) -> int:
        """Bytes that must move at least once: input, weights, bias and output."""
        p, q = self.output_size
        elements = self.n * self.c * self.h * self.w + self.k * (self.c // self.groups) * self.r * self.s
        elements += self.n * self.k * p * q + (self.k if self.bias else 0)
        return elements * (4 if self.dtype == "f32" else 2)

    @property
    def key(self) -> str:
        """The text form without the name: what records are filed under."""
        return _library.take_text(_library.library.convtune_problem_text, byref(self.to_c()))

    def replace(self, **changes: Any) -> Problem:
        """The same problem but for the fields named."""
        return dataclasses.replace(self, **changes)

    def __str__(self) -> str:
        letters, blank, words = self.key.partition(" ")
        return letters + (f'n"{self.name}"' if self.name else "") + blank + words

    def _ordered(self, channels: int, height: int, width: int) -> tuple[int, int, int, int]:
        if self.layout == "nchw":
            return self.n, channels, height, width
        return self.n, height, width, channels


def as_problem(problem: Problem | str) -> Problem:
    return problem if isinstance(problem, Problem) else Problem.parse(problem)
