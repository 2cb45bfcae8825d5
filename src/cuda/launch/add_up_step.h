// The launches of kernels whose blocks share gradients of weights (tile/weight_sums.cuh).
#pragma once

#include "cuda/launch/launch_plan.h"
#include "model/time_model.h"

namespace convtune::cuda {

// Arguments of a kernel that leaves partial sums.
std::vector<Argument> sums_arguments();

// Blocks that add up `fours` fours of each of `split` ranks.
Extent3 blocks_of_fours(long long fours, int split);

// Has a plan of such a kernel pack nothing, and launch behind it the kernel that adds up `partial_words`
// words, by `blocks` blocks of `threads`. Its arguments: partial sums, x, dy, dw, dbias, and what is more.
void add_up_behind(LaunchPlan& plan, long long partial_words, Extent3 blocks, int threads,
                   const std::vector<Argument>& more = {});

// Counts that kernel, which begins where the other ends: of `words` words of partial sums L2 has half. It
// writes `bytes` bytes.
void count_sums(TileWork& work, double words, double bytes);

}  // namespace convtune::cuda
