"""Decides which chains of a compiled graph are convtune's: the contests of optimize, one for each kind of chain,
remembered for the process, since graphs are compiled again."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ...errors import InvalidArgument
from ...geometry import real, seconds_of
from ...optimize_report import Layer, OptimizeReport
from ...problem import Problem
from ..batches import ANY_BATCH
from ..measure.decide import VENDORS, choices_of, device_of
from ..measure.graphs import decide_graph
from ..measure.pairs import Step, decide_pairs
from ..measure.phases import Phases
from ..measure.sides import Fused
from ..run import choice_line, convolution_of
from .pairs import PairChain
from .patterns import Chain

__all__ = ["Wanted", "decided", "decided_pairs"]


@dataclass(frozen=True)
class Wanted:
    """The user's settings for the decision."""

    budget: float = 0.0
    min_gain: float = 0.02
    whole: bool | None = None
    force: bool = False
    # Layers are decided alike with and without these.
    beside: bool = field(default=False, compare=False, repr=False)  # parts are compiled, too
    progress: bool = field(default=True, compare=False, repr=False)

    def __post_init__(self) -> None:
        seconds_of(self.budget, "convtune.budget")
        real(self.min_gain, "convtune.min_gain")


# Decisions of this process: (layer, choice or None), by problem, device, and what was asked; of a graph of symbolic sizes
# also those of another batch.
_decided: dict[Any, tuple[Layer, str | None]] = {}
# Kinds of layers, whatever the batch, that graphs of symbolic sizes have.
_of_any_batch: set[Any] = set()
_APART = 1  # the batch of which PyTorch makes a graph with numbers, beside one of symbolic sizes


def _hints(values: Any) -> tuple[int, ...]:
    """Sizes as numbers; of symbolic ones, those of the example."""
    return tuple(one if isinstance(one, int) else int(one.node.hint) for one in values)


def _described(chain: Chain) -> Fused:
    x, weight = chain.x.meta["val"], chain.weight.meta["val"]
    bias: Any = chain.convolution.args[2]
    residual = None if chain.residual is None else chain.residual.meta["val"]
    cache = None if chain.cache is None else chain.cache.meta["val"]
    bias_type = None
    if chain.has_bias:
        bias_type = bias.meta["val"].dtype if chain.fold.as_they_are else torch.float32
    geometry: Any = {name: _hints(getattr(chain.how, name)) for name in ("stride", "padding", "dilation", "output_padding")}
    return Fused(
        chain.convolution.name, _hints(x.shape), _hints(x.stride()), _hints(weight.shape), _hints(weight.stride()),
        x.dtype, x.device, bias_type, replace(chain.how, **geometry),
        None if residual is None else _hints(residual.stride()),
        chain.fold.places[2] is not None, linear=chain.linear,
        cache=None if cache is None else (_hints(cache.shape), _hints(cache.stride())),
    )  # fmt: skip


def _is_symbolic(chain: Chain) -> bool:
    return any(not isinstance(size, int) for size in chain.x.meta["val"].shape)


def _follows(problem: Problem, any_batch: Any) -> bool:
    """True of a layer of the graph that PyTorch makes for a batch of 1 beside one for any other: a stream of batches waits for it,
    so it is that graph, with a number."""
    return problem.n == _APART and any_batch in _of_any_batch


def _forced(fused: Fused) -> str | None:
    """A plan of convtune's kernel for that chain; "" where the vendor's through convtune computes it; None where none
    does."""
    x, weight = fused.empty()
    how, kind = fused.how, fused.bias_type
    bias = None if kind is None else torch.empty(how.channels(weight), dtype=kind, device=fused.device)
    words: Any = *how.words_of_graphs[:7], fused.residual_strides is not None
    convolution = convolution_of(x, weight, bias, *words, fused.empty_cache(), how.output_padding or None)
    if convolution is not None and convolution.plan.algorithm not in VENDORS:
        problem, plan = fused.problem, convolution.plan
        return choice_line(device_of(fused), problem, problem, plan.algorithm, plan.config)
    return None if convolution is None or fused.cache is not None else ""


def decided(
    found: list[Chain], wanted: Wanted, phases: Phases
) -> tuple[list[str | None], OptimizeReport, frozenset[Any], list[tuple[str, str]]]:
    """For each chain what the operator's `choices` are, or None: PyTorch's; the table; the kinds of layers with their
    numbers, which are the same for graphs that differ in the batch; and each row's kind in words, and device. A chain of symbolic
    sizes, or of a batch of 1 beside it, is decided as the same of another batch was, else by the sizes of the example, and then
    planned for whatever size comes."""
    with torch.no_grad():
        kinds: dict[Any, tuple[Layer, list[Fused]]] = {}
        keys, batches, followers = [], dict[Any, Any](), dict[Any, tuple[Layer, str | None]]()
        for chain in found:
            fused = _described(chain)
            try:
                problem = fused.problem
            except InvalidArgument:  # beyond what a problem can be
                keys.append(None)
                continue
            key = problem, fused.device, fused.normed, fused.linear, wanted
            any_batch = problem.replace(n=1), *key[1:], ANY_BATCH
            if _is_symbolic(chain):
                _of_any_batch.add(any_batch)
            if key not in _decided and any_batch in _decided and (_is_symbolic(chain) or _follows(problem, any_batch)):
                followers[key] = _decided[any_batch]  # here alone: its line is another batch's, and no other graph's of this one
            batches[key] = any_batch
            keys.append(key)
            layer, members = kinds.setdefault(key, (Layer([], problem), []))
            layer.names.append(fused.name)
            layer.calls += 1
            members.append(fused)
        fresh = {key: kind for key, kind in kinds.items() if key not in _decided and key not in followers}
        if wanted.force:
            for key, (layer, members) in fresh.items():
                line = _forced(members[0])
                layer.swapped = line is not None
                layer.decision = "convtune: forced" if layer.swapped else "PyTorch: no kernel of convtune's is for it"
                _decided[key] = layer, line
        else:
            decide_graph(list(fresh.values()), wanted.budget, wanted.min_gain, phases)
            for key, kind in fresh.items():
                _decided[key] = kind[0], next(iter(choices_of([kind]).values()), None)
    taken = {key: followers.get(key) or _decided[key] for key in batches}
    for key, any_batch in batches.items():
        _decided[any_batch] = taken[key]
    lines = [None if key is None else taken[key][1] for key in keys]
    choices = [
        None if line is None else ANY_BATCH if _is_symbolic(chain) or key in followers else line
        for chain, key, line in zip(found, keys, lines)
    ]
    layers = []
    for key, (layer, _) in kinds.items():
        before = taken[key][0]
        layers.append(Layer(**{**vars(before), "names": layer.names, "calls": layer.calls}))
    devices = ", ".join(sorted({str(key[1]) for key in kinds}))
    report = OptimizeReport(devices, False, layers, mode="convtune", pytorch=str(torch.__version__))
    report.seconds = phases.seconds
    in_words = [(members[0].kind, str(members[0].device)) for _, members in kinds.values()]
    return choices, report, frozenset(Counter(batches[key] for key in keys if key is not None).items()), in_words


def _step(pair: PairChain, lines: dict[int, str | None], tails: set[Any]) -> Step:
    """`lines`: of chains, by their ids; `tails`: nodes that are operators of convtune's by now, which no compiler puts a pass in."""
    users = [user for user in pair.x.users if user.target is pair.entry.target and user.args[1:] == pair.entry.args[1:]]
    is_shared = pair.problem.slope is not None and len(users) > 1
    of_two = lines[id(pair.first)], lines[id(pair.second)]
    is_activated = pair.x not in tails or is_shared
    return Step(pair.problem, _described(pair.first), _described(pair.second), of_two, is_activated, pair.second.activation)


def decided_pairs(
    pairs: list[PairChain], found: list[Chain], choices: list[str | None], wanted: Wanted, phases: Phases
) -> tuple[list[tuple[PairChain, str]], list[Layer], list[str]]:
    """The steps that are one operator, with the lines of their plans; rows for the report, and what they are remembered by. `choices`:
    the decision for each of the chains `found`."""
    lines = {id(chain): line for chain, line in zip(found, choices)}
    pairs = [one for one in pairs if ANY_BATCH not in (lines.get(id(one.first)), lines.get(id(one.second)))]
    tails = {node for chain in found if lines[id(chain)] is not None for node in (chain.tail, chain.total)}
    steps = [_step(pair, lines, tails) for pair in pairs]
    plans, layers, keys = decide_pairs(steps, wanted.min_gain, wanted.force, phases)
    return [(pair, plan) for pair, plan in zip(pairs, plans) if plan is not None], layers, keys
