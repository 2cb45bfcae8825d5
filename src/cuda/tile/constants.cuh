// Numbers that are template arguments: what is computed from them is a constant for certain, which a loop
// that the compiler unrolls does not promise.
#pragma once

namespace convtune {

template <int kValue>
struct Int {
  static constexpr int value = kValue;
};

// f(Int<i>) for every i in [kBegin, kEnd). Eight in a function: it is functions that compiling waits for.
template <int kBegin, int kEnd, class F>
__device__ __forceinline__ void for_constants(F&& f) {
  constexpr int kCount = kEnd - kBegin;
  if constexpr (kCount > 0) f(Int<kBegin>{});
  if constexpr (kCount > 1) f(Int<kBegin + 1>{});
  if constexpr (kCount > 2) f(Int<kBegin + 2>{});
  if constexpr (kCount > 3) f(Int<kBegin + 3>{});
  if constexpr (kCount > 4) f(Int<kBegin + 4>{});
  if constexpr (kCount > 5) f(Int<kBegin + 5>{});
  if constexpr (kCount > 6) f(Int<kBegin + 6>{});
  if constexpr (kCount > 7) f(Int<kBegin + 7>{});
  if constexpr (kCount > 8) for_constants<kBegin + 8, kEnd>(f);
}

}  // namespace convtune
