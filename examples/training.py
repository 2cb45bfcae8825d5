"""The common parts of train_convnext.py and train_unet3d.py: a step, and a model trained as it stands and by convtune."""

import copy
import time

import torch
from torch import nn


def add_options(parser, batch):
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--budget", type=float, default=0.0, help="seconds of search in optimize")


def step(model, x, labels, optimizer=None):
    """One step; without an optimizer everything but its own."""
    model.zero_grad(set_to_none=True)
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
        loss = nn.functional.cross_entropy(model(x).float(), labels)
    loss.backward()
    if optimizer is not None:
        optimizer.step()
    return loss.detach()


def train(model, data, steps, rate):
    """(the mean loss of the last fifth, milliseconds a step)."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    losses, begin = [], time.perf_counter()
    for _ in range(steps):
        losses.append(step(model, *data.draw(), optimizer))
    last = float(torch.stack(losses[-max(steps // 5, 1) :]).mean())  # waits for the device
    return last, 1e3 * (time.perf_counter() - begin) / steps


def compare(model, data, args, rate):
    """Trains the model as it stands, and a copy that convtune.optimize was given; prints both."""
    import convtune

    torch.backends.cudnn.benchmark = True
    ours = copy.deepcopy(model)
    x, labels = data.draw()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):  # the types that a step has
        convtune.optimize(ours, x, budget=args.budget, train=lambda model: step(model, x, labels))
    for name, one in (("PyTorch", model), ("convtune", ours)):
        torch.manual_seed(1)
        loss, ms = train(one, data, args.steps, rate)
        print(f"{name:9} loss {loss:.4f} after {args.steps} steps, {ms:.1f} ms a step")
