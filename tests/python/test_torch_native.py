"""The operator of graphs in C++ (libconvtune_torch): what it finds ready, and when it does not."""

import enum
import gc
import sys
import threading

import pytest
from processes import python
from torch_support import assert_near, by_cpp, double_conv2d, each_device, on_gpu, tensors, torch

import convtune
import convtune.torch
import convtune.torch.fused
from convtune.caches import PACKS
from convtune.torch import native
from convtune.torch.how import How

FORWARD = torch.ops.convtune.conv2d_forward.default
TEXT = How(padding=(1, 1, 1, 1), activation="relu").text

pytestmark = [by_cpp, pytest.mark.usefixtures("nothing_ready")]


def expected(x, w, bias, residual=None, padding=(1, 1, 1, 1)):
    y = double_conv2d(x, w, bias, padding=padding)
    return (y if residual is None else y + residual.double()).relu()


def test_the_text_goes_both_ways():
    choices = "a\tb\tnchw\tc\tx=1\nd\te\tnhwc\tf\t"
    for how in (How(), How((2, 3), (0, 1, 2, 3), (1, 2), 4, "tf32", "clip:0:6", choices, False)):
        assert How.parse(how.text).words == how.words
        assert How.of(*map(list, how.words[:3]), *how.words[3:]) == how
        assert "\n" not in how.text + "".join(map(str, how.words))  # inductor writes them into comments of its code


@each_device
@pytest.mark.parametrize("residual", [False, True])
def test_a_second_call_is_ready(device, residual, prepared):
    x, w, bias = tensors(device, k=32)
    z = torch.rand(2, 32, 13, 11, device=device) if residual else None
    for _ in range(3):
        assert_near(FORWARD(x, w, bias, z, TEXT), expected(x, w, bias, z))
    assert len(prepared) == 1 and native.size() == 1
    other = torch.rand_like(x)  # other memory, the same form
    assert_near(FORWARD(other, w, bias, z, TEXT), expected(other, w, bias, z))
    assert len(prepared) == 1
    larger = torch.rand(3, *x.shape[1:], device=device)
    z = None if z is None else torch.rand(3, 32, 13, 11, device=device)
    assert_near(FORWARD(larger, w, bias, z, TEXT), expected(larger, w, bias, z))
    assert len(prepared) == 2 and native.size() == 2


@each_device
@pytest.mark.parametrize("change", [
    lambda w: w.mul_(-0.5),
    lambda w: w.set_(torch.rand_like(w)),
    lambda w: setattr(w, "data", torch.rand_like(w)),
    lambda w: w.transpose_(2, 3),
    lambda w: w[1].zero_(),
], ids=["in place", "other memory", "other data", "other strides", "through a view"])  # fmt: skip
@pytest.mark.parametrize("which", ["weight", "bias"])
def test_a_change_is_seen(device, change, which, prepared):
    x, w, bias = tensors(device, k=32)
    FORWARD(x, w, bias, None, TEXT)
    if which == "bias" and change.__code__.co_names == ("transpose_",):
        pytest.skip("a bias has one dimension")
    change(w if which == "weight" else bias)
    for _ in range(2):
        assert_near(FORWARD(x, w, bias, None, TEXT), expected(x, w, bias))
    assert len(prepared) == 2


@each_device
def test_another_tensor_in_the_same_memory_is_another(device):
    """Freed and made again at once, an allocator gives the same address, and both have been written to as often."""
    x, w, bias = tensors(device, k=32)
    addresses = set()
    for seed in range(8):
        weight = tensors("cpu", k=32, seed=seed)[1].to(device)
        addresses.add(weight.data_ptr())
        assert_near(FORWARD(x, weight, bias, None, TEXT), expected(x, weight, bias))
        del weight
    assert native.size() == 0, "a weight that went has left something behind"


@each_device
def test_another_bias_in_the_same_memory_is_another(device):
    x, w, _ = tensors(device, k=32)
    base = torch.rand(32, device=device)
    for _ in range(200):
        base.add_(1)
        bias = base.data  # another tensor of the same memory, never written to
        assert_near(FORWARD(x, w, bias, None, TEXT), expected(x, w, bias))
        del bias


@each_device
def test_what_is_ready_goes_with_its_weight_and_with_the_plans(device):
    x, w, bias = tensors(device, k=32)
    FORWARD(x, w, bias, None, TEXT)
    assert native.size() == 1
    PACKS.forget(w)
    assert native.size() == 0
    FORWARD(x, w, bias, None, TEXT)
    convtune.set_cpu_threads(2)  # plans anew
    assert native.size() == 0
    FORWARD(x, w, bias, None, TEXT)
    del w
    gc.collect()
    assert native.size() == 0


@each_device
def test_memory_that_lies_otherwise_is_not_taken_for_the_same(device, prepared):
    x, w, bias = tensors(device, (2, 4, 12, 12), 4)
    shifted = torch.cat([x.flatten(), x.flatten()])[1 : 1 + x.numel()].view(x.shape)
    ways = [x, x.to(memory_format=torch.channels_last), x.transpose(2, 3), x.flip(0).flip(0)[:, :, 1:], shifted]
    for one in ways * 2:
        assert_near(FORWARD(one, w, bias, None, TEXT), expected(one, w, bias))
        theirs = torch.conv2d(one, w, bias, padding=1)
        assert FORWARD(one, w, bias, None, TEXT).stride() == theirs.stride()
    z = torch.rand(2, 4, 12, 12, device=device)
    for one in (z, z.to(memory_format=torch.channels_last), z.transpose(2, 3)) * 2:
        assert_near(FORWARD(x, w, bias, one, TEXT), expected(x, w, bias, one))


def test_eager_calls_use_it_too(prepared):
    x, w, bias = tensors("cpu", k=32)
    for _ in range(3):
        assert_near(convtune.conv2d(x, w, bias, padding=1), double_conv2d(x, w, bias, padding=(1, 1, 1, 1)))
    assert len(prepared) == 1
    with torch.enable_grad():  # and no call that records gradients
        y = convtune.conv2d(x, w.requires_grad_(), bias, padding=1)
        assert y.requires_grad


def test_tensors_of_inference_mode(prepared):
    """Nobody counts their changes."""
    with torch.inference_mode():
        x, w, bias = tensors("cpu", k=32)
        for _ in range(2):
            assert_near(FORWARD(x, w, bias, None, TEXT), expected(x, w, bias))
            w.mul_(2)
    assert native.size() == 0


@each_device
def test_eager_calls_go_past_the_dispatcher(device, prepared):
    """By a function of Python's C interface, which gives PyTorch's tensors, or None where nothing is ready."""
    x, w, bias = tensors(device, k=32)
    assert type(native.ready) is type(len)
    assert native.ready(x, w, bias, None, TEXT) is None
    expected_y = FORWARD(x, w, bias, None, TEXT)
    y = native.ready(x, w, bias, None, TEXT)
    assert torch.equal(y, expected_y) and type(y) is torch.Tensor and not y.requires_grad and y._version == 0
    for wrong in ((x, w, None, None, TEXT), (x, w, "bias", None, TEXT), (x, w, bias, 1, TEXT), (x, w, bias, None, 7),
                  (None, w, bias, None, TEXT), (x, w, bias, None), (x[0], w, bias, None, TEXT)):  # fmt: skip
        assert native.ready(*wrong) is None
    with torch.inference_mode():
        assert native.ready(x, w, bias, None, TEXT).is_inference()
    with torch.enable_grad():
        assert not native.ready(x, w, bias, None, TEXT).requires_grad
    counted = sys.getrefcount(x), sys.getrefcount(w), sys.getrefcount(TEXT)
    for _ in range(100):
        y = native.ready(x, w, bias, None, TEXT)
    assert (sys.getrefcount(x), sys.getrefcount(w), sys.getrefcount(TEXT)) == counted and sys.getrefcount(y) == 2
    for stride in (1, (1, 1), [1, 1]):
        before = len(prepared)
        for _ in range(2):
            y = convtune.conv2d(x, w, bias, stride, "same", activation="relu")
            assert_near(y, expected(x, w, bias))
            assert torch.equal(convtune.conv2d(x, w, bias, stride, 1, activation="relu"), y)
        assert len(prepared) <= before + 1


@each_device
@pytest.mark.parametrize("change", [
    lambda w, counter: w.mul_(2),
    lambda w, counter: setattr(w, "data", w.data.clone()),
    lambda w, counter: w[1].zero_(),
    lambda w, counter: counter.add_(1),
], ids=["in place", "other memory", "through a view", "a counter"])  # fmt: skip
def test_a_watch_sees_changes(device, change):
    w, bias, counter = tensors(device)[1], torch.rand(4, device=device), torch.zeros((), dtype=torch.long)
    counted = sys.getrefcount(counter), sys.getrefcount(w)
    same = native.watch((w, bias), (counter,))
    assert same((w, bias)) and same((w, bias))
    assert not any(map(same, ((bias, w), (w,), (w, bias, bias), (w.view_as(w), bias), (w.clone(), bias), (None, bias))))
    change(w, counter)
    assert not same((w, bias))
    again = native.watch((w, bias), (counter,))
    assert again((w, bias)) and not same((w, bias))
    del same, again
    assert (sys.getrefcount(counter), sys.getrefcount(w)) == counted
    with torch.inference_mode():
        assert native.watch((torch.rand(1),), ()) is None and native.watch((w,), (torch.rand(1),)) is None


@each_device
def test_words_of_any_kind_of_text(device):
    class Padding(str, enum.Enum):
        same = "same"

    x, w, bias = tensors(device, k=32, kernel=(3, 5))
    for _ in range(2):
        y = convtune.conv2d(x, w, bias, padding=Padding.same, activation="relu")
        assert_near(y, expected(x, w, bias, padding=(1, 2, 1, 2)))
    x, w, bias = tensors(device, k=32, kernel=(5, 3))
    for _ in range(2):
        y = convtune.conv2d(x, w, bias, padding=Padding.same, activation="relu")
        assert_near(y, expected(x, w, bias, padding=(2, 1, 2, 1)))


@each_device
def test_a_subclass_in_any_place_goes_through_the_dispatcher(device):
    from torch.testing._internal.two_tensor import TwoTensor

    x, w, bias = tensors(device, k=32)
    z = torch.rand(2, 32, 13, 11, device=device)
    fused = torch.ops.convtune.conv2d_fused.default
    how = [1, 1], [1, 1, 1, 1], [1, 1], 1, "auto", "relu"
    convtune.conv2d(x, w, bias, padding=1, activation="relu"), fused(x, w, bias, z, *how)
    y = convtune.conv2d(x, w, TwoTensor(bias, bias), padding=1, activation="relu")
    assert type(y) is TwoTensor and torch.equal(y.a, y.b)
    assert_near(y.a, expected(x, w, bias))
    for b, r in ((TwoTensor(bias, bias), z), (bias, TwoTensor(z, z))):
        y = fused(x, w, b, r, *how)
        assert type(y) is TwoTensor
        assert_near(y.a, expected(x, w, bias, z))


@each_device
def test_negated_views_are_read_as_what_they_are(device):
    """Same memory, same form."""
    x, w, bias = tensors(device, k=32)
    z = torch.rand(2, 32, 13, 11, device=device)
    fused = torch.ops.convtune.conv2d_fused.default
    for image, residual in [(x, z), (torch._neg_view(x), z), (x, torch._neg_view(z))] * 2:
        y = convtune.conv2d(image, w, bias, padding=1, activation="relu")
        assert_near(y, expected(image.resolve_neg(), w, bias))
        y = fused(image, w, bias, residual, [1, 1], [1, 1, 1, 1], [1, 1], 1, "auto", "relu")
        assert_near(y, expected(image.resolve_neg(), w, bias, residual.resolve_neg()))
    for reuse in (True, False):  # without, the weight is packed in each call, by C++ from the second one on
        for weight, b in [(w, bias), (torch._neg_view(w), bias), (w, torch._neg_view(bias))] * 2:
            y = convtune.torch.conv2d(x, weight, b, padding=1, activation="relu", reuse=reuse)
            assert_near(y, expected(x, weight.resolve_neg(), b.resolve_neg()))
    assert native.step_size() == 1


def test_what_is_wrong_is_said(capfd):
    x, w, bias = tensors("cpu", k=32)
    with pytest.raises(RuntimeError, match="x has 3 channels, but w has 5"):
        FORWARD(x, torch.rand(32, 5, 3, 3), bias, None, TEXT)
    with pytest.raises(RuntimeError, match="residual has the shape"):
        FORWARD(x, w, bias, torch.rand(2, 32, 5, 5), TEXT)
    assert_near(FORWARD(x, w, bias, None, TEXT), expected(x, w, bias))


def test_threads_while_weights_change():
    """Each of them calls with its own weight, writes to it, and lets it go; nobody gets another's answer."""
    x = torch.rand(1, 8, 10, 10)
    wrong = []

    def work(seed):
        for turn in range(30):
            w = torch.full((16, 8, 3, 3), float(seed * 100 + turn + 1))
            for _ in range(3):
                if not torch.allclose(FORWARD(x, w, None, None, TEXT), torch.conv2d(x, w, padding=1), rtol=1e-3):
                    wrong.append((seed, turn))
                with torch.no_grad():
                    w.mul_(1.5)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong and not any(thread.is_alive() for thread in threads)
    assert native.size() == 0


@on_gpu
def test_the_setting_of_precision_counts_in_each_call(prepared):
    x, w, bias = tensors("cuda", (4, 32, 28, 28), 64)
    answers = []
    for allow in (False, True, False, True):
        torch.backends.cudnn.allow_tf32 = allow
        answers.append(FORWARD(x, w, bias, None, TEXT))
        assert_near(answers[-1], expected(x, w, bias), tf32=allow)
    assert torch.equal(answers[0], answers[2]) and torch.equal(answers[1], answers[3])
    assert not torch.equal(answers[0], answers[1]) and len(prepared) == 2


@on_gpu
def test_streams_and_graphs(prepared):
    x, w, bias = tensors("cuda", (4, 32, 28, 28), 64)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        for _ in range(2):
            y = FORWARD(x, w, bias, None, TEXT)
    side.synchronize()
    assert_near(y, expected(x, w, bias))
    assert len(prepared) == 1
    FORWARD(x, w, bias, None, TEXT)
    assert len(prepared) == 2  # packed by the stream that reads it
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = FORWARD(x, w, bias, None, TEXT)
    for factor in (1, -2):
        w.mul_(factor)  # a replay packs what the weight holds then
        graph.replay()
        assert_near(y, expected(x, w, bias))


def test_without_the_library_it_is_pythons():
    program = (
        "import torch, convtune.torch; print(convtune.torch.operator);"
        "x, w = torch.rand(1, 3, 8, 8), torch.rand(4, 3, 3, 3);"
        f"y = torch.ops.convtune.conv2d_forward(x, w, None, None, {TEXT!r});"
        "expected = torch.conv2d(x, w, padding=1).relu();"
        "assert torch.allclose(y, expected, atol=1e-4);"
        "import convtune.torch.fused, convtune.nn; how = [1, 1], [1, 1, 1, 1], [1, 1], 1, 'auto', 'relu';"
        "assert torch.allclose(torch.ops.convtune.conv2d_fused(x, w, None, None, *how), expected, atol=1e-4);"
        "assert torch.allclose(torch.ops.convtune.conv2d(x, w, None, *how), expected, atol=1e-4);"
        "assert torch.allclose(convtune.conv2d(x, w, None, padding=[1, 1], activation='relu'), expected, atol=1e-4);"
        "assert torch.allclose(convtune.nn.Conv2d(3, 4, 3, padding=1)(x), expected) is False"
    )
    done = python("-c", program, CONVTUNE_TORCH_OPERATOR="python")
    assert done.returncode == 0 and done.stdout.startswith("Python: CONVTUNE_TORCH_OPERATOR"), done.stdout + done.stderr


def test_where_there_is_a_gpu_it_is_the_same():
    program = "import torch; torch.cuda.device_count = lambda: 1; import convtune.torch; print(convtune.torch.operator)"
    done = python("-c", program, CONVTUNE_TORCH_OPERATOR=None)
    assert done.returncode == 0 and done.stdout.startswith("C++: "), done.stdout + done.stderr
