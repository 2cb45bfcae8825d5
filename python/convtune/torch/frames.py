"""Frames of two tensors, a cache and x: joined for whoever has no convolution of both, and kept for the next call."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import InvalidArgument
from ..tensors import check_like
from .how import How

__all__ = ["check_cache", "check_kept", "joined", "keep_frames"]


def joined(cache: Tensor, x: Tensor, how: How) -> tuple[Tensor, How]:
    """(cache and x as one tensor, what to do with that): for whoever has no convolution of two. Raises InvalidArgument
    where the cache has other images than x, or more frames than are padded in front."""
    check_cache(cache, x, how)
    front, *rest = how.padding
    edges = front - cache.shape[2], *rest
    # Not by dataclasses.replace, which Dynamo did not always take.
    words = how.precision, how.activation, how.choices, how.reuse, (), how.rounding
    return torch.cat([cache, x], 2), How(how.stride, edges, how.dilation, how.groups, *words)


def check_cache(cache: Tensor, x: Tensor, how: How) -> None:
    shape = (*x.shape[:2], cache.shape[2] if cache.dim() == 5 else 0, *x.shape[3:])
    if how.axes != 3 or cache.shape != shape:
        raise InvalidArgument(f"cache has the shape {tuple(cache.shape)}; it must be x's but for its frames: {tuple(x.shape)}")
    check_like(cache, "cache", x)
    if cache.shape[2] > how.padding[0]:
        raise InvalidArgument(f"cache has {cache.shape[2]} frames, and no more than {how.padding[0]} are padded in front")


def keep_frames(kept: Tensor, cache: Tensor | None, x: Tensor) -> None:
    """Writes the last frames of (cache, x) into `kept`, and zeros before them where these are fewer."""
    all = kept.shape[2]
    of_x = min(all, x.shape[2])
    of_cache = 0 if cache is None else min(all - of_x, cache.shape[2])
    before = all - of_x - of_cache
    if before:
        kept[:, :, :before].zero_()
    if cache is not None and of_cache:
        kept[:, :, before : before + of_cache].copy_(cache[:, :, -of_cache:])
    kept[:, :, all - of_x :].copy_(x[:, :, x.shape[2] - of_x :])


def check_kept(kept: Tensor, x: Tensor, weight: Tensor, how: How) -> None:
    frames = (weight.shape[2] - 1) * how.dilation[0] if how.axes == 3 else 0
    shape = (*x.shape[:2], frames, *x.shape[3:])
    if not frames or kept.shape != shape:
        raise InvalidArgument(f"cache_out has the shape {tuple(kept.shape)}; it must be {shape}")
    check_like(kept, "cache_out", x)
