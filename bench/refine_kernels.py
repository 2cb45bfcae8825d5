"""Five kernels of the kinds that public repositories tune: what bench/refine_gpu.py profiles, refines and measures."""

import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({'BLOCK_M': m, 'BLOCK_N': n, 'BLOCK_K': 32}, num_warps=4, num_stages=3)
             for m, n in ((128, 128), (64, 128), (64, 64))],
    key=['M', 'N', 'K'],
)
@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
                  BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    a = a_ptr + rows[:, None] * stride_am + inner[None, :]
    b = b_ptr + inner[:, None] * stride_bk + columns[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _ in range(0, K, BLOCK_K):
        acc += tl.dot(tl.load(a), tl.load(b))
        a += BLOCK_K
        b += BLOCK_K * stride_bk
    tl.store(c_ptr + rows[:, None] * stride_cm + columns[None, :], acc.to(tl.float16))


def matmul(a, b):
    M, K = a.shape
    _, N = b.shape
    c = torch.empty((M, N), device=a.device, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(M, meta['BLOCK_M']), triton.cdiv(N, meta['BLOCK_N']))  # noqa: E731
    matmul_kernel[grid](a, b, c, M, N, K, a.stride(0), b.stride(0), c.stride(0))
    return c


def matmul_inputs():
    return [torch.randn(4096, 4096, device='cuda', dtype=torch.float16) / 16 for _ in range(2)]


@triton.autotune(configs=[triton.Config({}, num_warps=4, num_stages=3)], key=['columns'])
@triton.jit
def layer_norm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0).to(tl.float32)
        total += x
        squares += x * x
    mean = tl.sum(total) / columns
    scale = tl.rsqrt(tl.sum(squares) / columns - mean * mean + eps)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        inside = at < columns
        x = tl.load(x_ptr + row * columns + at, mask=inside, other=0.0).to(tl.float32)
        w = tl.load(w_ptr + at, mask=inside, other=0.0)
        b = tl.load(b_ptr + at, mask=inside, other=0.0)
        tl.store(y_ptr + row * columns + at, ((x - mean) * scale * w + b).to(tl.float16), mask=inside)


def layer_norm(x, w, b):
    y = torch.empty_like(x)
    layer_norm_kernel[(x.shape[0],)](x, w, b, y, x.shape[1], 1e-5, BLOCK=1024)
    return y


def layer_norm_inputs():
    return [torch.randn(16384, 8192, device='cuda', dtype=torch.float16), torch.randn(8192, device='cuda'),
            torch.randn(8192, device='cuda')]


@triton.autotune(configs=[triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64}, num_warps=4, num_stages=3)], key=['length'])
@triton.jit
def attention_kernel(q_ptr, k_ptr, v_ptr, o_ptr, length, scale, D: tl.constexpr, BLOCK_M: tl.constexpr,
                     BLOCK_N: tl.constexpr):
    base = tl.program_id(1) * length * D
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    d = tl.arange(0, D)
    q = tl.load(q_ptr + base + rows[:, None] * D + d[None, :])
    most = tl.full((BLOCK_M,), float('-inf'), dtype=tl.float32)
    norm = tl.zeros((BLOCK_M,), dtype=tl.float32)
    acc = tl.zeros((BLOCK_M, D), dtype=tl.float32)
    for start in range(0, length, BLOCK_N):
        columns = start + tl.arange(0, BLOCK_N)
        k = tl.load(k_ptr + base + columns[None, :] * D + d[:, None])
        v = tl.load(v_ptr + base + columns[:, None] * D + d[None, :])
        s = tl.dot(q, k) * scale
        new = tl.maximum(most, tl.max(s, 1))
        p = tl.exp(s - new[:, None])
        shrink = tl.exp(most - new)
        norm = norm * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p.to(tl.float16), v)
        most = new
    tl.store(o_ptr + base + rows[:, None] * D + d[None, :], (acc / norm[:, None]).to(tl.float16))


def attention(q, k, v):
    heads, length, depth = q.shape
    o = torch.empty_like(q)
    grid = lambda meta: (triton.cdiv(length, meta['BLOCK_M']), heads)  # noqa: E731
    attention_kernel[grid](q, k, v, o, length, depth ** -0.5, D=128)
    return o


def attention_inputs():
    return [torch.randn(64, 4096, 128, device='cuda', dtype=torch.float16) for _ in range(3)]


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=-float('inf')).to(tl.float32)
    e = tl.exp(x - tl.max(x, 0))
    tl.store(y_ptr + row * columns + at, (e / tl.sum(e, 0)).to(tl.float16), mask=at < columns)


def softmax(x):
    y = torch.empty_like(x)
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=16384, num_warps=4)
    return y


def softmax_inputs():
    return [torch.randn(8192, 16384, device='cuda', dtype=torch.float16)]


QUANTISED = [triton.Config({'BLOCK_M': 64, 'BLOCK_N': 128, 'BLOCK_K': 64}, num_warps=4, num_stages=2)]


@triton.autotune(configs=QUANTISED, key=['M', 'N', 'K'])
@triton.jit
def quantised_kernel(a_ptr, b_ptr, s_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                     BLOCK_K: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        inner = start + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rows[:, None] * K + inner[None, :])
        b = tl.load(b_ptr + inner[:, None] * N + columns[None, :]).to(tl.float16)
        acc += tl.dot(a, b)
    scale = tl.load(s_ptr + columns)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], (acc * scale[None, :]).to(tl.float16))


def quantised(a, b, scale):
    M, K = a.shape
    N = b.shape[1]
    c = torch.empty((M, N), device=a.device, dtype=torch.float16)
    grid = lambda meta: (triton.cdiv(M, meta['BLOCK_M']), triton.cdiv(N, meta['BLOCK_N']))  # noqa: E731
    quantised_kernel[grid](a, b, scale, c, M, N, K)
    return c


def quantised_inputs():
    return [torch.randn(1024, 4096, device='cuda', dtype=torch.float16) / 16,
            torch.randint(-127, 127, (4096, 8192), device='cuda', dtype=torch.int8),
            torch.rand(8192, device='cuda') / 64]
