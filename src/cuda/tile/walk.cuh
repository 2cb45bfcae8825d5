// The tiles of a block that stays on its SM: every gridDim.x-th,
//   for (int tile = walk.first; tile < walk.kTiles; tile += walk.step)
// Filter blocks of the same positions run beside each other, so that one finds in L2 what another has read.
// Backwards, tile 0 is the last one: kernels that do so in turns find in L2 what the one before wrote last.
#pragma once

namespace convtune {

template <auto config>
struct Walk {
  static constexpr int kTiles = static_cast<int>(config.tiles()), kFilterBlocks = config.filter_blocks();
  static constexpr int kBlockPositions = config.block_positions();
  int backwards = 0, first = static_cast<int>(blockIdx.x), step = static_cast<int>(gridDim.x);

  __device__ int tiles() const { return (kTiles - first + step - 1) / step; }  // for this block
  __device__ int filter_block(int tile) const { return at(tile) % kFilterBlocks; }
  __device__ int first_position(int tile) const { return at(tile) / kFilterBlocks * kBlockPositions; }

 private:
  __device__ int at(int tile) const { return backwards ? kTiles - 1 - tile : tile; }
};

}  // namespace convtune
