#include "torch/step_calls.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <thread>

namespace convtune::torch {

namespace {

Tensor run_packed_anew(const PackedAnew& call, void* stream, TensorHandle x, TensorHandle weight,
                       TensorHandle bias, TensorHandle residual) {
  Launch launch = call.launch;
  launch.stream = stream;
  constexpr std::uintptr_t kAlignment = 256;  // convtune_run()'s, of packed weights
  if (const void* const own = address(weight);
      call.lies && reinterpret_cast<std::uintptr_t>(own) % kAlignment == 0) {
    launch.packed = own;
    return run(launch, x, residual);
  }
  const Packed packed = pack(launch.convolution, weight, call.weight, bias, stream);
  launch.packed = address(packed.memory.get());
  return run(launch, x, residual);
}

void run_weight_gradient(const WeightGradient& call, void* stream, const StepForms& forms, TensorHandle dy,
                         TensorHandle x, Gradients& gradients) {
  Tensor of_image, of_output;
  const auto read = [&](bool output, Tensor& made) {
    const Form& form = forms[output ? 0 : 1];
    return address(lying(output ? dy : x, form, dense(form, call.last), made));
  };
  convtune_tensors tensors = CONVTUNE_TENSORS_INIT;
  tensors.x = read(call.exchanged, of_image);
  tensors.dy = read(!call.exchanged, of_output);
  const Form written = dense(call.dw, call.dw_last);
  const bool as_asked = lies_as(call.dw, written);
  Tensor dw = Tensor::empty(as_asked ? call.dw : written), dbias;
  tensors.dw = address(dw.get()), tensors.dw_last = call.dw_last ? 1 : 0;
  if (call.dbias.dtype >= 0) {
    dbias = Tensor::empty(call.dbias);
    tensors.dbias = address(dbias.get());
  }
  check_face(convtune_run_tensors(call.convolution, &tensors, nullptr, stream));
  gradients[1] = as_asked ? std::move(dw) : copied(dw.get(), call.dw);
  gradients[2] = std::move(dbias);
}

// The call that is known, and its stream; none where a CUDA graph records it.
std::shared_ptr<const StepCall> known(std::string_view how, const StepForms& tensors, void*& stream) {
  if (!is_served(tensors[0])) return nullptr;
  stream = current_stream(tensors[0]);
  return is_capturing(tensors[0], stream) ? nullptr : StepCalls::of_process().find(how, tensors);
}

}  // namespace

StepCalls& StepCalls::of_process() {
  return *once([] { return new StepCalls; });
}

std::shared_ptr<const StepCall> StepCalls::find(std::string_view how, const StepForms& tensors) {
  const std::shared_lock guard(mutex_);
  const auto of = by_how_.find(how);
  if (of == by_how_.end()) return nullptr;
  const auto at = std::ranges::find_if(of->second, [&](const auto& call) {
    return call->tensors == tensors &&
           (call->precision == Entry::kAnyPrecision || call->precision == float32_precision().number);
  });
  return at == of->second.end() ? nullptr : *at;
}

void StepCalls::add(std::shared_ptr<const StepCall> call) {
  const std::lock_guard guard(mutex_);
  auto& calls = by_how_[call->how];
  std::erase_if(calls, [&](const auto& one) {
    return one->tensors == call->tensors && one->precision == call->precision;
  });
  calls.push_back(std::move(call));
}

void StepCalls::clear() {
  decltype(by_how_) taken;
  {
    const std::lock_guard guard(mutex_);
    taken.swap(by_how_);
  }
  for (const auto& [how, calls] : taken)
    for (const auto& call : calls)
      while (call.use_count() > 1)
        std::this_thread::yield();  // a call of another thread, which ends by itself
}

std::int64_t StepCalls::size() {
  const std::shared_lock guard(mutex_);
  std::int64_t count = 0;
  for (const auto& [how, calls] : by_how_) count += static_cast<std::int64_t>(calls.size());
  return count;
}

Tensor step_forward_if_known(const Call& call) {
  StepForms forms;
  if (!read_form(call.x, forms[0]) || !read_form(call.weight, forms[1])) return {};
  if (call.bias &&
      (!read_row(call.bias, forms[2]) || (reinterpret_cast<std::uintptr_t>(address(call.bias)) & 3)))
    return {};
  if (call.residual && !read_form(call.residual, forms[3])) return {};
  void* stream = nullptr;
  const auto found = known(call.how, forms, stream);
  if (!found) return {};
  return run_packed_anew(found->forward, stream, call.x, call.weight, call.bias, call.residual);
}

bool gradients_if_known(TensorHandle dy, TensorHandle x, TensorHandle weight, std::string_view how,
                        Gradients& gradients) {
  StepForms forms;
  if (!read_form(dy, forms[0]) || !read_form(x, forms[1]) || !read_form(weight, forms[2])) return false;
  void* stream = nullptr;
  const auto found = known(how, forms, stream);
  if (!found) return false;
  if (found->of_x.launch.convolution)
    gradients[0] = run_packed_anew(found->of_x, stream, dy, weight, nullptr, nullptr);
  if (found->of_weight.convolution) run_weight_gradient(found->of_weight, stream, forms, dy, x, gradients);
  return true;
}

}  // namespace convtune::torch
