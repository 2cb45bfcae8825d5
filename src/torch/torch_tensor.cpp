#include "torch/torch_tensor.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace convtune::torch {

Form dense(const Form& form, bool last) {
  const auto& [n, c, h, w] = form.sizes;
  Form lying = form;
  lying.strides = last ? Sizes{h * w * c, 1, w * c, c} : Sizes{c * h * w, h * w, w, 1};
  return lying;
}

bool lies_as(const Form& form, const Form& wanted) {
  for (std::size_t i = 0; i < 4; ++i)
    if (form.sizes[i] > 1 && form.strides[i] != wanted.strides[i]) return false;
  return true;
}

bool read_form(TensorHandle tensor, Form& form) {
  std::int64_t dimensions = 0, *sizes = nullptr, *strides = nullptr;
  check(shim->get_dim(tensor, &dimensions), "get_dim");
  if (dimensions != 4) return false;
  check(shim->get_sizes(tensor, &sizes), "get_sizes");
  check(shim->get_strides(tensor, &strides), "get_strides");
  std::copy_n(sizes, 4, form.sizes.begin());
  std::copy_n(strides, 4, form.strides.begin());
  check(shim->get_dtype(tensor, &form.dtype), "get_dtype");
  check(shim->get_device_type(tensor, &form.device_type), "get_device_type");
  check(shim->get_device_index(tensor, &form.device_index), "get_device_index");
  return true;
}

bool on_device_of(TensorHandle tensor, const Form& other) {
  Form form;
  check(shim->get_device_type(tensor, &form.device_type), "get_device_type");
  check(shim->get_device_index(tensor, &form.device_index), "get_device_index");
  return form.on_device_of(other);
}

Sizes read_sizes(TensorHandle tensor) {
  std::int64_t dimensions = 0, *sizes = nullptr;
  check(shim->get_dim(tensor, &dimensions), "get_dim");
  Sizes found{};
  if (dimensions != 4) return found;
  check(shim->get_sizes(tensor, &sizes), "get_sizes");
  std::copy_n(sizes, 4, found.begin());
  return found;
}

void* address(TensorHandle tensor) {
  void* data = nullptr;
  check(shim->get_data_ptr(tensor, &data), "get_data_ptr");
  return data;
}

namespace {

// How far behind a tensor's beginning the address of its storage is (c10::TensorImpl::storage_); 0: unknown.
std::ptrdiff_t storage_place = 0;

const void* word_at(TensorHandle tensor, std::ptrdiff_t place) {
  const void* word = nullptr;
  std::memcpy(&word, static_cast<const char*>(identity(tensor)) + place, sizeof word);
  return word;
}

// An operator of one tensor that gives a number or a truth.
Value asked(const char* name, TensorHandle tensor) {
  Value stack[1] = {reinterpret_cast<Value>(Tensor::sharing(tensor).release())};  // the call takes it
  check(shim->call_dispatcher(name, "", stack, kVersion), name);
  return stack[0];
}

}  // namespace

const void* storage(TensorHandle tensor) {
  return storage_place == 0 ? nullptr : word_at(tensor, storage_place);
}

void learn_storage(TensorHandle one, const void* of_one, TensorHandle other, const void* of_other) {
  constexpr std::ptrdiff_t kFirst = 8,
                           kLast = 40;  // behind the table of functions, before what is of the tensor's own
  if (!of_one || of_one == of_other) return;
  for (std::ptrdiff_t at = kFirst; at <= kLast && storage_place == 0; at += 8)
    if (word_at(one, at) == of_one && word_at(other, at) == of_other) storage_place = at;
}

std::int64_t version(TensorHandle tensor) {
  if (shim->version) return shim->version(tensor);
  return static_cast<std::int64_t>(asked("aten::_version", tensor));
}

bool counts_versions(TensorHandle tensor) {
  return (asked("aten::is_inference", tensor) & 1) == 0;
}

Tensor Tensor::sharing(TensorHandle tensor) {
  TensorHandle another = nullptr;
  check(shim->new_tensor_handle(tensor, &another), "new_tensor_handle");
  return Tensor(another);
}

Tensor Tensor::holding_memory_of(TensorHandle tensor) {
  return Tensor(reinterpret_cast<TensorHandle>(asked("aten::detach", tensor)));
}

Tensor Tensor::empty(const Form& form) {
  if (shim->empty_strided_cuda && form.device_type == shim->cuda) {
    const Device device{static_cast<std::int8_t>(form.device_type),
                        static_cast<std::int8_t>(form.device_index)};
    void* const place = ::operator new(sizeof(OwnedTensor));  // a handle is a tensor that was made by `new`
    try {
      new (place) OwnedTensor(shim->empty_strided_cuda({form.sizes.data(), 4}, {form.strides.data(), 4},
                                                       static_cast<ScalarType>(form.dtype), device));
    } catch (...) {
      ::operator delete(place);
      throw;
    }
    return Tensor(static_cast<TensorHandle>(place));
  }
  TensorHandle made = nullptr;
  check(shim->empty_strided(4, form.sizes.data(), form.strides.data(), form.dtype, form.device_type,
                            form.device_index, &made),
        "empty_strided");
  return Tensor(made);
}

bool is_served(const Form& x) {
  return x.device_type == shim->cpu ||
         (x.device_type == shim->cuda && shim->get_current_cuda_stream && shim->cuda_stream_is_capturing);
}

void* current_stream(const Form& x) {
  void* stream = nullptr;
  if (x.device_type == shim->cuda)
    check(shim->get_current_cuda_stream(x.device_index, &stream), "get_current_cuda_stream");
  return stream;
}

bool is_capturing(const Form& x, void* stream) {
  std::int32_t capturing = 0;
  return x.device_type == shim->cuda && stream != nullptr &&  // which CUDA does not record
         (shim->cuda_stream_is_capturing(stream, &capturing) != 0 || capturing != 0);
}

}  // namespace convtune::torch
