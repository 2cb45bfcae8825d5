// The epilogue of a register tile that was stored for it (outputs-inl.h), compiled once for each instruction
// set: apart, so that the code of an activation burdens no kernel.
#include <utility>

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile/tile_epilogue_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/activations-inl.h"
#include "cpu/tile/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

template <Activation activation, bool halves>
void activate_all(float* values, std::int64_t vectors, float alpha, float beta) {
  const Floats d;
  for (float* const end = values + vectors * kLanes; values != end; values += kLanes)
    hn::Store(activate<activation, halves>(hn::Load(d, values), alpha, beta), d, values);
}

template <bool halves, int... activation>
HWY_INLINE void activate_by(Activation wanted, float* values, std::int64_t vectors, float alpha, float beta,
                            std::integer_sequence<int, activation...>) {
  (void)((wanted == static_cast<Activation>(activation) &&
          (activate_all<static_cast<Activation>(activation), halves>(values, vectors, alpha, beta), true)) ||
         ...);
}

void activate_stored(float* values, std::int64_t vectors, Activation activation, float alpha, float beta,
                     bool halves) {
  if (halves)
    activate_by<true>(activation, values, vectors, alpha, beta, Activations());
  else
    activate_by<false>(activation, values, vectors, alpha, beta, Activations());
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

float* tile_buffer() {
  alignas(64) static thread_local float buffer[kMostTileFloats];
  return buffer;
}

}  // namespace convtune::cpu
#endif
