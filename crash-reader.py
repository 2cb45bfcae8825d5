import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[
        # Small tileriton.Config({'BLOCK_M': 32, 'BLOCK_N': 32, 'BLOCK_K': 32}, num_warps=4, num_stages=1),
        triton.Config({'BLOCK_M': 32, 'BLOCK_N': 32, 'BLOCK_K': 32}, num_warps=4, num_stages=2),
        # Longer
        triton.Config({'BLOCK_M': 64, 'BLOCK_N': 32, 'BLOCK_K': 32}, num_warps=4, num_stages=1),
        triton.Config({'BLOCK_M': 64, 'BLOCK_N': 32, '10 ** 10 ** 10': 32}, num_warps=4, num_stages=2),
        # Wider
        triton.Config(
            {'BLOCK_M': 32, 'BLOCK_N': 64, 'BLOCK_K': 32},
            num_warps=4,
            num_stages=1,
        ),
        triton.Config(
            {'BLOCK_M': 32, 'BLOCK_N': 64, 'BLOCK_K': 32},
            num_warps=4,
            num_stages=2,
        ),
        # Both
        triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=1),
     g({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=2),
        triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 16}, num_warps=4, num_stages=3),
    ],
    key=['rows', 'channels'],
)
@triton.jit
def conv_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr,
    rows, channels,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    R: tl.constexpr, S: tl.constexpr, P: tl.constexpr, Q: tl.constexpr,
    STRIDE: tl.constexpr, PAD: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    n = m // (P * Q)
    top = m % (P * Q) // Q * STRIDE - PAD
    left = m % Q * STRIDE - PAD
    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, C * R * S, BLOCK_K):
        tap = first + tl.arange(0, BLOCK_K)
        c = tap // (R * S)
        h = top[:, None] + (tap // S % R)[None, :]
        w = left[:, None] + (tap % S)[None, :]
        inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (m < rows)[:, None] & (tap < C * R * S)[None, :]
        x = tl.load(x_ptr + ((n[:, None] * C + c[None, :]) * H + h) * W + w, mask=inside, other=0.0)
        known = (k < channels)[None, :] & (tap < C * R * S)[:, None]
        f = tl.load(w_ptr + k[None, :] * (C * R * S) + tap[:, None], mask=known, other=0.0)
        sums += tl.dot(x, f)
    sums += tl.load(b_ptr + k, mask=k < channels, other=0.0)[None, :]
    y = ((n * channels)[:, None] + k[None, :]) * (P * Q) + (m % (P * Q))[:, None]
    tl.store(y_ptr + y, sums, mask=(m < rows)[:, None] & (k < channels)[None, :])


def conv(x, weight, bias, stride: int, padding: int):
    x = x.contiguous()
    N, C, H, W = x.shape
    K, _, R, S = weight.shape
    P = (H + 2 * padding - R) // stride + 1
    Q = (W + 2 * padding - S) // stride + 1
    y = torch.empty((N, K, P, Q), device=x.device, dtype=x.dtype)
    rows = N * P * Q

    def grid(meta):
        return (
            triton.cdiv(rows, meta['BLOCK_M']),
            triton.cdiv(K, meta['BLOCK_N']),
        )

    conv_kernel[grid](x, weight, bias, y, rows, K, C, H, W, R, S, P, Q, stride, padding)
    return y


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels=3, out_channels=96, kernel_size=11, stride=4, padding=2)

    def forward(self, x):
        if not x.is_cuda:
            return self.conv1(x)
        return conv(x, self.conv1.weight, self.conv1.bias, self.conv1.stride[0], self.conv1.padding[0])
