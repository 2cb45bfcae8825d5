"""optimize: swaps those convolutions of a PyTorch model that convtune computes faster, proven here and now against what
PyTorch does with this model's settings. restore undoes it. Both are in the package's face as convtune.optimize and
convtune.restore; docs/decisions/0012-pytorch.md has the reasons.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from ._contest import Contest, contest
from .convolution import Convolution, Plan
from .errors import InvalidArgument, Unsupported
from .nn import Conv2d
from .problem import Problem
from .progress import ProgressLine, Step
from .torch import call
from .torch_layers import Seen, find, grouped
from .torch_report import Layer, OptimizeReport
from .torch_run import choice_line
from .torch_timing import Stopwatch
from .torch_whole import Whole, compile_mode, swap, unswap, worth_their_cost
from .tuning import search

__all__ = ["Layer", "OptimizeReport", "optimize", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)
_VENDORS = ("cudnn", "onednn")
_MOST_CONTESTS = 3  # of the whole model: each may have to compile it
_LEAST_SECONDS = 3.0  # of a layer's budget: less finds little that the first guess is not
# Largest difference from PyTorch's answer over that answer's root mean square: rounding, and no more than that.
_TOLERANCE = {"tf32": 2e-2, "fp32": 2e-3}


@contextlib.contextmanager
def _untouched(model: torch.nn.Module) -> Iterator[None]:
    """Forwards in training mode move buffers and random numbers: put back."""
    devices = {tensor.get_device() for tensor in model.parameters() if tensor.is_cuda}
    if not any(module.training for module in model.modules()):
        yield
        return
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    with torch.random.fork_rng(devices=sorted(devices)):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)


def restore(model: Model) -> Model:
    """Undoes optimize: every swapped module is torch.nn.Conv2d again, the same object with the same parameters. Works
    on copies and on unpickled models too. Returns the model."""
    for module in model.modules():
        if type(module) is Conv2d and module.choices:
            unswap(module)
    model.__dict__.pop("convtune_report", None)
    return model


class _Sides:
    """PyTorch's and convtune's way of one layer, on random data that lie as the model's do."""

    def __init__(self, seen: Seen) -> None:
        extent = 1 + sum((size - 1) * stride for size, stride in zip(seen.shape, seen.strides))
        self.x = torch.rand(extent, device=seen.device).mul_(2).sub_(1).as_strided(seen.shape, seen.strides)
        self.weight, self.bias = seen.module.weight, seen.module.bias
        self.how = seen.module.stride, Conv2d._edges(seen.module), seen.module.dilation, seen.module.groups  # type: ignore[arg-type]

    def pytorch(self) -> Tensor:
        stride, edges, dilation, groups = self.how
        uneven = edges[0] != edges[2] or edges[1] != edges[3]
        return torch.conv2d(self.x, self.weight, self.bias, stride, "same" if uneven else edges[:2], dilation, groups)

    def convtune(self, line: str) -> Callable[[], Tensor]:
        return lambda: call(self.x, self.weight, self.bias, *self.how, "auto", "none", line)


def _check_and_contest(sides: _Sides, precision: str, line: str, stopwatch: Stopwatch, min_gain: float) -> Contest:
    """Raises Unsupported where the answers differ by more than rounding."""
    ours = sides.convtune(line)
    expected, got = sides.pytorch().detach(), ours().detach()
    scale = expected.square().mean().sqrt().clamp_min(1e-30)
    error = float((got - expected).abs().max() / scale) if expected.numel() else 0.0
    if not error <= _TOLERANCE.get(precision, 2e-2):
        raise Unsupported(f"its answer differs from PyTorch's by {error:.2g} of the root mean square")
    del expected, got
    for _ in range(3):
        sides.pytorch(), ours()
    return contest(
        lambda: stopwatch.time_us(sides.pytorch), lambda: stopwatch.time_us(ours), min_gain, max_seconds=5
    )


def _median_us(run: Callable[[], object], stopwatch: Stopwatch) -> float:
    for _ in range(2):
        run()
    return statistics.median(stopwatch.time_us(run) for _ in range(5))


def _device(seen: Seen) -> str:
    return "cpu" if seen.device.type == "cpu" else f"cuda:{seen.device.index}"


def _way(problem: Problem, device: str, sides: _Sides, stopwatch: Stopwatch) -> tuple[Problem, Plan] | None:
    """As what convtune runs it best: as it stands, or, what lies channels last, as NCHW with copies before and after.
    None where the vendor's kernel is the best that convtune knows: PyTorch has it, too."""
    ways = []
    for one in [problem] + ([problem.replace(layout="nchw")] if problem.layout == "nhwc" else []):
        with contextlib.suppress(Unsupported):
            plan = Convolution(one, device).plan
            if plan.algorithm not in _VENDORS:
                ways.append((one, plan))
    if len(ways) < 2:
        return ways[0] if ways else None

    def time_us(way: tuple[Problem, Plan]) -> float:
        line = choice_line(device, problem, way[0], way[1].algorithm, way[1].config)
        return _median_us(sides.convtune(line), stopwatch)

    return min(ways, key=time_us)


def _decide(
    layers: list[tuple[Layer, list[Seen]]], budget: float, min_gain: float, line: ProgressLine | None
) -> None:
    """Tunes each problem and lets it compete; fills the layers."""
    todo = [(layer, seen) for layer, seen in layers if layer.problem is not None]
    stopwatches = {one.device: Stopwatch(one.device) for _, seen in todo for one in seen}
    for layer, seen in todo:
        layer.pytorch_us = _median_us(_Sides(seen[0]).pytorch, stopwatches[seen[0].device])
    todo.sort(key=lambda one: -one[0].pytorch_us * one[0].calls)
    cost_left = sum(layer.pytorch_us * layer.calls for layer, _ in todo)
    deadline = time.monotonic() + budget
    for number, (layer, seen) in enumerate(todo, 1):
        problem, device, stopwatch = layer.problem, _device(seen[0]), stopwatches[seen[0].device]
        assert problem is not None
        label, cost = f"{number}/{len(todo)} {layer.names[0]}", layer.pytorch_us * layer.calls

        def tell(step: Step, label: str = label) -> None:
            if line is not None:
                line.show(step.text(label))

        try:
            sides = _Sides(seen[0])
            way = _way(problem, device, sides, stopwatch)
            left = deadline - time.monotonic()
            if left > 0 and (way is None or way[1].source != "tuned"):
                share = min(left, max(_LEAST_SECONDS, left * cost / max(cost_left, 1e-9)))
                asked = way[0] if way else problem
                found = search(asked, device, share, min_gain, tell, trials=0, retune=False, save=True)
                layer.warnings += found.tuning.all_warnings if found.tuning else ()
                way = _way(problem, device, sides, stopwatch)
            cost_left -= cost
            if way is None:
                layer.decision = "PyTorch: the vendor's kernel is the best that convtune knows"
                continue
            run_as, plan = way
            layer.algorithm, layer.config, layer.layout = plan.algorithm, plan.config, run_as.layout
            if line is not None:
                line.show(f"{label}: contest")
            proven = choice_line(device, problem, run_as, plan.algorithm, plan.config)
            result = _check_and_contest(sides, problem.precision, proven, stopwatch, min_gain)
        except Unsupported as why:
            layer.decision = f"PyTorch: {str(why).splitlines()[0]}"
            continue
        layer.pytorch_us, layer.convtune_us = result.incumbent_us, result.challenger_us
        layer.gain, layer.swapped = result.gain, result.accepted
        layer.decision = "convtune" if result.accepted else f"PyTorch: {100 * min_gain:.3g} % less is not proven"
        if result.accepted:
            layer.decision += f": {plan.algorithm}" + (" with copies" if run_as.layout != problem.layout else "")
        if plan.source not in ("tuned", "unproven"):
            layer.decision += ", not tuned"


def _choices(layers: list[tuple[Layer, list[Seen]]]) -> dict[str, str]:
    """By module name: what `swap` takes."""
    lines: dict[str, list[str]] = {}
    for layer, seen in layers:
        if layer.swapped and layer.problem is not None:
            run_as = layer.problem.replace(layout=layer.layout)
            for one in seen:
                line = choice_line(_device(one), layer.problem, run_as, layer.algorithm, layer.config)
                lines.setdefault(one.name, []).append(line)
    return {name: "\n".join(of) for name, of in lines.items()}


def _measure(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    mode: str,
    budget: float,
    min_gain: float,
    line: ProgressLine | None,
) -> tuple[OptimizeReport, dict[str, str]]:
    """The report, and the swaps to be made. The model is as it was."""
    training = model.training
    with _untouched(model), torch.set_grad_enabled(training):
        found, functional = find(model, lambda: model(*args, **kwargs))
        layers = grouped(found)
        devices = ", ".join(sorted({str(seen.device) for seen in found}))
        result = OptimizeReport(
            devices, training, [layer for layer, _ in layers], functional=functional, mode=mode
        )
        _decide(layers, budget, min_gain, line)
        if not _choices(layers):
            return result, {}
        whole = Whole(model, args, kwargs, found[0].device, mode)
        for number in range(1, _MOST_CONTESTS + 1):
            if line is not None:
                line.show(f"the whole model: contest {number}")
            outcome = whole.contest(_choices(layers))
            if outcome.accepted:
                break
            swapped = [layer for layer in result.layers if layer.swapped]
            kept = worth_their_cost(swapped, outcome) if number < _MOST_CONTESTS else []
            for layer in swapped:
                if not any(layer is one for one in kept):
                    layer.swapped, layer.decision = False, "PyTorch: the whole model did not gain by it"
            if not kept:
                result.notes.append("nothing swapped: the whole model is not proven faster")
                break
    result.before_us, result.after_us, result.kept = outcome.incumbent_us, outcome.challenger_us, outcome.accepted
    result.gain, result.low, result.high = outcome.gain, outcome.low, outcome.high
    return result, _choices(layers)


def optimize(
    model: Model,
    example: Any,
    budget: float = 60.0,
    min_gain: float = 0.02,
    progress: bool = True,
    *,
    compiled: bool | str = False,
) -> Model:
    """Swaps, in place, every torch.nn.Conv2d of the model that convtune computes at least `min_gain` faster than
    PyTorch does as it is set up now (cudnn.benchmark, allow_tf32, memory format), and leaves the rest. Returns the
    model; `model.convtune_report` is the table, which `progress=True` prints.

    `example`: a tensor, a tuple of arguments or a dict of keyword arguments. Each distinct problem that it makes is
    tuned, unless a record has it: those that take most time first and longest, until `budget` seconds are over (one
    takes 3 at least on a GPU; what is left competes with convtune's first guess; 0: no search). Each is checked against
    PyTorch's answer and measured against it in interleaved rounds. At last the whole model with the swaps runs against
    the model without. Where it is not proven 1 % faster, the layers go back to PyTorch that save less than they cost
    the whole, and it is tried again; what is never proven is undone. The same call again goes on with the tuning.

    A swapped module runs convtune for the problems that were proven, on that kind of device, and PyTorch for every
    other (another batch size, float16, autocast). What was proven in eval mode is PyTorch's again in training mode;
    proven in training mode it holds in both. Nothing else of the model changes: parameters, state_dict, hooks, names,
    and, where it was measured in training mode, buffers and random numbers are put back. Convolutions that are no
    torch.nn.Conv2d are counted and left.

    `compiled`: for a model that is compiled afterwards: torch.compile fuses around PyTorch's convolutions better than
    around ours, so the whole model is then measured through it, freshly compiled with and without the swaps. True is
    its default mode, as in torch.compile(convtune.optimize(model, x, compiled=True)); a mode's name is that mode, as
    "reduce-overhead" for torch.compile(model, mode="reduce-overhead"). Each contest compiles both sides beyond the
    budget, and whatever else torch.compile has compiled in this process is compiled again at its next call.
    Under torch.distributed every rank must call it: rank 0 measures and the others take its decisions.
    `restore(model)` undoes it.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"optimize takes a torch.nn.Module, not a {type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise InvalidArgument(
            "optimize takes the model before torch.compile: torch.compile(convtune.optimize(model, x, compiled=True))"
        )
    mode = compile_mode(compiled)
    args, kwargs = _as_arguments(example)
    restore(model)
    # A wrapper that talks to other ranks in its forward would wait for them.
    parallel = isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))
    inner: torch.nn.Module = model.module if parallel else model  # type: ignore[assignment]
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    result: OptimizeReport | None = None
    swaps: dict[str, str] = {}
    failure: BaseException | None = None
    if not together or torch.distributed.get_rank() == 0:
        line = ProgressLine() if progress else None
        try:
            result, swaps = _measure(inner, args, kwargs, mode, budget, min_gain, line)
        except BaseException as error:  # the other ranks wait for an answer
            failure = error
        finally:
            if line is not None:
                line.clear()
    if together and torch.distributed.get_world_size() > 1:
        answer: list[Any] = [result, swaps, None if failure is None else str(failure)]
        torch.distributed.broadcast_object_list(answer, src=0)
        result, swaps = answer[0], answer[1]
        if failure is None and answer[2] is not None:
            raise RuntimeError(f"rank 0 could not optimize the model: {answer[2]}")
    if failure is not None:
        raise failure
    assert result is not None
    modules = dict(inner.named_modules())
    for name, choices in swaps.items():
        swap(modules[name], choices, result.training)
    result.notes += _notes(result)
    model.__dict__["convtune_report"] = result
    if progress and (not together or torch.distributed.get_rank() == 0):
        print(result, end="")
    return model


def _notes(result: OptimizeReport) -> list[str]:
    notes = []
    if "cuda" in result.device and not torch.backends.cudnn.benchmark:
        notes.append("torch.backends.cudnn.benchmark is off; PyTorch may be faster with it, and was measured without")
    warned = [layer for layer in result.layers if layer.warnings]
    if warned:
        notes.append(
            f"{len(warned)} of {len(result.layers)} kinds of layers were tuned with warnings, the first of them: "
            f"{warned[0].warnings[0]} (the report's layers have all, in `warnings`)"
        )
    if result.functional:
        notes.append(f"{result.functional} calls of torch.conv2d outside of torch.nn.Conv2d were left")
    return notes


def _as_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    return (example,), {}
