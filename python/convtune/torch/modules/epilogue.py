"""The operations behind a convolution of a recorded run that its epilogue could compute: bias, a folded batch norm, a
residual, an activation. The same rules as for ONNX files (src/onnx/onnx_graph.py). For model_problems."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map

from .trace import Operation, Value

__all__ = ["Epilogues"]

_functional = torch.nn.functional
_MOST_POINTWISE = 16  # operators of one activation
_LARGE = 1e30  # stands for infinity
# Points at which two formulas are compared: an activation is recognised by its values, however a model spells it.
_POINTS = torch.cat([torch.arange(-48, 49, dtype=torch.float64) / 4, torch.tensor([-_LARGE, _LARGE], dtype=torch.float64)])
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": torch.relu,
    "silu": _functional.silu,
    "gelu_erf": _functional.gelu,
    "gelu_tanh": lambda x: _functional.gelu(x, approximate="tanh"),
    "hardswish": _functional.hardswish,
    "sigmoid": torch.sigmoid,
}
_BATCH_NORMS = ("aten::native_batch_norm", "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_no_training",
                "aten::cudnn_batch_norm", "aten::miopen_batch_norm", "aten::batch_norm")  # fmt: skip
_IDENTITIES = ("aten::alias", "aten::detach", "aten::clone")
# Without PyTorch's tag in one version or another, or in the form that writes in place.
_POINTWISE_TOO = ("aten::hardswish", "aten::hardtanh", "aten::relu6", "aten::leaky_relu", "aten::gelu")


def _word(values: Tensor) -> str | None:
    """The problem's word for a function by its values at the points: "silu", "clip:0:6"; None where it is none."""
    if not bool(values.isfinite().all()):
        return None
    known = dict(_ACTIVATIONS)
    low, high = float(values[-2]), float(values[-1])
    if low < high < _LARGE:
        known[f"clip:{low:.6g}:{high:.6g}"] = lambda x: x.clamp(low, high)
    elif high == _LARGE and -_LARGE != low < 0:
        known[f"leaky_relu:{-low / _LARGE:.6g}"] = lambda x: torch.where(x >= 0, x, x * (-low / _LARGE))

    def distance(name: str) -> float:  # relative where numbers are large
        wanted = known[name](_POINTS)
        found = float(((values - wanted).abs() / (1 + wanted.abs())).max())
        return math.inf if math.isnan(found) else found

    best = min(known, key=distance)
    return best if distance(best) < 1e-3 else None


class Epilogues:
    """Asked of the last convolution first: of two whose sum is taken the later one can add the other's."""

    def __init__(self) -> None:
        self.claimed: set[int] = set()  # operations that are a convolution's epilogue, by id

    def of(self, convolution: Operation) -> tuple[bool, bool, str]:
        """(True with a bias, True with a residual, the activation)."""
        value, bias, residual = self._sums(convolution)
        return bias, residual, self._activation(value)

    def _only_reader(self, value: Value) -> Operation | None:
        reader = value.readers[0] if len(value.readers) == 1 and not value.kept else None
        return None if reader is None or id(reader) in self.claimed or not reader.outputs else reader

    def _sums(self, convolution: Operation) -> tuple[Value, bool, bool]:
        value, weight = convolution.outputs[0], convolution.argument("weight")
        bias, residual = convolution.argument("bias") is not None, False
        while (reader := self._only_reader(value)) is not None:
            if reader.name in _BATCH_NORMS:
                others = [one for one in tree_leaves(reader.args) if isinstance(one, Value) and one is not value]
                trains = bool(reader.argument("training", False))
                if residual or trains or reader.args[0] is not value or not all(one.constant for one in [weight, *others]):
                    break
                bias = True
            elif reader.name == "aten::add" and reader.argument("alpha", 1) == 1:
                first, second = reader.argument("self"), reader.argument("other")
                other = second if first is value else first
                if _per_channel(other, value):
                    bias = True
                elif not residual and _same_kind(other, value) and not other.constant:
                    residual = True
                else:
                    break
            elif reader.name not in _IDENTITIES:
                break
            self.claimed.add(id(reader))
            value = reader.outputs[0]
        return value, bias, residual

    def _activation(self, value: Value) -> str:
        """ "none" where none follows that is known. Operators are followed as long as they compute number by number of
        nothing but `value`; where one leaves nothing of those before it to be read by others, it may be the end."""
        computed = {id(value): _POINTS}
        inside: list[Operation] = []
        values, waiting = [value], list(value.readers)
        word, claims = "none", list[Operation]()
        while waiting and len(inside) < _MOST_POINTWISE:
            ready = ((one, self._computed(one, computed)) for one in waiting)
            found = next(((one, numbers) for one, numbers in ready if numbers is not None), None)
            if found is None:
                break
            one, numbers = found
            waiting = [other for other in waiting if other is not one]
            inside.append(one)
            computed[id(one.outputs[0])] = numbers
            values.append(one.outputs[0])
            waiting += one.outputs[0].readers
            left = [other for other in values if other is not one.outputs[0]]
            taken = {id(other) for other in inside}
            if not any(other.kept or any(id(reader) not in taken for reader in other.readers) for other in left):
                ended = _word(numbers)
                if ended is not None and (ended != "none" or word == "none"):
                    word, claims = ended, list(inside)
        self.claimed.update(id(one) for one in claims)
        return word

    def _computed(self, operation: Operation, computed: dict[int, Tensor]) -> Tensor | None:
        """The values of its output at the points; None where it is not computed number by number from what is there."""
        pointwise = torch.Tag.pointwise in operation.function.tags or operation.name in _POINTWISE_TOO
        if id(operation) in self.claimed or len(operation.outputs) != 1 or not pointwise:
            return None
        read = [one for one in tree_leaves((operation.args, operation.kwargs)) if isinstance(one, Value)]
        if any(id(one) not in computed for one in read) or not operation.outputs[0].dtype.is_floating_point:
            return None

        def numbers(one: Any) -> Any:  # cloned: the operator may write in place
            return computed[id(one)].clone() if isinstance(one, Value) else one

        try:
            result = operation.function(*tree_map(numbers, operation.args), **tree_map(numbers, operation.kwargs))
        except (RuntimeError, TypeError, ValueError):  # for these numbers it cannot
            return None
        return result.double() if isinstance(result, Tensor) and result.shape == _POINTS.shape else None


def _per_channel(other: Any, value: Value) -> bool:
    """True where it is one number for each channel of `value`, or one for all, and the same in every run."""
    if isinstance(other, (int, float)):
        return True
    if not isinstance(other, Value) or not other.constant or len(other.shape) > len(value.shape):
        return False
    whole = (1,) * (len(value.shape) - len(other.shape)) + other.shape
    return math.prod(whole) == 1 or whole == (1, value.shape[1], *(1,) * (len(value.shape) - 2))


def _same_kind(other: Any, value: Value) -> bool:
    return isinstance(other, Value) and other is not value and (other.shape, other.dtype) == (value.shape, value.dtype)
