// Snakes behind sums: of what is stored and beside it, where blocks share sums and where not, with residuals,
// between each other, rounded once and eagerly, in rows that begin anywhere.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "cuda/algorithms/algorithms.h"
#include "cuda/backend/cuda.h"
#include "kernel_expectations.h"
#include "measure/test_data.h"
#include "plan/algorithms.h"
#include "problem/random_problem.h"
#include "stand_ins.h"

namespace convtune::snakes_test {
namespace {

struct Case {
  const char *problem, *config;
};
const std::vector<Case> kCases = {
    {"mb1ic64ih1iw70oc72kh1kw7ph0pw3",
     "consumers=1 row_blocks=1 filters=64 channels=64 stages=3 ping_pong=0 cluster=1 split=4"},
    {"mb2ic64ih1iw40oc96kh1kw7ph0pw9dh0dw2 residual=1",
     "consumers=1 row_blocks=1 filters=96 channels=64 stages=4 ping_pong=0 cluster=1 split=2"},
    {"mb1ic128ih1iw64oc64kh1 residual=1",
     "consumers=1 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=2"},
    {"mb2ic64ih9iw11oc200kh3ph1",
     "consumers=2 row_blocks=1 filters=208 channels=64 stages=2 ping_pong=0 cluster=1 split=1"},
    {"mb2ic64ih9iw11oc136kh3ph1 residual=1",
     "consumers=2 row_blocks=1 filters=48 channels=64 stages=3 ping_pong=1 cluster=2 split=1"},
    {"mb2ic32ih5iw7oc20kh3ph1 residual=1",  // rows of y begin anywhere
     "consumers=2 row_blocks=1 filters=24 channels=32 stages=3 ping_pong=0 cluster=1 split=1"},
    {"mb2ic64ih1iw128oc96kh1kw4sh1sw2ph0pw1 dir=bwd_d bias=1",
     "consumers=1 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=1"},
    {"mb1ic32ih1iw160oc64kh1kw16sh1sw8ph0pw4 dir=bwd_d bias=1 residual=1",
     "consumers=1 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=2"},
    {"mb1ic64ih1iw70oc72kh1kw7ph0pw3 rounding=eager",
     "consumers=1 row_blocks=1 filters=80 channels=64 stages=3 ping_pong=0 cluster=1 split=4"},
    {"mb2g2ic128ih5iw7oc128kh3ph1 residual=1",
     "consumers=2 row_blocks=2 filters=64 channels=64 stages=2 ping_pong=0 cluster=1 split=1"},
    {"mb2ic64ih5iw7oc72kh3ph1 residual=1",  // of a kernel for more images
     "consumers=1 row_blocks=1 filters=80 channels=64 stages=3 ping_pong=0 cluster=1 split=1 most_images=5"}};

TEST(SnakesBehindSums, AreThoseOfTheOracle) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  if (!host_gpu_tests::device_words().empty()) GTEST_SKIP() << "kernels for 9.0";
  const Algorithm& gemm = cuda::implicit_gemm_half_sm90();
  bool beside = false;  // by turns
  for (const Case& one : kCases) {
    beside = !beside;
    const char* const more = beside ? " dtype=f16 precision=fp16 snake=beside"
                                    : " dtype=bf16:bf16:bf16:f32 precision=bf16 snake=after";
    const ConvProblem problem = parse_problem(one.problem + std::string(more) + " layout=nhwc");
    const Support support = gemm.supports(problem, gpu.info());
    ASSERT_TRUE(support) << support.reason();
    const auto executable = gemm.build(problem, gpu.info(), parse_config(one.config));
    for (const std::uint64_t number : {5, 6, 7})
      for (const TestData data : {TestData::integer, TestData::non_finite, TestData::real}) {
        if (data != TestData::non_finite && number > 5) continue;
        host_gpu_tests::set_mode(number == 5 ? "late watch" : "shuffled watch nan seed=1");
        Testbed bed(problem, gpu, data, number, 0);
        EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "") << to_string(problem) << " " << one.config;
      }
  }
}

// All others refuse what they would leave out, the vendor's and those for any problem too.
TEST(SnakesBehindSums, AreOfOneKernelAndOfTheReference) {
  const DeviceInfo& device = cuda::backend({Device::Kind::cuda, 0}).info();
  for (const char* line :
       {"mb1ic64ih1iw70oc72kh1kw7ph0pw3 layout=nhwc snake=after",
        "mb1ic64ih1iw70oc72kh1kw7ph0pw3 layout=nhwc dtype=bf16 precision=bf16 snake=beside",
        "mb1ic64ih8oc72kh4sh2ph1 layout=nhwc dtype=bf16 precision=bf16 dir=bwd_d bias=1 snake=after"})
    for (const auto kind : {Device::Kind::cuda, Device::Kind::cpu})
      for (const Algorithm* one : algorithms(kind)) {
        const bool may = one->name() == "implicit_gemm_half_sm90" || one->name() == "reference";
        const DeviceInfo& info = kind == Device::Kind::cuda ? device : backend({kind, 0}).info();
        if (!may) {
          EXPECT_FALSE(one->supports(parse_problem(line), info)) << one->name() << " " << line;
        }
      }
}

// As above, by problems that each of them takes without one.
TEST(SnakesBehindSums, AreRefusedWhateverElseTheProblemHas) {
  std::set<std::string_view> able;
  for (const auto kind : {Device::Kind::cuda, Device::Kind::cpu}) {
    const DeviceInfo& info = backend({kind, 0}).info();
    for (std::uint64_t index = 0; index < 300; ++index) {
      ConvProblem problem = random_problem_of_any_kind(29, index);
      if (problem.direction == Direction::backward_weights) continue;
      problem.bias = true, problem.activation = Activation::none, problem.alpha = problem.beta = 0;
      for (const Algorithm* one : algorithms(kind)) {
        if (one->name() == "implicit_gemm_half_sm90" || one->name() == "reference") continue;
        if (index < 60 && one->supports(problem, info)) able.insert(one->name());
        ConvProblem snaked = problem;
        snaked.snake = index % 2 == 0 ? Snake::after : Snake::beside;
        validate(snaked);
        EXPECT_FALSE(one->supports(snaked, info)) << one->name() << " " << to_string(snaked);
      }
    }
  }
  EXPECT_GT(able.size(), 5U);
}

TEST(SnakesBehindSums, AreOfRowsThatComeLastAndWithoutBareOutputs) {
  const DeviceInfo& device = cuda::backend({Device::Kind::cuda, 0}).info();
  const Algorithm& gemm = cuda::implicit_gemm_half_sm90();
  ConvProblem problem =
      parse_problem("mb1ic64ih1iw70oc72kh1kw7ph0pw3 dtype=bf16 precision=bf16 layout=nhwc snake=after");
  if (!host_gpu_tests::device_words().empty()) GTEST_SKIP() << "kernels for 9.0";
  ASSERT_TRUE(gemm.supports(problem, device));
  problem.layout = Layout::nchw;
  EXPECT_FALSE(gemm.supports(problem, device));
  problem = parse_problem(
      "mb1ic64ih1iw128oc64kh1kw2sh1sw4ph0 dir=bwd_d bias=1 dtype=bf16 precision=bf16 layout=nhwc");
  EXPECT_TRUE(gemm.supports(problem, device));
  problem.snake = Snake::beside;
  EXPECT_FALSE(gemm.supports(problem, device));
}

}  // namespace
}  // namespace convtune::snakes_test
