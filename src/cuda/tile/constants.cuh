// Numbers that are template arguments: what is computed from them is a constant for certain, which a loop
// that the compiler unrolls does not promise.
#pragma once

namespace convtune {

template <int kValue>
struct Int {
  static constexpr int value = kValue;
};

// A value that the compiler's front end works out. What a config's functions say in passing is inlined and
// folded by its optimizer, one function in the other, for each call: a third of the time to compile.
template <auto kValue>
inline constexpr auto constant = kValue;

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

// An index that is known to fit into 32 bits is divided in a third of the instructions.
template <bool kIsShort, class Short = unsigned>
struct IndexThat {
  using Fits = Short;
};
template <class Short>
struct IndexThat<false, Short> {
  using Fits = long long;
};

// A config's numbers that say where its weights stand, or the config. A function, since nvcc knows no
// constant of a class outside of functions on a device.
template <auto config>
__device__ constexpr auto sources() {
  if constexpr (requires { config.weights(); })
    return config.weights();
  else
    return config;
}

}  // namespace convtune
