// Layouts inside Winograd's convolution with vectors over output channels, of NCHW tensors: F(2
// x 2, 3 x 3) with strides of 1 and 2. The tiles of an image are few where it is small, and those that fill
// up a last vector would be a third of all products; output channels fill their vectors.
//
//   rows of a channel -> B down them -> phases -> B along them = V -> multiply = M -> A -> transposed ->
//   output
//
// The input's transform takes a strip of tiles of all channels, as many as a vector has lanes, and keeps
// everything in registers. V has [block of tiles][product][channel of the product][tile], M has
// [product][tile][output channel of a register tile]. Plain arithmetic.
#pragma once

#include <cstdint>
#include <vector>

#include "convtune/problem.h"
#include "cpu/tile/memory_plan.h"
#include "cpu/tile/winograd/winograd_layout.h"

namespace convtune::cpu {

// The search space.
struct WinogradFiltersConfig {
  int vector_bits = 512, block = 14, vectors = 2, tiles = 98, filters = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 24;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("block", self.block, 1, 64, "register tile: tiles");
    field("vectors", self.vectors, 1, 64, "register tile: vectors of output channels");
    field("tiles", self.tiles, 1, kMost, "tiles that are transformed at once");
    field("filters", self.filters, 0, kMost, "output channels of a task; 0: all");
  }
};

struct WinogradFiltersGeometry : WinogradLayout {
  WinogradFiltersGeometry(const ConvProblem& problem, const WinogradFiltersConfig& config, int lanes);

  std::int64_t axis_inputs;  // that a tile reads along an axis
  // Floats of V before each product, and rows of tiles before channel 0 of the products of inputs i and j.
  std::vector<std::int64_t> panels, places;
  std::int64_t blocks;  // register tiles of a task's tiles, at most
  std::int64_t pitch;   // floats of a block of tiles in V

  // A thread's memory, in floats: V, M, rows of outputs, copied inputs.
  static constexpr std::int64_t kRunTiles = 16;
  std::int64_t block_step;  // from a block of tiles to the next in V
  std::int64_t product_step;
  MemoryPlan memory;
  std::int64_t transformed, multiplied, sums, copied;

  // Vector multiply-adds that are issued for the whole problem, junk included, times lanes.
  double issued_multiply_adds;
};

}  // namespace convtune::cpu
