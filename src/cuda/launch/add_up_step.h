// The launches of kernels whose blocks share gradients of weights (tile/weight_sums.cuh).
#pragma once

#include "cuda/launch/launch_plan.h"

namespace convtune::cuda {

// Arguments of a kernel that leaves partial sums.
std::vector<Argument> sums_arguments();

// Blocks that add up a rank's so many fours.
Extent3 blocks_of_fours(long long fours);

// Has a plan of such a kernel pack nothing, and launch behind it the kernel that adds up so many words, by
// `blocks` blocks of `threads`. Its arguments: partial sums, x, dy, dw, dbias.
void add_up_behind(LaunchPlan& plan, long long partial_words, Extent3 blocks, int threads);

}  // namespace convtune::cuda
