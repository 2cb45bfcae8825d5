// The vector code of the depthwise convolution, channels first, of images of one long row: a vector of
// columns is loaded once for all outputs that it adds to. Included once for each target, as vectors-inl.h is,
// behind <hwy/foreach_target.h>, by a source for each type of elements.
#if defined(CONVTUNE_DEPTHWISE_LONG_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_DEPTHWISE_LONG_ROWS_INL
#undef CONVTUNE_DEPTHWISE_LONG_ROWS_INL
#else
#define CONVTUNE_DEPTHWISE_LONG_ROWS_INL
#endif

#include <algorithm>
#include <cstdint>
#include <utility>

#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/algorithms/direct_depthwise/depthwise_planes-inl.h"
#include "cpu/algorithms/direct_depthwise/depthwise_taps-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is split into even and odd, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// A vector of columns as a value that slides past a register tile (depthwise_taps-inl.h).
template <class T, int stride>
struct Columns {
  static constexpr int kOfVector = kAccumulators<T, stride>;
  static constexpr std::int64_t kRead = kLoads<T, stride> * kLoaded<T>;
  using Value = SizedVector[kOfVector];

  static HWY_INLINE void load_weights(const float* weights, Value& weight) {
    CONVTUNE_UNROLL
    for (int part = 0; part < kOfVector; ++part) weight[part] = hn::Set(Floats(), *weights);
  }
  static HWY_INLINE Vector add(Vector weight, Vector value, Vector sum) {
    return hn::MulAdd(weight, value, sum);
  }
  static HWY_INLINE void load_values(const T* x, Value& value) {
    if constexpr (sizeof(T) == 2) {
      SizedVector parts[2];
      load_parts(x, parts);
      CONVTUNE_UNROLL
      for (int part = 0; part < kOfVector; ++part) value[part] = parts[part];
    } else if constexpr (stride == 1) {
      value[0] = in_register(load(x));
    } else {
      value[0] = hn::ConcatEven(Floats(), load(x + kLanes), load(x));
    }
  }
  // Loads at column `col`; where loads can be masked, zeros beside the image.
  static HWY_INLINE void load_inside(const T* x, std::int64_t col, std::int64_t width, Value& value) {
    Inside<T, kLoaded<T>> masks[kLoads<T, stride>];
    CONVTUNE_UNROLL
    for (int part = 0; part < kLoads<T, stride>; ++part) masks[part] = {col + part * kLoaded<T>, width};
    const Row<T, stride> row(masks, x);
    value[0] = row.value;
    if constexpr (kOfVector == 2) value[1] = row.next;
  }
};

// Adds taps [begin, end) of a phase but [inside, inside_end), some columns of which lie beside the image.
template <class T, int stride, int vectors>
HWY_INLINE void add_clipped(const PlaneArgs<T>& args, const float* weights, std::int64_t phases,
                            std::int64_t first_col, std::int64_t begin, std::int64_t inside,
                            std::int64_t inside_end, std::int64_t end, SizedVector (&acc)[1][vectors]) {
  using Kind = Columns<T, stride>;
  for (std::int64_t t = begin < inside ? begin : inside_end; t < end;
       t = t + 1 == inside ? inside_end : t + 1) {
    typename Kind::Value weight, value;
    Kind::load_weights(weights + t * phases, weight);
    std::int64_t col = first_col + t * Kind::kRead;
    CONVTUNE_UNROLL
    for (int j = 0; j < vectors / Kind::kOfVector; ++j, col += Kind::kRead) {
      if (col >= 0 && col + Kind::kRead <= args.width) {
        Kind::load_values(args.x + col, value);
      } else {
        const Patch<T, 1, Kind::kRead> patch(args, 0, col);
        Kind::load_inside(patch.x, col, args.width, value);
      }
      CONVTUNE_UNROLL
      for (int part = 0; part < Kind::kOfVector; ++part) {
        SizedVector& sum = acc[0][j * Kind::kOfVector + part];
        sum = Kind::add(weight[part], value[part], sum);
      }
    }
  }
}

// Adds the filter, phase after phase: taps whose columns all lie in the image by values that slide, and those
// that meet padding alone not at all.
template <class T, int stride, int vectors>
HWY_INLINE void slide_filter(const PlaneArgs<T>& args, SizedVector (&acc)[1][vectors]) {
  using Kind = Columns<T, stride>;
  constexpr std::int64_t outputs = vectors / Kind::kOfVector;
  const std::int64_t phases = tap_phases(args.filter_cols, args.dilation_w, Kind::kRead),
                     end_col =
                         args.first_col + (args.filter_cols - 1) * args.dilation_w + outputs * Kind::kRead;
  const bool clipped = args.first_col < 0 || end_col > args.width;
  for (std::int64_t phase = 0; phase < phases; ++phase) {
    const float* const weights = args.weights + phase;
    const std::int64_t first_col = args.first_col + phase * args.dilation_w;
    const T* const x = args.x + first_col;
    const auto load = [&](std::int64_t i, typename Kind::Value& value)
                          HWY_ATTR { Kind::load_values(x + i * Kind::kRead, value); };
    // Taps [inside, inside_end) of [begin, end) meet no padding.
    std::int64_t begin = 0, end = (args.filter_cols - 1 - phase) / phases + 1, inside = 0, inside_end = end;
    if (clipped) {
      const auto before = [&](std::int64_t col) { return values_before(col - first_col, Kind::kRead); };
      end = std::min(before(args.width), end);
      begin = std::clamp<std::int64_t>(before(1 - Kind::kRead) - (outputs - 1), 0, end);
      inside = std::clamp(before(0), begin, end);
      inside_end = std::clamp(before(args.width - Kind::kRead + 1) - (outputs - 1), inside, end);
    }
    add_clipped<T, stride>(args, weights, phases, first_col, begin, inside, inside_end, end, acc);
    slide_taps<Kind, Kind::kOfVector>(weights, phases, inside, inside_end, load, acc);
  }
}

template <class T, int stride, int vectors>
void long_row(const PlaneArgs<T>& shared) {
  const PlaneArgs<T> args = shared;  // a copy, so that stores to y cannot be taken to change it
  SizedVector acc[1][vectors * kAccumulators<T, stride>];
  start_plane<T, stride, 1, vectors>(args, acc);
  slide_filter<T, stride>(args, acc);
  store_plane<T, stride, 1, vectors>(args, acc);
}

// A few vectors are not worth the phases.
template <class T, int stride, int vectors>
constexpr PlaneKernel<T> long_row_of() {
  if constexpr (vectors <= kPlaneVectors<T, stride, 1>)
    return plane_row<T, stride, vectors>;
  else
    return long_row<T, stride, vectors>;
}
template <class T, int stride, int... fewer>
constexpr PlaneKernels<T> long_row_kernels(std::integer_sequence<int, fewer...>) {
  return {sizeof...(fewer), {long_row_of<T, stride, fewer + 1>()...}};
}
template <class T, int stride>
constexpr PlaneKernels<T> kLongRowKernels = long_row_kernels<T, stride>(
    std::make_integer_sequence<int,
                               std::min(kMostPlaneVectors, kSlidingOutputs<kAccumulators<T, stride>>)>());

// Kernels of long rows or of planes.
template <class T>
const PlaneKernels<T>* kernels_first(const PlaneTile& tile) {
  if (tile.rows != 1 || !tile.slides || tile.stride_w > 2) return plane_kernels_of<T>(tile);
  return tile.stride_w == 1 ? &kLongRowKernels<T, 1> : &kLongRowKernels<T, 2>;
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
