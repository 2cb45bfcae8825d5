"""Joint graphs of a step, forward and backward, in which the convolutions of channels-last weights read channels-last tensors.

cuDNN and convtune convolve such weights channels last, and in each call copy what lies otherwise. Behind an instance or a group
norm all does: the 3-D U-Net of bench/torch_training.py spends a fifth of its step in 55 such copies. As a clone in the graph the
copy is written by the kernel that computes the tensor, once for all who read it, and is what is saved for the backward."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

from ..layout import wants_channels_last

__all__ = ["ChannelsLastPass"]

_READ = {  # places of activations among the arguments; the next one is the weight
    torch.ops.aten.convolution.default: (0,),
    torch.ops.aten.convolution_backward.default: (0, 1),
}
_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def _wanted(weight: Any, tensor: Any) -> torch.memory_format | None:
    """The format that the tensor is to be copied to; None where it lies so, or the weight does not. Some channels of a tensor that
    lies channels last are left: all of them are kept for backward, by whom they are joined, and a copy would be kept beside them."""
    last = _FORMATS.get(tensor.dim())
    if last is None or tensor.device.type != "cuda" or any(type(size) is not int for size in tensor.shape):
        return None
    if not wants_channels_last(weight) or (weight.is_contiguous() and weight.shape[1] == 1):  # one channel a group lies in both ways
        return None
    if tensor.is_contiguous(memory_format=last) or (tensor.stride(1) == 1 and tensor.shape[1] > 1):
        return None
    return last


class ChannelsLastPass(CustomGraphPass):
    """A pass over the joint graph, before it is cut into forward and backward. `copies`: how many tensors are copied."""

    def __init__(self) -> None:
        self.copies = 0

    def uuid(self) -> bytes:
        return get_hash_for_files((__file__,))  # type: ignore[no-any-return]

    def __call__(self, graph: Graph) -> None:
        copies: dict[Node, Node] = {}
        for target, places in _READ.items():
            for node in graph.find_nodes(op="call_function", target=target):
                for place in places:
                    self._lay_out(graph, node, place, node.args[places[-1] + 1], copies)
        self.copies += len(copies)
        graph.lint()

    def _lay_out(self, graph: Graph, node: Node, place: int, weight: Any, copies: dict[Node, Node]) -> None:
        source: Any = node.args[place]
        last = _wanted(weight.meta["val"], source.meta["val"])
        if last is None:
            return
        if source not in copies:
            with graph.inserting_after(source):
                clone = graph.call_function(torch.ops.aten.clone.default, (source,), {"memory_format": last})
            clone.meta = {**source.meta, "val": source.meta["val"].clone(memory_format=last)}
            copies[source] = clone
        node.update_arg(place, copies[source])
