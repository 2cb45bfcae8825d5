// Counts the parts of a tile's work (time_model.h) that all algorithms have. Geometry comes from the kernels'
// own headers; instructions were counted in their source, by phases: those of the loops that everything hangs
// on exactly, the others roughly.
#pragma once

#include <algorithm>

#include "convtune/problem.h"
#include "convtune/target.h"
#include "cuda/tile/conv_extents.h"
#include "model/time_model.h"

namespace convtune::cuda {

constexpr double kBulkBytes = 512;  // that a warp copies by one instruction, 16 a thread

// Stores a tile's outputs in pieces of `piece` numbers of `bytes` each. Their ends lie anywhere in a sector
// of 32, unless all pieces are whole sectors.
void store_in_pieces(TileWork& work, double outputs, double piece, double bytes = sizeof(float));

// Bytes of the input's rows, of pixels where channels come last, that filters meet, of the residual, and of
// dy for the gradient of weights. For the gradient of x those of dy and the residual.
double read_bytes(const ConvProblem& problem);

// Counts the rows (or columns) that `tiles` tiles read, `count` each from first(tile) on, those that the
// image has.
template <class First>
double read_inside(int tiles, const First& first, int count, int extent) {
  double sum = 0;
  for (int tile = 0; tile < tiles; ++tile)
    sum += std::max(0, std::min(first(tile) + count, extent) - std::max(first(tile), 0));
  return sum;
}

// Counts what is done to `outputs` outputs of a tile in half precision before they are rounded
// (tile/epilogue.cuh).
void add_epilogue(Phase& store, const ConvExtents& conv, double outputs);

// Counts what a tile's outputs cost: where others multiply meanwhile it is part of their work.
void add_store(TileWork& work, const Phase& store, bool beside_products);

// Blocks of a grid that stay on the device's SMs, in whole clusters.
unsigned resident_grid(long long blocks, int multiprocessors, int cluster = 1);

// Blocks that run at once in clusters of `cluster`. Larger ones leave some multiprocessors of each group
// idle: on an H200 of 132, clusters of 4 and of 8 ran together on 112, and not on 128.
long long clustered_blocks(const Target& target, const BlockNeeds& block, int cluster);

double outputs_of(const ConvExtents& conv);  // for all images

}  // namespace convtune::cuda
