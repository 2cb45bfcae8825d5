// The gradient of weights: exact on integers with every register tile, special numbers as the oracle has
// them, the same bits for any number of threads, and memory refused in time.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "base/random_bits.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_candidates.h"
#include "cpu/algorithms/implicit_gemm_wgrad/wgrad_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/instruction_sets.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"
#include "problem/random_problem.h"

namespace convtune::implicit_gemm_wgrad_test {
namespace {

using cpu::WgradConfig;

DeviceInfo info(int threads = cpu::backend().info().units) {
  DeviceInfo device = cpu::backend().info();
  device.units = threads;
  return device;
}

const Algorithm& wgrad() {
  return cpu::implicit_gemm_wgrad();
}

// Rests of vectors and words, strides, dilations, padding on one side, groups, depthwise, three dimensions.
const char* const kProblems[] = {"mb2ic3ih9iw11oc7kh3sh2ph1",
                                 "mb3ic37ih6iw5oc19kh3ph1 layout=nhwc",
                                 "mb1ic5ih12iw7oc33kh2kw3ph0pw2 pad_right=0",
                                 "mb2ic8ih7oc16kh3ph2dh1 dtype=bf16 bias=0",
                                 "mb2g3ic12ih8oc15kh3ph1",
                                 "mb2g20ic20ih9iw8oc20kh5ph2",
                                 "mb1g35ic35ih6iw7oc35kh3sh2ph1 layout=nhwc dtype=f16",
                                 "mb2ic17ih4oc9kh1",
                                 "mb1ic6id4ih5iw6oc9kd3kh3kw3pd1ph1pw1",
                                 "mb2ic4id3ih4iw4oc5kd2kh1kw2 layout=nhwc",
                                 "mb2ic2ih2oc3kh5ph4",
                                 "mb1g4ic4iw60oc4kw31pw30 pad_right=0",
                                 "mb2g2ic2ih5oc6kh3"};

ConvProblem problem_of(const char* text) {
  return parse_problem(std::string(text) + " dir=bwd_w");
}

std::string failure(const ConvProblem& problem, const Config& config, TestData data = TestData::integer) {
  Testbed bed(problem, cpu::backend(), data, 7, 0);
  return bed.check(*wgrad().build(problem, info(), config)).failure;
}

TEST(ImplicitGemmWgrad, IsExactWithEveryRegisterTile) {
  int checked = 0;
  for (const char* const text : kProblems) {
    const ConvProblem problem = problem_of(text);
    ASSERT_TRUE(wgrad().supports(problem, info())) << text;
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (int vectors = 1; vectors <= cpu::kMaxEachVectors; ++vectors)
        for (int words = 0; words <= 1; ++words)
          for (const auto& [rows, filters, splits] : {std::tuple{1, 0, 1}, {3, 8, 3}, {1 << 30, 1, 40}}) {
            const WgradConfig config{bits, vectors, words, rows, filters, splits};
            if (!wgrad().accepts(problem, info(), to_config(config))) continue;
            EXPECT_EQ(failure(problem, to_config(config)), "")
                << text << " with " << to_string(to_config(config));
            ++checked;
          }
  }
  EXPECT_GT(checked, 200);
}

TEST(ImplicitGemmWgrad, IsExactOnRandomProblems) {
  int checked = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    const ConvProblem problem = random_problem_of_any_kind(11, i);
    if (problem.direction != Direction::backward_weights) continue;
    ASSERT_TRUE(wgrad().supports(problem, info())) << to_string(problem);
    const std::vector<Config> offered = wgrad().candidates(problem, info());
    ASSERT_FALSE(offered.empty()) << to_string(problem);
    const Config& config = offered[random_bits(23, i) % offered.size()];
    EXPECT_EQ(failure(problem, config), "") << to_string(problem) << " with " << to_string(config);
    ++checked;
  }
  EXPECT_GT(checked, 20);
}

TEST(ImplicitGemmWgrad, OffersEachConfigOnce) {
  for (const char* const text : kProblems) {
    const std::vector<Config> offered = wgrad().candidates(problem_of(text), info());
    std::set<std::string> texts;
    for (const Config& config : offered) texts.insert(to_string(config));
    EXPECT_EQ(texts.size(), offered.size()) << text;
  }
}

// dw and dbias of tensors with numbers of all sizes.
std::vector<float> result(const ConvProblem& problem, const WgradConfig& config, int threads) {
  std::vector<float> x(static_cast<std::size_t>(problem.input_elements())),
      dy(static_cast<std::size_t>(problem.output_elements()));
  for (std::vector<float>* tensor : {&x, &dy})
    for (std::size_t i = 0; i < tensor->size(); ++i)
      (*tensor)[i] = std::ldexp(static_cast<float>(random_bits(tensor == &x, i) % 2048) / 1024 - 1,
                                static_cast<int>(random_bits(5, i) % 9));
  std::vector<float> both(static_cast<std::size_t>(problem.weight_elements() + problem.k));
  wgrad()
      .build(problem, info(threads), to_config(config))
      ->run({.x = x.data(),
             .dy = dy.data(),
             .dw = both.data(),
             .dbias = both.data() + problem.weight_elements()},
            nullptr, nullptr);
  return both;
}

TEST(ImplicitGemmWgrad, HasTheSameBitsForAnyNumberOfThreads) {
  for (const char* const text : {"mb3ic20ih13oc24kh3ph1", "mb4g24ic24ih11oc24kh3ph1 layout=nhwc"})
    for (const int splits : {1, 5}) {
      const ConvProblem problem = problem_of(text);
      const WgradConfig config{cpu::widest_vector_bits(info()), 1, 0, 2, 8, splits};
      const std::vector<float> expected = result(problem, config, 1);
      for (const int threads : {2, 3, 16})
        EXPECT_EQ(result(problem, config, threads), expected) << text << ", " << threads << " threads";
    }
}

// Padding is never multiplied, and what fills a register tile up reaches no weight.
TEST(ImplicitGemmWgrad, SpreadsInfinitiesToTheWeightsThatMeetThem) {
  const ConvProblem problem = problem_of("mb1ic2ih3oc2kh3ph1 bias=0");
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x(18, 1), dy(18, 0), dw(36);
  dy[0] = inf;  // filter 0's corner: taps above and left of it are padding
  wgrad()
      .build(problem, info(), wgrad().candidates(problem, info()).front())
      ->run({.x = x.data(), .dy = dy.data(), .dw = dw.data()}, nullptr, nullptr);
  for (std::size_t i = 0; i < dw.size(); ++i) {
    const std::size_t filter = i / 18, row = i % 9 / 3, column = i % 3;
    if (filter == 1)
      EXPECT_EQ(dw[i], 0);
    else if (row > 0 && column > 0)
      EXPECT_EQ(dw[i], inf);
    else
      EXPECT_EQ(dw[i], 0) << i;
  }
}

TEST(ImplicitGemmWgrad, GivesZerosOverNoImages) {
  const ConvProblem problem = problem_of("mb0ic3ih5oc4kh3");
  for (const float one : result(problem, {cpu::widest_vector_bits(info())}, 2)) EXPECT_EQ(one, 0);
}

TEST(ImplicitGemmWgrad, RefusesWhatItCannotRun) {
  const auto refusal = [](const char* text, const WgradConfig& config) {
    return wgrad().accepts(parse_problem(text), info(), to_config(config)).reason();
  };
  const char* const body = "mb1ic3ih5oc4kh3 dir=bwd_w";
  EXPECT_NE(refusal("mb1ic3ih5oc4kh3", {128}).find("it computes bwd_w only"), std::string::npos);
  EXPECT_NE(refusal(body, {.vector_bits = 128, .vectors = 4}).find("at most 3"), std::string::npos);
  EXPECT_NE(refusal(body, {.vector_bits = 192}).find("192"), std::string::npos);
  EXPECT_NE(refusal("g4mb1ic4ih5oc4kh3 dir=bwd_w", {.vector_bits = 128, .words = 1}).find("words is 0"),
            std::string::npos);
  EXPECT_NE(refusal("mb1ic4096ih5oc4096kh3 dir=bwd_w", {.vector_bits = 128, .filters = 32, .splits = 8})
                .find("64 MiB"),
            std::string::npos);
  const ConvProblem wide = parse_problem("mb1ic64ih1048576oc64kh3ph1 dir=bwd_w");
  EXPECT_NE(wgrad().supports(wide, info()).reason().find("MiB of working memory"), std::string::npos);
}

}  // namespace
}  // namespace convtune::implicit_gemm_wgrad_test
