// Winograd's products, channel by channel of the transformed images, in register tiles: written once with
// Highway and compiled for each instruction set, as winograd_kernels.cpp is.
#include "cpu/tile/vectors.h"
#include "cpu/tile/winograd/winograd_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/tile/winograd/winograd_multiply_kernels.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "cpu/tile/register_tile-inl.h"

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
    clear(sums);
    for (std::int64_t c = of.depth[product]; c > 0; --c) {
      add_products<F32Products>(
          sums, [&](int v) HWY_ATTR { return hn::Load(f, x + v * kLanes); }, w);
      x += vectors * kLanes;
      w += channels;
    }
    store_sums(sums, to, of.row_step);
  }
}

struct MultiplyTile {
  template <int channels, int vectors>
  static constexpr WinogradMultiply kernel = multiply<channels, vectors>;
};
// Register tiles of the direct convolution that do not wait for their loads.
constexpr TileSize kFewTiles[] = {{4, 3}, {6, 2}, {12, 1}};
constexpr TileSize kManyTiles[] = {{4, 6}, {5, 5}, {6, 4}, {8, 3}, {12, 2}};
// Unused where winograd_multiply() has no width for the target.
[[maybe_unused]] constexpr RegisterTiles<WinogradMultiply> kMultiplyTiles =
    register_tiles<WinogradMultiply, MultiplyTile, kFewTiles, kManyTiles>();

}  // namespace HWY_NAMESPACE
}  // namespace convtune::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace convtune::cpu {

WinogradMultiply winograd_multiply(int vector_bits, int channels, std::int64_t vectors) {
  const auto* const tiles =
      CONVTUNE_KERNELS_OF_WIDTH(RegisterTiles<WinogradMultiply>, vector_bits, kMultiplyTiles);
  return tiles == nullptr ? nullptr : find_kernel(*tiles, channels, vectors);
}

}  // namespace convtune::cpu
#endif
