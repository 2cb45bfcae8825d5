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

#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/algorithms/direct_depthwise/depthwise_taps-inl.h"
#include "cpu/tile/outputs-inl.h"
#include "cpu/tile/register_tile-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is split into even and odd, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// In the place of a filter's columns: x slides through the registers (depthwise_taps-inl.h).
constexpr int kSlides = -1;

template <class T>
using Parts = SizedVector[kParts<T>];  // a vector's worth of channels as sums

// One channel a group. Sums are of channels; bf16's even and odd ones are apart.
template <class T>
struct Channels {
  using Element = T;
  static constexpr bool kGrouped = false;
  static HWY_INLINE void load_values(const T* x, const std::int32_t*, Parts<T>& value) {
    load_parts(x, value);
    if constexpr (kParts<T> == 1) value[0] = in_register(value[0]);
  }
  static HWY_INLINE void load_weights(const float* weights, Parts<T>& weight) {
    CONVTUNE_UNROLL
    for (int part = 0; part < kParts<T>; ++part) weight[part] = load(weights + part * kLanes);
  }
  static HWY_INLINE Vector add(Vector weight, Vector value, Vector sum) {
    return hn::MulAdd(weight, value, sum);
  }
  static HWY_INLINE void load_elements(const T* from, Parts<T>& values) { load_parts(from, values); }
  static HWY_INLINE Vector to_elements(const Parts<T>& values) {
    if constexpr (kParts<T> == 1)
      return values[0];
    else
      return hn::BitCast(Floats(), join_parts(values[0], values[1]));
  }
};

// Groups of several channels and as many filters. A lane is a filter, and the words that it multiplies, f32
// or pairs of bf16, are brought to it one after the other by a shuffle.
template <class T>
struct Groups;
template <>
struct Groups<float> : Channels<float> {
  static constexpr bool kGrouped = true;
  static HWY_INLINE void load_values(const float* x, const std::int32_t* shuffle, Parts<float>& value) {
    const Floats d;
    value[0] = hn::TableLookupLanes(hn::LoadU(d, x), hn::SetTableIndices(d, shuffle));
  }
};
#if CONVTUNE_BF16_PAIRS
template <>
struct Groups<Bf16> {
  using Element = Bf16;
  static constexpr bool kGrouped = true;
  static HWY_INLINE void load_values(const Bf16* x, const std::int32_t* shuffle, Parts<Bf16>& value) {
    const Floats d;
    const Vector words = hn::BitCast(d, hn::LoadU(hn::Repartition<Bf16, Floats>(), x));
    value[0] = hn::TableLookupLanes(words, hn::SetTableIndices(d, shuffle));
    value[1] = hn::TableLookupLanes(words, hn::SetTableIndices(d, shuffle + kLanes));
  }
  static HWY_INLINE void load_weights(const float* weights, Parts<Bf16>& weight) {
    weight[0] = load(weights), weight[1] = load(weights + kLanes);
  }
  static HWY_INLINE Vector add(Vector weight, Vector value, Vector sum) {
    return Bf16Products::add(weight, value, sum);
  }
  static HWY_INLINE void load_elements(const Bf16* from, Parts<Bf16>& values) {
    values[0] = load(from);
    values[1] = load(from + kLanes);
  }
  static HWY_INLINE Vector to_elements(const Parts<Bf16>& values) {
    return hn::BitCast(Floats(), round_both(values[0], values[1]));
  }
};
#endif

// Adds every `step`-th tap of [begin, end) of a row of the filter, at pixels where it does not meet padding.
template <class Kind, int pixels>
HWY_INLINE void add_taps(const PixelArgs<typename Kind::Element>& args, const typename Kind::Element* x,
                         const std::int32_t* shuffle, const float* weights, std::int64_t begin,
                         std::int64_t end, std::int64_t step,
                         SizedVector (&acc)[pixels][kParts<typename Kind::Element>]) {
  constexpr int parts = kParts<typename Kind::Element>;
  SizedVector weight[parts], value[parts];
  for (std::int64_t s = begin; s < end; s += step) {
    Kind::load_weights(weights + s * parts * kLanes, weight);
    CONVTUNE_UNROLL
    for (int j = 0; j < pixels; ++j) {
      const std::int64_t col = s * args.dilation + j * args.stride;
      if (static_cast<std::uint64_t>(args.first_col + col) >= static_cast<std::uint64_t>(args.width))
        continue;
      Kind::load_values(x + col * args.x_step, shuffle, value);
      CONVTUNE_UNROLL
      for (int part = 0; part < parts; ++part)
        acc[j][part] = Kind::add(weight[part], value[part], acc[j][part]);
    }
  }
}

// A phase of fewer taps that meet no padding is not worth its start.
constexpr int kSlidTaps = 8;
template <int pixels, class T>
HWY_INLINE std::int64_t whole_taps(const PixelArgs<T>& args) {
  const std::int64_t columns = (pixels - 1) * args.stride + args.filter_cols,
                     beside = std::max<std::int64_t>(-args.first_col, 0) +
                              std::max<std::int64_t>(args.first_col + columns - args.width, 0);
  return args.filter_cols - beside;
}

// Adds a row of the filter, of one word a channel, phase after phase, with x loaded once for all pixels that
// it adds to; at pixels that lie beside the image as above.
template <class Kind, bool clipped, int pixels>
HWY_INLINE void slide_row(const PixelArgs<typename Kind::Element>& args, const typename Kind::Element* x,
                          const std::int32_t* shuffle, const float* weights,
                          SizedVector (&acc)[pixels][kParts<typename Kind::Element>]) {
  constexpr int parts = kParts<typename Kind::Element>;
  const std::int64_t x_step = args.stride * args.x_step, phases = args.phases,
                     weight_step = phases * parts * kLanes;
  for (std::int64_t phase = 0; phase < phases; ++phase) {
    const auto* const x_phase = x + phase * args.dilation * args.x_step;
    const float* const own_weights = weights + phase * parts * kLanes;
    const auto load = [&](std::int64_t i, SizedVector(&value)[parts])
                          HWY_ATTR { Kind::load_values(x_phase + i * x_step, shuffle, value); };
    std::int64_t begin = 0, end = (args.filter_cols - 1 - phase) / phases + 1;
    if constexpr (clipped) {
      const std::int64_t first_col = args.first_col + phase * args.dilation, taps = end;
      begin = std::min(values_before(-first_col, args.stride), taps);
      end = std::clamp(values_before(args.width - first_col, args.stride) - (pixels - 1), begin, taps);
      const std::int64_t first = std::max<std::int64_t>(begin - (pixels - 1), 0);
      add_taps<Kind>(args, x, shuffle, weights, first * phases + phase, begin * phases + phase, phases, acc);
      add_taps<Kind>(args, x, shuffle, weights, end * phases + phase,
                     std::min(end + pixels - 1, taps) * phases + phase, phases, acc);
    }
    slide_taps<Kind, parts>(own_weights, weight_step, begin, end, load, acc);
  }
}

// Adds the products of a row of the filter, of one word a channel. Every column of x is read once, for all
// pixels that it adds to; columns beside the image are left out where `clipped`. `filter_cols` and `stride`
// are 0 where a kernel has none of its own, filter_cols is kSlides where x slides through the registers.
template <class Kind, int filter_cols, int stride, int pixels, bool clipped>
HWY_INLINE void add_row(const PixelArgs<typename Kind::Element>& args, const typename Kind::Element* x,
                        const std::int32_t* shuffle, const float* weights,
                        SizedVector (&acc)[pixels][kParts<typename Kind::Element>]) {
  constexpr int parts = kParts<typename Kind::Element>;
  if constexpr (filter_cols == kSlides) {
    if (clipped && whole_taps<pixels>(args) < kSlidTaps * args.phases)
      add_taps<Kind>(args, x, shuffle, weights, 0, args.filter_cols, 1, acc);
    else
      slide_row<Kind, clipped>(args, x, shuffle, weights, acc);
    return;
  }
  const Floats d;
  const auto beside = [&](std::int64_t col) {
    return clipped &&
           static_cast<std::uint64_t>(args.first_col + col) >= static_cast<std::uint64_t>(args.width);
  };
  SizedVector value[parts];
  if constexpr (filter_cols == 0) {
    for (std::int64_t s = 0; s < args.filter_cols; ++s, weights += parts * kLanes) {
      SizedVector weight[parts];
      CONVTUNE_UNROLL
      for (int part = 0; part < parts; ++part) weight[part] = hn::LoadU(d, weights + part * kLanes);
      CONVTUNE_UNROLL
      for (int j = 0; j < pixels; ++j) {
        const std::int64_t col = s * args.dilation + j * args.stride;
        if (beside(col)) continue;
        Kind::load_values(x + col * args.x_step, shuffle, value);
        CONVTUNE_UNROLL
        for (int part = 0; part < parts; ++part)
          acc[j][part] = Kind::add(weight[part], value[part], acc[j][part]);
      }
    }
  } else if constexpr (filter_cols > 0) {
    SizedVector weight[filter_cols][parts];
    CONVTUNE_UNROLL
    for (int i = 0; i < filter_cols * parts; ++i)
      weight[i / parts][i % parts] = hn::LoadU(d, weights + i * kLanes);
    CONVTUNE_UNROLL
    for (int i = 0; i < (pixels - 1) * stride + filter_cols; ++i, x += args.x_step) {
      if (beside(i)) continue;
      Kind::load_values(x, shuffle, value);
      CONVTUNE_UNROLL
      for (int j = 0; j < pixels; ++j) {
        const int s = i - j * stride;
        if (s < 0 || s >= filter_cols) continue;
        CONVTUNE_UNROLL
        for (int part = 0; part < parts; ++part)
          acc[j][part] = Kind::add(weight[s][part], value[part], acc[j][part]);
      }
    }
  }
}

template <class Kind, int filter_cols, int stride, int pixels, bool clipped>
HWY_INLINE void add_rows(const PixelArgs<typename Kind::Element>& args, std::int64_t vector, std::int64_t c,
                         SizedVector (&acc)[pixels][kParts<typename Kind::Element>]) {
  constexpr int step = kLanes * kParts<typename Kind::Element>;
  const std::int64_t row_weights = (filter_cols <= 0 ? args.filter_cols : filter_cols) * step;
  for (std::int64_t f = 0; f < args.frames; ++f) {
    const float* weights = args.weights + vector * args.weight_step + f * args.frame_weights;
    const auto* x = args.x + (args.origin + f * args.frame_step + c);
    for (std::int64_t r = 0; r < args.filter_rows; ++r, x += args.row_step) {
      std::int64_t word = 0;
      do {
        add_row<Kind, filter_cols, stride, pixels, clipped>(args, x, args.shuffle + word * step, weights,
                                                            acc);
        weights += row_weights;
      } while (Kind::kGrouped && ++word < args.words);
    }
  }
}

template <class Kind, int filter_cols, int stride, int pixels>
void pixel_row(const PixelArgs<typename Kind::Element>& shared) {
  using T = typename Kind::Element;
  constexpr int parts = kParts<T>, step = kLanes * parts;
  const PixelArgs<T> args = shared;  // a copy, so that stores to y cannot be taken to change it
  const Floats d;
  const std::int64_t last_col =
      args.first_col + (pixels - 1) * args.stride + (args.filter_cols - 1) * args.dilation;
  const bool clipped = args.first_col < 0 || last_col >= args.width;
  for (std::int64_t vector = args.first_vector; vector < args.end_vector; ++vector) {
    // A last part of a vector is computed with the end of what is before it.
    const std::int64_t done = vector * step, c = std::min<std::int64_t>(done, args.channels - step);
    SizedVector acc[pixels][parts];
    CONVTUNE_UNROLL
    for (int part = 0; part < parts; ++part) {
      const Vector bias = hn::LoadU(d, args.bias + done + part * kLanes);
      CONVTUNE_UNROLL
      for (int j = 0; j < pixels; ++j) acc[j][part] = bias;
    }
    for (std::int64_t i = 0; i < args.fetch_rows; ++i)
      for (std::int64_t j = 0; j < pixels * args.stride; ++j)
        __builtin_prefetch(args.x + (args.fetch + i * args.fetch_step + j * args.x_step + c));
    if (clipped)
      add_rows<Kind, filter_cols, stride, pixels, true>(args, vector, c, acc);
    else
      add_rows<Kind, filter_cols, stride, pixels, false>(args, vector, c, acc);
    if (args.residual != nullptr) {
      const T* residual = args.residual + c;
      CONVTUNE_UNROLL
      for (int j = 0; j < pixels; ++j, residual += args.y_step) {
        SizedVector added[parts];
        Kind::load_elements(residual, added);
        CONVTUNE_UNROLL
        for (int part = 0; part < parts; ++part) acc[j][part] = hn::Add(acc[j][part], added[part]);
      }
    }
    activate_tile<T>(acc, args.epilogue);
    // All are rounded before the first is stored: GCC rounded in three places what is stored in three ways.
    SizedVector elements[pixels];
    CONVTUNE_UNROLL
    for (int j = 0; j < pixels; ++j) elements[j] = Kind::to_elements(acc[j]);
    const hn::Repartition<T, Floats> dt;
    T* y = args.y + c;
    if (args.stream) {
      CONVTUNE_UNROLL
      for (int j = 0; j < pixels; ++j, y += args.y_step) hn::Stream(hn::BitCast(dt, elements[j]), dt, y);
    } else if (args.residual == nullptr || c == done) {
      CONVTUNE_UNROLL
      for (int j = 0; j < pixels; ++j, y += args.y_step) hn::StoreU(hn::BitCast(dt, elements[j]), dt, y);
    } else {  // what was computed before `done` may be the residual no more
      for (int j = 0; j < pixels; ++j, y += args.y_step) {
        HWY_ALIGN T lanes[step];
        hn::StoreU(hn::BitCast(dt, elements[j]), dt, lanes);
        std::copy(lanes + (done - c), lanes + step, y + (done - c));
      }
    }
  }
}

template <class T>
using PixelKernels = std::array<PixelKernel<T>, kMostPixels>;

// Sums, a row of weights, a vector's worth of values and where they come from must fit the registers; where
// there is no kernel for the filter, one weight, or with x sliding a value for every sum.
template <class Kind, int filter_cols, int stride, int pixels>
constexpr PixelKernel<typename Kind::Element> pixel_kernel() {
  constexpr int parts = kParts<typename Kind::Element>;
  // Sizes that make up every row in nearly as few tiles as all would.
  constexpr bool has = filter_cols == kSlides ? pixels <= 4 || pixels % 7 == 0 : pixels != 3 && pixels != 5;
  constexpr bool fits = filter_cols == 0         ? true
                        : filter_cols == kSlides ? pixels <= kSlidingOutputs<parts>
                                                 : (pixels + filter_cols + 2) * parts <= kRegisters;
  if constexpr (has && fits)
    return pixel_row<Kind, filter_cols, stride, pixels>;
  else
    return nullptr;
}
template <class Kind, int filter_cols, int stride, int... fewer>
constexpr PixelKernels<typename Kind::Element> pixel_kernels(std::integer_sequence<int, fewer...>) {
  return {pixel_kernel<Kind, filter_cols, stride, fewer + 1>()...};
}
template <class Kind, int filter_cols, int stride>
constexpr PixelKernels<typename Kind::Element> kPixelKernels = pixel_kernels<Kind, filter_cols, stride>(
    std::make_integer_sequence<int, filter_cols == kSlides ? kMostPixels : kMostFixedPixels>());

template <class Kind>
PixelKernel<typename Kind::Element> pixels_of(const PixelTile& tile, std::int64_t pixels) {
  using T = typename Kind::Element;
  // Few registers hold no pixel of a long filter's kernel.
  const auto of = [&](const PixelKernels<T>& own) {
    const PixelKernels<T>& kernels = own[0] != nullptr ? own : kPixelKernels<Kind, 0, 0>;
    return kernels[static_cast<std::size_t>(pixels - 1)];
  };
  if constexpr (!Kind::kGrouped) {
    if (tile.slides) return of(kPixelKernels<Kind, kSlides, 0>);
  }
  if (tile.dilation_w == 1) {
    if constexpr (!Kind::kGrouped || !kFewKernels) {
      if (tile.filter_cols == 3 && tile.stride_w == 1) return of(kPixelKernels<Kind, 3, 1>);
      if (tile.filter_cols == 3 && tile.stride_w == 2) return of(kPixelKernels<Kind, 3, 2>);
    }
    if constexpr (!Kind::kGrouped && !kFewKernels) {
      if (tile.filter_cols == 5 && tile.stride_w == 1) return of(kPixelKernels<Kind, 5, 1>);
      if (tile.filter_cols == 5 && tile.stride_w == 2) return of(kPixelKernels<Kind, 5, 2>);
      if (tile.filter_cols == 7 && tile.stride_w == 1) return of(kPixelKernels<Kind, 7, 1>);
    }
  }
  return of(kPixelKernels<Kind, 0, 0>);
}

template <class T>
PixelKernel<T> pixel_kernel_of(const PixelTile& tile, std::int64_t pixels) {
  if (!tile.grouped) return pixels_of<Channels<T>>(tile, pixels);
  if constexpr (sizeof(T) == 4 || CONVTUNE_BF16_PAIRS)
    return pixels_of<Groups<T>>(tile, pixels);
  else
    return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
