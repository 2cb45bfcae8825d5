#include "torch/shim.h"

#include <dlfcn.h>

#include <stdexcept>

#include "base/fork_gate.h"

namespace convtune::torch {

const Shim* shim = nullptr;

namespace {

// A library that the process has loaded already. libtorch comes with whoever has tensors; it is never opened
// from here.
void* loaded(const char* soname) {
  return ::dlopen(soname, RTLD_LAZY | RTLD_LOCAL | RTLD_NOLOAD);
}

template <typename Function>
bool bind(void* library, Function*& function, const char* name) {
  function = library ? reinterpret_cast<Function*>(::dlsym(library, name)) : nullptr;
  return function != nullptr;
}

struct Found {
  Shim shim{};
  std::string why;
};

Found look() {
  Found found;
  Shim& to = found.shim;
  void* const torch = loaded("libtorch_cpu.so");
  if (!torch) {
    found.why = "libtorch_cpu.so is not loaded in this process";
    return found;
  }
  const auto need = [&](auto*& function, const char* name) {
    if (!bind(torch, function, name) && found.why.empty())
      found.why = std::string("this libtorch has no ") + name + ": it takes PyTorch 2.10 or newer";
  };
  need(to.get_sizes, "aoti_torch_get_sizes");
  need(to.get_strides, "aoti_torch_get_strides");
  need(to.get_numel, "aoti_torch_get_numel");
  need(to.get_dim, "aoti_torch_get_dim");
  need(to.get_dtype, "aoti_torch_get_dtype");
  need(to.get_device_type, "aoti_torch_get_device_type");
  need(to.get_device_index, "aoti_torch_get_device_index");
  need(to.get_data_ptr, "aoti_torch_get_data_ptr");
  need(to.new_tensor_handle, "aoti_torch_new_tensor_handle");
  need(to.delete_tensor_object, "aoti_torch_delete_tensor_object");
  need(to.new_undefined_tensor, "aoti_torch_new_uninitialized_tensor");
  need(to.empty_strided, "aoti_torch_empty_strided");
  need(to.string_c_str, "torch_string_c_str");
  need(to.string_length, "torch_string_length");
  need(to.delete_string, "torch_delete_string");
  need(to.call_dispatcher, "torch_call_dispatcher");
  need(to.library_impl, "torch_library_impl");
  need(to.library_init_impl, "aoti_torch_library_init_impl");
  need(to.library_init_fragment, "aoti_torch_library_init_fragment");
  need(to.library_def, "aoti_torch_library_def");
  bind(torch, to.new_stable_ivalue, "torch_new_stable_ivalue");
  bind(torch, to.delete_stable_ivalue, "torch_delete_stable_ivalue");
  bind(torch, to.global_context, "_ZN2at13globalContextEv");
  bind(torch, to.float32_precision, "_ZNK2at7Context16float32PrecisionENS_14Float32BackendENS_9Float32OpE");
  if (!bind(torch, to.version, "_ZNK2at10TensorBase8_versionEv"))
    bind(torch, to.version, "_ZN2at4_ops8_version4callERKNS_6TensorE");
  bind(torch, to.records_gradients, "aoti_torch_grad_mode_is_enabled");
  bind(torch, to.is_neg, "_ZN2at6native6is_negERKNS_6TensorE");
  bind(torch, to.has_callbacks, "_ZN2at12hasCallbacksEv");
  bind(torch, to.function_modes, "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv");
  bind(loaded("libc10.so"), to.requires_grad, "_ZNK3c1010TensorImpl13requires_gradEv");
  void* const of_cuda = loaded("libtorch_cuda.so");  // and what it needs: the CUDA runtime
  bind(of_cuda, to.get_current_cuda_stream, "aoti_torch_get_current_cuda_stream");
  bind(of_cuda, to.cuda_stream_is_capturing, "cudaStreamIsCapturing");
  bind(of_cuda, to.empty_strided_cuda,
       "_ZN2at6detail18empty_strided_cudaEN3c108ArrayRefIlEES3_NS1_10ScalarTypeESt8optionalINS1_6DeviceEE");
  const auto number = [&](std::int32_t& value, const char* name) {
    std::int32_t (*function)() = nullptr;
    need(function, name);
    value = function ? function() : -1;
  };
  number(to.float32, "aoti_torch_dtype_float32");
  number(to.float16, "aoti_torch_dtype_float16");
  number(to.bfloat16, "aoti_torch_dtype_bfloat16");
  number(to.uint8, "aoti_torch_dtype_uint8");
  number(to.cpu, "aoti_torch_device_type_cpu");
  number(to.cuda, "aoti_torch_device_type_cuda");
  return found;
}

Found& found() {
  return *once([] { return new Found(look()); });  // kernels run until the process has ended
}

}  // namespace

const Shim* find_shim() {
  if (found().why.empty()) shim = &found().shim;
  return shim;
}

std::string why_no_shim() {
  return found().why;
}

void check(Status status, const char* what) {
  if (status != 0) throw std::runtime_error(std::string("convtune: PyTorch failed in ") + what);
}

}  // namespace convtune::torch
