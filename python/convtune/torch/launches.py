"""Launches of inductor's kernels that cost the processor less, where a step waits for it.

Each launch of a kernel in inductor's code goes through three functions of Python's, the first of which looks at ten settings of
debuggers and sets Triton's allocator anew: in PyTorch 2.11 half of what a launch costs but for the driver, 2.8 us in place of 1.4.
2.15 asks for those once, as this does; there is nothing to do then. docs/decisions/0187-who-waits-for-whom.md has the reasons."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

import torch

__all__ = ["compiled_meanwhile", "shorten"]

_KNOWN = "2.11."  # whose StaticallyLaunchedTritonKernel.run is repeated here


@contextlib.contextmanager
def compiled_meanwhile() -> Iterator[list[Any]]:
    """A list that has the modules which inductor loads within, once they are loaded."""
    from torch._inductor.codecache import PyCodeCache

    def loaded() -> list[Any]:
        return list(getattr(PyCodeCache, "modules", ()))  # other versions of PyTorch keep none

    before = set(map(id, loaded()))
    found: list[Any] = []
    yield found
    found += [one for one in loaded() if id(one) not in before]


class _Shortened:
    """A kernel in inductor's code: from its second call on the launcher that the first one has settled on. While a profiler or a
    debugger looks, and wherever something is unlike what is known, it is inductor's."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self.run: Callable[..., Any] = self._first

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)

    def _first(self, *args: Any, stream: int, **more: Any) -> Any:
        result = self._kernel.run(*args, stream=stream, **more)
        try:
            self.run = _run_of(self._kernel) or self._kernel.run
        except AttributeError:  # another PyTorch, which has not all that is asked
            self.run = self._kernel.run
        return result


def _run_of(kernel: Any) -> Callable[..., Any] | None:
    """The shorter way of a kernel that has run; None where there is none."""
    from torch._inductor.runtime import triton_heuristics

    launchers = getattr(kernel, "launchers", ())
    if len(launchers) != 1 or not getattr(launchers[0], "_is_static", False) or launchers[0].store_cubin:
        return None
    asks = kernel.triton_interpret, kernel.dump_launch_params, kernel.dump_launch_tensors
    settles = kernel.inductor_meta.get("coordinate_descent_tuning", False) and not getattr(launchers[0].config, "found_by_coordesc", False)
    if any(asks) or settles:
        return None
    profiler: Any = triton_heuristics.autograd_profiler
    debugged: Any = triton_heuristics.get_active_debug_mode
    launch, plain = _launcher_of(launchers[0]), kernel.run

    def run(*args: Any, stream: int, **more: Any) -> Any:
        if more or profiler._is_profiler_enabled or debugged():
            return plain(*args, stream=stream, **more)
        return launch(*args, stream)

    return run


def _launcher_of(launcher: Any) -> Callable[..., Any]:
    """The launcher, with a shorter end where it is known."""
    runner = launcher.__globals__.get("runner")
    kernel = getattr(runner, "__self__", None)
    if kernel is None or kernel.has_global_scratch or kernel.has_profile_scratch or not torch.__version__.startswith(_KNOWN):
        return launcher  # type: ignore[no-any-return]
    launch, function, types = kernel.C_impl._launch_kernel, kernel.function, kernel.arg_tys
    warps, shared = kernel.num_warps, kernel.shared

    def run(x: int, y: int, z: int, stream: int, *args: Any) -> None:
        launch(function, x, y, z, warps, shared, types, args, stream)

    return FunctionType(launcher.__code__, {**launcher.__globals__, "runner": run}, launcher.__name__, launcher.__defaults__)


def shorten(modules: list[Any]) -> int:
    """Shortens the launches of kernels in those modules of inductor's that call them; how many kernels there are. Modules that a kernel
    is made in are left: which of them are loaded depends on the process, and inductor reads them again for other graphs."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    if torch.version.hip is not None or hasattr(CachingAutotuner, "_build_fast_launcher"):
        return 0
    found = 0
    for module in (one for one in modules if hasattr(one, "call")):
        for name, one in list(vars(module).items()):
            if type(one) is CachingAutotuner:
                setattr(module, name, _Shortened(one))
                found += 1
    return found
