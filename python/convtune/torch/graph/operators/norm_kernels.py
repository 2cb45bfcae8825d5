"""Kernels in Triton for the statistics of a group norm whose image lies channels last, rows of C channels: every pixel
is read once, whole, where a reduction a group would read a few channels of each."""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from .images import power_of_2

__all__ = ["launch_coefficients", "sums_of_part"]

_BLOCK = 8192  # elements of a tile
_MOST_CHANNELS = 512  # per tile, whose rows are whole sectors
_LEAST_CHANNELS = 32
_MOST_PARTS = 512
_MOST_MOMENTS = 4096  # that are read at once


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def sums_of_part(x, c, part, pixels, pixels_of_part, C: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sums of d and of d * d over a part of an image's pixels, d = x minus the channel's first pixel, so that little is lost where a mean
    is far from 0; and those pixels."""
    pivot = tl.load(x + c, c < C, 0.0).to(tl.float32)
    first = part * pixels_of_part
    last = tl.minimum(first + pixels_of_part, pixels)
    once = tl.zeros([ROWS, BLOCK_C], tl.float32)
    squared = tl.zeros([ROWS, BLOCK_C], tl.float32)
    for row in range(first, last, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = (rows < last)[:, None] & (c < C)[None, :]
        value = tl.load(x + rows[:, None] * C + c[None, :], inside, 0.0).to(tl.float32)
        difference = tl.where(inside, value - pivot[None, :], 0.0)
        once += difference
        squared += difference * difference
    return tl.sum(once, 0), tl.sum(squared, 0), pivot


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _moments_kernel(  # type: ignore[no-untyped-def]
    x, moments, pixels, pixels_of_part, parts, C: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """moments[n, part, 0..1, c]: the sums of a part; of BLOCK_C of its channels."""
    image, part = tl.program_id(0), tl.program_id(1)
    c = tl.program_id(2) * BLOCK_C + tl.arange(0, BLOCK_C)
    once, squared, _ = sums_of_part(x + image.to(tl.int64) * pixels * C, c, part, pixels, pixels_of_part, C, BLOCK_C, ROWS)
    at = moments + (image * parts + part) * 2 * C + c
    tl.store(at, once, c < C)
    tl.store(at + C, squared, c < C)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _coefficients_kernel(  # type: ignore[no-untyped-def]
    x, moments, weight, bias, offset, scale, shift, pixels, parts, eps, C: tl.constexpr, OF_GROUP: tl.constexpr,
    BLOCK_C: tl.constexpr, BLOCK_PARTS: tl.constexpr,
):  # fmt: skip
    """scale[n, c] and shift[n, c] of a group: norm(x + offset) = x * scale + shift."""
    image, group = tl.program_id(0), tl.program_id(1)
    within = tl.arange(0, BLOCK_C)
    inside, c = within < OF_GROUP, group * OF_GROUP + within
    once = tl.zeros([BLOCK_C], tl.float32)
    squared = tl.zeros([BLOCK_C], tl.float32)
    for start in range(0, parts, BLOCK_PARTS):
        part = start + tl.arange(0, BLOCK_PARTS)
        at = moments + (image * parts + part)[:, None] * 2 * C + c[None, :]
        known = (part < parts)[:, None] & inside[None, :]
        once += tl.sum(tl.load(at, known, 0.0), 0)
        squared += tl.sum(tl.load(at + C, known, 0.0), 0)
    pivot = tl.load(x + image.to(tl.int64) * pixels * C + c, inside, 0.0).to(tl.float32)
    mean_of_c = pivot + once / pixels
    added = tl.zeros([BLOCK_C], tl.float32)
    if offset is not None:
        added += tl.load(offset + image * C + c, inside, 0.0).to(tl.float32)
        mean_of_c += added
    mean = tl.sum(tl.where(inside, mean_of_c, 0.0), 0) / OF_GROUP
    apart = tl.where(inside, mean_of_c - mean, 0.0)
    of_channels = tl.where(inside, tl.maximum(squared - once * once / pixels, 0.0), 0.0) + pixels * apart * apart
    variance = tl.sum(of_channels, 0) / (pixels * OF_GROUP)
    by = tl.rsqrt(variance + eps) + tl.zeros([BLOCK_C], tl.float32)
    if weight is not None:
        by *= tl.load(weight + c, inside, 0.0).to(tl.float32)
    added = (added - mean) * by
    if bias is not None:
        added += tl.load(bias + c, inside, 0.0).to(tl.float32)
    tl.store(scale + image * C + c, by, inside)
    tl.store(shift + image * C + c, added, inside)


def _channels_of_tile(c: int) -> int:
    """The largest power of two that divides C, so that no lane is idle (64 for 320); where that is small, all channels."""
    most = min(c & -c, _MOST_CHANNELS)
    return most if most >= _LEAST_CHANNELS else power_of_2(c)


def launch_coefficients(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, offset: Tensor | None, groups: int, eps: float,
    scale: Tensor, shift: Tensor, processors: int,
) -> None:  # fmt: skip
    """x (N, C, H, W) channels last and dense; scale, shift float32 (N, C, 1, 1), and offset, of any float type, dense,
    too; weight and bias as they lie. `processors`: of the device."""
    weight, bias = (None if one is None else one.contiguous() for one in (weight, bias))  # kernels read them one behind the other
    n, c, height, width = x.shape
    pixels = height * width
    block_c = _channels_of_tile(c)
    blocks = -(-c // block_c)
    rows = max(1, min(_BLOCK // block_c, power_of_2(pixels)))
    parts = max(1, min(_MOST_PARTS, 4 * processors // max(n * blocks, 1), pixels // rows))
    moments = torch.empty((n, parts, 2, c), dtype=torch.float32, device=x.device)
    _moments_kernel[n, parts, blocks](x, moments, pixels, -(-pixels // parts), parts, c, block_c, rows, num_warps=8)
    of_group = power_of_2(c // groups)
    at_once = min(power_of_2(parts), max(1, _MOST_MOMENTS // of_group))
    _coefficients_kernel[n, groups](
        x, moments, weight, bias, offset, scale, shift, pixels, parts, eps, c, c // groups, of_group, at_once
    )
