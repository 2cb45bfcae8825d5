// The vector code of Winograd's convolution with vectors over output channels: compiled once for each
// instruction set, chosen at run time as that of the direct convolution. winograd_filters.cpp is the
// only caller.
#pragma once

#include <cstdint>

#include "cpu/tile/register_tile.h"

namespace convtune::cpu {

// A product of a register tile of tiles: sums[i][l] = sum over c of w[c][l] * v[c * pitch + i], of whole
// vectors l. A line of the cache from each of `next` on is fetched for each c: what comes next.
struct WinogradFiltersProduct {
  const float *w, *v;
  std::int64_t pitch, channels;
  float* sums;
  std::int64_t sums_step;
  const float *next_w, *next_v;
};
using WinogradFiltersMultiply = void (*)(const WinogradFiltersProduct& of);

struct WinogradFiltersKernels {
  RegisterTiles<WinogradFiltersMultiply> tiles;
  // A on both sides of tiles that lie `vectors` vectors apart: to[r * row_step + (2 * tile + s) vectors] =
  // sum over i, j of at[r][i] * at[s][j] * from[i][j][tile]. from: 4 x 4 products `stride` apart. Returns
  // whether all are finite.
  bool (*output)(const float* from, std::int64_t stride, std::int64_t tiles, std::int64_t vectors, float* to,
                 std::int64_t row_step);
};

// Null where this build has no code for that width, as direct_kernels().
const WinogradFiltersKernels* winograd_filters_kernels(int vector_bits);
// Null where there is no register tile of so many tiles and vectors.
WinogradFiltersMultiply winograd_filters_multiply(int vector_bits, std::int64_t tiles, std::int64_t vectors);

}  // namespace convtune::cpu
