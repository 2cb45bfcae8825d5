"""Dynamo taught what it does not know in older PyTorch: that a tensor equals no string.

diffusers' causal decoders keep "Rep" or a tensor in a list and ask `cache == "Rep"`. Before PyTorch 2.15 Dynamo gave up there, so
that a decoder fell into some thirty graphs, compiled up to the limit of recompilations, and eager code. Where it knows, nothing is
done. Any torch.compile of the process gains by it, whatever its backend.
"""

from __future__ import annotations

from functools import cache
from typing import Any

__all__ = ["teach"]

_ANSWERS = {"__eq__": False, "__ne__": True}


@cache
def teach() -> bool:
    """Teaches it; whether there was anything to teach."""
    try:
        from torch._dynamo.variables import ConstantVariable, TensorVariable
    except ImportError:
        return False
    if hasattr(TensorVariable, "tp_richcompare_impl"):  # comparisons by Python's own rules
        return False
    call_method: Any = TensorVariable.call_method

    def compare(self: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name in _ANSWERS and len(args) == 1 and not kwargs:
            other = args[0].realize()
            if isinstance(other, ConstantVariable) and isinstance(other.value, str):
                return ConstantVariable.create(_ANSWERS[name])
        return call_method(self, tx, name, args, kwargs)

    TensorVariable.call_method = compare  # type: ignore[method-assign]
    return True
