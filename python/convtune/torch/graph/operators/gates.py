"""Squeeze-and-excite in a compiled graph: where its kernels are faster than the convolutions and passes that it is made
of, as contests say, one for each kind, remembered for the process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node

from ....errors import Unsupported
from ....optimize_report import Layer
from ...how import How
from ...measure.contests import key_of, recall
from ...measure.decide import check_and_contest, median_us
from ...measure.sides import Fused, FusedSides, random
from ...measure.timing import Stopwatch
from ...run import fingerprint, pytorch_conv2d
from ..chains import Wanted, described
from ..patterns import Chain, aten, only_user
from .images import is_for
from .squeeze import FIRSTS, SECONDS, conv2d_scaled, squeeze_excite

__all__ = ["Gate", "Scaled", "gates_and_scaled"]

_decided: dict[Any, Any] = {}  # (report's row, whether; or the tile, or None)


def _is_pointwise(chain: Chain) -> bool:
    """A 1x1 convolution that reads every pixel once."""
    return tuple(chain.weight.meta["val"].shape[2:]) == (1, 1) and chain.how.geometry == How().geometry


def _is_of_kernels(value: Tensor) -> bool:
    """True where kernels take images like that fake tensor."""
    return value.dim() == 4 and all(isinstance(size, int) for size in value.shape) and is_for(value)


@dataclass
class Gate:
    """mean (`pool`) → 1x1 convolution → activation → 1x1 convolution → activation (`tail`)."""

    pool: Node
    first: Chain
    second: Chain
    tail: Node
    activation: str  # the second

    @property
    def x(self) -> Node:
        """The image as it stands now, like a chain's residual."""
        return self.pool.args[0]  # type: ignore[return-value]

    @property
    def shapes(self) -> tuple[Any, ...]:
        x, w1 = self.x.meta["val"], self.first.weight.meta["val"]
        biases = self.first.convolution.args[2] is not None, self.second.convolution.args[2] is not None
        return tuple(x.shape), w1.shape[0], x.dtype, x.device, *biases, self.first.activation, self.activation

    def rewrite(self, graph: Graph) -> None:
        with graph.inserting_after(self.tail):
            weights = *self.first.convolution.args[1:3], *self.second.convolution.args[1:3]
            names = self.first.activation, self.activation
            made = graph.call_function(squeeze_excite, (self.x, *weights, *names))
        made.meta = dict(self.tail.meta)
        self.tail.replace_all_uses_with(made)


@dataclass
class Scaled:
    """A chain of a 1x1 convolution whose input is x times a scale of each image's channels. `of_scale`: its place among
    the two factors."""

    chain: Chain
    of_scale: int
    tile: Any = None

    @property
    def x(self) -> Node:
        return self.chain.x.args[1 - self.of_scale]  # type: ignore[return-value]

    @property
    def scale(self) -> Node:
        return self.chain.x.args[self.of_scale]  # type: ignore[return-value]

    def rewrite(self, graph: Graph, constants: tuple[Node | None, ...]) -> None:
        """`constants`: folded weight and bias, or nothing where they are the convolution's own."""
        chain = self.chain
        with graph.inserting_after(chain.tail):
            weights = constants or chain.convolution.args[1:3]
            rest = chain.residual, chain.activation, list(self.tile)
            made = graph.call_function(conv2d_scaled, (self.x, self.scale, *weights, *rest))  # type: ignore[arg-type]
        made.meta = dict(chain.tail.meta)
        chain.tail.replace_all_uses_with(made)


def _pool(node: Node) -> Node | None:
    """The mean over all pixels that the node is, or is another view of."""
    if node.target is aten.as_strided.default and len(node.users) == 1:
        node = node.args[0]  # type: ignore[assignment]
    if not isinstance(node, Node) or node.target is not aten.mean.dim or len(node.users) != 1 or node.kwargs:
        return None
    _, dims, keeps = (*node.args, False)[:3]
    return node if keeps and {dim % 4 for dim in dims} == {2, 3} else None  # type: ignore[union-attr]


def _gate(second: Chain, by_tail: dict[Node, Chain]) -> Gate | None:
    first = by_tail.get(second.x)
    if first is None or only_user(first.tail) is not second.convolution:
        return None
    pool = _pool(first.x)
    if pool is None or first.activation not in FIRSTS:
        return None
    x: Any = pool.args[0]
    if not _is_of_kernels(x.meta["val"]):
        return None
    for one in (first, second):
        if not one.fold.as_they_are or one.total is not None or not _is_pointwise(one):
            return None
    tail, activation = second.tail, second.activation
    behind = only_user(tail)
    if activation == "none" and behind is not None and behind.target is aten.hardsigmoid.default:
        tail, activation = behind, "hardsigmoid"
    same = second.convolution.meta["val"].shape[1] == x.meta["val"].shape[1]
    return Gate(pool, first, second, tail, activation) if same and activation in SECONDS else None


def _scaled(chain: Chain) -> Scaled | None:
    times = chain.x
    if times.target is not aten.mul.Tensor or len(times.users) != 1 or not _is_pointwise(chain):
        return None
    if chain.activation not in ("none", *FIRSTS) or not _is_of_kernels(times.meta["val"]):
        return None
    if not all(isinstance(factor, Node) for factor in times.args):
        return None
    value, factors = times.meta["val"], [factor.meta["val"] for factor in times.args]  # type: ignore[union-attr]
    of_scale = int(tuple(factors[1].shape[2:]) == (1, 1))
    x, scale = factors[1 - of_scale], factors[of_scale]
    fits = x.shape == value.shape and scale.shape == (*value.shape[:2], 1, 1) and x.shape != scale.shape
    same = x.dtype is value.dtype and scale.dtype is value.dtype
    return Scaled(chain, of_scale) if fits and same and _is_of_kernels(x) else None


class _GateSides:
    """The parts, as they would run without it: each convolution PyTorch's or by its plan."""

    def __init__(self, gate: Gate, lines: tuple[str | None, str | None]) -> None:
        (n, c, h, w), _, dtype, device, *_ = gate.shapes
        self.x = random((n, c, h, w), (c * h * w, 1, w * c, c), dtype, device)
        self.parts: list[tuple[FusedSides, str | None]] = []
        for chain, line in zip((gate.first, gate.second), lines):
            self.parts.append((described(chain).sides(), line))
        self.names = gate.first.activation, gate.activation

    def _of(self, x: Tensor, convolve: Callable[[FusedSides, str | None], Tensor]) -> Tensor:
        y = x.mean((2, 3), keepdim=True)
        for side, line in self.parts:
            side.x = y
            y = convolve(side, line)
        return torch.nn.functional.hardsigmoid(y) if self.names[1] == "hardsigmoid" else y

    def expected(self) -> Tensor:
        return self._of(self.x, lambda side, _: side.expected())

    def exact(self, images: int) -> Tensor:
        return self._of(self.x[:images].double(), lambda side, _: side.exact(images))

    def pytorch(self) -> Tensor:
        return self._of(self.x, lambda side, line: side.pytorch() if line is None else side.convtune(line)())

    def convtune(self, _: str) -> Callable[[], Tensor]:
        weights = [one for side, _ in self.parts for one in (side.weight, side.bias)]
        return lambda: squeeze_excite(self.x, *weights, *self.names)  # type: ignore[no-any-return]


class _ScaledSides:
    """A pass that scales, and the convolution, PyTorch's or by its plan."""

    def __init__(self, fused: Fused, line: str | None) -> None:
        self.side, self.line = fused.sides(), line
        self.x = self.side.x
        shape = *fused.shape[:2], 1, 1
        self.scale = random(shape, (fused.shape[1], 1, 1, 1), fused.dtype, fused.device)

    def expected(self) -> Tensor:
        self.side.x = self.x * self.scale
        return self.side.expected()

    def exact(self, images: int) -> Tensor:
        side, fused = self.side, self.side.fused
        x = self.x[:images].double() * self.scale[:images].double()
        bias = None if side.bias is None else side.bias.double()
        residual = None if side.residual is None else side.residual[:images].double()
        return pytorch_conv2d(x, side.weight.double(), bias, fused.how, residual)

    def pytorch(self) -> Tensor:
        self.side.x = self.x * self.scale
        return self.side.pytorch() if self.line is None else self.side.convtune(self.line)()

    def convtune(self, tile: Any) -> Callable[[], Tensor]:
        side = self.side
        rest = self.x, self.scale, side.weight, side.bias, side.residual, side.fused.how.activation, list(tile)
        return lambda: conv2d_scaled(*rest)  # type: ignore[no-any-return]


def _settled(
    layer: Layer, make_sides: Callable[[], Any], way: Any, wanted: Wanted, stopwatch: Stopwatch, words: str, key: str
) -> bool:
    try:
        result = check_and_contest(make_sides, "auto", way, stopwatch, wanted.min_gain, key)
    except Unsupported as why:
        layer.decision = f"{layer.decision}: {str(why).splitlines()[0]}"
        return False
    layer.take(result)
    layer.decision = words if result.accepted else f"its parts: {100 * wanted.min_gain:.3g} % less is not proven"
    return result.accepted


def _key(what: str, device: torch.device) -> str:
    return key_of(what, fingerprint(f"cuda:{device.index}"), device)


def _wants_gate(gate: Gate, lines: Any, wanted: Wanted, stopwatch: Callable[[Any], Stopwatch], layer: Layer) -> bool:
    if wanted.force:
        return True
    device = gate.x.meta["val"].device
    key = _key(f"gate {gate.shapes} {lines} {wanted.min_gain}", device)
    words = "convtune: squeeze_excite"
    return _settled(layer, lambda: _GateSides(gate, lines), "", wanted, stopwatch(device), words, key)


def _tile(one: Scaled, line: str | None, wanted: Wanted, stopwatch: Callable[[Any], Stopwatch], layer: Layer) -> Any:
    from .squeeze_kernels import tiles_of

    fused = described(one.chain)
    tiles = tiles_of(fused.shape[1], fused.weight_shape[0])
    if wanted.force:
        return tiles[0]
    watch = stopwatch(fused.device)
    keys = {tile: _key(f"scaled {fused.kind} {line} {tile} {wanted.min_gain}", fused.device) for tile in tiles}
    best = next((tile for tile in tiles if recall(keys[tile])), None)
    sides = None if best else _ScaledSides(fused, line)
    best = best or min(tiles, key=lambda tile: median_us(sides.convtune(tile), watch))
    words = f"convtune: conv2d_scaled {best}"
    return best if _settled(layer, lambda: sides, best, wanted, watch, words, keys[best]) else None


def gates_and_scaled(
    found: list[Chain], choices: list[str | None], wanted: Wanted
) -> tuple[list[Gate], list[Scaled], list[Layer]]:  # fmt: skip
    """The chains of a graph that are better parts of one of these operators, and the report's rows. `choices`: what
    was decided for each chain by itself, which is what it has to beat."""
    stopwatches: dict[Any, Stopwatch] = {}

    def stopwatch(device: torch.device) -> Stopwatch:
        if device not in stopwatches:
            stopwatches[device] = Stopwatch(device)
        return stopwatches[device]

    by_tail, line_of = {one.tail: one for one in found}, {id(one): line for one, line in zip(found, choices)}
    gates, scaled, rows = [], [], {}

    def decided(key: Any, chain: Chain, decide: Callable[[Layer], Any]) -> Any:
        if key not in _decided:
            layer = Layer([], described(chain).problem)
            _decided[key] = layer, decide(layer)
        layer, result = _decided[key]
        row = rows.setdefault(key, Layer(**{**vars(layer), "names": [], "calls": 0}))
        row.names.append(chain.convolution.name)
        row.calls += 1
        return result

    with torch.no_grad():
        for chain in found:
            gate, one = _gate(chain, by_tail), _scaled(chain)
            if gate is not None:
                lines = line_of[id(gate.first)], line_of[id(gate.second)]
                key = "gate", gate.shapes, lines, wanted
                if decided(key, chain, lambda layer, g=gate, l=lines: _wants_gate(g, l, wanted, stopwatch, layer)):
                    gates.append(gate)
            elif one is not None:
                line = line_of[id(chain)]
                fused = described(chain)
                key = "scaled", fused.problem, fused.device, line, wanted
                one.tile = decided(key, chain, lambda layer, s=one, l=line: _tile(s, l, wanted, stopwatch, layer))
                if one.tile is not None:
                    scaled.append(one)
    return gates, scaled, list(rows.values())
