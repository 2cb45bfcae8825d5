"""Finds what a model's structure proves to stand behind its convolutions: a batch norm, an activation, each called
there and nowhere else. optimize lets such a convolution do their work too: handover.py."""

from __future__ import annotations

import contextlib
import inspect
import warnings
import weakref
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph, GraphModule, Node, Proxy, Tracer
from torch.utils._pytree import tree_leaves

from ...words import activation_text

__all__ = ["Caller", "Followers", "followers", "is_watched"]

_INTERNAL = frozenset(vars(nn.Module()))
_REPORT = "convtune_report"
_CONVOLUTIONS = nn.Conv1d, nn.Conv2d, nn.Conv3d
_NORMS = nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d
# Attributes of activations that say what they compute.
_SETTINGS = ("min_val", "max_val", "negative_slope", "approximate")


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in (int, float, str) and one == other)


class Caller:
    """The module whose forward calls convolutions and what stands behind them, and what that was proven of: the modules
    in it, its attributes, and how many tensors it was given. `followers`: by convolution."""

    def __init__(self, module: nn.Module, arguments: int) -> None:
        self.module, self.arguments = module, arguments
        self.followers: dict[nn.Module, Followers] = {}
        own = vars(module)
        self._attributes = {name: value for name, value in own.items() if name not in _INTERNAL and name != _REPORT}
        self._size = len(own) - (_REPORT in own)
        self._held = {module: list(module._modules.values())}

    def add(self, convolution: nn.Module, behind: Followers, holders: list[nn.Module]) -> None:
        """`holders`: the modules on the way from the caller to those that it calls."""
        self.followers[convolution] = behind
        self._held.update((one, list(one._modules.values())) for one in [*holders, *behind.parts] if one._modules)

    def is_as_proven(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """True where this call of its forward does what was proven."""
        if kwargs or len(args) != self.arguments:
            return False
        if len(args) > 1 and not all(isinstance(one, (Tensor, list, tuple)) for one in args):
            return False
        for one, children in self._held.items():
            if [*one._modules.values()] != children:
                return False
        own = vars(self.module)
        if len(own) != self._size + 1 + (_REPORT in own):  # handover.py adds one
            return False
        return not self._attributes or all(_is_same(own.get(name, own), value) for name, value in self._attributes.items())


class Followers:
    """The modules behind a convolution and what they compute."""

    def __init__(self, norm: nn.Module | None, act: nn.Module | None, activation: str, caller: Caller) -> None:
        self.norm, self.act, self.activation, self.caller = norm, act, activation, caller
        self.modules: list[nn.Module] = [one for one in (norm, act) if one is not None]
        self.parts = [part for one in self.modules for part in one.modules()]
        acting: Any = act if act is not None else getattr(norm, "act", None)
        self._settings = [(acting, name, getattr(acting, name)) for name in _SETTINGS if hasattr(acting, name)]

    def are_as_proven(self) -> bool:
        """True where nobody watches them, and they compute what they did, in eval mode."""
        norm = self.norm
        if norm is not None and (norm.training or norm.running_mean is None or norm.running_var is None):
            return False
        return not any(map(is_watched, self.parts)) and all(
            getattr(module, name) == value for module, name, value in self._settings
        )

    def bias_type(self, bias: Tensor | None) -> torch.dtype | None:
        """The type of the bias that a convolution with them takes."""
        return torch.float32 if self.norm is not None else None if bias is None else bias.dtype


def is_watched(module: nn.Module) -> bool:
    """True where somebody's hooks would see other values, or somebody's function runs in place of its forward."""
    own = vars(module)
    return bool(
        own["_forward_hooks"]
        or own["_forward_pre_hooks"]
        or own["_backward_hooks"]
        or own["_backward_pre_hooks"]
        or "forward" in own
        or "_conv_forward" in own
    )


def _activation(module: nn.Module) -> str:
    """The activation in a problem's words; "" for any other module. Subclasses may do anything."""
    kind = type(module)
    if kind in (nn.Identity, nn.ReLU, nn.SiLU, nn.Hardswish, nn.Sigmoid):
        return "none" if kind is nn.Identity else kind.__name__.lower()
    if isinstance(module, nn.Hardtanh) and kind in (nn.Hardtanh, nn.ReLU6):
        return activation_text("clip", (float(module.min_val), float(module.max_val)))
    if isinstance(module, nn.LeakyReLU) and kind is nn.LeakyReLU:
        return activation_text("leaky_relu", (float(module.negative_slope),))
    if isinstance(module, nn.GELU) and kind is nn.GELU:
        return {"none": "gelu_erf", "tanh": "gelu_tanh"}[module.approximate]
    return ""


def _norm_of(module: Any) -> str | None:
    """The activation inside of a batch norm in eval mode: timm's have one. None for all other modules."""
    if not isinstance(module, _NORMS) or module.running_mean is None or module.running_var is None:
        return None
    if type(module) in _NORMS:
        return "none"
    if type(module).__name__ == "BatchNormAct2d" and type(module).__module__.startswith("timm."):
        plain = type(getattr(module, "drop", nn.Identity())) is nn.Identity
        return _activation(module.act) or None if plain else None  # type: ignore[arg-type]
    return None


class _Tracer(Tracer):
    """Notes by whom modules are called, and which of their values somebody keeps: an attribute, a list."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.callers: dict[Node, tuple[nn.Module, int] | None] = {}
        self._values: dict[Node, weakref.ref[Proxy]] = {}
        self._calling: list[tuple[nn.Module, int] | None] = []

    def traced(self, model: nn.Module) -> Graph:
        """The graph of its forward, given only the arguments that it requires."""
        parameters = list(inspect.signature(type(model).forward).parameters.values())[1:]
        plain = all(one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters)
        optional = {one.name: one.default for one in parameters if one.default is not one.empty}
        self._calling = [(model, len(parameters) - len(optional)) if plain else None]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it does not assert the defaults
            return self.trace(model, concrete_args=optional if plain and optional else None)

    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, (*_CONVOLUTIONS, *_NORMS)) or super().is_leaf_module(module, name)

    def call_module(self, module: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if self.is_leaf_module(module, self.path_of_module(module)):
            value = super().call_module(module, forward, args, kwargs)
            self.callers[value.node] = self._calling[-1]
            self._values[value.node] = weakref.ref(value)
            return value
        plain = not kwargs and all(isinstance(one, Proxy) for one in tree_leaves(args))
        self._calling.append((module, len(args)) if plain else None)
        try:
            return super().call_module(module, forward, args, kwargs)
        finally:
            self._calling.pop()

    def is_kept(self, node: Node) -> bool:
        return self._values[node]() is not None


@contextlib.contextmanager
def _attributes_kept(model: nn.Module) -> Iterator[None]:
    """Tracing runs forwards, which may write to their modules."""
    before = [(vars(module), dict(vars(module))) for module in model.modules()]
    try:
        yield
    finally:
        for own, kept in before:
            own.clear()
            own.update(kept)


class _Traced:
    """One graph: its calls of modules, and for each by whom it is made and from where in that one."""

    def __init__(self, root: nn.Module) -> None:
        tracer = _Tracer()
        graph = tracer.traced(root)
        self.modules = {node: root.get_submodule(str(node.target)) for node in graph.find_nodes(op="call_module")}
        self.callers = tracer.callers
        self.kept = set(filter(tracer.is_kept, self.modules))
        self._root = root

    def holders(self, node: Node, caller: nn.Module) -> list[nn.Module] | None:
        """The modules on the way from the caller to the one that is called; None where that one is not in it."""
        names = str(node.target).split(".")
        way = [self._root.get_submodule(".".join(names[:at])) for at in range(len(names))]
        return way[way.index(caller) + 1 :] if caller in way else None


def _traced(model: nn.Module) -> list[_Traced]:
    """The whole model, or its parts as far down as they can be traced."""
    try:
        with _attributes_kept(model):
            return [_Traced(model)]
    except Exception:  # control flow by values, arguments of any kind: whatever symbolic tracing does not take
        return [graph for child in model.children() for graph in _traced(child)]


def followers(model: nn.Module) -> dict[nn.Module, Followers]:
    """The followers by convolution: none of a model in training mode, and none of a module that is called twice or has
    hooks."""
    found: dict[nn.Module, Followers] = {}
    if any(module.training for module in model.modules()):
        return found
    graphs = _traced(model)
    paths = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    calls = Counter(id(module) for graph in graphs for module in graph.modules.values())
    callers: dict[nn.Module, Caller] = {}

    def once(module: nn.Module) -> bool:
        return calls[id(module)] == paths[id(module)] == 1 and not any(map(is_watched, module.modules()))

    def next_of(node: Node, graph: _Traced) -> tuple[Node, nn.Module] | None:
        user = next(iter(node.users)) if len(node.users) == 1 and node not in graph.kept else None
        if user is None or user not in graph.modules or user.args != (node,) or user.kwargs:
            return None
        module = graph.modules[user]
        return (user, module) if once(module) and graph.callers[user] is graph.callers[node] else None

    for graph in graphs:
        for node, convolution in graph.modules.items():
            called = graph.callers[node]
            if type(convolution) not in _CONVOLUTIONS or not once(convolution) or called is None:
                continue
            nodes, norm, act, activation = [node], None, None, "none"
            behind = next_of(node, graph)
            if behind is not None and (inside := _norm_of(behind[1])) is not None:
                nodes, norm, activation = [*nodes, behind[0]], behind[1], inside
                behind = next_of(behind[0], graph)
            if activation == "none" and behind is not None and _activation(behind[1]) not in ("", "none"):
                nodes, act, activation = [*nodes, behind[0]], behind[1], _activation(behind[1])
            ways = [graph.holders(one, called[0]) for one in nodes]
            if len(nodes) == 1 or None in ways or isinstance(called[0], GraphModule) or "forward" in vars(called[0]):
                continue
            caller = callers.setdefault(called[0], Caller(*called))
            holders = [one for way in ways if way is not None for one in way]
            found[convolution] = Followers(norm, act, activation, caller)  # type: ignore[arg-type]
            caller.add(convolution, found[convolution], holders)
    return found
