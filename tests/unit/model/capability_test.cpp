// The table of compute capabilities: its limits as published, what stands in for one that it lacks, and that
// every algorithm goes by it.
#include <gtest/gtest.h>

#include <set>

#include "convtune/cases.h"
#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compiler.h"
#include "cuda/cudnn/cudnn.h"
#include "cuda/launch/kernel_algorithm.h"
#include "model/capability_facts.h"
#include "model/target_of.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "problem/config_fields.h"

namespace convtune::capability_test {
namespace {

constexpr int kKiB = 1024;
constexpr ComputeCapability kAboveAll = {99, 0};

DeviceInfo gpu(ComputeCapability capability) {
  return device_of(typical_target(capability, 100));
}

// "CUDA C++ Programming Guide", table "Technical Specifications per Compute Capability".
TEST(Capability, LimitsAreAsPublished) {
  struct Row {
    ComputeCapability capability;
    int threads, blocks, smem_kib;
  };
  for (const Row& row : {Row{{8, 0}, 2048, 32, 164},
                         {{8, 6}, 1536, 16, 100},
                         {{8, 7}, 1536, 16, 164},
                         {{8, 8}, 1536, 16, 100},
                         {{8, 9}, 1536, 24, 100},
                         {{9, 0}, 2048, 32, 228},
                         {{10, 0}, 2048, 32, 228},
                         {{10, 3}, 2048, 32, 228},
                         {{11, 0}, 1536, 24, 228},
                         {{12, 0}, 1536, 24, 100},
                         {{12, 1}, 1536, 24, 100}}) {
    const Target target = target_of(gpu(row.capability));
    EXPECT_EQ(target.capability, row.capability);
    EXPECT_EQ(target.threads_per_multiprocessor, row.threads) << to_string(row.capability);
    EXPECT_EQ(target.warps_per_multiprocessor, row.threads / 32) << to_string(row.capability);
    EXPECT_EQ(target.blocks_per_multiprocessor, row.blocks) << to_string(row.capability);
    EXPECT_EQ(target.smem_per_multiprocessor, row.smem_kib * kKiB) << to_string(row.capability);
    EXPECT_EQ(target.smem_per_block, (row.smem_kib - 1) * kKiB) << to_string(row.capability);
  }
  EXPECT_EQ(smem_per_block_anywhere(), 99 * kKiB);
}

TEST(Capability, ReadsWhatItWrites) {
  EXPECT_EQ(parse_capability("8.9"), (ComputeCapability{8, 9}));
  EXPECT_EQ(parse_capability(to_string(ComputeCapability{12, 0})), (ComputeCapability{12, 0}));
  for (const char* wrong : {"", "8", "8.", ".9", "8.9.1", "-8.9", "8.+9", " 8.9", "8,9", "sm_89", "100.0"})
    EXPECT_FALSE(parse_capability(wrong)) << wrong;
}

TEST(Capability, NamesForTheCompilers) {
  EXPECT_EQ(isa_of({8, 9}), "sm_89");
  EXPECT_EQ(isa_of({9, 0}), "sm_90a");
  EXPECT_EQ(isa_of({10, 3}), "sm_103a");
  EXPECT_EQ(isa_of({12, 1}), "sm_121");
  EXPECT_EQ(virtual_isa_of({9, 0}), "compute_90a");
  EXPECT_EQ(to_string(ComputeCapability{12, 1}), "12.1");
}

// But instructions of one capability alone are nobody else's.
TEST(Capability, UnknownOnesAreTheNearestBelow) {
  const auto expect_like = [](ComputeCapability unknown, ComputeCapability known) {
    CapabilityFacts facts = capability_facts(unknown);
    const CapabilityFacts like = capability_facts(known);
    EXPECT_EQ(facts.capability, unknown);
    EXPECT_EQ(facts.threads, like.threads) << to_string(unknown);
    EXPECT_EQ(facts.blocks, like.blocks) << to_string(unknown);
    EXPECT_EQ(facts.smem_kib, like.smem_kib) << to_string(unknown);
    EXPECT_EQ(facts.l2_bytes_per_cycle, like.l2_bytes_per_cycle) << to_string(unknown);
    EXPECT_EQ(facts.typical, like.typical) << to_string(unknown);
    EXPECT_FALSE(facts.wgmma) << to_string(unknown);
    EXPECT_EQ(facts.isa_suffix, "") << to_string(unknown);
  };
  expect_like({8, 1}, {8, 0});
  expect_like({9, 9}, {9, 0});
  expect_like({10, 2}, {10, 1});
  expect_like({11, 7}, {11, 0});
  expect_like(kAboveAll, capability_table().back().capability);
  expect_like({7, 5}, {8, 0});  // nothing is below
  EXPECT_TRUE(capability_facts({9, 0}).wgmma);
}

// Whatever each algorithm offers and accepts on each capability fits a block and a multiprocessor of it. What
// the largest offers tells whether smaller ones refuse.
TEST(Capability, NoAlgorithmExceedsTheTable) {
  std::set<ComputeCapability> capabilities = {{8, 5}, {9, 9}, kAboveAll};
  for (const CapabilityFacts& facts : capability_table()) capabilities.insert(facts.capability);
  for (const ComputeCapability capability : cuda::nvrtc_capabilities()) capabilities.insert(capability);
  std::vector<ConvProblem> problems;
  for (const char* const text :
       {"alexnet_conv1", "resnet_3x3_128", "vit_b16_patchify", "mobilenet_dw_3x3_144", "vgg_conv1_1"}) {
    problems.push_back(find_problem(text));
    problems.back().precision = Precision::tf32;
  }
  problems.push_back(problems[3]);
  problems.back().layout = Layout::nhwc;
  for (const ConvProblem& problem : problems)
    for (const Algorithm* const algorithm : algorithms(Device::Kind::cuda)) {
      if (algorithm->vendor() || algorithm->reference()) continue;
      const std::vector<Config> largest = algorithm->candidates(problem, gpu({9, 0}));
      for (const ComputeCapability capability : capabilities) {
        const DeviceInfo device = gpu(capability);
        const CapabilityFacts facts = capability_facts(capability);
        std::vector<Config> configs = algorithm->candidates(problem, device);
        for (const Config& config : configs)
          EXPECT_TRUE(algorithm->accepts(problem, device, config)) << to_string(config);
        for (const Config& config : largest)
          if (algorithm->accepts(problem, device, config)) configs.push_back(config);
        for (const Config& config : configs) {
          const cuda::LaunchPlan plan = cuda::kernel_algorithm(*algorithm)->plan(problem, device, config);
          const cuda::KernelLaunch& launch = plan.kernel_launch();
          const bool fits = static_cast<std::int64_t>(launch.dynamic_smem_bytes) <= facts.smem_per_block() &&
                            plan.resident_blocks * static_cast<int>(launch.block.x) <= facts.threads &&
                            plan.resident_blocks <= facts.blocks;
          ASSERT_TRUE(fits) << to_string(capability) << " " << algorithm->name() << " " << to_string(config);
        }
      }
    }
}

// 114 KiB of staged outputs.
TEST(Capability, DirectFmaSm80GoesByTheSharedMemoryOfABlock) {
  const ConvProblem problem = parse_problem("mb1ic3ih224oc64kh3ph1 precision=fp32");
  const Config config =
      parse_config("rows=4 filters=4 down=1 units=1 chunks=8 passes=2 kept=0 uniform=0 staged=1");
  const auto support = [&](ComputeCapability capability) {
    return cuda::direct_fma_sm80().accepts(problem, gpu(capability), config);
  };
  for (const ComputeCapability capability :
       {ComputeCapability{8, 0}, {8, 7}, {9, 0}, {9, 9}, {10, 3}, {11, 0}})
    EXPECT_TRUE(support(capability)) << to_string(capability);
  for (const ComputeCapability capability : {ComputeCapability{8, 6}, {8, 8}, {8, 9}, {12, 0}, {12, 1}})
    EXPECT_NE(support(capability).reason().find("101376 bytes of shared memory"), std::string::npos)
        << to_string(capability);
  EXPECT_NE(support({7, 5}).reason().find("it needs compute capability 8.0, and this is 7.5"),
            std::string::npos);
}

}  // namespace
}  // namespace convtune::capability_test
