// Winograd's transforms, written once with Highway and compiled for each instruction set, as in
// cpu/tile/direct_kernels.cpp: docs/decisions/0004.
#include "cpu/tile/winograd/winograd_kernels.h"

#include <algorithm>
#include <array>

#include "cpu/tile/vectors.h"
#include "cpu/tile/winograd/winograd_transform.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile/winograd/winograd_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/joined_rows-inl.h"
#include "cpu/tile/outputs-inl.h"
#include "cpu/tile/winograd/winograd_axis-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

void input_rows(const float* rows, std::int64_t pitch, std::int64_t count, float* to, std::int64_t stride) {
  constexpr int m = 2, kInputs = winograd_inputs(m);
  for (int i = 0; i < kInputs; ++i)
    for (std::int64_t t = 0; t < count; t += kLanes) {
      const float* const from = rows + i * pitch + t * m;
      SizedVector d[2 * m], v[kInputs];
      load_pairs(from, d);
      load_pairs(from + m, d + m);
      Axis<m>::input(d, v);
      CONVTUNE_UNROLL
      for (int j = 0; j < kInputs; ++j) hn::StoreU(v[j], Floats(), to + (i * kInputs + j) * stride + t);
    }
}

void input_columns(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                   std::int64_t to_stride) {
  constexpr int m = 2, kInputs = winograd_inputs(m);
  const Floats f;
  for (std::int64_t t = 0; t < vectors * kLanes; t += kLanes)
    for (int j = 0; j < kInputs; ++j) {
      SizedVector d[kInputs], v[kInputs];
      CONVTUNE_UNROLL
      for (int i = 0; i < kInputs; ++i) d[i] = hn::Load(f, from + (i * kInputs + j) * stride + t);
      Axis<m>::input(d, v);
      CONVTUNE_UNROLL
      for (int i = 0; i < kInputs; ++i) hn::Store(v[i], f, to + (i * kInputs + j) * to_stride + t);
    }
}

template <int taps>
HWY_INLINE void part_products(const SizedVector* d, SizedVector* v) {
  if constexpr (taps == 3) {
    Axis<2>::input(d, v);
  } else if constexpr (taps == 2) {
    v[0] = hn::Sub(d[0], d[1]);
    v[1] = d[1];
    v[2] = hn::Sub(d[1], d[2]);
  } else {
    v[0] = d[0];
    v[1] = d[1];
  }
}

template <int taps>
HWY_INLINE void input_part(const WinogradPartStep& step, const float* from, std::int64_t vectors, float* to,
                           std::int64_t to_step) {
  const Floats f;
  for (std::int64_t t = 0; t < vectors * kLanes; t += kLanes) {
    SizedVector d[taps + 1], v[taps + 1];
    CONVTUNE_UNROLL
    for (int l = 0; l <= taps; ++l) d[l] = hn::LoadU(f, from + step.from[l] + t);
    part_products<taps>(d, v);
    CONVTUNE_UNROLL
    for (int j = 0; j <= taps; ++j) hn::StoreU(v[j], f, to + to_step * step.to[j] + t);
  }
}

void input_parts(std::span<const WinogradPartStep> steps, const float* from, std::int64_t vectors, float* to,
                 std::int64_t to_step) {
  for (const WinogradPartStep& step : steps) {
    if (step.taps == 3)
      input_part<3>(step, from, vectors, to, to_step);
    else if (step.taps == 2)
      input_part<2>(step, from, vectors, to, to_step);
    else
      input_part<1>(step, from, vectors, to, to_step);
  }
}

template <int taps>
HWY_INLINE void strip_part(const WinogradPartStep& step, const float* base, std::int64_t skip,
                           std::int64_t end, float* base_to, std::int64_t to_step) {
  const Floats f;
  const float* from[taps + 1];
  float* to[taps + 1];
  CONVTUNE_UNROLL
  for (int l = 0; l <= taps; ++l) from[l] = base + step.from[l], to[l] = base_to + to_step * step.to[l];
  const auto products = [&](std::int64_t t, SizedVector* v) HWY_ATTR {
    SizedVector d[taps + 1];
    CONVTUNE_UNROLL
    for (int l = 0; l <= taps; ++l) d[l] = hn::LoadU(f, from[l] + t);
    part_products<taps>(d, v);
  };
  std::int64_t t = 0;
  if (skip > 0) {
    SizedVector v[taps + 1];
    products(0, v);
    const auto meant = hn::FirstN(f, static_cast<std::size_t>(std::min<std::int64_t>(end, kLanes)));
    CONVTUNE_UNROLL
    for (int j = 0; j <= taps; ++j)
      store_lanes(hn::IfThenElseZero(meant, static_cast<Vector>(v[j])), to[j], skip, kLanes);
    t = kLanes;
  }
  for (; t + kLanes <= end; t += kLanes) {
    SizedVector v[taps + 1];
    products(t, v);
    CONVTUNE_UNROLL
    for (int j = 0; j <= taps; ++j) hn::Store(v[j], f, to[j] + t);
  }
  if (t < end) {
    SizedVector v[taps + 1];
    products(t, v);
    const auto meant = hn::FirstN(f, static_cast<std::size_t>(end - t));
    CONVTUNE_UNROLL
    for (int j = 0; j <= taps; ++j)
      hn::Store(hn::IfThenElseZero(meant, static_cast<Vector>(v[j])), f, to[j] + t);
  }
}

void input_strip(std::span<const WinogradPartStep> steps, const float* from, std::int64_t skip,
                 std::int64_t end, float* to, std::int64_t to_step) {
  for (const WinogradPartStep& step : steps) {
    if (step.taps == 3)
      strip_part<3>(step, from, skip, end, to, to_step);
    else if (step.taps == 2)
      strip_part<2>(step, from, skip, end, to, to_step);
    else
      strip_part<1>(step, from, skip, end, to, to_step);
  }
}

// A^T along the columns of one vector of sums.
template <int m>
HWY_INLINE void transform_columns(const float* from, std::int64_t stride,
                                  SizedVector (&columns)[m][winograd_inputs(m)]) {
  constexpr int kInputs = winograd_inputs(m);
  CONVTUNE_UNROLL
  for (int j = 0; j < kInputs; ++j) {
    SizedVector v[kInputs], y[m];
    CONVTUNE_UNROLL
    for (int i = 0; i < kInputs; ++i) v[i] = hn::Load(Floats(), from + (i * kInputs + j) * stride);
    Axis<m>::output(v, y);
    CONVTUNE_UNROLL
    for (int r = 0; r < m; ++r) columns[r][j] = y[r];
  }
}

bool output(const float* from, std::int64_t stride, std::int64_t vectors, float* to, std::int64_t to_stride) {
  constexpr int m = 2, kInputs = winograd_inputs(m);
  const Floats f;
  Vector nothing = hn::Zero(f);  // 0 as long as all are finite: 0 * infinity is NaN
  for (std::int64_t t = 0; t < vectors * kLanes; t += kLanes) {
    SizedVector columns[m][kInputs];
    transform_columns<m>(from + t, stride, columns);
    CONVTUNE_UNROLL
    for (int r = 0; r < m; ++r) {
      SizedVector y[m];
      Axis<m>::output(columns[r], y);
      CONVTUNE_UNROLL
      for (int s = 0; s < m; ++s) nothing = hn::MulAdd(y[s], hn::Zero(f), nothing);
      hn::StoreInterleaved2(y[0], y[1], f, to + r * to_stride + t * m);
    }
  }
  return hn::AllTrue(f, hn::Eq(nothing, nothing));
}

// a[0] b[0] a[1] b[1] ...: two vectors.
HWY_INLINE void interleave(Vector a, Vector b, SizedVector* both) {
#if HWY_TARGET == HWY_AVX3
  const __m512i lower = _mm512_set_epi32(23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  both[0] = Vector{_mm512_permutex2var_ps(a.raw, lower, b.raw)};
  both[1] = Vector{_mm512_permutex2var_ps(a.raw, _mm512_add_epi32(lower, _mm512_set1_epi32(8)), b.raw)};
#else
  HWY_ALIGN float lanes[2 * kLanes] = {};
  hn::StoreInterleaved2(a, b, Floats(), lanes);
  both[0] = hn::Load(Floats(), lanes);
  both[1] = hn::Load(Floats(), lanes + kLanes);
#endif
}

// A vector of tiles' outputs, a pair of columns side by side. Every second addition is a multiply-add, which
// has units of its own. Returns 0, or NaN where an output is not finite.
HWY_INLINE Vector output_strips(const float* from, std::int64_t stride, Vector bias,
                                SizedVector (&strips)[2][2]) {
  const Floats f;
  const Vector one = hn::Set(f, 1.0F), zero = hn::Zero(f);
  SizedVector columns[2][4];
  CONVTUNE_UNROLL
  for (int j = 0; j < 4; ++j) {
    SizedVector v[4];
    CONVTUNE_UNROLL
    for (int i = 0; i < 4; ++i) v[i] = hn::Load(f, from + (4 * i + j) * stride);
    if (j == 1) v[1] = hn::Add(v[1], bias);  // which is in all four outputs
    columns[0][j] = hn::Add(v[0], hn::MulAdd(v[1], one, v[2]));
    columns[1][j] = hn::Sub(hn::MulSub(v[1], one, v[2]), v[3]);
  }
  SizedVector nothing[2];
  CONVTUNE_UNROLL
  for (int r = 0; r < 2; ++r) {
    const SizedVector* const v = columns[r];
    const Vector even = hn::Add(v[0], hn::MulAdd(v[1], one, v[2]));
    const Vector odd = hn::Sub(hn::MulSub(v[1], one, v[2]), v[3]);
    nothing[r] = hn::MulAdd(even, zero, hn::Mul(odd, zero));
    interleave(even, odd, strips[r]);
  }
  return hn::Add(nothing[0], nothing[1]);
}

template <bool joins>
HWY_INLINE bool output_and_join(const float* from, std::int64_t stride, std::span<const WinogradPiece> pieces,
                                float bias, const Epilogue& epilogue, float* y, std::int64_t y_pitch,
                                bool stream, JoinedRows* joined) {
  const Floats f;
  const Vector biases = hn::Set(f, bias);
  Vector nothing = hn::Zero(f);
  SizedVector strips[2][2] = {{nothing, nothing}, {nothing, nothing}};
  std::int64_t vector = -1;
  const bool lines = stream && y_pitch % kLanes == 0;
  [[maybe_unused]] JoiningRows rows(joins ? joined : nullptr);
  for (const WinogradPiece& piece : pieces) {
    if (piece.vector != vector) {
      vector = piece.vector;
      nothing = hn::Add(nothing, output_strips(from + vector * kLanes, stride, biases, strips));
      activate_tile<float>(strips, epilogue);
    }
    float* const first = y + piece.offset;
    const bool whole = piece.from == 0 && piece.end == 2 * kLanes && piece.rows == 2;
    if constexpr (joins) {
      if (whole && join_whole(rows, strips, first, y_pitch)) continue;
      CONVTUNE_UNROLL
      for (int i = 0; i < 4; ++i) {
        const int r = i / 2, s = i % 2;
        const std::int64_t skip = std::max<std::int64_t>(piece.from - s * kLanes, 0),
                           end = std::min<std::int64_t>(piece.end - s * kLanes, kLanes);
        if (r < piece.rows && skip < end)
          join_row(rows, r, strips[r][s], first + r * y_pitch + s * kLanes, skip, end);
      }
      continue;
    }
    if (whole) {
      const bool past = lines && begins_vector(first);
      CONVTUNE_UNROLL
      for (int r = 0; r < 2; ++r) {
        CONVTUNE_UNROLL
        for (int s = 0; s < 2; ++s) {
          float* const to = first + r * y_pitch + s * kLanes;
          if (past)
            store_past_caches(strips[r][s], to);
          else
            hn::StoreU(strips[r][s], f, to);
        }
      }
      continue;
    }
    CONVTUNE_UNROLL
    for (int r = 0; r < 2; ++r) {
      if (r >= piece.rows) break;
      CONVTUNE_UNROLL
      for (int s = 0; s < 2; ++s) {
        float* const to = first + r * y_pitch + s * kLanes;
        const std::int64_t skip = piece.from - s * kLanes, end = piece.end - s * kLanes;
        if (skip <= 0 && end >= kLanes) {
          if (stream && begins_vector(to))
            store_past_caches(strips[r][s], to);
          else
            hn::StoreU(strips[r][s], f, to);
        } else if (skip < kLanes && end > 0) {
          store_lanes(strips[r][s], to, std::max<std::int64_t>(skip, 0), end);
        }
      }
    }
  }
  if constexpr (joins) rows.keep();
  return hn::AllTrue(f, hn::Eq(nothing, nothing));
}
bool output_pieces(const float* from, std::int64_t stride, std::span<const WinogradPiece> pieces, float bias,
                   const Epilogue& epilogue, float* y, std::int64_t y_pitch, bool stream,
                   JoinedRows* joined) {
  if constexpr (kLanes == WaitingLine::kFloats)
    if (joined != nullptr)
      return output_and_join<true>(from, stride, pieces, bias, epilogue, y, y_pitch, stream, joined);
  return output_and_join<false>(from, stride, pieces, bias, epilogue, y, y_pitch, stream, nullptr);
}

// The first min(count, lanes) floats, then zeros.
HWY_INLINE Vector load_some(const float* from, std::int64_t count) {
  const Floats f;
  if (count >= kLanes) return hn::LoadU(f, from);
  HWY_ALIGN float lanes[kLanes] = {};
  for (std::int64_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(f, lanes);
}

template <int m>
void input_pixels(const float* const* pixels, std::int64_t channels, float* to, std::int64_t to_stride) {
  constexpr int kInputs = winograd_inputs(m), kProducts = kInputs * kInputs;
  const Floats f;
  // A vector of each tile side by side, to be stored as one: [product][tile].
  HWY_ALIGN float tiles[kProducts * kTilesOfPixels * kLanes];
  for (std::int64_t c = 0; c < channels; c += kLanes) {
    for (int tile = 0; tile < kTilesOfPixels; ++tile) {
      const float* const* const of_tile = pixels + tile * kProducts;
      HWY_ALIGN float half[kProducts * kLanes];
      for (int i = 0; i < kInputs; ++i) {
        SizedVector d[kInputs], v[kInputs];
        CONVTUNE_UNROLL
        for (int j = 0; j < kInputs; ++j) d[j] = load_some(of_tile[i * kInputs + j] + c, channels - c);
        Axis<m>::input(d, v);
        CONVTUNE_UNROLL
        for (int j = 0; j < kInputs; ++j) hn::Store(v[j], f, half + (i * kInputs + j) * kLanes);
      }
      for (int j = 0; j < kInputs; ++j) {
        SizedVector d[kInputs], v[kInputs];
        CONVTUNE_UNROLL
        for (int i = 0; i < kInputs; ++i) d[i] = hn::Load(f, half + (i * kInputs + j) * kLanes);
        Axis<m>::input(d, v);
        CONVTUNE_UNROLL
        for (int i = 0; i < kInputs; ++i)
          hn::Store(v[i], f, tiles + ((i * kInputs + j) * kTilesOfPixels + tile) * kLanes);
      }
    }
    for (int product = 0; product < kProducts; ++product) {
      const float* const from = tiles + product * kTilesOfPixels * kLanes;
      hn::StoreInterleaved4(hn::Load(f, from), hn::Load(f, from + kLanes), hn::Load(f, from + 2 * kLanes),
                            hn::Load(f, from + 3 * kLanes), f, to + product * to_stride + c * kTilesOfPixels);
    }
  }
}

template <int m>
bool output_pixels(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                   std::int64_t to_stride) {
  constexpr int kInputs = winograd_inputs(m);
  const Floats f;
  Vector nothing = hn::Zero(f);
  for (std::int64_t k = 0; k < vectors * kLanes; k += kLanes) {
    SizedVector columns[m][kInputs];
    transform_columns<m>(from + k, stride, columns);
    CONVTUNE_UNROLL
    for (int r = 0; r < m; ++r) {
      SizedVector y[m];
      Axis<m>::output(columns[r], y);
      CONVTUNE_UNROLL
      for (int s = 0; s < m; ++s) {
        nothing = hn::MulAdd(y[s], hn::Zero(f), nothing);
        hn::Store(y[s], f, to + (r * m + s) * to_stride + k);
      }
    }
  }
  return hn::AllTrue(f, hn::Eq(nothing, nothing));
}

void finish_pixel(const float* sums, const float* bias, const Epilogue& epilogue, const Outputs<float>& to,
                  std::int64_t count) {
  const auto sum = [&](std::int64_t k) HWY_ATTR {
    return hn::Add(hn::LoadU(Floats(), sums + k), hn::LoadU(Floats(), bias + k));
  };
  finish_run(sum, epilogue, to, count);
}

// Unused where winograd_kernels() has no width for the target.
[[maybe_unused]] constexpr WinogradKernels kTwo = {input_rows,      input_columns,    input_parts,
                                                   input_strip,     output,           output_pieces,
                                                   input_pixels<2>, output_pixels<2>, finish_pixel};
[[maybe_unused]] constexpr WinogradKernels kFour = {
    nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, input_pixels<4>, output_pixels<4>, finish_pixel};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

const WinogradKernels* winograd_kernels(int vector_bits, int m) {
  return m == 2 ? CONVTUNE_KERNELS_OF_WIDTH(WinogradKernels, vector_bits, kTwo)
                : CONVTUNE_KERNELS_OF_WIDTH(WinogradKernels, vector_bits, kFour);
}

}  // namespace convtune::cpu
#endif
