"""A compiled graph with convtune's operators beside the one that inductor makes alone: the layers are proven one by
one, but what is around them is inductor's to fuse, and the host's time counts where no CUDA graph hides it."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import logging
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from ..._contest import Contest, contest
from ...optimize_report import Layer
from ..batches import settle
from ..graph.capture import twin
from ..modules.training import peak_bytes, takes_more
from ..run import fingerprint
from .contests import key_of
from .timing import calls_of_a_sample, wall_us, without_collections

__all__ = ["aside", "concrete", "key_of_whole", "lie_in_cuda_graphs", "saved_by_layers", "waits_for_processor", "whole", "whole_step"]

_log = logging.getLogger("convtune")
_WARM_UP = 4  # runs: cuDNN's search, a CUDA graph's recording, its first replays
_SECONDS = 3.0  # a contest's at most, or as long as its ten rounds take
_STEP_SECONDS = 20.0  # a contest of steps: ten rounds in 9 s, steps of 55 ms that waited for the processor, left 4 % between -5 and 19 %
_STEPS = 4  # in a row, for which training does not wait: the host is ahead, if it is; fewer where they take longer than
_IN_A_ROW_US = 4e5
_FAR_AHEAD = 0.05  # a share of the time that a graph's convolutions take
_BEHIND = 0.2  # a share of a step, in which the device works alone at its end: less, and it has waited for the processor


def aside(compile: Callable[..., Any], module: GraphModule, inputs: Sequence[Any]) -> Any:
    """`module` compiled, but neither it nor what Dynamo knows of its frame is changed."""
    context: Any = torch._guards.TracingContext.try_get()
    with torch._guards.tracing(copy.copy(context)):
        return compile(twin(module), inputs)


def saved_by_layers(layers: Sequence[Layer]) -> float:
    """Microseconds that convtune's layers take less, each with all that follows it, than PyTorch's convolutions take without;
    0 where that is less than `_FAR_AHEAD` of the time of all convolutions. The lower end of the sum counts, whose parts were
    measured apart: their intervals add up as squares do. So much is gained whatever a compiler makes of norms, sums and
    activations: even if their passes cost it nothing."""
    saved = total = variance = 0.0
    for layer in layers:
        if layer.pair:
            continue  # which is proven beside its two convolutions, and takes no more than they do
        total += layer.calls * (layer.alone_us or layer.pytorch_us)
        if layer.swapped:
            if layer.alone_us <= 0 or (layer.problem is not None and layer.layout != layer.problem.layout):
                return 0.0  # not known, or with copies that a compiler may have in other passes
            saved += layer.calls * (layer.alone_us - layer.pytorch_us * (1 - layer.gain))
            variance += (layer.calls * layer.pytorch_us * (layer.gain - layer.low)) ** 2
    saved -= variance**0.5
    return saved if saved > _FAR_AHEAD * total else 0.0


def key_of_whole(graph: GraphModule, inputs: Sequence[Any], patches: dict[str, Any], lines: Sequence[str] = ()) -> str:
    """The key of a whole graph's contest: its operators with their plans, its inputs, and inductor's options. `lines`: of plans that
    a pass puts in later, of a step."""
    device = _device(inputs)
    kinds = [(one.dtype, tuple(map(str, one.shape)), str(one.device), one.requires_grad) if isinstance(one, Tensor) else one for one in inputs]
    save: Any = getattr(torch._inductor.config, "save_config_portable", dict)
    options = sorted((name, repr(value)) for name, value in {**save(), **patches}.items())
    text = hashlib.sha256(f"{graph.graph} {kinds} {options}{sorted(lines) or ''}".encode()).hexdigest()
    return key_of(f"whole {text}", fingerprint("cpu" if device.type == "cpu" else f"cuda:{device.index or 0}"), device)


def _device(inputs: Sequence[Any]) -> torch.device:
    return next((one.device for one in inputs if isinstance(one, Tensor) and one.is_cuda), torch.device("cpu"))


def concrete(inputs: Sequence[Any]) -> list[Any]:
    """The inputs with the example's numbers for symbols, which no compiled graph takes."""
    return [one.node.hint if isinstance(one, torch.SymInt) else one for one in inputs]


def lie_in_cuda_graphs(inputs: Sequence[Any]) -> bool:
    """True where an input is what a CUDA graph of inductor's has given in this step, as behind a break in a model: the first run
    of a next step may overwrite it, so that no graph can be measured on it."""
    from torch._inductor.cudagraph_trees import get_manager

    device = _device(inputs)
    manager = get_manager(device.index or 0, create_if_none_exists=False) if device.type == "cuda" else None
    node = manager and manager.current_node
    if not node:
        return False
    live = {one.data_ptr() for one in node.path_live_weakrefs() if one()}
    return any(one.untyped_storage().data_ptr() in live for one in inputs if isinstance(one, Tensor) and one.is_cuda)


def whole(theirs: Callable[..., Any], ours: Callable[..., Any], inputs: Sequence[Any]) -> Contest:
    """The contest by the wall clock, on the inputs that the graph is compiled for."""
    with torch.no_grad():
        return _contest(theirs, ours, _device(inputs), lambda graph: graph(*inputs))


def waits_for_processor(graph: Callable[..., Any], inputs: Sequence[Any]) -> bool:
    """True where forward and backward take as long as the processor needs to ask for them, so that the device is done with the last
    launch. Never of a CPU's."""
    device = _device(inputs)
    if device.type != "cuda":
        return False
    shares = []
    with _unchanged_inputs(inputs), without_collections():
        for number in range(_WARM_UP + 5):
            torch.cuda.synchronize(device)
            start = time.perf_counter()
            _forward_and_backward(graph, inputs)
            asked = time.perf_counter()
            torch.cuda.synchronize(device)
            if number >= _WARM_UP:
                shares.append((time.perf_counter() - asked) / (time.perf_counter() - start))
    _log.info("the device works alone for %.1f %% of forward and backward", 100 * statistics.median(shares))
    return statistics.median(shares) < _BEHIND


def whole_step(
    theirs: Callable[..., Any], ours: Callable[..., Any], inputs: Sequence[Any], note: Callable[[str], None] = _log.info,
    waits: bool = False,
) -> Contest:  # fmt: skip
    """The contest of forward and backward. More memory at the peak is no gain; `note` is told how much. `waits`: for the processor,
    so that one step is as long as each of many."""
    device = _device(inputs)
    with _unchanged_inputs(inputs), without_collections():
        for graph in (theirs, ours):
            _forward_and_backward(graph, inputs)
        peaks = [peak_bytes(lambda graph=graph: _forward_and_backward(graph, inputs), device) for graph in (theirs, ours)]  # type: ignore[misc]
        if takes_more(*peaks):
            note(f"at its peak forward with backward takes {peaks[1] / 2**20:,.0f} MiB, inductor's {peaks[0] / 2**20:,.0f}")
            return Contest()
        return _contest(theirs, ours, device, lambda graph: _forward_and_backward(graph, inputs), 1 if waits else _STEPS)


def _forward_and_backward(graph: Callable[..., Any], inputs: Sequence[Any]) -> None:
    """All gradients that the graph's inputs ask, of ones for what it gives."""
    asked = [one for one in inputs if isinstance(one, Tensor) and one.requires_grad]
    with torch.enable_grad():
        outputs = [one for one in tree_leaves(graph(*inputs)) if isinstance(one, Tensor) and one.requires_grad]
        if outputs:
            torch.autograd.grad(outputs, asked, [torch.ones_like(one) for one in outputs], allow_unused=True)


@contextlib.contextmanager
def _unchanged_inputs(inputs: Sequence[Any]) -> Iterator[None]:
    """Inputs that a graph writes to, as the statistics of norms, and random numbers put back."""
    before = [(one, one.detach().clone()) for one in inputs if isinstance(one, Tensor) and not one.requires_grad]
    devices = sorted({one.get_device() for one, _ in before if one.is_cuda})
    with torch.random.fork_rng(devices=devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for one, value in before:
                    one.copy_(value)


def _contest(
    theirs: Callable[..., Any], ours: Callable[..., Any], device: torch.device, run: Callable[[Any], object],
    in_a_row: int = 0,
) -> Contest:  # fmt: skip
    """`in_a_row`: how many steps of training are queued; 0: each run is waited for."""

    def side(graph: Callable[..., Any]) -> Callable[[int], float]:
        def step() -> None:
            torch.compiler.cudagraph_mark_step_begin()  # the last outputs, which were dropped, may be overwritten
            run(graph)

        return lambda calls: wall_us(step, device, calls, waits=not in_a_row)

    before, after = side(theirs), side(ours)
    after(1)
    settle()
    for _ in range(_WARM_UP):
        before(1), after(1)
    one_us = max(before(1), after(1))
    calls = calls_of_a_sample(one_us)
    calls = max(calls, min(in_a_row, int(_IN_A_ROW_US / one_us)))
    return contest(lambda: before(calls), lambda: after(calls), 0.0, max_seconds=_STEP_SECONDS if in_a_row else _SECONDS)
