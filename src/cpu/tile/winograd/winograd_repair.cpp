// See winograd_repair.h.
#include "cpu/tile/winograd/winograd_repair.h"

#include <cmath>

namespace convtune::cpu {

void repair_sum(const ConvProblem& problem, const float* x, const float* w, const OutputPlace& at,
                float& sum) {
  if (std::isfinite(sum)) return;
  const bool nchw = problem.layout == Layout::nchw;
  const std::int64_t channels = problem.c / problem.groups,
                     first = at.k / (problem.k / problem.groups) * channels;
  const std::int64_t volume = problem.d * problem.h * problem.w, pixel = nchw ? 1 : problem.c,
                     channel = nchw ? volume : 1;
  const std::int64_t taps = problem.t * problem.r * problem.s;
  double exact = 0;
  for (std::int64_t tap = 0; tap < taps; ++tap) {
    const std::int64_t t = tap / (problem.r * problem.s), r = tap / problem.s % problem.r,
                       s = tap % problem.s;
    const std::int64_t frame = at.frame * problem.stride_d + t * problem.dilation_d - problem.pad_front,
                       row = at.row * problem.stride_h + r * problem.dilation_h - problem.pad_top,
                       col = at.col * problem.stride_w + s * problem.dilation_w - problem.pad_left;
    if (frame < 0 || frame >= problem.d || row < 0 || row >= problem.h || col < 0 || col >= problem.w)
      continue;
    const float* input = x + at.n * problem.c * volume + first * channel +
                         ((frame * problem.h + row) * problem.w + col) * pixel;
    const float* filter = w + at.k * channels * taps + tap;
    for (std::int64_t c = 0; c < channels; ++c)
      exact += static_cast<double>(input[c * channel]) * static_cast<double>(filter[c * taps]);
  }
  sum = static_cast<float>(exact);
}

}  // namespace convtune::cpu
