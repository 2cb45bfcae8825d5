"""Gradients in graphs that inductor compiles: of each convolution's backward, x's and the weight's with the bias's become
`convtune::conv_backward` where that is proven faster, each alone; the rest stays PyTorch's."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx import Graph, GraphModule, Node

from ...errors import InvalidArgument, Unsupported
from ...convolution import Convolution
from ...optimize_report import Layer, OptimizeReport
from ...problem import Problem
from ..backward import conv_backward, gradient_problem
from ..how import How
from ..measure.decide import choices_of, device_of
from ..measure.gradient_sides import GradientSides
from ..measure.graphs import decide_graph
from ..measure.phases import Phases
from ..run import TYPES
from .chains import Wanted

__all__ = ["GradientPass", "convolves"]

_backward: Any = torch.ops.aten.convolution_backward.default
_PLACES = {"x": (0,), "w": (1, 2)}  # of a direction's tensors among the results


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


def _found(node: Node) -> list[_Gradient]:
    """The gradients that a node computes; none of symbolic sizes, of other types, or beyond what a problem can be."""
    grad, x, weight, _, stride, padding, dilation, transposed, output_padding, groups, mask = node.args
    tensors = [one.meta["val"] for one in (grad, x, weight)]  # type: ignore[union-attr]
    sizes = [size for one in tensors for size in one.shape]
    dtypes = {one.dtype for one in tensors}
    if not all(type(size) is int for size in sizes) or len(dtypes) > 1 or not dtypes <= set(TYPES):
        return []
    if any(user.target is not operator.getitem for user in node.users):
        return []
    edges = (*padding, *padding)  # type: ignore[misc]
    geometry: Any = tuple(stride), edges, tuple(dilation), groups  # type: ignore[arg-type]
    how = How(*geometry, output_padding=tuple(output_padding) if transposed else ())  # type: ignore[arg-type]
    found = []
    for of, wanted in (("x", mask[0]), ("w", mask[1])):  # type: ignore[index]
        bias_type = tensors[0].dtype if of == "w" and mask[2] and not transposed else None  # type: ignore[index]
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


def _rewrite(graph: Graph, node: Node, own: dict[str, str], how: How, has_bias: bool) -> bool:
    """Puts the operator in the place of those directions. `own`: the lines of their plans. Leaves the graph and gives False
    where the results would lie otherwise, for views of them are made already."""
    mask = list(node.args[10])  # type: ignore[arg-type]
    ours = ["x" in own, "w" in own, "w" in own and has_bias and mask[2]]
    values = [one.meta["val"] for one in node.args[:3]]  # type: ignore[union-attr]
    words = *how.geometry, "auto", "\n".join(own.values()), how.output_padding
    made = conv_backward(*values, None, *words, ours)
    places = [place for place in range(3) if ours[place]]
    if any(made[place].stride() != node.meta["val"][place].stride() for place in places):
        return False
    with graph.inserting_before(node):
        new = graph.call_function(conv_backward, (*node.args[:3], None, *words, ours))
        new.meta = {**node.meta, "val": made}
        left = [bool(wanted and not taken) for wanted, taken in zip(mask, ours)]
        rest = graph.call_function(_backward, (*node.args[:10], left)) if any(left) else None
        if rest is not None:
            rest.meta = {**node.meta, "val": tuple(one if kept else None for one, kept in zip(node.meta["val"], left))}
    for user in list(node.users):
        user.args = (new if user.args[1] in places else rest or new, user.args[1])
    graph.erase_node(node)
    return True


class GradientPass(CustomGraphPass):
    """A pass over forward and backward graphs, before inductor lowers them; forwards have nothing for it. `report`: the
    decisions of the last backward; `taken`: how many gradients became convtune's."""

    def __init__(self, wanted: Wanted, phases: Phases) -> None:
        self._wanted, self._phases = wanted, phases
        self.report: OptimizeReport | None = None
        self.taken = 0

    def uuid(self) -> None:
        """Nothing: what is proven is not in the graph, so inductor may not keep what this pass made of it."""
        return None

    def __call__(self, graph: Graph) -> None:
        found = [one for node in graph.find_nodes(op="call_function", target=_backward) for one in _found(node)]
        if not found:
            return
        lines = self._decided(found)
        by_node: dict[Node, dict[str, str]] = {}
        for one in found:
            if one.name in lines:
                by_node.setdefault(one.node, {})[one.of] = lines[one.name]
        hows = {one.node: one.how for one in found}
        biased = {one.node for one in found if one.bias_type is not None}
        for node, own in by_node.items():
            if _rewrite(graph, node, own, hows[node], node in biased):
                self.taken += len(own)
        graph.lint()

    def _decided(self, found: list[_Gradient]) -> dict[str, str]:
        """The lines of plans by the gradients' names."""
        kinds: dict[Any, tuple[Layer, list[_Gradient]]] = {}
        for one in found:
            layer, members = kinds.setdefault((one.problem, one.device), (Layer([], one.problem), []))
            layer.names.append(one.name)
            layer.calls += 1
            members.append(one)
        all_of = list(kinds.values())
        with torch.no_grad(), torch._subclasses.fake_tensor.unset_fake_temporarily():
            if self._wanted.force:
                for layer, members in all_of:
                    _force(layer, device_of(members[0]))
            else:
                decide_graph(all_of, self._wanted.budget, self._wanted.min_gain, self._phases)
        layers, devices = [layer for layer, _ in all_of], ", ".join(sorted({str(one.device) for one in found}))
        self.report = OptimizeReport(devices, True, layers, mode="convtune", pytorch=str(torch.__version__), step=True)
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
