"""One run of a model as operators and values: what makes a value, what reads it. For model_problems."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

__all__ = ["Operation", "Value", "recorded"]


@dataclass(eq=False)
class Value:
    """The contents of a tensor; a write in place makes another value of the same tensor. `constant`: the same in every
    run, because it comes of parameters, buffers and numbers alone. `kept`: the model returns it."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    constant: bool
    maker: Operation | None = None
    readers: list[Operation] = field(default_factory=list)  # once for each time that one of them reads it
    kept: bool = False


@dataclass(eq=False)
class Operation:
    """A call of one of PyTorch's operators, with values in its arguments where it had tensors. `module`: the name of the
    innermost one that runs it."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    module: str
    outputs: list[Value] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The operator's name without the mark of a write in place: "aten::relu"."""
        return str(self.function._schema.name).removesuffix("_")

    def argument(self, name: str, default: Any = None) -> Any:
        """The argument of that name in the operator's schema."""
        for position, one in enumerate(self.function._schema.arguments):
            if one.name == name:
                known = self.args[position] if position < len(self.args) else self.kwargs.get(name, one.default_value)
                return default if known is None else known
        return default


class _Recorder(TorchDispatchMode):
    def __init__(self, model: torch.nn.Module, example: Any) -> None:
        super().__init__()
        self.operations: list[Operation] = []
        self.modules: list[str] = []  # modules that run now, the innermost last
        self.known = WeakIdKeyDictionary()  # type: ignore[no-untyped-call, unused-ignore]
        self.own = {id(tensor) for tensor in [*model.parameters(), *model.buffers()]}
        for one in tree_leaves(example):
            if isinstance(one, Tensor):
                self.known[one] = self.new(one, constant=False)

    def new(self, tensor: Tensor, constant: bool, maker: Operation | None = None) -> Value:
        strided = tensor.layout is torch.strided
        return Value(tuple(tensor.shape), tensor.stride() if strided else (), tensor.dtype, tensor.device, constant, maker)

    def value_of(self, one: Any) -> Any:
        if not isinstance(one, Tensor):
            return one
        if one not in self.known:
            self.known[one] = self.new(one, constant=id(one) in self.own)
        return self.known[one]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        with self:  # under inference mode what is made of other operators comes whole
            result = func.decompose(*args, **kwargs) if func is not torch.ops.prim.device.default else NotImplemented
        if result is not NotImplemented:
            return result
        module = self.modules[-1] if self.modules else ""
        made = Operation(func, tree_map(self.value_of, args), tree_map(self.value_of, kwargs), module)
        result = func(*args, **kwargs)
        read = [one for one in tree_leaves((made.args, made.kwargs)) if isinstance(one, Value)]
        constant = all(one.constant for one in read) and torch.Tag.nondeterministic_seeded not in func.tags
        for value in read:
            value.readers.append(made)
        written = list(tree_leaves(result))
        for argument, one in zip(func._schema.arguments, args):
            if argument.alias_info is not None and argument.alias_info.is_write:
                written += [tensor for tensor in tree_leaves(one) if all(tensor is not other for other in written)]
        for one in written:
            if isinstance(one, Tensor):
                self.known[one] = self.new(one, constant, made)
                made.outputs.append(self.known[one])
        self.operations.append(made)
        return result


def recorded(model: torch.nn.Module, run: Callable[[], object], example: Any) -> list[Operation]:
    """The operators of one run, in their order. `example`: what the run's tensors come in. Keeps no tensor alive."""
    recorder, hooks = _Recorder(model, example), []

    def leave(*_: Any) -> None:
        recorder.modules.pop()

    for name, module in model.named_modules():
        hooks.append(module.register_forward_pre_hook(lambda *_, name=name: recorder.modules.append(name)))
        hooks.append(module.register_forward_hook(leave))
    try:
        with torch.no_grad(), recorder:
            result = run()
    finally:
        for hook in hooks:
            hook.remove()
    for one in tree_leaves(result):
        if isinstance(one, Tensor) and one in recorder.known:
            recorder.known[one].kept = True
    return recorder.operations
