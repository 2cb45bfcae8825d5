// Tests the vector kernels on numbers: every half of both types, roundings, and activations
// beside the host's in double precision.
#include "cpu/tile/tensor_kernels.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random_bits.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_candidates.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/instruction_sets.h"
#include "problem/activation.h"
#include "problem/element.h"

namespace convtune::tensor_kernels_test {
namespace {

template <class Check>
void for_each_instruction_set(Check&& check) {
  for (int bits = cpu::widest_vector_bits(cpu::backend().info()); bits >= 128; bits /= 2) {
    const cpu::TensorKernels* kernels = cpu::tensor_kernels(bits);
    ASSERT_NE(kernels, nullptr) << bits;
    SCOPED_TRACE(bits);
    check(*kernels);
  }
}

// The outputs of `sums` without bias, one pixel of so many channels.
std::vector<float> finished(const cpu::TensorKernels& kernels, const ConvProblem& problem,
                            const std::vector<float>& sums, bool by_instruction = false) {
  std::vector<float> padded(sums.size() + 16), bias(sums.size() + 16);
  std::copy(sums.begin(), sums.end(), padded.begin());
  std::vector<unsigned char> y(sums.size() * 4);
  const std::int64_t place = 0;
  kernels.finish_pixels[static_cast<std::size_t>(problem.activation)]({.sums = padded.data(),
                                                                       .sums_step = 0,
                                                                       .pixels = 1,
                                                                       .channels = std::ssize(sums),
                                                                       .bias = bias.data(),
                                                                       .y = y.data(),
                                                                       .places = &place,
                                                                       .place = 0,
                                                                       .plane = 0,
                                                                       .problem = &problem,
                                                                       .by_instruction = by_instruction});
  return to_floats(problem.dtype.y, y.data(), std::ssize(sums));
}

bool same(float a, float b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

TEST(TensorKernels, ReadEveryHalf) {
  std::vector<std::uint16_t> halves(65536);
  for (std::size_t i = 0; i < halves.size(); ++i) halves[i] = static_cast<std::uint16_t>(i);
  for_each_instruction_set([&](const cpu::TensorKernels& kernels) {
    for (const DType type : {DType::f16, DType::bf16}) {
      std::vector<float> floats(halves.size());
      kernels.read({.type = type,
                    .words = cpu::Words::f32,
                    .x = halves.data(),
                    .pixel_step = 256,
                    .channel_step = 1,
                    .pixels = 256,
                    .channels = 256,
                    .to = floats.data(),
                    .to_step = 256});
      for (std::int64_t i = 0; i < std::ssize(floats); ++i)
        ASSERT_TRUE(same(floats[static_cast<std::size_t>(i)], load(type, halves.data(), i))) << i;
    }
  });
}

// Pixels may follow each other without the room that whole vectors of their channels would need.
TEST(TensorKernels, ReadPixelsWithoutRoomBetweenThem) {
  constexpr std::int64_t kPixels = 21;
  for_each_instruction_set([&](const cpu::TensorKernels& kernels) {
    for (const std::int64_t channels : {1, 3, 16, 19, 31, 33, 50})
      for (const bool planes : {true, false}) {
        std::vector<std::uint16_t> x(static_cast<std::size_t>(kPixels * channels));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<std::uint16_t>(0x3f80 + i);
        const std::int64_t words = (channels + 1) / 2;
        std::vector<float> to(static_cast<std::size_t>(kPixels * words + kernels.lanes));
        kernels.read({.type = DType::bf16,
                      .words = cpu::Words::bf16_pairs,
                      .x = x.data(),
                      .pixel_step = planes ? 1 : channels,
                      .channel_step = planes ? kPixels : 1,
                      .pixels = kPixels,
                      .channels = channels,
                      .to = to.data(),
                      .to_step = words});
        for (std::int64_t j = 0; j < kPixels; ++j)
          for (std::int64_t c = 0; c < channels; ++c)
            ASSERT_EQ(load(DType::bf16, to.data(), 2 * j * words + c),
                      load(DType::bf16, x.data(), planes ? c * kPixels + j : j * channels + c))
                << channels << " channels, pixel " << j << ", channel " << c;
      }
  });
}

TEST(TensorKernels, RoundToNearestEven) {
  std::vector<float> values;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    // Every bf16 and what lies half-way to the next, and random numbers of f16's range.
    for (const std::uint32_t lower : {0U, 1U, 0x7fffU, 0x8000U, 0x8001U})
      values.push_back(std::bit_cast<float>(i << 16U | lower));
    const auto bits = static_cast<std::uint32_t>(random_bits(3, i));
    values.push_back(std::ldexp(1.0F + static_cast<float>(bits % 8388608) / 8388608,
                                static_cast<int>(bits >> 24U) % 45 - 27));
  }
  for (int i = 0; i < 65536; ++i) {  // every f16, and what lies half-way to the next
    const auto bits = static_cast<std::uint16_t>(i);
    const auto next = static_cast<std::uint16_t>(i + 1);
    const float value = load(DType::f16, &bits, 0), other = load(DType::f16, &next, 0);
    values.insert(values.end(), {value, (value + other) / 2, std::nextafter((value + other) / 2, value)});
  }
  for_each_instruction_set([&](const cpu::TensorKernels& kernels) {
    for (const DType type : {DType::f16, DType::bf16}) {
      ConvProblem problem;
      problem.dtype = type;
      const std::vector<float> got = finished(kernels, problem, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        // The zero bias makes a positive zero of a negative one.
        const auto expected = static_cast<float>(rounded(type, static_cast<double>(values[i])));
        ASSERT_TRUE(same(got[i], expected) || (expected == 0 && got[i] == 0))
            << to_string(type) << " of " << values[i] << " is " << got[i];
      }
    }
  });
}

// Numbers of every exponent, denormal ones too, infinities and NaN.
std::vector<float> numbers_of_every_size() {
  std::vector<float> values = {88.5F, -88.5F, 87, -87, 104, -104, 3, -3, 3.4e38F, -3.4e38F};
  for (std::uint32_t upper = 0; upper < 512; ++upper)  // sign and exponent
    for (std::uint32_t i = 0; i < 66; ++i) {
      const auto random = static_cast<std::uint32_t>(random_bits(5, upper * 66 + i));
      const std::uint32_t mantissa = i == 0 ? 0 : i == 1 ? 0x7fffff : random & 0x7fffff;
      values.push_back(std::bit_cast<float>(upper << 23U | mantissa));
    }
  for (std::uint64_t i = 0; i < 20000; ++i)
    values.push_back((static_cast<float>(random_bits(6, i) % 2000001) / 1000000 - 1) *
                     (i % 2 == 0 ? 8.0F : 90.0F));
  return values;
}

// The share that a GELU leaves of a number is within 2^-21 of 1, all others are within 2^-21 of themselves;
// numbers as small as the least normal ones may be 0.
TEST(TensorKernels, ActivationsAreWithinTheirBounds) {
  const std::vector<float> values = numbers_of_every_size();
  for_each_instruction_set([&](const cpu::TensorKernels& kernels) {
    for (const Activation activation : all_activations()) {
      ConvProblem problem;
      problem.activation = activation;
      if (activation == Activation::clip) problem.alpha = -1.5F, problem.beta = 2.5F;
      if (activation == Activation::leaky_relu) problem.alpha = 0.125F;
      const bool gelu = activation == Activation::gelu_erf || activation == Activation::gelu_tanh;
      const std::vector<float> got = finished(kernels, problem, values);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto v = static_cast<double>(values[i]);
        const double expected =
            activate(activation, v, static_cast<double>(problem.alpha), static_cast<double>(problem.beta));
        if (!std::isfinite(expected)) {
          ASSERT_TRUE(same(got[i], static_cast<float>(expected)))
              << to_string(activation) << " of " << v << " is " << got[i];
        } else {
          ASSERT_NEAR(got[i], expected, 0x1p-21 * std::abs(gelu ? v : expected) + 0x1p-119)
              << to_string(activation) << " of " << v;
        }
      }
    }
  });
}

// Numbers that an instruction rounds to bf16 next are within 2^-13 of themselves before, and nine of ten are
// what exact ones are rounded to. The share of a GELU by erf stays within 2^-21 of 1.
TEST(TensorKernels, ActivationsOfHalvesAreWithinTheirBounds) {
  ConvProblem problem;
  problem.dtype = {DType::bf16, DType::bf16, DType::bf16};
  const cpu::TensorKernels* const kernels =
      cpu::widest_vector_bits(cpu::backend().info()) == 512 ? cpu::tensor_kernels(512) : nullptr;
  if (kernels == nullptr || !cpu::rounds_by_instruction(problem)) GTEST_SKIP() << "no avx512_bf16";
  const std::vector<float> values = numbers_of_every_size();
  for (const Activation activation : {Activation::silu, Activation::sigmoid, Activation::gelu_tanh,
                                      Activation::gelu_erf, Activation::hardswish}) {
    problem.activation = activation;
    const std::vector<float> got = finished(*kernels, problem, values, true);
    std::size_t rounded_otherwise = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = activate(activation, static_cast<double>(values[i]), 0, 0);
      if (!std::isfinite(expected)) {
        ASSERT_TRUE(same(got[i], static_cast<float>(expected)))
            << to_string(activation) << " of " << values[i];
        continue;
      }
      if (std::abs(expected) > 0x1p127) continue;  // which may round to infinity
      const double v = std::abs(static_cast<double>(values[i]));
      // The oracle's own tanh, beside 1, is within 2^-50 of it.
      const double before =
          0x1p-119 + (activation == Activation::gelu_erf    ? 0x1p-21 * v
                      : activation == Activation::gelu_tanh ? 0x1p-13 * std::abs(expected) + 0x1p-50 * v
                                                            : 0x1p-13 * std::abs(expected));
      ASSERT_NEAR(got[i], expected, before + 0x1p-8 * (std::abs(expected) + before))
          << to_string(activation) << " of " << values[i];
      const bool same_as_exact = got[i] == static_cast<float>(rounded(DType::bf16, expected));
      rounded_otherwise += std::abs(expected) > 0x1p-40 && !same_as_exact ? 1 : 0;
    }
    EXPECT_LT(rounded_otherwise, values.size() / 10) << to_string(activation);
  }
}

TEST(TensorKernels, TransposeWhatLiesInPlanes) {
  for_each_instruction_set([&](const cpu::TensorKernels& kernels) {
    for (const std::int64_t channels : {1, 5, 16, 37})
      for (const std::int64_t pixels : {1, 7, 16, 35})
        for (const std::int64_t step : {1, 2}) {
          const std::int64_t plane = pixels * step, to_step = (channels + 15) / 16 * 16;
          std::vector<float> x(static_cast<std::size_t>(plane * channels));
          for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 251);
          std::vector<float> to(static_cast<std::size_t>(to_step * pixels), -1.0F);
          const auto bytes = to_bytes(DType::bf16, x);
          const auto read = [&](DType type, cpu::Words words, const void* from) {
            kernels.read({.type = type,
                          .words = words,
                          .x = from,
                          .pixel_step = step,
                          .channel_step = plane,
                          .pixels = pixels,
                          .channels = channels,
                          .to = to.data(),
                          .to_step = to_step});
          };
          const auto value = [&](std::int64_t c, std::int64_t j) {
            return c < channels ? x[static_cast<std::size_t>(c * plane + j * step)] : 0.0F;
          };
          read(DType::f32, cpu::Words::f32, x.data());
          for (std::int64_t j = 0; j < pixels; ++j)
            for (std::int64_t c = 0; c < channels; ++c)
              ASSERT_EQ(to[static_cast<std::size_t>(j * to_step + c)], value(c, j));
          read(DType::bf16, cpu::Words::bf16_pairs, bytes.data());
          for (std::int64_t j = 0; j < pixels; ++j)
            for (std::int64_t c = 0; c < (channels + 1) / 2 * 2; ++c)
              ASSERT_EQ(load(DType::bf16, to.data() + j * to_step, c), value(c, j)) << channels << " " << c;
        }
  });
}

}  // namespace
}  // namespace convtune::tensor_kernels_test
