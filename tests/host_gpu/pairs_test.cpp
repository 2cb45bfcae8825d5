// Pairs of convolutions in one kernel, executed here: exact on integers in several modes, NaN and infinities
// where the oracle has them, and real numbers within rounding.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda/backend/cuda.h"
#include "pair_oracle.h"
#include "stand_ins.h"

namespace convtune::pairs_test {
namespace {

using pairs::Data, pairs::pair_fault;

constexpr Device kGpu{Device::Kind::cuda, 0};

// Tiles shorter than the tensor and longer, all that taps and dilations may be, channels in chunks of 64 and
// of 32, both types.
std::vector<PairProblem> problems() {
  constexpr float kSlope = 0.25f;
  const auto leaky = [](std::int64_t c, std::int64_t t, std::int64_t first, std::int64_t dilation,
                        std::int64_t second, DType type = DType::bf16, std::int64_t n = 1) {
    return PairProblem{.dtype = type,
                       .n = n,
                       .c = c,
                       .t = t,
                       .first_taps = first,
                       .dilation = dilation,
                       .second_taps = second,
                       .slope = kSlope};
  };
  const auto snake = [&](std::int64_t c, std::int64_t t, std::int64_t first, std::int64_t dilation,
                         std::int64_t second, DType type = DType::bf16) {
    PairProblem problem = leaky(c, t, first, dilation, second, type);
    problem.activation = PairActivation::snake;
    return problem;
  };
  const auto behind = [](PairProblem problem, Snake where) {
    problem.snake = where;
    return problem;
  };
  const auto given = [](PairProblem problem) {
    problem.activated = true;
    return problem;
  };
  return {behind(snake(96, 130, 7, 9, 1), Snake::after),
          behind(snake(192, 70, 7, 3, 1, DType::f16), Snake::beside),
          given(behind(snake(192, 100, 7, 9, 1), Snake::beside)),
          given(snake(96, 70, 7, 3, 1)),
          given(leaky(64, 118, 3, 5, 1, DType::f16, 2)),
          snake(96, 130, 7, 9, 1),
          snake(64, 70, 7, 3, 1, DType::f16),
          snake(192, 30, 3, 1, 3),
          leaky(32, 300, 3, 1, 3),
          leaky(32, 130, 11, 5, 11),
          leaky(64, 200, 7, 3, 7),
          leaky(64, 5, 11, 5, 11),
          leaky(64, 118, 3, 5, 1, DType::f16, 2),
          leaky(96, 61, 7, 9, 1),
          leaky(128, 130, 3, 3, 11),
          leaky(192, 40, 3, 1, 3),
          leaky(160, 40, 3, 3, 3),
          leaky(320, 20, 3, 2, 1),
          leaky(384, 30, 3, 1, 1),
          leaky(512, 20, 3, 1, 3),
          leaky(256, 70, 3, 5, 3)};
}

class HostPair : public testing::Test {
 protected:
  void SetUp() override {
    host_gpu_tests::set_mode("late watch");
    if (!host_gpu_tests::device_words().empty()) GTEST_SKIP() << "pairs are for 9.0";
  }
  Backend& gpu() { return cuda::backend(kGpu); }
};

TEST_F(HostPair, IsExactInEveryModeAndConfig) {
  for (const PairProblem& problem : problems()) {
    const auto configs = pair_configs(problem, kGpu);
    for (const std::size_t i : std::set<std::size_t>{0, configs.size() - 1}) {
      const Pair pair = plan_pair(problem, kGpu, configs[i]);
      for (const char* mode : {"late watch", "shuffled watch nan seed=1"}) {
        host_gpu_tests::set_mode(mode);
        EXPECT_EQ(pair_fault(pair, gpu(), Data::integer, 5), "")
            << to_string(problem) << " with " << to_string(configs[i]) << " in " << mode;
      }
    }
  }
}

// One kernel: positions and dilation are arguments.
TEST_F(HostPair, TakesAnyNumberOfPositionsAndAnyDilation) {
  PairProblem problem = problems().back();
  problem.c = 64, problem.first_taps = 7, problem.second_taps = 3;
  for (const char* config :
       {"consumers=1 parts=1 depth=64 stages=3", "consumers=2 parts=2 depth=32 stages=4"})
    for (const std::int64_t t : {1, 2, 31, 61, 62, 63, 64, 65, 124, 125, 126, 127, 190})
      for (const std::int64_t dilation : {1, 2, 9}) {
        problem.t = t, problem.dilation = dilation;
        const Pair pair = plan_pair(problem, kGpu, parse_config(config));
        host_gpu_tests::set_mode(t % 2 == 0 ? "eager backwards watch" : "shuffled watch seed=3");
        EXPECT_EQ(pair_fault(pair, gpu(), Data::integer, 5), "") << to_string(problem) << " with " << config;
      }
}

TEST_F(HostPair, SpreadsNanAndInfinityAsTwoConvolutionsDo) {
  for (const PairProblem& problem : problems()) {
    if (problem.flops() > 40e6) continue;
    const Pair pair = plan_pair(problem, kGpu);
    for (const std::uint64_t seed : {3, 4, 5})
      EXPECT_EQ(pair_fault(pair, gpu(), Data::non_finite, seed), "") << to_string(problem) << " " << seed;
  }
}

TEST_F(HostPair, IsWithinRoundingOnRealNumbers) {
  for (const PairProblem& problem : problems())
    EXPECT_EQ(pair_fault(plan_pair(problem, kGpu), gpu(), Data::real, 5), "") << to_string(problem);
}

TEST_F(HostPair, RefusesWhatItWouldReadWrongly) {
  const Pair pair = plan_pair({.c = 32, .t = 64}, kGpu);
  const auto memory = gpu().allocate(pair.packed_bytes());
  auto* const at = static_cast<std::byte*>(memory.get());
  const auto refused = [](const auto& work) {
    try {
      work();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::invalid_argument;
    }
    return false;
  };
  EXPECT_TRUE(refused([&] { pair.run(at, at, at); }));
  EXPECT_TRUE(refused([&] { pair.pack({.first = at, .first_bias = at + 1, .second = at}, at); }));
  EXPECT_TRUE(refused([&] { pair.pack({.first = at, .second = at, .second_bias = at + 1}, at); }));
}

}  // namespace
}  // namespace convtune::pairs_test
