// Host tensors of one problem, and one way to run an executable on them. Small integers, so that sums
// are exact in any order and a wrong element cannot hide behind a tolerance.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "contract/backend.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"

namespace convtune {

struct HostTensors {
  std::vector<float> x, w, bias;
};

inline HostTensors small_integers(const ConvProblem& problem, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto fill = [&](std::int64_t elements) {
    std::vector<float> values(elements);
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 9) - 4);
    return values;
  };
  return {fill(problem.input_elements()), fill(problem.weight_elements()),
          fill(problem.bias ? problem.k : 0)};
}

// Packed weights in memory of the backend's.
inline std::shared_ptr<void> pack(const Executable& executable, const HostTensors& tensors) {
  std::shared_ptr<void> packed = cpu::backend().allocate(executable.packed_bytes());
  executable.pack(tensors.w.data(), tensors.bias.empty() ? nullptr : tensors.bias.data(), packed.get(),
                  nullptr);
  return packed;
}

// The output of one run; it starts as NaN, so that an element that is not written shows.
inline std::vector<float> run(const ConvProblem& problem, const Executable& executable,
                              const HostTensors& tensors, const void* packed) {
  std::vector<float> y(problem.output_elements(), std::numeric_limits<float>::quiet_NaN());
  executable.run({.x = tensors.x.data(), .y = y.data()}, packed, nullptr);
  return y;
}

// Every element by the oracle, in the problem's layout.
inline std::vector<float> oracle_output(const ConvProblem& problem, const HostTensors& tensors) {
  const cpu::HostValues values{.x = tensors.x.data(),
                               .w = tensors.w.data(),
                               .bias = tensors.bias.empty() ? nullptr : tensors.bias.data()};
  std::vector<float> y(problem.output_elements());
  for (std::size_t i = 0; i < y.size(); ++i)
    y[i] = static_cast<float>(cpu::oracle(problem, values, static_cast<std::int64_t>(i)).value);
  return y;
}

}  // namespace convtune
