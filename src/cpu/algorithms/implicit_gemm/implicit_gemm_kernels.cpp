// The register tiles of the implicit GEMM, written once with Highway and compiled by foreach_target.h for
// each instruction set, as direct_kernels.cpp is (docs/decisions/0004).
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

#include "cpu/tile/vectors.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/register_tile-inl.h"

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

template <class Products, int pixels, int vectors>
void multiply(const MultiplyArgs& shared) {
  const MultiplyArgs args = shared;  // a copy, so that stores to sums cannot be taken to change it
  const Floats d;
  SizedVector acc[pixels][vectors];
  fill(acc, [&](int i, int v) HWY_ATTR {
    return args.accumulate ? hn::Load(d, args.sums + i * args.sums_step + v * kLanes) : hn::Zero(d);
  });
  constexpr std::int64_t kWord = sizeof(float);
  const float* weights = args.weights;
  for (std::int64_t t = 0; t < args.tap_count; ++t) {
    const char* const tap = static_cast<const char*>(args.x) + args.taps[t];
    const char* x[pixels];
    CONVTUNE_UNROLL
    for (int i = 0; i < pixels; ++i) x[i] = tap + args.pixels[i];
    const auto add = [&](std::int64_t c, auto broadcast) HWY_ATTR {
      add_products<Products>(
          acc, [&](int v) HWY_ATTR { return hn::LoadU(d, weights + v * kLanes); },
          [&](int i) HWY_ATTR { return broadcast(x[i] + c * kWord); });
      weights += vectors * kLanes;
    };
    const std::int64_t whole = args.words - (args.half ? 1 : 0);
    for (std::int64_t c = 0; c < whole; ++c)
      add(c, [](const char* at) HWY_ATTR { return broadcast_word(Floats(), at); });
    if constexpr (!std::is_same_v<Products, F32Products>)
      if (args.half) add(whole, [](const char* at) HWY_ATTR { return broadcast_half(Floats(), at); });
  }
  store_sums(acc, args.sums, args.sums_step);
}

// One pointer for all pixels: their words are at constant offsets from it.
template <int pixels, int vectors>
void multiply_side_by_side(const MultiplyArgs& shared) {
  const MultiplyArgs args = shared;  // a copy, so that stores to sums cannot be taken to change it
  const Floats d;
  SizedVector acc[pixels][vectors];
  clear(acc);
  constexpr std::int64_t kLine = 16;
  const float *weights = args.weights, *next_weights = args.next_weights;
  const char* const first = static_cast<const char*>(args.x) + args.pixels[0];
  const char* const next = static_cast<const char*>(args.next_x) + args.pixels[0];
  for (const std::int64_t *tap = args.taps, *const end = tap + args.tap_count; tap < end; ++tap) {
    __builtin_prefetch(next_weights, 0, 2);
    __builtin_prefetch(next + *tap, 0, 3);
    const char* const x = first + *tap;
    add_products<F32Products>(
        acc, [&](int v) HWY_ATTR { return hn::LoadU(d, weights + v * kLanes); },
        [&](int i) HWY_ATTR { return broadcast_word(d, x + i * static_cast<int>(sizeof(float))); });
    weights += vectors * kLanes, next_weights += kLine;
  }
  store_sums(acc, args.sums, args.sums_step);
}

template <class Products>
struct GemmTile {
  template <int pixels, int vectors>
  static constexpr MultiplyKernel kernel = multiply<Products, pixels, vectors>;
};
struct SideBySideTile {
  template <int pixels, int vectors>
  static constexpr MultiplyKernel kernel = multiply_side_by_side<pixels, vectors>;
};
// Register tiles of 1, 2, ... pixels by as many vectors as fit the registers, with a word and a vector of
// weights for each column. 3x4 would fit 16 registers with words for each row, and takes 1.3 times as long as
// 2x4 where a multiply-add is two instructions (SSE4).
template <int pixels>
constexpr std::array kGemmSizes = [] {
  std::array<TileSize, pixels> sizes{};
  for (int p = 1; p <= pixels; ++p)
    sizes[static_cast<std::size_t>(p - 1)] = {
        p, std::min((std::max(kRegisters, 1) - 1) / (p + 1), kMaxGemmVectors)};
  return sizes;
}();
constexpr int kMaxPointers = 12;  // to pixels that do not lie side by side, in registers of their own
template <class Tile, int pixels>
constexpr RegisterTiles<MultiplyKernel> kMultiply = kRegisterTiles<MultiplyKernel, Tile, kGemmSizes<pixels>>;

// Unused where implicit_gemm_kernels() has no width for the target.
[[maybe_unused]] constexpr ImplicitGemmKernels kKernels = {kLanes,
                                                           kMultiply<GemmTile<F32Products>, kMaxPointers>,
#if CONVTUNE_BF16_PAIRS
                                                           kMultiply<GemmTile<Bf16Products>, kMaxPointers>,
#else
                                                           {},
#endif
                                                           kMultiply<SideBySideTile, kMaxGemmPixels>};

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
