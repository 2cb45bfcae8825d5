#include "torch/torch_tensor.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace convtune::torch {

namespace {

// Copies the numbers of a tensor's dimensions to their places among five.
void place(const std::int64_t* numbers, std::int64_t axes, Sizes& to) {
  std::copy_n(numbers, 2, to.begin());
  std::copy_n(numbers + 2, axes, to.end() - axes);
}

// Copies the numbers of those dimensions that a tensor with `axes` axes in space has.
void pick(const Sizes& from, std::int64_t axes, std::int64_t* numbers) {
  std::copy_n(from.begin(), 2, numbers);
  if (axes > 0) std::copy_n(from.end() - axes, axes, numbers + 2);
}

// The number of axes of the tensor's image; 0 where it is none.
std::int32_t read_axes(TensorHandle tensor) {
  std::int64_t dimensions = 0;
  check(shim->get_dim(tensor, &dimensions), "get_dim");
  return dimensions >= 3 && dimensions <= 5 ? static_cast<std::int32_t>(dimensions - 2) : 0;
}

// Reads the tensor's type and its device.
void read_kind(TensorHandle tensor, Form& form) {
  check(shim->get_dtype(tensor, &form.dtype), "get_dtype");
  check(shim->get_device_type(tensor, &form.device_type), "get_device_type");
  check(shim->get_device_index(tensor, &form.device_index), "get_device_index");
}

}  // namespace

Form dense(const Form& form, bool last) {
  const auto& [n, c, d, h, w] = form.sizes;
  Form lying = form;
  lying.strides =
      last ? Sizes{d * h * w * c, 1, h * w * c, w * c, c} : Sizes{c * d * h * w, d * h * w, h * w, w, 1};
  return lying;
}

bool lies_as(const Form& form, const Form& wanted) {
  for (std::size_t i = 0; i < form.sizes.size(); ++i)
    if (form.sizes[i] > 1 && form.strides[i] != wanted.strides[i]) return false;
  return true;
}

bool read_form(TensorHandle tensor, Form& form) {
  std::int64_t *sizes = nullptr, *strides = nullptr;
  form.axes = read_axes(tensor);
  if (form.axes == 0) return false;
  check(shim->get_sizes(tensor, &sizes), "get_sizes");
  check(shim->get_strides(tensor, &strides), "get_strides");
  form.sizes.fill(1);
  form.strides.fill(0);
  place(sizes, form.axes, form.sizes);
  place(strides, form.axes, form.strides);
  read_kind(tensor, form);
  return true;
}

bool read_row(TensorHandle tensor, Form& form) {
  std::int64_t dimensions = 0, *sizes = nullptr, *strides = nullptr;
  check(shim->get_dim(tensor, &dimensions), "get_dim");
  check(shim->get_sizes(tensor, &sizes), "get_sizes");
  check(shim->get_strides(tensor, &strides), "get_strides");
  if (dimensions != 1 || (sizes[0] > 1 && strides[0] != 1)) return false;
  form.axes = -1;
  form.sizes = {sizes[0], 1, 1, 1, 1};
  form.strides = {1, 0, 0, 0, 0};
  read_kind(tensor, form);
  return true;
}

bool on_device_of(TensorHandle tensor, const Form& other) {
  Form form;
  check(shim->get_device_type(tensor, &form.device_type), "get_device_type");
  check(shim->get_device_index(tensor, &form.device_index), "get_device_index");
  return form.on_device_of(other);
}

Sizes read_sizes(TensorHandle tensor) {
  std::int64_t* sizes = nullptr;
  Sizes found{};
  const std::int32_t axes = read_axes(tensor);
  if (axes == 0) return found;
  check(shim->get_sizes(tensor, &sizes), "get_sizes");
  found.fill(1);
  place(sizes, axes, found);
  return found;
}

void* address(TensorHandle tensor) {
  void* data = nullptr;
  check(shim->get_data_ptr(tensor, &data), "get_data_ptr");
  return data;
}

namespace {

// Bytes from a tensor's beginning to the address of its storage (c10::TensorImpl::storage_); 0: unknown.
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
  const auto dimensions = static_cast<std::size_t>(2 + form.axes);
  Sizes sizes{}, strides{};  // numbers of the form's own dimensions
  pick(form.sizes, form.axes, sizes.data());
  pick(form.strides, form.axes, strides.data());
  if (shim->empty_strided_cuda && form.device_type == shim->cuda) {
    const Device device{static_cast<std::int8_t>(form.device_type),
                        static_cast<std::int8_t>(form.device_index)};
    void* const place = ::operator new(sizeof(OwnedTensor));  // a handle is a tensor that was made by `new`
    try {
      new (place)
          OwnedTensor(shim->empty_strided_cuda({sizes.data(), dimensions}, {strides.data(), dimensions},
                                               static_cast<ScalarType>(form.dtype), device));
    } catch (...) {
      ::operator delete(place);
      throw;
    }
    return Tensor(static_cast<TensorHandle>(place));
  }
  TensorHandle made = nullptr;
  check(shim->empty_strided(2 + form.axes, sizes.data(), strides.data(), form.dtype, form.device_type,
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
