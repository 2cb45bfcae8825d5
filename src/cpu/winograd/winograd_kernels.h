// The vector code of Winograd's transforms: compiled once for each instruction set, chosen at run time as
// that of the direct convolution, whose register tiles multiply between them. winograd.cpp is the only
// caller.
#pragma once

#include <cstdint>

#include "cpu/direct/direct_kernels.h"

namespace convtune::cpu {

// The transforms of F(m x m, 3 x 3), with a = m + 2 inputs along an axis. Vectors run over the tiles of a
// task. Whole vectors are read and written: every row has room for a vector past its last tile.
struct WinogradKernels {
  // B along the rows: to[i][j][t] = sum over l of bt[j][l] * rows[i][m*t + l], for t in [0, count).
  // rows: a rows of m*count+2 floats, `pitch` apart; to: a*a rows `stride` apart.
  void (*input_rows)(const float* rows, std::int64_t pitch, std::int64_t count, float* to,
                     std::int64_t stride);
  // B^T along the columns: to[i][j][t] = sum over l of bt[i][l] * from[l][j][t] for `vectors` vectors.
  // from: a*a rows `stride` apart; to: a*a rows `to_stride` apart.
  void (*input_columns)(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                        std::int64_t to_stride);
  // A on both sides: row r of to has outputs r of all tiles, those of a tile next to each other:
  // to[r][m*t + s] = sum over i, j of at[r][i] * at[s][j] * from[i][j][t]. from: a*a rows `stride` apart;
  // to: m rows `to_stride` apart. Returns whether all of them are finite.
  bool (*output)(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                 std::int64_t to_stride);

  // Channels last: vectors run over channels.

  // B^T x B of kTilesOfPixels tiles: to[i][j][c][tile] from pixels[tile][i][j][c], c in [0, channels), which
  // are read one by one past the last whole vector. to: a*a rows `to_stride` apart, with room for whole
  // vectors of channels.
  void (*input_pixels)(const float* const* pixels, std::int64_t channels, float* to, std::int64_t to_stride);
  // A on both sides: to[r][s][k] = sum over i, j of at[r][i] * at[s][j] * from[i][j][k], for whole vectors of
  // k. Returns whether all of them are finite.
  bool (*output_pixels)(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                        std::int64_t to_stride);
  // y[k] = act(sums[k] + bias[k]) for k in [0, count). sums and bias are read in whole vectors.
  void (*finish_pixel)(const float* sums, const float* bias, Bounds bounds, float* y, std::int64_t count);
};
constexpr int kTilesOfPixels = 4;

// Null where this build has no code for that width, as direct_kernels(). `m`: 2 or 4.
const WinogradKernels* winograd_kernels(int vector_bits, int m);

}  // namespace convtune::cpu
