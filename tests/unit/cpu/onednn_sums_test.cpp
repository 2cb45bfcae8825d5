// oneDNN's sums with our activations: against the oracle, on any kind of problem and number; concurrent runs.
#include "cpu/onednn/onednn_sums.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <thread>

#include "cpu/backend/cpu_backend.h"
#include "host_tensors.h"
#include "measure/testbed.h"
#include "problem/random_problem.h"

namespace convtune::onednn_sums_test {
namespace {

class OnednnSums : public testing::Test {
 protected:
  void SetUp() override {
    if (cpu::onednn_sums() == nullptr) GTEST_SKIP() << "no oneDNN";
  }
  const DeviceInfo& device() { return cpu::backend().info(); }
};

TEST_F(OnednnSums, EqualTheOracleOnProblemsAndNumbersOfAnyKind) {
  std::set<Activation> activations;
  int halves = 0, floats_and_residuals = 0, halves_and_residuals = 0, depths = 0;
  for (std::uint64_t i = 0; i < 1600; ++i) {
    ConvProblem problem = random_problem_of_any_kind(31, i, 1e5);
    problem.direction = Direction::forward;
    problem.rounding = Rounding::once;
    if (problem.precision == Precision::automatic) problem.precision = Precision::fp32;
    const std::vector<Config> configs = cpu::onednn_sums()->candidates(problem, device());
    if (!cpu::onednn_sums()->supports(problem, device())) continue;
    ASSERT_FALSE(configs.empty());
    for (const TestData data :
         {TestData::integer, TestData::real, i % 4 == 0 ? TestData::denormal : TestData::non_finite}) {
      Testbed bed(problem, cpu::backend(), data, i, 500);
      for (const Config& config : configs)
        EXPECT_EQ(bed.check(*cpu::onednn_sums()->build(problem, device(), config)).failure, "")
            << to_string(problem) << " with " << to_string(config);
    }
    activations.insert(problem.activation);
    const bool is_half = problem.dtype.y != DType::f32;
    halves += is_half;
    (is_half ? halves_and_residuals : floats_and_residuals) += problem.residual;
    depths += problem.has_depth();
  }
  EXPECT_EQ(activations.size(), 4U);
  EXPECT_GT(floats_and_residuals, 1);
  EXPECT_GT(depths, 1);              // some for version 2, too
  RecordProperty("halves", halves);  // none before AVX-512
  RecordProperty("halves_and_residuals", halves_and_residuals);
}

TEST_F(OnednnSums, AreRefusedWhereOnednnsActivationIsShort) {
  for (const char* words : {"", " act=relu", " act=clip:0:6", " act=leaky_relu:0.1", " act=hardswish"})
    EXPECT_FALSE(
        cpu::onednn_sums()->supports(parse_problem("ic8ih8oc8kh3ph1" + std::string(words)), device()));
  EXPECT_FALSE(
      cpu::onednn_sums()->supports(parse_problem("ic8ih8oc8kh3ph1 act=silu dir=transposed"), device()));
}

// The residual may lie where y does. One executable, four threads of the program, an input each.
TEST_F(OnednnSums, RunConcurrentlyAndAddAResidualInPlace) {
  const ConvProblem problem = parse_problem("mb2ic19ih23iw17oc37kh3ph1 act=silu residual=1");
  for (const Config& config : cpu::onednn_sums()->candidates(problem, device())) {
    const auto executable = cpu::onednn_sums()->build(problem, device(), config);
    std::vector<int> wrong(4);
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
      threads.emplace_back([&, i] {
        const HostTensors tensors = small_integers(problem, 100 + i);
        const std::shared_ptr<void> packed = pack(*executable, tensors);
        std::vector<float> residual(problem.output_elements()), expected(residual.size());
        for (std::size_t at = 0; at < residual.size(); ++at) residual[at] = static_cast<float>(at % 5);
        const cpu::HostValues values{tensors.x.data(), tensors.w.data(), tensors.bias.data(),
                                     residual.data()};
        for (std::size_t at = 0; at < expected.size(); ++at)
          expected[at] =
              static_cast<float>(cpu::oracle(problem, values, static_cast<std::int64_t>(at)).value);
        for (int repeat = 0; repeat < 3; ++repeat) {
          std::vector<float> y = residual;
          executable->run({.x = tensors.x.data(), .residual = y.data(), .y = y.data()}, packed.get(),
                          nullptr);
          for (std::size_t at = 0; at < y.size(); ++at)
            wrong[i] += std::abs(y[at] - expected[at]) > 1e-5F * (1 + std::abs(expected[at]));
        }
      });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, std::vector<int>(4)) << to_string(config);
  }
}

}  // namespace
}  // namespace convtune::onednn_sums_test
