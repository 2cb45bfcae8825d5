// THE table of element types, and their numbers: how a tensor's bytes are read, and how a number is rounded
// into them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "convtune/tensor.h"

namespace convtune {

struct ElementRow {
  DType type;
  std::string_view name;           // in problems, records and reports
  std::string_view torch_name;     // in PyTorch, NumPy and Triton
  int bytes;                       // an element
  int mantissa_bits;               // with the implied one
  double least_normal, too_large;  // the least normal number, and the first power of two above all numbers
  Precision products;  // products of two numbers of the type, unless asked otherwise; automatic: the device's
  bool keeps_denormals;    // in products. Processors' instructions take those of bf16 from 0 (vdpbf16ps).
  unsigned char nan_byte;  // an element of such bytes alone is NaN

  constexpr double least_denormal() const {
    double least = least_normal;
    for (int bit = 1; bit < mantissa_bits; ++bit) least /= 2;
    return least;
  }
};

inline constexpr std::array kElements = {
    ElementRow{DType::f32, "f32", "float32", 4, 24, 0x1p-126, 0x1p128, Precision::automatic, true, 0xFF},
    ElementRow{DType::f16, "f16", "float16", 2, 11, 0x1p-14, 0x1p16, Precision::fp16, true, 0xFF},
    ElementRow{DType::bf16, "bf16", "bfloat16", 2, 8, 0x1p-126, 0x1p128, Precision::bf16, false, 0xFF}};

constexpr const ElementRow& element_row(DType type) {
  return kElements[static_cast<std::size_t>(type)];
}

static_assert(
    [] {
      for (std::size_t i = 0; i < kElements.size(); ++i)
        if (static_cast<std::size_t>(kElements[i].type) != i) return false;
      return kElements.back().type == kLastDType;
    }(),
    "the rows are not all types in the order of the enumeration");

// To the nearest number of the type, ties to even; beyond the largest by half a step or more: infinity. Once,
// from double: through float it would be rounded twice.
double rounded(DType type, double value);

// Element `index` of a tensor on the host.
float load(DType type, const void* tensor, std::int64_t index);
void store(DType type, void* tensor, std::int64_t index, double value);  // rounded

// The first `count` of a tensor.
std::vector<float> to_floats(DType type, const void* tensor, std::int64_t count);
// Rounded: the first `count` of a tensor, or all bytes of one.
void store_all(DType type, const float* values, std::int64_t count, void* tensor);
std::vector<unsigned char> to_bytes(DType type, const std::vector<float>& values);

// Half the distance from 1 to the next number: the largest relative error of rounding.
double unit_roundoff(DType type);

}  // namespace convtune
