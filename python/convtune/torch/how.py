"""How: all that an operator is told besides its tensors, as one value, and as the one text that graphs hold of it, which
PyTorch hands over faster than lists. src/torch/how.h has the text's form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import torch

from .._library import ROUNDINGS
from ..cached import cached_property
from ..geometry import Padding, Steps, padding_of, steps_of, whole
from ..words import one_of

__all__ = ["How", "edges_of", "in_graphs", "written"]

_is_compiling = torch.compiler.is_compiling
_END = "\x1e"  # ends a line in a text that a graph holds


def in_graphs(choices: str) -> str:
    """The lines as an operator's argument: inductor writes arguments into comments of its code, which a line's end would end."""
    return choices.replace("\n", _END)


@dataclass(frozen=True)
class How:
    """All that a convolution is told besides its tensors. `stride`, `dilation`: (vertical, horizontal); `padding`:
    (top, left, bottom, right), in pixels; of a row one and (left, right), with a depth three and six, as Problem has
    them; a number may be a symbol, as in a graph for any size. `precision` and `activation`: a Problem's words, of which "auto" is what PyTorch's settings allow. `choices`: the lines of optimize
    (run.choice_line); "" leaves every problem to convtune. `reuse`: packed weights may be used again; no part of
    equality, since the plan is the same. `rounding`: in half precision once, at the end, or "eager": where PyTorch's own
    calls round, one after the other."""

    stride: tuple[Any, ...] = (1, 1)
    padding: tuple[Any, ...] = (0, 0, 0, 0)
    dilation: tuple[Any, ...] = (1, 1)
    groups: Any = 1
    precision: str = "auto"
    activation: str = "none"
    choices: str = ""
    reuse: bool = field(default=True, compare=False)
    output_padding: tuple[Any, ...] = ()  # a number for each axis, of a transposed convolution alone
    rounding: str = "once"

    @staticmethod
    def of(stride: Any, padding: Any, dilation: Any, *rest: Any) -> How:
        """The value of an operator's own arguments, of which PyTorch's dispatcher makes lists."""
        # A transposed layer's output padding is the sixth of them.
        rest = (*rest[:5], tuple(rest[5]), *rest[6:]) if len(rest) > 5 else rest
        if len(rest) > 3 and rest[3]:
            rest = (*rest[:3], rest[3].replace(_END, "\n"), *rest[4:])
        words = tuple(stride), tuple(padding), tuple(dilation), *rest
        if _is_compiling():
            return How(*words)
        try:
            return _kept(*words)
        except TypeError:  # a symbol has no hash
            return How(*words)

    @staticmethod
    @lru_cache(4096)
    def parse(text: str) -> How:
        line, _, choices = text.replace(_END, "\n").partition("\n")
        line, eager, _ = line.partition(" eager")
        *first, precision, activation, reuse = line.split(" ")
        numbers = tuple(map(int, first))
        axes = len(numbers) // 4 if len(numbers) % 4 == 1 else len(numbers) // 5
        geometry: Any = numbers[:axes], numbers[axes : 3 * axes], numbers[3 * axes : 4 * axes], numbers[-1]
        rounding = "eager" if eager else "once"
        return How(*geometry, precision, activation, choices, reuse == "reuse", numbers[4 * axes : -1], rounding)

    @property
    def axes(self) -> int:
        """1 of a row, 2 of an image, 3 with a depth."""
        return len(self.stride)

    @property
    def geometry(self) -> tuple[Any, Any, Any, Any]:
        return self.stride, self.padding, self.dilation, self.groups

    @property
    def transposed(self) -> bool:
        return self.output_padding != ()

    @property
    def is_pytorchs(self) -> bool:
        """True of a transposed convolution whose output padding is more than backward data of a convolution has: no
        wrong one, but beyond the stride and the padding."""
        ends = zip(self.output_padding, self.stride, self.padding[self.axes :], self.dilation)
        return any(step <= more < hole and behind < more for more, step, behind, hole in ends)

    def channels(self, weight: Any) -> Any:
        """The number of y's channels."""
        return weight.shape[1] * self.groups if self.output_padding != () else weight.shape[0]

    @property
    def words(self) -> tuple[Any, ...]:
        """The arguments of `convtune::conv1d` and its like behind the tensors."""
        words = *self.geometry, self.precision, self.activation, in_graphs(self.choices), self.reuse
        if self.rounding != "once":
            return *words, self.output_padding, self.rounding
        return (*words, self.output_padding) if self.transposed else words

    @property
    def words_of_graphs(self) -> tuple[Any, ...]:
        """The arguments of `convtune::conv2d_fused` behind the tensors."""
        words = *self.geometry, self.precision, self.activation, in_graphs(self.choices)
        return (*words, self.output_padding) if self.transposed else words

    @cached_property
    def text(self) -> str:
        numbers = " ".join(str(int(one)) for one in (*self.stride, *self.padding, *self.dilation, *self.output_padding, self.groups))
        text = f"{numbers} {self.precision} {self.activation} {'reuse' if self.reuse else 'pack'}"
        text += "" if self.rounding == "once" else " eager"
        return in_graphs(f"{text}\n{self.choices}") if self.choices else text

    @cached_property
    def is_symbolic(self) -> bool:
        """True where a number is a symbol, which no text can hold."""
        numbers = *self.stride, *self.padding, *self.dilation, *self.output_padding, self.groups
        return any(isinstance(one, torch.SymInt) for one in numbers)

    @cached_property
    def alone(self) -> How:
        """The convolution without its activation."""
        return self if self.activation == "none" else replace(self, activation="none")

    @cached_property
    def packing(self) -> How:
        """A copy by which weights are packed in every call."""
        return replace(self, reuse=False) if self.reuse else self

    @cached_property
    def _hash(self) -> int:
        return hash(self.words_of_graphs)

    def __hash__(self) -> int:  # asked in every call that is not ready
        return self._hash


_kept = lru_cache(4096)(How)


def _number(value: Any, what: str) -> int:
    """A whole number, or a symbol of one. Dynamo's symbols pass for ints here, and take no guard of a range."""
    if isinstance(value, torch.SymInt) or (_is_compiling() and isinstance(value, int)):
        return value  # type: ignore[return-value]
    return whole(value, what)


def _written(
    kernel: Any, stride: Steps, padding: Padding, dilation: Steps, groups: int, precision: str | None = None,
    activation: str | None = None, choices: str = "", reuse: bool = True, output_padding: Steps | None = None,
    rounding: str | None = None,
) -> How:  # fmt: skip
    axes = len(kernel)
    steps, holes = steps_of(stride, "stride", axes, _number), steps_of(dilation, "dilation", axes, _number)
    edges = padding_of(padding, tuple(kernel), steps, holes, _number)
    words = steps, edges, holes, groups, precision or "auto", activation or "none", choices, reuse
    more = () if output_padding is None else steps_of(output_padding, "output_padding", axes, _number)
    return How.of(*words, more, one_of(rounding or "once", ROUNDINGS, "rounding"))


kept_as_written = lru_cache(4096)(_written)  # raises TypeError where one of the words is a list


def written(kernel: Any, stride: Any, padding: Any, *rest: Any) -> How:
    """The value of what a caller writes: numbers, tuples and words, None for what PyTorch's settings say. `kernel`: the
    filter's size along each axis, of which a padding in words needs more than their number. Raises InvalidArgument."""
    if not _is_compiling():
        try:
            kernel_or_ones = kernel if isinstance(padding, str) else (1,) * len(kernel)
            return kept_as_written(kernel_or_ones, stride, padding, *rest)
        except TypeError:
            pass
    return _written(kernel, stride, padding, *rest)


def edges_of(module: Any) -> tuple[int, ...]:
    """The zeros that a convolution of PyTorch's pads by itself: before the image along each axis, then behind it."""
    axes = len(module.kernel_size)
    if module.padding_mode != "zeros" or module.padding == "valid":
        return (0,) * (2 * axes)
    if isinstance(module.padding, str):  # "same"
        ends = module._reversed_padding_repeated_twice  # the last axis first, before and behind it
        return *ends[-2::-2], *ends[::-2]
    return *module.padding, *module.padding
