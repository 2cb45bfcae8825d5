// One run: tensors as the kernel reads them, the launch, the answer. And what else is asked of the C face.
#pragma once

#include <string>

#include "convtune/c.h"
#include "torch/torch_tensor.h"

namespace convtune::torch {

// A convolution with packed weights on tensors of these forms.
struct Launch {
  const convtune_convolution* convolution = nullptr;
  const void* packed = nullptr;
  void* stream = nullptr;
  Form x, residual, y;      // as the call has them, and the answer; no residual: of no type
  bool last = false;        // the kernel's lie channels last: what lies otherwise is copied
  bool transposed = false;  // x is the dy of a problem backward, y its dx
};

// A tensor that lies as `wanted`, for a kernel to read: itself, or a copy, which `made` owns.
TensorHandle lying(TensorHandle tensor, const Form& form, const Form& wanted, Tensor& made);
// A copy that lies as `wanted`.
Tensor copied(TensorHandle tensor, const Form& wanted);

// Weights packed now, queued on the stream; and the copy of the weight that this took, or none.
struct Packed {
  Tensor memory, weight;
};
Packed pack(const convtune_convolution* convolution, TensorHandle weight, const Form& form, TensorHandle bias,
            void* stream);

// y, queued on the stream.
Tensor run(const Launch& launch, TensorHandle x, TensorHandle residual);

// Throws what the C face said where `status` is not 0.
void check_face(convtune_status status);
// The name under which records of the convolution's device are kept.
std::string fingerprint(const convtune_convolution* convolution);
// Tells whether its packed weights are the filter itself, channels last.
bool reads_weights(const convtune_convolution* convolution);
// Tells whether it stores the gradient of a weight channels last, too.
bool can_lay_dw_last(const convtune_convolution* convolution);
// "cpu", "cuda:0"
std::string device_text(const Form& x);
std::int32_t c_dtype(std::int32_t dtype);  // the type of convtune/c.h; throws where there is none

}  // namespace convtune::torch
