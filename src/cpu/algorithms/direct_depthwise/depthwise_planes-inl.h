// The vector code of the depthwise convolution, channels first: included once for each target, as
// vectors-inl.h is, behind <hwy/foreach_target.h>, by a source for each type of elements.
#if defined(CONVTUNE_DEPTHWISE_PLANES_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_DEPTHWISE_PLANES_INL
#undef CONVTUNE_DEPTHWISE_PLANES_INL
#else
#define CONVTUNE_DEPTHWISE_PLANES_INL
#endif

#include <algorithm>
#include <array>
#include <type_traits>

#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/algorithms/direct_depthwise/depthwise_taps-inl.h"
#include "cpu/tile/outputs-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is split into even and odd, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// A row of the input is loaded once for all output rows that it adds to, and a weight once for all vectors of
// the register tile. Where loads can be masked they all are: no edge has code of its own, and a masked load
// stays one where GCC would read memory again for every use of a register. AVX2's masked loads are as fast as
// others, unlike its stores; those of bf16 are AVX-512's alone.
template <class T>
constexpr bool kMaskedLoads = sizeof(T) == 4 ? kMaskedStores || HWY_TARGET == HWY_AVX2
                                             : HWY_TARGET == HWY_AVX3;

// The lanes of a vector at column `col` that lie in the image: as unsigned numbers, columns to its left are
// large.
HWY_INLINE Mask inside(std::int64_t col, std::int64_t width) {
  const hn::RebindToUnsigned<Floats> d;
  const auto columns = hn::Add(hn::Iota(d, 0), hn::Set(d, static_cast<std::uint32_t>(col)));
  return hn::RebindMask(Floats(), hn::Lt(columns, hn::Set(d, static_cast<std::uint32_t>(width))));
}

// A vector of outputs is one accumulator of kLanes columns, or of bf16 with a stride of 1 two, the even and
// the odd ones. It reads kLoads vectors of words, each of kLoaded columns.
template <class T, int stride>
constexpr int kAccumulators = accumulators<T>(stride);
template <class T, int stride>
constexpr int kLoads = sizeof(T) == 4 ? stride : 1;
template <class T>
constexpr int kLoaded = kLanes* kParts<T>;

// Those of a load's columns, from `col` on, that lie in the image: one a lane, or of bf16 as bits.
template <class T, int columns>
struct Inside {
  Inside() = default;
  Inside(std::int64_t col, std::int64_t width) : mask(inside(col, width)) {}
  SizedMask mask;
};
template <int columns>
struct Inside<Bf16, columns> {
  Inside() = default;
  Inside(std::int64_t col, std::int64_t width) {
    const std::int64_t from = std::clamp<std::int64_t>(-col, 0, columns);
    const std::int64_t to = std::clamp<std::int64_t>(width - col, from, columns);
    mask = (std::uint64_t{1} << to) - (std::uint64_t{1} << from);
  }
  std::uint64_t mask = 0;
};

// Rows of x from `first_row` on, columns from `col` on: zeros where they lie beside the image, where nothing
// is read.
template <class T>
HWY_NOINLINE void copy_patch(const PlaneArgs<T>& args, std::int64_t first_row, std::int64_t rows,
                             std::int64_t col, std::int64_t columns, T* patch) {
  std::fill_n(patch, rows * columns, T{});
  const std::int64_t from = std::clamp<std::int64_t>(-col, 0, columns),
                     to = std::clamp<std::int64_t>(args.width - col, from, columns);
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = first_row + i;
    if (row < 0 || row >= args.height) continue;
    for (std::int64_t j = from; j < to; ++j) patch[i * columns + j] = args.x[row * args.width + col + j];
  }
}

// Where x is loaded from: the image itself, or where loads are not masked a copy of what reaches beside it.
// That is decided once, since a decision at every load makes a register tile's code several times as long.
template <class T, int rows, int columns>
struct Patch {
  HWY_INLINE Patch(const PlaneArgs<T>& args, std::int64_t row, std::int64_t col)
      : x(args.x + (row * args.width + col)), step(args.width) {
    if constexpr (!kMaskedLoads<T>) {
      if (row >= 0 && row + rows <= args.height && col >= 0 && col + columns <= args.width) return;
      copy_patch(args, row, rows, col, columns, copy);
      x = copy, step = columns;
    }
  }
  const T* x;
  std::int64_t step;
  HWY_ALIGN T copy[kMaskedLoads<T> ? 1 : rows * columns];
};

// The columns 2 * l from `at` on in `value`, those behind them in `next`, or of floats with a stride of 1 all
// in `value`. Masked loads read nothing beside the image, and zeros are what they find there.
template <class T, int stride>
struct Row {
  using Mask = Inside<T, kLoaded<T>>;
  HWY_INLINE Row(const Mask* masks, const T* at);
  SizedVector value, next;
};

HWY_INLINE Vector load_inside(const Inside<float, kLanes>& in, const float* at) {
  if constexpr (kMaskedLoads<float>) return hn::MaskedLoad(in.mask, Floats(), at);
  return hn::LoadU(Floats(), at);
}
template <>
HWY_INLINE Row<float, 1>::Row(const Mask* masks, const float* at)
    : value(load_inside(masks[0], at)), next(value) {}
template <>
HWY_INLINE Row<float, 2>::Row(const Mask* masks, const float* at) {
  const Floats d;
  const Vector lower = load_inside(masks[0], at), upper = load_inside(masks[1], at + kLanes);
  value = hn::ConcatEven(d, upper, lower);
  next = hn::ConcatOdd(d, upper, lower);
}
HWY_INLINE void load_inside(const Inside<Bf16, 2 * kLanes>& in, const Bf16* at, SizedVector (&parts)[2]) {
#if HWY_TARGET == HWY_AVX3
  const Bits du;
  const BitVector words{_mm512_maskz_loadu_epi16(static_cast<__mmask32>(in.mask), at)};
  parts[0] = from_bf16(words);
  parts[1] = hn::BitCast(Floats(), hn::And(words, hn::Set(du, 0xffff0000U)));
#else
  (void)in;
  load_parts(at, parts);
#endif
}
template <int stride>
struct Row<Bf16, stride> {
  using Mask = Inside<Bf16, kLoaded<Bf16>>;
  HWY_INLINE Row(const Mask* masks, const Bf16* at) {
    SizedVector parts[2];
    load_inside(*masks, at, parts);
    value = parts[0], next = parts[1];
  }
  SizedVector value, next;
};

// From so many rows on, a register tile takes long enough for the processor to fetch by itself what comes
// next.
constexpr int kLongFilter = 7;

// Brings the rows to the cache that the second register tile below reads for the first time, because memory
// takes longer than one tile does. Below the last rows of a plane lie the first ones of the next. Of several
// frames the last is new: the others were read for the outputs of the frame before.
template <class T, int filter_rows, int stride, int rows, int columns>
HWY_INLINE void fetch_below(const PlaneArgs<T>& args) {
  if (filter_rows >= kLongFilter) return;
  constexpr int kSkipped = filter_rows - stride + 2 * rows * stride;
  const T* x = args.x + (std::max<std::int64_t>(args.frames - 1, 0) * args.frame_step +
                         (args.first_row + kSkipped) * args.width + args.first_col);
  for (int i = 0; i < rows * stride; ++i, x += args.width)
    for (int j = 0; j < columns; j += kLoaded<T>) __builtin_prefetch(x + j);
}

// Adds filter column s, and where asked those on either side of it, which come by the same loads: `after`
// with pairs of columns in a load, `before` too where even and odd outputs are apart. `clipped`: some of the
// rows lie outside the image.
template <class T, int filter_rows, int stride, int rows, int vectors, bool before, bool after, bool clipped>
HWY_INLINE void add_column(const PlaneArgs<T>& args, std::int64_t s,
                           SizedVector (&acc)[rows][vectors * kAccumulators<T, stride>]) {
  const Floats d;
  constexpr int loads = kLoads<T, stride>, loaded = kLoaded<T>, of_vector = kAccumulators<T, stride>,
                x_rows = (rows - 1) * stride + filter_rows;
  const float* const weights = args.weights + s * filter_rows;
  SizedVector weight[filter_rows], weight_before[filter_rows], weight_after[filter_rows];
  CONVTUNE_UNROLL
  for (int r = 0; r < filter_rows; ++r) {
    weight[r] = hn::Set(d, weights[r]);
    if (before) weight_before[r] = hn::Set(d, weights[r - filter_rows]);
    if (after) weight_after[r] = hn::Set(d, weights[r + filter_rows]);
  }
  const std::int64_t col = args.first_col + s * args.dilation_w;
  Inside<T, loaded> masks[vectors * loads];
  CONVTUNE_UNROLL
  for (int v = 0; v < vectors * loads; ++v) masks[v] = {col + v * loaded, args.width};
  const Patch<T, x_rows, vectors * loads * loaded> patch(args, args.first_row, col);
  const T* x = patch.x;
  const auto height = static_cast<std::uint64_t>(args.height);
  CONVTUNE_UNROLL
  for (int i = 0; i < x_rows; ++i, x += patch.step) {
    if (clipped && static_cast<std::uint64_t>(args.first_row + i) >= height) continue;
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      const Row<T, stride> row(masks + v * loads, x + v * loads * loaded);
      CONVTUNE_UNROLL
      for (int j = 0; j < rows; ++j) {
        const int r = i - j * stride;
        if (r < 0 || r >= filter_rows) continue;
        SizedVector& even = acc[j][v * of_vector];
        SizedVector& odd = acc[j][v * of_vector + of_vector - 1];
        even = hn::MulAdd(weight[r], row.value, even);
        if (of_vector == 2) odd = hn::MulAdd(weight[r], row.next, odd);
        if (before) odd = hn::MulAdd(weight_before[r], row.value, odd);
        if (after) even = hn::MulAdd(weight_after[r], row.next, even);
      }
    }
  }
}

// sums[rows][vectors][of_vector][kLanes] = bias + residual; apart, so that its code burdens no other.
template <class T, int of_vector>
HWY_NOINLINE void start_from_residual(const T* residual, std::int64_t step, std::int64_t rows, int vectors,
                                      std::int64_t count, float bias, float* sums) {
  constexpr int columns = kLanes * of_vector;
  const Floats d;
  for (std::int64_t j = 0; j < rows; ++j)
    for (int v = 0; v < vectors; ++v) {
      HWY_ALIGN T lanes[columns] = {};
      std::copy_n(residual + j * step + v * columns,
                  std::clamp<std::int64_t>(count - v * columns, 0, columns), lanes);
      SizedVector added[of_vector];
      if constexpr (of_vector == 2)
        load_parts(lanes, added);
      else
        added[0] = load(lanes);
      for (int part = 0; part < of_vector; ++part, sums += kLanes)
        hn::Store(hn::Add(hn::Set(d, bias), added[part]), d, sums);
    }
}

template <class T, int stride, int rows, int vectors>
HWY_INLINE void start_plane(const PlaneArgs<T>& args,
                            SizedVector (&acc)[rows][vectors * kAccumulators<T, stride>]) {
  constexpr int of_vector = kAccumulators<T, stride>, of_row = vectors * of_vector;
  const Floats d;
  if (args.residual == nullptr) {
    CONVTUNE_UNROLL
    for (int i = 0; i < rows * of_row; ++i) acc[i / of_row][i % of_row] = hn::Set(d, args.bias);
    return;
  }
  HWY_ALIGN float sums[rows * of_row * kLanes] = {};
  start_from_residual<T, of_vector>(args.residual, args.y_step, std::min<std::int64_t>(args.rows, rows),
                                    vectors, args.count, args.bias, sums);
  CONVTUNE_UNROLL
  for (int i = 0; i < rows * of_row; ++i) acc[i / of_row][i % of_row] = hn::Load(d, sums + i * kLanes);
}

template <class T, int stride, int rows, int vectors>
HWY_INLINE void store_plane(const PlaneArgs<T>& args,
                            SizedVector (&acc)[rows][vectors * kAccumulators<T, stride>]) {
  constexpr int of_vector = kAccumulators<T, stride>, columns = kLanes * of_vector;
  activate_tile<T>(acc, args.epilogue);
  if constexpr (of_vector == 1) {
    store_tile<rows, vectors, T>(acc,
                                 {args.y, args.y_step, args.rows, 0, args.count, rows == 1 && args.stream});
  } else {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      CONVTUNE_UNROLL
      for (int j = 0; j < rows; ++j)
        if (j < args.rows && v * columns < args.count)
          store_parts(acc[j][2 * v], acc[j][2 * v + 1], args.y + j * args.y_step + v * columns,
                      args.count - v * columns);
    }
  }
}

template <class T, int filter_rows, int stride, int rows, int vectors, bool clipped>
HWY_INLINE void add_columns(const PlaneArgs<T>& args,
                            SizedVector (&acc)[rows][vectors * kAccumulators<T, stride>]) {
  const auto add = [&](std::int64_t s, auto before, auto after) {
    add_column<T, filter_rows, stride, rows, vectors, decltype(before)::value, decltype(after)::value,
               clipped>(args, s, acc);
  };
  constexpr std::true_type yes;
  constexpr std::false_type no;
  const std::int64_t cols = args.filter_cols;
  std::int64_t s = 0;
  if constexpr (kAccumulators<T, stride> == 2) {
    if (args.dilation_w == 1 && cols % 2 == 1 && cols > 1) {
      add(0, no, yes);
      for (s = 2; s + 1 < cols; s += 2) add(s, yes, yes);
      add(s, yes, no);
      return;
    }
  }
  // The first column goes alone: with odd padding, as usual, the pairs behind it then begin at even columns,
  // as lines of the cache do.
  while (s < cols) {
    if (stride == 2 && args.dilation_w == 1 && s > 0 && s + 2 <= cols) {
      add(s, no, std::bool_constant<stride == 2>());
      s += 2;
    } else {
      add(s++, no, no);
    }
  }
}

template <class T, int filter_rows, int stride, int rows, int vectors>
void plane(const PlaneArgs<T>& shared) {
  PlaneArgs<T> args = shared;  // a copy, so that stores to y cannot be taken to change it
  SizedVector acc[rows][vectors * kAccumulators<T, stride>];
  start_plane<T, stride, rows, vectors>(args, acc);
  fetch_below<T, filter_rows, stride, rows, vectors * kLoads<T, stride> * kLoaded<T>>(args);
  const bool inside =
      args.first_row >= 0 && args.first_row + (rows - 1) * stride + filter_rows <= args.height;
  for (std::int64_t f = args.frames; f > 0; --f) {
    if (kMaskedLoads<T> && !inside)
      add_columns<T, filter_rows, stride, rows, vectors, true>(args, acc);
    else
      add_columns<T, filter_rows, stride, rows, vectors, false>(args, acc);
    args.x += args.frame_step, args.weights += filter_rows * args.filter_cols;
  }
  store_plane<T, stride, rows, vectors>(args, acc);
}

// One output row, any filter.
template <class T, int stride, int vectors>
void plane_row(const PlaneArgs<T>& shared) {
  constexpr int loads = kLoads<T, stride>, loaded = kLoaded<T>, of_vector = kAccumulators<T, stride>;
  PlaneArgs<T> args = shared;
  const Floats d;
  SizedVector acc[1][vectors * of_vector];
  start_plane<T, stride, 1, vectors>(args, acc);
  const float* weights = args.weights;
  const std::int64_t columns = args.frames * args.filter_cols;
  for (std::int64_t i = 0, s = 0; i < columns; ++i, ++s) {
    if (s == args.filter_cols) s = 0, args.x += args.frame_step;
    for (std::int64_t r = 0; r < args.filter_rows; ++r, ++weights) {
      const std::int64_t image_row = args.first_row + r * args.dilation_h,
                         col = args.first_col + s * args.dilation_w;
      if (image_row < 0 || image_row >= args.height) continue;
      const Patch<T, 1, vectors * loads * loaded> patch(args, image_row, col);
      const Vector weight = hn::Set(d, *weights);
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) {
        Inside<T, loaded> masks[loads];
        CONVTUNE_UNROLL
        for (int part = 0; part < loads; ++part)
          masks[part] = {col + (v * loads + part) * loaded, args.width};
        const Row<T, stride> row(masks, patch.x + v * loads * loaded);
        acc[0][v * of_vector] = hn::MulAdd(weight, row.value, acc[0][v * of_vector]);
        if (of_vector == 2)
          acc[0][v * of_vector + of_vector - 1] =
              hn::MulAdd(weight, row.next, acc[0][v * of_vector + of_vector - 1]);
      }
    }
  }
  store_plane<T, stride, 1, vectors>(args, acc);
}

// Half of the registers are accumulators. With a stride of 2 a vector takes two masks.
template <class T, int stride, int rows>
constexpr int kPlaneVectors = std::min({kMostPlaneVectors, stride == 2 || sizeof(T) == 2 ? 2 : 4,
                                        kRegisters == 32 ? 4 : 2,
                                        std::max(kRegisters / 2 / rows / kAccumulators<T, stride>, 1)});

template <class T, int filter_rows, int stride, int rows, int vectors>
constexpr PlaneKernel<T> plane_of() {
  if constexpr (vectors > kPlaneVectors<T, stride, rows>)
    return nullptr;
  else if constexpr (rows == 1)
    return plane_row<T, stride, vectors>;
  else
    return plane<T, filter_rows, stride, rows, vectors>;
}
template <class T, int filter_rows, int stride, int rows>
constexpr PlaneKernels<T> kPlaneKernels = {
    kPlaneVectors<T, stride, rows>,
    {plane_of<T, filter_rows, stride, rows, 1>(), plane_of<T, filter_rows, stride, rows, 2>(),
     plane_of<T, filter_rows, stride, rows, 3>(), plane_of<T, filter_rows, stride, rows, 4>()}};

// With 16 registers eight rows leave room for one vector of columns.
template <class T, int filter_rows, int stride>
const PlaneKernels<T>* kernels_of(int rows) {
  constexpr int most = kRegisters == 32 ? 8 : 4;
  if (rows == most / 2) return &kPlaneKernels<T, filter_rows, stride, most / 2>;
  if (rows == most) return &kPlaneKernels<T, filter_rows, stride, most>;
  return nullptr;
}
template <class T, int stride>
const PlaneKernels<T>* kernels_of(const PlaneTile& tile) {
  if (tile.rows == 1) return &kPlaneKernels<T, 0, stride, 1>;
  if (tile.stride_h != stride || tile.dilation_h != 1) return nullptr;
  if (tile.filter_rows == 3) return kernels_of<T, 3, stride>(tile.rows);
  if constexpr (!kFewKernels) {
    if (tile.filter_rows == 5) return kernels_of<T, 5, stride>(tile.rows);
    if (tile.filter_rows == 7) return kernels_of<T, 7, stride>(tile.rows);
  }
  return nullptr;
}
template <class T>
const PlaneKernels<T>* plane_kernels_of(const PlaneTile& tile) {
  return tile.stride_w == 1 ? kernels_of<T, 1>(tile) : tile.stride_w == 2 ? kernels_of<T, 2>(tile) : nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
