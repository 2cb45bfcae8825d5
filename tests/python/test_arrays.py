"""Arrays of other libraries: by DLPack, by the array interfaces, PyTorch's on the CPU where PyTorch is there, and
CuPy's by a stand-in, because this machine may have no GPU."""

import ctypes
import dataclasses
import sys
import types

import convtune
import numpy
import pytest
import reference
from convtune import arrays

random = numpy.random.default_rng(1)
X, W = random.standard_normal((2, 3, 8, 9), numpy.float32), random.standard_normal((4, 3, 3, 3), numpy.float32)
BIAS = random.standard_normal(4, numpy.float32)
EXPECTED = reference.conv2d(X, W, BIAS, padding=(1, 1, 1, 1))


class Foreign:
    """An array of a library that nobody knows, with DLPack alone."""

    def __init__(self, array, device=None):
        self.array, self.device, self.asked = array, device, 0

    def __dlpack__(self, **how):
        self.asked += 1
        return self.array.__dlpack__(**how)

    def __dlpack_device__(self):
        return self.device or self.array.__dlpack_device__()


def test_numpy_is_read_where_it_lies():
    fixed = X.copy()
    fixed.flags.writeable = False
    for array in (X, fixed, X[:, ::2], X[0, 0, 0, 0:0], numpy.asfortranarray(X), numpy.array(1, numpy.float16)):
        described = arrays.describe(array, "x")
        assert described.pointer == array.ctypes.data and described.shape == array.shape


def test_dlpack_is_read_without_a_copy():
    x = Foreign(X)
    described = arrays.describe(x, "x")
    assert described.pointer == X.ctypes.data and described.shape == X.shape and described.dtype == "float32"
    y = convtune.conv2d(x, Foreign(W), Foreign(BIAS), padding=1)
    assert type(y) is numpy.ndarray
    reference.close(y, EXPECTED, 27)


def test_dlpack_of_other_orders_is_copied():
    x = Foreign(numpy.asfortranarray(X))
    reference.close(convtune.conv2d(x, W, BIAS, padding=1), EXPECTED, 27)


class Old(Foreign):
    """From before DLPack 1.0."""

    def __dlpack__(self):
        return self.array.__dlpack__()


def test_dlpack_old_and_new_and_read_only():
    fixed = X.copy()
    fixed.flags.writeable = False
    ways = [Old(X), Foreign(X), Old(numpy.asfortranarray(X))]
    if numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0":
        ways.append(Foreign(fixed))
    for x in ways:
        reference.close(convtune.conv2d(x, Old(W), BIAS, padding=1), EXPECTED, 27)


def test_what_is_read_only_is_not_written():
    fixed = numpy.zeros((2, 4, 8, 9), numpy.float32)
    fixed.flags.writeable = False
    conv = convtune.plan(X, W, BIAS, padding=1)
    packed, out = convtune.pack(conv, W, BIAS), Foreign(numpy.zeros_like(fixed))
    reference.close(convtune.run(conv, Foreign(X), packed, out=out).array, EXPECTED, 27)
    if numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0":
        with pytest.raises(convtune.InvalidArgument, match="out .* is read-only"):
            convtune.run(conv, Foreign(X), packed, out=Foreign(fixed))
        assert not fixed.any()


def test_arrays_that_never_change_are_not_written(monkeypatch):
    class Array(Foreign):
        """As JAX's, which are known by their class."""

    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=Array))
    conv = convtune.plan(X, W, BIAS, padding=1)
    out = Array(numpy.zeros((2, 4, 8, 9), numpy.float32))
    with pytest.raises(convtune.InvalidArgument, match="out .* is read-only"):
        convtune.run(conv, Array(X), convtune.pack(conv, W, BIAS), out=out)
    assert not out.array.any()


def test_inside_of_a_jax_transformation(monkeypatch):
    class Tracer:
        pass

    monkeypatch.setitem(sys.modules, "jax", types.SimpleNamespace(Array=Tracer))
    with pytest.raises(convtune.Unsupported, match="x: a .*Tracer has no numbers yet.*jax.jit"):
        convtune.conv2d(Tracer(), W)


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint16", "complex64", "bool"])
def test_dlpack_types_have_their_names(dtype):
    with pytest.raises(convtune.InvalidArgument, match=f"x is {dtype} "):
        convtune.conv2d(Foreign(X.astype(dtype)), W)


@pytest.mark.parametrize("device, words", [((2, 1), "cuda:1"), ((13, 0), "cuda:0"), ((14, 3), "DLPack device 14")])
def test_dlpack_elsewhere_is_refused_before_it_is_asked(device, words):
    x = Foreign(X, device)
    with pytest.raises(convtune.Unsupported, match=words):
        convtune.conv2d(x, W)
    assert x.asked == 0


def test_dlpack_capsules_give_their_memory_back():
    shared = X.copy()
    x = Foreign(shared)
    before = sys.getrefcount(shared)
    for _ in range(100):
        convtune.conv2d(x, W)
    assert sys.getrefcount(shared) == before


def test_what_a_producer_says_is_passed_on():
    class Refuses(Foreign):
        def __dlpack__(self, **_):
            raise BufferError("not today")

    with pytest.raises(convtune.InvalidArgument, match="x cannot be read: not today"):
        convtune.conv2d(Refuses(X), W)


def test_the_array_interface():
    class Old:
        __array_interface__ = X.__array_interface__
        kept = X

    reference.close(convtune.conv2d(Old(), W, BIAS, padding=1), EXPECTED, 27)


def test_a_gpu_array_of_nobody_is_refused():
    class Numba:
        __cuda_array_interface__ = {"shape": (1,), "typestr": "<f4", "data": (0, False), "version": 3}

    with pytest.raises(convtune.Unsupported, match="cupy.asarray"):
        convtune.conv2d(Numba(), W)


class FakeCuPy:
    """The part of CuPy that arrays.py uses, over host memory."""

    class ndarray(numpy.ndarray):
        @property
        def data(self):
            return types.SimpleNamespace(ptr=self.ctypes.data)

        @property
        def device(self):
            return types.SimpleNamespace(id=1)

    class Device:
        current = []

        def __init__(self, number):
            self.number = number

        def __enter__(self):
            self.current.append(self.number)

        def __exit__(self, *_):
            self.current.pop()

    def __init__(self):
        current = self.Device.current
        stream = lambda: types.SimpleNamespace(ptr=100 + current[-1])  # noqa: E731
        self.cuda = types.SimpleNamespace(Device=self.Device, get_current_stream=stream)

    def empty(self, shape, dtype):
        assert self.Device.current == [1]
        return numpy.empty(shape, dtype).view(self.ndarray)

    def array(self, array, order, copy):
        assert self.Device.current == [1] and order == "C" and copy
        return numpy.array(numpy.asarray(array), order="C").view(self.ndarray)


@pytest.fixture
def cupy(monkeypatch):
    fake = FakeCuPy()
    # A CuPy array is no NumPy array; the stand-in is, so it is asked for first.
    monkeypatch.setitem(sys.modules, "cupy", fake)
    known = arrays._has_ancestor
    monkeypatch.setattr(
        arrays,
        "_has_ancestor",
        lambda kind, module, name: (
            known(kind, module, name) and not (module == "numpy" and issubclass(kind, FakeCuPy.ndarray))
        ),
    )
    return fake


class FakeConvolution:
    """Runs on "cuda:1" by a convolution of the CPU's, and notes what it was given."""

    device = "cuda:1"

    def __init__(self, problem):
        self.on_cpu = convtune.Convolution(problem, "cpu")
        self.problem, self.packing = problem, "a plan"
        self.packed_bytes = self.on_cpu.packed_bytes + 64
        self.output_shape = problem.output_shape
        self.streams = []

    def pack_raw(self, w, bias, packed, stream):
        self.streams.append(stream)
        self.on_cpu.pack_raw(w, bias, packed + -packed % 64, 0)

    def run_raw(self, x, packed, y, stream):
        self.streams.append(stream)
        self.on_cpu.run_raw(x, packed + -packed % 64, y, 0)


def test_cupy_by_a_stand_in(cupy, monkeypatch):
    x, w, bias = (a.copy().view(cupy.ndarray) for a in (numpy.asfortranarray(X), W, BIAS))
    x = numpy.asfortranarray(x).view(cupy.ndarray)
    made = []

    def fake(key, make_problem, device):
        assert device == "cuda:1"
        made.append(FakeConvolution(make_problem()))
        return made[-1]

    monkeypatch.setattr(convtune.functional, "planned", fake)
    y = convtune.conv2d(x, w, bias, padding=1)
    assert type(y) is cupy.ndarray and made[0].streams == [101, 101]
    reference.close(numpy.asarray(y), EXPECTED, 27)
    conv = FakeConvolution(convtune.Problem(2, 3, 8, 9, 4, 3, 3, padding=1))
    packed = convtune.pack(conv, w, bias)
    reference.close(numpy.asarray(convtune.run(conv, x, packed)), EXPECTED, 27)
    with pytest.raises(convtune.InvalidArgument, match="w is on cpu.*the input on cuda:1"):
        convtune.conv2d(x, W)
    with pytest.raises(convtune.InvalidArgument, match="x is on cpu.*the convolution on cuda:1"):
        convtune.run(conv, X, packed)
    with pytest.raises(convtune.InvalidArgument, match="out is an array of numpy on cpu"):
        convtune.run(conv, x, packed, out=numpy.empty((2, 4, 8, 9), numpy.float32))


def test_a_capsule_of_our_own_making():
    """Strides that are absent mean contiguous, a byte offset counts, vectors are refused."""
    from convtune import dlpack

    class Tensor(dlpack._DLTensor):
        pass

    shape = (ctypes.c_int64 * 2)(3, 2)
    numbers = (ctypes.c_float * 6)()
    tensor = Tensor(ctypes.addressof(numbers), 1, 0, 2, 2, 32, 1, shape, None, 8)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    class Producer:
        def __dlpack__(self):
            return new(ctypes.addressof(tensor), b"dltensor", None)

    capsule = dlpack.Capsule(Producer())
    assert capsule.pointer == ctypes.addressof(numbers) + 8 and capsule.contiguous
    assert capsule.shape == (3, 2) and capsule.dtype == "float32" and capsule.device == (1, 0)
    versioned = (ctypes.c_uint32 * 2)(1, 3), bytes(24), bytes(tensor)
    block = ctypes.create_string_buffer(b"".join(map(bytes, versioned)))

    class Versioned:
        def __dlpack__(self, max_version):
            assert max_version == (1, 0)
            return new(ctypes.addressof(block), b"dltensor_versioned", None)

    assert dlpack.Capsule(Versioned()).pointer == capsule.pointer and dlpack.Capsule(Versioned()).writable
    block[24] = 1  # the flag DLPACK_FLAG_BITMASK_READ_ONLY
    assert not dlpack.Capsule(Versioned()).writable
    block[0] = 2
    with pytest.raises(convtune.InvalidArgument, match="version 2"):
        dlpack.Capsule(Versioned())
    strides = (ctypes.c_int64 * 2)(1, 3)
    tensor.strides = strides
    assert not dlpack.Capsule(Producer()).contiguous
    tensor.lanes = 4
    with pytest.raises(convtune.InvalidArgument, match="4"):
        dlpack.Capsule(Producer())


def test_torch_on_the_cpu():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here: its CPU tensors are not tested")
    x, w, bias = (torch.from_numpy(a.copy()) for a in (X, W, BIAS))
    with torch.no_grad():
        y = convtune.conv2d(x, w, bias, padding=1)
        assert type(y) is torch.Tensor and y.is_contiguous()
        reference.close(y.numpy(), EXPECTED, 27)
        # Other libraries' ways to it: DLPack, and plan/pack/run.
        reference.close(convtune.conv2d(Foreign(x), Foreign(w), bias, padding=1), EXPECTED, 27)
        conv = convtune.plan(x, w, bias, padding=1)
        y = convtune.run(conv, x.to(memory_format=torch.channels_last), convtune.pack(conv, w, bias))
        reference.close(y.numpy(), EXPECTED, 27)
        version = y._version
        assert convtune.run(conv, x, convtune.pack(conv, w, bias), out=y) is y and y._version > version
        # Changes in place are seen.
        w.zero_()
        bias.fill_(2)
        assert (convtune.conv2d(x, w, bias, padding=1) == 2).all()
    packed = convtune.pack(conv, w, bias)
    for wrong in (dict(x=x.clone().requires_grad_()), dict(x=x, out=y.clone().requires_grad_())):
        with pytest.raises(convtune.InvalidArgument, match="gradients"):
            convtune.run(conv, weights=packed, **wrong)


@pytest.mark.parametrize("allowed, precision", [(True, "tf32"), (False, "fp32")])
def test_plan_rounds_as_pytorch_allows(allowed, precision, monkeypatch):
    """As conv2d does; of a GPU only its name is needed."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed here")
    on_cpu = arrays.describe
    monkeypatch.setattr(arrays, "describe", lambda *a: dataclasses.replace(on_cpu(*a), device="cuda:0"))
    monkeypatch.setattr(convtune.functional, "_planned", lambda problem, device: (problem.precision, device))
    x, w = torch.from_numpy(X), torch.from_numpy(W)
    with torch.backends.cudnn.flags(allow_tf32=allowed):
        assert convtune.plan(x, w) == (precision, "cuda:0")
        assert convtune.plan(x, w, precision="fp16") == ("fp16", "cuda:0")
    assert convtune.plan(X, W) == ("auto", "cuda:0")


def test_jax_on_the_cpu():
    jax = pytest.importorskip("jax", reason="JAX is not installed here")
    with jax.default_device(jax.devices("cpu")[0]):  # which is not the default where there is a GPU
        y = convtune.conv2d(*map(jax.numpy.asarray, (X, W, BIAS)), padding=1)
    assert isinstance(y, jax.Array)
    reference.close(numpy.asarray(y), EXPECTED, 27)
