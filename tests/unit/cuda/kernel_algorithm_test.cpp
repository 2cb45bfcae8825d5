// Tests the parts that the algorithms with kernels of our own share: the order of candidates, and refusals.
#include "cuda/launch/kernel_algorithm.h"

#include <gtest/gtest.h>

#include "cuda/launch/bare_residues.h"

namespace convtune::cuda::kernel_algorithm_test {
namespace {

TEST(BestOf, KeepsTheOrderOfEquals) {
  EXPECT_EQ(best_of<int>({{2, 1}, {1, 2}, {2, 3}, {1, 4}}), (std::vector<int>{2, 4, 1, 3}));
  EXPECT_EQ(best_of<int>({}), std::vector<int>{});
}

TEST(BestOf, LeavesOutWhatIsTooManyOrHopeless) {
  const std::vector<Ranked<int>> ranked = {{4, 1}, {2, 2}, {4.1, 3}, {3, 4}};
  EXPECT_EQ(best_of(ranked, 3), (std::vector<int>{2, 4, 1}));
  EXPECT_EQ(best_of(ranked, 9, 2), (std::vector<int>{2, 4, 1}));
  EXPECT_EQ(best_of(ranked, 2, 2), (std::vector<int>{2, 4}));
}

// A constant, since a shift by more bits than there are is none.
TEST(BareResidues, AreNoneOfAStrideWithoutBits) {
  constexpr BareResidues what{.stride_h = 100, .stride_w = 2, .met_h = -1};
  static_assert(what.is_met(0, 99, 0) && !what.is_met(0, 99, 1));
}

}  // namespace
}  // namespace convtune::cuda::kernel_algorithm_test
