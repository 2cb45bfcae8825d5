"""Packed weights that several streams and CUDA graphs read: whoever packs them again does it when nothing reads them, and before
anything else is launched. The programs are right with PyTorch alone: writes in place wait for readers, and readers for them."""

import contextlib
import threading
import time
from types import SimpleNamespace

import pytest
from torch_support import assert_near, on_gpu, torch

import convtune
from convtune import tensors as torch_tensors
from convtune.torch import backend, folding, run  # noqa: F401  (the first registers the backend)
from convtune.torch.folding import Fold, Folded, Packing, refreshing

nn, functional = torch.nn, torch.nn.functional
LONG = 400_000_000  # cycles of a GPU, a quarter of a second: what a stream is kept busy with


def weights():
    torch.manual_seed(0)
    return torch.rand(16, 16, 3, 3), torch.rand(16)


def two_graphs(w, bias):
    """Packed weights of two graphs of one kind, which share them."""
    problem = run.problem_of(torch.empty(2, 16, 9, 8), w, True, (1, 1), (1, 1, 1, 1), (1, 1), 1, "auto", "none", False, torch.float32)
    packing = Packing(Fold((0, 1, None, None, None, None), 0.0, torch.float32, as_they_are=True), convtune.Convolution(problem, "cpu"))
    return [Folded([packing], (w, bias)) for _ in range(2)]


def side_by_side(*calls):
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture
def told(monkeypatch):
    """Notes packing and waiting in their order."""
    steps, pack_into = [], torch_tensors.pack_into

    @contextlib.contextmanager
    def between_reads(*_):
        steps.append("readers are done")
        yield
        steps.append("it is written")

    def packs(*arguments):
        steps.append("pack")
        pack_into(*arguments)

    for module in (folding, torch_tensors):
        monkeypatch.setattr(module, "between_reads", between_reads)
        monkeypatch.setattr(module, "pack_into", packs)
    return steps


def test_graphs_pack_between_reads(told):
    w, bias = weights()
    first, second = two_graphs(w, bias)
    del told[:]
    w.mul_(2)
    assert first.refresh((w, bias)) and told == ["readers are done", "pack", "it is written"]
    assert second.refresh((w, bias)) and told.count("pack") == 1
    del told[:]
    assert not first.refresh((w, bias)) and not second.refresh((w, bias)) and not told  # calls as they are wait for nothing


def test_what_recorded_graphs_read_is_packed_between_reads(told, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    (w, bias), problem = weights(), convtune.Problem.parse("mb2ic16ih9iw8oc16kh3ph1 bias=0")
    convolution = convtune.Convolution(problem, "cpu")
    memory = torch.empty(max(convolution.packed_bytes, 1), dtype=torch.uint8)
    entry = SimpleNamespace(bias=None, memory=memory, convolution=convolution, holds_for=lambda *_: False)
    monkeypatch.setattr(torch_tensors.PACKS, "recorded", lambda _: [entry])
    torch_tensors.renew(w)
    assert told == ["readers are done", "pack", "it is written"]


def test_the_host_waits_for_readers_and_for_what_it_wrote(monkeypatch):
    steps, is_recorded = [], [False]
    memory = [SimpleNamespace(device=torch.device("cuda", index)) for index in (1, 0, 1)]
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: steps.append(device.index))
    stream = SimpleNamespace(synchronize=lambda: steps.append("a stream"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_recorded[0])
    with torch_tensors.between_reads(*memory):
        steps.append("pack")
    assert steps == [0, 1, "pack", "a stream", "a stream"]
    is_recorded[0] = True
    with torch_tensors.between_reads(*memory), torch_tensors.between_reads(torch.empty(1)):
        pass
    assert len(steps) == 5


def test_of_two_threads_one_packs(monkeypatch):
    w, bias = weights()
    graphs, packed = two_graphs(w, bias), []

    def slowly(*arguments):
        packed.append(threading.get_ident())
        time.sleep(0.05)

    monkeypatch.setattr(folding, "pack_into", slowly)
    w.mul_(2)
    side_by_side(*[lambda graph=graph: graph.refresh((w, bias)) for graph in graphs])
    assert len(packed) == 1 and all(graph.hold((w, bias)) for graph in graphs)


def test_of_two_threads_one_packs_what_recorded_graphs_read(monkeypatch):
    w, packed = weights()[0], []
    entry = SimpleNamespace(bias=None, memory=torch.empty(1), convolution=None, holds_for=lambda *_: hasattr(entry, "of_w"))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(torch_tensors.PACKS, "recorded", lambda _: [entry])
    monkeypatch.setattr(torch_tensors, "pack_into", lambda *_: (packed.append(1), time.sleep(0.05)))
    side_by_side(*[lambda: torch_tensors.renew(w)] * 2)
    assert len(packed) == 1


class Copied:
    """Stands for a fold: a copy of the input at that place."""

    def __init__(self, at, renews=lambda: None):
        self.places, self.fits, self.renews = (at, *[None] * 5), lambda _: None, renews

    def of(self, inputs):
        return (inputs[self.places[0]].clone(),)

    def renew(self, memory, inputs):
        self.renews()


def test_who_packs_on_one_device_waits_for_no_other_device():
    """One device's work may wait, in a collective, for what is launched on another one behind packing there."""
    launched, begun, ended = threading.Event(), threading.Event(), []
    renews = lambda: (begun.set(), ended.append(launched.wait(5))), launched.set
    w = torch.zeros(4), torch.zeros(4, device="meta")
    graphs = [Folded([Copied(0, what)], (one,)) for what, one in zip(renews, w)]
    for one in w:
        one.add_(1)
    side_by_side(lambda: graphs[0].refresh(w[:1]), lambda: begun.wait() and graphs[1].refresh(w[1:]))
    assert ended == [True]


def test_all_devices_of_a_graph_are_waited_for(monkeypatch):
    waited, w = [], (torch.zeros(4), torch.zeros(4, device="meta"))
    graph = Folded([Copied(0), Copied(1)], w)
    monkeypatch.setattr(folding, "between_reads", lambda *them: waited.extend(them) or contextlib.nullcontext())
    w[1].add_(1)
    assert graph.refresh(w) and {one.device.type for one in waited} == {"cpu", "meta"}
    graph._sources = lambda _: [SimpleNamespace(is_cuda=is_cuda) for is_cuda in (False, True)]  # a GPU's is not the first
    graph.hold = lambda _: False
    monkeypatch.setattr(folding, "_capturing", lambda: True)
    del waited[:]
    assert graph.refresh(w) and not waited  # left to who records


def test_nobody_finds_weights_that_are_not_written_yet(monkeypatch):
    """Others' calls look without a lock, and launch."""
    w, bias = weights()
    first, second = two_graphs(w, bias)
    found = []

    @contextlib.contextmanager
    def between_reads(*_):
        yield
        found.extend(graph.hold((w, bias)) for graph in (first, second))

    monkeypatch.setattr(folding, "between_reads", between_reads)
    w.mul_(2)
    first.refresh((w, bias))
    assert found == [False, False] and first.hold((w, bias))


@pytest.mark.parametrize("may_run_twice", [False, True])
def test_a_graph_recorded_before_weights_are_packed_again_takes_them_as_they_are(may_run_twice, caplog):
    stale = SimpleNamespace(refresh=lambda _: True, hold=lambda _: False, is_known=True, fits=True)
    assert refreshing(lambda: "packed", lambda: "as they are", stale, may_run_twice)() == "as they are"
    assert "Call the model once behind the change, and record" in caplog.text  # else it is slow for ever, untold
    caplog.clear()
    packed = SimpleNamespace(refresh=lambda _: True, hold=lambda _: True, is_known=True, fits=True)
    assert refreshing(lambda: "packed", lambda: "as they are", packed, may_run_twice)() == "packed" and not caplog.text


def block():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1)).cuda().half().eval()


@pytest.fixture
def kept_busy():
    """(two streams; what keeps one busy, so that what is launched there afterwards comes late; x) of a GPU."""
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.manual_seed(1)
    x = torch.rand(4, 16, 32, 32, device="cuda", dtype=torch.float16).to(memory_format=torch.channels_last)
    torch.cuda.synchronize()

    def busy(stream):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(LONG)

    return (*streams, busy, x)


def on(stream, call):
    with torch.cuda.stream(stream), torch.no_grad():
        return call()


def compiled_block(x, *streams):
    """(model, the compiled model), which each stream has run."""
    torch._dynamo.reset()
    model = block()
    run = torch.compile(model, backend="convtune", options={"convtune.force": True, "convtune.whole": False})
    for stream in streams:
        on(stream, lambda: run(x))
    torch.cuda.synchronize()
    return model, run


@on_gpu
def test_a_compiled_graph_on_another_stream_waits_for_weights(kept_busy):
    one, other, busy, x = kept_busy
    model, run = compiled_block(x, one, other)
    on(one, lambda: model[0].weight.mul_(-1))
    other.wait_stream(one)
    busy(one)
    on(one, lambda: run(x))  # packs behind what the stream is busy with
    y = on(other, lambda: run(x))
    torch.cuda.synchronize()
    with torch.no_grad():
        assert_near(y, model.double()(x.double()), tf32=True)


@on_gpu
def test_a_compiled_graph_under_way_keeps_its_weights(kept_busy):
    one, other, busy, x = kept_busy
    model, run = compiled_block(x, one, other)
    with torch.no_grad():
        expected, kept = model(x), model[0].weight.data
    changed = -kept
    torch.cuda.synchronize()
    busy(other)
    y = on(other, lambda: run(x))
    model[0].weight.data = changed  # nobody writes to what the other stream reads
    on(one, lambda: run(x))
    torch.cuda.synchronize()
    assert_near(y, expected, tf32=True)


def recorded_layer():
    torch.manual_seed(0)
    layer = convtune.nn.Conv2d(16, 32, 3, padding=1).cuda().half().eval().requires_grad_(False)
    return layer


@on_gpu
@pytest.mark.parametrize("in_place", [True, False])
def test_replays_on_another_stream(kept_busy, in_place):
    """Written in place: the replay behind it finds it packed by the eager call. Exchanged: a replay under way keeps the old."""
    one, other, busy, x = kept_busy
    layer = recorded_layer()
    on(one, lambda: layer(x))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = layer(x)
    on(other, graph.replay)
    torch.cuda.synchronize()
    if in_place:
        on(one, lambda: layer.weight.mul_(-1))
        other.wait_stream(one)
        expected = functional.conv2d(x, layer.weight, layer.bias, padding=1)
        torch.cuda.synchronize()
        busy(one)
        on(one, lambda: layer(x))
        on(other, graph.replay)
    else:
        expected, changed = functional.conv2d(x, layer.weight, layer.bias, padding=1), -layer.weight.data
        kept = layer.weight.data  # so that its memory is no other's
        torch.cuda.synchronize()
        busy(other)
        on(other, graph.replay)
        layer.weight.data = changed
        on(one, lambda: layer(x))
        assert layer.weight.data_ptr() == changed.data_ptr() != kept.data_ptr()
    torch.cuda.synchronize()
    assert_near(y, expected, tf32=True)


@on_gpu
def test_a_graph_recorded_behind_a_change_reads_what_weights_are(kept_busy):
    x = kept_busy[-1]
    model, run = compiled_block(x, torch.cuda.current_stream())
    with torch.no_grad():
        model[0].weight.mul_(-1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            recorded = run(x)
        y = run(x)  # packs, though the recording saw the change first
        graph.replay()
        torch.cuda.synchronize()
        expected = model(x)
    assert_near(y, expected, tf32=True)
    assert_near(recorded, expected, tf32=True)
