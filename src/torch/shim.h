// PyTorch's stable C functions as far as the operator needs them: declared here, found by name in the
// libtorch that the process has loaded. So neither PyTorch's headers nor its libraries are needed to build,
// and one binary serves every version from 2.10 on, which is the first that hands lists and texts to
// operators of this interface. Names and types are facts of torch/csrc/inductor/aoti_torch/c/shim.h and
// torch/csrc/stable/c/shim.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace convtune::torch {

struct TensorOpaque;
using TensorHandle = TensorOpaque*;  // owned by whoever got it
using Value = std::uint64_t;         // an argument or result on an operator's stack, "StableIValue" there
using Kernel = void(Value* stack, std::uint64_t inputs, std::uint64_t outputs);
using Status = std::int32_t;  // 0, or it failed and has said why on the error stream

// The types of a C++ function below, as it takes and gives them: c10::ArrayRef, c10::ScalarType, c10::Device
// and at::TensorBase, which is one address.
struct Numbers {
  const std::int64_t* first = nullptr;
  std::size_t count = 0;
};
enum class ScalarType : std::int8_t {};
struct Device {
  std::int8_t type = 0, index = 0;
};
struct OwnedTensor {
  OwnedTensor() = delete;
  OwnedTensor(const OwnedTensor&) = delete;
  ~OwnedTensor();  // for none that was made here: who makes one hands it on
  void* tensor;
};

struct Shim {
  // These read tensors. Sizes and strides are borrowed.
  Status (*get_sizes)(TensorHandle, std::int64_t** sizes);
  Status (*get_strides)(TensorHandle, std::int64_t** strides);
  Status (*get_numel)(TensorHandle, std::int64_t* numbers);
  Status (*get_dim)(TensorHandle, std::int64_t* dimensions);
  Status (*get_dtype)(TensorHandle, std::int32_t* dtype);
  Status (*get_device_type)(TensorHandle, std::int32_t* type);
  Status (*get_device_index)(TensorHandle, std::int32_t* index);
  Status (*get_data_ptr)(TensorHandle, void** data);
  Status (*new_tensor_handle)(TensorHandle, TensorHandle* another);
  Status (*delete_tensor_object)(TensorHandle);
  Status (*new_undefined_tensor)(TensorHandle* made);
  Status (*empty_strided)(std::int64_t dimensions, const std::int64_t* sizes, const std::int64_t* strides,
                          std::int32_t dtype, std::int32_t device_type, std::int32_t device_index,
                          TensorHandle* made);
  // These read texts and lists on the stack.
  Status (*string_c_str)(void* text, const char** data);
  Status (*string_length)(void* text, std::size_t* length);
  Status (*delete_string)(void* text);
  // These call and register operators. The version is that of the interface which the caller was written for.
  Status (*call_dispatcher)(const char* name, const char* overload, Value* stack, std::uint64_t version);
  Status (*library_impl)(void* library, const char* name, Kernel* kernel, std::uint64_t version);
  Status (*library_init_impl)(const char* space, const char* key, const char* file, std::uint32_t line,
                              void** library);
  Status (*library_init_fragment)(const char* space, const char* file, std::uint32_t line, void** library);
  Status (*library_def)(void* library, const char* schema);
  // Functions that may be missing: null.
  Status (*new_stable_ivalue)(Value**);                                   // since 2.13; before it is `new`
  Status (*delete_stable_ivalue)(Value*);                                 // and `delete`
  Status (*get_current_cuda_stream)(std::int32_t device, void** stream);  // of a PyTorch with CUDA, and
  std::int32_t (*cuda_stream_is_capturing)(void* stream, std::int32_t* capturing);  // for its CUDA runtime
  bool (*records_gradients)();
  // C++ names, which no ABI keeps: at::globalContext, the precision of its convolutions, what a tensor is
  // asked (`version` costs ten times as much by its operator's name), who watches this thread's calls, and
  // memory on a GPU without the dispatcher, as inductor's code takes it.
  const void* (*global_context)();
  std::int32_t (*float32_precision)(const void* context, std::int32_t backend, std::int32_t operation);
  std::int64_t (*version)(TensorHandle);
  bool (*is_neg)(TensorHandle);
  bool (*requires_grad)(const void* tensor);
  bool (*has_callbacks)();
  std::int64_t (*function_modes)();
  OwnedTensor (*empty_strided_cuda)(Numbers sizes, Numbers strides, ScalarType, std::optional<Device>);
  // The numbers of this libtorch.
  std::int32_t float32, float16, bfloat16, uint8, cpu, cuda;
};

inline constexpr std::uint64_t kVersion = (std::uint64_t{2} << 56) | (std::uint64_t{10} << 48);

// The functions, looked up at the first call; null where they are not there, and then `why_no_shim` says why.
const Shim* find_shim();
std::string why_no_shim();
// The shim that was found before: every kernel runs behind that.
extern const Shim* shim;

// Throws std::runtime_error, which PyTorch hands on, with the name of what failed.
void check(Status status, const char* what);

}  // namespace convtune::torch
