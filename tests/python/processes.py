"""Programs in processes of their own, and the memory of this process."""

import os
import subprocess
import sys

import pytest


def python(*arguments, timeout=300, **environment):
    """The interpreter's run with those arguments; in `environment` None takes a variable away."""
    every = {name: value for name, value in {**os.environ, **environment}.items() if value is not None}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=every, capture_output=True, text=True, timeout=timeout)


def resident_bytes():
    if "asan" in os.environ.get("LD_PRELOAD", ""):
        pytest.skip("AddressSanitizer keeps what is freed: how much memory a process has says nothing")
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:
        pytest.skip("there is no /proc here to tell how much memory a process has")
