"""Graphs that record gradients, as inductor compiles them: of each convolution's backward, x's and the weight's with the
bias's become `convtune::conv_gradients` where that is proven faster, each alone, and a forward `convtune::conv2d_forward`; the
rest stays PyTorch's."""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule, Node

from ...errors import InvalidArgument, Unsupported
from ...convolution import Convolution
from ...optimize_report import Layer, OptimizeReport
from ...problem import Problem
from ..backward import conv_gradients, gradient_problem, text_of
from ..how import How
from ..measure.decide import choices_of, device_of
from ..measure.gradient_sides import ForwardSides, GradientSides
from ..measure.graphs import decide_graph
from ..measure.phases import Phases
from ..measure.processor import cheapest
from ..native import conv2d_forward
from ..run import TYPES, problem_for
from .casts import join_casts
from .chains import Wanted
from .counters import join_counters
from .pooled import view_pooled

__all__ = ["GradientPass", "convolves"]

_backward: Any = torch.ops.aten.convolution_backward.default
_forward: Any = torch.ops.aten.convolution.default
_PLACES = {"x": (0,), "w": (1, 2)}  # indices of a direction's tensors among the results


@dataclass
class _Gradient:
    """A gradient of a node; like modules.layers.Seen, what `decide` takes."""

    node: Node
    of: str
    how: How
    problem: Problem
    bias_type: torch.dtype | None

    @property
    def name(self) -> str:
        return f"{self.node.name} d{self.of}"

    @property
    def device(self) -> torch.device:
        return self._x.device  # type: ignore[no-any-return]

    @property
    def _x(self) -> Any:
        return self.node.args[1].meta["val"]  # type: ignore[union-attr]

    @property
    def kind(self) -> str:
        """A text by which contests of different layers differ."""
        return repr((str(self.problem), tuple(self._x.shape), self._x.stride(), self.device))

    def sides(self) -> GradientSides:
        x, weight = self._x, self.node.args[2].meta["val"]  # type: ignore[union-attr]
        own = torch.empty_strided(weight.shape, weight.stride(), dtype=weight.dtype, device=weight.device).uniform_(-1, 1)
        return GradientSides(self.of, own, self.how, x.shape, x.stride(), x.dtype, x.device, self.bias_type)


@dataclass
class _Layer:
    """A forward, without its bias, which a compiler adds where y is read next. Its weight is another in every step."""

    node: Node
    how: How
    problem: Problem
    of: str = "y"

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def _tensors(self) -> list[Any]:
        return [one.meta["val"] for one in self.node.args[:2]]  # type: ignore[union-attr]

    @property
    def device(self) -> torch.device:
        return self._tensors[0].device  # type: ignore[no-any-return]

    @property
    def kind(self) -> str:
        """A text by which contests of different layers differ."""
        lie = [(tuple(one.shape), one.stride()) for one in self._tensors]
        return repr((str(self.problem), "a step's forward", lie, self.device))

    def sides(self) -> ForwardSides:
        x, weight = self._tensors
        own = torch.empty_strided(weight.shape, weight.stride(), dtype=weight.dtype, device=weight.device).uniform_(-1, 1)
        return ForwardSides(own, self.how, x.shape, x.stride(), x.dtype, x.device)


def _are_taken(tensors: list[Any]) -> bool:
    """False of symbolic sizes and of other types."""
    dtypes = {one.dtype for one in tensors}
    sizes = [size for one in tensors for size in one.shape]
    return all(type(size) is int for size in sizes) and len(dtypes) == 1 and dtypes <= set(TYPES)


def _how(stride: Any, padding: Any, dilation: Any, transposed: Any, output_padding: Any, groups: Any) -> How:
    geometry: Any = tuple(stride), (*padding, *padding), tuple(dilation), groups
    return How(*geometry, output_padding=tuple(output_padding) if transposed else ())


def _found_forward(node: Node) -> list[_Layer]:
    """The node's forward; nothing beyond what a problem can be."""
    x, weight, bias, *words = node.args
    tensors = [one.meta["val"] for one in (x, weight, bias) if one is not None]  # type: ignore[union-attr]
    how = _how(*words)
    if not _are_taken(tensors) or how.is_pytorchs:
        return []
    try:
        return [_Layer(node, how, problem_for(tensors[0], tensors[1], how, None))]
    except InvalidArgument:
        return []


def _found(node: Node) -> list[_Gradient]:
    """The gradients that a node computes; none of symbolic sizes, of other types, or beyond what a problem can be."""
    grad, x, weight, _, *words, mask = node.args
    tensors = [one.meta["val"] for one in (grad, x, weight)]  # type: ignore[union-attr]
    if not _are_taken(tensors) or any(user.target is not operator.getitem for user in node.users):
        return []
    how = _how(*words)
    found = []
    for of, wanted in (("x", mask[0]), ("w", mask[1])):  # type: ignore[index]
        bias_type = tensors[0].dtype if of == "w" and mask[2] and not how.transposed else None  # type: ignore[index]
        try:
            if wanted and not how.is_pytorchs:
                found.append(_Gradient(node, of, how, gradient_problem(of, tensors[1], tensors[2], how, bias_type), bias_type))
        except InvalidArgument:
            continue
    return found


def convolves(module: GraphModule) -> bool:
    """True of Dynamo's graph where something in it may be a convolution."""

    def may_be(node: Node) -> bool:
        if node.op == "call_module":
            return isinstance(module.get_submodule(str(node.target)), torch.nn.modules.conv._ConvNd)
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        return node.op == "call_function" and "conv" in name

    return any(map(may_be, module.graph.nodes))


def _hand_over_as_traced(new: Node) -> None:
    """Has inductor lay the inputs of the node as the graph has them. It lays those of an operator that a pass has put in as it likes:
    dy came channels first, and was copied in every step (docs/decisions/0173-inputs-lie-as-they-were-traced.md)."""
    new.meta["eager_input_vals"] = tuple(one.meta["val"] if isinstance(one, Node) else one for one in new.args), {}


def _rewrite(graph: Graph, node: Node, own: dict[str, str], how: How, has_bias: bool) -> set[str]:
    """Puts the operator in the place of those directions. `own`: the lines of their plans. Leaves a direction whose results would
    lie otherwise, for views of them are made already, and gives those that it took."""
    mask = list(node.args[10])  # type: ignore[arg-type]
    values = [one.meta["val"] for one in node.args[:3]]  # type: ignore[union-attr]

    def operator_of(own: dict[str, str]) -> tuple[list[int], str, Any]:
        """The places of its gradients, its text and what it makes."""
        ours = ["x" in own, "w" in own, bool("w" in own and has_bias and mask[2])]
        text = text_of(None, replace(how, choices="\n".join(own.values())), ours)
        return [place for place in range(3) if ours[place]], text, conv_gradients(*values, text)

    def lie(of: str, made: Any) -> bool:
        return all(made[at] is None or made[at].stride() == node.meta["val"][at].stride() for at in _PLACES[of])

    made = operator_of(own)[-1]
    own = {of: line for of, line in own.items() if lie(of, made)}
    if not own:
        return set()
    places, text, made = operator_of(own)
    with graph.inserting_before(node):
        new = graph.call_function(conv_gradients, (*node.args[:3], text))
        new.meta = {**node.meta, "val": made}
        _hand_over_as_traced(new)
        left = [bool(wanted and place not in places) for place, wanted in enumerate(mask)]
        rest = graph.call_function(_backward, (*node.args[:10], left)) if any(left) else None
        if rest is not None:
            rest.meta = {**node.meta, "val": tuple(one if kept else None for one, kept in zip(node.meta["val"], left))}
    for user in list(node.users):
        user.args = (new if user.args[1] in places else rest or new, user.args[1])
    graph.erase_node(node)
    return set(own)


def _rewrite_forward(graph: Graph, node: Node, line: str, how: How) -> bool:
    """Puts the operator in the node's place, and its bias behind it. Leaves the graph and gives False where y would lie
    otherwise."""
    x, weight, bias, *_ = node.args
    text = replace(how, choices=line, reuse=False).text
    made = conv2d_forward(x.meta["val"], weight.meta["val"], None, None, text)  # type: ignore[union-attr]
    if made.stride() != node.meta["val"].stride():
        return False

    def add(target: Any, *arguments: Any, val: Any) -> Node:
        new = graph.call_function(target, arguments)
        new.meta = {**node.meta, "val": val}
        return new

    with graph.inserting_before(node):
        y = add(conv2d_forward, x, weight, None, None, text, val=made)
        _hand_over_as_traced(y)
        if isinstance(bias, Node):
            sizes, value = [-1, *[1] * how.axes], bias.meta["val"]
            row = add(torch.ops.aten.reshape.default, bias, sizes, val=value.reshape(sizes))
            y = add(torch.ops.aten.add.Tensor, y, row, val=node.meta["val"])
    node.replace_all_uses_with(y)
    graph.erase_node(node)
    return True


class GradientPass(CustomGraphPass):
    """A pass over forward and backward graphs, before inductor lowers them. `waits`: the step waits for the processor, so that no layer
    may cost it more. `report`: the decisions of all of them; `taken`: how many directions became convtune's; `lines`: their plans;
    `changes`: what else there was to change, in words."""

    def __init__(self, wanted: Wanted, phases: Phases, waits: bool = False) -> None:
        self._wanted, self._phases, self._waits = wanted, phases, waits
        self._layers: list[Layer] = []
        self._devices: set[str] = set()
        self._directions = 1  # directions of each layer in the next graph, which has its share of a step's budget
        self.report: OptimizeReport | None = None
        self.taken = 0
        self._joined = self._counters = self._views = 0
        self.lines: list[str] = []

    def uuid(self) -> None:
        """Nothing: what is proven is not in the graph, so inductor may not keep what this pass made of it."""
        return None

    def __call__(self, graph: Graph) -> None:
        found: list[Any] = [one for node in graph.find_nodes(op="call_function", target=_backward) for one in _found(node)]
        found += [one for node in graph.find_nodes(op="call_function", target=_forward) for one in _found_forward(node)]
        if not found:
            return
        lines = self._decided(found)
        if self._waits:
            self._spare_processor(found, lines)
        self._directions = 2
        by_node: dict[Node, dict[str, str]] = {}
        for one in found:
            if one.name in lines:
                by_node.setdefault(one.node, {})[one.of] = lines[one.name]
        hows = {one.node: one.how for one in found}
        names = {(one.node, one.of): one.name for one in found}
        biased = {one.node for one in found if getattr(one, "bias_type", None) is not None}
        for node, own in by_node.items():
            if "y" in own:
                taken = {"y"} if _rewrite_forward(graph, node, own["y"], hows[node]) else set()
            else:
                taken = _rewrite(graph, node, own, hows[node], node in biased)
            self.taken += len(taken)
            self.lines += [own[of] for of in taken]
            for of in set(own) - taken:
                self._move(names[node, of], False, "PyTorch: convtune's result would lie otherwise in memory")
        self._joined += join_casts(graph)
        self._counters += join_counters(graph)
        self._views += view_pooled(graph)
        graph.lint()

    @property
    def changes(self) -> list[str]:
        said = (
            (self._joined, "casts of weights and gradients are joined, a launch or two for many of them"),
            (self._counters, "counters of batches are joined, a launch or two for all of them"),
            (self._views, "gradients behind a global pool are views of what was computed, not written again"),
        )
        return [f"{count} {what}" for count, what in said if count]

    def _spare_processor(self, found: list[Any], lines: dict[str, str]) -> None:
        """Takes directions into `lines` and out of it for the processor's sake, of all that competed: they are right."""
        # The last layer of a name is this graph's: forward may have that name, too.
        of_names = {name: layer for layer in self._layers for name in layer.names}
        layers = {one.name: layer for one in found if (layer := of_names[one.name]).algorithm and layer.pytorch_us > 0}
        theirs = [(replace(layers[one.name], swapped=True), [one]) for one in found if one.name in layers]
        device_us = {name: (layer.pytorch_us, layer.convtune_us) for name, layer in layers.items()}
        with self._phases("contests of layers"), torch._subclasses.fake_tensor.unset_fake_temporarily():
            could = choices_of(theirs)
            changed = cheapest(found, could, set(lines), device_us)
        for name, (is_ours, why) in changed.items():
            self._move(name, is_ours, f"convtune: {layers[name].algorithm}, {why}" if is_ours else f"PyTorch: {why}")
            if is_ours:
                lines[name] = could[name]
            else:
                del lines[name]

    def _move(self, name: str, swapped: bool, why: str) -> None:
        """Takes the name out of its layer, and notes it in one that is decided so for that reason."""
        layer = next(one for one in reversed(self._layers) if name in one.names)  # the last one is this graph's
        layer.names.remove(name)
        layer.calls -= 1
        moved = replace(layer, names=[name], calls=1, swapped=swapped, decision=why)
        like = next((one for one in self._layers if one is not layer and (one.problem, one.decision) == (layer.problem, why)), None)
        if not layer.calls and like is None:
            vars(layer).update(vars(moved))
            return
        if not layer.calls:
            self._layers.remove(layer)
        if like is None:
            self._layers.append(moved)
        else:
            like.names.append(name)
            like.calls += 1

    def _decided(self, found: list[Any]) -> dict[str, str]:
        """The lines of plans by the directions' names."""
        kinds: dict[Any, tuple[Layer, list[Any]]] = {}
        for one in found:
            layer, members = kinds.setdefault((one.problem, one.device, one.of == "y"), (Layer([], one.problem), []))
            layer.names.append(one.name)
            layer.calls += 1
            members.append(one)
        all_of = list(kinds.values())
        with torch.no_grad(), torch._subclasses.fake_tensor.unset_fake_temporarily():
            if self._wanted.force:
                for layer, members in all_of:
                    _force(layer, device_of(members[0]))
            else:
                budget = self._wanted.budget * self._directions / 3
                decide_graph(all_of, budget, self._wanted.min_gain, self._phases, self._directions)
        self._layers += [layer for layer, _ in all_of]
        self._devices.update(str(one.device) for one in found)
        devices = ", ".join(sorted(self._devices))
        self.report = OptimizeReport(devices, True, self._layers, mode="convtune", pytorch=str(torch.__version__), step=True)
        return choices_of(all_of)  # type: ignore[arg-type]


def _force(layer: Layer, device: str) -> None:
    """Takes whatever kernel of convtune's there is, unmeasured."""
    problem: Any = layer.problem
    try:
        plan = Convolution(problem, device, "ours").plan
    except Unsupported:
        layer.decision = "PyTorch: no kernel of convtune's is for it"
        return
    layer.swapped, layer.algorithm, layer.config, layer.layout = True, plan.algorithm, plan.config, problem.layout
    layer.decision = "convtune: forced"
