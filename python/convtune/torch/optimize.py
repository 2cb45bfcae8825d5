"""optimize: swaps those convolutions of a PyTorch model that convtune computes faster, proven here and now against what
PyTorch does with this model's settings. restore undoes it. Both are in the package's face as convtune.optimize and
convtune.restore; docs/decisions/0012-pytorch.md has the reasons.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch

from .._library import ROUNDINGS
from ..errors import InvalidArgument
from ..geometry import real, seconds_of
from ..optimize_report import Layer, OptimizeReport, shipped_note
from ..progress import ProgressLine, time_left
from ..words import one_of
from .measure.decide import choices_of, decide
from .modules.layers import find, grouped
from .modules.structure import followers
from .modules.training import Step, training_step, unchanged
from .modules.whole import Whole, compile_mode, swap, unswap, worth_their_cost
from .watched import make_watchable

__all__ = ["Layer", "OptimizeReport", "optimize", "restore"]

Model = TypeVar("Model", bound=torch.nn.Module)
_MOST_CONTESTS = 3  # for the whole model: each may have to compile it
_CONTESTS_SECONDS = 60.0  # after which none is begun


@contextlib.contextmanager
def _untouched(model: torch.nn.Module, trains: bool = False) -> Iterator[None]:
    """Forwards in training mode, and steps of training in any, move buffers and random numbers: put back."""
    devices = {tensor.get_device() for tensor in model.parameters() if tensor.is_cuda}
    if not trains and not any(module.training for module in model.modules()):
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
    """Undoes optimize: every swapped module is of PyTorch's class again, the same object with the same parameters. Works
    on copies and on unpickled models too. Returns the model."""
    unswap(model)
    model.__dict__.pop("convtune_report", None)
    return model


def _measure(
    model: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    mode: str,
    budget: float,
    min_gain: float,
    line: ProgressLine | None,
    step: Step | None,
    rounding: str,
) -> tuple[OptimizeReport, dict[str, str]]:
    """The report, and the swaps to be made. The model is as it was."""
    training = model.training or step is not None
    kept = contextlib.nullcontext() if step is None else unchanged(model)
    with _untouched(model, step is not None), kept, torch.set_grad_enabled(training):
        plain = bool(mode) or step is not None or rounding != "once"
        behind = {} if plain else followers(model)
        joins = not mode and step is None
        found, functional = find(model, lambda: model(*args, **kwargs), behind, joins, step is not None, rounding)
        layers = grouped(found)
        devices = ", ".join(sorted({str(seen.device) for seen in found}))
        result = OptimizeReport(
            devices, training, [layer for layer, _ in layers], functional=functional, mode=mode,
            pytorch=str(torch.__version__), step=step is not None,
        )  # fmt: skip
        if line is not None and (note := shipped_note(result.layers)):  # before a search that it would spare
            print(note, file=sys.stderr)
        decide(layers, budget, min_gain, line)
        if not choices_of(layers):
            return result, {}
        whole = Whole(model, args, kwargs, found[0].device, mode, behind, step, rounding)
        for number in range(1, _MOST_CONTESTS + 1):

            def tell(seconds: float, number: int = number) -> None:
                if line is not None:
                    line.show(f"{time_left(seconds)}the whole model: contest {number}")

            tell(0)
            outcome = whole.contest(choices_of(layers), tell)
            if outcome.accepted:
                break
            swapped = [layer for layer in result.layers if layer.swapped]
            another = number < _MOST_CONTESTS and whole.seconds < _CONTESTS_SECONDS and not whole.takes_more
            worth = worth_their_cost(swapped, outcome) if another else []
            for layer in swapped:
                if not any(layer is one for one in worth):
                    layer.swapped, layer.decision = False, "PyTorch: the whole model did not gain by it"
            if not worth:
                why = "takes more memory" if whole.takes_more else "is not proven faster"
                result.notes.append(f"nothing swapped: the whole model {why}")
                break
    result.take(outcome)
    return result, choices_of(layers)


def optimize(
    model: Model,
    example: Any,
    budget: float = 60.0,
    min_gain: float = 0.02,
    progress: bool = True,
    *,
    compiled: bool | str = False,
    train: bool | Step = False,
    rounding: str = "once",
) -> Model:
    """Swaps, in place, every torch.nn.Conv1d to Conv3d and ConvTranspose1d to 3d of the model that convtune computes at
    least `min_gain` faster than PyTorch does as it is set up now (cudnn.benchmark, allow_tf32, memory format), and leaves
    the rest. Returns the model; `model.convtune_report` is the table, which `progress=True` prints.

    `example`: a tensor, a tuple of arguments or a dict of keyword arguments. Each distinct problem that it makes competes
    with convtune's record or first guess, checked against PyTorch's answer and measured against it in interleaved rounds.
    Then those that can gain most are tuned, first and longest, until `budget` seconds are over (one takes 3 at least on
    a GPU; 0: no search), and compete again. At last the whole model with the swaps runs against the model without. What
    came of a layer's contest is kept beside the records (contests.jsonl), for later processes with the same versions,
    device and settings. Where the whole is not proven 1 % faster, the layers go back to PyTorch that save less than they
    cost it, and it is tried again; what is never proven is undone. Contests come on top of the budget: without a search
    those of the layers take a minute together and those of the whole model another, or as long as the ten rounds take
    that each needs, of four runs.

    The budget is that of a model: the same call again, in this process or another, searches nothing and takes what was
    proven, and a larger budget searches the layers that had no share. What records answer, an imported pack's among
    them, has had its share; tune(..., retune=True) searches one anew. Ctrl-C keeps what was tuned and proven, and the
    next call goes on from there. A first guess that was proven stays where what the search found is not proven against
    PyTorch; later calls know the record alone.

    A swapped module runs convtune for the problems that were proven, on that kind of device, and PyTorch for every
    other (another batch size, another type, also by autocast). What was proven in eval mode is PyTorch's again in
    training mode; proven in training mode it holds in both. Nothing else of the model changes: parameters, state_dict,
    hooks, names, and, where it was measured in training mode, buffers and random numbers are put back. Convolutions that
    are neither are counted and left. A subclass of Conv1d or Conv3d is swapped where its forward ends in PyTorch's own, as
    those of causal convolutions do behind their padding and cache: that forward stays as it is, but where no gradients
    are recorded the frames that it joins and pads are read where they are. A weight that is computed in every forward is
    left: remove weight_norm first.

    In eval mode a swapped module also does the work of the batch norm and the activation behind it, where symbolic
    tracing proves that nothing else uses them (docs/pytorch.md), and only where the module around them calls them so:
    with hooks, in other modules, or called alone each of them does its own work, by PyTorch. Not `compiled`:
    torch.compile(backend="convtune") fuses more.

    Writes to weights that PyTorch does not count (through `.data`, as adapters are merged) are seen after
    convtune.torch.forget_packed(model). It counts none to parameters that were made in inference mode: those become
    ordinary ones over the same memory.

    `compiled`: for a model that is compiled afterwards: torch.compile fuses around PyTorch's convolutions better than
    around ours, so the whole model is then measured through it, freshly compiled with and without the swaps. True is
    its default mode, as in torch.compile(convtune.optimize(model, x, compiled=True)); a mode's name is that mode, as
    "reduce-overhead" for torch.compile(model, mode="reduce-overhead"). Each contest compiles both sides beyond the
    budget, and whatever else torch.compile has compiled in this process is compiled again at its next call.
    `train`: for a model that is trained: gradients of x and of the weight with the bias compete, too, each alone, and the whole
    is a step of training in the place of a forward. True: zero_grad, forward, the mean square of the outputs as a loss,
    backward, SGD, with what the caller's autocast casts. A function of the model is run instead, for the caller's own loss,
    optimizer and scaler: `train=lambda model: step(model, batch)`; it must do all of a step, and what it changes beside
    parameters, their gradients and buffers (the state of its optimizer) is not put back. Steps that need more memory than
    PyTorch's are undone. A swapped module is convtune's in both modes then.

    `rounding`: "eager" rounds half precision where PyTorch's eager calls do (a convolution's sum, then its bias, as with cuDNN),
    so that outputs have eager's bits but for the order of sums; norms and activations behind convolutions stay PyTorch's.

    Under torch.distributed every rank must call it: rank 0 measures and the others take its decisions.
    `restore(model)` undoes it.
    """
    if not isinstance(model, torch.nn.Module):
        raise InvalidArgument(f"optimize takes a torch.nn.Module, not a {type(model).__name__}")
    if hasattr(model, "_orig_mod"):
        raise InvalidArgument(
            "optimize takes the model before torch.compile: torch.compile(convtune.optimize(model, x, compiled=True))"
        )
    budget, min_gain = seconds_of(budget, "budget"), real(min_gain, "min_gain")
    mode = compile_mode(compiled)
    if one_of(rounding, ROUNDINGS, "rounding") == "eager" and mode:
        raise InvalidArgument("rounding='eager' is of models that run eagerly: what torch.compile fuses is rounded once anyway")
    args, kwargs = as_arguments(example)
    step = training_step(args, kwargs) if train is True else train or None
    restore(model)
    # A wrapper that talks to other ranks in its forward would wait for them.
    parallel = isinstance(model, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))
    inner: torch.nn.Module = model.module if parallel else model  # type: ignore[assignment]
    make_watchable(inner)
    together = torch.distributed.is_available() and torch.distributed.is_initialized()
    result: OptimizeReport | None = None
    swaps: dict[str, str] = {}
    failure: BaseException | None = None
    if not together or torch.distributed.get_rank() == 0:
        line = ProgressLine() if progress else None
        try:
            result, swaps = _measure(inner, args, kwargs, mode, budget, min_gain, line, step, rounding)
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
    modules: dict[str, Any] = dict(inner.named_modules())
    alone = result.mode or result.step or rounding != "once"
    behind = followers(inner) if swaps and not alone else {}
    for name, choices in swaps.items():
        swap(modules[name], choices, result.training, behind.get(modules[name]), rounding)
    result.notes += _notes(result)
    model.__dict__["convtune_report"] = result
    if progress and (not together or torch.distributed.get_rank() == 0):
        print(result, end="")
    return model


def _notes(result: OptimizeReport) -> list[str]:
    notes = [note] if (note := shipped_note(result.layers)) else []
    if "cuda" in result.device and not torch.backends.cudnn.benchmark:
        notes.append("torch.backends.cudnn.benchmark is off; PyTorch may be faster with it, and was measured without")
    warned = [layer for layer in result.layers if layer.warnings]
    if warned:
        notes.append(
            f"{len(warned)} of {len(result.layers)} kinds of layers were tuned with warnings, the first of them: "
            f"{warned[0].warnings[0]} (the report's layers have all, in `warnings`)"
        )
    if any(layer.swapped for layer in result.layers) and not result.training:
        notes.append(
            "weights that are written through `.data` in eval mode (so adapters are merged) are seen after "
            "convtune.torch.forget_packed(model): PyTorch does not count such writes"
        )
    if result.functional:
        notes.append(f"{result.functional} calls of torch.conv1d, conv2d or conv3d outside of modules were left")
    return notes


def as_arguments(example: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    return (example,), {}
