// A tensor's properties that the operator looks at, read through the shim; and a tensor that is owned.
#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "torch/shim.h"

namespace convtune::torch {

// Batch, channels, depth, height, width, whatever of the last three a tensor has; the others are 1, and their
// strides 0.
using Sizes = std::array<std::int64_t, 5>;

// Sizes, strides, type and device of a tensor: two that are equal here differ in memory alone.
struct Form {
  Sizes sizes{}, strides{};
  std::int32_t axes = 2;  // the image's, 1 to 3; -1 for a row of numbers, a tensor of one dimension
  std::int32_t dtype = -1, device_type = -1, device_index = -1;
  bool operator==(const Form&) const = default;
  bool on_device_of(const Form& other) const {
    return device_type == other.device_type && device_index == other.device_index;
  }
};
// True where a tensor of any dimensions is on the device of `other`.
bool on_device_of(TensorHandle tensor, const Form& other);

// The form of those sizes without gaps: channels last, or first.
Form dense(const Form& form, bool last);
// True where the strides are those of `wanted`; the stride of a single element says nothing.
bool lies_as(const Form& form, const Form& wanted);

// The tensor that a handle stands for: at::Tensor is one pointer, and a handle points to it. Equal for two
// handles of one tensor.
inline const void* identity(TensorHandle tensor) {
  return *reinterpret_cast<const void* const*>(tensor);
}

// False where it has not three to five dimensions.
bool read_form(TensorHandle tensor, Form& form);
bool read_row(TensorHandle tensor, Form& form);  // false where it is no dense row of numbers
Sizes read_sizes(TensorHandle tensor);           // all 0 where it has not three to five dimensions
void* address(TensorHandle tensor);
// The object that owns a tensor's memory: null until it was learned where a tensor keeps it.
const void* storage(TensorHandle tensor);
// Learns where a tensor keeps its storage from two tensors with different storages, of which PyTorch has
// said what they are.
void learn_storage(TensorHandle one, const void* of_one, TensorHandle other, const void* of_other);
// Returns how often the tensor was written to, as PyTorch counts; throws for one that was made in inference
// mode.
std::int64_t version(TensorHandle tensor);
bool counts_versions(TensorHandle tensor);

// A tensor that this object owns, or none.
class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(TensorHandle owned) : handle_(owned) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_) shim->delete_tensor_object(handle_);
  }
  static Tensor sharing(TensorHandle tensor);
  // Another tensor in the same memory, which stays as long as this one: whatever memory that one is given.
  static Tensor holding_memory_of(TensorHandle tensor);
  static Tensor empty(const Form& form);

  explicit operator bool() const { return handle_ != nullptr; }
  TensorHandle get() const { return handle_; }
  TensorHandle release() { return std::exchange(handle_, nullptr); }

 private:
  TensorHandle handle_ = nullptr;
};

// True where x is on a CPU, or on a GPU of which this libtorch tells what is asked below.
bool is_served(const Form& x);
// The stream of x's device on which work is queued now; null on a CPU.
void* current_stream(const Form& x);
bool is_capturing(const Form& x, void* stream);
}  // namespace convtune::torch
