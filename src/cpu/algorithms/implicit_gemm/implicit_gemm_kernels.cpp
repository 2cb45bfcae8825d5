// The register tiles of the implicit GEMM, written once with Highway and compiled by foreach_target.h for
// each instruction set, as direct_kernels.cpp is (docs/decisions/0004).
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"

#include <cstring>
#include <type_traits>
#include <utility>

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

HWY_INLINE Vector broadcast_word(Floats d, const char* at) {
  float word;
  std::memcpy(&word, at, sizeof word);
  return hn::Set(d, word);
}

// 0 in the upper half: what lies there may be an infinity, which a weight of 0 makes NaN.
HWY_INLINE Vector broadcast_half(Floats d, const char* at) {
  std::uint16_t half;
  std::memcpy(&half, at, sizeof half);
  return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<Floats>(), half));
}

// The loops over i and v have constant bounds and unroll whole, so acc stays in registers; a word of all
// pixels is one load a vector, one broadcast a pixel, and pixels*vectors multiply-adds.
template <class Products, int pixels, int vectors>
void multiply(const MultiplyArgs& shared) {
  const MultiplyArgs args = shared;  // a copy, so that stores to sums cannot be taken to change it
  const Floats d;
  SizedVector acc[pixels][vectors];
  CONVTUNE_UNROLL
  for (int i = 0; i < pixels; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v)
      acc[i][v] = args.accumulate ? hn::Load(d, args.sums + i * args.sums_step + v * kLanes) : hn::Zero(d);
  }
  constexpr std::int64_t kWord = sizeof(float);
  const float* weights = args.weights;
  for (std::int64_t t = 0; t < args.tap_count; ++t) {
    const char* const tap = static_cast<const char*>(args.x) + args.taps[t];
    const char* x[pixels];
    CONVTUNE_UNROLL
    for (int i = 0; i < pixels; ++i) x[i] = tap + args.pixels[i];
    const auto add = [&](std::int64_t c, auto broadcast) HWY_ATTR {
      SizedVector weight[vectors];
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) weight[v] = hn::LoadU(d, weights + v * kLanes);
      CONVTUNE_UNROLL
      for (int i = 0; i < pixels; ++i) {
        const Vector value = broadcast(x[i] + c * kWord);
        CONVTUNE_UNROLL
        for (int v = 0; v < vectors; ++v) acc[i][v] = Products::add(weight[v], value, acc[i][v]);
      }
      weights += vectors * kLanes;
    };
    const std::int64_t whole = args.words - (args.half ? 1 : 0);
    for (std::int64_t c = 0; c < whole; ++c)
      add(c, [](const char* at) HWY_ATTR { return broadcast_word(Floats(), at); });
    if constexpr (!std::is_same_v<Products, F32Products>)
      if (args.half) add(whole, [](const char* at) HWY_ATTR { return broadcast_half(Floats(), at); });
  }
  CONVTUNE_UNROLL
  for (int i = 0; i < pixels; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) hn::Store(acc[i][v], d, args.sums + i * args.sums_step + v * kLanes);
  }
}

// One pointer for all pixels: their words are at constant offsets from it.
template <int pixels, int vectors>
void multiply_side_by_side(const MultiplyArgs& shared) {
  const MultiplyArgs args = shared;  // a copy, so that stores to sums cannot be taken to change it
  const Floats d;
  SizedVector acc[pixels][vectors];
  CONVTUNE_UNROLL
  for (int i = 0; i < pixels; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) acc[i][v] = hn::Zero(d);
  }
  constexpr std::int64_t kLine = 16;
  const float *weights = args.weights, *next_weights = args.next_weights;
  const char* const first = static_cast<const char*>(args.x) + args.pixels[0];
  const char* const next = static_cast<const char*>(args.next_x) + args.pixels[0];
  for (const std::int64_t *tap = args.taps, *const end = tap + args.tap_count; tap < end; ++tap) {
    __builtin_prefetch(next_weights, 0, 2);
    __builtin_prefetch(next + *tap, 0, 3);
    const char* const x = first + *tap;
    SizedVector weight[vectors];
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) weight[v] = hn::LoadU(d, weights + v * kLanes);
    CONVTUNE_UNROLL
    for (int i = 0; i < pixels; ++i) {
      const Vector value = broadcast_word(d, x + i * static_cast<int>(sizeof(float)));
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) acc[i][v] = hn::MulAdd(weight[v], value, acc[i][v]);
    }
    weights += vectors * kLanes, next_weights += kLine;
  }
  CONVTUNE_UNROLL
  for (int i = 0; i < pixels; ++i) {
    CONVTUNE_UNROLL
    for (int v = 0; v < vectors; ++v) hn::Store(acc[i][v], d, args.sums + i * args.sums_step + v * kLanes);
  }
}

// Sums, one vector of weights a column and one broadcast word must fit the registers, and pointers to pixels
// the general ones.
struct SideBySide {};
template <class Products, int pixels, int vectors>
constexpr MultiplyKernel kernel() {
  constexpr int kMostPointers = 12;
  if constexpr (pixels * vectors + vectors + 1 > kRegisters)
    return nullptr;
  else if constexpr (std::is_same_v<Products, SideBySide>)
    return multiply_side_by_side<pixels, vectors>;
  else if constexpr (pixels <= kMostPointers)
    return multiply<Products, pixels, vectors>;
  else
    return nullptr;
}
template <class Products, int... p>
constexpr MultiplyKernels kernels(std::integer_sequence<int, p...>) {
  static_assert(kMaxGemmVectors == 4);
  return {{{kernel<Products, p + 1, 1>(), kernel<Products, p + 1, 2>(), kernel<Products, p + 1, 3>(),
            kernel<Products, p + 1, 4>()}...}};
}
template <class Products>
constexpr MultiplyKernels kMultiply = kernels<Products>(std::make_integer_sequence<int, kMaxGemmPixels>());

// Unused where implicit_gemm_kernels() has no width for the target.
[[maybe_unused]] constexpr ImplicitGemmKernels kKernels = {kLanes, kMultiply<F32Products>,
#if CONVTUNE_BF16_PAIRS
                                                           kMultiply<Bf16Products>,
#else
                                                           {},
#endif
                                                           kMultiply<SideBySide>};

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

const ImplicitGemmKernels* implicit_gemm_kernels(int vector_bits) {
  return CONVTUNE_KERNELS_OF_WIDTH(ImplicitGemmKernels, vector_bits, kKernels);
}

}  // namespace convtune::cpu
#endif
