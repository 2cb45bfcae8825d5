    def grid(meta):
        return (triton.cdiv(N * Z * P * Q, meta['BLOCK_M']), triton.cdiv(@GROUP_K@, meta['BLOCK_N']), @GROUPS@)

    conv3d_kernel[grid](
        x, weight, @BIAS_POINTER@, y,
        N * Z * P * Q, @GROUP_K@, D, H, W, Z, P, Q,
        GROUPS=@GROUPS@, C=@GROUP_C@, T=@T@, R=@R@, S=@S@,
        STRIDE_D=@STRIDE_D@, STRIDE_H=@STRIDE_H@, STRIDE_W=@STRIDE_W@,
        PAD_D=@PAD_D@, PAD_H=@PAD_H@, PAD_W=@PAD_W@,
        DILATION_D=@DILATION_D@, DILATION_H=@DILATION_H@, DILATION_W=@DILATION_W@,
        HAS_BIAS=@BIAS@, RELU=@RELU@, PRECISION='@PRECISION@',
    )
