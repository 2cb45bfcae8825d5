// The nouns every other header uses: element type, layout, precision, activation, device.
// Each enum has one text form, used by the command line, the records and the reports alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace convtune {

// Element type of the input, weights, bias and output in memory.
enum class DType { f32, f16, bf16 };

// How activations (input and output) lie in memory. Weights always lie as [K][C/groups][R][S].
enum class Layout { nchw, nhwc };

// The least precise multiply that the caller accepts; sums are always kept in fp32.
// A backend may be more exact than asked: a CPU multiplies in fp32 whatever is allowed.
enum class Precision {
  automatic,  // the device's default: fp32 on a CPU, tf32 on an NVIDIA GPU (as PyTorch convolves)
  fp32,       // as exact as fp32 fused multiply-adds
  tf32,       // operands rounded to nearest TF32 (10 mantissa bits)
  fp16,       // operands rounded to nearest fp16
  bf16,       // operands rounded to nearest bfloat16
};

// Applied to the sum after the bias. ReLU keeps NaN: max(v, 0) that returns v when v is NaN.
enum class Activation { none, relu };

std::string_view to_string(DType);
std::string_view to_string(Layout);
std::string_view to_string(Precision);  // automatic is "auto"
std::string_view to_string(Activation);

// The inverse of to_string. Throws Error{invalid_argument} that lists the accepted names.
DType parse_dtype(std::string_view);
Layout parse_layout(std::string_view);
Precision parse_precision(std::string_view);
Activation parse_activation(std::string_view);

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

}  // namespace convtune
