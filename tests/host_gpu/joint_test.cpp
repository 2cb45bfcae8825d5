// Gradients of weights in one launch: right, with a bias, where filters, channels and taps do not fill tiles;
// and in NCHW, by planes and by images.
#include <gtest/gtest.h>

#include <span>

#include "cuda/algorithms/algorithms.h"
#include "cuda/algorithms/gradients.h"
#include "kernel_problems.h"
#include "problem/config_fields.h"
#include "stand_ins.h"

namespace convtune::joint_test {
namespace {

struct Case {
  const char *problem, *config;
};
constexpr Case kCases[] = {
    {"mb2ic96ih10iw13oc136kh3ph1",
     "filter_groups=1 column_groups=3 row_blocks=1 columns=96 pixels=64 window=5 stages=3 blocks=3 whole=9 "
     "early=0 joint=1"},
    {"mb2ic72ih10oc136kh3ph1",
     "filter_groups=1 column_groups=2 row_blocks=2 columns=128 pixels=64 window=0 stages=4 blocks=10 whole=0 "
     "early=0 joint=1"},
    {"mb2ic72ih10oc72kh3sh2ph1",
     "filter_groups=2 column_groups=1 row_blocks=1 columns=192 pixels=64 window=0 stages=5 blocks=6 whole=0 "
     "early=0 joint=1"},
    {"mb2ic136ih10oc72kh1",
     "filter_groups=2 column_groups=1 row_blocks=1 columns=192 pixels=64 window=0 stages=5 blocks=1 whole=0 "
     "early=0 joint=1"}};
constexpr Case kPlanes[] = {
    {"mb2ic72ih12oc72kh3ph1",
     "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 window=5 stages=2 blocks=2 whole=4 "
     "early=0 joint=1"},
    {"mb3ic72ih7oc72kh3ph1",
     "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 window=7 stages=2 blocks=3 whole=4 "
     "early=0 joint=1"}};

void expect_those_of_the_oracle(const Algorithm& algorithm, std::span<const Case> cases, const char* layout) {
  if (!host_gpu_tests::device_words().empty()) GTEST_SKIP() << "kernels for 9.0";
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  for (const Case& one : cases) {
    const ConvProblem problem =
        parse_problem(std::string(one.problem) + " dtype=bf16 precision=bf16 dir=bwd_w layout=" + layout);
    ASSERT_TRUE(algorithm.supports(problem, gpu.info())) << one.problem;
    ASSERT_TRUE(algorithm.accepts(problem, gpu.info(), parse_config(one.config))) << one.problem;
    const auto executable = algorithm.build(problem, gpu.info(), parse_config(one.config));
    for (const TestData data : {TestData::integer, TestData::non_finite}) {
      Testbed bed(problem, gpu, data, 5, 0);
      for (const char* mode : {"late", "shuffled watch nan seed=1"}) {
        host_gpu_tests::set_mode(mode);
        EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "") << one.problem << " " << mode;
      }
    }
  }
}

TEST(JointGradients, AreThoseOfTheOracle) {
  expect_those_of_the_oracle(cuda::weight_gradient_half_sm90(), kCases, "nhwc");
}

TEST(JointGradients, OfPlanesAreThoseOfTheOracle) {
  expect_those_of_the_oracle(cuda::weight_gradient_half_nchw_sm90(), kPlanes, "nchw");
}

}  // namespace
}  // namespace convtune::joint_test
