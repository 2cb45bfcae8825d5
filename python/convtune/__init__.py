"""convtune: convolutions as fast as the hardware allows, on NumPy, PyTorch, CuPy and JAX arrays.

    import convtune
    y = convtune.conv2d(x, w, bias, stride=4, padding=2)
    convtune.tune("alexnet_conv1")                      # search once; later calls use what was found
    model = convtune.optimize(model, example_input)     # PyTorch: swaps only what is proven faster

No array library is imported before its arrays are given.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from . import errors
from ._library import version as _version
from .caches import clear as clear_caches
from .convolution import Convolution, Plan
from .errors import (
    DeviceLost,
    Error,
    FileError,
    InternalError,
    InvalidArgument,
    NoDevice,
    OutOfMemory,
    Unsupported,
)
from .fleet import tune_all
from .functional import conv1d, conv2d, conv3d, plan
from .machine import Device, devices, set_cpu_threads
from .model import ModelProblems, ModelReport
from .problem import Problem
from .progress import Step
from .report import Provider, Report, Tuning
from .running import PackedWeights, backward_data, backward_weights, pack, run
from .transposed import conv_transpose1d, conv_transpose2d, conv_transpose3d
from .tuning import bench, tune

if TYPE_CHECKING:
    from . import nn as nn
    from . import torch as torch
    from .torch.graphed import graphed as graphed
    from .torch.model import model_problems as model_problems
    from .torch.optimize import optimize as optimize
    from .torch.optimize import restore as restore
    from .torch.pairs import residual_pair1d as residual_pair1d

__version__ = _version()

__all__ = [
    "Convolution", "Device", "DeviceLost", "Error", "FileError", "InternalError", "InvalidArgument",
    "ModelProblems", "ModelReport", "NoDevice", "OutOfMemory", "PackedWeights", "Plan", "Problem", "Provider",
    "Report", "Step", "Tuning", "Unsupported", "__version__", "backward_data", "backward_weights", "bench",
    "clear_caches", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d",
    "devices", "errors", "pack", "plan", "run", "set_cpu_threads", "tune",
    "tune_all",
]  # fmt: skip

# Names that import PyTorch when they are first asked for: (module, name in it); not in __all__, because
# `from convtune import *` does not ask. The module of optimize() has another name,
# because importing a module `convtune.optimize` would put it in the function's place.
_LAZY = {
    "nn": ("convtune.nn", None),
    "torch": ("convtune.torch", None),
    "graphed": ("convtune.torch.graphed", "graphed"),
    "model_problems": ("convtune.torch.model", "model_problems"),
    "optimize": ("convtune.torch.optimize", "optimize"),
    "residual_pair1d": ("convtune.torch.pairs", "residual_pair1d"),
    "restore": ("convtune.torch.optimize", "restore"),
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'convtune' has no attribute {name!r}")
    module_name, attribute = _LAZY[name]
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as why:
        if why.name != "torch":
            raise
        raise ImportError(f"convtune.{name} needs PyTorch, which is not installed here") from why
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_LAZY])
