"""The shortest way of an eager call: what C++ asks before it goes past PyTorch's dispatcher, and when it declines."""

import contextlib
import gc
import sys
import threading

import pytest
from processes import python
from torch_support import assert_near, by_cpp, double_conv2d, each_device, on_gpu, tensors, torch

import convtune
import convtune.torch
from convtune.torch import native
from convtune.torch.functional import call_if_ready

# Behind torch_support, which skips these tests where there is no PyTorch.
TorchFunctionMode = torch.overrides.TorchFunctionMode
TorchDispatchMode = torch.utils._python_dispatch.TorchDispatchMode

WORDS = 1, 1, 1, 1, None, None, ""

pytestmark = [by_cpp, pytest.mark.usefixtures("nothing_ready")]


def called(x, w, bias, residual=None):
    return call_if_ready(2, x, w, bias, *WORDS, residual)


class Functions(TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))


class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        return function(*arguments, **(named or {}))


@each_device
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("mode", [contextlib.nullcontext, torch.inference_mode, torch.enable_grad])
def test_plain_calls_are_its(device, residual, mode):
    x, w, bias = tensors(device, k=32)
    z = torch.rand(2, 32, 13, 11, device=device) if residual else None
    y = double_conv2d(x, w, bias, padding=(1, 1, 1, 1)) + (0 if z is None else z.double())
    assert called(x, w, bias, z) is None
    for way in (lambda: convtune.conv2d(x, w, bias, padding=1, residual=z), lambda: called(x, w, bias, z)):
        with mode():
            found = way()
        assert_near(found, y)
        assert not found.requires_grad and found.is_inference() == (mode is torch.inference_mode)
    convtune.conv2d(x, w, padding=1)
    assert_near(called(x, w, None), double_conv2d(x, w, None, padding=(1, 1, 1, 1)))


@each_device
@pytest.mark.parametrize("watcher", [
    Functions,
    Dispatch,
    torch.profiler.profile,
    torch.autograd.forward_ad.dual_level,
    lambda: torch.autocast("cpu", torch.bfloat16),
    pytest.param(lambda: torch.autocast("cuda", torch.float16), marks=on_gpu),  # else it is never on
], ids=["function mode", "dispatch mode", "profiler", "forward gradients", "autocast", "autocast of GPUs"])  # fmt: skip
@pytest.mark.filterwarnings("ignore")
def test_who_watches_sees_the_call(device, watcher):
    x, w, bias = tensors(device, k=32)
    convtune.conv2d(x, w, bias, padding=1)
    with watcher():
        assert called(x, w, bias) is None
    with watcher(), torch.inference_mode():
        assert called(x, w, bias) is None
    assert called(x, w, bias) is not None


@each_device
def test_transforms_and_traces_see_the_call(device):
    x, w, bias = tensors(device, k=32)
    convtune.conv2d(x, w, bias, padding=1)
    found = []

    def function(t):
        found.append(called(x, w, bias))
        return t + 1

    torch.func.vmap(function)(torch.rand(2, device=device))
    torch.fx.experimental.proxy_tensor.make_fx(function)(torch.rand(2, device=device))
    torch.jit.trace(function, torch.rand(2, device=device), check_trace=False)
    assert found and all(one is None for one in found)


@each_device
@pytest.mark.parametrize("which", range(4))
def test_gradients_are_recorded(device, which):
    given = [*tensors(device, k=32), torch.rand(2, 32, 13, 11, device=device)]
    convtune.conv2d(*given[:3], padding=1, residual=given[3])
    with torch.enable_grad():
        assert called(*given) is not None
        given[which].requires_grad_()
        assert called(*given) is None
        assert convtune.conv2d(*given[:3], padding=1, residual=given[3]).requires_grad
    convtune.conv2d(*given[:3], padding=1, residual=given[3])
    assert called(*given) is not None


@each_device
def test_only_plain_tensors(device):
    class Mine(torch.Tensor):
        pass

    x, w, bias = tensors(device, k=32)
    z = torch.rand(2, 32, 13, 11, device=device)
    for residual in (None, z):
        convtune.conv2d(x, w, bias, padding=1, residual=residual)
    for wrong in ((x.as_subclass(Mine), w, bias), (x, w.as_subclass(Mine), bias), (x, w, bias.as_subclass(Mine)),
                  (x, w, bias, z.as_subclass(Mine)), (x._neg_view(), w, bias), (x, w, bias, z._neg_view()),
                  (None, w, bias), (x, None, bias), (x, w, 1), (x, w, bias, "z"), (x[0], w, bias),
                  (x.to_sparse(), w, bias), (x.to("meta"), w, bias), (x.double(), w, bias)):  # fmt: skip
        assert called(*wrong) is None
    assert call_if_ready(2, x, w, bias, *WORDS) is None  # an argument less
    assert called(x, torch.nn.Parameter(w), bias) is None  # another tensor, for which nothing is ready
    parameter = torch.nn.Parameter(w, requires_grad=False)
    convtune.conv2d(x, parameter, bias, padding=1)
    assert called(x, parameter, bias) is not None


def test_words_that_python_spells():
    """Each by its objects; what was forgotten is spelled again."""
    x, w, bias = tensors("cpu", k=32)
    y = double_conv2d(x, w, bias, padding=(1, 1, 1, 1))
    for _ in range(3):
        for k in range(3000):  # more than it keeps, none of them kept by anybody else
            words = ((1, 1), (1, 1, 1, 1), int("1"), 1, "".join(["au", "to"]), None, "")
            found = call_if_ready(2, x, w, bias, *words, None)
            assert k == 0 or found is not None
            if found is None:
                convtune.conv2d(x, w, bias, padding=1)
        assert_near(call_if_ready(2, x, w, bias, *words, None), y)
    for wrong in (([1, 1], *WORDS[1:]), (1, "same", *WORDS[2:]), ("1", *WORDS[1:]), (1, 1, 1, 1, None, "nonsense", "")):
        assert call_if_ready(2, x, w, bias, *wrong, None) is None
    stride = (1, 1, int("1" * 9))[:2]
    counted = [sys.getrefcount(one) for one in (x, w, bias, stride)]
    for _ in range(100):
        called(x, w, bias), call_if_ready(2, x, w, bias, stride, *WORDS[1:], None)
    assert [sys.getrefcount(one) for one in (x, w, bias)] == counted[:3] and sys.getrefcount(stride) <= counted[3] + 1


def test_threads_that_spell_at_once():
    x, w, bias = tensors("cpu", k=32)
    y = double_conv2d(x, w, bias, padding=(1, 1, 1, 1))
    convtune.conv2d(x, w, bias, padding=1)
    wrong = []

    def many():
        for _ in range(4000):
            with torch.no_grad():
                found = call_if_ready(2, x, w, bias, (1, 1), (1, 1, 1, 1), (1, 1), 1, None, None, "", None)
            if found is None or (found.double() - y).abs().max() > 1e-3:
                wrong.append(found)

    threads = [threading.Thread(target=many) for _ in range(4)]
    [one.start() for one in threads], [one.join() for one in threads]
    assert not wrong


def test_a_weight_that_goes_leaves_nothing():
    x, w, bias = tensors("cpu", k=32)
    convtune.conv2d(x, w, bias, padding=1)
    called(x, w, bias)
    assert native.size() == 1
    del w
    gc.collect()
    assert native.size() == 0


def test_a_thread_of_its_own_has_its_own_modes():
    x, w, bias = tensors("cpu", k=32)
    convtune.conv2d(x, w, bias, padding=1)
    found = []
    with Dispatch():
        thread = threading.Thread(target=lambda: found.append(called(x, w, bias)))
        thread.start(), thread.join()
        assert called(x, w, bias) is None
    assert found[0] is not None


FIRST = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode
import convtune

class Dispatch(TorchDispatchMode):
    calls = 0
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        Dispatch.calls += 1
        return function(*arguments, **(named or {}))

def call():
    return convtune.conv2d(x, w, padding=1)

x, w = torch.rand(1, 8, 8, 8), torch.rand(8, 8, 3, 3)
"""


@pytest.mark.parametrize(("state", "tells"), [
    ('torch.autocast("cpu", torch.bfloat16)', "y.dtype == torch.bfloat16"),
    ("Dispatch()", "Dispatch.calls"),
], ids=["autocast", "dispatch mode"])  # fmt: skip
def test_the_state_of_the_first_call_is_not_taken_for_inference_mode(state, tells):
    program = f"""{FIRST}
with torch.inference_mode(), {state}:
    call()  # which imports convtune.torch
call(), call()  # ready in C++
Dispatch.calls = 0
with torch.inference_mode(), {state}:
    y = call()
    assert {tells}
from convtune.torch.functional import call_if_ready
with torch.inference_mode():
    assert call_if_ready(2, x, w, None, *{WORDS}, None) is not None
print("all well")
"""
    done = python("-c", program)
    assert "all well" in done.stdout, done.stderr
