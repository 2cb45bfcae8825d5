// Gradients of weights in one launch, whose blocks wait for each other: beside each other, and one after the
// other, where each but the last goes and the last does all of its tile.
#include <gtest/gtest.h>

#include "cuda/algorithms/algorithms.h"
#include "kernel_problems.h"
#include "problem/config_fields.h"
#include "stand_ins.h"

namespace convtune::joint_test {
namespace {

struct Case {
  const char *problem, *config;
};
// Tiles of as many blocks each, of unequal shares, and whole ones before such; all taps of channels.
constexpr Case kCases[] = {
    {"mb2ic32ih10oc72kh3ph1",
     "filter_groups=1 column_groups=3 row_blocks=1 columns=96 pixels=64 window=5 stages=2 blocks=8 whole=0 "
     "early=1 joint=1"},
    {"mb2ic96ih9oc72kh3ph1",
     "filter_groups=1 column_groups=3 row_blocks=1 columns=96 pixels=64 window=3 stages=8 blocks=8 whole=0 "
     "early=0 joint=1"},
    {"mb1ic64ih6oc72kh3ph1",
     "filter_groups=1 column_groups=3 row_blocks=1 columns=96 pixels=64 window=1 stages=6 blocks=3 whole=3 "
     "early=0 joint=1"},
    {"mb2ic72ih10oc72kh3ph1",
     "filter_groups=1 column_groups=1 row_blocks=1 columns=192 pixels=64 window=0 stages=5 blocks=16 whole=0 "
     "early=0 joint=1"}};

TEST(JointGradients, AreRightHoweverBlocksRun) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  const Algorithm& algorithm = cuda::weight_gradient_half_sm90();
  for (const Case& one : kCases) {
    const ConvProblem problem =
        parse_problem(std::string(one.problem) + " dtype=bf16 precision=bf16 layout=nhwc dir=bwd_w");
    if (!algorithm.supports(problem, gpu.info())) GTEST_SKIP() << "kernels for 9.0";
    ASSERT_TRUE(algorithm.accepts(problem, gpu.info(), parse_config(one.config))) << one.problem;
    const auto executable = algorithm.build(problem, gpu.info(), parse_config(one.config));
    for (const TestData data : {TestData::integer, TestData::non_finite}) {
      Testbed bed(problem, gpu, data, 5, 0);
      for (const char* mode : {"late", "shuffled beside watch seed=1", "backwards beside seed=2"}) {
        host_gpu_tests::set_mode(mode);
        EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "") << one.problem << " " << mode;
      }
    }
  }
}

}  // namespace
}  // namespace convtune::joint_test
