// The nouns every other header uses: element type, layout, precision, activation, device.
// Each enum has one text form, used by the command line, the records and the reports alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convtune/language.h"

namespace convtune {

// Element type of a tensor in memory.
enum class DType { f32, f16, bf16 };
constexpr DType kLastDType = DType::bf16;

// The element types of a problem's tensors. A residual has the type of what it is added to, y or dx; a
// gradient has that of the tensor that it is the gradient of.
struct DTypes {
  DType x = DType::f32, w = DType::f32, y = DType::f32, bias = DType::f32;

  constexpr DTypes() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): one type is how most problems say theirs
  constexpr DTypes(DType all) : x(all), w(all), y(all), bias(all) {}
  constexpr DTypes(DType of_x, DType of_w, DType of_y) : DTypes(of_x, of_w, of_y, of_w) {}
  constexpr DTypes(DType of_x, DType of_w, DType of_y, DType of_bias)
      : x(of_x), w(of_w), y(of_y), bias(of_bias) {}
  bool operator==(const DTypes&) const = default;
};

// Names how activations (input and output) lie in memory: N[D]HWC or NC[D]HW, with the depth where there is
// one. Weights always lie as [K][C/groups][T][R][S].
enum class Layout { nchw, nhwc };

// Names the result of a convolution y = x * w: y itself, or, from y's gradient dy, that of x or of
// w.
enum class Direction { forward, backward_data, backward_weights };

// The least precise multiply that the caller accepts; sums are always kept in fp32.
// A backend may be more exact than asked: a CPU multiplies in fp32 whatever is allowed.
enum class Precision {
  automatic,  // the device's default: fp32 on a CPU, tf32 on an NVIDIA GPU (as PyTorch convolves)
  fp32,       // as exact as fp32 fused multiply-adds
  tf32,       // operands rounded to nearest TF32 (10 mantissa bits)
  fp16,       // operands rounded to nearest fp16
  bf16,       // operands rounded to nearest bfloat16
};

// Applied last, to the sum with bias and residual. The formulas are PyTorch's, and so is what becomes of NaN:
//   relu        max(v, 0), NaN for NaN
//   clip        min(max(v, alpha), beta), NaN for NaN; ReLU6 is clip:0:6
//   silu        v / (1 + exp(-v))
//   gelu_erf    v/2 * (1 + erf(v / sqrt 2))
//   gelu_tanh   v/2 * (1 + tanh(sqrt(2/pi) * (v + 0.044715 v^3)))
//   hardswish   v * min(max(v + 3, 0), 6) / 6
//   leaky_relu  v where v > 0, else alpha * v
//   sigmoid     1 / (1 + exp(-v))
enum class Activation { none, relu, clip, silu, gelu_erf, gelu_tanh, hardswish, leaky_relu, sigmoid };
constexpr Activation kLastActivation = Activation::sigmoid;

// A Snake behind the sum, v + scale * sin(alpha * v)^2 with an alpha and a scale a channel, which stand
// behind the biases: bias is [3][channels] then. `after`: of what is stored. `beside`: the sums are stored as
// they are, and behind the last image as many images of what the Snake makes of them.
enum class Snake { none, after, beside };

// When an output is rounded to its element type: once, after the activation; or after each of sum, bias,
// residual and activation, as frameworks do that run them one by one.
enum class Rounding { once, eager };

std::string_view to_string(DType);
std::string to_string(const DTypes&);  // "bf16", "bf16:bf16:f32", "bf16:bf16:bf16:f32": x:w:y:bias
std::string_view to_string(Layout);
std::string_view to_string(Direction);  // "fwd", "bwd_d", "bwd_w"
std::string_view to_string(Precision);  // automatic is "auto"
std::string_view to_string(Activation);
std::string_view to_string(Rounding);
std::string_view to_string(Snake);

// The inverse of to_string. Throws Error{invalid_argument} that lists the accepted names.
DType parse_dtype(std::string_view);
DTypes parse_dtypes(std::string_view);
Layout parse_layout(std::string_view);  // "ncw", "ncdhw" and their like too
Direction parse_direction(std::string_view);
Precision parse_precision(std::string_view);
Activation parse_activation(std::string_view);
Rounding parse_rounding(std::string_view);
Snake parse_snake(std::string_view);

// Returns how each activation is written, in the order of the enumeration: "none", "relu", "clip:LOW:HIGH".
std::vector<const char*> activation_usages();

std::int64_t size_of(DType);  // bytes an element

// One place to run: the CPU (all its cores are one device), or one GPU.
struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;  // 0 on a CPU

  bool operator==(const Device&) const = default;
};

std::string to_string(Device);          // "cpu", "cuda:0"
Device parse_device(std::string_view);  // "cpu", "cuda" (index 0), "cuda:N"; else Error{invalid_argument}

// A queue of work on the device: a CUstream on an NVIDIA GPU, ignored on a CPU.
using Stream = void*;

// Holds the tensors that a run reads and writes; a tensor that the problem has no use for, or without
// elements, may be null. Pointers are device pointers of the convolution's device: host memory on a CPU.
struct Tensors {
  const void* x = nullptr;         // read: forward and backward weights
  const void* cache = nullptr;     // read: forward, where the problem has one
  const void* residual = nullptr;  // read: forward and backward data, where the problem has one
  const void* dy = nullptr;        // read: backward
  void* y = nullptr;               // written: forward
  // Written: forward, where it is not null: the last kept_frames() frames of cache and x, zeros before them
  // where these are fewer. It may be the cache itself where x has half as many frames or more.
  void* cache_out = nullptr;
  void* dx = nullptr;     // written: backward data
  void* dw = nullptr;     // written: backward weights
  void* dbias = nullptr;  // written: backward weights, where the problem has a bias
  // dw lies channels last, [K][T][R][S][C/groups]: of convolutions that can_lay_dw_last() alone.
  bool dw_last = false;
};

}  // namespace convtune
