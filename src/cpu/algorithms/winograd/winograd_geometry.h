// Layouts inside Winograd's convolution. A task's tiles (winograd_layout.h) go
//
//   input -> rows of a channel -> B along them -> B along columns = V -> multiply = M -> A = sums -> output
//
// all of it in a core's cache. Channels first, vectors run over tiles, and
// V has a panel for each of the (m+2)^2 products and each block of vectors that a register tile takes:
// [product][block][channel][tiles of the block], M has [product][output channel of a chunk][tile]. Channels
// last, vectors run over channels: V has [product][four tiles][channel][tile], the weights have panels of
// vectors, M has [product][tile][output channel of a chunk]. So a register tile reads both of its panels from
// end to end; decomposed, both panels of all products. Plain arithmetic.
#pragma once

#include <cstdint>

#include "convtune/problem.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/winograd/winograd_layout.h"

namespace convtune::cpu {

// The search space of Winograd's convolution.
struct WinogradConfig {
  int vector_bits = 512, tile = 2, channels = 8, vectors = 3, tiles = 96, filters = 0, chunk = 64, stream = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 24;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("tile", self.tile, 2, 4,
          "outputs of a tile along an axis: 2 or, of NHWC where precision is not fp32, 4");
    field("channels", self.channels, 1, 64,
          "register tile: output channels, or tiles where channels are last");
    field("vectors", self.vectors, 1, 64, "register tile: vectors of tiles, or of output channels");
    field("tiles", self.tiles, 1, kMost, "tiles that a task transforms at once");
    field("filters", self.filters, 0, kMost, "output channels of a task; 0: all");
    field("chunk", self.chunk, 1, kMost, "output channels multiplied before their sums are transformed");
    field("stream", self.stream, 0, 1, "outputs go past the caches, of a filter that is cut into parts");
  }
};

struct WinogradGeometry : WinogradLayout {
  WinogradGeometry(const ConvProblem& problem, const WinogradConfig& config, int lanes);

  bool decomposed;        // into parts, of a filter that is not 3x3 of stride 1
  std::int64_t together;  // products of a filter in parts that a register tile makes one after the other

  // A task, at most.
  std::int64_t stride;        // the tiles, rounded up to whole vectors and cache lines
  std::int64_t chunk_blocks;  // register tiles of output channels
  std::int64_t chunk_filters;
  std::int64_t channel_rows;  // channels of a panel of V, rounded up to whole vectors where they are last

  // A thread's memory, in floats: sizes, and where each begins. Channels last, `rows` is a pixel of zeros.
  std::int64_t row_pitch, half_stride, sums_stride;  // row_pitch, decomposed: of a phase of a row
  bool down_first = false;                           // decomposed: which input transform
  std::int64_t strip_pitch = 0;                      // down first: of a row before it is split
  std::int64_t window_rows;                          // rows of the input that a row of tiles reads
  MemoryPlan memory;
  std::int64_t rows, half, transformed, multiplied, sums;
  std::int64_t joined_rows;  // -1: none are (cpu/tile/joined_rows.h)

  // Vector multiply-adds that are issued for the whole problem, junk included, times lanes.
  double issued_multiply_adds;
};

}  // namespace convtune::cpu
