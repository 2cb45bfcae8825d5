"""A Snake of rows whose channels come last, in Triton: x + sin(alpha x)^2 / (divisor + eps), with both numbers a channel."""

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

__all__ = ["can_overlap", "launch_snake"]

_BLOCK = 1024  # elements of a tile
_MOST_CHANNELS = 256  # channels of a tile


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _snake_kernel(  # type: ignore[no-untyped-def]
    x, alpha, divisor, y, rows, channels, eps, ALPHA_IS_LOG: tl.constexpr, DIVISOR_IS_LOG: tl.constexpr, BLOCK_C: tl.constexpr,
    ROWS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Where OVERLAPS its blocks may begin while the kernel in front of it still runs: it waits before it touches memory, and only
    then lets the next one's blocks begin, as src/cuda/ptx/grid.cuh has it."""
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (row < rows)[:, None] & (c < channels)[None, :]
    at = row[:, None] * channels + c[None, :]
    value = tl.load(x + at, inside, 0.0).to(tl.float32)
    factor = tl.load(alpha + c, c < channels, 0.0).to(tl.float32)
    below = tl.load(divisor + c, c < channels, 1.0).to(tl.float32)
    if ALPHA_IS_LOG:
        factor = tl.exp(factor)
    if DIVISOR_IS_LOG:
        below = tl.exp(below)
    sine = tl.sin(value * factor[None, :])
    tl.store(y + at, (value + sine * sine / (below + eps)[None, :]).to(y.dtype.element_ty), inside)


def can_overlap() -> bool:
    """True where this Triton has the words for it."""
    cuda = getattr(tl.extra, "cuda", None)
    return hasattr(cuda, "gdc_wait") and hasattr(cuda, "gdc_launch_dependents")


def launch_snake(
    x: Tensor, alpha: Tensor, divisor: Tensor, y: Tensor, alpha_is_log: bool, divisor_is_log: bool, eps: float, overlaps: bool
) -> None:
    """x and y (N, C, L), channels last and dense; alpha and divisor of C numbers, dense."""
    n, c, length = x.shape
    block_c = min(max(c & -c, 16), _MOST_CHANNELS)  # no lane is idle where a large power of two divides C
    rows = _BLOCK // block_c
    grid = -(-n * length // rows), -(-c // block_c)
    more = {"launch_pdl": True} if overlaps else {}
    _snake_kernel[grid](
        x, alpha, divisor, y, n * length, c, eps, alpha_is_log, divisor_is_log, block_c, rows, overlaps, num_warps=4, **more
    )
