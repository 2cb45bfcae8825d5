def @FUNCTION@(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """x: [@X_AXES@]; weight: [@W_AXES@]; bias: [K] or None. Extents other than the input's are fixed."""
    assert x.is_cuda and weight.is_cuda, "x and weight must be on a GPU"
    assert x.dtype == @DTYPE@ and weight.dtype == x.dtype, "x and weight must be @DTYPE@"
    assert weight.shape == (@W_SHAPE@), "weight must be [@W_SHAPE@]"
    assert (bias is not None) == @BIAS@, "bias must be given exactly where the problem has one"
    assert x.dim() == @RANK@ and x.shape[1] == @C@, "x must be [@X_FREE@]"
    x = x@PLANE@.contiguous()
    weight = weight.contiguous()
@SIZES@    assert N > 0 and @FITS@, "the filter does not fit the input"
    y = torch.empty((N, @K@, @Y_AXES@), device=x.device, dtype=x.dtype)
@ROUND@
@LAUNCH@    return y@LINE@


