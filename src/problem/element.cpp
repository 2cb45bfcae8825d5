// See element.h. IEEE 754's binary16, and bfloat16: the upper half of binary32.
#include "problem/element.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace convtune {
namespace {

// Numbers as bits; one to be stored is one that the type holds exactly.
float from_bf16(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U);
}
std::uint16_t to_bf16(double value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U);
}

std::uint16_t to_f16(double value) {
  const unsigned sign = std::signbit(value) ? 0x8000U : 0U;
  const double magnitude = std::abs(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | 0x7e00U);
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | 0x7c00U);
  // Below the least normal number the mantissa alone counts, in steps of 2^-24.
  if (magnitude < 0x1p-14)
    return static_cast<std::uint16_t>(sign | static_cast<unsigned>(magnitude * 0x1p24));
  int exponent = 0;
  const double mantissa = std::frexp(magnitude, &exponent);  // in [1/2, 1)
  return static_cast<std::uint16_t>(sign | static_cast<unsigned>(exponent + 14) << 10U |
                                    (static_cast<unsigned>(mantissa * 0x1p11) & 0x3ffU));
}

float from_f16(std::uint16_t bits) {
  const int exponent = bits >> 10U & 0x1fU;
  const auto mantissa = static_cast<float>(bits & 0x3ffU);
  float magnitude = 0;
  if (exponent == 0)
    magnitude = mantissa * 0x1p-24F;
  else if (exponent == 31)
    magnitude =
        mantissa == 0 ? std::numeric_limits<float>::infinity() : std::numeric_limits<float>::quiet_NaN();
  else
    magnitude = std::ldexp(mantissa + 1024, exponent - 25);
  return (bits & 0x8000U) != 0 ? -magnitude : magnitude;
}

}  // namespace

double rounded(DType type, double value) {
  if (value == 0 || !std::isfinite(value)) return value;
  const ElementRow& row = element_row(type);
  double nearest = 0;
  if (std::abs(value) >= row.least_normal) {
    // Half a last place is added to the double's bits, less one where the last place is even, and what is
    // below it is cut off. A carry moves the exponent, as it should.
    const int below = 53 - row.mantissa_bits;
    auto pattern = std::bit_cast<std::uint64_t>(value);
    pattern += (std::uint64_t{1} << (below - 1)) - 1 + ((pattern >> below) & 1U);
    nearest = std::bit_cast<double>(pattern >> below << below);
  } else {
    const double last_place = row.least_denormal();
    nearest = std::nearbyint(value / last_place) * last_place;
  }
  return std::abs(nearest) >= row.too_large ? std::copysign(std::numeric_limits<double>::infinity(), value)
                                            : nearest;
}

float load(DType type, const void* tensor, std::int64_t index) {
  switch (type) {
    case DType::f32:
      return static_cast<const float*>(tensor)[index];
    case DType::f16:
      return from_f16(static_cast<const std::uint16_t*>(tensor)[index]);
    case DType::bf16:
      return from_bf16(static_cast<const std::uint16_t*>(tensor)[index]);
  }
  return std::numeric_limits<float>::quiet_NaN();  // an element of no type
}

void store(DType type, void* tensor, std::int64_t index, double value) {
  switch (type) {
    case DType::f32:
      static_cast<float*>(tensor)[index] = static_cast<float>(value);
      break;
    case DType::f16:
      static_cast<std::uint16_t*>(tensor)[index] = to_f16(rounded(type, value));
      break;
    case DType::bf16:
      static_cast<std::uint16_t*>(tensor)[index] = to_bf16(rounded(type, value));
      break;
  }
}

std::vector<float> to_floats(DType type, const void* tensor, std::int64_t count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  if (type == DType::f32 && count > 0)
    std::memcpy(values.data(), tensor, values.size() * sizeof(float));
  else
    for (std::int64_t i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = load(type, tensor, i);
  return values;
}

void store_all(DType type, const float* values, std::int64_t count, void* tensor) {
  if (type == DType::f32 && count > 0)
    std::memcpy(tensor, values, static_cast<std::size_t>(count) * sizeof(float));
  else
    for (std::int64_t i = 0; i < count; ++i) store(type, tensor, i, values[i]);
}

std::vector<unsigned char> to_bytes(DType type, const std::vector<float>& values) {
  std::vector<unsigned char> bytes(values.size() * static_cast<std::size_t>(size_of(type)));
  store_all(type, values.data(), std::ssize(values), bytes.data());
  return bytes;
}

double unit_roundoff(DType type) {
  return std::ldexp(1.0, -element_row(type).mantissa_bits);
}

}  // namespace convtune
