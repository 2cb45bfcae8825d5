// A problem's tensors in host memory, and what must hold of an output where some of them are not finite.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/random_bits.h"
#include "contract/backend.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "problem/element.h"

namespace convtune {

// Filled with small reals; as bytes, `shift` elements off any alignment.
struct Host {
  explicit Host(const ConvProblem& problem, std::int64_t shift = 0) : problem(problem), shift(shift) {
    const auto fill = [&](DType type, std::int64_t count, std::uint64_t stream) {
      std::vector<float> values(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] =
            static_cast<float>(rounded(type, static_cast<double>(random_bits(stream, i) % 2001) / 1000 - 1));
      return values;
    };
    x = fill(problem.dtype.x, problem.input_elements(), 0);
    w = fill(problem.dtype.w, problem.weight_elements(), 1);
    bias = fill(problem.dtype.bias, problem.k, 2);
    residual = fill(problem.dtype.y, problem.output_elements(), 3);
  }

  // y as floats; with the residual in its place, or beside it. Nothing around y is written.
  std::vector<float> run(const Executable& executable, bool in_place = false) const {
    constexpr unsigned char kFence = 0xA5;
    constexpr std::size_t kFenceBytes = 128;
    const auto placed = [&](DType type, const std::vector<float>& values, std::size_t fence = 0) {
      std::vector<unsigned char> memory(fence + static_cast<std::size_t>(shift * size_of(type)), kFence);
      const std::vector<unsigned char> bytes = to_bytes(type, values);
      memory.insert(memory.end(), bytes.begin(), bytes.end());
      memory.insert(memory.end(), fence, kFence);
      return memory;
    };
    const auto begin = [&](auto& memory, DType type, std::size_t fence = 0) {
      return memory.data() + fence + shift * size_of(type);
    };
    const DType type = problem.dtype.y;
    const auto x_bytes = placed(problem.dtype.x, x), w_bytes = placed(problem.dtype.w, w),
               bias_bytes = placed(problem.dtype.bias, bias), added = placed(type, residual);
    std::vector<unsigned char> memory = placed(type, residual, kFenceBytes);
    unsigned char* const y = begin(memory, type, kFenceBytes);
    const auto packed = cpu::backend().allocate(executable.packed_bytes());
    executable.pack(begin(w_bytes, problem.dtype.w),
                    problem.bias ? begin(bias_bytes, problem.dtype.bias) : nullptr, packed.get(), nullptr);
    executable.run({.x = begin(x_bytes, problem.dtype.x),
                    .residual = !problem.residual ? nullptr
                                : in_place        ? y
                                                  : begin(added, type),
                    .y = y},
                   packed.get(), nullptr);
    const auto is_fence = [](unsigned char byte) { return byte == kFence; };
    EXPECT_TRUE(std::all_of(memory.data(), y, is_fence)) << to_string(problem);
    EXPECT_TRUE(std::all_of(memory.end() - kFenceBytes, memory.end(), is_fence)) << to_string(problem);
    return to_floats(type, y, problem.output_elements());
  }

  // y's bytes where x and y begin so many bytes behind a line of the cache. Nothing around y is written.
  std::vector<std::byte> run_behind_a_line(const Executable& executable, std::int64_t behind) const {
    constexpr std::byte kFence{0xA5};
    constexpr std::size_t kLine = 64;
    const auto bytes_of = [](DType type, const std::vector<float>& values) {
      const std::vector<unsigned char> bytes = to_bytes(type, values);
      const auto* const first = reinterpret_cast<const std::byte*>(bytes.data());
      return std::vector<std::byte>(first, first + bytes.size());
    };
    const auto place = [&](std::vector<std::byte>& memory, std::size_t bytes) {
      memory.assign(bytes + 6 * kLine, kFence);
      const auto at = reinterpret_cast<std::uintptr_t>(memory.data()) % kLine;
      return memory.data() + 2 * kLine + (kLine - at) % kLine + behind;
    };
    const auto from = bytes_of(problem.dtype.x, x), weights = bytes_of(problem.dtype.w, w),
               biases = bytes_of(problem.dtype.bias, bias);
    const std::size_t y_bytes = bytes_of(problem.dtype.y, residual).size();
    std::vector<std::byte> x_memory, y_memory, packed(executable.packed_bytes());
    std::byte *const x_at = place(x_memory, from.size()), *const y = place(y_memory, y_bytes);
    std::copy(from.begin(), from.end(), x_at);
    executable.pack(weights.data(), problem.bias ? biases.data() : nullptr, packed.data(), nullptr);
    executable.run({.x = x_at, .y = y}, packed.data(), nullptr);
    const auto is_fence = [](std::byte byte) { return byte == kFence; };
    EXPECT_TRUE(std::all_of(y_memory.data(), y, is_fence)) << to_string(problem);
    EXPECT_TRUE(std::all_of(y + y_bytes, y_memory.data() + y_memory.size(), is_fence)) << to_string(problem);
    return {y, y + y_bytes};
  }

  double expected(std::int64_t index) const {
    const cpu::HostValues values{
        .x = x.data(), .w = w.data(), .bias = bias.data(), .residual = residual.data()};
    return cpu::oracle(problem, values, index).value;
  }

  ConvProblem problem;
  std::int64_t shift;
  std::vector<float> x, w, bias, residual;
};

// NaN and infinities are where the oracle has them, and with `digits` nothing else is far from its values.
inline void expect_as_in_oracle(const Host& host, const std::vector<float>& y, bool digits = true) {
  const bool half = host.problem.dtype != DType::f32;
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double expected = host.expected(static_cast<std::int64_t>(i));
    EXPECT_EQ(std::isnan(expected), std::isnan(y[i])) << to_string(host.problem) << " y[" << i << "]";
    if (std::isinf(expected)) {
      EXPECT_EQ(static_cast<float>(expected), y[i]) << to_string(host.problem);
    } else if (digits && std::isfinite(expected)) {
      EXPECT_NEAR(expected, y[i], (half ? 0.02 : 1e-4) * (1 + std::abs(expected))) << to_string(host.problem);
    }
  }
}

}  // namespace convtune
