// See add_up_step.h.
#include "cuda/launch/add_up_step.h"

#include <utility>

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/weight_sums.h"

namespace convtune::cuda {

std::vector<Argument> sums_arguments() {
  return {Pointer{Operand::x, "const void*"}, Pointer{Operand::dy, "const void*"},
          Pointer{Operand::partial_sums, "float*"}};
}

Extent3 blocks_of_fours(long long fours, int split) {
  return {static_cast<unsigned>(ceil_div(fours, static_cast<long long>(added_fours(split))))};
}

void add_up_behind(LaunchPlan& plan, long long partial_words, Extent3 blocks, int threads,
                   const std::vector<Argument>& more) {
  plan.pack.clear();
  plan.workspace.push_back({Operand::partial_sums, static_cast<std::size_t>(partial_words) * sizeof(float)});
  KernelLaunch launch{
      LaunchPlan::kAddUp,
      blocks,
      {static_cast<unsigned>(threads)},
      0,
      {Pointer{Operand::partial_sums, "const float*"}, Pointer{Operand::x, "const void*"},
       Pointer{Operand::dy, "const void*"}, Pointer{Operand::dw, "void*"}, Pointer{Operand::dbias, "void*"}}};
  launch.arguments.insert(launch.arguments.end(), more.begin(), more.end());
  plan.run.emplace_back(std::move(launch));
}

void count_sums(TileWork& work, double words, double bytes) {
  work.conversions += 0.5;
  work.converted_bytes += 2 * words + bytes;
}

}  // namespace convtune::cuda
