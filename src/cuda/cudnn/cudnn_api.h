// cuDNN 9's backend API, loaded while the program runs: the few functions, numbers and objects of it that
// convtune uses, declared here so that no header of NVIDIA's is needed to build. Names follow NVIDIA's
// (CUDNN_ATTR_TENSOR_STRIDES is CudnnAttribute::tensor_strides); numbers are those of cuDNN 9.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/error.h"

namespace convtune::cuda {

enum class CudnnKind : int {  // cudnnBackendDescriptorType_t
  pointwise = 0,
  convolution = 1,
  engine = 2,
  engine_config = 3,
  engine_heuristics = 4,
  execution_plan = 5,
  knob_choice = 7,
  operation_convolution_forward = 10,
  operation_convolution_backward_filter = 11,
  operation_convolution_backward_data = 12,
  operation_pointwise = 13,
  operation_graph = 15,
  variant_pack = 16,
  tensor = 17,
  device_properties = 38,
};

enum class CudnnType : int {  // cudnnBackendAttributeType_t
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  float32 = 4,
  float64 = 5,
  void_pointer = 6,
  convolution_mode = 7,
  heuristic_mode = 8,
  knob_type = 9,
  numerical_note = 11,
  pointwise_mode = 14,
  descriptor = 15,
  behavior_note = 19,
  character = 24,
};

enum class CudnnAttribute : int {  // cudnnBackendAttributeName_t
  pointwise_mode = 0,
  pointwise_math_precision = 1,
  pointwise_relu_lower_clip = 3,
  pointwise_relu_upper_clip = 4,
  pointwise_relu_lower_clip_slope = 5,
  pointwise_swish_beta = 8,
  convolution_compute_type = 100,
  convolution_mode = 101,
  convolution_dilations = 102,
  convolution_filter_strides = 103,
  convolution_post_paddings = 104,
  convolution_pre_paddings = 105,
  convolution_spatial_dimensions = 106,
  engine_heuristics_mode = 200,
  engine_heuristics_operation_graph = 201,
  engine_heuristics_results = 202,
  engine_heuristics_device_properties = 204,
  engine_config_engine = 300,
  engine_config_knob_choices = 302,
  execution_plan_handle = 400,
  execution_plan_engine_config = 401,
  execution_plan_workspace_size = 402,
  execution_plan_device_properties = 407,
  knob_choice_type = 600,
  knob_choice_value = 601,
  operation_convolution_forward_alpha = 700,
  operation_convolution_forward_beta = 701,
  operation_convolution_forward_convolution = 702,
  operation_convolution_forward_w = 703,
  operation_convolution_forward_x = 704,
  operation_convolution_forward_y = 705,
  operation_convolution_backward_data_alpha = 706,
  operation_convolution_backward_data_beta = 707,
  operation_convolution_backward_data_convolution = 708,
  operation_convolution_backward_data_w = 709,
  operation_convolution_backward_data_dx = 710,
  operation_convolution_backward_data_dy = 711,
  operation_convolution_backward_filter_alpha = 712,
  operation_convolution_backward_filter_beta = 713,
  operation_convolution_backward_filter_convolution = 714,
  operation_convolution_backward_filter_dw = 715,
  operation_convolution_backward_filter_x = 716,
  operation_convolution_backward_filter_dy = 717,
  operation_pointwise_pointwise = 750,
  operation_pointwise_x = 751,
  operation_pointwise_b = 752,
  operation_pointwise_y = 753,
  operation_graph_handle = 800,
  operation_graph_operations = 801,
  tensor_byte_alignment = 900,
  tensor_data_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_unique_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  variant_pack_unique_ids = 1000,
  variant_pack_data_pointers = 1001,
  variant_pack_workspace = 1003,
  engine_global_index = 1301,
  engine_numerical_note = 1303,
  engine_behavior_note = 1305,
  device_properties_json = 2702,
};

enum class CudnnNote : int {  // cudnnBackendNumericalNote_t
  tensor_core = 0,
  down_convert_inputs = 1,
  reduced_precision_reduction = 2,
  fft = 3,
  nondeterministic = 4,
  winograd = 5,
  winograd_tile_4x4 = 6,
  winograd_tile_6x6 = 7,
  winograd_tile_13x13 = 8,
  strict_nan_propagation = 9,
};

constexpr int kCudnnRuntimeCompilation = 0;  // CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION

enum class CudnnHeuristic : int { b = 1, fallback = 2, a = 3 };  // cudnnBackendHeurMode_t

enum class CudnnData : int { f32 = 0, f16 = 2, bf16 = 9 };  // cudnnDataType_t

enum class CudnnPointwise : int {  // cudnnPointwiseMode_t; the activations' names end in _FWD there
  add = 0,
  mul = 1,
  relu = 100,
  sigmoid = 102,
  gelu = 104,  // by erf
  swish = 106,
  gelu_approx_tanh = 107,
};

constexpr int kCudnnCrossCorrelation = 1;  // CUDNN_CROSS_CORRELATION

using CudnnHandle = struct CudnnContext*;       // cudnnHandle_t
using CudnnObject = struct CudnnOpaqueObject*;  // cudnnBackendDescriptor_t
using CudnnStatus = int;                        // cudnnStatus_t: 0 is success, 3000 to 3999 a polite no

struct CudnnFunctions {
  std::size_t (*cudnnGetVersion)() = nullptr;
  const char* (*cudnnGetErrorString)(CudnnStatus) = nullptr;
  void (*cudnnGetLastErrorString)(char* message, std::size_t size) = nullptr;
  CudnnStatus (*cudnnCreate)(CudnnHandle*) = nullptr;
  CudnnStatus (*cudnnSetStream)(CudnnHandle, void* stream) = nullptr;
  CudnnStatus (*cudnnBackendCreateDescriptor)(int kind, CudnnObject*) = nullptr;
  CudnnStatus (*cudnnBackendDestroyDescriptor)(CudnnObject) = nullptr;
  CudnnStatus (*cudnnBackendSetAttribute)(CudnnObject, int attribute, int type, std::int64_t count,
                                          const void* elements) = nullptr;
  CudnnStatus (*cudnnBackendGetAttribute)(CudnnObject, int attribute, int type, std::int64_t requested,
                                          std::int64_t* count, void* elements) = nullptr;
  CudnnStatus (*cudnnBackendFinalize)(CudnnObject) = nullptr;
  CudnnStatus (*cudnnBackendExecute)(CudnnHandle, CudnnObject plan, CudnnObject variant_pack) = nullptr;
};

// Tells whether cuDNN 9 was found, looked for once in a process. The reason says what was tried.
const Support& cudnn_found();
// The loaded functions. Throws Error{unsupported} with cudnn_found()'s reason.
const CudnnFunctions& cudnn_functions();

// Throws where `status` is not success: Error{unsupported} where cuDNN says that it does not support what
// was asked, Error{internal} else. `doing` as in "cuDNN failed to create a handle".
void check_cudnn(CudnnStatus status, std::string_view doing);

// One object of the backend API, owned. Set attributes, finalize(), then use or get().
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(CudnnKind kind);
  ~CudnnDescriptor();
  CudnnDescriptor(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor& operator=(CudnnDescriptor&& other) noexcept;
  CudnnDescriptor(const CudnnDescriptor&) = delete;
  CudnnDescriptor& operator=(const CudnnDescriptor&) = delete;

  CudnnObject get() const { return object_; }

  void set(CudnnAttribute attribute, const std::vector<std::int64_t>& values);
  void set(CudnnAttribute attribute, const std::vector<void*>& pointers);
  void set(CudnnAttribute attribute, const std::vector<const CudnnDescriptor*>& descriptors);
  void set(CudnnAttribute attribute, const CudnnDescriptor& descriptor);
  void set(CudnnAttribute attribute, CudnnHandle handle);
  void set(CudnnAttribute attribute, CudnnData type);
  void set_float(CudnnAttribute attribute, float value);
  void set_double(CudnnAttribute attribute, double value);
  void set_text(CudnnAttribute attribute, std::string_view text);
  void set_true(CudnnAttribute attribute);
  void set_enum(CudnnAttribute attribute, CudnnType type, int value);
  void finalize();

  std::int64_t get_int64(CudnnAttribute attribute) const;
  std::vector<int> get_enums(CudnnAttribute attribute, CudnnType type, std::int64_t most) const;
  // Gets all descriptors that there are, but no more than `most`.
  std::vector<CudnnDescriptor> get_descriptors(CudnnAttribute attribute, CudnnKind kind,
                                               std::int64_t most) const;

 private:
  void set(CudnnAttribute attribute, CudnnType type, std::size_t count, const void* elements);
  CudnnKind kind_;
  CudnnObject object_ = nullptr;
};

std::string cudnn_version();   // "9.19.0", or why there is none
std::string describe_cudnn();  // for people: version and file, or why there is none

}  // namespace convtune::cuda
