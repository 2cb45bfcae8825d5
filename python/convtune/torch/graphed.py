"""graphed: a model's inference on one kind of input as a single CUDA graph, replayed without torch.compile's guards. In
the package's face as convtune.graphed; docs/decisions/0053-a-whole-forward-as-one-cuda-graph.md has the reasons.
"""

from __future__ import annotations

import contextlib
import copy
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import chain
from operator import attrgetter, is_
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .._contest import Contest, contest
from ..errors import InvalidArgument
from ..optimize_report import OptimizeReport
from ..table import microseconds
from ..tensors import allowed_precision
from .backend import last_report
from .beside import Beside
from .measure.timing import calls_of_a_sample, wall_us
from .optimize import as_arguments
from .watched import Watched

__all__ = ["Graphed", "graphed"]

_log = logging.getLogger("convtune")
_WARM_UP = 3  # calls before one is recorded: what compiles, and cuDNN's search
_END = object()
_is_training: Any = attrgetter("training")
_is_capturing: Any = getattr(torch._C, "_cuda_isCurrentStreamCapturing", torch.cuda.is_current_stream_capturing)
_current_device: Any = getattr(torch._C, "_cuda_getDevice", torch.cuda.current_device)


def _guarded() -> AbstractContextManager[Any]:
    """Has code compiled within look at each parameter's type in each call. Dynamo before 2.15 leaves that out where no dict of a module
    has changed, as `parameter.data = ...` and `model.double()` change none, and then runs kernels of the old type."""
    from torch._dynamo import config

    of: Any = config
    name = "skip_tensor_guards_with_matching_dict_tags"
    made: AbstractContextManager[Any] = of.patch({name: False}) if hasattr(of, name) else contextlib.nullcontext()
    return made


class _Recording:
    """One call of `run` on `inputs` as a CUDA graph. Raises what PyTorch raises where it cannot be recorded."""

    def __init__(self, run: Callable[..., Any], inputs: tuple[Any, ...]) -> None:
        side: Any = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                run(*inputs)
        torch.cuda.current_stream().wait_stream(side)
        graph: Any = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.outputs = run(*inputs)
        self.replay: Callable[[], None] = graph.replay


class _Tensors:
    """A model's parameters and buffers, and whether they are what they were."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._modules = list(model.modules())
        own = [of for module in self._modules for of in (module._parameters, module._buffers)]
        self._empty = [of for of in own if not of]
        self._values = [*(of.values() for of in own if of), (_END,)]  # as they are whenever one looks
        self._were = tuple(chain.from_iterable(self._values))  # with the places that hold None
        self._own = tuple([one for one in self._were if isinstance(one, Tensor)])
        self._watched = Watched(self._own)

    def have_changed(self) -> bool:
        same = all(map(is_, chain.from_iterable(self._values), self._were))  # to the end of both, which is one object
        return not same or any(self._empty) or not self._watched.hold(self._own)

    @property
    def are_training(self) -> bool:
        return any(map(_is_training, self._modules))


class _Buffers:
    """A model's buffers as they are now."""

    def __init__(self, model: torch.nn.Module) -> None:
        named = ((module, name, one) for module in model.modules() for name, one in module._buffers.items() if one is not None)
        self._were = [(module, name, one, one._version, one.detach().clone()) for module, name, one in named]

    def put_back(self) -> bool:
        """True where some had been written, and are as they were again. Raises InvalidArgument where another tensor is in the place of one."""
        written = False
        with torch.no_grad():
            for module, name, one, version, was in self._were:
                now, module._buffers[name] = module._buffers[name], one  # compiled code puts another object over the same memory
                if now is None or now.data_ptr() != one.data_ptr():
                    raise InvalidArgument(
                        f"the forward puts another tensor in the place of the buffer {name}, and a graph reads the one that it was recorded "
                        "with: write into it (copy_, add_) instead"
                    )
                if now is not one or one._version != version or not torch.equal(one, was):
                    one.copy_(was)
                    written = True
        return written


def _kept(value: Any) -> Any:
    """A copy of an argument that is no tensor, with which calls are compared. Raises InvalidArgument where that says nothing."""
    if any(isinstance(one, Tensor) for one in pytree.tree_leaves(value)):
        raise InvalidArgument(f"a graph copies tensors that are arguments themselves, and here one is within a {type(value).__name__}")
    try:
        same = copy.deepcopy(value)
        if bool(same == value):
            return same
    except Exception:  # whatever an object of the caller's raises
        pass
    raise InvalidArgument(f"an argument of type {type(value).__name__} does not equal its own copy, so that nobody can tell whether it has changed")


def _detached(outputs: Any) -> Any:
    if isinstance(outputs, Tensor):
        return outputs.detach()
    return pytree.tree_map_only(Tensor, Tensor.detach, outputs)


class Graphed:
    """The result of `graphed`; called as the model is. `report`: what was decided of its layers, and the whole beside
    torch.compile's; None where there was nothing to compile."""

    def __init__(
        self, model: torch.nn.Module, args: tuple[Any, ...], names: tuple[str, ...], options: dict[str, Any], whole: bool
    ) -> None:
        self._model, self._names = model, names
        with torch.inference_mode(False):
            self._static = tuple(one.detach().clone() if isinstance(one, Tensor) else _kept(one) for one in args)
        self._tensor_inputs = [(at, one, one.shape, one.dtype, one.device) for at, one in enumerate(self._static) if isinstance(one, Tensor)]
        self._other_inputs = [(at, one) for at, one in enumerate(self._static) if not isinstance(one, Tensor)]
        self._index = max(one.get_device() for one in self._static if isinstance(one, Tensor))
        self._writes, buffers = False, _Buffers(model)
        own = {"convtune.whole": False, "convtune.beside": True, **options}
        self._compiled: Any = torch.compile(model, backend="convtune", options=own)
        self._beside: AbstractContextManager[Any] = contextlib.nullcontext()
        self._record()
        self.report: OptimizeReport | None = last_report()
        self._try_branches()
        if whole and self.report is not None:
            self._prove()
        if self._writes:  # contests replay what writes them
            buffers.put_back()
            self._tensors = _Tensors(model)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Looks before the launch at what a launch could be wrong by, alone; at the rest while the device works, and where that is not as
        it was, the launch was in vain. Of a model that writes its own buffers all is looked at before: nothing may write them in vain."""
        if tuple(kwargs) != self._names:
            return self._as_compiled(args, kwargs)
        values = (*args, *kwargs.values()) if kwargs else args
        if not self._takes(values):
            return self._as_compiled(args, kwargs)
        if self._writes:
            if self._is_otherwise():
                return self._as_compiled(args, kwargs)
            if self._tensors.have_changed():
                self._record()
        for at, static, *_ in self._tensor_inputs:
            value = values[at]
            static.copy_(value.detach() if value.requires_grad else value, non_blocking=True)
        self._recording.replay()
        if not self._writes:
            if self._is_otherwise():
                return self._as_compiled(args, kwargs)
            if self._tensors.have_changed():
                self._record()
                self._recording.replay()
        return _detached(self._recording.outputs)

    def _is_otherwise(self) -> bool:
        """True where the model trains, or a setting is not what it was at the recording."""
        return self._tensors.are_training or self._settings_now() != self._settings

    def _as_compiled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.no_grad(), _guarded():
            return self._compiled(*args, **kwargs)

    def _settings_now(self) -> tuple[Any, ...]:
        """The settings that may change between calls, and the model's answer with them."""
        precision = allowed_precision(self._index) if self._is_float32 else ""
        deterministic = torch.backends.cudnn.deterministic, torch.are_deterministic_algorithms_enabled()
        return torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"), precision, deterministic

    def _takes(self, values: tuple[Any, ...]) -> bool:
        if len(values) != len(self._static) or (self._index >= 0 and (_is_capturing() or _current_device() != self._index)):
            return False
        for at, _, shape, dtype, device in self._tensor_inputs:
            value = values[at]
            if not isinstance(value, Tensor) or value.dtype is not dtype or value.shape != shape or value.device != device:
                return False
        return all(type(values[at]) is type(one) and values[at] == one for at, one in self._other_inputs)

    def _run(self, compiled: Any) -> Callable[..., Any]:
        positional = len(self._static) - len(self._names)

        def run(*values: Any) -> Any:
            return compiled(*values[:positional], **dict(zip(self._names, values[positional:])))

        return run

    def _record(self) -> None:
        everything = [*self._static, *self._model.parameters(), *self._model.buffers()]
        self._is_float32 = any(isinstance(one, Tensor) and one.dtype is torch.float32 for one in everything)
        self._settings = self._settings_now()
        with torch.inference_mode(False), torch.no_grad(), _guarded(), self._beside:
            buffers = _Buffers(self._model)
            self._recording = _Recording(self._run(self._compiled), self._static)
            self._writes |= buffers.put_back()
        self._tensors = _Tensors(self._model)

    @property
    def _device(self) -> torch.device:
        return next(one.device for one in self._static if isinstance(one, Tensor))

    def _try_branches(self) -> None:
        """Keeps a recording with branches beside each other, where there are any, if that is proven faster."""
        in_a_row, beside = self._recording, Beside()
        self._beside, outcome = beside, Contest()
        try:
            self._record()
            if beside.forks:
                outcome = _contest(in_a_row.replay, self._recording.replay, self._device)
        except Exception:  # parts are an attempt: what one of them, or a recording of several streams, refuses costs the attempt
            _log.warning("branches of a graph are recorded in a row: beside each other they could not be", exc_info=True)
        if not outcome.accepted:
            self._beside, self._recording = contextlib.nullcontext(), in_a_row
        if self.report is not None and beside.forks:
            verdict = "beside each other" if outcome.accepted else "one after the other: beside each other is not proven faster"
            self.report.notes.append(
                f"branches run {verdict} ({microseconds(outcome.incumbent_us)} us in a row, {microseconds(outcome.paired_us)} us beside)"
            )

    def _prove(self) -> None:
        """Keeps inductor's own graph, recorded the same way, where ours is not proven faster."""
        device = self._device
        theirs: Any = torch.compile(self._model)
        with torch.inference_mode(False), torch.no_grad(), _guarded():
            before = _Recording(self._run(theirs), self._static)
        outcome = _contest(before.replay, self._recording.replay, device)
        assert self.report is not None
        self.report.take(outcome)
        if not outcome.accepted:
            self.report.notes.append("the graph is inductor's: the whole is not proven faster")
            self._compiled, self._recording, self._beside = theirs, before, contextlib.nullcontext()


def _contest(before: Callable[[], None], after: Callable[[], None], device: torch.device) -> Contest:
    calls = calls_of_a_sample(max(wall_us(before, device), wall_us(after, device)))
    return contest(lambda: wall_us(before, device, calls), lambda: wall_us(after, device, calls), 0.0, max_seconds=5)


def graphed(
    model: torch.nn.Module, example: Any, budget: float = 0.0, min_gain: float = 0.02, *, whole: bool = True
) -> Graphed:
    """The model's forward on inputs like the example as one CUDA graph: compiled by torch.compile(backend="convtune"),
    recorded, and replayed from then on with nothing in front but copies of the inputs. torch.compile's CUDA graphs
    look through guards first, which took 70 to 250 us a call on a quiet host, and up to 440 on a busy one.

    `example`: a tensor, a tuple of arguments or a dict of keyword arguments; the tensors lie on one GPU. A call with
    tensors of the same shapes and types, and equal other values, is a replay; any other goes through torch.compile, and
    is right, too. `budget`: seconds of tuning; `min_gain`: what a layer must gain (as torch.compile's options do).
    `whole`: inductor's own graph is recorded, too, and kept where convtune's is not proven faster.

    Branches with convolutions that read one value and nothing of each other, as a vocoder's residual blocks of several filter sizes
    or a detector's heads, are recorded beside each other, too, and that is kept where it is proven faster.

    For inference: the model is in eval mode, and no gradients are recorded. Parameters and buffers may change, by
    whatever means: after the launch it is looked whether they have, and if so what was launched is recorded and run
    again. Buffers that the forward itself writes, as caches and counters, are written once a call, and are as they were when this
    returns. Whatever else a forward does in Python (hooks, attributes, other modules in its place, prints) is done when it
    is recorded, not in a replay. Each recording takes a workspace that lasts as long as the compiled plans. What a call
    returns is overwritten by the next: clone what is kept. Calls from several streams share that memory: the caller
    synchronizes them. Raises InvalidArgument for an example without a tensor on a GPU, for a model in training mode or one
    that puts other tensors in the place of its buffers, for tensors within a list or dict among the arguments, and for
    arguments of a type that does not equal its own copy."""
    args, kwargs = as_arguments(example)
    values = (*args, *kwargs.values())
    if not isinstance(model, torch.nn.Module) or hasattr(model, "_orig_mod"):
        raise InvalidArgument("graphed takes a torch.nn.Module before torch.compile")
    if any(module.training for module in model.modules()):
        raise InvalidArgument("graphed is for inference, and the model is in training mode: call model.eval() first")
    tensors = [one for one in values if isinstance(one, Tensor)]
    if not tensors or len({one.device for one in tensors}) > 1 or not tensors[0].is_cuda:
        raise InvalidArgument("graphed takes an example whose tensors are on one GPU")
    if any(one.is_inference() for one in [*model.parameters(), *model.buffers()]):
        raise InvalidArgument("the model's parameters were made in inference mode: nobody counts their changes")
    options = {"convtune.budget": budget, "convtune.min_gain": min_gain}
    with torch.cuda.device(tensors[0].device):
        return Graphed(model, values, tuple(kwargs), options, whole)
