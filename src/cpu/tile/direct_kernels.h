// The vector code of the direct convolution: compiled once for each instruction set, chosen at run
// time through this table of plain functions. Their callers know no vectors.
#pragma once

#include <cstdint>

#include "cpu/tile/cut_lines.h"
#include "cpu/tile/elements.h"
#include "cpu/tile/register_tile.h"
#include "cpu/tile/tile_epilogue.h"

namespace convtune::cpu {

// sum[i][l] = sum over t of weights[t][i] * window[taps[t] + l]
//   i in [0, channels): output channels, l in [0, vectors * lanes): positions of the staged window.
// Of words (direct_geometry.h): a product of two pairs of bf16 is the sum of two products, or of the last
// `halves` taps the product of their lower halves.
// Whole vectors are read: the window must be readable that far past its last position.
struct TileArgs {
  const float* window;       // staged input at the block's first position
  const std::int32_t* taps;  // offset of each filter tap's value from a position's origin
  std::int64_t tap_count;
  const float* weights;     // [tap_count][channels]
  float* acc;               // aligned to a vector; row i at acc + i * acc_stride
  std::int64_t acc_stride;  // floats, whole vectors

  // Destination of the sums: acc when y is null, else those of positions [skip, count) finished into the
  // outputs of the first y_channels channels: y[i * y_stride + l] = act(sum[i][l] + bias[i] +
  // residual[i][l]). skip is less than a vector.
  void* y = nullptr;  // of floats, or of bf16 where words are pairs
  std::int64_t y_stride = 0, y_channels = 0, skip = 0, count = 0;
  const float* bias = nullptr;
  Epilogue epilogue{};
  const void* residual = nullptr;  // null, or as y lies
  std::int64_t halves = 0;
  bool stream = false;  // whole, aligned vectors go past the caches
  // Of kernels that cut lines: lines of the first of the channels on; and y begins `turn` floats behind a
  // line, and vectors are turned (cpu/tile/joined_rows-inl.h), where skip is 0.
  CutLines::Row line{};
  std::int64_t turn = 0;
};
using TileKernel = void (*)(const TileArgs&);
using TileShape = RegisterTile<TileKernel>;  // of output channels

struct DirectKernels {
  int lanes;                                    // floats in a vector
  RegisterTiles<TileKernel> tiles, bf16_tiles;  // bf16_tiles: none where no pairs are multiplied
  RegisterTiles<TileKernel>
      cutting_tiles;  // tiles that heed TileArgs' line and turn; none where no vector is a line
  // y[i] = act(acc[i] + bias + residual[i]): one run of an output row. acc must be readable a vector past its
  // end.
  void (*finish)(const float* acc, float bias, const Epilogue& epilogue, const Outputs<float>& to,
                 std::int64_t count);
  void (*finish_bf16)(const float* acc, float bias, const Epilogue& epilogue, const Outputs<Bf16>& to,
                      std::int64_t count);
  // Orders stores past the caches before whatever follows.
  void (*fence)();
  // to[j][i] = from[i * stride + j] for i in [0, count), j in [0, phases): one row split by column
  // phase. Row j starts at to + j * to_stride. All of from[0, count * stride) may be read.
  void (*split_phases)(const float* from, std::int64_t stride, std::int64_t phases, std::int64_t count,
                       float* to, std::int64_t to_stride);
  // to[j][i] = from[j * step + i] for i in [0, count), j in [0, copies): whole vectors of `from` are read.
  void (*slide)(const float* from, std::int64_t copies, std::int64_t step, std::int64_t count, float* to,
                std::int64_t to_step);
  // to[i] = the word of lower[i] and upper[i].
  void (*join)(const Bf16* lower, const Bf16* upper, std::int64_t count, float* to);
};

// Null where this build has no code for that width (cpu/tile/instruction_sets.h).
// Whether the processor can run it is the caller's to know (DeviceInfo::isa).
const DirectKernels* direct_kernels(int vector_bits);
// Those that multiply the problem's words.
RegisterTiles<TileKernel> direct_tiles(const DirectKernels& kernels, const ConvProblem& problem);

}  // namespace convtune::cpu
