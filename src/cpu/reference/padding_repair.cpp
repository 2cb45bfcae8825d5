// See padding_repair.h.
#include "cpu/reference/padding_repair.h"

#include <algorithm>
#include <cmath>

#include "problem/element.h"

namespace convtune::cpu {

bool any_non_finite(const float* values, std::int64_t count) {
  return std::any_of(values, values + count, [](float v) { return !std::isfinite(v); });
}

void repair_padded_outputs(const ConvProblem& a, const HostValues& values, void* y) {
  const auto outside = [](std::int64_t first, std::int64_t taps, std::int64_t dilation, std::int64_t size) {
    return first < 0 || first + (taps - 1) * dilation >= size;
  };
  const std::int64_t planes = a.z(), rows = a.p(), cols = a.q(), positions = planes * rows * cols;
  for (std::int64_t at = 0; at < positions; ++at) {
    const std::int64_t z = at / (rows * cols), p = at / cols % rows, q = at % cols;
    if (!outside(z * a.stride_d - a.pad_front, a.t, a.dilation_d, a.d) &&
        !outside(p * a.stride_h - a.pad_top, a.r, a.dilation_h, a.h) &&
        !outside(q * a.stride_w - a.pad_left, a.s, a.dilation_w, a.w))
      continue;
    for (std::int64_t n = 0; n < a.n; ++n)
      for (std::int64_t k = 0; k < a.k; ++k) {
        const std::int64_t element =
            a.layout == Layout::nchw ? (n * a.k + k) * positions + at : (n * positions + at) * a.k + k;
        store(a.dtype.y, y, element, oracle(a, values, element).value);
      }
  }
}

}  // namespace convtune::cpu
