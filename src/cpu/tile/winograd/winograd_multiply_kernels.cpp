// Winograd's products, channel by channel of the transformed images, in register tiles: written once with
// Highway and compiled for each instruction set, as winograd_kernels.cpp is.
#include <iterator>
#include <utility>

#include "cpu/tile/vectors.h"
#include "cpu/tile/winograd/winograd_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile/winograd/winograd_multiply_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace convtune::cpu {
namespace HWY_NAMESPACE {

template <int channels, int vectors>
void multiply(const WinogradProducts& of) {
  const Floats f;
  const float *x = of.x, *w = of.w;
  float* to = of.sums;
  for (std::int64_t product = 0; product < of.products; ++product, to += of.product_step) {
    SizedVector sums[channels][vectors];
    CONVTUNE_UNROLL
    for (int i = 0; i < channels; ++i) {
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) sums[i][v] = hn::Zero(f);
    }
    for (std::int64_t c = of.depth[product]; c > 0; --c) {
      add_tap<F32Products, channels, vectors>(
          sums, [&](int v) HWY_ATTR { return hn::Load(f, x + v * kLanes); }, w);
      x += vectors * kLanes;
      w += channels;
    }
    CONVTUNE_UNROLL
    for (int i = 0; i < channels; ++i) {
      CONVTUNE_UNROLL
      for (int v = 0; v < vectors; ++v) hn::Store(sums[i][v], f, to + i * of.row_step + v * kLanes);
    }
  }
}

template <int channels, int... fewer>
constexpr WinogradTile multiply_tile(std::integer_sequence<int, fewer...>) {
  return {channels, {multiply<channels, fewer + 1>...}};
}
template <int channels, int vectors>
constexpr WinogradTile kMultiply = multiply_tile<channels>(std::make_integer_sequence<int, vectors>());
// Register tiles of the direct convolution that do not wait for their loads.
constexpr WinogradTiles multiply_tiles() {
  if constexpr (kRegisters == 32)
    return {kMultiply<4, 6>, kMultiply<5, 5>, kMultiply<6, 4>, kMultiply<8, 3>, kMultiply<12, 2>};
  else
    return {kMultiply<4, 3>, kMultiply<6, 2>, kMultiply<12, 1>};
}
// Unused where winograd_multiply() has no width for the target.
[[maybe_unused]] constexpr WinogradTiles kMultiplyTiles = multiply_tiles();

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

WinogradMultiply winograd_multiply(int vector_bits, int channels, std::int64_t vectors) {
  const auto* const tiles = CONVTUNE_KERNELS_OF_WIDTH(WinogradTiles, vector_bits, kMultiplyTiles);
  if (tiles == nullptr) return nullptr;
  for (const WinogradTile& tile : *tiles)
    if (tile.channels == channels && vectors <= std::ssize(tile.multiply))
      return tile.multiply[static_cast<std::size_t>(vectors - 1)];
  return nullptr;
}

}  // namespace convtune::cpu
#endif
