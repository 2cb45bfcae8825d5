# @PROBLEM@@PART@
# on @DEVICE@ by @ALGORITHM@:
# @WHY@
CUDA_SOURCE@SUFFIX@ = r"""
@DEVICE_CODE@// ---- The host's part ----

#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <array>
#include <optional>
#include <vector>
@TENSOR_MAP@
// Weights and bias as the kernel reads them: in its order, and rounded. Operands of any type come as floats.
at::Tensor conv2d_pack(const at::Tensor& weight, const std::optional<at::Tensor>& weight_bias) {
  const c10::cuda::CUDAGuard guard(weight.device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const at::Tensor result = at::empty({@PACKED_FLOATS@}, weight.options().dtype(at::kFloat));
  const auto* const w = static_cast<const float*>(weight.const_data_ptr());
  [[maybe_unused]] const auto* const bias =
      weight_bias ? static_cast<const float*>(weight_bias->const_data_ptr()) : nullptr;
  float* const packed = result.data_ptr<float>();
@PACK@  return result;
}

// Writes into `written`, or into a new tensor.
at::Tensor conv2d_run(const at::Tensor& input, const at::Tensor& weights, const std::optional<at::Tensor>& written) {
  const c10::cuda::CUDAGuard guard(input.device());
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const at::Tensor output = written ? *written : at::empty({@Y_SHAPE@}, input.options()@MEMORY_FORMAT_CPP@);
  [[maybe_unused]] const auto* const x = static_cast<const float*>(input.const_data_ptr());
  const float* const packed = weights.const_data_ptr<float>();
  [[maybe_unused]] auto* const y = static_cast<float*>(output.mutable_data_ptr());
@PARTIAL_SUMS@@RUN@  return output@CONVERTED@;
}
"""

CPP_SOURCE@SUFFIX@ = r"""
#include <optional>

at::Tensor conv2d_pack(const at::Tensor& weight, const std::optional<at::Tensor>& weight_bias);
at::Tensor conv2d_run(const at::Tensor& input, const at::Tensor& weights, const std::optional<at::Tensor>& written);
"""

# For exactly this architecture; nothing is built where there is no GPU.
extension@SUFFIX@ = load_inline(
    name='@EXTENSION@',
    cpp_sources=CPP_SOURCE@SUFFIX@,
    cuda_sources=CUDA_SOURCE@SUFFIX@,
    functions=['conv2d_pack', 'conv2d_run'],
    extra_cflags=['-std=c++20'],
    extra_cuda_cflags=['-std=c++20', '-gencode=arch=@COMPUTE@,code=@ARCH@'],
) if torch.cuda.is_available() else None


