// Pairs of convolutions in one kernel on a GPU: every config of some of them beside the oracle, exact on
// integers, NaN and infinities where it has them, the same bits in every run.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/backend/cuda.h"
#include "pair_oracle.h"

namespace convtune::pair_gpu_test {
namespace {

using pairs::Data, pairs::PairCase, pairs::pair_fault;

constexpr Device kGpu{Device::Kind::cuda, 0};

std::vector<PairProblem> problems(std::int64_t c) {
  std::vector<PairProblem> all;
  for (const std::int64_t t : {1, 63, 300})
    for (const std::int64_t taps : {3, 11})
      all.push_back({.dtype = taps == 3 ? DType::f16 : DType::bf16,
                     .n = t == 63 ? 3 : 1,
                     .c = c,
                     .t = t,
                     .first_taps = taps,
                     .dilation = t == 1 ? 1 : 5,
                     .second_taps = t == 63 ? 1 : taps,
                     .activation = t == 63 ? PairActivation::snake : PairActivation::leaky_relu,
                     .slope = 0.25f});
  return all;
}

// One test a number of channels, so that several run beside each other, and one alone under a tool.
class PairOnGpu : public testing::TestWithParam<std::int64_t> {};

TEST_P(PairOnGpu, EveryConfigIsAsTheOracle) {
  if (cuda::devices().empty() || cuda::devices().front().isa != "sm_90a")
    GTEST_SKIP() << "there is no Hopper";
  Backend& gpu = cuda::backend(kGpu);
  for (const PairProblem& problem : problems(GetParam())) {
    std::vector<Config> configs;
    try {
      configs = pair_configs(problem, kGpu);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported);
      EXPECT_GE(problem.c, 384) << to_string(problem) << " " << error.what();
      continue;
    }
    const PairCase integer(problem, Data::integer, 5), real(problem, Data::real, 6),
        special(problem, Data::non_finite, 5);
    for (const Config& config : configs) {
      const Pair pair = plan_pair(problem, kGpu, config);
      const std::string what = fmt::format("{} with {}", to_string(problem), to_string(config));
      for (int run = 0; run < 2; ++run) EXPECT_EQ(pair_fault(pair, gpu, integer), "") << what;
      EXPECT_EQ(pair_fault(pair, gpu, real), "") << what;
      EXPECT_EQ(pair_fault(pair, gpu, special), "") << what;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(OfChannels, PairOnGpu, testing::Values(32, 64, 96, 128, 192, 256, 384, 512),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace convtune::pair_gpu_test
