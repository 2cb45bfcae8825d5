"""Asks ahead what inductor asks once a process, for half a second: which Triton and inductor this is, by the bytes of their files. It
is asked while a graph is rewritten, where the interpreter waits for files and for convtune's library."""

from __future__ import annotations

import contextlib
from functools import cache
from threading import Thread

__all__ = ["asked_ahead"]


def _ask() -> None:
    with contextlib.suppress(Exception):  # inductor asks again, and says what fails
        from torch._inductor.codecache import torch_key
        from torch._inductor.runtime.triton_compat import HAS_TRITON, triton_key

        if HAS_TRITON:
            triton_key()
        torch_key()


@cache
def asked_ahead() -> Thread | None:
    """The thread that asks, begun by the first who calls this; whoever compiles waits for it. None where there is none to be had."""
    thread = Thread(target=_ask, daemon=True, name="convtune asks ahead")
    try:
        thread.start()
    except RuntimeError:
        return None
    return thread
