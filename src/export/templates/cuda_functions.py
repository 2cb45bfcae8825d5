def pack@SUFFIX@(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """weight: [@W_AXES@]; bias: [K] or None. What @FUNCTION@() takes; made again when they change."""
    assert weight.is_cuda and weight.dtype == @DTYPE@, "weight must be @DTYPE@ on a GPU"
    assert weight.shape == (@W_SHAPE@), "weight must be [@W_SHAPE@]"
    assert torch.cuda.get_device_capability(weight.device) == (@MAJOR@, @MINOR@), "the kernel is built for compute capability @MAJOR@.@MINOR@"
    assert (bias is not None) == @BIAS@, "bias must be given exactly where the problem has one"
    if bias is not None:
        assert bias.device == weight.device and bias.dtype == weight.dtype, "bias must be like weight"
        assert bias.shape == (@K@,), "bias must be [@K@]"
        bias = bias.detach().contiguous()
    weight = weight.detach().contiguous()
    return @PACKS@


def @FUNCTION@(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """x: [@X_AXES@], of the extents that the kernel was made for. No gradient is recorded."""
    assert x.is_cuda and x.device == packed.device, "x must be on the weights' GPU"
    assert x.dtype == @DTYPE@, "x must be @DTYPE@"
    assert x.shape == (@X_SHAPE@), "x must be [@X_SHAPE@]"
    x = x@PLANE@.contiguous(@MEMORY_FORMAT@)
    if x.data_ptr() % 16 != 0:
        x = x.clone()
@RUNS@    return y@LINE@


