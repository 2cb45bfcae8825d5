// What becomes of sums in registers: bounds of an activation, and stores of parts of vectors. Included once
// for each target, as vectors-inl.h is, behind <hwy/foreach_target.h>.
#if defined(CONVTUNE_OUTPUTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_OUTPUTS_INL
#undef CONVTUNE_OUTPUTS_INL
#else
#define CONVTUNE_OUTPUTS_INL
#endif

#include <hwy/cache_control.h>

#include <algorithm>
#include <cstdint>
#include <limits>

#include "cpu/tile/bounds.h"
#include "cpu/tile/elements-inl.h"
#include "cpu/tile/stagger.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// A comparison with NaN is false, which keeps it.
HWY_INLINE Vector activate(Floats d, Vector v, Bounds bounds) {
  const Vector lower = hn::Set(d, bounds.lower), upper = hn::Set(d, bounds.upper);
  v = hn::IfThenElse(hn::Lt(v, lower), lower, v);
  return hn::IfThenElse(hn::Gt(v, upper), upper, v);
}

// The same of a register tile, which mostly has no bounds or one.
template <int rows, int vectors>
HWY_INLINE void activate_tile(SizedVector (&values)[rows][vectors], Bounds bounds) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  if (bounds.lower == -kInfinity && bounds.upper == kInfinity) return;
  CONVTUNE_UNROLL
  for (int i = 0; i < rows; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) values[i][v] = activate(Floats(), values[i][v], bounds);
  }
}

template <class T>
HWY_INLINE bool begins_vector(const T* y) {
  return reinterpret_cast<std::uintptr_t>(y) % (kLanes * sizeof(T)) == 0;
}

// Where a register tile goes: positions [skip, count) of its first `rows` rows, which lie y_step elements
// apart; skip is less than a vector. `stream`: whole, aligned vectors go past the caches.
template <class T>
struct TilePlace {
  T* y;
  std::int64_t y_step, rows, skip, count;
  bool stream;
};

// Whole, aligned lines of the cache, past the caches and staggered (cpu/tile/stagger.h). In kernels of their
// own: beside the stores below, in one, it costs all others a twentieth.
template <int rows, int vectors>
HWY_INLINE void store_staggered(const SizedVector (&values)[rows][vectors], const TilePlace<float>& to,
                                const Stagger& at) {
  constexpr std::int64_t kSteps = Stagger::kSteps;
  const Floats d;
  const auto slot = [&](std::int64_t row, std::int64_t step)
                        HWY_ATTR { return at.ring + (row * kSteps + step % kSteps) * (vectors * kLanes); };
  CONVTUNE_UNROLL
  for (int i = 0; i < rows; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) hn::Store(values[i][v], d, slot(i, at.step) + v * kLanes);
  }
  const auto used = std::min<std::int64_t>(rows, to.rows);
  const std::int64_t last = at.last ? at.step + std::min(used, kSteps) - 1 : at.step;
  for (std::int64_t step = at.step; step <= last; ++step) {
    CONVTUNE_UNROLL
    for (int i = 0; i < rows; ++i) {
      const std::int64_t from = step - i % kSteps;
      if (i >= used || from < 0 || from > at.step) continue;
      const float* const line = slot(i, from);
      float* const y = to.y + i * to.y_step + (from - at.step) * (vectors * kLanes);
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) store_past_caches(hn::Load(d, line + v * kLanes), y + v * kLanes);
    }
  }
}

template <int rows, int vectors, class T>
HWY_INLINE void store_tile(const SizedVector (&values)[rows][vectors], const TilePlace<T>& to) {
  if (to.rows >= rows && to.skip == 0 && to.count >= vectors * kLanes) {
    const bool stream = to.stream && begins_vector(to.y) && to.y_step % kLanes == 0;
    CONVTUNE_UNROLL
    for (int i = 0; i < rows; ++i) {
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) {
        T* const y = to.y + i * to.y_step + v * kLanes;
        if (stream)
          store_past_caches(values[i][v], y);
        else
          store(values[i][v], y);
      }
    }
    return;
  }
  CONVTUNE_UNROLL
  for (int v = 0; v < vectors; ++v) {
    const std::int64_t skip = v == 0 ? to.skip : 0, count = to.count - v * kLanes;
    if (count <= 0) break;
    const bool whole = skip == 0 && count >= kLanes;
    CONVTUNE_UNROLL
    for (int i = 0; i < rows; ++i) {
      if (i >= to.rows) break;
      T* const y = to.y + i * to.y_step + v * kLanes;
      if (whole && to.stream && begins_vector(y))
        store_past_caches(values[i][v], y);
      else if (whole)
        store(values[i][v], y);
      else
        store_lanes(values[i][v], y, skip, count);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
