"""Inductor's compiling processes end when they have had no work for a minute, all at once: as many as the machine has processors, each
of which takes its memory apart. A model that is served by then had calls of 1 ms that took 4. They end at the lowest priority here,
which costs nobody anything. docs/decisions/0184-compiling-processes-leave-quietly.md."""

from __future__ import annotations

import contextlib
import os
from functools import cache, wraps
from pathlib import Path
from typing import Any

__all__ = ["leave_quietly"]

_LOWEST = 19


def _yield_to_others(parent: int) -> None:
    """The children of that process at the lowest priority; where the system tells nothing of them, as they were."""
    with contextlib.suppress(OSError, ValueError):
        for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
            with contextlib.suppress(OSError):  # it has ended by now
                os.setpriority(os.PRIO_PROCESS, int(child), _LOWEST)


@cache
def leave_quietly() -> None:
    """Has them end so from now on. Those that begin with new work have the priority of the process that they come from."""
    with contextlib.suppress(ImportError, AttributeError):  # another PyTorch's inductor
        from torch._inductor.async_compile import AsyncCompile
        from torch._inductor.compile_worker.subproc_pool import SubprocPool

        real: Any = SubprocPool.quiesce

        @wraps(real)
        def quiesce(pool: Any) -> None:
            with contextlib.suppress(AttributeError):
                _yield_to_others(pool.process.pid)
            real(pool)

        SubprocPool.quiesce = quiesce  # type: ignore[method-assign]
        made: Any = AsyncCompile.process_pool
        if made.cache_info().currsize and isinstance(pool := made(), SubprocPool) and pool.timer is not None:
            pool.timer.call = pool.quiesce  # which it was given when it was made
