"""Answers of a step of training beside exact ones: parts of torch_training.py. Each way saves the gradients of its first step and
the losses of its first steps, from the same weights and data; the exact ones are eager's in float32, without TF32 and autocast.
How far PyTorch's own ways are from those is what ours are held to."""

import math

__all__ = ["compared", "without_chance", "gradients_of", "said"]

_ELEMENTS = 1 << 16  # elements of a parameter's gradient that are compared, evenly strided
_ROUNDING = 0.02  # part of a gradient's norm: errors below it are bf16's rounding
_TIMES = {"gradients": 1.5, "worst": 4.0, "losses": 2.0}  # PyTorch's own error, at most


def without_chance(model):
    """Switches off what draws random numbers, which eager and inductor draw differently."""
    for module in model.modules():
        if type(module).__name__ in ("Dropout", "Dropout2d", "Dropout3d", "StochasticDepth", "DropPath"):
            for name in ("p", "drop_prob"):
                if hasattr(module, name):
                    setattr(module, name, 0.0)
    return model


def gradients_of(model):
    """The gradients by the parameters' places, on the CPU in float32; None where there is none."""
    found = []
    for one in model.parameters():
        if one.grad is None:
            found.append(None)
            continue
        stride = -(-one.numel() // _ELEMENTS) | 1  # odd: no period of channels
        found.append(one.grad.detach().reshape(-1)[::stride].float().cpu())
    return found


def _errors(ours, exact):
    """(the norm of the difference and of the exact one) of each parameter; the difference is infinite where one has none, or NaN."""
    found = []
    for one, other in zip(ours, exact):
        if one is None or other is None or one.shape != other.shape:
            found.append((0.0 if one is None and other is None else math.inf, 0.0))
            continue
        difference = float((one - other).norm())
        found.append((difference if math.isfinite(difference) else math.inf, float(other.norm())))
    return found if len(ours) == len(exact) else [(math.inf, 0.0)]


def compared(answers, theirs):
    """By way: gradients (error over the norm of all), worst (the worst parameter's error over that of PyTorch's worst way), losses
    (the largest relative difference) and agree. `answers`: by way {"gradients", "losses"}, with "exact"; `theirs`: PyTorch's ways."""
    exact = answers["exact"]
    errors = {way: _errors(one["gradients"], exact["gradients"]) for way, one in answers.items() if way != "exact"}
    of_theirs = [errors[way] for way in errors if way in theirs]
    found = {}
    for way, own in errors.items():
        norm = math.hypot(*(of for _, of in own)) or 1.0
        losses = [abs(one - other) / max(abs(other), 1e-12) for one, other in zip(answers[way]["losses"], exact["losses"])]
        worst = 0.0
        for at, (error, of) in enumerate(own):
            allowed = max([row[at][0] for row in of_theirs if at < len(row)] + [_ROUNDING * of, 1e-5 * norm])
            worst = max(worst, error / allowed)
        losses = [one if math.isfinite(one) else math.inf for one in losses]
        found[way] = {"gradients": math.hypot(*(error for error, _ in own)) / norm, "worst": worst, "losses": max(losses), "loss": answers[way]["losses"][-1]}
    spread = {what: max((found[way][what] for way in found if way in theirs), default=0.0) for what in ("gradients", "losses")}
    for way, one in found.items():
        one["agree"] = (
            one["gradients"] <= max(_TIMES["gradients"] * spread["gradients"], _ROUNDING)
            and one["worst"] <= _TIMES["worst"]
            and one["losses"] <= max(_TIMES["losses"] * spread["losses"], 1e-3)
        )
    return found


def said(one):
    """The words of a way's row."""
    return (f"{'answers agree' if one['agree'] else 'ANSWERS DIFFER'}: gradients {one['gradients']:.1e}, worst {one['worst']:.1f} of PyTorch's, "
            f"losses {one['losses']:.0e}")  # fmt: skip
