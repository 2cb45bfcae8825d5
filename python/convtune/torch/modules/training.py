"""A step of training for the contest of a whole model, and what it changes put back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from ...errors import InvalidArgument

__all__ = ["Step", "peak_bytes", "takes_more", "training_step", "unchanged"]

Step = Callable[[Any], object]  # takes one step of the model that it is given
_MOST_MEMORY = 1.01  # times PyTorch's peak: allocators round


def training_step(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Step:
    """zero_grad, forward, a loss, backward, and an SGD step of rate 0. The loss is the mean square of all outputs that record
    gradients. Forward runs under the autocast of the caller, the rest outside of it, as PyTorch advises."""
    optimizers: dict[int, Any] = {}

    def step(model: Any) -> None:
        optimizer = optimizers.get(id(model))
        if optimizer is None:
            trained = [one for one in model.parameters() if one.requires_grad]
            if not trained:
                raise InvalidArgument("train=True needs a parameter that records gradients: all of the model's are frozen")
            optimizer = optimizers[id(model)] = torch.optim.SGD(trained, lr=0.0)
        optimizer.zero_grad()
        outputs = [one for one in tree_leaves(model(*args, **kwargs)) if isinstance(one, Tensor) and one.requires_grad]
        if not outputs:
            raise InvalidArgument("train=True needs an output that records gradients: give a step, train=lambda model: ...")
        with torch.autocast(outputs[0].device.type, enabled=False):
            loss: Any = sum(one.float().square().mean() for one in outputs)
            loss.backward()
            optimizer.step()

    return step


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Parameters, their gradients, buffers and the modes of modules as they were: steps of training move all of them."""
    before = [(one, one.detach().clone(), one.grad) for one in model.parameters()]
    buffers = [(one, one.detach().clone()) for one in model.buffers()]
    modes = [(module, module.training) for module in model.modules()]
    for one, _, _ in before:
        one.grad = None
    try:
        yield
    finally:
        with torch.no_grad():
            for one, value, grad in before:
                one.copy_(value)
                one.grad = grad
            for one, value in buffers:
                one.copy_(value)
        for module, training in modes:
            module.training = training


def peak_bytes(run: Callable[[], object], device: torch.device) -> int:
    """Memory at the peak of one run, on a GPU, by PyTorch's allocator; 0 on a CPU."""
    if device.type != "cuda":
        return 0
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    run()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device))


def takes_more(theirs: int, ours: int) -> bool:
    """True where a step takes more memory than PyTorch's."""
    return ours > _MOST_MEMORY * theirs
