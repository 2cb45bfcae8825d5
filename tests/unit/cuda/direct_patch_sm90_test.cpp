// The direct patch kernel without a GPU: its geometry, its refusals, and its largest configs compiled.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cuda/algorithms/direct_patch_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune::direct_patch_sm90_test {
namespace {

std::vector<Config> candidates(const ConvProblem& problem) {
  return cuda::direct_patch_sm90().candidates(problem, gpu());
}

ConvExtents patches(int n, int c, int side, int p, int q, int k) {
  return {.n = n,
          .c = c,
          .h = p * side + 1,
          .w = (q * side + 31) / 32 * 32,
          .k = k,
          .r = side,
          .s = side,
          .stride_h = side,
          .stride_w = side,
          .p = p,
          .q = q};
}

// Every number of the filter's rows of a stage is met once, by a chunk that lies where it is expected in the
// stage, whose rows lie as in x.
TEST(DirectPatchSm90, ChunksAreThePatch) {
  for (const int side : {4, 8, 16, 32})
    for (const int rows : {1, 2, 4, 8}) {
      const DirectPatchSm90 kernel{.conv = patches(2, 3, side, 3, 5, 64), .filters = 64, .rows = rows};
      if (!kernel.valid(227 * 1024)) continue;
      std::set<std::pair<int, int>> met;
      for (int step = 0; step < kernel.steps(); ++step)
        for (int column = 0; column < 8; ++column) {
          const DirectPatchSm90::Number number = kernel.number(step, column);
          EXPECT_TRUE(number.row >= 0 && number.row < rows && number.column >= 0 && number.column < side);
          EXPECT_TRUE(met.insert({number.row, number.column}).second) << side << " " << rows;
          // As the kernel reads it: thread `column % 4`, of 4 numbers the one for this step and half.
          const int at = kernel.block_bytes(step / 2) + kernel.thread_bytes(column % 4) +
                         4 * (step % 2 * 2 + column / 4);
          EXPECT_EQ(at, (number.row * kernel.conv.w + number.column) * 4) << side << " " << rows;
        }
      EXPECT_EQ(met.size(), static_cast<std::size_t>(kernel.stage_numbers()));
    }
}

TEST(DirectPatchSm90, TilesMeetNoMoreRowsThanAStageHolds) {
  for (const int q : {1, 2, 3, 7, 14, 16, 37, 64, 200})
    for (const int consumers : {1, 2, 3}) {
      const DirectPatchSm90 kernel{.conv = patches(70, 1, 16, 5, q, 64), .consumers = consumers};
      int most = 0;
      for (int tile = 0; tile < kernel.position_tiles(); ++tile) {
        const int first = tile * kernel.block_positions();
        const int end = std::min(first + kernel.block_positions(), static_cast<int>(kernel.all_positions()));
        most = std::max(most, (end - 1) / q - first / q + 1);
      }
      EXPECT_LE(most, kernel.patch_rows()) << q << " " << consumers;
    }
}

// Each value has a place of its own in a box, and threads of a warp write to 32 banks.
TEST(DirectPatchSm90, StagingHasNoBankConflicts) {
  std::set<int> places;
  for (int filter = 0; filter < DirectPatchSm90::kStagedFilters; ++filter)
    for (int position = 0; position < 32; ++position) {
      const int at = DirectPatchSm90::staged_at(filter, position);
      EXPECT_TRUE(at >= 0 && at < DirectPatchSm90::kBoxBytes && at % 4 == 0);
      EXPECT_EQ(at / 128, filter);
      EXPECT_TRUE(places.insert(at).second);
    }
  for (const int odd : {0, 1})
    for (const int first : {0, 8, 16, 24}) {
      std::set<int> banks;
      for (int lane = 0; lane < 32; ++lane)
        banks.insert(DirectPatchSm90::staged_at(lane % 4 * 2 + odd, first + lane / 4) / 4 % 32);
      EXPECT_EQ(banks.size(), 32u);
    }
}

TEST(DirectPatchSm90, RefusesWithAReason) {
  std::vector<Refusal> refusals = {{"mb2ic3ih64oc64kh16sh16", "this is 8.0", {8, 0}},
                                   {"mb2ic3ih64oc64kh16sh16 precision=fp32", "fp32"},
                                   {"mb2ic3ih64oc64kh16sh16 layout=nhwc", "NCHW"},
                                   {"mb2ic3ih64oc64kh16sh16 dtype=f16 precision=fp16", "f32"},
                                   {"mb2ic3ih64iw200000oc64kh16sh16", "rows of 200000"}};
  for (const char* text : {"mb2ic3ih64oc64kh16sh8", "mb2ic3ih64oc64kh16sh16ph1", "g3mb2ic3ih64oc66kh16sh16",
                           "mb2ic3ih70oc64kh14sh14", "mb2ic3ih65oc64kh16sh16", "mb2ic3ih64oc64kh16sh16dh1"})
    refusals.push_back({text, "patches"});
  expect_refusals(cuda::direct_patch_sm90(), refusals);
  expect_config_refusals(
      cuda::direct_patch_sm90(), tf32("vit_b16_patchify"), "consumers=3 filters=192 rows=1 stages=7",
      {"consumers=4 stages=4", "consumers=0 stages=4", "filters=224 stages=4",
       "consumers=2 filters=288 stages=4", "consumers=2 filters=100 stages=4",
       "consumers=2 filters=0 stages=4", "consumers=2 filters=64 rows=3 stages=4",
       "consumers=2 filters=64 rows=8 stages=2", "stages=8", "consumers=2 filters=64 stages=1"});
}

TEST(DirectPatchSm90, TakesVisionTransformers) {
  for (const char* text :
       {"vit_b16_patchify", "convnext_patchify", "mb9ic3ih224oc768kh32sh32", "mb3ic3ih384oc1024kh16sh16",
        "mb2ic3ih1024oc768kh16sh16", "mb1ic3ih32oc16kh16sh16"})
    EXPECT_FALSE(candidates(tf32(text)).empty()) << text;
}

// The configs with the most registers of sums and of a stage.
TEST(DirectPatchSm90, CompilesWithTheMostRegisters) {
  std::vector<PlannedKernel> kernels;
  for (const char* config :
       {"consumers=3 filters=192 rows=1 stages=7", "consumers=3 filters=192 rows=2 stages=3",
        "consumers=2 filters=256 rows=2 stages=3"})
    kernels.push_back({tf32("vit_b16_patchify"), parse_config(config)});
  const ConvProblem odd = tf32("mb3ic5ih37iw64oc70kh8sh8 act=relu bias=0");
  kernels.push_back({odd, candidates(odd).back()});
  expect_compiles_as_planned(*cuda::kernel_algorithm(cuda::direct_patch_sm90()), kernels);
}

}  // namespace
}  // namespace convtune::direct_patch_sm90_test
