"""Nothing grows: 100,000 calls, plans that come and go, packed weights of tensors that come and go."""

import gc
import weakref

import convtune
import numpy
import pytest
from convtune.caches import PLANS, PackCache, Seen
from convtune.memory import HostMemory
from processes import resident_bytes

pytestmark = pytest.mark.usefixtures("one_thread")
LIMIT = 1 << 20  # bytes: 100,000 calls that each lose 16 bytes lose more


def growth(call, count, warm_up):
    """In bytes. What a heap takes to settle is taken once; what is lost is lost again."""
    for _ in range(warm_up):
        call()
    grown = []
    for _ in range(2):
        gc.collect()
        before = resident_bytes()
        for _ in range(count):
            call()
        gc.collect()
        grown.append(resident_bytes() - before)
        if grown[-1] < LIMIT:
            break
    return min(grown)


def test_a_leak_would_be_seen():
    kept = []
    assert growth(lambda: kept.append(bytes(16)), 100_000, 10) > LIMIT


def test_100_000_calls():
    x, w, bias = (numpy.ones(shape, numpy.float32) for shape in [(1, 2, 4, 4), (3, 2, 3, 3), (3,)])
    assert growth(lambda: convtune.conv2d(x, w, bias, padding=1), 100_000, 5_000) < LIMIT


def test_100_000_calls_that_fail():
    problem = convtune.Problem(1, 2, 4, 4, 3, 3, 3)
    conv = convtune.Convolution(problem, "cpu")

    def call():
        try:
            conv.run_raw(0, 0, 0)
        except convtune.InvalidArgument as error:
            assert "null" in str(error)
        else:
            raise AssertionError("null pointers were taken")

    assert growth(call, 100_000, 1_000) < LIMIT


def test_plans_that_come_and_go():
    problem = convtune.Problem(1, 2, 4, 4, 3, 3, 3)
    conv = convtune.Convolution(problem, "cpu")
    gone = weakref.ref(conv)
    del conv
    assert gone() is None
    assert growth(lambda: convtune.Convolution(problem, "cpu"), 1_000, 200) < LIMIT


def test_the_plans_kept_are_bounded(monkeypatch):
    convtune.clear_caches()
    monkeypatch.setattr(PLANS, "bound", 10)
    x = numpy.ones((1, 1, 4, 4), numpy.float32)
    for padding in range(30):
        convtune.conv2d(x, numpy.ones((1, 1, 1, 1), numpy.float32), padding=padding)
        assert len(PLANS) <= 10
    convtune.clear_caches()
    assert len(PLANS) == 0


def test_host_memory_is_aligned():
    for size in (0, 1, 63, 64, 1000):
        memory = HostMemory(size)
        assert memory.pointer % 64 == 0 and memory.size == size
    assert HostMemory(10, 256).pointer % 256 == 0
    with pytest.raises(convtune.OutOfMemory, match="18446744073709551616"):
        HostMemory(2**64)


def test_outputs_begin_at_a_line_of_the_cache():
    w = numpy.ones((8, 3, 1, 1), numpy.float32)
    for size in (1, 5, 64, 200):
        y = convtune.conv2d(numpy.ones((1, 3, size, size), numpy.float32), w)
        assert y.ctypes.data % 64 == 0 and y.flags.c_contiguous and y.flags.writeable
        assert y.shape == (1, 8, size, size) and (y == 3).all()


class Storage:
    """A storage of PyTorch's and a weak reference to one, which name it by the same number."""

    def __init__(self, number):
        self._cdata = self.cdata = number


class Tensor:
    """As much of PyTorch's as PackCache asks."""

    def __init__(self, version=0, pointer=64):
        self._version, self.pointer, self.storage = version, pointer, Storage(1)

    def untyped_storage(self):
        return self.storage

    def data_ptr(self):
        return self.pointer


def kept(cache, w, bias, convolution, stream=0):
    seen = Seen(w, w.storage), None if bias is None else Seen(bias, bias.storage)
    cache.keep(w, bias, seen, convolution, stream, object(), 4096)
    return cache.find(w, bias, convolution, stream)


def test_packed_weights_hold_as_long_as_nothing_changes():
    cache, w, bias, conv = PackCache(8, 4), Tensor(), Tensor(), object()
    entry = kept(cache, w, bias, conv)
    assert entry is not None and entry.pointer == 4096
    assert cache.find(w, None, conv, 0) is None
    assert cache.find(w, bias, object(), 0) is None
    assert cache.find(w, bias, conv, 7) is None  # another stream packs for itself
    assert cache.find(Tensor(), bias, conv, 0) is None
    for tensor in (w, bias):
        tensor._version += 1
        assert cache.find(w, bias, conv, 0) is None
        tensor._version -= 1
        tensor.pointer += 64
        assert cache.find(w, bias, conv, 0) is None
        tensor.pointer -= 64
        before, tensor.storage = tensor.storage, Storage(2)  # which got the memory of the one before
        assert cache.find(w, bias, conv, 0) is None
        tensor.storage = before
    assert cache.find(w, bias, conv, 0) is entry


def test_packed_weights_go_with_their_tensor():
    cache, w, conv = PackCache(8, 4), Tensor(), object()
    entry = weakref.ref(kept(cache, w, None, conv))
    assert entry() is not None and len(cache) == 1
    del w
    assert entry() is None and len(cache) == 0


def test_packed_weights_are_bounded():
    cache, w, conv = PackCache(3, 2), Tensor(), object()
    for stream in range(5):
        kept(cache, w, None, conv, stream)
        assert len(cache) <= 2
    tensors = [Tensor() for _ in range(9)]
    for tensor in tensors:
        assert kept(cache, tensor, None, conv) is not None
        assert len(cache) <= 3 + 2
    cache.clear()
    assert len(cache) == 0
