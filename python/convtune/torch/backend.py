"""torch.compile(model, backend="convtune"): convolutions with their batch norm, bias, residual and
activation become one operator of convtune's where that is proven faster; all the rest is inductor's, as ever.

    compiled = torch.compile(model.eval(), backend="convtune")                          # under torch.no_grad()
    compiled = torch.compile(model.eval(), backend="convtune", mode="reduce-overhead")  # with CUDA graphs
    options = {"convtune.budget": 60.0, "max_autotune": True}     # ours begin with "convtune.", others are inductor's
    compiled = torch.compile(model.eval(), backend="convtune", options=options)

Options: "convtune.budget" (seconds of tuning in one graph; 0, no search, is the default), "convtune.min_gain" (of a
layer, to be proven: 0.02), "convtune.whole" (True: the graph must be proven no slower than inductor's, which compiles that,
too; False takes what is proven of its layers; by default the graph is proven where its layers are not far ahead),
"convtune.force" (every layer that convtune can, unmeasured: for tests), "convtune.beside" (branches are compiled apart, too, for
whoever records them beside each other, as convtune.graphed does), "convtune.progress" (False: no line on a terminal or in a notebook
that says what a first call waits for).
In graphs that record gradients each convolution's three directions are chosen alone, and forward with backward must be proven
no slower than inductor's. Graphs that cannot be traced are inductor's untouched; the logger "convtune" says so.
An installed package registers the name; from a source tree `import convtune.torch.backend` does.
docs/decisions/0042-a-backend-of-torch-compile.md has the reasons.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from .._contest import Contest
from ..errors import InvalidArgument
from ..optimize_report import OptimizeReport
from ..table import microseconds
from .ahead import asked_ahead
from .caches import find_best_configs, tag
from .dynamo import teach
from .graph.capture import twin
from .graph.channels_last import ChannelsLastPass
from .graph.chains import Wanted
from .graph.gradients import GradientPass, convolves
from .graph.lowering import install
from .launches import compiled_meanwhile, shorten
from .leaving import leave_quietly
from .measure.contests import keep, keep_number, recall, recall_number
from .measure.phases import Phases
from .measure.proof import (
    aside, concrete, key_of_whole, lie_in_cuda_graphs, saved_by_layers, waits_for_processor, whole, whole_step,
)  # fmt: skip
from .rewriting import Rewritten, rewritten

__all__ = ["backend", "last_report", "reports"]

_log = logging.getLogger("convtune")
_OWN = {f"convtune.{name}": name for name in ("budget", "min_gain", "whole", "force", "beside", "progress")}
_NOT_MEASURED = "the graph is inductor's: it reads what a CUDA graph before it gave, which a measurement would overwrite"
_NOT_FASTER = "the whole is not proven faster"
_DEVICES = ("cuda",)  # which work beside the processor
_reports: deque[OptimizeReport] = deque(maxlen=1000)
# Verdicts of this process by kinds of layers, True where our graph was kept: another batch compiles it again.
_kept: dict[Any, bool] = {}


def last_report() -> OptimizeReport | None:
    """The decisions in the graph that was compiled last, a row a kind of layer, and the seconds of its first call by what they
    were spent on; None before the first."""
    return _reports[-1] if _reports else None


def reports() -> list[OptimizeReport]:
    """The reports of all graphs of this process, in the order in which they were compiled: where Dynamo's graph breaks, a model has several."""
    return list(_reports)


def _in_words(why: Exception) -> str:
    return f"{type(why).__name__}: {str(why).strip().partition(chr(10))[0]}"


def _left(inputs: Sequence[Any], why: str) -> OptimizeReport:
    """The report of a graph that is inductor's untouched."""
    devices = sorted({str(one.device) for one in inputs if isinstance(one, Tensor)})
    return OptimizeReport(", ".join(devices), False, mode="convtune", pytorch=str(torch.__version__), notes=[f"a graph is left to inductor: {why}"])


def _settings(mode: str | None, options: dict[str, Any] | None) -> tuple[Wanted, dict[str, Any]]:
    """(ours, inductor's)."""
    own, theirs = {}, {}
    if mode and mode != "default":
        theirs.update(torch._inductor.list_mode_options(mode))
    for name, value in (options or {}).items():
        if name.startswith("convtune."):
            if name not in _OWN:
                raise InvalidArgument(f"{name!r} is no option of convtune; they are {', '.join(_OWN)}")
            own[_OWN[name]] = value
        else:
            theirs[name.replace("-", "_")] = value
    return Wanted(**own), theirs


def _records_gradients(inputs: Sequence[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(one, Tensor) and one.requires_grad for one in inputs)


def backend(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    **more: Any,
) -> Callable[..., Any]:
    """A backend of torch.compile, registered as "convtune"."""
    from torch._inductor.compile_fx import compile_fx

    wanted, patches = _settings(mode, options)

    def compile(graph: GraphModule, inputs: Sequence[Any], **own: Any) -> Any:
        tag()  # again: it may have been set since
        install()
        find_best_configs()
        leave_quietly()
        if ahead is not None:
            ahead.join()
        return compile_fx(graph, inputs, config_patches={**patches, **own} or None)

    result, phases, ahead = None, Phases(wanted.progress), None
    if _records_gradients(inputs):
        return _with_gradients(module, inputs, wanted, compile, patches)
    if not wanted.force and any(isinstance(one, torch.nn.Parameter) and one.is_inference() for one in inputs):
        report = _left(
            inputs,
            "its parameters were made in inference mode, where PyTorch counts no writes, so they would be packed in every call: "
            "make the model outside of torch.inference_mode()",
        )
        _log.warning("%s", report.notes[0])
    else:
        ahead = asked_ahead()
        try:
            result, report = rewritten(module, inputs, wanted, phases)
            _log.info("%s", report)
        except Exception as why:
            if wanted.force:
                raise
            report = _left(inputs, f"it could not be rewritten: {_in_words(why)}")
            _log.warning("a graph is left to inductor: it could not be rewritten", exc_info=True)
    report.seconds = phases.seconds
    _reports.append(report)
    if result is None:
        with phases("inductor"):
            return compile(module, inputs)  # type: ignore[no-any-return]
    known = _of_another_batch(result, report)
    must_be_proven = known is None and _must_be_proven(result, wanted, report)
    key = key_of_whole(result.graph, concrete(inputs), patches) if must_be_proven else ""
    known = recall(key) if must_be_proven else known
    if must_be_proven and known is None and lie_in_cuda_graphs(inputs):
        _note(report, _NOT_MEASURED)
        with phases("inductor"):
            return compile(module, inputs)  # type: ignore[no-any-return]
    theirs = None
    if must_be_proven and known is None:
        with phases("inductor, of its own graph"):
            theirs = aside(compile, module, inputs)
    if known is None or known.accepted:
        with phases("inductor"):
            ours = result.compiled(compile, inputs, wanted.beside)
    if theirs is not None:
        with phases("contest of the whole"):
            known = whole(theirs, ours, concrete(inputs))
        keep(key, known)  # undecided, too: the next process has no better answer, and is not to wait
    _kept[result.kinds] = known is None or known.accepted
    if known is None or _is_proven(report, known):
        return ours
    if theirs is not None:
        return theirs  # type: ignore[no-any-return]
    with phases("inductor"):
        return compile(module, inputs)  # type: ignore[no-any-return]


def _with_gradients(
    module: GraphModule, inputs: Sequence[Any], wanted: Wanted, compile: Callable[..., Any], patches: dict[str, Any]
) -> Callable[..., Any]:
    """The graph with the forwards and gradients that are proven faster. Forward and backward together must be proven no slower than
    inductor's, and take no more memory; else they are inductor's."""
    try:
        ours = _gradients(module, inputs, wanted, compile, patches)
    except Exception as why:
        if wanted.force:
            raise
        _reports.append(_left(inputs, f"its gradients could not be rewritten: {_in_words(why)}"))
        _log.warning("a graph is left to inductor: its gradients could not be rewritten", exc_info=True)
        ours = None
    return ours or compile(module, inputs)  # type: ignore[no-any-return]


def _gradients(
    module: GraphModule, inputs: Sequence[Any], wanted: Wanted, compile: Callable[..., Any], patches: dict[str, Any]
) -> Callable[..., Any] | None:
    """None where all is inductor's, and is to be compiled."""
    phases = Phases(wanted.progress)
    has_own_pass = any(
        patches.get(one, getattr(torch._inductor.config, one)) is not None
        for one in ("joint_custom_pre_pass", "post_grad_custom_pre_pass")
    )
    if has_own_pass or any(isinstance(one, torch.SymInt) for one in inputs) or not convolves(module):
        _reports.append(_left(inputs, "it records gradients, and has no convolution, sizes that are symbols, or a pass of the caller's"))
        _log.info("%s", _reports[-1].notes[0])
        return None
    laid = ChannelsLastPass()
    # A backward is compiled with its forward, not when it is first run: it is to be measured.
    with torch._functorch.config.patch(force_non_lazy_backward_lowering=True):
        theirs, waits = _who_waits(module, inputs, wanted, compile, patches, phases)
        found = GradientPass(wanted, phases, waits)
        with phases("inductor"), compiled_meanwhile() as modules:
            ours = compile(twin(module), inputs, joint_custom_pre_pass=laid, post_grad_custom_pre_pass=found)
        if found.report is None:
            _reports.append(_left(inputs, "it records gradients, and none of its convolutions can be convtune's"))
            _log.info("%s", _reports[-1].notes[0])
            return theirs
        report = found.report
        report.seconds = phases.seconds
        _reports.append(report)
        _log.info("%s", report)
        launches = shorten(modules) if waits else 0
        changes = found.changes + ([f"{launches} kernels of inductor's are launched by a shorter way"] if launches else [])
        if not (found.taken or laid.copies or changes) or wanted.force or wanted.whole is False:
            return ours  # type: ignore[no-any-return]
        report.notes += changes
        if laid.copies:
            report.notes.append(f"{laid.copies} tensors are copied to channels last where they are computed, for convolutions")
        shorter = ["launches are shorter"] * bool(launches)  # whatever their number, which differs between processes
        key = key_of_whole(module, concrete(inputs), patches, [*found.lines, *found.changes, *shorter])
        outcome = recall(key)
        if outcome is None and lie_in_cuda_graphs(inputs):
            _note(report, _NOT_MEASURED)
            return None
        if outcome is None and theirs is None:
            with phases("inductor, of its own graph"):
                theirs = aside(compile, module, inputs)
    if outcome is None:
        with phases("contest of the whole"):
            outcome = whole_step(theirs, ours, concrete(inputs), lambda text: _note(report, text), waits)
        keep(key, outcome)
    # Without times, the peaks alone were compared.
    takes_more = not outcome.accepted and outcome.incumbent_us == 0
    is_proven = _is_proven(report, outcome, "the whole takes more memory" if takes_more else _NOT_FASTER)
    return ours if is_proven else theirs  # type: ignore[no-any-return]


def _who_waits(
    module: GraphModule, inputs: Sequence[Any], wanted: Wanted, compile: Callable[..., Any], patches: dict[str, Any], phases: Phases
) -> tuple[Callable[..., Any] | None, bool]:
    """Inductor's own graph, where it was compiled to be measured, and whether the device waits for the processor in it. What a CUDA
    graph replays waits for none."""
    cudagraphs = patches.get("triton.cudagraphs", torch._inductor.config.triton.cudagraphs)
    are_there = any(isinstance(one, Tensor) and one.device.type in _DEVICES for one in inputs)
    if not are_there or cudagraphs or wanted.force or wanted.whole is False:
        return None, False
    key = f"{key_of_whole(module, concrete(inputs), patches)} waits"
    known = recall_number(key)
    if known:
        return None, known > 1
    with phases("inductor, of its own graph"):
        theirs = aside(compile, module, inputs)
    with phases("cuDNN's search, who waits"):  # which the contests of layers need, too
        waits = waits_for_processor(theirs, concrete(inputs))
    keep_number(key, 2.0 if waits else 1.0)
    return theirs, waits


def _of_another_batch(result: Rewritten, report: OptimizeReport) -> Contest | None:
    """The verdict on the same layers of another batch, for a graph that takes any: without numbers, which were the other's."""
    kept = _kept.get(result.kinds) if result.any_batch else None
    if kept is None:
        return None
    _note(report, "the whole is not measured: the same layers were decided for another batch")
    return Contest(kept)


def _must_be_proven(result: Rewritten, wanted: Wanted, report: OptimizeReport) -> bool:
    """True where the graph must be measured beside inductor's own; the report says why not."""
    if wanted.force or wanted.whole is False:
        return False
    if not result.may_run_twice:
        _note(report, "the whole is not measured: the graph writes to tensors or draws random numbers; its layers are proven")
        return False
    saved = 0.0 if wanted.whole or not result.convolutions_alone else saved_by_layers(report.layers)
    if saved > 0:
        _note(
            report,
            f"the whole is not measured: with all that follows them, its layers take {microseconds(saved)} us less than "
            'PyTorch\'s convolutions take alone ("convtune.whole": True measures it)'
        )
    return saved == 0


def _note(report: OptimizeReport, text: str) -> None:
    """Adds the text to the report of this graph, and to the log."""
    report.notes.append(text)
    _log.info("%s", text)


def _is_proven(report: OptimizeReport, outcome: Contest, why: str = _NOT_FASTER) -> bool:
    """True where ours is not slower than inductor's own graph; the report says so, also of each layer that was proven by itself.
    `why`: the reason where it is not."""
    report.take(outcome)
    if not outcome.accepted:
        for layer in report.layers:
            if layer.swapped:
                layer.swapped, layer.decision = False, f"PyTorch: {why}; {layer.decision.removeprefix('convtune: ')} was faster by itself"
        _note(report, f"the graph is inductor's: {why}")
    _log.info("the whole: inductor %.0f us, with convtune %.0f us", outcome.incumbent_us, outcome.paired_us)
    return outcome.accepted


def _register() -> None:
    """Registers the backend as an installed package is: PyTorch registers what it finds by an entry point when it is
    first asked for."""
    from importlib.metadata import EntryPoint

    from torch._dynamo.backends.registry import _BACKENDS

    _BACKENDS.setdefault("convtune", EntryPoint("convtune", f"{__name__}:backend", "torch_dynamo_backends"))


_register()
teach()
