// Numbers of the element types: how a tensor's bytes are read, and how a number is rounded into them.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/tensor.h"

namespace convtune {

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
