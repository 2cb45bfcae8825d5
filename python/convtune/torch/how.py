"""What the operator below autograd does with its tensors, as the one text that graphs hold of it, which PyTorch hands
over faster than lists. src/torch/how.h has its form."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

__all__ = ["how_text", "is_symbolic", "read_how"]


def is_symbolic(stride: Any, padding: Any, dilation: Any, groups: Any) -> bool:
    """Whether one of the numbers is a symbol, as in a graph for any size, which no text can hold."""
    return any(isinstance(one, torch.SymInt) for one in (*stride, *padding, *dilation, groups))


@lru_cache(4096)
def _text(*words: Any) -> str:
    stride, padding, dilation, groups, precision, activation, choices, reuse = words
    numbers = " ".join(str(int(one)) for one in (*stride, *padding, *dilation, groups))
    text = f"{numbers} {precision} {activation} {'reuse' if reuse else 'pack'}"
    return f"{text}\n{choices}" if choices else text


def how_text(
    stride: Any, padding: Any, dilation: Any, groups: int, precision: str, activation: str, choices: str, reuse: bool
) -> str:
    try:
        return _text(stride, padding, dilation, groups, precision, activation, choices, reuse)
    except TypeError:  # lists, of the dispatcher
        rest = groups, precision, activation, choices, reuse
        return _text(tuple(stride), tuple(padding), tuple(dilation), *rest)


@lru_cache(4096)
def read_how(text: str) -> tuple[Any, ...]:
    """(stride, padding, dilation, groups, precision, activation, choices, reuse)."""
    line, _, choices = text.partition("\n")
    words = line.split(" ")
    numbers = tuple(map(int, words[:9]))
    precision, activation, reuse = words[9:]
    how = numbers[:2], numbers[2:6], numbers[6:8], numbers[8], precision, activation
    return *how, choices, reuse == "reuse"
