"""The operators below autograd, which graphs hold, by C++ (libconvtune_torch) where that can be loaded, else by Python.

C++ keeps a table of calls that are ready to run. What is not in it is planned, packed and run by Python (run.py),
which then offers it to the table and takes it out again when the packed weights go. So both compute the same, and a
call that finds everything ready costs no Python: docs/decisions/0047-the-operator-in-cpp.md. Of a step's calls, whose weights
are packed each time, it keeps what follows from how their tensors lie: docs/decisions/0160-steps-bound-by-the-host.md.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from ctypes import c_bool, c_char_p, c_int32, c_int64, c_void_p, cast, py_object
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from .. import _library
from ..caches import PLANS, Packed
from ..convolution import Convolution
from .how import How
from .run import run

__all__ = [
    "LIBRARY", "OF_PLAN", "bound", "conv2d_forward", "conv2d_packed", "conv_gradients", "define", "define_gradients", "forward", "if_ready",
    "is_native", "offer_gradients", "operator", "ready", "size", "step_size", "watch",
]  # fmt: skip

_float32 = torch.float32
_owners = count(1)
_native: Any = None  # libconvtune_torch, where its kernels are PyTorch's
_STEP_CALLS = 4096  # in C++'s table
_offered: dict[int, Convolution] = {}  # by id: those of the table's calls of steps, which it does not keep
# Held while a call of a step is offered and its convolutions are kept, and while all are cleared, so that none is in the
# table alone. It may be taken again by its thread, where what clears is called by a signal or by the garbage collector.
_steps = threading.RLock()
operator = ""  # "C++: FILE", or "Python: why not C++"


# The result, then the arguments, of the functions convtune_torch_*.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "register_defined": (c_char_p,),
    "understands": (c_bool, c_void_p, c_void_p),
    "offer": (c_bool, c_int64, *[c_void_p] * 5, c_char_p, *[c_void_p] * 3, c_bool, c_int64, c_int64, c_bool, c_bool),
    "offer_forward": (c_bool, *[c_void_p] * 5, c_char_p, c_void_p, *[c_bool] * 3),
    "offer_gradients": (c_bool, *[c_void_p] * 6, c_char_p, c_void_p, c_bool, c_void_p, *[c_bool] * 3),
    "drop": (None, c_int64),
    "clear": (None,),
    "clear_steps": (None,),
    "size": (c_int64,),
    "step_size": (c_int64,),
    "fail": (None, c_char_p),
    "python_call": (c_void_p,),
    "python_eager": (c_void_p, py_object, py_object),
    "learn_tensors": (None, *[py_object] * 4),
    "learn_storage": (c_bool, *[c_void_p] * 4),
    "remember_inference_mode": (None,),
    "python_bound": (py_object, c_void_p, c_int32, c_bool, py_object),
    "python_watch": (py_object, py_object, py_object),
    "python_object": (py_object, c_void_p),
}


def _load() -> Any:
    """libconvtune_torch, which lies beside the library of the C face; ImportError says why not."""
    if os.environ.get("CONVTUNE_TORCH_OPERATOR") == "python":
        raise ImportError("CONVTUNE_TORCH_OPERATOR=python")
    path = _library.library_path().with_name("libconvtune_torch.so")
    if not path.is_file() and not (path := path.with_name("libconvtune_torch.so.1")).is_file():
        raise ImportError(f"neither libconvtune_torch.so nor libconvtune_torch.so.1 is in {path.parent}")
    try:
        library = ctypes.PyDLL(str(path))  # calls that are short, and made under Python's lock
        for name, (result, *arguments) in _SIGNATURES.items():
            function = getattr(library, "convtune_torch_" + name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as why:
        raise ImportError(f"{path}: {why}") from why
    return library


def _drop(owner: int, convolution: Any) -> None:
    """Takes a call out of the table. `convolution`: the call's, which lives until then: packed weights of another's order
    serve it, too."""
    _native.convtune_torch_drop(owner)


def _clear() -> None:
    """Takes all calls out of the tables."""
    with _steps:
        _native.convtune_torch_clear()
        _offered.clear()


def _after_fork() -> None:
    """Makes a new lock in the child, where whoever held it is not."""
    global _steps
    _steps = threading.RLock()


os.register_at_fork(after_in_child=_after_fork)


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor._cdata


def _any_precision(x: Tensor, how: How) -> bool:
    """False where PyTorch's setting of precision decides the plan."""
    return not (how.precision == "auto" and x.is_cuda and x.dtype is _float32)


def _offer_step(offer: Callable[..., bool], arguments: Sequence[Any], *convolutions: Convolution | None) -> None:
    """Puts a call of a step into C++'s table by `offer`, and keeps its convolutions, which the caller holds, until all are
    cleared."""
    with _steps:
        if step_size() >= _STEP_CALLS:
            _native.convtune_torch_clear_steps()
            _offered.clear()
        if offer(*arguments):
            _offered.update((id(one), one) for one in convolutions if one is not None)


def offer_gradients(
    tensors: tuple[Tensor, ...], made: tuple[Tensor | None, ...], text: str, how: How,
    of_x: tuple[Convolution | None, bool], of_weight: tuple[Convolution | None, bool],
) -> None:  # fmt: skip
    """Puts gradients that were planned and run into C++'s table. `tensors`: dy, x and the weight; `made`: the gradients, None
    where one was not asked; `of_x`, `of_weight`: their convolutions, and whether those' tensors lie channels last."""
    if _native is None:
        return
    _offer_step(_native.convtune_torch_offer_gradients, (
        *map(_address, (*tensors, *made)), text.encode(), of_x[0] and of_x[0]._handle, of_x[1],
        of_weight[0] and of_weight[0]._handle, of_weight[1], how.transposed, _any_precision(tensors[1], how),
    ), of_x[0], of_weight[0])  # fmt: skip


def _prepare(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, how: str) -> Tensor:
    """Planned, packed and run by Python; ready in C++ from then on, where nothing was left to PyTorch."""
    told = How.parse(how)

    def offer(kept: Any, convolution: Any, packed: int, stream: int, last: bool, y: Tensor) -> None:
        tensors = [_address(one) for one in (x, weight, bias, residual, y)]
        transposed, any_precision = told.transposed, _any_precision(x, told)
        if not told.reuse:
            call = *tensors, how.encode(), convolution._handle, last, transposed, any_precision
            _offer_step(_native.convtune_torch_offer_forward, call, convolution)
            return
        if not isinstance(kept, Packed):
            return
        owner = next(_owners)
        taken = _native.convtune_torch_offer(
            owner, *tensors, how.encode(), convolution._handle, packed, stream, last, kept.of_w.version,
            0 if kept.of_bias is None else kept.of_bias.version, any_precision, transposed,
        )  # fmt: skip
        if taken:
            weakref.finalize(kept, _drop, owner, convolution).atexit = False

    return run(x, weight, bias, told, residual, None if _native is None else offer)


def _telling(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel, which tells C++ why it fails: that has no other way to learn it."""

    def telling(*arguments: Any) -> Any:
        try:
            return kernel(*arguments)
        except BaseException as why:
            if _native is not None:
                _native.convtune_torch_fail(str(why).encode("utf-8", "replace"))
            raise

    return telling


def _kernel(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, how: str) -> Tensor:
    return _prepare(x, weight, bias, residual, how)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, how: How) -> Tensor:
    """An eager call on ordinary tensors, no gradients."""
    if _native is None:
        return run(x, weight, bias, how, residual)
    # Negated views, which the dispatcher would resolve. Weights that were packed before are known by themselves.
    read = (x, residual) if how.reuse else (x, residual, weight, bias)
    if not any(one is not None and one.is_neg() for one in read):
        y = ready(x, weight, bias, residual, how.text)
        if y is not None:
            return y  # type: ignore[no-any-return]
    return _prepare(x, weight, bias, residual, how.text)


def size() -> int:
    """How many calls are ready in C++."""
    return _native.convtune_torch_size() if _native is not None else 0


def step_size() -> int:
    """How many of those that pack their weights."""
    return _native.convtune_torch_step_size() if _native is not None else 0


LIBRARY: Any = torch.library.Library("convtune", "DEF")  # type: ignore[no-untyped-call, unused-ignore]
# How x lies decides how the output does: inductor must hand it over as it was traced.
_TAGS = (torch.Tag.pt2_compliant_tag, getattr(torch.Tag, "needs_exact_strides", torch.Tag.needs_fixed_stride_order))


def define(schema: str, kernel: Any = None, fake: Any = None, tags: Any = _TAGS, **by_key: Any) -> Any:
    """The operator `convtune::NAME` of that schema, registered. `kernel`: of CPUs and GPUs; `fake`: gives the output
    without its numbers; `by_key`: kernels by other dispatch keys."""
    name = schema.partition("(")[0]
    LIBRARY.define(schema, tags=tags)
    for key, function in ((("CPU", kernel), ("CUDA", kernel)) if kernel else ()) + tuple(by_key.items()):
        LIBRARY.impl(name, function, key)
    if fake is not None:
        torch.library.register_fake(f"convtune::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.convtune, name).default


# Below autograd, called where no gradients are recorded: conv2d_forward and conv_gradients, which graphs hold; conv2d_ready,
# None where C++ has nothing ready; conv2d_python, which C++ calls then, and conv_gradients_python.
_ARGUMENTS, _below = "(Tensor x, Tensor weight, Tensor? bias, Tensor? residual, str how)", torch.library.fallthrough_kernel
conv2d_forward: Any = define(f"conv2d_forward{_ARGUMENTS} -> Tensor", Autograd=_below)
_ready_operator: Any = define(f"conv2d_ready{_ARGUMENTS} -> Tensor?", Autograd=_below)
define(f"conv2d_python{_ARGUMENTS} -> Tensor", _telling(_kernel), Autograd=_below)
_GRADIENTS = "(Tensor dy, Tensor x, Tensor weight, str how) -> (Tensor, Tensor, Tensor)"
conv_gradients: Any = define(f"conv_gradients{_GRADIENTS}", Autograd=_below)
# Its plan decides how all of its tensors lie, and graph/lowering.py asks inductor for that: as traced they might be copied twice.
OF_PLAN = _TAGS[0], getattr(torch.Tag, "flexible_layout", _TAGS[1])
conv2d_packed: Any = define("conv2d_packed(Tensor x, Tensor packed, Tensor? residual, str plan) -> Tensor", tags=OF_PLAN)
LIBRARY.impl("conv2d_ready", lambda *arguments: None, "Meta")  # one of the tensors: Python says what is wrong


def _has_lock() -> bool:
    """True where this Python runs one thread at a time; others have other objects, and another way to keep them."""
    return bool(getattr(sys, "_is_gil_enabled", lambda: True)())


def _register() -> str:
    global _native
    try:
        library = _load()
        why = library.convtune_torch_register_defined()
        if why is not None:
            raise ImportError(why.decode())
        with _disable_current_modes():
            probe, other = (torch.empty(1, 2, 3, 4, device="cpu", dtype=_float32) for _ in range(2))
        storages = probe.untyped_storage()._cdata, other.untyped_storage()._cdata
        if not library.convtune_torch_understands(probe._cdata, probe.data_ptr()) or not (
            library.convtune_torch_learn_storage(probe._cdata, storages[0], other._cdata, storages[1])
        ):
            raise ImportError("this PyTorch's tensors are not what it takes them for")
    except ImportError as why:
        for key in ("CPU", "CUDA"):
            LIBRARY.impl("conv2d_forward", _kernel, key, allow_override=True)
        return f"Python: {why}"
    _native = library
    if _has_lock():
        library.convtune_torch_learn_tensors(Tensor, torch.nn.Parameter, probe, torch.nn.Parameter(probe))
    PLANS.cleared.append(_clear)  # else C++ would go on with the old ones
    return f"C++: {library._name}"


def define_gradients(kernel: Callable[..., Any], fake: Callable[..., Any]) -> None:
    """Gives conv_gradients its kernel by Python, which C++ calls where it has nothing ready, and its fake one."""
    define(f"conv_gradients_python{_GRADIENTS}", _telling(kernel), Autograd=_below)
    torch.library.register_fake("convtune::conv_gradients", fake, lib=LIBRARY)
    for key in () if is_native else ("CPU", "CUDA"):
        LIBRARY.impl("conv_gradients", kernel, key)


def bound(convolution: Convolution, index: int, otherwise: Callable[..., None]) -> Callable[..., None]:
    """A call (x, packed, [residual,] out=y) of that convolution on the GPU `index`, or on the CPU (-1): a function of
    Python's C interface, which leaves what it cannot do to `otherwise(x, packed, residual, out)`; that one itself, where
    there is none. The first two must live as long as the process."""
    if ready is _ready_operator:
        return otherwise
    transposed = convolution.problem.direction == "bwd_d"
    return _native.convtune_torch_python_bound(convolution._handle, index, transposed, otherwise)  # type: ignore[no-any-return]


def watch(tensors: tuple[Tensor, ...], counters: tuple[Tensor, ...]) -> Callable[[Any], bool] | None:
    """Tells of a tuple of tensors whether they are still these, by identity, storage, address and `_version`, and of
    `counters` that their `_version` is; None where C++ cannot. For those who hold weak references to `tensors` and to their
    storages, while all of the tensors live."""
    if ready is _ready_operator:
        return None
    return _native.convtune_torch_python_watch(tensors, counters)  # type: ignore[no-any-return]


def if_ready(spell: Callable[..., str | None]) -> Callable[..., Tensor | None]:
    """The shortest way of an eager call: a function (x, weight, bias or None, stride, padding, dilation, groups,
    precision, activation, choices, residual or None) of Python's C interface that gives y where that call is ready, of
    plain tensors, and nobody could watch it; else None. `spell` makes the operator's text of what lies between bias and
    residual, or None. Where C++ cannot ask all that, nothing is ever ready."""
    if ready is not _ready_operator and _has_lock():
        # This may be imported at a first call, under autocast or a mode. So what inference mode sets is not what is set
        # within it, but what differs between on and off: the rest, taken for a part of it, would never be seen again.
        for on in (False, True):
            with torch.inference_mode(on):
                _native.convtune_torch_remember_inference_mode()
        if made := _native.convtune_torch_python_eager(spell, vars(torch.autograd.forward_ad)):
            return cast(made, py_object).value  # type: ignore[no-any-return]
    return lambda *_: None


def _past_the_dispatcher() -> Any:
    """conv2d_ready as a function of Python's C interface; the operator, where that is not to be had."""
    if _native is not None and (made := _native.convtune_torch_python_call()):
        probe = torch.empty(1, device="cpu")
        if _native.convtune_torch_python_object(probe._cdata) is probe:
            return cast(made, py_object).value
    return _ready_operator


operator = _register()
is_native = _native is not None
ready = _past_the_dispatcher()
