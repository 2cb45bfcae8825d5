"""Inductor's compiling processes end at the lowest priority."""

import functools
import os
import subprocess
import types

import pytest
import torch_support  # noqa: F401  (skips where PyTorch is not installed)

from convtune.torch import leaving

pools = pytest.importorskip("torch._inductor.compile_worker.subproc_pool")
pytestmark = pytest.mark.skipif(not hasattr(pools.SubprocPool, "quiesce"), reason="this PyTorch keeps them")


@pytest.fixture
def pool(monkeypatch):
    """A pool whose process has a child; `pool.seen`: that child's priority when it is told to end."""
    from torch._inductor.async_compile import AsyncCompile

    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as process:
        child = int(process.stdout.readline())
        made = pools.SubprocPool.__new__(pools.SubprocPool)
        made.process, made.seen, made.running = process, [], False

        def quiesce(self):
            self.seen.append(os.getpriority(os.PRIO_PROCESS, child))

        monkeypatch.setattr(pools.SubprocPool, "quiesce", quiesce)
        made.timer = types.SimpleNamespace(call=made.quiesce)
        monkeypatch.setattr(AsyncCompile, "process_pool", staticmethod(functools.lru_cache(1)(lambda: made)))
        leaving.leave_quietly.cache_clear()
        yield made
        leaving.leave_quietly.cache_clear()
        os.kill(child, 9)
        process.kill()


def own():
    return os.getpriority(os.PRIO_PROCESS, 0)


def test_children_have_the_lowest_priority_when_they_are_sent_away(pool):
    leaving.leave_quietly()
    pool.quiesce()
    assert pool.seen == [19] and os.getpriority(os.PRIO_PROCESS, pool.process.pid) == own()


def test_a_pool_that_is_there_has_it_too(pool):
    from torch._inductor.async_compile import AsyncCompile

    assert AsyncCompile.process_pool() is pool
    leaving.leave_quietly()
    pool.timer.call()
    assert pool.seen == [19]


def test_nobody_is_asked_for_a_pool(pool):
    from torch._inductor.async_compile import AsyncCompile

    leaving.leave_quietly()
    assert not AsyncCompile.process_pool.cache_info().currsize


def test_where_nothing_is_known_of_children_they_end_as_ever(pool, monkeypatch):
    leaving.leave_quietly()
    pool.process.kill()
    pool.process.wait()
    pool.quiesce()
    assert pool.seen == [own()]
