    def grid(meta):
        return (N * @K@ * triton.cdiv(P * Q, meta['BLOCK']),)

    depthwise_kernel[grid](
        x, weight, @BIAS_POINTER@, y,
        @K@, H, W, P, Q,
        GROUP_K=@GROUP_K@, R=@R@, S=@S@,
        STRIDE_H=@STRIDE_H@, STRIDE_W=@STRIDE_W@, PAD_H=@PAD_H@, PAD_W=@PAD_W@,
        DILATION_H=@DILATION_H@, DILATION_W=@DILATION_W@,
        HAS_BIAS=@BIAS@, RELU=@RELU@,
    )
