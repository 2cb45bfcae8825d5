"""Stopping of a long call of the library, which comes back into Python between its steps: Ctrl-C, and the end of the
interpreter."""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator

__all__ = ["stoppable"]

_EXIT_SECONDS = 30.0  # that the interpreter's end waits for the steps of daemon threads

_changed = threading.Condition()
_running = 0  # long calls in threads other than the main one
_leaving = False


@contextlib.contextmanager
def _noted_interrupts() -> Iterator[list[int]]:
    """Notes Ctrl-C in the list while the library runs, rather than raised: an exception would be lost on its way
    through C. A second one is Python's own again. Only the main thread hears signals, and a handler of somebody
    else's stays."""
    noted: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield noted
        return

    def note(number: int, _: object) -> None:
        noted.append(number)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    signal.signal(signal.SIGINT, note)
    try:
        yield noted
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _refuse_when_leaving() -> None:
    if _leaving:
        raise SystemExit("the interpreter is ending")  # ends a thread without a word


@contextlib.contextmanager
def stoppable() -> Iterator[Callable[[], bool]]:
    """The context of a long call. The function that it yields tells whether the call must stop, and is asked between
    its steps. In a daemon thread at the interpreter's end, where the thread would die within the library and take the
    process along, the context raises SystemExit."""
    global _running
    if threading.current_thread() is threading.main_thread():
        with _noted_interrupts() as noted:
            yield lambda: bool(noted)
        return
    with _changed:
        _refuse_when_leaving()
        _running += 1
    try:
        yield lambda: _leaving
    finally:
        with _changed:
            _running -= 1
            _changed.notify_all()
    _refuse_when_leaving()


def _stop_all() -> None:
    global _leaving
    with _changed:
        _leaving = True
        _changed.wait_for(lambda: not _running, _EXIT_SECONDS)


def _after_fork() -> None:
    """Starts afresh in the child, where the other threads are not."""
    global _changed, _running
    _changed, _running = threading.Condition(), 0


atexit.register(_stop_all)
os.register_at_fork(after_in_child=_after_fork)
