"""Instance norms of a graph that is recorded, of images and volumes channels last behind one of convtune's convolutions: statistics by one
kernel of ours, in Triton, the rest inductor's.

    scale, shift = torch.ops.convtune.instance_coefficients(x, weight, bias, counters, first, eps)
    y = x * scale + shift              # what inductor fuses with the activation, the sum and the padding that follow

Inductor's own statistics are two kernels: sums of parts of an image, and what they make together. Here the last program of a channel's
parts to arrive does the second. `counters`: int32 zeros, which are zeros again behind it; its own begin at `first`.
Inductor's two kernels are as fast for images of 64x64 pixels. docs/decisions/0201-instance-norms-in-one-launch.md has the reasons.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node

from ...native import define
from ...packed import conv2d_packed, conv3d_packed
from ..capture import Values, fakes_of
from .images import has_triton, is_for, processors
from .norms import as_image
from .snakes import launches_overlap

__all__ = ["instance_coefficients", "take_instance_norms", "zero_counters"]

_log = logging.getLogger("convtune")
aten: Any = torch.ops.aten
_LEAST_PIXELS = 128 * 128  # pixels of an image: for fewer inductor's kernels are as fast


def _fake(x: Tensor, weight: Tensor | None, bias: Tensor | None, counters: Tensor, first: int, eps: float) -> tuple[Tensor, Tensor]:
    shape = x.shape[0], x.shape[1], 1, 1
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.float32)


def _kernel(x: Tensor, weight: Tensor | None, bias: Tensor | None, counters: Tensor, first: int, eps: float) -> tuple[Tensor, Tensor]:
    if not x.is_cuda or not is_for(x):
        variance, mean = torch.var_mean(x.float(), (2, 3), correction=0, keepdim=True)
        scale = (variance + eps).rsqrt()
        scale = scale if weight is None else scale * weight.float().reshape(1, -1, 1, 1)
        shift = -mean * scale
        return scale, shift if bias is None else shift + bias.float().reshape(1, -1, 1, 1)
    from .instance_kernels import launch_instances

    scale, shift = _fake(x, weight, bias, counters, first, eps)
    with torch.cuda.device(x.device):
        index = x.get_device()
        launch_instances(x, weight, bias, counters[first:], eps, scale, shift, processors(index), launches_overlap(index))
    return scale, shift


instance_coefficients: Any = define(
    "instance_coefficients(Tensor x, Tensor? weight, Tensor? bias, Tensor counters, int first, float eps) -> (Tensor, Tensor)",
    _kernel, _fake,
)  # fmt: skip


def _fake_counters(x: Tensor, count: int) -> Tensor:
    return x.new_empty(count, dtype=torch.int32)


def _zero_counters(x: Tensor, count: int) -> Tensor:
    return x.new_zeros(count, dtype=torch.int32)


# One tensor for all norms of a graph: inductor would make zeros of its own for each of them, by a kernel each.
zero_counters: Any = define("zero_counters(Tensor x, int count) -> Tensor", _zero_counters, _fake_counters)


def _only_user(node: Node, target: Any) -> Node | None:
    (user, *more) = (*node.users, None)
    return user if user is not None and not any(more) and user.target is target else None


def _of_each_image(value: Any, images: int) -> tuple[bool, Any]:
    """(True, w) where `value` is None or w, a number for each channel, repeated for each image; else (False, None)."""
    if value is None or images == 1:
        return True, value
    if value.target is not aten.repeat.default or list(value.args[1]) != [images]:
        return False, None
    return True, value.args[0]


def _norm_of(node: Node) -> tuple[Node, Node, Any, Any, float] | None:
    """(x, what its norm is, weight, bias, eps) of a batch norm of one image of all images' channels, as ATen writes an instance norm."""
    args: Any = node.args
    view, weight, bias, training, _, eps = args
    if view.target is not aten.view.default or not training:
        return None
    x = view.args[0]
    if x.target is aten.clone.default:
        x = x.args[0]
    value, shape = x.meta["val"], view.meta["val"].shape
    if value.dim() not in (4, 5) or list(shape) != [1, value.shape[0] * value.shape[1], *value.shape[2:]]:
        return None
    given = _only_user(node, operator.getitem)
    y = None if given is None or given.args[1] != 0 else _only_user(given, aten.view.default)
    if y is None or y.meta["val"].shape != value.shape:
        return None
    (fits, weight), (fits_too, bias) = (_of_each_image(one, value.shape[0]) for one in (weight, bias))
    return (x, y, weight, bias, eps) if fits and fits_too else None


def _takes(x: Node) -> bool:
    value = x.meta["val"]
    if x.target not in (conv2d_packed, conv3d_packed) or value[0, 0].numel() < _LEAST_PIXELS:
        return False
    if value.dim() == 5 and not value.is_contiguous(memory_format=torch.channels_last_3d):
        return False
    return is_for(as_image(value))


def _normed(graph: Graph, x: Node, weight: Any, bias: Any, counters: Node, first: int, eps: float) -> Node:
    def call(target: Any, *args: Any, **kwargs: Any) -> Node:
        return graph.call_function(target, args, kwargs)

    value, image = x.meta["val"], x
    if value.dim() == 5:
        n, c, depth, height, width = value.shape
        image = call(aten.permute.default, x, [0, 2, 3, 4, 1])
        image = call(aten.permute.default, call(aten.view.default, image, [n, depth * height, width, c]), [0, 3, 1, 2])
    made = call(instance_coefficients, image, weight, bias, counters, first, eps)
    scale, shift = (call(operator.getitem, made, at) for at in range(2))
    if value.dim() == 5:
        scale, shift = (call(aten.unsqueeze.default, one, -1) for one in (scale, shift))
    whole = call(aten.mul.Tensor, call(aten._to_copy.default, x, dtype=torch.float32), scale)
    y = call(aten._to_copy.default, call(aten.add.Tensor, whole, shift), dtype=value.dtype)
    return call(aten.clone.default, y, memory_format=torch.contiguous_format)  # views of it stay views; no pass of inductor's


def take_instance_norms(module: GraphModule, inputs: Sequence[Any]) -> int:
    """Has the statistics of instance norms behind convtune's convolutions by one kernel each. How many. Raises what tracing raises."""
    graph = module.graph
    norms = graph.find_nodes(op="call_function", target=aten._native_batch_norm_legit.no_stats)
    if not norms or not has_triton():
        return 0
    mode, fakes = fakes_of(inputs)
    if any(not isinstance(one, Tensor) or any(type(size) is not int for size in one.shape) for one in fakes):
        return 0
    with mode, torch.no_grad():
        Values(module, mode).run(*fakes)
    found = [one for one in map(_norm_of, norms) if one is not None and _takes(one[0])]
    if not found:
        return 0
    sizes = [x.meta["val"].shape[0] * x.meta["val"].shape[1] for x, *_ in found]
    with graph.inserting_before(found[0][0].next):
        counters = graph.call_function(zero_counters, (found[0][0], sum(sizes)))
    for at, (x, y, weight, bias, eps) in enumerate(found):
        with graph.inserting_before(y):
            y.replace_all_uses_with(_normed(graph, x, weight, bias, counters, sum(sizes[:at]), eps))
    graph.eliminate_dead_code()
    module.recompile()
    return len(found)
