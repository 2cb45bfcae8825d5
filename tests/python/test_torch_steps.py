"""The operators that graphs of a training step call: conv_gradients, and conv2d_forward with weights that are packed in every call. C++ runs
what Python has planned once, and gives the same bits."""

import threading

import pytest
from processes import python
from test_torch_backward import MASKS, chosen, each_case, layer
from torch_support import by_cpp, each_device, on_gpu, torch

import convtune
import convtune.torch
from convtune.torch import native
from convtune.torch.backward import conv_gradients, gradients, pytorch_gradients, text_of
from convtune.torch.how import How
from convtune.torch.run import run

FORWARD = torch.ops.convtune.conv2d_forward.default

pytestmark = pytest.mark.usefixtures("nothing_ready")


@pytest.fixture
def planned(monkeypatch):
    """The gradients that Python ran, so far."""
    import convtune.torch.backward as backward

    calls = []
    monkeypatch.setattr(backward, "gradients", lambda *call: calls.append(call) or gradients(*call))
    return calls


def same(found, expected):
    for one, other in zip(found, expected):
        assert (one is None) == (other is None)
        if one is not None:
            assert torch.equal(one, other) and one.stride() == other.stride() and one.dtype is other.dtype


@by_cpp
@each_device
@each_case
@pytest.mark.parametrize("last", [False, True])
def test_gradients_by_cpp_are_those_by_python(device, case, last, planned):
    dy, x, w, how = layer(device, case, last)
    masks = [mask for mask in MASKS if not mask[2] or (mask[1] and not how.transposed)]
    for mask in masks:
        text = text_of(None, chosen(device, x, w, how, torch.float32 if mask[2] else None), mask)
        first = conv_gradients(dy, x, w, text)
        assert all(one is None or torch.equal(one, other) for one, other in zip(first, pytorch_gradients(dy, x, w, torch.float32, how, mask)))
        for _ in range(2):
            same(conv_gradients(dy, x, w, text), first)
        other = torch.randint_like(dy, -3, 4)
        same(conv_gradients(other, x, w, text), convtune.torch.backward._kernel_of_text(other, x, w, text))
    assert len(planned) == 2 * len(masks) and native.step_size() == len(masks)  # each by Python as the first, and as the last


@by_cpp
@each_device
def test_tensors_that_lie_otherwise_are_planned_anew(device, planned):
    dy, x, w, how = layer(device, "3x3")
    own = chosen(device, x, w, how, torch.float32)
    text, mask = text_of(None, own, (True, True, True)), (True, True, True)
    turned = w.to(memory_format=torch.channels_last)
    gap = torch.stack([dy, dy], -1)[..., 0]
    for tensors in ((dy, x, w), (gap, x, w), (dy, x.to(memory_format=torch.channels_last), w), (dy, x, turned)) * 2:
        expected = pytorch_gradients(*tensors, torch.float32, how, mask)
        for one, other in zip(conv_gradients(*tensors, text), expected):
            assert torch.equal(one, other)
    served = native.step_size()
    assert served >= 2 and len(planned) == 8 - served  # channels last has no line here, so that is PyTorch's


@by_cpp
@each_device
def test_what_is_known_goes_with_the_plans(device, planned):
    dy, x, w, how = layer(device, "3x3")
    text = text_of(None, chosen(device, x, w, how), (True, True, False))
    conv_gradients(dy, x, w, text)
    assert native.step_size() == 1
    convtune.clear_caches()
    assert native.step_size() == 0 and not native._offered
    conv_gradients(dy, x, w, text)
    assert native.step_size() == 1 and len(planned) == 2


@by_cpp
def test_the_table_is_bounded(monkeypatch):
    monkeypatch.setattr(native, "_STEP_CALLS", 2)
    dy, x, w, how = layer("cpu", "3x3")
    own = chosen("cpu", x, w, how)
    for mask in ((True, False, False), (False, True, False), (True, True, False)) * 2:
        for _ in range(2):
            conv_gradients(dy, x, w, text_of(None, own, mask))
            assert 1 <= len(native._offered) <= 2 and 1 <= native.step_size() <= 2


class Interrupted:
    """libconvtune_torch, of which offers of steps begin when another thread has had the time to clear all."""

    def __init__(self, native):
        self.native, self.threads = native, []

    def __getattr__(self, name):
        function = getattr(self.native, name)
        if name not in ("convtune_torch_offer_gradients", "convtune_torch_offer_forward"):
            return function

        def offer(*arguments):
            self.threads.append(threading.Thread(target=convtune.clear_caches))
            self.threads[-1].start()
            self.threads[-1].join(0.2)
            return function(*arguments)

        return offer


@by_cpp
def test_no_call_is_known_without_its_convolution(monkeypatch):
    """C++ keeps none, so it would run one that is gone."""
    dy, x, w, how = layer("cpu", "3x3")
    text = text_of(None, chosen("cpu", x, w, how), (True, True, False))
    packs = How(*how.geometry, reuse=False).text
    for call in (lambda: conv_gradients(dy, x, w, text), lambda: FORWARD(x, w, None, None, packs)):
        with monkeypatch.context() as patched:
            patched.setattr(native, "_native", interrupted := Interrupted(native._native))
            call()
            (thread,) = interrupted.threads
            thread.join(60)
        assert not thread.is_alive() and native.step_size() == 0 and not native._offered


@by_cpp
def test_what_is_not_taken_is_not_kept():
    _, x, w, how = layer("cpu", "3x3")
    bias = torch.randn(2 * how.channels(w))[::2]
    FORWARD(x, w, bias, None, How(*how.geometry, reuse=False).text)
    assert native.step_size() == 0 and not native._offered


@by_cpp
def test_a_full_table_of_steps_leaves_the_other_calls(monkeypatch):
    monkeypatch.setattr(native, "_STEP_CALLS", 1)
    _, x, w, how = layer("cpu", "3x3")
    FORWARD(x, w, None, None, How(*how.geometry).text)
    for batch in (1, 2):
        FORWARD(x[:1].repeat(batch, 1, 1, 1), w, None, None, How(*how.geometry, reuse=False).text)
    assert native.size() == 1 and native.step_size() == 1


@by_cpp
def test_gradients_of_a_directions_own_are_left_to_python(planned):
    """A direction without a plan is PyTorch's, by Python, in every call."""
    dy, x, w, how = layer("cpu", "3x3")
    text = text_of(None, chosen("cpu", x, w, how, None, "x"), (True, True, False))
    for _ in range(2):
        same(conv_gradients(dy, x, w, text), pytorch_gradients(dy, x, w, None, how, (True, True, False)))
    assert len(planned) == 2 and native.step_size() == 0


@by_cpp
def test_errors_say_what_python_says():
    dy, x, w, how = layer("cpu", "3x3")
    text = text_of(None, chosen("cpu", x, w, how), (True, True, False))
    conv_gradients(dy, x, w, text)
    with pytest.raises(RuntimeError, match="dy has the shape"):
        conv_gradients(dy[..., :-1], x, w, text)
    with pytest.raises(RuntimeError, match="must begin with"):
        conv_gradients(dy[:, :3], x, w, text)


@by_cpp
@each_device
@pytest.mark.parametrize("case", ["3x3", "depthwise", "row", "volume", "transposed"])
@pytest.mark.parametrize("more", ["", "bias", "residual", "bias and residual"])
def test_forwards_that_pack_are_run_by_cpp(device, case, more, prepared):
    dy, x, w, how = layer(device, case)
    words = {name: getattr(how, name) for name in ("stride", "padding", "dilation", "groups", "output_padding")}
    how = How(**words, reuse=False, rounding="eager" if more else "once")
    bias = torch.rand(how.channels(w), device=device) if "bias" in more else None
    residual = torch.rand_like(dy) if "residual" in more else None
    for _ in range(3):
        w = w + 1  # another tensor, as in every step
        same([FORWARD(x, w, bias, residual, how.text)], [run(x, w, bias, how, residual)])
    assert len(prepared) == 1 and native.step_size() == 1 and native.size() == 0
    same([convtune.torch.native.forward(x, w, bias, residual, how)], [run(x, w, bias, how, residual)])
    assert len(prepared) == 1


@on_gpu
def test_streams_and_cuda_graphs():
    dy, x, w, how = layer("cuda", "3x3")
    text = text_of(None, chosen("cuda", x, w, how), (True, True, False))
    expected = conv_gradients(dy, x, w, text)
    with torch.cuda.stream(torch.cuda.Stream()):
        found = conv_gradients(dy, x, w, text)
        torch.cuda.current_stream().synchronize()
    same(found, expected)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = conv_gradients(dy, x, w, text)
    w.mul_(2), dy.mul_(-1)
    convtune.clear_caches()  # a recorded graph keeps its kernels
    graph.replay()
    same(found, pytorch_gradients(dy, x, w, None, how, (True, True, False)))


def test_python_gives_the_same_bits(tmp_path):
    program = f"""
import sys, torch, convtune.torch
sys.path.insert(0, {str(__file__.rpartition("/")[0])!r})
from test_torch_backward import CASES, chosen
from convtune.torch.backward import conv_gradients, text_of
from convtune.torch.how import How
found = []
for name in ("3x3", "depthwise", "row", "transposed"):
    shape, filters, words = CASES[name]
    how, generator = How(**words), torch.Generator().manual_seed(5)
    x, w = (torch.rand(one, generator=generator) for one in (shape, filters))
    dy = torch.rand(convtune.torch.run.pytorch_convolution(x, w, None, how).shape, generator=generator)
    own = chosen("cpu", x, w, how)
    text = text_of(None, own, (True, True, False))
    packs = How(*how.geometry, output_padding=how.output_padding, reuse=False).text
    for _ in range(2):
        found += conv_gradients(dy, x, w, text)[:2]
        found.append(torch.ops.convtune.conv2d_forward(x, w, None, None, packs))
torch.save(found, sys.argv[1])
print(convtune.torch.operator)
"""
    answers = []
    for kind in ("c++", "python"):
        done = python("-c", program, tmp_path / kind, CONVTUNE_TORCH_OPERATOR=kind)
        assert done.returncode == 0, done.stdout + done.stderr
        answers.append((done.stdout, torch.load(tmp_path / kind)))
    assert answers[1][0].startswith("Python")
    same(answers[0][1], answers[1][1])


def test_the_operator_is_sound():
    dy, x, w, how = layer("cpu", "3x3")
    text = text_of(None, chosen("cpu", x, w, how, torch.float32), (True, True, True))
    utils = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(conv_gradients, (dy, x, w, text), test_utils=utils)
