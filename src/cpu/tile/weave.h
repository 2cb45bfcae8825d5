// A few planes as pixels: an element is stored where its pixel's channels lie.
#pragma once

#include <cstdint>

namespace convtune::cpu {

// More planes are better transposed in squares (tensor_kernels.h).
constexpr std::int64_t kFewPlanes = 4;

// to[i * to_step + c] = planes[c * channel_step + i * pixel_step] for i in [0, pixels), c in [0, channels),
// and 0 for c up to to_step.
template <class T>
void weave(const T* planes, std::int64_t channels, std::int64_t channel_step, std::int64_t pixel_step,
           std::int64_t pixels, T* to, std::int64_t to_step) {
  for (std::int64_t c = 0; c < to_step; ++c) {
    const T* const plane = planes + c * channel_step;
    for (std::int64_t i = 0; i < pixels; ++i)
      to[i * to_step + c] = c < channels ? plane[i * pixel_step] : T{0};
  }
}

}  // namespace convtune::cpu
