// The vector code of Winograd's convolution along one axis, compiled once for each instruction set and chosen
// at run time as that of the direct convolution. winograd_rows.cpp is the only caller.
#pragma once

#include <array>
#include <cstdint>

#include "cpu/tile/cut_lines.h"
#include "cpu/tile/register_tile.h"
#include "cpu/tile/stagger.h"
#include "cpu/tile/tile_epilogue.h"

namespace convtune::cpu {

// Two rows of outputs of a register tile, from the sums m of its four products:
//   sum[0] = m0 + m1 + m2,  sum[1] = m1 - m2 - m3,  m = sum over t of weights[t][i] * window[taps[t] + l]
//   i in [0, channels): output channels, l in [0, vectors * lanes): columns
// The taps are those of m1, which begins with the bias, of m2, of m0, and of -m3.
struct WinogradRowsArgs {
  const float* window;
  const std::int32_t* taps;
  std::array<std::int64_t, 4> counts;
  const float *weights, *bias;  // [tap][channels], [channels]
  // Both rows of columns [skip, count) go through the activation to the first y_channels channels of y, whose
  // planes lie y_stride apart and whose rows y_row; of the second row nothing where it lies below the image.
  // skip is less than a vector. Where y is null they go to sums as they are: [row][channel][whole vectors],
  // aligned.
  float *y, *sums;
  const float* residual;  // null, or as y lies
  std::int64_t y_stride, y_row, y_channels, skip, count;
  Epilogue epilogue;
  bool second, stream;  // stream: whole, aligned vectors go past the caches
  // The lines that the rows begin and end within, from the first channel on, where a vector is a line.
  std::array<CutLines::Row, 2> lines{};
  Stagger stagger{};  // WinogradRowsKernel::staggered: whole, aligned lines that do, a ring for each row
};
// Both do the same, `staggered` with the stores of args.stagger.
struct WinogradRowsKernel {
  void (*plain)(const WinogradRowsArgs&);
  void (*staggered)(const WinogradRowsArgs&);
};
using WinogradRowsTile = RegisterTile<WinogradRowsKernel>;  // of output channels

struct WinogradRowsKernels {
  RegisterTiles<WinogradRowsKernel> tiles;
  // The greatest of `bits` and the absolute values of from[0, count), as the bits of a float: those of NaN
  // are above all others.
  std::int32_t (*largest)(const float* from, std::int64_t count, std::int32_t bits);
};

// Null where this build has no code for that width, as direct_kernels().
const WinogradRowsKernels* winograd_rows_kernels(int vector_bits);
// Null where there is no such register tile.
const WinogradRowsTile* find_winograd_rows_tile(int vector_bits, int channels, int vectors);

}  // namespace convtune::cpu
