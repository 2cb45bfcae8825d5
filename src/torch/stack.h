// An operator's arguments and results, as PyTorch's dispatcher hands them to a kernel.
#pragma once

#include <string_view>
#include <utility>

#include "torch/shim.h"

namespace convtune::torch {

inline TensorHandle as_tensor(Value value) {
  return reinterpret_cast<TensorHandle>(value);
}
inline Value as_value(TensorHandle tensor) {
  return reinterpret_cast<Value>(tensor);
}

// An optional value lies in a box of its own; none is null.
inline TensorHandle unboxed(Value value) {
  const auto* const box = reinterpret_cast<const Value*>(value);
  return box ? as_tensor(*box) : nullptr;
}
inline Value boxed(Value value) {
  Value* box = nullptr;
  if (shim->new_stable_ivalue)
    check(shim->new_stable_ivalue(&box), "new_stable_ivalue");
  else
    box = new Value;
  *box = value;
  return reinterpret_cast<Value>(box);
}

inline std::string_view as_text(Value value) {
  const char* text = nullptr;
  std::size_t length = 0;
  auto* const handle = reinterpret_cast<void*>(value);
  check(shim->string_c_str(handle, &text), "string_c_str");
  check(shim->string_length(handle, &length), "string_length");
  return {text, length};
}

// The arguments are the kernel's to free: of our operators two tensors or so, then optional ones, and a text
// as the last.
class Arguments {
 public:
  Arguments(Value* stack, std::uint64_t count, std::uint64_t tensors = 2)
      : stack_(stack), count_(count), tensors_(tensors) {}
  Arguments(const Arguments&) = delete;
  Arguments& operator=(const Arguments&) = delete;
  ~Arguments() { free(); }

  void free() {
    Value* const stack = hand_on();
    if (!stack) return;
    for (std::uint64_t i = 0; i < tensors_; ++i) shim->delete_tensor_object(as_tensor(stack[i]));
    for (std::uint64_t i = tensors_; i + 1 < count_; ++i)
      if (auto* const box = reinterpret_cast<Value*>(stack[i])) {
        shim->delete_tensor_object(as_tensor(*box));
        if (shim->delete_stable_ivalue)
          shim->delete_stable_ivalue(box);
        else
          delete box;
      }
    shim->delete_string(reinterpret_cast<void*>(stack[count_ - 1]));
  }
  // Somebody else frees them.
  Value* hand_on() { return std::exchange(stack_, nullptr); }

 private:
  Value* stack_;
  std::uint64_t count_, tensors_;
};

}  // namespace convtune::torch
