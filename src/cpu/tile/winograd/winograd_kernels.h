// The vector code of Winograd's transforms: compiled once for each instruction set, chosen at run time as
// that of the direct convolution, whose register tiles multiply between them. winograd.cpp is the only
// caller.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/joined_rows.h"

namespace convtune::cpu {

// Outputs of a vector of tiles that lie in one row of the image: lane l in [from, end) of them
// goes to y[offset + l], and of the row below, where `rows` is 2, to y[offset + y_pitch + l].
struct WinogradPiece {
  std::int64_t vector, offset, from, end, rows;
};

// B of a part of so many taps (winograd_parts.h): its taps + 1 products, to[to_step * to[j] + t] = sum over l
// of bt[product j][l] * from[from[l] + t].
struct WinogradPartStep {
  int taps;
  std::array<std::int64_t, 4> from, to;
};

// All products of a register tile, one after the other, each a sum over depth[product] channels of its own:
// sums[product][i][l] = sum over c of w[c][i] * x[c][l], and the next product's w and x follow.
struct WinogradProducts {
  const float *x, *w;         // x: whole vectors, aligned
  const std::int64_t* depth;  // of `products` products
  std::int64_t products;
  float* sums;  // [product][output channel][whole vectors], aligned
  std::int64_t product_step, row_step;
};
using WinogradMultiply = void (*)(const WinogradProducts& of);

// The transforms of F(m x m, 3 x 3), with a = m + 2 inputs along an axis. Whole vectors are read and written:
// every row has room for a vector past its last tile.
struct WinogradKernels {
  // Channels first, m = 2 alone: vectors run over the tiles of a task.

  // B along the rows: to[i][j][t] = sum over l of bt[j][l] * rows[i][m*t + l], for t in [0, count).
  // rows: a rows of m*count+2 floats, `pitch` apart; to: a*a rows `stride` apart.
  void (*input_rows)(const float* rows, std::int64_t pitch, std::int64_t count, float* to,
                     std::int64_t stride);
  // B^T along the columns: to[i][j][t] = sum over l of bt[i][l] * from[l][j][t] for `vectors` vectors.
  // from: a*a rows `stride` apart; to: a*a rows `to_stride` apart.
  void (*input_columns)(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                        std::int64_t to_stride);
  // Along either axis: B of parts of a filter, of `vectors` vectors each.
  void (*input_parts)(std::span<const WinogradPartStep> steps, const float* from, std::int64_t vectors,
                      float* to, std::int64_t to_step);
  // As input_parts, into aligned vectors of which lanes [skip, end) are meant: lanes before stay as they are,
  // and lanes behind become zero.
  void (*input_strip)(std::span<const WinogradPartStep> steps, const float* from, std::int64_t skip,
                      std::int64_t end, float* to, std::int64_t to_step);
  // A on both sides: row r of to has outputs r of all tiles, those of a tile next to each other:
  // to[r][m*t + s] = sum over i, j of at[r][i] * at[s][j] * from[i][j][t]. from: a*a rows `stride` apart;
  // to: m rows `to_stride` apart. Returns whether all of them are finite.
  bool (*output)(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                 std::int64_t to_stride);

  // As output, from the sums in registers into y, with act(sum + bias): the pieces of consecutive vectors.
  // Rows of y are y_pitch apart; `joined`, null or of that plane: lines of the cache are joined (of vectors
  // of 512 bits). Returns whether all sums and the bias are finite.
  bool (*output_pieces)(const float* from, std::int64_t stride, std::span<const WinogradPiece> pieces,
                        float bias, const Epilogue& epilogue, float* y, std::int64_t y_pitch, bool stream,
                        JoinedRows* joined);

  // Channels last: vectors run over channels.

  // B^T x B of kTilesOfPixels tiles: to[i][j][c][tile] from pixels[tile][i][j][c], c in [0, channels), which
  // are read one by one past the last whole vector. to: a*a rows `to_stride` apart, with room for whole
  // vectors of channels.
  void (*input_pixels)(const float* const* pixels, std::int64_t channels, float* to, std::int64_t to_stride);
  // A on both sides: to[r][s][k] = sum over i, j of at[r][i] * at[s][j] * from[i][j][k], for whole vectors of
  // k. Returns whether all of them are finite.
  bool (*output_pixels)(const float* from, std::int64_t stride, std::int64_t vectors, float* to,
                        std::int64_t to_stride);
  // y[k] = act(sums[k] + bias[k] + residual[k]) for k in [0, count). sums and bias are read in whole vectors.
  void (*finish_pixel)(const float* sums, const float* bias, const Epilogue& epilogue,
                       const Outputs<float>& to, std::int64_t count);
};
constexpr int kTilesOfPixels = 4;

// Null where there is no register tile of so many output channels and vectors.
WinogradMultiply winograd_multiply(int vector_bits, int channels, std::int64_t vectors);
// Null where this build has no code for that width, as direct_kernels(). `m`: 2 or 4.
const WinogradKernels* winograd_kernels(int vector_bits, int m);

}  // namespace convtune::cpu
