// The vector code of Winograd's convolution with vectors over output channels: compiled once for each
// instruction set, chosen at run time as that of the direct convolution. Products are winograd_multiply()'s.
// winograd_filters.cpp is the only caller.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace convtune::cpu {

// Tiles of one row of tiles, one a lane, of consecutive channels.
struct WinogradStrip {
  // Channel 0 of the input where the first tile's window begins, which may lie beside the image. Whole
  // vectors are read of rows [from_row, end_row), which are in the image, as columns [from_col, end_col) are;
  // a window has zeros elsewhere.
  const float* x;
  std::int64_t row_step, plane;
  std::int64_t from_row, end_row, from_col, end_col;
  std::int64_t channels;
  // Where the products go: lane l in [skip, end) to to[places[i * inputs + j] + c * pitch + l].
  struct Piece {
    float* to;
    std::int64_t skip, end;
  };
  std::span<const Piece> pieces;
  const std::int64_t* places;
  std::int64_t pitch;
};

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
struct WinogradFiltersTile {
  int tiles, vectors;
  std::array<WinogradFiltersMultiply, 4> multiply;  // of one vector, of two, ...
};

struct WinogradFiltersKernels {
  std::span<const WinogradFiltersTile> tiles;
  // B on both sides of 3x3 filters of stride 1 and of stride 2 (winograd_parts.h).
  void (*input[2])(const WinogradStrip& strip);
  // A on both sides of tiles that lie `vectors` vectors apart: to[r * row_step + (2 * tile + s) vectors] =
  // sum over i, j of at[r][i] * at[s][j] * from[i][j][tile]. from: 4 x 4 products `stride` apart. Returns
  // whether all are finite.
  bool (*output)(const float* from, std::int64_t stride, std::int64_t tiles, std::int64_t vectors, float* to,
                 std::int64_t row_step);
};

constexpr std::size_t kMostPieces = 18;  // of a strip: blocks of one tile, and two that are cut

// Null where this build has no code for that width, as direct_kernels().
const WinogradFiltersKernels* winograd_filters_kernels(int vector_bits);
// Null where there is no register tile of so many tiles and vectors.
WinogradFiltersMultiply winograd_filters_multiply(int vector_bits, std::int64_t tiles, std::int64_t vectors);

}  // namespace convtune::cpu
