// Host tensors of one problem, and one way to run an executable on them. Small integers, so that sums
// are exact in any order and a wrong element cannot hide behind a tolerance.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "contract/backend.h"
#include "cpu/cpu.h"
#include "cpu/reference.h"

namespace convtune {

struct HostTensors {
  std::vector<float> x, w, bias;
};

inline HostTensors small_integers(const Conv2dProblem& problem, std::uint64_t seed) {
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
inline std::vector<float> run(const Conv2dProblem& problem, const Executable& executable,
                              const HostTensors& tensors, const void* packed) {
  std::vector<float> y(problem.output_elements(), std::numeric_limits<float>::quiet_NaN());
  executable.run(tensors.x.data(), packed, y.data(), nullptr);
  return y;
}

// Every element by the oracle, in the problem's layout.
inline std::vector<float> oracle_output(const Conv2dProblem& problem, const HostTensors& tensors) {
  std::vector<float> y(problem.output_elements());
  const std::int64_t p_size = problem.p(), q_size = problem.q();
  std::int64_t index = 0;
  const auto at = [&](std::int64_t n, std::int64_t k, std::int64_t p, std::int64_t q) {
    y[index++] =
        static_cast<float>(cpu::oracle(problem, tensors.x.data(), tensors.w.data(),
                                       tensors.bias.empty() ? nullptr : tensors.bias.data(), n, k, p, q)
                               .value);
  };
  for (std::int64_t n = 0; n < problem.n; ++n) {
    if (problem.layout == Layout::nchw) {
      for (std::int64_t k = 0; k < problem.k; ++k)
        for (std::int64_t p = 0; p < p_size; ++p)
          for (std::int64_t q = 0; q < q_size; ++q) at(n, k, p, q);
    } else {
      for (std::int64_t p = 0; p < p_size; ++p)
        for (std::int64_t q = 0; q < q_size; ++q)
          for (std::int64_t k = 0; k < problem.k; ++k) at(n, k, p, q);
    }
  }
  return y;
}

}  // namespace convtune
