"""Copies of a volume to channels first that a model asks for by `x.contiguous()`, or makes of it by padding it with nothing, left out
while its graph is traced, where the volume lies channels last: norms and convolutions take it as it lies, and would copy it back.

HunyuanVideo's decoder asks so in front of each residual block, whose norm was then inductor's: with a copy of the volume, its statistics
in three kernels, and what it normalized in float32 (docs/decisions/0178-volumes-stay-channels-last.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.overrides import TorchFunctionMode

__all__ = ["VolumesAsTheyLie", "lies_as_asked", "without_copies"]

aten: Any = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_PADS = (torch.nn.functional.pad, torch._C._nn.pad)
_DEVICES = ("cuda",)  # devices for which channels last is the better layout in half precision


def _lies_last(x: Any) -> bool:
    if not isinstance(x, Tensor) or x.dim() != 5 or x.dtype not in _HALF or x.device.type not in _DEVICES:
        return False
    return x.is_contiguous(memory_format=torch.channels_last_3d) and not x.is_contiguous()


def _is_copy(function: Any, args: Any, kwargs: Any) -> bool:
    if function in _PADS:
        return not any(args[1] if len(args) > 1 else kwargs["pad"])
    format = args[1] if len(args) > 1 else kwargs.get("memory_format", torch.contiguous_format)
    return function is Tensor.contiguous and format is torch.contiguous_format


class VolumesAsTheyLie(TorchFunctionMode):
    """The mode that gives a volume's copy as it lies. `left`: how many lay otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.left = 0

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in (Tensor.contiguous, *_PADS) and args and _lies_last(args[0]) and _is_copy(function, args, kwargs):
            self.left += 1
            return args[0].clone()  # a copy still: writes to it must not reach x
        return function(*args, **kwargs)


def lies_as_asked(module: GraphModule, traced: Graph) -> bool:
    """True where the traced graph's outputs lie as those of Dynamo's do."""

    def outputs(graph: Graph) -> list[Any]:
        (end,) = graph.find_nodes(op="output")
        found: Any = end.args[0]
        return list(found) if isinstance(found, (list, tuple)) else [found]

    def strides(one: Any) -> Any:
        value = one.meta.get("example_value", one.meta.get("val")) if isinstance(one, Node) else None
        return value.stride() if isinstance(value, Tensor) else None

    return [strides(one) for one in outputs(module.graph)] == [strides(one) for one in outputs(traced)]


def without_copies(graph: Graph) -> None:
    """Takes copies that lie as what they are of out of a graph without mutation. A copy in whose memory an output lies stays: the
    output would lie in what was copied, an input or another output, and whoever writes to one writes to both."""

    def memory(node: Node) -> int:
        return node.meta["val"].untyped_storage()._cdata  # type: ignore[no-any-return]

    (end,) = graph.find_nodes(op="output")
    given = {memory(one) for one in end.all_input_nodes if isinstance(one.meta.get("val"), Tensor)}
    for node in graph.find_nodes(op="call_function", target=aten.clone.default):
        x: Any = node.args[0]
        if node.kwargs or memory(node) in given or x.op != "call_function":
            continue
        if node.meta["val"].dim() == 5 and node.meta["val"].stride() == x.meta["val"].stride():
            node.replace_all_uses_with(x)
            graph.erase_node(node)
