// See padding_repair.h.
#include "cpu/padding_repair.h"

#include <algorithm>
#include <cmath>

#include "problem/element.h"

namespace convtune::cpu {

bool any_non_finite(const float* values, std::int64_t count) {
  return std::any_of(values, values + count, [](float v) { return !std::isfinite(v); });
}

void repair_padded_outputs(const ConvProblem& problem, const HostValues& values, void* y) {
  const std::int64_t p = problem.p(), q = problem.q();
  const auto outside = [](std::int64_t first, std::int64_t taps, std::int64_t dilation, std::int64_t size) {
    return first < 0 || first + (taps - 1) * dilation >= size;
  };
  for (std::int64_t row = 0; row < p; ++row) {
    const bool row_outside =
        outside(row * problem.stride_h - problem.pad_top, problem.r, problem.dilation_h, problem.h);
    for (std::int64_t col = 0; col < q; ++col) {
      if (!row_outside &&
          !outside(col * problem.stride_w - problem.pad_left, problem.s, problem.dilation_w, problem.w))
        continue;
      for (std::int64_t n = 0; n < problem.n; ++n)
        for (std::int64_t k = 0; k < problem.k; ++k) {
          const std::int64_t at = problem.layout == Layout::nchw ? ((n * problem.k + k) * p + row) * q + col
                                                                 : ((n * p + row) * q + col) * problem.k + k;
          store(problem.dtype.y, y, at, oracle(problem, values, at).value);
        }
    }
  }
}

}  // namespace convtune::cpu
