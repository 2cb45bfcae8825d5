// The direct patch kernel without a GPU: geometry, refusals, and that what is offered compiles without spills
// into the threads and shared memory that were planned.

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "cuda/algorithms/direct_patch_sm90/config.h"
#include "kernel_expectations.h"

namespace convtune {
namespace {

std::vector<Config> candidates(const Conv2dProblem& problem) {
  return cuda::direct_patch_sm90().candidates(problem, gpu());
}

Conv2dExtents patches(int n, int c, int side, int p, int q, int k) {
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
  const auto reason = [](const std::string& text, ComputeCapability capability = {9, 0}) {
    return cuda::direct_patch_sm90().supports(parse_problem(text), gpu(capability)).reason();
  };
  EXPECT_EQ(reason("mb2ic3ih64oc64kh16sh16 precision=tf32"), "");
  EXPECT_EQ(reason("mb2ic3ih64oc10kh8sh8 precision=bf16"), "");
  EXPECT_NE(reason("mb2ic3ih64oc64kh16sh16 precision=tf32", {8, 0}).find("this is 8.0"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih64oc64kh16sh16 precision=fp32").find("fp32"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih64oc64kh16sh16 precision=tf32 layout=nhwc").find("NCHW"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih64oc64kh16sh16 dtype=f16 precision=fp16").find("f32"), std::string::npos);
  for (const char* text :
       {"mb2ic3ih64oc64kh16sh8 precision=tf32", "mb2ic3ih64oc64kh16sh16ph1 precision=tf32",
        "g3mb2ic3ih64oc66kh16sh16 precision=tf32", "mb2ic3ih70oc64kh14sh14 precision=tf32",
        "mb2ic3ih65oc64kh16sh16 precision=tf32", "mb2ic3ih64oc64kh16sh16dh1 precision=tf32"})
    EXPECT_NE(reason(text).find("patches"), std::string::npos) << text;
  EXPECT_NE(reason("mb2ic3ih64iw200000oc64kh16sh16 precision=tf32").find("rows of 200000"),
            std::string::npos);
}

TEST(DirectPatchSm90, TakesNoConfigFromOutsideThatIsNotItsOwn) {
  const Conv2dProblem problem = tf32("vit_b16_patchify");
  const auto accepts = [&](const std::string& text) {
    return static_cast<bool>(cuda::direct_patch_sm90().accepts(problem, gpu(), parse_config(text)));
  };
  EXPECT_TRUE(accepts("consumers=3 filters=192 rows=1 stages=7"));
  for (const char* bad :
       {"consumers=4 filters=192 rows=1 stages=4", "consumers=0 filters=192 rows=1 stages=4",
        "consumers=3 filters=224 rows=1 stages=4", "consumers=2 filters=288 rows=1 stages=4",
        "consumers=2 filters=100 rows=1 stages=4", "consumers=2 filters=0 rows=1 stages=4",
        "consumers=2 filters=64 rows=3 stages=4", "consumers=2 filters=64 rows=8 stages=2",
        "consumers=3 filters=192 rows=1 stages=8", "consumers=2 filters=64 rows=1 stages=1",
        "consumers=2 filters=64 rows=1 stages=4 slots=2", "consumers=2 filters=64 rows=1",
        "consumers=2 filters=64 rows=4294967297 stages=4"})
    EXPECT_FALSE(accepts(bad)) << bad;
}

TEST(DirectPatchSm90, OffersWhatItAccepts) {
  for (const char* text : {"vit_b16_patchify", "convnext_patchify", "mb1ic3ih32oc16kh16sh16",
                           "mb64ic3ih224oc768kh32sh32", "mb2ic3ih384oc1024kh16sh16"}) {
    const Conv2dProblem problem = tf32(text);
    const std::vector<Config> configs = candidates(problem);
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : configs)
      EXPECT_TRUE(cuda::direct_patch_sm90().accepts(problem, gpu(), config)) << to_string(config);
  }
}

// The first guess and the configs with the most registers of sums and of a stage.
TEST(DirectPatchSm90, CompilesAsPlanned) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  const Conv2dProblem vit = tf32("vit_b16_patchify"), odd = tf32("mb3ic5ih37iw64oc70kh8sh8 act=relu bias=0");
  std::vector<cuda::CompileJob> jobs;
  std::vector<int> threads;
  const auto add = [&](const Conv2dProblem& problem, const Config& config) {
    const auto kernel = kernel_of<DirectPatchSm90>(problem, config);
    ASSERT_TRUE(kernel.valid(227 * 1024));
    jobs.push_back(job_of(cuda::direct_patch_sm90(), problem, config));
    threads.push_back(kernel.threads());
  };
  add(vit, candidates(vit).front());
  for (const char* config :
       {"consumers=3 filters=192 rows=1 stages=7", "consumers=3 filters=192 rows=2 stages=3",
        "consumers=2 filters=256 rows=2 stages=3"})
    add(vit, parse_config(config));
  add(odd, candidates(odd).back());
  expect_compiles(jobs, threads);
}

}  // namespace
}  // namespace convtune
