// The vector code of tensor_kernels.h, written once with Highway and compiled by foreach_target.h for each
// instruction set (docs/decisions/0004).
#include "cpu/tile/tensor_kernels.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cpu/base/caches.h"
#include "cpu/tile/vectors.h"
#include "cpu/tile/weave.h"
#include "problem/element.h"
#include "problem/epilogue.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile/tensor_kernels.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/activations-inl.h"
#include "cpu/tile/element_types-inl.h"
#include "cpu/tile/gather-inl.h"

HWY_BEFORE_NAMESPACE();
#if HWY_TARGET != HWY_SCALAR  // there, nothing is transposed, and nobody asks
namespace convtune::cpu {
namespace HWY_NAMESPACE {

// ---- Reading ----

// Pixels whose channels lie side by side. Pairs lie there as they are wanted.
void read_pixels(const ReadArgs& args, std::int64_t bytes) {
  const std::int64_t in_word = args.words == Words::bf16_pairs ? 2 : 1;
  const DType type = args.words == Words::bf16_pairs ? DType::f32 : args.type;
  const std::int64_t step = kLanes * in_word;
  const auto* x = static_cast<const char*>(args.x);
  float* to = args.to;
  for (std::int64_t j = 0; j < args.pixels; ++j, x += args.pixel_step * bytes, to += args.to_step) {
    std::int64_t c = 0;
    for (; c + step <= args.channels; c += step)
      hn::StoreU(load_floats(type, x + c * bytes), Floats(), to + c / in_word);
    if (c == args.channels) continue;
    HWY_ALIGN unsigned char whole[kLanes * sizeof(float)] = {};
    std::memcpy(whole, x + c * bytes, static_cast<std::size_t>((args.channels - c) * bytes));
    hn::StoreU(load_floats(type, whole), Floats(), to + c / in_word);
  }
}

// `count` pixels of one channel, `step` elements apart: where they lie side by side.
HWY_INLINE const void* contiguous(const char* from, std::int64_t step, std::int64_t count, std::int64_t bytes,
                                  unsigned char* lanes) {
  if (step == 1 && count == kLanes) return from;
  if (step == 1)
    std::memcpy(lanes, from, static_cast<std::size_t>(count * bytes));
  else if (bytes == 4)
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(lanes + i * 4, from + i * step * 4, 4);
  else
    for (std::int64_t i = 0; i < count; ++i) std::memcpy(lanes + i * 2, from + i * step * 2, 2);
  return lanes;
}

// `count` pixels two elements apart, of a row that ends with the last of them.
HWY_INLINE Vector load_even(DType type, const char* from, std::int64_t count, std::int64_t bytes) {
  const Floats d;
  const std::int64_t elements = 2 * count - 1;
  const Vector lower = load_some(type, from, elements, bytes);
  if (elements <= kLanes) return hn::ConcatEven(d, hn::Zero(d), lower);
  return hn::ConcatEven(d, load_some(type, from + kLanes * bytes, elements - kLanes, bytes), lower);
}

// Pixels of planes: squares of words by pixels are transposed, all of the same planes before others. The last
// planes come first: their zeros may lie where the next pixel's first words are stored then.
void read_planes(const ReadArgs& args, std::int64_t bytes) {
  const bool pairs = args.words == Words::bf16_pairs;
  const std::int64_t words = pairs ? (args.channels + 1) / 2 : args.channels;
  const auto* const x = static_cast<const char*>(args.x);
  HWY_ALIGN unsigned char lanes[kLanes * sizeof(float)] = {}, next_lanes[kLanes * sizeof(float)] = {};
  for (std::int64_t c = (words - 1) / kLanes * kLanes; c >= 0; c -= kLanes) {
    for (std::int64_t j = 0; j < args.pixels; j += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, args.pixels - j);
      const auto pixels_of = [&](std::int64_t channel, unsigned char* buffer) {
        return contiguous(x + (channel * args.channel_step + j * args.pixel_step) * bytes, args.pixel_step,
                          count, bytes, buffer);
      };
      SizedVector row[kLanes];
      for (int i = 0; i < kLanes; ++i) {
        if (c + i >= words) {
          row[i] = hn::Zero(Floats());
        } else if (pairs) {
          const std::int64_t channel = 2 * (c + i);
          BitVector word = load_halves(pixels_of(channel, lanes));
          if (channel + 1 < args.channels)
            word = hn::Or(word, hn::ShiftLeft<16>(load_halves(pixels_of(channel + 1, next_lanes))));
          row[i] = hn::BitCast(Floats(), word);
        } else if (args.pixel_step == 2) {
          row[i] = load_even(args.type, x + ((c + i) * args.channel_step + j * 2) * bytes, count, bytes);
        } else {
          row[i] = load_floats(args.type, pixels_of(c + i, lanes));
        }
      }
      transpose<kLanes>(row);
      float* to = args.to + j * args.to_step + c;
      for (int i = 0; i < count; ++i, to += args.to_step) hn::StoreU(row[i], Floats(), to);
    }
  }
}

void read(const ReadArgs& args) {
  const std::int64_t bytes = size_of(args.type);
  if (args.channel_step == 1)
    read_pixels(args, bytes);
  else
    read_planes(args, bytes);
}

// Whole vectors of up to four planes, zeros where there is none; the last pixels one by one.
void weave_planes(const WeaveArgs& args) {
  const hn::Repartition<Bf16, Floats> d;
  constexpr std::int64_t kPixels = 2 * kLanes;
  std::int64_t i = 0;
  const auto plane = [&](std::int64_t c) HWY_ATTR {
    return c < args.channels ? hn::LoadU(d, args.planes + c * args.channel_step + i) : hn::Zero(d);
  };
  for (; args.to_step >= 2 && args.to_step <= kFewPlanes && i + kPixels <= args.pixels; i += kPixels) {
    Bf16* const to = args.to + i * args.to_step;
    if (args.to_step == 2)
      hn::StoreInterleaved2(plane(0), plane(1), d, to);
    else if (args.to_step == 3)
      hn::StoreInterleaved3(plane(0), plane(1), plane(2), d, to);
    else
      hn::StoreInterleaved4(plane(0), plane(1), plane(2), plane(3), d, to);
  }
  weave(args.planes + i, args.channels, args.channel_step, 1, args.pixels - i, args.to + i * args.to_step,
        args.to_step);
}

// ---- Finishing ----

// `count` outputs that lie side by side from element `place` on.
template <Activation activation>
HWY_INLINE void finish(const FinishArgs& args, Vector sums, Vector bias, std::int64_t place,
                       std::int64_t count) {
  const DType type = args.problem->dtype.y;
  const bool eager = rounds_each_step(*args.problem);
  const std::int64_t bytes = element_row(type).bytes;
  const auto step = [&](Vector v) { return eager ? rounded_to(type, v) : v; };
  Vector v = step(hn::Add(step(sums), bias));
  if (args.residual != nullptr) {
    const char* const from = static_cast<const char*>(args.residual) + place * bytes;
    v = step(hn::Add(v, load_some(type, from, count, bytes)));
  }
#if HWY_TARGET == HWY_AVX3
  if (args.by_instruction) {
    v = activate<activation, true>(v, args.problem->alpha, args.problem->beta);
    auto* const to = reinterpret_cast<InstructionBf16*>(static_cast<Bf16*>(args.y) + place);
    return count >= kLanes ? store(v, to) : store_lanes(v, to, 0, count);
  }
#endif
  v = activate<activation>(v, args.problem->alpha, args.problem->beta);
  char* const y = static_cast<char*>(args.y) + place * bytes;
  // A line of which some vectors go past the caches and others do not is written several times.
  const auto first =
      reinterpret_cast<std::uintptr_t>(y) - static_cast<std::uintptr_t>(args.channels - count) * 4;
  if (args.stream && type == DType::f32 && args.channels % 16 == 0 && first % 64 == 0)
    return hn::Stream(v, Floats(), reinterpret_cast<float*>(y));
  store_some(type, v, y, count, bytes);
}

#if HWY_TARGET == HWY_AVX3
// A line that will be written. Elsewhere that is an instruction of another target.
HWY_INLINE void fetch_to_write(const Bf16* line) {
  asm volatile("prefetchw %0" : : "m"(*line));
}

// Two vectors of channels of a pixel at a time.
template <Activation activation>
void round_pixels(const FinishArgs& args) {
  const Floats d;
  const float *const all_sums = args.sums, *const bias = args.bias;
  const std::int64_t *const places = args.places, step = args.sums_step, pixels = args.pixels,
                            channels = args.channels, ahead = args.ahead;
  const bool stream = args.stream;
  auto* const y = static_cast<Bf16*>(args.y);
  const auto* const residual = static_cast<const Bf16*>(args.residual);
  const float alpha = args.problem->alpha, beta = args.problem->beta;
  std::int64_t c = 0;
  // Mostly there is no residual, and the same two vectors of all pixels need the same of the bias. Where
  // outputs go past the caches, all pixels' begin alike within lines.
  for (; residual == nullptr && c + 2 * kLanes <= channels; c += 2 * kLanes) {
    const Vector lower = hn::LoadU(d, bias + c), upper = hn::LoadU(d, bias + c + kLanes);
    const auto each_pixel = [&](auto&& put) HWY_ATTR {
      const float* sums = all_sums + c;
      for (std::int64_t j = 0; j < pixels; ++j, sums += step)
        put(y + places[j] + c,
            round_both(activate<activation, true>(hn::Add(hn::LoadU(d, sums), lower), alpha, beta),
                       activate<activation, true>(hn::Add(hn::LoadU(d, sums + kLanes), upper), alpha, beta))
                .raw);
    };
    if (stream && pixels > 0 && reinterpret_cast<std::uintptr_t>(y + places[0] + c) % 64 == 0)
      each_pixel([](Bf16* to, __m512i rounded)
                     HWY_ATTR { _mm512_stream_si512(reinterpret_cast<__m512i*>(to), rounded); });
    else if (ahead > 0)
      each_pixel([=](Bf16* to, __m512i rounded) HWY_ATTR {
        fetch_to_write(to + ahead);
        _mm512_storeu_si512(to, rounded);
      });
    else
      each_pixel([](Bf16* to, __m512i rounded) HWY_ATTR { _mm512_storeu_si512(to, rounded); });
  }
  const float* sums = all_sums;
  for (std::int64_t j = 0; j < pixels; ++j, sums += step)
    for (std::int64_t at = c; at < channels; at += 2 * kLanes) {
      const std::int64_t place = places[j] + at, count = channels - at;
      const auto finished = [&](std::int64_t first) HWY_ATTR {
        // Sums and bias end with a whole vector, and there may be no second one.
        if (count <= first) return hn::Zero(d);
        Vector v = hn::Add(hn::LoadU(d, sums + at + first), hn::LoadU(d, bias + at + first));
        if (residual != nullptr)
          v = hn::Add(v, load_some(DType::bf16, residual + place + first, count - first, 2));
        return activate<activation, true>(v, alpha, beta);
      };
      const __m512i rounded = round_both(finished(0), finished(kLanes)).raw;
      if (count >= 2 * kLanes && stream && reinterpret_cast<std::uintptr_t>(y + place) % 64 == 0)
        _mm512_stream_si512(reinterpret_cast<__m512i*>(y + place), rounded);
      else if (count >= 2 * kLanes)
        _mm512_storeu_si512(y + place, rounded);
      else
        _mm512_mask_storeu_epi16(y + place, (__mmask32{1} << count) - 1, rounded);
    }
}

// Words of two pixels are transposed, without a residual.
template <Activation activation>
void round_planes(const FinishArgs& shared) {
  const struct {
    const float *sums, *bias;
    std::int64_t sums_step, pixels, channels, place, plane, ahead;
    bool stream;
  } args{shared.sums,  shared.bias,  shared.sums_step, shared.pixels, shared.channels,
         shared.place, shared.plane, shared.ahead,     shared.stream};
  constexpr std::int64_t kPixels = 2 * kLanes;
  const Floats d;
  HWY_ALIGN std::uint16_t pairs[kPixels];
  for (std::uint16_t i = 0; i < kPixels; ++i) pairs[i] = static_cast<std::uint16_t>(i / 2 + i % 2 * kLanes);
  const __m512i order = _mm512_load_si512(pairs);
  const float alpha = shared.problem->alpha, beta = shared.problem->beta;
  for (std::int64_t c = 0; c < args.channels; c += kLanes) {
    const Vector bias = hn::LoadU(d, args.bias + c);
    auto* const y = static_cast<Bf16*>(shared.y) + args.place + c * args.plane;
    // Where they go past the caches, lines of all planes begin at the same pixels.
    const std::int64_t in_line = reinterpret_cast<std::uintptr_t>(y) / sizeof(Bf16) % kPixels;
    const std::int64_t first = args.stream ? kPixels - in_line : kPixels;
    for (std::int64_t j = 0, count; j < args.pixels; j += count) {
      count = std::min(j == 0 ? first : kPixels, args.pixels - j);
      const auto finished = [&](std::int64_t pixel) HWY_ATTR {
        if (pixel >= count) return hn::Zero(d);
        const Vector sums = hn::LoadU(d, args.sums + (j + pixel) * args.sums_step + c);
        return activate<activation, true>(hn::Add(sums, bias), alpha, beta);
      };
      SizedVector row[kLanes];
      for (int i = 0; i < kLanes; ++i)
        row[i] = {_mm512_castsi512_ps(
            _mm512_permutexvar_epi16(order, round_both(finished(2 * i), finished(2 * i + 1)).raw))};
      transpose<kLanes>(row);
      const auto mask = static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
      const bool past_caches = args.stream && count == kPixels;
      for (int i = 0; i < std::min<std::int64_t>(kLanes, args.channels - c); ++i) {
        const __m512i line = _mm512_castps_si512(row[i].raw);
        if (args.ahead > 0) fetch_to_write(y + i * args.plane + j + args.ahead);
        if (past_caches)
          _mm512_stream_si512(reinterpret_cast<__m512i*>(y + i * args.plane + j), line);
        else
          _mm512_mask_storeu_epi16(y + i * args.plane + j, mask, line);
      }
    }
  }
}
#endif

// Finishes f32 without a residual and through the caches: nothing is asked for each vector.
template <Activation activation>
void finish_floats(FinishArgs args) {
  const float alpha = args.problem->alpha, beta = args.problem->beta;
  for (std::int64_t j = 0; j < args.pixels; ++j, args.sums += args.sums_step)
    for (std::int64_t c = 0; c < args.channels; c += kLanes) {
      const Vector sums = hn::Add(hn::LoadU(Floats(), args.sums + c), hn::LoadU(Floats(), args.bias + c));
      const Vector v = activate<activation>(sums, alpha, beta);
      float* const y = static_cast<float*>(args.y) + args.places[j] + c;
      args.channels - c >= kLanes ? store(v, y) : store_lanes(v, y, 0, args.channels - c);
    }
}

template <Activation activation>
void finish_pixels(const FinishArgs& shared) {
#if HWY_TARGET == HWY_AVX3
  if (shared.by_instruction) return round_pixels<activation>(shared);
#endif
  if (shared.problem->dtype.y == DType::f32 && shared.residual == nullptr && !shared.stream)
    return finish_floats<activation>(shared);
  FinishArgs args = shared;
  for (std::int64_t j = 0; j < args.pixels; ++j, args.sums += args.sums_step)
    for (std::int64_t c = 0; c < args.channels; c += kLanes)
      finish<activation>(args, hn::LoadU(Floats(), args.sums + c), hn::LoadU(Floats(), args.bias + c),
                         args.places[j] + c, args.channels - c);
}

template <Activation activation>
void finish_planes(const FinishArgs& shared) {
#if HWY_TARGET == HWY_AVX3
  if (shared.by_instruction && shared.residual == nullptr) return round_planes<activation>(shared);
#endif
  const FinishArgs args = shared;
  for (std::int64_t c = 0; c < args.channels; c += kLanes)
    for (std::int64_t j = 0; j < args.pixels; j += kLanes) {
      const std::int64_t count = std::min<std::int64_t>(kLanes, args.pixels - j);
      SizedVector row[kLanes];
      for (int i = 0; i < kLanes; ++i)
        row[i] =
            i < count ? hn::LoadU(Floats(), args.sums + (j + i) * args.sums_step + c) : hn::Zero(Floats());
      transpose<kLanes>(row);
      for (int i = 0; i < std::min<std::int64_t>(kLanes, args.channels - c); ++i)
        finish<activation>(args, row[i], hn::Set(Floats(), args.bias[c + i]),
                           args.place + (c + i) * args.plane + j, count);
    }
}

void put_lines(const void* from, std::int64_t lines, void* to) {
  const Floats d;
  constexpr std::int64_t kLineFloats = kCacheLineBytes / sizeof(float);
  const auto* const floats = static_cast<const float*>(from);
  for (std::int64_t i = 0; i < lines * kLineFloats; i += kLanes)
    hn::Stream(hn::LoadU(d, floats + i), d, static_cast<float*>(to) + i);
}
void join_lines(const JoinArgs& args) {
  if constexpr (kLanes * sizeof(float) == kCacheLineBytes) {
    const Floats d;
    const auto ends = hn::FirstN(d, static_cast<std::size_t>(args.words));
    for (std::int64_t i = 0; i < args.lines; ++i) {
      const Vector line = hn::IfThenElse(ends, hn::LoadU(d, args.ends + (i + 1) * kLanes - args.words),
                                         hn::LoadU(d, args.begins + i * kLanes - args.words));
      if (args.stream)
        hn::Stream(line, d, args.to + i * args.to_step);
      else
        hn::Store(line, d, args.to + i * args.to_step);
    }
  }
}
void flush_stream() {
  hwy::FlushStream();
}

template <int... activation>
constexpr TensorKernels table(std::integer_sequence<int, activation...>) {
  return {kLanes,
          read,
          gather,
          weave_planes,
          {finish_pixels<static_cast<Activation>(activation)>...},
          {finish_planes<static_cast<Activation>(activation)>...},
          put_lines,
          join_lines,
          flush_stream};
}
// Unused where tensor_kernels() has no width for the target.
[[maybe_unused]] constexpr TensorKernels kKernels = table(std::make_integer_sequence<int, kActivations>());

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
#endif
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

bool rounds_by_instruction(const ConvProblem& problem) {
#if defined(__x86_64__)
  const bool has_it = __builtin_cpu_supports("avx512bf16") != 0;
#else
  const bool has_it = false;
#endif
  return has_it && problem.dtype.y == DType::bf16 && problem.rounding != Rounding::eager;
}

bool may_stream_planes(const ConvProblem& problem) {
  return problem.layout == Layout::nchw && !problem.residual && rounds_by_instruction(problem) &&
         problem.p() * problem.q() * size_of(problem.dtype.y) % kCacheLineBytes == 0;
}

bool may_stream(const ConvProblem& problem) {
  return problem.layout == Layout::nhwc &&
         problem.k / problem.groups * size_of(problem.dtype.y) % kCacheLineBytes == 0 &&
         (problem.dtype.y == DType::f32 || rounds_by_instruction(problem));
}

const TensorKernels* tensor_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(TensorKernels, vector_bits, kKernels);
}

}  // namespace convtune::cpu
#endif
