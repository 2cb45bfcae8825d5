// Weights that kernels read as they lie: answers, infinities among them, and that what pack() makes of a
// filter is the filter, channels last.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "cuda/algorithms/algorithms.h"
#include "cuda/launch/kernel_algorithm.h"
#include "kernel_expectations.h"
#include "kernel_problems.h"
#include "measure/test_data.h"
#include "stand_ins.h"

namespace convtune::lying_test {
namespace {

struct Case {
  const char *algorithm, *problem, *config;
};
constexpr const char* kGemm = "implicit_gemm_half_sm90";
constexpr const char* kBody = "direct_body_half_sm90";
const std::vector<Case> kCases = {
    {kGemm, "mb2ic80ih7oc72kh3ph1 dtype=bf16",
     "consumers=2 row_blocks=2 filters=96 channels=32 stages=4 ping_pong=1 cluster=2 split=1"},
    {kGemm, "mb2ic64ih9iw7oc72kh3sh2ph1 dtype=f16",
     "consumers=2 row_blocks=1 filters=128 channels=64 stages=4 ping_pong=0 cluster=2 split=1"},
    {kGemm, "mb2ic64ih9iw7oc72kh2sh2 dtype=bf16",
     "consumers=3 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=1"},
    {kGemm, "g2mb2ic128ih9iw7oc96kh3ph1 dtype=bf16",
     "consumers=2 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=1"},
    {kGemm, "mb1ic64id3ih5iw7oc64kd3kh1kw2sd2pd1 dtype=bf16",
     "consumers=2 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=1"},
    {kBody, "mb2ic64ih8oc128kh1 dtype=bf16",
     "rows=1 columns=64 images=1 consumers=2 filter_blocks=1 ping_pong=1 channels=64 input_stages=4 "
     "weight_stages=2 cluster=1"},
    {kBody, "mb2ic80ih8oc72kh3ph1 dtype=f16",
     "rows=8 columns=8 images=1 consumers=2 filter_blocks=2 ping_pong=0 channels=32 input_stages=2 "
     "weight_stages=4 cluster=2"},
    {kBody, "mb2ic72ih14oc64kh3sh2ph1 dtype=bf16",
     "rows=7 columns=7 images=1 consumers=2 filter_blocks=1 ping_pong=1 channels=64 input_stages=2 "
     "weight_stages=4 cluster=1"},
    {kBody, "mb2ic64ih14oc64kh1sh2 dtype=bf16",
     "rows=7 columns=7 images=1 consumers=2 filter_blocks=1 ping_pong=1 channels=64 input_stages=2 "
     "weight_stages=1 cluster=1"},
    {kBody, "g2mb2ic96ih8oc128kh3ph1 dtype=bf16",
     "rows=8 columns=8 images=1 consumers=1 filter_blocks=1 ping_pong=0 channels=64 input_stages=2 "
     "weight_stages=4 cluster=1"}};

ConvProblem problem_of(const Case& one) {
  const std::string text = one.problem;
  const std::string precision = text.ends_with("bf16") ? "bf16" : "fp16";
  return parse_problem(text + " precision=" + precision + " layout=nhwc dir=bwd_d");
}
Config config_of(const Case& one) {
  return parse_config(one.config + std::string(" lying=1"));
}
const Algorithm& algorithm_of(const Case& one) {
  const auto own = own_algorithms();
  return **std::ranges::find(own, one.algorithm, [](auto* other) { return other->name(); });
}

TEST(LyingWeights, AreReadWhereTheyLie) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  if (!cuda::implicit_gemm_half_sm90().supports(problem_of(kCases.front()), gpu.info()))
    GTEST_SKIP() << "kernels for 9.0";
  for (const Case& one : kCases) {
    const auto executable = algorithm_of(one).build(problem_of(one), gpu.info(), config_of(one));
    for (const std::uint64_t seed : {5, 6})  // special numbers in x, and in weights
      for (const TestData data : {TestData::integer, TestData::non_finite}) {
        if (data == TestData::integer && seed > 5) continue;
        host_gpu_tests::set_mode(seed == 5 ? "late watch" : "shuffled watch nan seed=1");
        Testbed bed(problem_of(one), gpu, data, seed, 0);
        EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "") << one.problem << " " << one.config;
      }
  }
}

TEST(LyingWeights, ArePackedAsTheFilterChannelsLast) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  if (!cuda::implicit_gemm_half_sm90().supports(problem_of(kCases.front()), gpu.info()))
    GTEST_SKIP() << "kernels for 9.0";
  for (const Case& one : kCases) {
    const ConvProblem a = problem_of(one);
    const Algorithm& algorithm = algorithm_of(one);
    EXPECT_EQ(cuda::kernel_algorithm(algorithm)->packed_order(a, gpu.info(), config_of(one)),
              cuda::kLyingOrder);
    const auto executable = algorithm.build(a, gpu.info(), config_of(one));
    const auto count = static_cast<std::size_t>(a.weight_elements());
    ASSERT_EQ(executable->packed_bytes(), 2 * count) << one.problem;
    std::vector<unsigned short> weights(count), lying(count), packed(count);
    const auto taps = static_cast<std::size_t>(a.t * a.r * a.s);
    const auto channels = static_cast<std::size_t>(a.c / a.groups);
    for (std::size_t i = 0; i < count; ++i) {
      weights[i] = static_cast<unsigned short>(1 + i % 30011);
      lying[(i / taps / channels * taps + i % taps) * channels + i / taps % channels] = weights[i];
    }
    const auto w = gpu.allocate(2 * count), to = gpu.allocate(2 * count);
    gpu.upload(w.get(), weights.data(), 2 * count);
    executable->pack(w.get(), nullptr, to.get(), nullptr);
    gpu.synchronize(nullptr);
    gpu.download(packed.data(), to.get(), 2 * count);
    EXPECT_EQ(packed, lying) << one.problem;
  }
}

TEST(LyingWeights, AreAChoiceThatIsExplained) {
  for (const char* name : {kGemm, kBody}) {
    const std::vector<ConfigField> fields = algorithm_of({name, "", ""}).fields();
    const auto lying = std::ranges::find(fields, "lying", &ConfigField::name);
    ASSERT_NE(lying, fields.end()) << name;
    EXPECT_EQ(lying->meaning, kLyingMeaning);
  }
}

// Layers have a bias, and their weights are packed once.
TEST(LyingWeights, AreOfGradientsWithoutABias) {
  const DeviceInfo& device = cuda::backend({Device::Kind::cuda, 0}).info();
  const Algorithm& gemm = cuda::implicit_gemm_half_sm90();
  ConvProblem problem = problem_of(kCases.front());
  if (!gemm.supports(problem, device)) GTEST_SKIP() << "kernels for 9.0";
  EXPECT_TRUE(gemm.accepts(problem, device, config_of(kCases.front())));
  EXPECT_TRUE(cuda::is_lying(gemm.candidates(problem, device).front()));
  problem.bias = true;
  EXPECT_FALSE(gemm.accepts(problem, device, config_of(kCases.front())));
  EXPECT_FALSE(cuda::is_lying(gemm.candidates(problem, device).front()));
  problem.bias = false, problem.activation = Activation::relu;
  EXPECT_FALSE(cuda::is_lying(gemm.candidates(problem, device).front()));
  problem.activation = Activation::none, problem.layout = Layout::nchw;  // filters lie so, too
  EXPECT_FALSE(gemm.accepts(problem, device, config_of(kCases.front())));
  problem.r = problem.s = 1, problem.pad_top = problem.pad_bottom = problem.pad_left = problem.pad_right = 0;
  EXPECT_TRUE(gemm.accepts(problem, device, config_of(kCases.front())));
  problem.direction = Direction::forward, problem.layout = Layout::nhwc;
  EXPECT_FALSE(gemm.accepts(problem, device, config_of(kCases.front())));
}

}  // namespace
}  // namespace convtune::lying_test
