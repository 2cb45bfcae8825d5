"""What a model's structure proves to stand behind its convolutions: a batch norm, an activation, each used there and
nowhere else. optimize lets such a convolution do their work too: in eval mode they then give back what they get, in
training mode everything is as it was."""

from __future__ import annotations

import weakref
from collections import Counter
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import GraphModule, Node, Tracer

from ...words import activation_text
from .. import autocast
from ..folding import Fold, Folded
from ..functional import is_plain
from ..native import forward
from ..run import TYPES, activated

__all__ = ["Followers", "followers", "forget", "skip", "unskip", "with_followers"]

_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)


class Followers:
    """The modules behind a convolution, what they compute, and whether they do it themselves in this mode."""

    def __init__(self, norm: nn.BatchNorm2d | None, act: nn.Module | None, activation: str) -> None:
        self.norm, self.act, self.activation = norm, act, activation

    def modules(self) -> list[nn.Module]:
        return [one for one in (self.norm, self.act) if one is not None]

    def pytorch(self, y: Tensor) -> Tensor:
        norm = self.norm
        if norm is not None:
            y = nn.functional.batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias, eps=norm.eps)
        return activated(y, self.activation)

    def sources(self, *own: Tensor | None) -> list[Tensor | None]:
        """The convolution's own tensors, and the norm's behind them, as `Fold` has them."""
        norm = self.norm
        return [*own, *([] if norm is None else [norm.running_mean, norm.running_var, norm.weight, norm.bias])]

    def bias_type(self, bias: Tensor | None) -> torch.dtype | None:
        """Of what `fold` gives."""
        return torch.float32 if self.norm is not None else None if bias is None else bias.dtype

    def fold(self, sources: list[Tensor | None], dtype: torch.dtype) -> Fold:
        places = tuple(None if one is None else at for at, one in enumerate(sources))
        return Fold(places, 0.0 if self.norm is None else self.norm.eps, dtype)


def _activation(module: nn.Module) -> str:
    """In a problem's words; "" for anything else. Subclasses may do anything."""
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
    """Of a batch norm in eval mode, what activation is in it: timm's have one. None for all others."""
    if not isinstance(module, nn.BatchNorm2d) or module.running_mean is None or module.running_var is None:
        return None
    if type(module) is nn.BatchNorm2d:
        return "none"
    if type(module).__name__ == "BatchNormAct2d" and type(module).__module__.startswith("timm."):
        plain = type(getattr(module, "drop", nn.Identity())) is nn.Identity
        return _activation(module.act) or None if plain else None  # type: ignore[arg-type]
    return None


def _is_watched(module: nn.Module) -> bool:
    """Somebody's hooks would see other values."""
    return bool(module._forward_hooks or module._forward_pre_hooks or module._backward_hooks)


class _Tracer(Tracer):
    def is_leaf_module(self, module: nn.Module, name: str) -> bool:
        return isinstance(module, (nn.Conv2d, nn.BatchNorm2d)) or super().is_leaf_module(module, name)


def _graphs(model: nn.Module) -> list[GraphModule]:
    """Of the whole model, or of its parts as far down as they can be traced."""
    try:
        return [GraphModule(model, _Tracer().trace(model))]
    except Exception:  # control flow by values, arguments of any kind: whatever symbolic tracing does not take
        return [graph for child in model.children() for graph in _graphs(child)]


def followers(model: nn.Module) -> dict[nn.Module, Followers]:
    """By convolution. Nothing of a model in training mode, and of no module that is called twice or has hooks."""
    found: dict[nn.Module, Followers] = {}
    if any(module.training for module in model.modules()):
        return found
    calls: Counter[int] = Counter()
    graphs = _graphs(model)
    paths = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    owners = [
        {node: graph.get_submodule(str(node.target)) for node in graph.graph.find_nodes(op="call_module")}
        for graph in graphs
    ]
    for nodes in owners:
        calls.update(id(module) for module in nodes.values())

    def once(module: nn.Module) -> bool:
        return calls[id(module)] == paths[id(module)] == 1 and not _is_watched(module)

    def next_of(node: Node, nodes: dict[Node, nn.Module]) -> tuple[Node, nn.Module] | None:
        user = next(iter(node.users)) if len(node.users) == 1 else None
        if user is None or user not in nodes or user.args != (node,) or user.kwargs:
            return None
        module = nodes[user]
        return None if not once(module) else (user, module)

    for nodes in owners:
        for node, convolution in nodes.items():
            if type(convolution) is not nn.Conv2d or not once(convolution):
                continue
            at, norm, act, activation = node, None, None, "none"
            behind = next_of(at, nodes)
            if behind is not None and (inside := _norm_of(behind[1])) is not None:
                (at, norm), activation = behind, inside
                behind = next_of(at, nodes)
            if activation == "none" and behind is not None and _activation(behind[1]) not in ("", "none"):
                act, activation = behind[1], _activation(behind[1])
            if norm is not None or act is not None:
                found[convolution] = Followers(norm, act, activation)  # type: ignore[arg-type]
    return found


@cache
def _skipping(kind: type) -> type:
    """That class, but in eval mode it gives back its input: the convolution before it did its work."""

    def forward(self: Any, x: Tensor) -> Tensor:
        return kind.forward(self, x) if self.convtune_leader().training else x  # type: ignore[attr-defined]

    def reduce(self: Any, protocol: Any) -> Any:
        return _rebuilt, (kind,), self.__dict__

    return type(kind.__name__, (kind,), {"forward": forward, "__reduce_ex__": reduce, "convtune_kind": kind})


def _rebuilt(kind: type) -> Any:
    own: Any = _skipping(kind)
    return own.__new__(own)


class _Leader:
    """The module whose mode tells who does the work. Not a submodule, so it is held in this."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self) -> nn.Module:
        return self.module


def skip(convolution: nn.Module, behind: Followers) -> None:
    leader = _Leader(convolution if behind.norm is None else behind.norm)
    for module in behind.modules():
        module.__class__ = _skipping(vars(type(module)).get("convtune_kind", type(module)))
        module.__dict__["convtune_leader"] = leader


def unskip(behind: Followers) -> None:
    for module in behind.modules():
        module.__class__ = vars(type(module)).get("convtune_kind", type(module))
        module.__dict__.pop("convtune_leader", None)


_folded: weakref.WeakKeyDictionary[nn.Module, Folded] = weakref.WeakKeyDictionary()


def forget(convolution: nn.Module) -> None:
    """Folds again at the next call: after writes that PyTorch does not count."""
    _folded.pop(convolution, None)


def _folded_weights(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Of x's type."""
    behind: Followers = module.followers
    if behind.norm is None:
        return autocast.cast(x.dtype, x, weight, bias, None, keeps=True)[1:3]
    sources = behind.sources(weight, bias)
    fold = behind.fold(sources, x.dtype)
    if x.is_cuda and _capturing():  # a replay folds what the weights are then
        return fold.of(sources)
    known = _folded.get(module)
    if known is None or known.folds != [fold]:
        counter = behind.norm.num_batches_tracked
        known = _folded[module] = Folded([fold], sources, [] if counter is None else [counter])
    known.refresh(sources)
    return known.tensors[0]  # type: ignore[no-any-return]


def _is_ours(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """An ordinary call of the kind that was proven: anything else is PyTorch's operators, one after the other."""
    if x.dim() != 4 or x.dtype not in TYPES or module.padding_mode != "zeros" or not is_plain(x, weight, bias):
        return False
    if weight.dtype is not x.dtype and (weight.dtype not in TYPES or autocast.type_of(x) is None):
        return False
    sources = module.followers.sources(x, weight, bias)
    return not torch.is_grad_enabled() or not any(one is not None and one.requires_grad for one in sources)


def with_followers(module: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a convtune.nn.Conv2d gives that has followers."""
    behind: Followers = module.followers
    leader = module if behind.norm is None else behind.norm
    if not (leader.training or isinstance(x, torch.fx.Proxy) or torch.compiler.is_compiling()):
        image = x.to(autocast.type_of(x) or x.dtype)  # what PyTorch's way does first, too
        if _is_ours(module, image, weight, bias):
            own = _folded_weights(module, image, weight, bias)
            how = module.stride, module._edges(), module.dilation, module.groups
            return forward(image, *own, None, *how, module.precision, behind.activation, module.choices, True)
    y = nn.Conv2d._conv_forward(module, x, weight, bias)
    return y if leader.training else behind.pytorch(y)
