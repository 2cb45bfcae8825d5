// Grids of kernels whose blocks go from tile to tile, where work of other streams is to run beside them:
// fewer blocks take all tiles, each tile as ever.
#pragma once

namespace convtune::cuda {

// The share of a GPU's multiprocessors that this thread's launches may take, above 0; 1 at first.
void set_gpu_share(double share);

// Blocks of a grid of `blocks`, which counts in `units`: as many as fit the thread's share of
// `multiprocessors` multiprocessors, one unit at least.
unsigned blocks_of_share(unsigned blocks, unsigned unit, int multiprocessors);

}  // namespace convtune::cuda
