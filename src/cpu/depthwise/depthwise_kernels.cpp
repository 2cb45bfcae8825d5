// The vector code of the depthwise convolution, written once with Highway and compiled by foreach_target.h
// for each instruction set (docs/decisions/0004).
#include "cpu/depthwise/depthwise_kernels.h"

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/depthwise/depthwise_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is split into even and odd, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// ---- Channels first ----

// A row of the input is loaded once for all output rows that it adds to, and a weight once for all vectors of
// the register tile. Loads are masked everywhere: no edge has code of its own, and a masked load stays one
// where GCC would read memory again for every use of a register.

// The lanes of a vector at column `col` that lie in the image: as unsigned numbers, columns to its left are
// large.
HWY_INLINE Mask inside(std::int64_t col, std::int64_t width) {
  const hn::RebindToUnsigned<Floats> d;
  const auto columns = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<std::uint32_t>(col)));
  return hn::RebindMask(Floats(), hn::Lt(columns, hn::Set(d, static_cast<std::uint32_t>(width))));
}

// The vector at column `col` of a row, zeros where the mask is false: nothing is read there.
HWY_INLINE Vector load_inside(Mask mask, const float* at, std::int64_t col, std::int64_t width) {
  const Floats d;
  if constexpr (kMaskedStores) {
    return hn::MaskedLoad(mask, d, at);
  } else {
    if (col >= 0 && col + kLanes <= width) return hn::LoadU(d, at);
    HWY_ALIGN float lanes[kLanes] = {};
    for (std::int64_t i = std::max<std::int64_t>(-col, 0); i < std::min<std::int64_t>(width - col, kLanes);
         ++i)
      lanes[i] = at[i];
    return hn::Load(d, lanes);
  }
}

// From so many rows on, a register tile takes long enough for the processor to fetch by itself what comes
// next.
constexpr int kLongFilter = 7;

// Adds filter column s, and with a stride of 2 and `both` the one behind it, which comes by the same loads.
// `clipped`: some of the rows lie outside the image. `fetch`: what the register tile below reads, or the next
// plane's first, which lies where its rows would go on, is brought to the cache.
template <int filter_rows, int stride, int rows, int vectors, bool both, bool clipped, bool fetch>
HWY_INLINE void add_column(const PlaneArgs& args, std::int64_t s, SizedVector (&acc)[rows][vectors]) {
  const Floats d;
  const float* const weights = args.weights + s * filter_rows;
  SizedVector weight[filter_rows], next_weight[filter_rows];
  CONVTUNE_UNROLL
  for (int r = 0; r < filter_rows; ++r) {
    weight[r] = hn::Set(d, weights[r]);
    if (both) next_weight[r] = hn::Set(d, weights[filter_rows + r]);
  }
  const std::int64_t col = args.first_col + s * args.dilation_w;
  SizedMask masks[vectors * stride];
  CONVTUNE_UNROLL
  for (int v = 0; v < vectors * stride; ++v) masks[v] = inside(col + v * kLanes, args.width);
  const float* x = args.x + (args.first_row * args.width + col);
  CONVTUNE_UNROLL
  for (int i = 0; i < (rows - 1) * stride + filter_rows; ++i, x += args.width) {
    if (clipped && (args.first_row + i < 0 || args.first_row + i >= args.height)) continue;
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const auto load = [&](int part) {
        return load_inside(masks[part], x + part * kLanes, col + part * kLanes, args.width);
      };
      if (fetch && i < rows * stride && filter_rows < kLongFilter) {
        CONVTUNE_UNROLL
        for (int part = 0; part < stride; ++part)
          __builtin_prefetch(x + rows * stride * args.width + (v * stride + part) * kLanes);
      }
      SizedVector value = load(v * stride), next = value;
      if (stride == 2) {
        const Vector upper = load(v * stride + stride - 1);
        if (both) next = hn::ConcatOdd(d, upper, value);
        value = hn::ConcatEven(d, upper, value);
      }
      CONVTUNE_UNROLL
      for (int j = 0; j < rows; ++j) {
        const int r = i - j * stride;
        if (r < 0 || r >= filter_rows) continue;
        acc[j][v] = hn::MulAdd(weight[r], value, acc[j][v]);
        if (both) acc[j][v] = hn::MulAdd(next_weight[r], next, acc[j][v]);
      }
    }
  }
}

template <int rows, int vectors>
HWY_INLINE void start_plane(const PlaneArgs& args, SizedVector (&acc)[rows][vectors]) {
  CONVTUNE_UNROLL
  for (int j = 0; j < rows; ++j) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) acc[j][v] = hn::Set(Floats(), args.bias);
  }
}

template <int rows, int vectors>
HWY_INLINE void store_plane(const PlaneArgs& args, SizedVector (&acc)[rows][vectors]) {
  activate_tile(acc, args.bounds);
  store_tile(acc, {args.y, args.y_step, args.rows, 0, args.count, false});
}

template <int filter_rows, int stride, int rows, int vectors, bool clipped>
HWY_INLINE void add_columns(const PlaneArgs& args, SizedVector (&acc)[rows][vectors]) {
  // The first column goes alone: with odd padding, as usual, the pairs behind it then begin at even columns,
  // as lines of the cache do.
  add_column<filter_rows, stride, rows, vectors, false, clipped, true>(args, 0, acc);
  std::int64_t s = 1;
  if (stride == 2 && args.dilation_w == 1)
    for (; s + 2 <= args.filter_cols; s += 2)
      add_column<filter_rows, stride, rows, vectors, true, clipped, false>(args, s, acc);
  for (; s < args.filter_cols; ++s)
    add_column<filter_rows, stride, rows, vectors, false, clipped, false>(args, s, acc);
}

template <int filter_rows, int stride, int rows, int vectors>
void plane(const PlaneArgs& shared) {
  const PlaneArgs args = shared;  // a copy, so that stores to y cannot be taken to change it
  SizedVector acc[rows][vectors];
  start_plane(args, acc);
  if (args.first_row >= 0 && args.first_row + (rows - 1) * stride + filter_rows <= args.height)
    add_columns<filter_rows, stride, rows, vectors, false>(args, acc);
  else
    add_columns<filter_rows, stride, rows, vectors, true>(args, acc);
  store_plane(args, acc);
}

// One output row, any filter.
template <int stride, int vectors>
void plane_row(const PlaneArgs& shared) {
  const PlaneArgs args = shared;
  const Floats d;
  SizedVector acc[1][vectors];
  start_plane(args, acc);
  const float* weight = args.weights;
  for (std::int64_t s = 0; s < args.filter_cols; ++s)
    for (std::int64_t r = 0; r < args.filter_rows; ++r, ++weight) {
      const std::int64_t row = args.first_row + r * args.dilation_h;
      if (row < 0 || row >= args.height) continue;
      const float* const x = args.x + row * args.width;
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) {
        const std::int64_t col = args.first_col + s * args.dilation_w + v * stride * kLanes;
        const auto load = [&](std::int64_t at) {
          return load_inside(inside(at, args.width), x + at, at, args.width);
        };
        Vector value = load(col);
        if (stride == 2) value = hn::ConcatEven(d, load(col + kLanes), value);
        acc[0][v] = hn::MulAdd(hn::Set(d, *weight), value, acc[0][v]);
      }
    }
  store_plane(args, acc);
}

// Half of the registers are accumulators. With a stride of 2 a vector takes two masks.
constexpr int kMostPlaneVectors = 4;
template <int stride, int rows>
constexpr int kPlaneVectors = std::min({kMostPlaneVectors, stride == 2 ? 2 : 4, kRegisters == 32 ? 4 : 2,
                                        std::max(kRegisters / 2 / rows, 1)});

struct PlaneKernels {
  std::int64_t vectors;
  std::array<PlaneKernel, kMostPlaneVectors> of_vectors;
};

template <int filter_rows, int stride, int rows, int vectors>
constexpr PlaneKernel plane_of() {
  if constexpr (vectors > kPlaneVectors<stride, rows>)
    return nullptr;
  else if constexpr (rows == 1)
    return plane_row<stride, vectors>;
  else
    return plane<filter_rows, stride, rows, vectors>;
}
template <int filter_rows, int stride, int rows>
constexpr PlaneKernels kPlaneKernels = {
    kPlaneVectors<stride, rows>,
    {plane_of<filter_rows, stride, rows, 1>(), plane_of<filter_rows, stride, rows, 2>(),
     plane_of<filter_rows, stride, rows, 3>(), plane_of<filter_rows, stride, rows, 4>()}};

template <int filter_rows, int stride>
const PlaneKernels* kernels_of(int rows) {
  if (rows == 2) return &kPlaneKernels<filter_rows, stride, 2>;
  if (rows == 4) return &kPlaneKernels<filter_rows, stride, 4>;
  if (rows == 8) return &kPlaneKernels<filter_rows, stride, 8>;
  return nullptr;
}
template <int stride>
const PlaneKernels* kernels_of(const PlaneTile& tile) {
  if (tile.rows == 1) return &kPlaneKernels<0, stride, 1>;
  if (tile.stride_h != stride || tile.dilation_h != 1) return nullptr;
  if (tile.filter_rows == 3) return kernels_of<3, stride>(tile.rows);
  if (tile.filter_rows == 5) return kernels_of<5, stride>(tile.rows);
  if (tile.filter_rows == 7) return kernels_of<7, stride>(tile.rows);
  return nullptr;
}
const PlaneKernels* kernels_of(const PlaneTile& tile) {
  return tile.stride_w == 1 ? kernels_of<1>(tile) : tile.stride_w == 2 ? kernels_of<2>(tile) : nullptr;
}

std::int64_t plane_vectors(const PlaneTile& tile) {
  const PlaneKernels* kernels = kernels_of(tile);
  return kernels ? kernels->vectors : 0;
}
PlaneKernel plane_kernel(const PlaneTile& tile, std::int64_t vectors) {
  return kernels_of(tile)->of_vectors[static_cast<std::size_t>(vectors - 1)];
}

// ---- Channels last ----

template <int pixels, bool clipped>
void pixel_row(const PixelArgs& shared) {
  const PixelArgs args = shared;
  const Floats d;
  for (std::int64_t from = 0; from < args.channels; from += kLanes) {
    // A last part of a vector is computed with the end of what is before it.
    const std::int64_t c = std::min<std::int64_t>(from, args.channels - kLanes);
    SizedVector acc[pixels];
    CONVTUNE_UNROLL
    for (int j = 0; j < pixels; ++j) acc[j] = hn::LoadU(d, args.bias + c);
    const float* weights = args.weights + c;
    for (std::int64_t t = 0; t < args.tap_count; ++t, weights += args.weight_step) {
      const Vector weight = hn::LoadU(d, weights);
      if constexpr (clipped) {
        const std::int64_t col = args.first_col + args.tap_cols[t];
        CONVTUNE_UNROLL
        for (int j = 0; j < pixels; ++j)
          if (const std::int64_t at = col + j * args.col_step; at >= 0 && at < args.width)
            acc[j] = hn::MulAdd(
                weight, hn::LoadU(d, args.x + (args.origin + c + args.taps[t] + j * args.x_step)), acc[j]);
      } else {
        const float* const x = args.x + (args.origin + args.taps[t] + c);
        CONVTUNE_UNROLL
        for (int j = 0; j < pixels; ++j)
          acc[j] = hn::MulAdd(weight, hn::LoadU(d, x + j * args.x_step), acc[j]);
      }
    }
    CONVTUNE_UNROLL
    for (int j = 0; j < pixels; ++j)
      hn::StoreU(activate(d, acc[j], args.bounds), d, args.y + j * args.y_step + c);
  }
}

template <bool clipped, int... fewer>
constexpr std::array<PixelKernel, kMostPixels> pixel_rows(std::integer_sequence<int, fewer...>) {
  return {pixel_row<fewer + 1, clipped>...};
}
PixelKernel pixels_of(std::int64_t pixels, bool clipped) {
  constexpr std::make_integer_sequence<int, kMostPixels> kAll{};
  static constexpr auto kInside = pixel_rows<false>(kAll), kClipped = pixel_rows<true>(kAll);
  return (clipped ? kClipped : kInside)[static_cast<std::size_t>(pixels - 1)];
}

// Unused where depthwise_kernels() has no width for the target.
[[maybe_unused]] constexpr DepthwiseKernels kKernels = {kLanes, plane_vectors, plane_kernel, pixels_of};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

const DepthwiseKernels* depthwise_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(DepthwiseKernels, vector_bits, kKernels);
}

}  // namespace convtune::cpu
#endif
