// The twin of src/cuda/ptx/several.cuh.
#pragma once

#include "cuda/ptx/sm80.cuh"

namespace convtune::ptx {

inline void st_shared_v4_rounded_if(unsigned to, int offset, const unsigned* values, float& largest,
                                    bool stores) {
  unsigned rounded[4];
  for (int i = 0; i < 4; ++i) {
    largest = max_nan(largest, fabsf(__uint_as_float(values[i])));
    rounded[i] = values[i] + 0x1000;
  }
  if (stores) st_shared_v4(to + static_cast<unsigned>(offset), rounded);
}
inline void st_shared_unless_negative(unsigned to, int offset, float value, int condition) {
  if (condition >= 0) st_shared(to + static_cast<unsigned>(offset), value);
}
inline void st_shared_two(unsigned to, float first, float second) {
  st_shared(to, first);
  st_shared(to + 32, second);
}
inline void st_shared_two_if(const unsigned (&to)[2], float first, float second, const bool (&stores)[2]) {
  if (stores[0]) st_shared(to[0], first);
  if (stores[1]) st_shared(to[1], second);
}
inline void st_global_two_if(float* to, float first, float second, const bool (&stores)[2]) {
  if (stores[0]) to[0] = first;
  if (stores[1]) to[8] = second;
}

template <long long kWords>
inline void ld_global_four_if(unsigned (&to)[4], const float* from, const int (&sources)[4]) {
  // As the instructions do: only the first is an index, the others say whether.
  for (int i = 0; i < 4; ++i) to[i] = sources[i] < 0 ? 0 : __float_as_uint(from[sources[0] + i * kWords]);
}
template <int kPitch, int kRow>
inline void copy_four_rows(float* to, long long row, unsigned from, int left) {
  for (int i = 0; i < 4; ++i) {
    const float value = __uint_as_float(ld_shared(from + static_cast<unsigned>(i * kPitch)));
    if (left > i) to[i * row + i * kRow / 4] = value;
  }
}

template <bool kCuts>
inline void add_four(float (&sums)[4], const float (&more)[4], float& trace) {
  for (int i = 0; i < 4; ++i) {
    sums[i] += more[i];
    if (kCuts) sums[i] = max_nan(sums[i], fmaf(sums[i], 0.0f, 0.0f));
  }
  trace = fmaf(sums[0] + sums[1] + (sums[2] + sums[3]), 0.0f, trace);
}

}  // namespace convtune::ptx
