// A problem's tensors in host memory, and what must hold of an output where some of them are not finite.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
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
  explicit Host(const ConvProblem& problem, std::int64_t shift = 0) : problem(problem) {
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
    x_shift = shift * size_of(problem.dtype.x), y_shift = shift * size_of(problem.dtype.y);
  }

  // y, as floats.
  std::vector<float> run(const Executable& executable) const {
    const auto placed = [](const std::vector<unsigned char>& bytes, std::int64_t shift) {
      std::vector<unsigned char> memory(static_cast<std::size_t>(shift));
      memory.insert(memory.end(), bytes.begin(), bytes.end());
      return memory;
    };
    const auto x_bytes = placed(to_bytes(problem.dtype.x, x), x_shift);
    const auto residual_bytes = placed(to_bytes(problem.dtype.y, residual), y_shift);
    std::vector<unsigned char> y_bytes(residual_bytes.size());
    const auto packed = cpu::backend().allocate(executable.packed_bytes());
    executable.pack(to_bytes(problem.dtype.w, w).data(), to_bytes(problem.dtype.bias, bias).data(),
                    packed.get(), nullptr);
    executable.run({.x = x_bytes.data() + x_shift,
                    .residual = problem.residual ? residual_bytes.data() + y_shift : nullptr,
                    .y = y_bytes.data() + y_shift},
                   packed.get(), nullptr);
    return to_floats(problem.dtype.y, y_bytes.data() + y_shift, problem.output_elements());
  }

  double expected(std::int64_t index) const {
    const cpu::HostValues values{
        .x = x.data(), .w = w.data(), .bias = bias.data(), .residual = residual.data()};
    return cpu::oracle(problem, values, index).value;
  }

  ConvProblem problem;
  std::vector<float> x, w, bias, residual;
  std::int64_t x_shift = 0, y_shift = 0;
};

// NaN and infinities are where the oracle has them, and nothing else is far from its values.
inline void expect_as_in_oracle(const Host& host, const std::vector<float>& y) {
  for (std::size_t i = 0; i < y.size(); ++i) {
    const double expected = host.expected(static_cast<std::int64_t>(i));
    EXPECT_EQ(std::isnan(expected), std::isnan(y[i])) << to_string(host.problem) << " y[" << i << "]";
    if (std::isinf(expected)) {
      EXPECT_EQ(static_cast<float>(expected), y[i]) << to_string(host.problem);
    } else if (std::isfinite(expected)) {
      EXPECT_NEAR(expected, y[i], 0.1) << to_string(host.problem);
    }
  }
}

}  // namespace convtune
