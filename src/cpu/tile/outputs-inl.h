// Finishes sums in registers: a residual, an activation, and stores of parts of vectors. Included once
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
#include <type_traits>
#include <utility>

#include "cpu/tile/activations-inl.h"
#include "cpu/tile/cut_lines.h"
#include "cpu/tile/elements-inl.h"
#include "cpu/tile/stagger.h"
#include "cpu/tile/tile_epilogue.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// The activation of whole, aligned vectors in memory (tile_epilogue_kernels.cpp). `halves`: they are rounded
// to bf16 next. By values: the address of a kernel's epilogue would keep all its arguments in memory.
void activate_stored(float* values, std::int64_t vectors, Activation activation, float alpha, float beta,
                     bool halves);

template <class T>
HWY_INLINE bool begins_vector(const T* y) {
  return reinterpret_cast<std::uintptr_t>(y) % (kLanes * sizeof(T)) == 0;
}

// Where a register tile goes: positions [skip, count) of its first `rows` rows, which lie y_step elements
// apart; skip is less than a vector. `stream`: whole, aligned vectors go past the caches. Where vectors are
// lines and y begins at one, the first `skip` of each row are in `begun`, and what ends within a line is left
// in `cut` (cpu/tile/cut_lines.h); null: neither.
template <class T>
struct TilePlace {
  T* y;
  std::int64_t y_step, rows, skip, count;
  bool stream;
  const float* begun = nullptr;
  float* cut = nullptr;
};

// The residual at those positions, added to a register tile that was stored. No other is read.
template <class T>
HWY_NOINLINE void add_residual(float* sums, int vectors, int rows, const TilePlace<const T>& from) {
  const Floats d;
  const std::int64_t used = std::min<std::int64_t>(rows, from.rows);
  for (std::int64_t i = 0; i < used; ++i)
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t skip = v == 0 ? from.skip : 0,
                         end = std::min<std::int64_t>(from.count - v * kLanes, kLanes);
      if (end <= skip) continue;
      const T* at = from.y + i * from.y_step + v * kLanes;
      HWY_ALIGN T lanes[kLanes] = {};
      if (skip != 0 || end != kLanes) {
        std::copy(at + skip, at + end, lanes + skip);
        at = lanes;
      }
      float* const to = sums + (i * vectors + v) * kLanes;
      hn::Store(hn::Add(hn::Load(d, to), load(at)), d, to);
    }
}

using Activations = std::make_integer_sequence<int, static_cast<int>(kLastActivation) + 1>;

template <Activation activation, bool halves, int rows, int vectors>
HWY_INLINE void activate_in_registers(SizedVector (&values)[rows][vectors], const Epilogue& epilogue) {
  CONVTUNE_UNROLL
  for (int i = 0; i < rows; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v)
      values[i][v] = activate<activation, halves>(values[i][v], epilogue.alpha, epilogue.beta);
  }
}

// Epilogue::has_bounds() holds; mostly there is none.
template <int rows, int vectors>
HWY_INLINE void clip_tile(SizedVector (&values)[rows][vectors], const Epilogue& epilogue) {
  if (epilogue.activation != Activation::none)
    activate_in_registers<Activation::clip, false>(values, epilogue);
}

// Adds the residual, null or as y lies, and applies the activation: a short one in registers; for all else
// the tile is stored and loaded again.
template <int rows, int vectors, class T>
HWY_INLINE void finish_tile(SizedVector (&values)[rows][vectors], const Epilogue& epilogue,
                            const TilePlace<T>& to, const void* residual) {
  constexpr bool kHalves = sizeof(T) == sizeof(Bf16);
  if (HWY_UNLIKELY(residual != nullptr || !epilogue.is_short())) {
    const Floats d;
    static_assert(rows * vectors * kLanes <= kMostTileFloats);
    float* const stored = tile_buffer();
    CONVTUNE_UNROLL
    for (int i = 0; i < rows * vectors; ++i)
      hn::Store(values[i / vectors][i % vectors], d, stored + i * kLanes);
    if (residual != nullptr) {
      using Element = std::conditional_t<sizeof(T) == 4, float, Bf16>;
      add_residual<Element>(
          stored, vectors, rows,
          {static_cast<const Element*>(residual), to.y_step, to.rows, to.skip, to.count, false});
    }
    activate_stored(stored, rows * vectors, epilogue.activation, epilogue.alpha, epilogue.beta, kHalves);
    CONVTUNE_UNROLL
    for (int i = 0; i < rows * vectors; ++i)
      values[i / vectors][i % vectors] = hn::Load(d, stored + i * kLanes);
  } else if (epilogue.activation == Activation::leaky_relu) {
    activate_in_registers<Activation::leaky_relu, false>(values, epilogue);
  } else if (epilogue.activation == Activation::hardswish) {
    activate_in_registers<Activation::hardswish, kHalves>(values, epilogue);
  } else {
    clip_tile(values, epilogue);
  }
}
// The activation alone, of elements T.
template <class T, int rows, int vectors>
HWY_INLINE void activate_tile(SizedVector (&values)[rows][vectors], const Epilogue& epilogue) {
  finish_tile(values, epilogue, TilePlace<T>(), nullptr);
}

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

template <class T>
constexpr bool kVectorsAreLines = sizeof(T) == sizeof(float) && kLanes == CutLines::kFloats;

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
      if constexpr (kVectorsAreLines<T>) {
        const bool begun = skip != 0 && to.begun != nullptr;
        if (begun || (count < kLanes && to.cut != nullptr)) {
          const Floats d;
          Vector line = values[i][v];
          if (begun)
            line = hn::IfThenElse(hn::FirstN(d, static_cast<std::size_t>(skip)),
                                  hn::Load(d, to.begun + i * kLanes), line);
          if (count >= kLanes)
            store_past_caches(line, y);
          else if (to.cut != nullptr)
            hn::Store(line, d, to.cut + i * kLanes);
          else
            store_lanes(line, y, 0, count);
          continue;
        }
      }
      if (whole && to.stream && begins_vector(y))
        store_past_caches(values[i][v], y);
      else if (whole)
        store(values[i][v], y);
      else
        store_lanes(values[i][v], y, skip, count);
    }
  }
}

template <Activation activation, class T, class Sums>
HWY_INLINE void activate_run(Sums&& sums, const Epilogue& epilogue, T* y, std::int64_t count) {
  const float alpha = epilogue.alpha, beta = epilogue.beta;  // which stores to y cannot be taken to change
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const Vector value = activate<activation>(sums(i), alpha, beta);
    if (count - i >= kLanes)
      store(value, y + i);
    else
      store_lanes(value, y + i, 0, count - i);
  }
}

// As finish_run(), through stored tiles. Apart from that, whose callers would else set up their frames.
template <class T, class Sums>
HWY_NOINLINE void finish_stored_run(const Sums& sums, const Epilogue& epilogue, const Outputs<T>& to,
                                    std::int64_t count) {
  constexpr int kVectors = 4;
  for (std::int64_t i = 0; i < count; i += kVectors * kLanes) {
    SizedVector values[1][kVectors];
    CONVTUNE_UNROLL
    for (int v = 0; v < kVectors; ++v)
      values[0][v] = i + v * kLanes < count ? sums(i + v * kLanes) : hn::Zero(Floats());
    const Outputs<T> at = to + i;
    const TilePlace<T> place{at.y, 0, 1, 0, count - i, false};
    finish_tile(values, epilogue, place, at.residual);
    store_tile(values, place);
  }
}

// y[i] = act(sums(i) + residual[i]) for i in [0, count), where sums(i) is a vector from i on.
template <class T, class Sums>
HWY_INLINE void finish_run(Sums&& sums, const Epilogue& epilogue, const Outputs<T>& to, std::int64_t count) {
  if (to.residual == nullptr && epilogue.has_bounds())
    return activate_run<Activation::clip>(sums, epilogue, to.y, count);
  if (to.residual == nullptr && epilogue.activation == Activation::leaky_relu)
    return activate_run<Activation::leaky_relu>(sums, epilogue, to.y, count);
  if (to.residual == nullptr && epilogue.activation == Activation::hardswish)
    return activate_run<Activation::hardswish>(sums, epilogue, to.y, count);
  finish_stored_run(sums, epilogue, to, count);
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#endif
