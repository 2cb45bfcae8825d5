@triton.autotune(
    configs=[
        triton.Config({'BLOCK_M': 128, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=3),
        triton.Config({'BLOCK_M': 128, 'BLOCK_N': 128, 'BLOCK_K': 32}, num_warps=8, num_stages=3),
        triton.Config({'BLOCK_M': 128, 'BLOCK_N': 32, 'BLOCK_K': 32}, num_warps=4, num_stages=3),
        triton.Config({'BLOCK_M': 64, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=3),
        triton.Config({'BLOCK_M': 32, 'BLOCK_N': 64, 'BLOCK_K': 32}, num_warps=4, num_stages=2),
    ],
    key=['rows', 'filters'],
)
@triton.jit
def conv3d_kernel(
    x_ptr,  # [N, C, D, H, W] contiguous
    w_ptr,  # [K, C / groups, T, R, S] contiguous
    b_ptr,  # [K]; anything where HAS_BIAS is false
    y_ptr,  # [N, K, Z, P, Q] contiguous
    rows,   # N * Z * P * Q, the output positions
    filters,  # per group
    D, H, W, Z, P, Q,
    GROUPS: tl.constexpr,
    C: tl.constexpr,  # per group
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_D: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    HAS_BIAS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # A block of output positions times a block of a group's filters: a matrix product whose left side is gathered.
    group = tl.program_id(2)
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    volume = Z * P * Q
    n = row // volume
    place = row % volume
    front = place // (P * Q) * STRIDE_D - PAD_D
    top = place // Q % P * STRIDE_H - PAD_H
    left = place % Q * STRIDE_W - PAD_W
    image = (n * GROUPS + group) * C * D * H * W
    first_filter = group * filters

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, C * T * R * S, BLOCK_K):
        tap = first + tl.arange(0, BLOCK_K)
        d = front[:, None] + (tap // (R * S) % T * DILATION_D)[None, :]
        h = top[:, None] + (tap // S % R * DILATION_H)[None, :]
        w = left[:, None] + (tap % S * DILATION_W)[None, :]
        inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        inside = inside & (row < rows)[:, None] & (tap < C * T * R * S)[None, :]
        plane = image[:, None] + ((tap // (T * R * S)).to(tl.int64) * D)[None, :] * H * W + d * H * W
        x = tl.load(x_ptr + (plane + h * W + w), mask=inside, other=0.0)
        known = (k < filters)[None, :] & (tap < C * T * R * S)[:, None]
        f = tl.load(w_ptr + (first_filter + k)[None, :] * (C * T * R * S) + tap[:, None], mask=known, other=0.0)
        sums = tl.dot(x, f, sums, input_precision=PRECISION)

    if HAS_BIAS:
        sums += tl.load(b_ptr + first_filter + k, mask=k < filters, other=0.0).to(tl.float32)[None, :]
    if RELU:
        sums = tl.where(sums < 0, 0.0, sums)  # NaN stays NaN
    y = (n * (GROUPS * filters) + first_filter)[:, None] * volume + k[None, :].to(tl.int64) * volume + place[:, None]
    tl.store(y_ptr + y, sums.to(y_ptr.dtype.element_ty), mask=(row < rows)[:, None] & (k < filters)[None, :])


