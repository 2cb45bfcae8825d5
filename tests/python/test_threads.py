"""Many threads on one convolution, and many that plan."""

import itertools
import os
import signal
import threading
import time
import warnings

import convtune
import numpy
import pytest
from convtune.caches import PLANS, LeastRecentlyUsed

THREADS = 8


def in_threads(work):
    """Runs work(number) in all of them at once; raises the first of what they raise."""
    raised, together = [], threading.Barrier(THREADS)

    def body(number):
        try:
            together.wait()
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=body, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_one_convolution_and_one_packing_serve_all():
    random = numpy.random.default_rng(1)
    w, bias = random.integers(-4, 5, (8, 3, 3, 3)).astype("f"), random.integers(-4, 5, 8).astype("f")
    images = random.integers(-4, 5, (THREADS, 1, 3, 16, 16)).astype("f")
    conv = convtune.plan(images[0], w, bias, padding=1)
    packed = convtune.pack(conv, w, bias)
    expected = [convtune.run(conv, image, packed) for image in images]

    def work(number):
        for _ in range(100):
            numpy.testing.assert_array_equal(convtune.run(conv, images[number], packed), expected[number])
            numpy.testing.assert_array_equal(convtune.conv2d(images[number], w, bias, padding=1), expected[number])

    in_threads(work)


def test_planning_and_clearing_from_all():
    x, w = numpy.ones((1, 2, 9, 9), numpy.float32), numpy.ones((3, 2, 3, 3), numpy.float32)

    def work(number):
        for turn in range(40):
            padding = (number + turn) % 5
            assert convtune.conv2d(x, w, padding=padding).shape == (1, 3, 7 + 2 * padding, 7 + 2 * padding)
            if turn % 10 == 9:
                convtune.clear_caches()

    in_threads(work)


def test_errors_belong_to_their_thread():
    def work(number):
        for _ in range(50):
            with pytest.raises(convtune.InvalidArgument, match=f"n .mb. is -{number + 1};"):
                convtune.Problem(-number - 1, 3, 9, 9, 4, 3, 3)

    in_threads(work)


def test_a_forked_child_may_go_on():
    """As multiprocessing forks: the child has none of its parent's threads, and locks as they were at that moment."""
    x, w = numpy.ones((4, 3, 32, 32), numpy.float32), numpy.ones((16, 3, 3, 3), numpy.float32)
    before = convtune.devices()[-1].units
    convtune.set_cpu_threads(2)
    expected = convtune.conv2d(x, w)
    with PLANS._lock, warnings.catch_warnings():  # another thread would hold the lock
        warnings.simplefilter("ignore", DeprecationWarning)  # warns of forking where there are threads
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            os._exit(0 if (convtune.conv2d(x, w) == expected).all() else 1)
    assert os.waitpid(child, 0)[1] == 0
    numpy.testing.assert_array_equal(convtune.conv2d(x, w), expected)
    convtune.set_cpu_threads(before)


def test_forked_children_plan_while_threads_do():
    """As DataLoader forks, from a program whose threads go on: 200 children, none of which waits for ever."""
    done, shapes, planned = threading.Event(), itertools.count(), []

    def plan_new():
        while not done.is_set():
            convtune.conv2d(*new_shape())
            planned.append(1)

    def new_shape():
        number = next(shapes)
        c, h = 1 + number % 50, 5 + number // 50
        return numpy.ones((1, c, h, h), numpy.float32), numpy.ones((2, c, 3, 3), numpy.float32)

    threads = [threading.Thread(target=plan_new) for _ in range(4)]
    for thread in threads:
        thread.start()
    ends = []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # warns of forking where there are threads
            for _ in range(200):
                before, shape = len(planned), new_shape()
                child = os.fork()
                if child == 0:
                    signal.alarm(60)
                    convtune.conv2d(*shape)
                    os._exit(0)
                ends.append(os.waitpid(child, 0)[1])
                while len(planned) == before:
                    time.sleep(0.001)
                if ends.count(signal.SIGALRM) > 2:
                    break
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert set(ends) == {0}


def test_a_plan_is_made_once():
    cache, made = LeastRecentlyUsed(4), []

    def make():
        time.sleep(0.05)
        made.append(1)
        return object()

    found = []
    in_threads(lambda _: found.append(cache.get_or_make("key", make)))
    assert len(made) == 1 and len(set(map(id, found))) == 1


def test_a_plan_that_fails_is_tried_again():
    cache = LeastRecentlyUsed(4)
    with pytest.raises(ZeroDivisionError):
        cache.get_or_make("key", lambda: 1 // 0)
    assert cache.get_or_make("key", lambda: 7) == 7 and not cache._making


def test_the_least_recently_used_goes_first():
    cache = LeastRecentlyUsed(3)
    for key in "abc":
        cache.get_or_make(key, key.upper)
    assert cache.get("a") == "A"
    cache.get_or_make("d", lambda: "D")
    assert len(cache) == 3 and cache.get("b") is None and cache.get("a") == "A"
