@triton.jit
def taps_of(residue, FILTER: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr, DILATION: tl.constexpr, STEP: tl.constexpr):
    # The first tap that outputs of a residue of the stride meet, and how many there are, STEP apart.
    first = residue * 0 + FILTER
    for tap in tl.static_range(STEP):
        first = tl.where((residue + PAD - tap * DILATION) % STRIDE == 0, tap, first)
    return first, tl.maximum((FILTER - first + STEP - 1) // STEP, 0)


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
def conv_transpose_kernel(
    x_ptr,  # [N, C, D, H, W] contiguous
    w_ptr,  # [C, K / groups, T, R, S] contiguous
    b_ptr,  # [K]; anything where HAS_BIAS is false
    y_ptr,  # [N, K, Z, P, Q] contiguous
    rows,   # output positions of a residue of the strides, with those behind the last
    filters,  # per group
    D, H, W, Z, P, Q,
    GROUPS: tl.constexpr,
    C: tl.constexpr,  # per group
    T: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_D: tl.constexpr, PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    STEP_D: tl.constexpr, STEP_H: tl.constexpr, STEP_W: tl.constexpr,  # stride / gcd(stride, dilation)
    HAS_BIAS: tl.constexpr, RELU: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):
    # A block of output positions of one residue of the strides, which meet the same taps, times a block of a group's
    # filters: a matrix product whose left side is gathered.
    group = tl.program_id(2) // (STRIDE_D * STRIDE_H * STRIDE_W)
    residue = tl.program_id(2) % (STRIDE_D * STRIDE_H * STRIDE_W)
    residue_d = residue // (STRIDE_H * STRIDE_W)
    residue_h = residue // STRIDE_W % STRIDE_H
    residue_w = residue % STRIDE_W
    first_t, taps_t = taps_of(residue_d, T, STRIDE_D, PAD_D, DILATION_D, STEP_D)
    first_r, taps_r = taps_of(residue_h, R, STRIDE_H, PAD_H, DILATION_H, STEP_H)
    first_s, taps_s = taps_of(residue_w, S, STRIDE_W, PAD_W, DILATION_W, STEP_W)
    taps = taps_t * taps_r * taps_s

    frames = tl.cdiv(Z, STRIDE_D)
    lines = tl.cdiv(P, STRIDE_H)
    columns = tl.cdiv(Q, STRIDE_W)
    row = tl.program_id(0).to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    k = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    n = row // (frames * lines * columns)
    z = row // (lines * columns) % frames * STRIDE_D + residue_d
    p = row // columns % lines * STRIDE_H + residue_h
    q = row % columns * STRIDE_W + residue_w
    image = (n * GROUPS + group) * C * D * H * W
    written = (row < rows) & (z < Z) & (p < P) & (q < Q)

    sums = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for first in range(0, C * taps, BLOCK_K):
        i = first + tl.arange(0, BLOCK_K)
        c = i // taps
        t = first_t + i % taps // (taps_r * taps_s) * STEP_D
        r = first_r + i // taps_s % taps_r * STEP_H
        s = first_s + i % taps_s * STEP_W
        # Multiples of the strides, but below 0: no matter how those round, they are outside.
        far = z[:, None] + PAD_D - (t * DILATION_D)[None, :]
        down = p[:, None] + PAD_H - (r * DILATION_H)[None, :]
        along = q[:, None] + PAD_W - (s * DILATION_W)[None, :]
        d = far // STRIDE_D
        h = down // STRIDE_H
        w = along // STRIDE_W
        inside = (far >= 0) & (d < D) & (down >= 0) & (h < H) & (along >= 0) & (w < W)
        inside = inside & written[:, None] & (i < C * taps)[None, :]
        plane = image[:, None] + (c.to(tl.int64) * D)[None, :] * H * W + d * H * W
        x = tl.load(x_ptr + (plane + h * W + w), mask=inside, other=0.0)
        known = (k < filters)[None, :] & (i < C * taps)[:, None]
        filter = ((group * C + c) * filters)[:, None] + k[None, :]
        f = tl.load(w_ptr + filter * (T * R * S) + ((t * R + r) * S + s)[:, None], mask=known, other=0.0)
        sums = tl.dot(x, f, sums, input_precision=PRECISION)

    if HAS_BIAS:
        sums += tl.load(b_ptr + group * filters + k, mask=k < filters, other=0.0).to(tl.float32)[None, :]
    if RELU:
        sums = tl.where(sums < 0, 0.0, sums)  # NaN stays NaN
    y = (n * (GROUPS * filters) + group * filters)[:, None] + k[None, :]
    place = (z * P + p) * Q + q
    tl.store(y_ptr + (y * Z * P * Q + place[:, None]), sums.to(y_ptr.dtype.element_ty), mask=written[:, None] & (k < filters)[None, :])


