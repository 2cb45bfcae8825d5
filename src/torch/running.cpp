#include "torch/running.h"

#include <stdexcept>
#include <utility>

namespace convtune::torch {

namespace {

// to.copy_(from)
void copy(TensorHandle to, TensorHandle from) {
  Value stack[3] = {reinterpret_cast<Value>(Tensor::sharing(to).release()),
                    reinterpret_cast<Value>(Tensor::sharing(from).release()), 0};
  check(shim->call_dispatcher("aten::copy_", "", stack, kVersion), "copy_");
  const Tensor returned(reinterpret_cast<TensorHandle>(stack[0]));
}

}  // namespace

void check_face(convtune_status status) {
  if (status != CONVTUNE_OK) throw std::runtime_error(convtune_error_text());
}

namespace {

std::string plan_json(const convtune_convolution* convolution) {
  convtune_text text{};
  check_face(convtune_plan_json(convolution, &text));
  std::string json(text.data, text.size);
  convtune_text_free(&text);
  return json;
}

}  // namespace

bool reads_weights(const convtune_convolution* convolution) {
  return plan_json(convolution).find("\"packed_order\":\"krsc\"") != std::string::npos;
}

bool can_lay_dw_last(const convtune_convolution* convolution) {
  return plan_json(convolution).find("\"can_lay_dw_last\":true") != std::string::npos;
}

std::string fingerprint(const convtune_convolution* convolution) {
  const std::string json = plan_json(convolution);
  const std::string begin = "\"fingerprint\":\"";  // the name of a processor has no quotes
  const std::size_t at = json.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t from = at + begin.size();
  return json.substr(from, json.find('"', from) - from);
}

std::string device_text(const Form& x) {
  return x.device_type == shim->cuda ? "cuda:" + std::to_string(x.device_index) : "cpu";
}

std::int32_t c_dtype(std::int32_t dtype) {
  if (dtype == shim->float32) return CONVTUNE_F32;
  if (dtype == shim->float16) return CONVTUNE_F16;
  if (dtype == shim->bfloat16) return CONVTUNE_BF16;
  throw std::runtime_error("convtune: tensors must be float32, float16 or bfloat16");
}

TensorHandle lying(TensorHandle tensor, const Form& form, const Form& wanted, Tensor& made) {
  if (lies_as(form, wanted) && (reinterpret_cast<std::uintptr_t>(address(tensor)) & 3) == 0) return tensor;
  made = copied(tensor, wanted);
  return made.get();
}

Tensor copied(TensorHandle tensor, const Form& wanted) {
  Tensor made = Tensor::empty(wanted);
  copy(made.get(), tensor);
  return made;
}

Packed pack(const convtune_convolution* convolution, TensorHandle weight, const Form& form, TensorHandle bias,
            void* stream) {
  Packed packed;
  const TensorHandle w = lying(weight, form, dense(form, false), packed.weight);
  Form bytes = form;
  bytes.sizes = {1, 1, 1, 1, static_cast<std::int64_t>(convtune_packed_bytes(convolution))};
  bytes = dense(bytes, false);
  bytes.dtype = shim->uint8;
  packed.memory = Tensor::empty(bytes);  // PyTorch aligns it to 64 bytes on a CPU, to 512 on a GPU
  check_face(convtune_pack(convolution, address(w), bias ? address(bias) : nullptr,
                           address(packed.memory.get()), stream));
  return packed;
}

Tensor run(const Launch& launch, TensorHandle x, TensorHandle residual) {
  Tensor of_x, of_residual;
  convtune_tensors tensors = CONVTUNE_TENSORS_INIT;
  const void* const read = address(lying(x, launch.x, dense(launch.x, launch.last), of_x));
  (launch.transposed ? tensors.dy : tensors.x) = read;
  if (residual)
    tensors.residual =
        address(lying(residual, launch.residual, dense(launch.residual, launch.last), of_residual));
  const Form written = dense(launch.y, launch.last);
  const bool as_asked = lies_as(launch.y, written);
  Tensor y = Tensor::empty(as_asked ? launch.y : written);
  (launch.transposed ? tensors.dx : tensors.y) = address(y.get());
  check_face(residual || launch.transposed
                 ? convtune_run_tensors(launch.convolution, &tensors, launch.packed, launch.stream)
                 : convtune_run(launch.convolution, tensors.x, launch.packed, tensors.y, launch.stream));
  return as_asked ? std::move(y) : copied(y.get(), launch.y);
}

}  // namespace convtune::torch
