"""Dynamo's graph for a backend, as a graph of ATen's operators, in which chains are looked for; in half precision
with its convolutions channels last, however the model's tensors lie: NCHW costs each of them two to four times as much
(docs/decisions/0046-what-a-compiled-graph-holds.md). Inductor takes the graph for Dynamo's own."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Interpreter, Node

from ..layout import empty, laid, wants_channels_last
from .frames import number
from .operators.kept import keep_apart
from .operators.norms import NormsAsTheyLie, take_offsets
from .operators.pools import PoolsByRows
from .operators.tidy import tidied
from .operators.volumes import VolumesAsTheyLie, lies_as_asked, without_copies
from .patterns import normed_weight

__all__ = ["Values", "as_dynamo_says", "captured", "fakes_of", "twin"]

aten: Any = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_DEVICES = ("cuda",)  # devices where channels last is the better layout of half precision
_channels_last = torch.channels_last


def captured(module: GraphModule, inputs: Sequence[Any]) -> GraphModule:
    """The graph without mutation, with the same inputs in the same order and what Dynamo says of them, and outputs that
    lie as they did."""
    traced = _as_volumes_lie(module, inputs) or _traced(module, inputs, [])
    with contextlib.suppress(RuntimeError, ValueError):  # a view that only one layout has
        entries = _entries(traced.graph)
        turned = _traced(module, inputs, entries) if entries else traced
        if entries and any(inputs[place].dim() == 3 for place in entries):
            _rows_as_they_lie(turned, inputs, entries)
        if turned is not traced and _outputs_as(traced.graph, turned.graph):
            traced = turned
    tidied(traced.graph)
    keep_apart(traced.graph)
    take_offsets(traced.graph)
    traced.meta.update(module.meta)
    traced.__dict__["_param_name_to_source"] = {}
    as_dynamo_says(module.graph.find_nodes(op="placeholder"), traced.graph.find_nodes(op="placeholder"))
    return traced


def as_dynamo_says(placeholders: Sequence[Any], own: Sequence[Any]) -> None:
    """Notes at our graph's placeholders what Dynamo notes at its own."""
    for old, new in zip(placeholders, own):
        new.meta.update({name: old.meta[name] for name in ("tensor_dict",) if name in old.meta})
        new._dynamo_source = getattr(old, "_dynamo_source", None)


def twin(module: GraphModule) -> GraphModule:
    """A copy of Dynamo's graph, for compilers change theirs, with what Dynamo says of its inputs, which a deep copy loses: without
    that no parameter stays where it is, and CUDA graphs copy all of them in every call, or are not made at all."""
    made = copy.deepcopy(module)
    if hasattr(module, "_param_name_to_source"):
        made.__dict__["_param_name_to_source"] = dict(module._param_name_to_source)  # type: ignore[arg-type]
        as_dynamo_says(*(one.graph.find_nodes(op="placeholder") for one in (module, made)))
    return made


def _stride(stride: Any, size: int) -> int:
    """A stride as a number, which is guarded where anything lies by it."""
    return stride if isinstance(stride, int) else stride.node.hint if size == 1 else int(stride)  # type: ignore[no-any-return]


def fakes_of(inputs: Sequence[Any]) -> tuple[Any, list[Any]]:
    """(the mode of fake tensors in which Dynamo compiles, the inputs as such)."""
    context: Any = torch._guards.TracingContext.get()
    mode = context.fake_mode

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        known = context.tensor_to_context.get(value)
        source = known.tensor_source if known else None
        of = mode.from_tensor(value, symbolic_context=known, source=source, trace=False)
        shape, strides = (tuple(map(number, sizes)) for sizes in (of.shape, of.stride()))
        if all(isinstance(size, int) for size in shape):  # a stride that Dynamo has seen change: of one image it means nothing
            strides = tuple(_stride(stride, size) for stride, size in zip(strides, shape))
        if all(type(size) is type(own) for size, own in zip((*shape, *strides), (*of.shape, *of.stride()))):
            return of
        return of.new_empty_strided(shape, strides)  # symbols among the sizes are numbers by now

    with mode:
        return mode, [number(fake(one)) for one in inputs]


def _as_volumes_lie(module: GraphModule, inputs: Sequence[Any]) -> GraphModule | None:
    """The graph without copies of volumes to channels first; None where somebody would see that, or could not read them so."""
    mode = VolumesAsTheyLie()
    try:
        traced = _traced(module, inputs, [], mode)
    except (RuntimeError, ValueError):  # a view that only one layout has
        if mode.left:
            return None
        raise
    if mode.left:
        calls = [node.target for node in traced.graph.nodes if node.op == "call_function"]
        if any(map(_asks_how_it_lies, calls)) or not lies_as_asked(module, traced.graph):
            return None
        without_copies(traced.graph)
    return traced


def _traced(module: GraphModule, inputs: Sequence[Any], turned: list[int], lying: Any = None) -> GraphModule:
    """`turned`: the places of the inputs that are made channels last at the entry; `lying`: a mode of what is traced."""
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.proxy_tensor import make_fx

    mode, fakes = fakes_of(inputs)

    def flat(*values: Any) -> Any:
        own = list(values)
        for place in turned:
            own[place] = laid(own[place], True)
        return module(*own)

    with mode, enable_python_dispatcher(), torch.no_grad(), NormsAsTheyLie(), PoolsByRows(), lying or contextlib.nullcontext():
        traced: GraphModule = make_fx(torch.func.functionalize(flat), _allow_non_fake_inputs=True)(*fakes)
    traced.graph.eliminate_dead_code()  # a norm's outputs for training are users of its value
    _outputs_that_are_inputs(traced.graph)
    for node in traced.graph.find_nodes(op="call_function", target=aten.as_strided_.default):
        if len(node.args[0].users) == 1:  # per pooled image, channels last: it writes strides alone, which nobody reads
            node.target = aten.as_strided.default
    return traced


def _outputs_that_are_inputs(graph: Graph) -> None:
    """Makes an input that was written to and is an output one tensor again, of which functionalization made two: `self.count += 1` would
    put another tensor in the place of the buffer, and who holds the buffer would see it change no more."""
    end = graph.output_node()
    for copy in graph.find_nodes(op="call_function", target=aten.copy_.default):
        to, value = copy.args[:2]
        own, other = to.meta["val"], value.meta["val"]
        if to.op == "placeholder" and (own.shape, own.dtype) == (other.shape, other.dtype) and value in end.all_input_nodes:
            end.replace_input_with(value, to)


class Values(Interpreter):
    """Runs a graph on fake tensors of a mode, and notes each node's value at it."""

    def __init__(self, module: GraphModule, mode: Any) -> None:
        super().__init__(module)
        self._mode = mode

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return self._mode.from_tensor(super().get_attr(target, args, kwargs), static_shapes=True)

    def run_node(self, node: Node) -> Any:
        node.meta["val"] = value = super().run_node(node)
        return value


class _Rows(Values):
    """That of convolutions of rows that answer as x lies. PyTorch's own answer channels first."""

    def run_node(self, node: Node) -> Any:
        value = super().run_node(node)
        if node.target is aten.convolution.default:
            x = self.env[node.args[0]]  # type: ignore[index]
            node.meta["val"] = value = empty(value.shape, x, wants_channels_last(x))
        return value


def _rows_as_they_lie(turned: GraphModule, inputs: Sequence[Any], entries: Sequence[int]) -> None:
    """Notes at the nodes how rows lie from the inputs at `entries` on, and which nodes copy those."""
    mode, fakes = fakes_of(inputs)
    with mode, torch.no_grad():
        _Rows(turned, mode).run(*fakes)
    places = turned.graph.find_nodes(op="placeholder")
    for node in turned.graph.find_nodes(op="call_function", target=aten.clone.default):
        if any(places[at] in node.args[0].all_input_nodes for at in entries):
            node.meta["convtune"] = True


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), Tensor)


def _is_static(node: Node) -> bool:
    return all(isinstance(size, int) for size in node.meta["val"].shape)


def _asks_how_it_lies(call: Any) -> bool:
    """True of what would read other numbers, or fail, where its tensors lie otherwise: strides by number, and others' operators."""
    own = not isinstance(call, torch._ops.OpOverload) or call.namespace in ("aten", "prims", "convtune")
    return not own or call in (aten.as_strided.default, aten.view_as_real.default, aten.view_as_complex.default)


def _entries(graph: Graph) -> list[int]:
    """The inputs that are to be turned: images or rows of a graph of fixed sizes that convolves them, or what is made of them,
    as NCHW; rows of dense convolutions alone."""

    def is_turned(node: Node) -> bool:
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or value.dim() != axes + 2 or value.dtype not in _HALF or not _is_static(node):
            return False
        return value.device.type in _DEVICES and value.is_contiguous() and not wants_channels_last(value)

    calls = [node.target for node in graph.nodes if node.op == "call_function"]
    if any(getattr(getattr(call, "_schema", None), "is_mutable", False) for call in calls):
        return []  # a value that is written to an input would be written to its copy
    convolutions = graph.find_nodes(op="call_function", target=aten.convolution.default)
    axes = len(convolutions[0].args[3]) if convolutions else 0  # type: ignore[arg-type]
    # Rows are turned when they are traced already, images before.
    rows = all(node.args[8] == 1 for node in convolutions) and not any(map(_asks_how_it_lies, calls))
    if not (axes == 2 or (axes == 1 and rows)) or not all(is_turned(node.args[0]) for node in convolutions):  # type: ignore[arg-type]
        return []
    weights = {one for node in convolutions for one in normed_weight(node.args[1]) or node.args[1:2]}
    places = graph.find_nodes(op="placeholder")
    return [at for at, node in enumerate(places) if node not in weights and is_turned(node)]


def _storage(node: Node) -> int:
    return node.meta["val"].untyped_storage()._cdata  # type: ignore[no-any-return]


def _outputs_as(wanted: Graph, graph: Graph) -> bool:
    """Makes the outputs lie as those of `wanted` do, by a copy; whether that can be: not for views of inputs or of each
    other, which would be views no more."""
    ends = [next(node for node in reversed(one.nodes) if node.op == "output") for one in (wanted, graph)]
    theirs, own = (end.args[0] if isinstance(end.args[0], (list, tuple)) else [end.args[0]] for end in ends)
    inputs = wanted.find_nodes(op="placeholder")
    seen = [_storage(one) for one in {*theirs, *inputs} if isinstance(one, Node) and _is_tensor(one)]
    copies = {}
    for before, after in zip(theirs, own):
        if not isinstance(before, Node) or not _is_tensor(before):
            continue
        value, now = before.meta["val"], after.meta["val"]  # type: ignore[union-attr]
        if seen.count(_storage(before)) > 1 or before in inputs or not _is_static(before):
            return False
        if value.stride() == now.stride():
            continue
        formats = (torch.contiguous_format, _channels_last) if value.dim() == 4 else (torch.contiguous_format,)
        format = next((one for one in formats if value.is_contiguous(memory_format=one)), None)
        if format is None:
            return False
        copies[after] = format, value
    for node, (format, value) in copies.items():
        with graph.inserting_before(ends[1]):
            copy = graph.call_function(aten.clone.default, (node,), {"memory_format": format})
        copy.meta["val"] = value
        ends[1].replace_input_with(node, copy)
    return True
