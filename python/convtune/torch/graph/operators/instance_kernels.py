"""A kernel in Triton for the statistics of instance norms of images that lie channels last, in one launch."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from .images import power_of_2
from .norm_kernels import sums_of_part

__all__ = ["launch_instances"]

_BLOCK = 8192  # elements of a tile of a part
_CHANNELS_OF_PART = 32
_MOST_PARTS = 512
_MOST_MOMENTS = 4096  # that are read at once


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _instances_kernel(  # type: ignore[no-untyped-def]
    x, moments, counters, weight, bias, scale, shift, pixels, pixels_of_part, parts, eps, C: tl.constexpr, BLOCK_C: tl.constexpr,
    ROWS: tl.constexpr, BLOCK_PARTS: tl.constexpr, OVERLAPS: tl.constexpr,
):  # fmt: skip
    """Writes scale[n, c] and shift[n, c], float32. Each program stores its part's sums; the last to arrive for a block of channels puts all
    parts together. Where OVERLAPS its blocks may begin while the kernel in front of it still runs, as a Snake's do."""
    if OVERLAPS:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    image, part = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    once, squared, pivot = sums_of_part(x + image.to(tl.int64) * pixels * C, c, part, pixels, pixels_of_part, C, BLOCK_C, ROWS)
    own = moments + image * parts * 2 * C
    tl.store(own + part * 2 * C + c, once, c < C)
    tl.store(own + part * 2 * C + C + c, squared, c < C)
    tl.debug_barrier()  # each thread's numbers lie there before one of them says so
    counter = counters + image * tl.num_programs(2) + tl.program_id(2)
    if tl.atomic_add(counter, 1) == parts - 1:
        of_parts = tl.zeros([BLOCK_PARTS, BLOCK_C], tl.float32)
        of_squares = tl.zeros([BLOCK_PARTS, BLOCK_C], tl.float32)
        for start in range(0, parts, BLOCK_PARTS):
            some = start + tl.arange(0, BLOCK_PARTS)
            known = (some < parts)[:, None] & (c < C)[None, :]
            at = own + some[:, None] * 2 * C + c[None, :]
            of_parts += tl.load(at, known, 0.0, cache_modifier=".cg")  # other processors wrote it
            of_squares += tl.load(at + C, known, 0.0, cache_modifier=".cg")
        mean_of, squares = tl.sum(of_parts, 0) / pixels, tl.sum(of_squares, 0)
        variance = squares / pixels - mean_of * mean_of
        variance = tl.where(variance < 0, 0.0, variance)  # NaN stays NaN, which a maximum makes 0
        by = tl.rsqrt(tl.where(squares == float("inf"), squares, variance) + eps)
        if weight is not None:
            by *= tl.load(weight + c, c < C, 0.0).to(tl.float32)
        added = -(pivot + mean_of) * by
        if bias is not None:
            added += tl.load(bias + c, c < C, 0.0).to(tl.float32)
        tl.store(scale + image * C + c, by, c < C)
        tl.store(shift + image * C + c, added, c < C)
        tl.store(counter, 0)


def launch_instances(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, counters: Tensor, eps: float, scale: Tensor, shift: Tensor, processors: int,
    overlaps: bool,
) -> None:  # fmt: skip
    """As norm_kernels.py's `launch_coefficients` for groups of one channel, in one launch. `counters`: zeros, one for each channel of each
    image at most, which are zeros again behind it; weight and bias as they lie. `overlaps`: its programs may begin while the kernel in
    front of it ends."""
    weight, bias = (None if one is None else one.contiguous() for one in (weight, bias))  # kernels read them one behind the other
    n, c, height, width = x.shape
    pixels = height * width
    block_c = min(power_of_2(c), _CHANNELS_OF_PART)  # few, so that a program a multiprocessor shares an image, and the last has little left
    blocks = -(-c // block_c)
    rows = max(1, min(_BLOCK // block_c, power_of_2(pixels)))
    parts = max(1, min(_MOST_PARTS, processors // max(n * blocks, 1), 4 * pixels // rows))
    of_part = -(-pixels // parts)
    rows = min(rows, power_of_2(of_part))
    parts = -(-pixels // of_part)  # none is empty
    moments = torch.empty((n, parts, 2, c), dtype=torch.float32, device=x.device)
    at_once = min(power_of_2(parts), _MOST_MOMENTS // block_c)
    more = {"launch_pdl": True} if overlaps else {}
    _instances_kernel[n, parts, blocks](
        x, moments, counters, weight, bias, scale, shift, pixels, of_part, parts, eps, c, block_c, rows, at_once, overlaps, num_warps=4, **more
    )
