// Half precision by the bits: every number of both formats there and back, and rounding to nearest even.
#include "problem/element.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace convtune::element_test {
namespace {

float value_of(DType type, unsigned bits) {
  const auto half = static_cast<std::uint16_t>(bits);
  return load(type, &half, 0);
}
unsigned bits_of(DType type, double value) {
  std::uint16_t half = 0;
  store(type, &half, 0, value);
  return half;
}

TEST(Element, EveryHalfComesBack) {
  for (const DType type : {DType::f16, DType::bf16})
    for (unsigned bits = 0; bits < 0x10000; ++bits) {
      const float value = value_of(type, bits);
      if (std::isnan(value))
        EXPECT_TRUE(std::isnan(value_of(type, bits_of(type, value)))) << bits;
      else
        EXPECT_EQ(bits_of(type, value), bits);
    }
}

// The largest number, the least ones and NaN, as the rows say them.
TEST(Element, RowsAreTrue) {
  for (const ElementRow& row : kElements) {
    const std::vector<unsigned char> bytes(static_cast<std::size_t>(row.bytes), row.nan_byte);
    EXPECT_TRUE(std::isnan(load(row.type, bytes.data(), 0))) << row.name;
    const double largest = row.too_large * (1 - std::ldexp(1.0, -row.mantissa_bits));
    for (const double number : {largest, row.least_normal, row.least_denormal(), 1.0})
      EXPECT_EQ(to_floats(row.type, to_bytes(row.type, {static_cast<float>(number)}).data(), 1)[0], number)
          << row.name;
    EXPECT_EQ(rounded(row.type, row.too_large), std::numeric_limits<double>::infinity()) << row.name;
    EXPECT_EQ(rounded(row.type, row.least_denormal() / 2), 0) << row.name;
    EXPECT_EQ(rounded(row.type, 1 + std::ldexp(1.0, -row.mantissa_bits)), 1) << row.name;
    EXPECT_EQ(size_of(row.type), row.bytes) << row.name;
  }
}

TEST(Element, KnowsTheNumbersOfTheStandards) {
  EXPECT_EQ(value_of(DType::f16, 0x3c00), 1);
  EXPECT_EQ(value_of(DType::f16, 0x7bff), 65504);
  EXPECT_EQ(value_of(DType::f16, 0x0001), 0x1p-24F);
  EXPECT_EQ(value_of(DType::f16, 0xfc00), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(value_of(DType::bf16, 0x3f80), 1);
  EXPECT_EQ(value_of(DType::bf16, 0x0001), 0x1p-133F);
  EXPECT_EQ(unit_roundoff(DType::f16), 0x1p-11);
  EXPECT_EQ(unit_roundoff(DType::bf16), 0x1p-8);
  EXPECT_EQ(unit_roundoff(DType::f32), 0x1p-24);
}

// Between two neighbours the nearer one; half way the even one; a hair beyond half way no longer.
TEST(Element, RoundsToNearestEven) {
  for (const DType type : {DType::f16, DType::bf16})
    for (unsigned bits = 0; value_of(type, bits + 1) < std::numeric_limits<float>::infinity(); ++bits) {
      const double low = value_of(type, bits), high = value_of(type, bits + 1), middle = (low + high) / 2;
      const double hair = (high - low) * 0x1p-20;
      ASSERT_EQ(bits_of(type, middle), bits + bits % 2);
      ASSERT_EQ(bits_of(type, middle - hair), bits);
      ASSERT_EQ(bits_of(type, middle + hair), bits + 1);
      ASSERT_EQ(rounded(type, -middle), -rounded(type, middle));
    }
}

TEST(Element, OverflowsToInfinity) {
  EXPECT_EQ(rounded(DType::f16, 65519.99), 65504);
  EXPECT_EQ(rounded(DType::f16, 65520), std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(DType::bf16, -3.4e38), -std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(DType::f32, 1e300), std::numeric_limits<double>::infinity());
  EXPECT_EQ(rounded(DType::f32, 0.1), static_cast<double>(0.1F));
  EXPECT_EQ(rounded(DType::f32, 1e-46), 0);
  EXPECT_TRUE(std::isnan(rounded(DType::bf16, std::nan(""))));
}

}  // namespace
}  // namespace convtune::element_test
