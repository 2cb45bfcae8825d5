    def grid(meta):
        return (triton.cdiv(N * P * Q, meta['BLOCK_M']), triton.cdiv(@GROUP_K@, meta['BLOCK_N']), @GROUPS@)

    conv2d_kernel[grid](
        x, weight, @BIAS_POINTER@, y,
        N * P * Q, @GROUP_K@, H, W, P, Q,
        GROUPS=@GROUPS@, C=@GROUP_C@, R=@R@, S=@S@,
        STRIDE_H=@STRIDE_H@, STRIDE_W=@STRIDE_W@, PAD_H=@PAD_H@, PAD_W=@PAD_W@,
        DILATION_H=@DILATION_H@, DILATION_W=@DILATION_W@,
        HAS_BIAS=@BIAS@, RELU=@RELU@, PRECISION='@PRECISION@',
    )
