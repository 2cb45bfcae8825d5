"""Group norms of a compiled graph, of images and volumes channels last: statistics by an operator of ours, in Triton, the rest inductor's.

    scale, shift = torch.ops.convtune.group_coefficients(x, weight, bias, offset, groups, eps)
    y = x * scale + shift              # the norm of x + offset; what inductor fuses with its neighbours

Inductor's own reduction reads a few channels of each pixel for a group: of 32 groups and 128 channels eight bytes, of
sectors of 32. scale and shift are float32, (N, C, 1, 1); offset is a number for each channel of each image (an
embedding of time), whose sum is then no pass of its own, or None.
docs/decisions/0051-operators-in-triton.md has the numbers, 0058-what-a-traced-graph-need-not-compute.md the rest.
"""

from __future__ import annotations

import math
import operator
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, Node
from torch.overrides import TorchFunctionMode

from ...native import define
from .images import is_for, processors

__all__ = ["NormsAsTheyLie", "as_image", "group_coefficients", "take_offsets"]

_MOST_OF_INDUCTOR = 8192  # elements of a group: of more it reduces one in several kernels


@cache
def _launch() -> Any:
    from .norm_kernels import launch_coefficients

    return launch_coefficients


def _fake(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, offset: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor]:  # fmt: skip
    shape = x.shape[0], x.shape[1], 1, 1
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.float32)


def _kernel(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, offset: Tensor | None, groups: int, eps: float
) -> tuple[Tensor, Tensor]:  # fmt: skip
    if not x.is_cuda or not is_for(x):
        whole = x.float() if offset is None else x.float() + offset.float()
        variance, mean = torch.var_mean(whole.reshape(x.shape[0], groups, -1), 2, correction=0)
        of_group = x.shape[1] // groups
        scale = (variance + eps).rsqrt().repeat_interleave(of_group, 1)
        scale = scale if weight is None else scale * weight.float()
        shift = -mean.repeat_interleave(of_group, 1)
        shift = (shift if offset is None else shift + offset.float().flatten(1)) * scale
        shift = shift if bias is None else shift + bias.float()
        return scale[:, :, None, None], shift[:, :, None, None]
    scale, shift = _fake(x, weight, bias, offset, groups, eps)
    offset = None if offset is None else offset.contiguous()
    with torch.cuda.device(x.device):
        _launch()(x, weight, bias, offset, groups, eps, scale, shift, processors(x.get_device()))
    return scale, shift


group_coefficients: Any = define(
    "group_coefficients(Tensor x, Tensor? weight, Tensor? bias, Tensor? offset, int groups, float eps)"
    " -> (Tensor, Tensor)", _kernel, _fake,
)  # fmt: skip


def as_image(x: Tensor) -> Tensor:
    """A volume that lies channels last as the image (N, C, D * H, W) of the same memory; an image as it is."""
    if x.dim() == 4:
        return x
    n, c, depth, height, width = x.shape
    return x.permute(0, 2, 3, 4, 1).reshape(n, depth * height, width, c).permute(0, 3, 1, 2)


def _takes(x: Any) -> bool:
    if not isinstance(x, Tensor) or x.dim() not in (4, 5) or not all(isinstance(size, int) for size in x.shape):
        return False
    if x.dim() == 5 and not x.is_contiguous(memory_format=torch.channels_last_3d):
        return False
    return is_for(as_image(x)) and not torch.is_autocast_enabled(x.device.type)  # whose norms answer in float32


def _normed(
    input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5, *_: bool
) -> Tensor:  # fmt: skip
    n, c, *sizes = input.shape
    image = as_image(input)
    if c // num_groups * math.prod(sizes) > _MOST_OF_INDUCTOR:
        scale, shift = group_coefficients(image, weight, bias, None, num_groups, eps)
        if input.dim() == 5:
            scale, shift = scale.unsqueeze(-1), shift.unsqueeze(-1)
        return (input.float() * scale + shift).to(input.dtype)  # type: ignore[no-any-return, unused-ignore]
    groups = image.permute(0, 2, 3, 1).reshape(n, math.prod(sizes), num_groups, c // num_groups).float()
    variance, mean = torch.var_mean(groups, (1, 3), correction=0, keepdim=True)
    y: Tensor = ((groups - mean) * (variance + eps).rsqrt()).reshape(n, *sizes, c)
    y = y if weight is None else y * weight
    return (y if bias is None else y + bias).to(input.dtype).movedim(-1, 1)


class NormsAsTheyLie(TorchFunctionMode):
    """The mode that answers for group norms while a graph is traced, of images and volumes that lie channels last. On a GPU ATen's
    own copies such an image to NCHW first, and all that follows lies so, up to a convolution, which copies it back: 5
    of 21 ms of a decoder."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        is_norm = function in (torch.group_norm, torch.nn.functional.group_norm)
        if is_norm and _takes(args[0] if args else kwargs.get("input")):
            return _normed(*args, **{name: value for name, value in kwargs.items() if name != "cudnn_enabled"})
        return function(*args, **kwargs)


def _is_scaled(copy: Node, norm: Node) -> bool:
    """A copy in float32 that only that norm's scale multiplies: what else would read it misses the offset."""
    aten: Any = torch.ops.aten

    def scales(one: Any) -> bool:
        return isinstance(one, Node) and one.target is operator.getitem and one.args == (norm, 0)

    return copy.target is aten._to_copy.default and all(
        user.target is aten.mul.Tensor and any(scales(one) for one in user.args) for user in copy.users
    )


def _offset(total: Any, norm: Node) -> tuple[Node, Node] | None:
    """(image, offset) whose sum, which is rounded, only that norm reads: its statistics, and what it scales."""
    aten: Any = torch.ops.aten
    if total.target is not aten.add.Tensor or total.kwargs or not all(isinstance(one, Node) for one in total.args):
        return None
    if not all(user is norm or _is_scaled(user, norm) for user in total.users):
        return None
    offset, image = sorted(total.args, key=lambda one: one.meta["val"].numel())
    value, whole, added = (one.meta["val"] for one in (image, total, offset))
    fits = value.shape == whole.shape and value.stride() == whole.stride() and added.shape == (*whole.shape[:2], 1, 1)
    return (image, offset) if fits and value.dtype is whole.dtype and added.dtype is whole.dtype else None


def take_offsets(graph: Graph) -> None:
    """Sums of an image and a number for each of its channels, right before a norm, become its offset."""
    norm: Any
    for norm in graph.find_nodes(op="call_function", target=group_coefficients):
        x, weight, bias, offset, *rest = norm.args
        found = _offset(x, norm)
        if offset is None and found is not None:
            x.replace_all_uses_with(found[0])
            norm.args = found[0], weight, bias, found[1], *rest
            graph.erase_node(x)
