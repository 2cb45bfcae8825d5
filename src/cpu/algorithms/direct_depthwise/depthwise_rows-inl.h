// The vector code of the depthwise convolution, channels first, that goes down a plane: a row of the input is
// read once, for all output rows that it adds to. Included once for each target, as vectors-inl.h is, behind
// <hwy/foreach_target.h>, by the source for floats.
#if defined(CONVTUNE_DEPTHWISE_ROWS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef CONVTUNE_DEPTHWISE_ROWS_INL
#undef CONVTUNE_DEPTHWISE_ROWS_INL
#else
#define CONVTUNE_DEPTHWISE_ROWS_INL
#endif

#include <algorithm>
#include <array>
#include <utility>

#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/tile/outputs-inl.h"

// With others only a cut at a lane that is known late takes many instructions: not tried.
#undef CONVTUNE_DEPTHWISE_ROWS
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
#define CONVTUNE_DEPTHWISE_ROWS 1
#else
#define CONVTUNE_DEPTHWISE_ROWS 0
#endif

HWY_BEFORE_NAMESPACE();
#if CONVTUNE_DEPTHWISE_ROWS
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// Memory takes longer than a row does, so rows are asked for early: those so many bytes further on, which are
// the same plane's or the next one's. The vector behind a strip is asked for, too: without it, strips of rows
// of 112 took up to twice as long, by the order in which GCC loaded the others (a Zen 5).
constexpr std::int64_t kFetchedAhead = 12 * 1024;

// Lanes [shift, shift + kLanes) of two vectors.
template <int shift>
HWY_INLINE Vector lanes_from(Vector lower, Vector upper) {
  if constexpr (shift == 0) return lower;
#if HWY_TARGET == HWY_AVX3
  const __m512i cut =
      _mm512_alignr_epi32(_mm512_castps_si512(upper.raw), _mm512_castps_si512(lower.raw), shift);
  return Vector{_mm512_castsi512_ps(cut)};
#else
  // The middle of both; halves of 16 bytes are cut out of it and of what lies on that side.
  const __m256i low = _mm256_castps_si256(lower.raw), high = _mm256_castps_si256(upper.raw);
  const __m256i middle = _mm256_permute2x128_si256(low, high, 0x21);
  constexpr int kBytes = shift % 4 * 4;
  if constexpr (shift == 4) return Vector{_mm256_castsi256_ps(middle)};
  if constexpr (shift < 4) return Vector{_mm256_castsi256_ps(_mm256_alignr_epi8(middle, low, kBytes))};
  return Vector{_mm256_castsi256_ps(_mm256_alignr_epi8(high, middle, kBytes))};
#endif
}

// The same where the shift is known late: cut has the lanes' numbers.
HWY_INLINE Vector lanes_from(Vector lower, Vector upper, hn::Vec<Ints> cut) {
#if HWY_TARGET == HWY_AVX3
  return Vector{_mm512_permutex2var_ps(lower.raw, cut.raw, upper.raw)};
#else
  // The numbers' lower three bits choose a lane, and the next one of which vector.
  const __m256 of_upper = _mm256_castsi256_ps(_mm256_slli_epi32(cut.raw, 28));
  return Vector{_mm256_blendv_ps(_mm256_permutevar8x32_ps(lower.raw, cut.raw),
                                 _mm256_permutevar8x32_ps(upper.raw, cut.raw), of_upper)};
#endif
}

// Outputs past the caches, which take whole lines alone: a row's last lanes wait for the next row's first
// ones. Rows follow each other without a gap, or each is whole lines. Whole vectors are stored: with AVX2 the
// two halves of a line follow each other.
template <int vectors>
class LineWriter {
 public:
  explicit LineWriter(const float* y)
      : skip_(static_cast<int>(reinterpret_cast<std::uintptr_t>(y) / sizeof(float) % kLanes)),
        foreign_(skip_) {}

  // A row's `count` outputs, more than fit one vector less.
  HWY_INLINE void put(const SizedVector (&row)[vectors], int count, float* y) {
    const Floats d;
    const auto lanes = [](int from) { return hn::Add(hn::Iota(Ints(), 0), hn::Set(Ints(), from)); };
    const int tail = count - (vectors - 1) * kLanes;
    const auto cut = lanes(kLanes - skip_);
    float* line = y - skip_;
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v, line += kLanes) {
      if (v == vectors - 1 && skip_ + tail < kLanes) break;
      const Vector values = lanes_from(v == 0 ? last_ : row[v - 1], row[v], cut);
      if (foreign_ == 0)
        hn::Stream(values, d, line);
      else
        put_lanes(values, line, std::exchange(foreign_, 0), kLanes);
    }
    last_ = lanes_from(vectors == 1 ? last_ : row[vectors - 2], row[vectors - 1], lanes(tail));
    skip_ = (skip_ + tail) % kLanes;
  }
  // What is left of the last line, up to `end`.
  HWY_INLINE void finish(float* end) const {
    if (skip_ != 0) put_lanes(last_, end - kLanes, kLanes - skip_ + foreign_, kLanes);
  }

 private:
  // Lanes [from, end) of a line that the plane before or behind has the rest of, past the caches too: the
  // next plane completes it, and it leaves the processor whole. A store by way of the caches brings the lines
  // behind it along, and lines that are there take stores past the caches long: planes of 56x56 took twice as
  // long (a Zen 5).
  static HWY_INLINE void put_lanes(Vector values, float* line, int from, int end) {
    HWY_ALIGN std::int32_t lanes[kLanes];
    hn::Store(hn::BitCast(Ints(), values), Ints(), lanes);
#pragma GCC unroll 1
    for (int i = from; i < end; ++i) _mm_stream_si32(reinterpret_cast<int*>(line + i), lanes[i]);
  }

  int skip_;                               // outputs of the line that is being made
  int foreign_;                            // of those, the first that are not this writer's
  SizedVector last_ = hn::Zero(Floats());  // the last kLanes outputs
};

// The rows that an input row adds to: with a stride fewer than the filter has.
template <int filter, int stride>
constexpr int kOpenRows = (filter - 1) / stride + 1;

// Weights that the registers have room for stay there.
template <int filter>
struct Weights {
  static constexpr bool kKept = filter == 3 && kRegisters == 32;
  HWY_INLINE explicit Weights(const float* weights) { set(weights); }
  HWY_INLINE void set(const float* weights) {
    memory = weights;
    if constexpr (kKept) {
      CONVTUNE_UNROLL
      for (int i = 0; i < filter * filter; ++i) kept[i] = hn::Set(Floats(), weights[i]);
    }
  }
  HWY_INLINE Vector at(int r, int s) const {
    return kKept ? kept[s * filter + r] : hn::Set(Floats(), memory[s * filter + r]);
  }
  const float* memory;
  SizedVector kept[kKept ? filter * filter : 1];
};

// A strip of columns of the input: what lies beside the image is 0 and is not read. With a stride of 2, even
// columns and odd ones are apart.
template <int filter, int stride, int vectors>
struct Strip {
  static constexpr int kLoads = vectors * stride + 1;
  HWY_INLINE Strip(std::int64_t col, std::int64_t width) {
    const Floats d;
    CONVTUNE_UNROLL
    for (int v = 0; v < kLoads; ++v) {
      const std::int64_t left = std::clamp<std::int64_t>(-col - v * kLanes, 0, kLanes),
                         right = std::clamp<std::int64_t>(width - col - v * kLanes, 0, kLanes);
      masks[v] = hn::AndNot(hn::FirstN(d, static_cast<std::size_t>(left)),
                            hn::FirstN(d, static_cast<std::size_t>(right)));
    }
  }

  // Adds row r of the window of the first open row, at `x`.
  template <int r>
  HWY_INLINE void add_row(const float* x, const Weights<filter>& weights,
                          SizedVector (&sums)[kOpenRows<filter, stride>][vectors]) const {
    const Floats d;
    SizedVector parts[stride][vectors + 1];
    CONVTUNE_UNROLL
    for (int v = 0; v <= vectors; ++v) {
      const float* const at = x + v * stride * kLanes;
      if constexpr (stride == 1) {
        parts[0][v] = hn::MaskedLoad(masks[v], d, at);
      } else {
        const Vector lower = hn::MaskedLoad(masks[2 * v], d, at);
        const Vector upper =
            v < vectors ? hn::MaskedLoad(masks[2 * v + (v < vectors)], d, at + kLanes) : hn::Zero(d);
        parts[0][v] = hn::ConcatEven(d, upper, lower);
        parts[1][v] = hn::ConcatOdd(d, upper, lower);
      }
      CONVTUNE_UNROLL
      for (int load = 0; load < (v < vectors ? stride : 1); ++load)
        __builtin_prefetch(reinterpret_cast<const char*>(at + load * kLanes) + kFetchedAhead);
    }
    // Unless told, GCC inlines none of these once a file has many of them: 2.7 times as long (5x5, stride 2).
    [&]<int... s>(std::integer_sequence<int, s...>) __attribute__((always_inline)) {
      (add_tap<r, s>(parts, weights, sums), ...);
    }
    (std::make_integer_sequence<int, filter>());
  }

 private:
  template <int r, int s>
  static HWY_INLINE void add_tap(const SizedVector (&parts)[stride][vectors + 1],
                                 const Weights<filter>& weights,
                                 SizedVector (&sums)[kOpenRows<filter, stride>][vectors]) {
    SizedVector values[vectors];
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v)
      values[v] = lanes_from<s / stride>(parts[s % stride][v], parts[s % stride][v + 1]);
    CONVTUNE_UNROLL
    for (int k = 0; r - k * stride >= 0; ++k) {
      const Vector weight = weights.at(r - k * stride, s);
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) sums[k][v] = hn::MulAdd(weight, values[v], sums[k][v]);
    }
  }

  SizedMask masks[kLoads];
};

// A row's activation where it stands: a call would have all other registers stored and loaded around it.
// Where `one_by_one`, the vectors go by way of memory, one after the other: each activation's code stands
// there once, and needs few registers, which larger filters have not.
template <bool one_by_one, int vectors, Activation... activation>
HWY_INLINE void activate_row(SizedVector (&row)[1][vectors], const Epilogue& epilogue) {
  if constexpr (!one_by_one) {
    (void)((epilogue.activation == activation &&
            (activate_in_registers<activation, false>(row, epilogue), true)) ||
           ...);
    return;
  }
  const Floats d;
  HWY_ALIGN float stored[vectors * kLanes];
  CONVTUNE_UNROLL
  for (int v = 0; v < vectors; ++v) hn::Store(row[0][v], d, stored + v * kLanes);
  const auto all = [&]<Activation one>() __attribute__((always_inline)) {
#pragma GCC unroll 1
    for (float* at = stored; at != stored + vectors * kLanes; at += kLanes)
      hn::Store(activate<one>(hn::Load(d, at), epilogue.alpha, epilogue.beta), d, at);
    return true;
  };
  (void)((epilogue.activation == activation && all.template operator()<activation>()) || ...);
  CONVTUNE_UNROLL
  for (int v = 0; v < vectors; ++v) row[0][v] = hn::Load(d, stored + v * kLanes);
}

// The steps behind the sums: bounds, other activations, or either, where one kernel is as fast as two.
enum class Ends { bounds, activations, all };

template <int filter, int stride, Ends ends, int vectors>
void plane_rows(const PlaneArgs<float>& shared) {
  constexpr int open = kOpenRows<filter, stride>;
  const PlaneArgs<float> args = shared;  // a copy, so that stores to y cannot be taken to change it
  const Floats d;
  Weights<filter> weights(args.weights);
  const Strip<filter, stride, vectors> strip(args.first_col, args.width);
  const auto count = static_cast<int>(std::min<std::int64_t>(args.count, vectors * kLanes));
  SizedVector sums[open][vectors];
  CONVTUNE_UNROLL
  for (int k = 0; k < open; ++k) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) sums[k][v] = hn::Zero(d);
  }
  const auto begin = [&](std::int64_t row) {
    const bool adds = args.residual != nullptr && row < args.rows;
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) {
      sums[open - 1][v] = hn::Set(d, args.bias);
      if (!adds) continue;
      const auto lanes = hn::FirstN(d, static_cast<std::size_t>(std::min(count - v * kLanes, kLanes)));
      const float* const at = args.residual + row * args.y_step + v * kLanes;
      sums[open - 1][v] = hn::Add(sums[open - 1][v], hn::MaskedLoad(lanes, d, at));
    }
  };
  LineWriter<vectors> lines(args.y);
  float* y = args.y;
  // Before the first row are those whose windows share rows with it; what becomes of them is not kept.
  begin(0);
  for (std::int64_t row = 1 - open; row < args.rows; ++row) {
    const auto add = [&]<int r>() __attribute__((always_inline)) {
      const std::int64_t image_row = args.first_row + row * stride + r;
      if (static_cast<std::uint64_t>(image_row) >= static_cast<std::uint64_t>(args.height)) return;
      const float* x = args.x + (image_row * args.width + args.first_col);
      if (args.frames == 1) return strip.template add_row<r>(x, weights, sums);
      for (std::int64_t f = 0; f < args.frames; ++f, x += args.frame_step) {
        weights.set(args.weights + f * filter * filter);
        strip.template add_row<r>(x, weights, sums);
      }
    };
    if constexpr (stride == 2) add.template operator()<filter - 2>();
    add.template operator()<filter - 1>();
    if (row >= 0) {
      SizedVector done[1][vectors];
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) done[0][v] = sums[0][v];
      if (ends == Ends::bounds || (ends == Ends::all && args.epilogue.has_bounds()))
        clip_tile(done, args.epilogue);
      else
        activate_row<ends == Ends::all, vectors, Activation::silu, Activation::gelu_erf,
                     Activation::gelu_tanh, Activation::hardswish, Activation::leaky_relu,
                     Activation::sigmoid>(done, args.epilogue);
      if (args.stream)
        lines.put(done[0], count, y);
      else
        store_tile<1, vectors, float>(done, {y, args.y_step, 1, 0, count, false});
      y += args.y_step;
    }
    CONVTUNE_UNROLL
    for (int k = 0; k + 1 < open; ++k) {
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) sums[k][v] = sums[k + 1][v];
    }
    begin(row + open);
  }
  if (args.stream) lines.finish(y - args.y_step + count);
}

// Sums of all open rows, a row of the input and a weight must fit the registers. Rows of one strip go past
// the caches wherever y begins: seven vectors of AVX-512 are 112 columns.
template <int filter, int stride>
constexpr int kStripVectors = std::min(filter == 3 && stride == 1 ? 7 : 4,
                                       (kRegisters - 4) / (kOpenRows<filter, stride> + 1));

template <int filter, int stride, Ends ends, int... fewer>
constexpr PlaneKernels<float> row_kernels(std::integer_sequence<int, fewer...>) {
  return {sizeof...(fewer), {plane_rows<filter, stride, ends, fewer + 1>...}};
}
template <int filter, int stride, Ends ends = Ends::all>
constexpr PlaneKernels<float> kRowKernels =
    row_kernels<filter, stride, ends>(std::make_integer_sequence<int, kStripVectors<filter, stride>>());

inline const PlaneKernels<float>* row_kernels_of(const PlaneTile& tile) {
  const std::int64_t filter = tile.filter_rows, stride = tile.stride_w;
  if (filter != tile.filter_cols || tile.stride_h != stride || tile.dilation_h != 1 || tile.dilation_w != 1)
    return nullptr;
  if (stride == 1 && filter == 3)
    return tile.bounds ? &kRowKernels<3, 1, Ends::bounds> : &kRowKernels<3, 1, Ends::activations>;
  if (stride == 1 && filter == 5) return &kRowKernels<5, 1>;
  if (stride == 1 && filter == 7) return &kRowKernels<7, 1>;
  if (stride == 2 && filter == 3) return &kRowKernels<3, 2>;
  if (stride == 2 && filter == 5) return &kRowKernels<5, 2>;
  return nullptr;
}

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#endif
