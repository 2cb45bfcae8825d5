// The vector code of the depthwise convolution, channels last: included once for each target, as
// vectors-inl.h is, behind <hwy/foreach_target.h>, by a source for each type of elements.
#if defined(CONVTUNE_DEPTHWISE_PIXELS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_DEPTHWISE_PIXELS_INL
#undef CONVTUNE_DEPTHWISE_PIXELS_INL
#else
#define CONVTUNE_DEPTHWISE_PIXELS_INL
#endif

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/depthwise/depthwise_kernels.h"
#include "cpu/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is split into even and odd, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Channels [done, c + kLanes words) of a pixel; those before `done` may be a residual no more.
template <class T>
HWY_INLINE void store_channels(const SizedVector (&values)[kParts<T>], T* y, std::int64_t c,
                               std::int64_t done) {
  HWY_ALIGN T lanes[kLanes * kParts<T>];
  if constexpr (kParts<T> == 2) {
    if (c >= done) return store_parts(values[0], values[1], y + c);
    store_parts(values[0], values[1], lanes);
  } else {
    if (c >= done) return store(values[0], y + c);
    store(values[0], lanes);
  }
  std::copy(lanes + (done - c), lanes + kLanes * kParts<T>, y + done);
}

template <class T, int pixels, bool clipped>
void pixel_row(const PixelArgs<T>& shared) {
  constexpr int parts = kParts<T>, step = kLanes * parts;
  const PixelArgs<T> args = shared;
  const Floats d;
  for (std::int64_t done = args.done, next = 0; done < args.channels; next += step) {
    // A last part of a vector is computed with the end of what is before it.
    const std::int64_t c = std::min<std::int64_t>(next, args.channels - step);
    SizedVector acc[pixels][parts], value[parts];
    load_parts(args.bias + c, value);
    CONVTUNE_UNROLL
    for (int j = 0; j < pixels; ++j) {
      CONVTUNE_UNROLL
      for (int part = 0; part < parts; ++part) acc[j][part] = value[part];
    }
    for (std::int64_t i = 0; i < args.fetch_rows; ++i)
      for (std::int64_t j = 0; j < pixels * args.col_step; ++j)
        __builtin_prefetch(args.x + (args.fetch + i * args.row_step + j * args.weight_step + c));
    const T* weights = args.weights + c;
    for (std::int64_t t = 0; t < args.tap_count; ++t, weights += args.weight_step) {
      SizedVector weight[parts];
      load_parts(weights, weight);
      const std::int64_t col = clipped ? args.first_col + args.tap_cols[t] : 0;
      const T* const x = args.x + (args.origin + args.taps[t] + c);
      CONVTUNE_UNROLL
      for (int j = 0; j < pixels; ++j) {
        if (clipped && (col + j * args.col_step < 0 || col + j * args.col_step >= args.width)) continue;
        load_parts(x + j * args.x_step, value);
        CONVTUNE_UNROLL
        for (int part = 0; part < parts; ++part)
          acc[j][part] = hn::MulAdd(weight[part], value[part], acc[j][part]);
      }
    }
    CONVTUNE_UNROLL
    for (int j = 0; j < pixels; ++j) {
      if (args.residual != nullptr) load_parts(args.residual + j * args.y_step + c, value);
      CONVTUNE_UNROLL
      for (int part = 0; part < parts; ++part) {
        if (args.residual != nullptr) acc[j][part] = hn::Add(acc[j][part], value[part]);
        acc[j][part] = activate(d, acc[j][part], args.bounds);
      }
      store_channels<T>(acc[j], args.y + j * args.y_step, c, args.residual != nullptr ? done : c);
    }
    done = c + step;
  }
}

template <class T, bool clipped, int... fewer>
constexpr std::array<PixelKernel<T>, kMostPixels> pixel_rows(std::integer_sequence<int, fewer...>) {
  return {pixel_row<T, fewer + 1, clipped>...};
}
template <class T>
PixelKernel<T> pixels_of(std::int64_t pixels, bool clipped) {
  constexpr std::make_integer_sequence<int, kMostPixels> kAll{};
  static constexpr auto kInside = pixel_rows<T, false>(kAll), kClipped = pixel_rows<T, true>(kAll);
  return (clipped ? kClipped : kInside)[static_cast<std::size_t>(pixels - 1)];
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
