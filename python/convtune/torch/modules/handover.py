"""Convolutions that do the work of what stands behind them, and hand the result over.

A module that was proven to call them so (structure.Caller) notes in its forward that it runs, in this thread. A
convolution that it calls then computes norm and activation as well, and what it gives is handed to those: each gives
back exactly that tensor, and computes whatever else it gets. So hooks, modules that were exchanged, parts that are
called alone, other code in the same place: each is seen before the convolution runs, which is then PyTorch's. A tensor
that nobody took back at the end shows that the forward is another than was proven: it runs again, as PyTorch's, and so
do all later ones. docs/decisions/0085-modules-that-hand-over.md has the reasons.
"""

from __future__ import annotations

import copyreg
import functools
import logging
import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from .. import autocast
from ..folding import Fold, Folded
from ..functional import call_if_ready, is_plain
from ..how import How, edges_of
from ..native import forward
from ..run import TYPES
from .structure import Caller, Followers, is_watched

__all__ = ["Led", "fused", "hand_over", "made_of", "take_back"]

_log = logging.getLogger("convtune")
_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: False)
# Constant for Dynamo, which so sees PyTorch's modules alone.
_is_traced = torch.compiler.is_dynamo_compiling
_newobj: Any = copyreg.__newobj__  # type: ignore[attr-defined]
_module: Any = nn.modules.module
_hooks_of_all = [
    getattr(_module, name)
    for name in ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks", "_global_backward_pre_hooks")
]


class _Running(threading.local):
    """The state of this thread: the caller whose forward runs, and what was handed to whom in it."""

    now: tuple[Caller, dict[nn.Module, Tensor]] | None = None


_running = _Running()


class Led:
    """The state of a convolution that has followers: its weights with their norm folded in. A copy folds its own."""

    folded: Folded | None = None
    kind: tuple[Any, ...] = ()

    def __deepcopy__(self, _: Any) -> Led:
        return Led()

    def __reduce__(self) -> Any:
        return Led, ()


def made_of(kind: type, make: Callable[[type], type], *before: type, **methods: Any) -> type:
    """That class with other methods, and with those of the classes `before` it; tools take it for the class itself.
    `make` makes it again where it is unpickled."""

    def reduce(self: Any, protocol: Any) -> Any:
        function, arguments, *rest = kind.__reduce_ex__(self, protocol)  # type: ignore[misc]
        if function is not _newobj:
            return (function, arguments, *rest)
        return (_rebuilt, (make, kind, *arguments[1:]), *rest)

    names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(kind.__name__, (*before, kind), {**names, **methods, "__reduce_ex__": reduce, "convtune_kind": kind})


def _rebuilt(make: Callable[[type], type], kind: type, *arguments: Any) -> Any:
    return kind.__new__(make(kind), *arguments)


@cache
def _following(kind: type) -> type:
    """That class, but it gives back the tensor that was handed to it."""

    def forward(self: Any, x: Tensor) -> Tensor:
        if not _is_traced():
            now = _running.now
            if now is not None and now[1] and now[1].get(self) is x:
                del now[1][self]
                return x
        return kind.forward(self, x)  # type: ignore[attr-defined, no-any-return]

    return made_of(kind, _following, forward=forward)


@cache
def _calling(kind: Any) -> type:
    """That class, but its convolutions know when it runs as it was proven to."""
    proven = kind.forward

    @functools.wraps(proven)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_traced():
            return kind.forward(self, *args, **kwargs)
        before = _running.now
        caller = vars(self).get("convtune_calls")
        if caller is not None and caller.module is self and kind.forward is proven and caller.is_as_proven(args, kwargs):
            handed: dict[nn.Module, Tensor] = {}
            _running.now = caller, handed
            try:
                y = kind.forward(self, *args, **kwargs)
            finally:
                _running.now = before
            if not handed:
                return y
            caller.followers.clear()
            _log.warning(
                "%s no longer calls its modules as it did when convtune.optimize proved what stands behind its "
                "convolutions: PyTorch computes those from now on", kind.__name__,
            )  # fmt: skip
        elif before is None:
            return kind.forward(self, *args, **kwargs)
        _running.now = None
        try:
            return kind.forward(self, *args, **kwargs)
        finally:
            _running.now = before

    return made_of(kind, _calling, forward=forward)


def hand_over(convolution: Any, behind: Followers) -> None:
    """Lets the convolution do the work of its followers where their caller calls them."""
    caller = behind.caller
    for module, make in [(caller.module, _calling), *((one, _following) for one in behind.modules)]:
        module.__class__ = make(vars(type(module)).get("convtune_kind", type(module)))
    caller.module.__dict__["convtune_calls"] = caller
    convolution.led = Led()


def take_back(model: nn.Module) -> None:
    """Undoes that for all convolutions of the model."""
    for module in model.modules():
        module.__dict__.pop("convtune_calls", None)
        module.__class__ = vars(type(module)).get("convtune_kind", type(module))


def fused(module: Any, x: Tensor) -> Tensor | None:
    """The result of a convolution that does the work of its followers; None where that is PyTorch's."""
    if _is_traced():
        return None
    now = _running.now
    if now is None or type(x) is not Tensor:
        return None
    behind = now[0].followers.get(module)
    if behind is None or is_watched(module) or any(_hooks_of_all) or not behind.are_as_proven():
        return None
    y = _computed(module, behind, x)
    if y is not None:
        for one in behind.modules:
            now[1][one] = y
    return y


def _computed(module: Any, behind: Followers, x: Tensor) -> Tensor | None:
    own = module._parameters
    weight, bias = (own["weight"], own["bias"]) if "weight" in own else (module.weight, module.bias)
    cast = autocast.type_of(x)
    if cast is not None:  # PyTorch's way does this first, too
        x = x.to(cast)
    if x.dtype not in TYPES or module.padding_mode != "zeros":
        return None
    if weight.dtype is not x.dtype and (weight.dtype not in TYPES or cast is None):
        return None
    sources = _sources(behind.norm, weight, bias)
    if torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in (x, *sources)):
        return None
    words = module.precision, behind.activation, module.choices
    made = _known_weights(module.led, behind.norm, x, sources)
    if made is not None:
        axes = len(module.kernel_size)
        y = call_if_ready(axes, x, *made, module.stride, module.padding, module.dilation, module.groups, *words, None)
        if y is not None:
            return y
    if x.dim() != weight.dim() or not is_plain(x, weight, bias):
        return None
    made = _weights(module.led, behind.norm, x, sources)
    if made is None:
        return None
    how = How.of(module.stride, edges_of(module), module.dilation, module.groups, *words)
    return forward(x, *made, None, how)


def _sources(norm: Any, *own: Tensor | None) -> tuple[Any, ...]:
    """The convolution's own tensors, and the norm's behind them, as `Fold` has them."""
    if norm is None:
        return own
    parameters, buffers = norm._parameters, norm._buffers
    try:  # an attribute that Module.__getattr__ looks up costs as much as the rest
        return *own, buffers["running_mean"], buffers["running_var"], parameters["weight"], parameters["bias"]
    except KeyError:  # parametrized
        return *own, norm.running_mean, norm.running_var, norm.weight, norm.bias


def _known_weights(led: Led, norm: Any, x: Tensor, sources: tuple[Any, ...]) -> tuple[Tensor, Tensor | None] | None:
    """`_weights`, where they are there and hold."""
    if norm is None:
        return sources if sources[0].dtype is x.dtype else None  # type: ignore[return-value]
    known = led.folded
    if known is None or led.kind != _kind(norm, x, sources) or not known.fits or (x.is_cuda and _capturing()):
        return None
    return known.tensors[0] if known.hold(sources) else None  # type: ignore[no-any-return]


def _weights(led: Led, norm: Any, x: Tensor, sources: tuple[Any, ...]) -> tuple[Tensor, Tensor | None] | None:
    """Weight of x's type and bias, with the norm in them; None where x's type has not the digits for that."""
    if norm is None:
        return autocast.cast(x.dtype, x, *sources, None, keeps=True)[1:3]  # type: ignore[return-value]
    fold = Fold(tuple(None if one is None else at for at, one in enumerate(sources)), norm.eps, x.dtype)
    if x.is_cuda and _capturing():  # a replay folds what the weights are then
        may_not_fit = x.dtype is torch.float16 and not (led.folded is not None and led.folded.fits)
        return None if may_not_fit else fold.of(sources)
    kind, counter = _kind(norm, x, sources), norm.num_batches_tracked
    if led.folded is None or led.kind != kind:
        led.folded, led.kind = Folded([fold], sources, [] if counter is None else [counter]), kind
    known = led.folded
    known.refresh(sources)
    return known.tensors[0] if known.fits else None


def _kind(norm: Any, x: Tensor, sources: tuple[Any, ...]) -> tuple[Any, ...]:
    """All that the choice of a fold depends on."""
    return norm.eps, x.dtype, sources[1] is None, sources[4] is None, sources[5] is None
