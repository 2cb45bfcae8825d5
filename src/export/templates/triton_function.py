def @FUNCTION@(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x: [@X_AXES@]; weight: [@W_AXES@]; bias: [K] or None. Extents other than the input's are fixed."""
    assert x.is_cuda and weight.is_cuda, "x and weight must be on a GPU"
    assert x.dtype == @DTYPE@ and weight.dtype == x.dtype, "x and weight must be @DTYPE@"
    assert weight.shape == (@W_SHAPE@), "weight must be [@W_SHAPE@]"
    assert (bias is not None) == @BIAS@, "bias must be given exactly where the problem has one"
    assert x.dim() == @RANK@ and x.shape[1] == @C@, "x must be [@X_FREE@]"
    x = x@PLANE@.contiguous()
    weight = weight.contiguous()
    N, C, H, W = x.shape
    P = (H + @PAD_H_SUM@ - @SPAN_H@) // @STRIDE_H@ + 1
    Q = (W + @PAD_W_SUM@ - @SPAN_W@) // @STRIDE_W@ + 1
    assert N > 0 and P > 0 and Q > 0, "the filter does not fit the input"
    y = torch.empty((N, @K@, P, Q), device=x.device, dtype=x.dtype)
@ROUND@
@LAUNCH@    return y@LINE@


