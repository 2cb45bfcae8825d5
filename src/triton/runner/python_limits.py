"""Limits of a process that reads what somebody else wrote: memory, processor time, no network."""

import contextlib
import ctypes
import os
import resource
import signal

NEW_USER, NEW_NETWORK = 0x10000000, 0x40000000  # flags of unshare(2)


class Late(BaseException):
    """The processor time is spent. No Exception, so that no handler of those takes it."""


def limit_memory(size):
    most = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (size if most == resource.RLIM_INFINITY else min(size, most), most))


def leave_network():
    """Moves the process into a network of its own, which has no way out, where the system lets this user. Root keeps its files."""
    flags = NEW_NETWORK if os.geteuid() == 0 else NEW_USER | NEW_NETWORK
    with contextlib.suppress(OSError, AttributeError):  # no such call here
        ctypes.CDLL(None).unshare(flags)


@contextlib.contextmanager
def within(seconds):
    """Raises Late where what stands below takes more of the processor."""
    def late(*_):
        raise Late()

    signal.signal(signal.SIGPROF, late)
    signal.setitimer(signal.ITIMER_PROF, seconds, 0.1)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
