#include "cuda/launch/gpu_share.h"

#include <algorithm>

namespace convtune::cuda {
namespace {

thread_local constinit double share_of_gpu = 1;

}  // namespace

void set_gpu_share(double share) {
  share_of_gpu = share;
}

unsigned blocks_of_share(unsigned blocks, unsigned unit, int multiprocessors) {
  if (share_of_gpu >= 1) return blocks;
  const auto units = static_cast<unsigned>(share_of_gpu * multiprocessors) / unit;
  return std::min(blocks, std::max(units, 1u) * unit);
}

}  // namespace convtune::cuda
