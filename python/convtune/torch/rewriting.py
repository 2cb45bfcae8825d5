"""Dynamo's graph rewritten for inductor: traced, matched, decided, its weights packed; or as an earlier process left it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from ..cached import cached_property
from ..errors import InvalidArgument, Unsupported
from ..optimize_report import OptimizeReport
from .batches import ANY_BATCH
from .beside import Branched, steps_of
from .folding import Fold, Folded, Packing, as_allowed, refreshing
from .graph.capture import as_dynamo_says, captured
from .graph.chains import Wanted, decided, decided_pairs
from .graph.ends import repeat_ends_first
from .graph.frames import fix_frames, number
from .graph.joined import join_channels_last, pad_as_they_are
from .graph.operators.instances import take_instance_norms
from .graph.operators.linear import linear_chains
from .graph.operators.norms import group_coefficients
from .graph.operators.snakes import take_snakes
from .graph.pairs import PairChain, pair_chains, rewrite_pair
from .graph.patterns import Chain, Weights, chains, rewrite
from .graph.snaked import SnakedChain, rewrite_snaked, snaked
from .graph.remembered import Remembered, keep, key_of_graph, recalled
from .measure.phases import Phases
from .packed import planned
from .pairs import PairFold, planned_pair

__all__ = ["Rewritten", "rewritten"]

_log = logging.getLogger("convtune")


def _fits(chain: Chain, inputs: Sequence[Any]) -> bool:
    """True where the type of its weights has the digits for the norm that is folded into them."""
    with torch.no_grad():
        fits = chain.fold.fits(inputs)
    return fits is None or bool(fits)


def _constant(chain: Chain | PairChain | SnakedChain, plan: str) -> Fold | Packing | None:
    """The form in which the graph is to hold a chain's weights: packed, where a plan says by which kernel, else
    folded."""
    if isinstance(chain.fold, PairFold):
        return Packing(chain.fold, planned_pair(plan, chain.x.meta["val"].get_device()))
    if plan and plan != ANY_BATCH:
        convolution = planned(plan, chain.x.meta["val"].get_device()).convolution
        assert convolution is not None
        return Packing(chain.fold, convolution)
    return None if chain.fold.is_of_inputs else chain.fold


def _add_constants(
    traced: GraphModule, wanted: Sequence[tuple[Chain | PairChain, str]], inputs: Sequence[Any]
) -> tuple[Folded | None, list[tuple[Node | None, ...]], list[tuple[Any, str, int]]]:
    """Packed and folded weights as buffers of the graph, which CUDA graphs read where they lie; their nodes, by chain; and what
    they are of: folds, the lines of their plans where they are packed, and indices of GPUs. What several chains hold alike (a
    layer that is called on many pieces) is there once."""
    constants = [_constant(chain, plan) for chain, plan in wanted]
    made = list(dict.fromkeys(one for one in constants if one is not None))
    if not made:
        return None, [() for _ in wanted], []
    folded = Folded(made, inputs)
    first = next(node for node in traced.graph.nodes if node.op != "placeholder")

    def node(tensor: Tensor | None, name: str) -> Node | None:
        if tensor is None:
            return None
        traced.register_buffer(name, tensor)
        with traced.graph.inserting_before(first):
            return traced.graph.get_attr(name)

    nodes: dict[Any, tuple[Node | None, ...]] = {None: ()}
    for number, (one, tensors) in enumerate(zip(made, folded.tensors)):
        nodes[one] = tuple(node(tensor, f"convtune_{number}_{part}") for part, tensor in enumerate(tensors))
    of = {one: (chain.fold, plan if isinstance(one, Packing) else "", chain.x.meta["val"].get_device())
          for one, (chain, plan) in zip(constants, wanted)}  # fmt: skip
    return folded, [nodes[one] for one in constants], [of[one] for one in made]


def _name_constants(traced: GraphModule) -> None:
    """Inductor asks where each of a graph's own tensors is from."""
    from torch._dynamo.source import ConstantSource

    sources: Any = traced._param_name_to_source
    for name, _ in [*traced.named_parameters(), *traced.named_buffers()]:
        sources[name] = ConstantSource(name)


@dataclass
class Rewritten:
    """Dynamo's graph with convtune's operators. `read`: the places of the inputs that it takes: parameters that are
    packed are looked at by `folded` alone, and cost inductor's call nothing. `convolutions_alone`: nothing else of it is
    convtune's, and nothing is copied for them. `kinds`: of its layers, whatever the batch; `any_batch`: its sizes are
    symbols, or it is that of a batch of 1 beside one of symbols."""

    graph: GraphModule
    original: GraphModule  # Dynamo's
    folded: Folded | None
    read: list[int]
    convolutions_alone: bool
    kinds: Any
    any_batch: bool

    def compiled(self, compile: Callable[..., Any], inputs: Sequence[Any], beside: bool = False) -> Callable[..., Any]:
        """`beside`: branches are compiled apart, too, and can be recorded beside each other."""
        read, own = self.read, [inputs[at] for at in self.read]
        apart = None
        for take, of in ((take_snakes, "Snakes"), (take_instance_norms, "instance norms")) if beside else ():
            try:
                if taken := take(self.graph, own):
                    _log.info("%d %s are by kernels that overlap", taken, of)
            except Exception:
                _log.warning("%s of a graph stay inductor's: they could not be rewritten", of, exc_info=True)
        try:  # before the whole, which is what Dynamo is to know
            steps = steps_of(self.graph, own) if beside and self.may_run_twice else []
            apart = Branched(self.graph, steps, compile) if steps else None
        except Exception:
            _log.warning("branches of a graph stay in a row: they could not be compiled apart", exc_info=True)
        graph = compile(self.graph, own)
        if apart is not None:
            apart.whole, graph = graph, apart

        def call(*inputs: Any) -> Any:
            return graph(*[inputs[at] for at in read])

        run = graph if len(read) == len(inputs) else call
        if self.folded is None:
            return run  # type: ignore[no-any-return]
        index = max((one.get_device() for one in inputs if isinstance(one, Tensor)), default=-1)
        fresh = refreshing(run, self.original, self.folded, index >= 0 and self.may_run_twice)
        planned_in_float32 = (isinstance(one, Packing) and one.fold.dtype is torch.float32 for one in self.folded.folds)
        return as_allowed(fresh, self.original, index) if any(planned_in_float32) else fresh

    @property
    def fits(self) -> bool:
        """True where types of weights have the digits for what is folded into them."""
        return self.folded is None or self.folded.fits

    @cached_property
    def may_run_twice(self) -> bool:
        """True where two runs give what one gives: nothing is written, no random numbers."""
        targets = [node.target for node in self.graph.graph.nodes if node.op == "call_function"]
        operators = [one for one in targets if isinstance(one, torch._ops.OpOverload)]
        return not any(one._schema.is_mutable or torch.Tag.nondeterministic_seeded in one.tags for one in operators)


def rewritten(
    module: GraphModule, inputs: Sequence[Any], wanted: Wanted, phases: Phases
) -> tuple[Rewritten | None, OptimizeReport]:
    """The rewritten graph, None where nothing is convtune's, and what was decided."""
    fix_frames(module.graph)
    inputs = list(map(number, inputs))
    places = module.graph.find_nodes(op="placeholder")

    def is_static(place: int) -> bool:
        marked = places[place].meta.get("tensor_dict", {}).get("_dynamo_static_input_type")
        return marked is not None and isinstance(inputs[place], Tensor)

    with phases("tracing and matching"):
        key = key_of_graph(module, inputs, list(map(is_static, range(len(places)))), wanted)
        known = recalled(key, wanted, phases)
    if known is not None:
        found, report = known
        with contextlib.suppress(InvalidArgument, Unsupported):  # a plan's line may be refused by now
            result = _again(found, module, inputs, key, phases)
            if result is None or result.fits:
                return result, report
    with phases("tracing and matching"):
        traced = captured(module, inputs)
        weights = Weights(traced.graph, is_static)
        found_chains = chains(traced.graph, weights)
        found_chains += linear_chains(traced.graph, weights)
        found_chains = [chain for chain in found_chains if _fits(chain, inputs)]
    choices, report, kinds, in_words = decided(found_chains, wanted, phases)
    layers = [(one.names, str(one.problem), one.calls, *words) for one, words in zip(report.layers, in_words)]
    pairs, pair_rows, pair_keys = decided_pairs(pair_chains(found_chains, weights), found_chains, choices, wanted, phases)
    report.layers += pair_rows
    remembered = [(one.names, one.pair, one.calls, key) for one, key in zip(pair_rows, pair_keys)]
    in_pairs = {id(chain) for pair, _ in pairs for chain in (pair.first, pair.second)}
    taken: list[tuple[Any, str]] = [
        (chain, line) for chain, line in zip(found_chains, choices) if line is not None and id(chain) not in in_pairs
    ]
    taken = snaked(taken + pairs, weights)
    any_batch = any(line == ANY_BATCH for _, line in taken)
    if any_batch or "" in pair_keys:  # also one of a batch of 1: another process may not have the stream that it belongs to
        key = ""
    norms = traced.graph.find_nodes(op="call_function", target=group_coefficients)
    if not norms and not taken:
        if key:
            keep(key, Remembered(None, [], [], False, layers, pairs=remembered), wanted)
        return None, report
    with phases("folding and packing"):
        folded, constants, of = _add_constants(traced, taken, inputs)
    for (chain, line), own in zip(taken, constants):
        made = rewrite_pair if isinstance(chain, PairChain) else rewrite_snaked if isinstance(chain, SnakedChain) else rewrite
        chain.put(traced.graph, made(traced.graph, chain, own, line))
    traced.graph.eliminate_dead_code()
    repeat_ends_first(traced.graph)
    join_channels_last(traced.graph)
    pad_as_they_are(traced.graph)
    entries = traced.graph.find_nodes(op="placeholder")
    read = [at for at, node in enumerate(entries) if node.users or not is_static(at)]
    for at in set(range(len(entries))).difference(read):
        traced.graph.erase_node(entries[at])
    are_copied = any("convtune" in node.meta for node in traced.graph.nodes)
    alone = not norms and not are_copied
    if key and (kept := keep(key, Remembered(traced, of, read, alone, layers, pairs=remembered), wanted)) is not None and kept.graph is not None:
        traced = _filled(kept, module, folded)
    _name_constants(traced)
    traced.recompile()
    return Rewritten(traced, module, folded, read, alone, (kinds, wanted), any_batch), report


def _filled(found: Remembered, module: GraphModule, folded: Folded | None) -> GraphModule:
    """A graph that was read, with its constants and what Dynamo says of its inputs."""
    traced: Any = found.graph
    for number, tensors in enumerate([] if folded is None else folded.tensors):
        for part, tensor in enumerate(tensors):
            if f"convtune_{number}_{part}" in traced._buffers:
                traced._buffers[f"convtune_{number}_{part}"] = tensor
    traced.meta.update(module.meta)
    traced.__dict__["_param_name_to_source"] = {}
    places = module.graph.find_nodes(op="placeholder")
    as_dynamo_says([places[at] for at in found.read], traced.graph.find_nodes(op="placeholder"))
    return traced  # type: ignore[no-any-return]


def _again(found: Remembered, module: GraphModule, inputs: Sequence[Any], key: str, phases: Phases) -> Rewritten | None:
    """The graph of an earlier process with this one's weights; None where nothing was convtune's."""
    if found.graph is None:
        return None
    with phases("folding and packing"):
        made = found.made()
        folded = Folded(made, inputs) if made else None
    traced = _filled(found, module, folded)
    _name_constants(traced)
    return Rewritten(traced, module, folded, found.read, found.convolutions_alone, key, False)
