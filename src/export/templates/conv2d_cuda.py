import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline


# Written by convtune @VERSION@ (Apache-2.0), which it does not need.
# @PROBLEM@
# on @DEVICE@ by @ALGORITHM@:
# @WHY@
CUDA_SOURCE = r"""
@DEVICE_CODE@// ---- The host's part ----

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <array>
#include <optional>
#include <vector>
@TENSOR_MAP@
// Weights and bias as the kernel reads them: in its order, and rounded.
at::Tensor conv2d_pack(const at::Tensor& weight, const std::optional<at::Tensor>& weight_bias) {
  const c10::cuda::CUDAGuard guard(weight.device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const at::Tensor result = at::empty({@PACKED_FLOATS@}, weight.options());
  const float* const w = weight.const_data_ptr<float>();
  [[maybe_unused]] const float* const bias = weight_bias ? weight_bias->const_data_ptr<float>() : nullptr;
  float* const packed = result.data_ptr<float>();
@PACK@  return result;
}

at::Tensor conv2d_run(const at::Tensor& input, const at::Tensor& weights) {
  const c10::cuda::CUDAGuard guard(input.device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const at::Tensor output = at::empty({@N@, @K@, @P@, @Q@}, input.options()@MEMORY_FORMAT_CPP@);
  const float* const x = input.const_data_ptr<float>();
  const float* const packed = weights.const_data_ptr<float>();
  float* const y = output.data_ptr<float>();
@RUN@  return output;
}
"""

CPP_SOURCE = r"""
#include <optional>

at::Tensor conv2d_pack(const at::Tensor& weight, const std::optional<at::Tensor>& weight_bias);
at::Tensor conv2d_run(const at::Tensor& input, const at::Tensor& weights);
"""

# For exactly this architecture; nothing is built where there is no GPU.
extension = load_inline(
    name='@EXTENSION@',
    cpp_sources=CPP_SOURCE,
    cuda_sources=CUDA_SOURCE,
    functions=['conv2d_pack', 'conv2d_run'],
    extra_cflags=['-std=c++20'],
    extra_cuda_cflags=['-std=c++20', '-gencode=arch=@COMPUTE@,code=@ARCH@'],
) if torch.cuda.is_available() else None


def pack(weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """weight: [K, C / groups, R, S]; bias: [K] or None. What conv2d() takes; made again when they change."""
    assert weight.is_cuda and weight.dtype == torch.float32, "weight must be torch.float32 on a GPU"
    assert weight.shape == (@K@, @GROUP_C@, @R@, @S@), "weight must be [@K@, @GROUP_C@, @R@, @S@]"
    assert torch.cuda.get_device_capability(weight.device) == (@MAJOR@, @MINOR@), "the kernel is built for compute capability @MAJOR@.@MINOR@"
    assert (bias is not None) == @BIAS@, "bias must be given exactly where the problem has one"
    if bias is not None:
        assert bias.device == weight.device and bias.dtype == torch.float32, "bias must be like weight"
        assert bias.shape == (@K@,), "bias must be [@K@]"
        bias = bias.detach().contiguous()
    return extension.conv2d_pack(weight.detach().contiguous(), bias)


def conv2d(x: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """x: [N, C, H, W], of the extents that the kernel was made for. No gradient is recorded."""
    assert x.is_cuda and x.device == packed.device, "x must be on the weights' GPU"
    assert x.dtype == torch.float32, "x must be torch.float32"
    assert x.shape == (@N@, @C@, @H@, @W@), "x must be [@N@, @C@, @H@, @W@]"
    x = x.contiguous(@MEMORY_FORMAT@)
    if x.data_ptr() % 16 != 0:
        x = x.clone()
    return extension.conv2d_run(x, packed)


class @MODULE@(nn.Module):
    def __init__(self, num_classes=1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(
            in_channels=@C@,
            out_channels=@K@,
            kernel_size=(@R@, @S@),
            stride=(@STRIDE_H@, @STRIDE_W@),
            padding=(@PAD_H@, @PAD_W@),
            dilation=(@DILATION_H@, @DILATION_W@),
            groups=@GROUPS@,
            bias=@BIAS@,
        )
        self.packed = None
        self.packed_of = ()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not x.is_cuda:
            return @FALLBACK@
        # Packed when they change: another tensor, other memory, or written to (but by .data, which hides it).
        weights = [t for t in (self.conv1.weight, self.conv1.bias) if t is not None]
        state = [(id(t), t.data_ptr(), object() if t.is_inference() else t._version) for t in weights]
        if self.packed is None or self.packed_of[1] != state:
            self.packed = pack(self.conv1.weight, self.conv1.bias)
            self.packed_of = (weights, state)
        return conv2d(x, self.packed)
