"""convtune as operators of PyTorch: `convtune::conv1d`, `conv2d` and `conv3d`, with gradients, autocast, torch.compile and
CUDA graphs.

    y = convtune.torch.conv2d(x, w, bias, stride=4, padding=2)      # what convtune.conv2d does with PyTorch's tensors
    y = torch.ops.convtune.conv2d(...)                              # the same, as graphs hold it

What it promises, with the reasons in docs/decisions/0012-pytorch.md:

- float32, float16 and bfloat16 tensors are convtune's; in half precision a sum is rounded once, at the end (twice with a
  residual where gradients are recorded or a profiler watches, for PyTorch adds it then). Any other
  type is computed by PyTorch's own convolution. Autocast casts what it casts for that; the weights that it makes are kept
  where no gradients are recorded.
- The output is in the memory format that PyTorch's convolution gives: channels last where x or the weight is. In 1-D,
  where PyTorch has no such format and copies x, y lies as x does: a transposed (N, L, C) gives another.
- Products are rounded to TF32 exactly where torch.backends.cudnn allows it to PyTorch's convolution.
- Equal input gives equal bits, every time: torch.use_deterministic_algorithms has nothing to switch.
- Each gradient (of x, of the weight and bias) is convtune's where a record or optimize has proven its plan, else PyTorch's
  own convolution backward; gradients of gradients are PyTorch's.
- Weights are packed when they change, by `_version`: not at every call. Calls that record gradients of the weight,
  and CUDA graphs, pack every time, or read the weight as it lies, so that a training step and a replay see what it holds then.
- A CUDA graph can record what was called once before: a plan may have to compile, and that cannot be recorded.
"""

from __future__ import annotations

from .. import _library
from . import flops as _flops  # noqa: F401  (registers them)
from .functional import conv1d, conv2d, conv3d
from .native import operator
from .run import convolution_of, problem_of
from .weights import forget_packed

# PyTorch's threads wait on their processors after each of its operators.
_library.check(_library.library.convtune_share_openmp_threads(1))

__all__ = ["conv1d", "conv2d", "conv3d", "convolution_of", "forget_packed", "operator", "problem_of"]
