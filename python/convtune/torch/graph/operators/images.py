"""Images that kernels in Triton take, and the device that runs them."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

__all__ = ["has_triton", "is_for", "is_half_image", "power_of_2", "processors"]

_HALF = (torch.float16, torch.bfloat16)
_MOST_ELEMENTS = 1 << 31  # kernels count in 32 bits


@cache
def has_triton() -> bool:
    """True where kernels in Triton can be compiled."""
    try:
        import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: F401
    except ImportError:
        return False
    return True


@cache
def processors(index: int) -> int:
    """The number of multiprocessors of cuda:`index`."""
    return torch.cuda.get_device_properties(index).multi_processor_count


def is_half_image(x: Tensor) -> bool:
    """True for an image on a GPU in half precision that lies channels last."""
    lies = x.is_cuda and x.dtype in _HALF and x.is_contiguous(memory_format=torch.channels_last)
    return lies and 0 < x.numel() < _MOST_ELEMENTS


def is_for(x: Tensor) -> bool:
    """True where kernels take images that lie so."""
    return is_half_image(x) and has_triton()


def power_of_2(n: int) -> int:
    """The least power of two that is not below n."""
    return 1 << max(n - 1, 0).bit_length()
