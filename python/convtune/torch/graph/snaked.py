"""Snakes behind convolutions and residual steps of a graph, as the last step of the kernel in front: x + sin(alpha x)^2 / (divisor +
eps), of what is stored, or beside it where something else reads that, too: a step reads both. docs/decisions/0195-snakes-behind-sums.md has the reasons."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ...errors import Error
from ...pair import PairProblem
from ...problem import Problem
from ...tensors import pack_into
from ..batches import ANY_BATCH
from ..folding import Fold
from ..layout import empty
from ..packed import planned
from ..pairs import PairFold, Snake, planned_pair
from .pairs import PairChain, closed_between, rewrite_pair, same, snake_of
from .patterns import Chain, Weights, aten, rewrite

__all__ = ["SnakedChain", "SnakedFold", "rewrite_snaked", "snaked"]

_log = logging.getLogger("convtune")
_HALF = (torch.float16, torch.bfloat16)
_FEWER_STAGES = 2  # that a config may have to give for a Snake's numbers


@dataclass(frozen=True)
class SnakedFold:
    """The sources of what a convolution with a Snake behind it is packed of: biases, alphas and scales stand behind each other."""

    own: Fold
    snake: Snake

    @property
    def dtype(self) -> torch.dtype:
        return self.own.dtype

    @property
    def places(self) -> tuple[int | None, ...]:
        return *self.own.places, self.snake.alpha, self.snake.scale

    def at(self, places: Sequence[int | None]) -> SnakedFold:
        """This fold with its tensors at other places among the inputs."""
        *of_own, alpha, scale = places
        return SnakedFold(self.own.at(of_own), replace(self.snake, alpha=alpha, scale=scale))

    def fits(self, inputs: Sequence[Any]) -> Tensor | None:
        return self.own.fits(inputs)

    def pack(self, memory: Tensor, convolution: Any, inputs: Sequence[Any]) -> None:
        weight, bias = self.own.of(inputs)
        alpha, scale = self.snake.of(inputs)
        biases = torch.zeros_like(alpha) if bias is None else bias.float().flatten()
        pack_into(memory, convolution, weight, torch.cat((biases, alpha, scale)))


@dataclass
class SnakedChain:
    """A convolution or a residual step with the Snake that reads its value. `total`: the Snake's sum, None where there is none behind
    it; `beside`: something else reads the value; `activated`: a step, whose x comes with what its first Snake makes of it."""

    chain: Chain | PairChain
    fold: Fold | SnakedFold | PairFold
    total: Node | None
    beside: bool
    activated: bool

    @property
    def x(self) -> Node:
        """The input; an activated step's has both halves once the node in front of it was rewritten."""
        x = self.chain.x
        return x.args[0] if self.activated and x.target is aten.slice.Tensor else x  # type: ignore[return-value]

    def put(self, graph: Graph, made: Node) -> None:
        """`made` in the place of what it computes."""
        if self.total is None:
            self.chain.put(graph, made)
        elif not self.beside:
            self.total.replace_all_uses_with(made)
        else:
            value, count = self.chain.tail.meta["val"], self.chain.tail.meta["val"].shape[0]
            with graph.inserting_after(made):
                halves = [graph.call_function(aten.slice.Tensor, (made, 0, first, first + count)) for first in (count, 0)]
            for half, node in zip(halves, (self.total, self.chain.tail)):
                half.meta = {**node.meta, "val": value}
                node.replace_all_uses_with(half)


@dataclass(eq=False)
class _Wish:
    """A layer or step with what it might do: the Snake behind it (its sum, its numbers, and whether something else reads the value), `reader`:
    the step that it is the first Snake of; and whether it, a step, takes an x that is activated by `source`."""

    chain: Any
    line: str
    behind: tuple[Node, Snake, bool] | None = None
    reader: _Wish | None = None
    source: _Wish | None = None

    @property
    def index(self) -> int:
        return self.chain.x.meta["val"].get_device()  # type: ignore[no-any-return]

    @property
    def text(self) -> str:
        """Its line; "" where nothing is wished."""
        if self.behind is None and self.source is None:
            return ""
        where = "none" if self.behind is None else "beside" if self.behind[2] else "after"
        return _line(self.line, where, isinstance(self.chain, PairChain), self.source is not None)

    def gives_up(self) -> None:
        """Drops what no kernel does: first the x that a step in front activates, then the Snake behind this one."""
        if self.source is not None:
            self.source.behind = self.source.reader = None
            self.source = None
        else:
            if self.reader is not None:
                self.reader.source = None
            self.behind = self.reader = None

    def made(self, line: str) -> tuple[Any, str]:
        if not line:
            return self.chain, self.line
        total, snake, beside = self.behind or (None, None, False)
        fold = self.chain.fold
        if snake is not None:
            is_pair = isinstance(self.chain, PairChain)
            fold = replace(fold, snakes=(*fold.snakes, snake)) if is_pair else SnakedFold(fold, snake)
        return SnakedChain(self.chain, fold, total, beside, self.source is not None), line


def _line(line: str, where: str, of_pair: bool, activated: bool) -> str:
    """The plan's line for its problem with a Snake."""
    own, problem, *rest = line.split("\t")
    if of_pair:
        return "\t".join((own, str(replace(PairProblem.parse(problem), snake=where, activated=activated)), *rest))
    of = Problem.parse(problem)
    x, w, y, _ = of.dtypes
    of = of.replace(bias=True, dtype=f"{x}:{w}:{y}:f32", snake=where)
    return "\t".join((own, of.key, *rest))


def _planned(wish: _Wish) -> str:
    """The line of a kernel that does what is wished, with fewer stages where their memory is wanted; "" where there is none. Plans it,
    which may compile."""
    line = wish.text
    for _ in range(_FEWER_STAGES + 1 if line else 0):
        try:
            if (planned_pair(line, wish.index) if isinstance(wish.chain, PairChain) else planned(line, wish.index).convolution) is not None:
                return line
        except Error as why:
            _log.info("no kernel does this with its Snake: %s: %s", line.replace("\t", " "), str(why).splitlines()[0])
        line = re.sub(r"\bstages=(\d+)", lambda found: f"stages={int(found[1]) - 1}", line)
    return ""


def _readers(node: Node) -> list[Node]:
    """The nodes that read this one, also through views of its own shape."""
    found: list[Node] = []
    for user in node.users:
        found += [user] if same(user) is user else _readers(user)
    return found


def _has_room(chain: Chain | PairChain) -> bool:
    """True of what a kernel with a Snake might compute."""
    value = chain.tail.meta["val"]
    if value.dim() != 3 or value.dtype not in _HALF:
        return False
    if isinstance(chain, PairChain):
        return bool(chain.fold.snakes)
    return chain.activation == "none" and not chain.linear and chain.cache is None


def _snake_behind(chain: Chain | PairChain, weights: Weights, taken: set[Node]) -> tuple[Node, Snake, bool] | None:
    """(its sum, its numbers, whether something else reads the chain's value)."""
    value = chain.tail.meta["val"]
    for total in _readers(chain.tail):
        if total.target is not aten.add.Tensor or total in taken:
            continue
        found = snake_of(total, value.shape[1], weights)
        if found is None or found[0] is not total or same(total.args[found[1]]) is not chain.tail:
            continue
        if closed_between(total, chain.tail) and total.meta["val"].dtype is value.dtype:
            return total, found[2], not _reads_alone(total, chain.tail)
    return None


def _reads_alone(total: Node, x: Node) -> bool:
    """True where nothing but the Snake reads x."""
    inner, waiting = set[Node](), [total]
    while waiting:
        node = waiting.pop()
        if node is not x and node not in inner:
            inner.add(node)
            waiting += [one for one in node.all_input_nodes if one.op == "call_function"]
    return set(_readers(x)) <= inner


def snaked(taken: Sequence[tuple[Any, str]], weights: Weights) -> list[tuple[Any, str]]:
    """`taken`, chains and steps with the lines of their plans, with Snakes in those whose kernels have one."""
    in_pairs = {node for chain, _ in taken if isinstance(chain, PairChain) for node in chain.nodes}
    wishes = [_Wish(chain, line) for chain, line in taken]
    able = [one for one in wishes if one.line and one.line != ANY_BATCH and _has_room(one.chain)]
    by_tail = {one.chain.tail: one for one in able}
    for wish in able:
        wish.behind = _snake_behind(wish.chain, weights, in_pairs)
    for wish in able:
        if isinstance(wish.chain, PairChain):
            source = by_tail.get(wish.chain.x)
            if source is not None and source.behind is None:
                source.behind, source.reader, wish.source = (wish.chain.entry, wish.chain.fold.snakes[0], True), wish, source
    lines = {"": ""}  # by what was wished
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        while waiting := [one for one in able if one.text not in lines]:
            for text, line in zip([one.text for one in waiting], pool.map(_planned, waiting)):
                lines[text] = line
            for one in able:
                if one.text and not lines.get(one.text, "later"):
                    one.gives_up()
    return [one.made(lines[one.text] if one in able else "") for one in wishes]


def rewrite_snaked(graph: Graph, snaked: SnakedChain, constants: tuple[Node | None, ...], line: str) -> Node:
    """The operator that does the work of all of it."""
    made = (rewrite_pair if isinstance(snaked.chain, PairChain) else rewrite)(graph, snaked.chain, constants, line)  # type: ignore[arg-type]
    if snaked.activated:
        made.args = (snaked.x, *made.args[1:])
    if snaked.beside:
        value = snaked.chain.tail.meta["val"]
        with value.fake_mode:
            made.meta["val"] = empty((2 * value.shape[0], *value.shape[1:]), value, True)
    return made
