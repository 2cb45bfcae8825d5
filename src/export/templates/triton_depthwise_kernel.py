@triton.autotune(
    configs=[
        triton.Config({'BLOCK': 1024}, num_warps=4, num_stages=2),
        triton.Config({'BLOCK': 1024}, num_warps=8, num_stages=2),
        triton.Config({'BLOCK': 2048}, num_warps=8, num_stages=2),
        triton.Config({'BLOCK': 512}, num_warps=4, num_stages=2),
        triton.Config({'BLOCK': 256}, num_warps=2, num_stages=2),
        triton.Config({'BLOCK': 128}, num_warps=2, num_stages=2),
    ],
    key=['filters', 'H', 'W'],
)
@triton.jit
def depthwise_kernel(
    x_ptr,  # [N, C, H, W] contiguous
    w_ptr,  # [K, 1, R, S] contiguous
    b_ptr,  # [K]; anything where HAS_BIAS is false
    y_ptr,  # [N, K, P, Q] contiguous
    filters,
    H, W, P, Q,
    GROUP_K: tl.constexpr, R: tl.constexpr, S: tl.constexpr,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PAD_H: tl.constexpr, PAD_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    HAS_BIAS: tl.constexpr, RELU: tl.constexpr,
    BLOCK: tl.constexpr,
):
    # A block of one filter's output positions: a sum over its taps, in fp32.
    blocks = tl.cdiv(P * Q, BLOCK)
    plane = (tl.program_id(0) // blocks).to(tl.int64)  # n * K + k
    k = plane % filters
    place = tl.program_id(0) % blocks * BLOCK + tl.arange(0, BLOCK)
    top = place // Q * STRIDE_H - PAD_H
    left = place % Q * STRIDE_W - PAD_W
    image = x_ptr + plane // GROUP_K * H * W

    sums = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in @RANGE@(R * S):
        h = top + tap // S * DILATION_H
        w = left + tap % S * DILATION_W
        inside = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (place < P * Q)
        x = tl.load(image + h * W + w, mask=inside, other=0.0)
        sums += x.to(tl.float32) * tl.load(w_ptr + k * (R * S) + tap).to(tl.float32)

    if HAS_BIAS:
        sums += tl.load(b_ptr + k).to(tl.float32)
    if RELU:
        sums = tl.where(sums < 0, 0.0, sums)  # NaN stays NaN
    tl.store(y_ptr + plane * P * Q + place, sums.to(y_ptr.dtype.element_ty), mask=place < P * Q)


