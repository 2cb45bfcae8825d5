#include "torch/python_call.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

#include "torch/python.h"
#include "torch/ready.h"

namespace convtune::torch {

namespace {

// None where there is none.
Tensor answer(Object* const* arguments) {
  std::array<const void*, 4> tensors{};
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!read_tensor(arguments[i], tensors[i])) return {};
  std::ptrdiff_t size = 0;
  const char* const how = python.utf8(arguments[4], &size);
  if (!how) python.forget_error();
  if (!how || !tensors[0] || !tensors[1]) return {};
  const auto handle = [&](std::size_t i) {  // an at::Tensor is one address
    return tensors[i] ? reinterpret_cast<TensorHandle>(&tensors[i]) : nullptr;
  };
  Tensor y;
  void* const state = python.let_others_run();
  try {
    y = run_if_ready({handle(0), handle(1), handle(2), handle(3), {how, static_cast<std::size_t>(size)}});
  } catch (const std::exception&) {  // the long way fails, too, and says it in Python's words
  }
  python.run_again(state);
  return y;
}

Object* call(Object*, Object* const* arguments, std::ptrdiff_t count) {
  if (count == 5)
    if (const Tensor y = answer(arguments)) return object_of(y.get());
  return another(python.none);
}

struct Bound {
  const convtune_convolution* convolution;
  std::int32_t device;
  bool transposed;
  Object* otherwise;
};

// False where it is to be done otherwise: a tensor that is none, an odd place in half precision, which no
// kernel reads, and whatever fails, which is said in Python's words then. No residual: None.
bool run_bound(const Bound& bound, Object* x, Object* packed, Object* residual, Object* y) try {
  const auto address_of = [](Object* object) -> void* {
    const void* tensor = nullptr;
    return read_tensor(object, tensor) && tensor ? address(reinterpret_cast<TensorHandle>(&tensor)) : nullptr;
  };
  const bool adds = residual != python.none;
  convtune_tensors tensors = CONVTUNE_TENSORS_INIT;
  const void* const read = address_of(x);
  void* const written = address_of(y);
  (bound.transposed ? tensors.dy : tensors.x) = read;
  (bound.transposed ? tensors.dx : tensors.y) = written;
  tensors.residual = adds ? address_of(residual) : nullptr;
  const void* const weights = address_of(packed);
  const auto places =
      reinterpret_cast<std::uintptr_t>(read) | reinterpret_cast<std::uintptr_t>(tensors.residual);
  if (!read || !written || !weights || (adds && !tensors.residual) || (places & 3) != 0) return false;
  void* stream = nullptr;
  if (bound.device >= 0)
    check(shim->get_current_cuda_stream(bound.device, &stream), "get_current_cuda_stream");
  void* const state = python.let_others_run();
  const convtune_status status = adds || bound.transposed
                                     ? convtune_run_tensors(bound.convolution, &tensors, weights, stream)
                                     : convtune_run(bound.convolution, read, weights, written, stream);
  python.run_again(state);
  return status == CONVTUNE_OK;
} catch (const std::exception&) {
  return false;
}

// (x, packed, out=y) or (x, packed, residual, out=y): values by name come behind the others.
Object* call_bound(Object* self, Object* const* arguments, std::ptrdiff_t count, Object* names) {
  const auto& bound = *static_cast<const Bound*>(python.pointer(self));
  bool is_by_name = false;
  if (names && python.size(names) > 0) {
    std::ptrdiff_t length = 0;
    const char* const name = python.utf8(python.item(names, 0), &length);
    is_by_name = python.size(names) == 1 && name && std::string_view(name) == "out";
    if (!is_by_name) return python.call(bound.otherwise, nullptr);  // which says what it takes
  }
  const std::ptrdiff_t all = count + (is_by_name ? 1 : 0);
  if (all < 3 || all > 4) return python.call(bound.otherwise, nullptr);
  Object* const residual = all == 4 ? arguments[2] : python.none;
  Object* const y = arguments[all - 1];
  if (run_bound(bound, arguments[0], arguments[1], residual, y)) return another(python.none);
  return python.call(bound.otherwise, arguments[0], arguments[1], residual, y, nullptr);
}

}  // namespace

void* python_call() {
  static Method method{"conv2d_ready", reinterpret_cast<void (*)()>(call), kFastCall, nullptr};
  return has_python() ? python.function_of(&method, nullptr, nullptr) : nullptr;
}

void* python_bound(const convtune_convolution* convolution, std::int32_t device, bool transposed,
                   void* otherwise) {
  static Method method{"conv2d_bound", reinterpret_cast<void (*)()>(call_bound), kFastCall | kKeywords,
                       nullptr};
  if (!has_python()) return nullptr;
  if (device >= 0 && !shim->get_current_cuda_stream) return another(otherwise);
  python.take(otherwise);
  Object* const self =
      python.number(new Bound{convolution, device, transposed, otherwise});  // never freed: see the header
  Object* const made = python.function_of(&method, self, nullptr);
  python.drop(self);
  return made;
}

void* python_object(const void* tensor) {
  return object_of(&tensor);
}

}  // namespace convtune::torch
