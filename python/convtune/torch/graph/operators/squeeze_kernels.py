"""Kernels in Triton, which PyTorch brings on GPUs, for what stands around depthwise convolutions: squeeze-and-excite,
and a 1x1 convolution that scales its input by it. Images lie channels last: rows of C channels, one a pixel."""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped, unused-ignore]
import triton.language as tl  # type: ignore[import-not-found, import-untyped, unused-ignore]
from torch import Tensor

from .images import power_of_2

__all__ = ["launch_gate", "launch_scaled", "tiles_of"]

_BLOCK = 16384  # elements of a tile of the gate's
_MOST_PARTS = 16


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _activated(y, activation: tl.constexpr):  # type: ignore[no-untyped-def]
    if activation == "relu":
        y = tl.maximum(y, 0.0)
    elif activation == "silu":
        y = y * tl.sigmoid(y)
    elif activation == "sigmoid":
        y = tl.sigmoid(y)
    elif activation == "hardsigmoid":
        y = tl.minimum(tl.maximum(y + 3.0, 0.0), 6.0) / 6.0
    return y


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _sum_kernel(  # type: ignore[no-untyped-def]
    x, sums, pixels, pixels_of_part, C: tl.constexpr, PARTS: tl.constexpr, BLOCK_C: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    """sums[n, part, c]: over a part of an image's pixels."""
    image, part = tl.program_id(0), tl.program_id(1)
    c = tl.arange(0, BLOCK_C)
    x += image.to(tl.int64) * pixels * C
    first = part * pixels_of_part
    last = tl.minimum(first + pixels_of_part, pixels)
    total = tl.zeros([ROWS, BLOCK_C], tl.float32)
    for row in range(first, last, ROWS):
        rows = row + tl.arange(0, ROWS)
        inside = (rows < last)[:, None] & (c < C)[None, :]
        total += tl.load(x + rows[:, None] * C + c[None, :], inside, 0.0).to(tl.float32)
    tl.store(sums + (image * PARTS + part) * C + c, tl.sum(total, 0), c < C)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _gate_kernel(  # type: ignore[no-untyped-def]
    sums, w1, b1, w2, b2, gate, pixels, C: tl.constexpr, K: tl.constexpr, PARTS: tl.constexpr, BLOCK_C: tl.constexpr,
    BLOCK_K: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr,
):  # fmt: skip
    """gate[n, c] = SECOND(w2[c, k] FIRST(w1[k, c] mean[n, c] + b1[k]) + b2[c]): a program an image."""
    image = tl.program_id(0)
    k = tl.arange(0, BLOCK_K)
    products = tl.zeros([BLOCK_K, BLOCK_C], tl.float32)
    for start in tl.range(0, C, BLOCK_C, loop_unroll_factor=4):
        c = start + tl.arange(0, BLOCK_C)
        total = tl.zeros([BLOCK_C], tl.float32)
        for part in tl.static_range(PARTS):
            total += tl.load(sums + (image * PARTS + part) * C + c, c < C, 0.0)
        inside = (k < K)[:, None] & (c < C)[None, :]
        w = tl.load(w1 + k[:, None] * C + c[None, :], inside, 0.0).to(tl.float32)
        products += w * (total / pixels)[None, :]
    hidden = tl.sum(products, 1)
    if b1 is not None:
        hidden += tl.load(b1 + k, k < K, 0.0).to(tl.float32)
    hidden = _activated(hidden, FIRST)
    for start in tl.range(0, C, BLOCK_C, loop_unroll_factor=4):
        c = start + tl.arange(0, BLOCK_C)
        inside = (c < C)[:, None] & (k < K)[None, :]
        w = tl.load(w2 + c[:, None] * K + k[None, :], inside, 0.0).to(tl.float32)
        y = tl.sum(w * hidden[None, :], 1)
        if b2 is not None:
            y += tl.load(b2 + c, c < C, 0.0).to(tl.float32)
        tl.store(gate + image * C + c, _activated(y, SECOND), c < C)


@triton.jit  # type: ignore[untyped-decorator, unused-ignore]
def _scaled_kernel(  # type: ignore[no-untyped-def]
    x, scale, w, bias, residual, y, rows_of_all, pixels, C: tl.constexpr, K: tl.constexpr, ACTIVATION: tl.constexpr,
    TWO: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_C: tl.constexpr,
):  # fmt: skip
    """y[row, k] = ACTIVATION(w[k, c] (x[row, c] scale[image of row, c]) + bias[k] + residual[row, k]). `TWO`: a tile is of
    two images at most, and only their scales are read; else a scale for each element of x, as many bytes as x has."""
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    images = rows // pixels
    image = tl.program_id(0) * BLOCK_M // pixels
    next_image = tl.minimum(image + 1, (rows_of_all - 1) // pixels)
    total = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, C, BLOCK_C):
        c = start + tl.arange(0, BLOCK_C)
        inside = (rows < rows_of_all)[:, None] & (c < C)[None, :]
        pixel = tl.load(x + rows[:, None] * C + c[None, :], inside, 0.0)
        if TWO:
            of_image = tl.load(scale + image * C + c, c < C, 0.0)
            of_next = tl.load(scale + next_image * C + c, c < C, 0.0)
            by = tl.where((images == image)[:, None], of_image[None, :], of_next[None, :])
        else:
            by = tl.load(scale + images[:, None] * C + c[None, :], inside, 0.0)
        weights = tl.load(w + k[None, :] * C + c[:, None], (k < K)[None, :] & (c < C)[:, None], 0.0)
        total = tl.dot((pixel.to(tl.float32) * by.to(tl.float32)).to(pixel.dtype), weights, total)
    if bias is not None:
        total += tl.load(bias + k, k < K, 0.0).to(tl.float32)[None, :]
    at = rows[:, None] * K + k[None, :]
    inside = (rows < rows_of_all)[:, None] & (k < K)[None, :]
    if residual is not None:
        total += tl.load(residual + at, inside, 0.0).to(tl.float32)
    tl.store(y + at, _activated(total, ACTIVATION), inside)


def launch_gate(
    x: Tensor, w1: Tensor, b1: Tensor | None, w2: Tensor, b2: Tensor | None, gate: Tensor, first: str, second: str,
    processors: int,
) -> None:  # fmt: skip
    """x (N, C, H, W) and w1, w2 as 1x1 filters, all dense, x channels last; gate (N, C, 1, 1). `processors`: of the
    device, which all are to have work."""
    n, c, height, width = x.shape
    pixels, k = height * width, w1.shape[0]
    parts = max(1, min(_MOST_PARTS, pixels // 8, 2 * processors // max(n, 1)))
    sums = torch.empty((n, parts, c), dtype=torch.float32, device=x.device)
    block_c = power_of_2(c)
    rows = max(1, min(_BLOCK // block_c, power_of_2(pixels)))
    _sum_kernel[n, parts](x, sums, pixels, -(-pixels // parts), c, parts, block_c, rows, num_warps=8)
    block_k = max(16, power_of_2(k))
    block_c = max(16, min(_BLOCK // block_k, 256, power_of_2(c)))
    _gate_kernel[n,](sums, w1, b1, w2, b2, gate, pixels, c, k, parts, block_c, block_k, first, second, num_warps=16)


def tiles_of(c: int, k: int) -> list[tuple[int, int, int, int]]:
    """(rows, filters, channels of a tile, warps) that may be the best: with few channels at a time, or many."""
    filters = min(128, max(16, power_of_2(k)))
    channels = max(16, power_of_2(c))
    return [(128, filters, min(64, channels), 8), (64, filters, min(128 if filters > 64 else 256, channels), 4)]


def launch_scaled(
    x: Tensor, scale: Tensor, weight: Tensor, bias: Tensor | None, residual: Tensor | None, y: Tensor, activation: str,
    tile: Any,
) -> None:  # fmt: skip
    """x, residual and y channels last, all dense; scale (N, C, 1, 1); weight (K, C, 1, 1)."""
    n, c, height, width = x.shape
    rows, k = n * height * width, weight.shape[0]
    block_m, block_n, block_c, warps = tile
    grid = -(-rows // block_m), -(-k // block_n)
    pixels = height * width
    _scaled_kernel[grid](
        x, scale, weight, bias, residual, y, rows, pixels, c, k, activation, block_m <= pixels + 1, block_m, block_n,
        block_c, num_warps=warps, num_stages=3 if block_c <= 64 else 2,
    )  # fmt: skip
