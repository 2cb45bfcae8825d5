// Numbers that are template arguments: what is computed from them is a constant for certain, which a loop
// that the compiler unrolls does not promise.
#pragma once

namespace convtune {

template <int kValue>
struct Int {
  static constexpr int value = kValue;
};

// f(Int<i>) for every i in [kBegin, kEnd).
template <int kBegin, int kEnd, class F>
__device__ __forceinline__ void for_constants(F&& f) {
  if constexpr (kEnd - kBegin == 1) {
    f(Int<kBegin>{});
  } else if constexpr (kEnd > kBegin) {
    for_constants<kBegin, (kBegin + kEnd) / 2>(f);
    for_constants<(kBegin + kEnd) / 2, kEnd>(f);
  }
}

}  // namespace convtune
