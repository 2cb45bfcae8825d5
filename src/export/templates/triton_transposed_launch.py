    rows = N * triton.cdiv(Z, @STRIDE_D@) * triton.cdiv(P, @STRIDE_H@) * triton.cdiv(Q, @STRIDE_W@)

    def grid(meta):
        return (triton.cdiv(rows, meta['BLOCK_M']), triton.cdiv(@GROUP_K@, meta['BLOCK_N']), @GROUPS@ * @RESIDUES@)

    conv_transpose_kernel[grid](
        x, weight, @BIAS_POINTER@, y,
        rows, @GROUP_K@, D, H, W, Z, P, Q,
        GROUPS=@GROUPS@, C=@GROUP_C@, T=@T@, R=@R@, S=@S@,
        STRIDE_D=@STRIDE_D@, STRIDE_H=@STRIDE_H@, STRIDE_W=@STRIDE_W@,
        PAD_D=@PAD_D@, PAD_H=@PAD_H@, PAD_W=@PAD_W@,
        DILATION_D=@DILATION_D@, DILATION_H=@DILATION_H@, DILATION_W=@DILATION_W@,
        STEP_D=@STEP_D@, STEP_H=@STEP_H@, STEP_W=@STEP_W@,
        HAS_BIAS=@BIAS@, RELU=@RELU@, PRECISION='@PRECISION@',
    )
