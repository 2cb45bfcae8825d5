// Weights that kernels read as they lie: answers, infinities among them, and that what pack() makes of a
// filter is the filter, channels last. And gradients of weights that are stored so.
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

// Sums that blocks of a cluster share: of gradients, and of layers below.
const std::vector<Case> kShared = {
    {kGemm, "mb2ic80ih7oc72kh3ph1 dtype=bf16",
     "consumers=2 row_blocks=1 filters=96 channels=64 stages=4 ping_pong=0 cluster=1 split=4"},
    {kGemm, "mb2ic64ih9iw7oc72kh3sh2ph1 dtype=f16",
     "consumers=1 row_blocks=2 filters=64 channels=32 stages=8 ping_pong=0 cluster=1 split=2"}};
// Layers themselves: strides, groups, frames, patches, channels that are no whole block, and more filters
// than a box has.
const std::vector<Case> kLayers = {
    {kGemm, "mb2ic80ih7oc72kh3ph1 dtype=bf16 bias=0",
     "consumers=2 row_blocks=2 filters=96 channels=32 stages=4 ping_pong=1 cluster=2 split=1"},
    {kGemm, "mb2ic72ih9iw7oc80kh3sh2ph1 dtype=f16 bias=0",
     "consumers=2 row_blocks=1 filters=128 channels=64 stages=4 ping_pong=0 cluster=1 split=1"},
    {kGemm, "mb2ic136ih7oc72kh3ph1 dtype=bf16 bias=0",
     "consumers=1 row_blocks=2 filters=48 channels=64 stages=8 ping_pong=0 cluster=1 split=4"},
    {kGemm, "g2mb2ic128ih9iw7oc96kh3ph1 dtype=bf16 bias=0",
     "consumers=2 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=2"},
    {kGemm, "mb1ic64id3ih5iw7oc64kd3kh1kw2sd2pd1 dtype=bf16 bias=0",
     "consumers=2 row_blocks=1 filters=64 channels=64 stages=4 ping_pong=0 cluster=1 split=1"},
    {kBody, "mb2ic64ih8oc128kh1 dtype=bf16 bias=0",
     "rows=1 columns=64 images=1 consumers=2 filter_blocks=1 ping_pong=1 channels=64 input_stages=4 "
     "weight_stages=2 cluster=1"},
    {kBody, "mb2ic80ih8oc72kh3ph1 dtype=f16 bias=0",
     "rows=8 columns=8 images=1 consumers=2 filter_blocks=2 ping_pong=0 channels=32 input_stages=2 "
     "weight_stages=4 cluster=2"},
    {kBody, "mb2ic72ih14oc64kh3sh2ph1 dtype=bf16 bias=0",
     "rows=7 columns=7 images=1 consumers=2 filter_blocks=1 ping_pong=1 channels=64 input_stages=2 "
     "weight_stages=4 cluster=1"},
    {kBody, "mb2ic32ih8oc64kh2sh2 dtype=bf16 bias=0",
     "rows=4 columns=4 images=1 consumers=1 filter_blocks=1 ping_pong=0 channels=64 input_stages=2 "
     "weight_stages=2 cluster=1"},
    {kBody, "mb2ic64ih4oc384kh3ph1 dtype=bf16 bias=0",
     "rows=4 columns=4 images=1 consumers=3 filter_blocks=2 ping_pong=0 channels=64 input_stages=2 "
     "weight_stages=2 cluster=1"},
    {kBody, "g2mb2ic96ih8oc128kh3ph1 dtype=bf16 bias=0",
     "rows=8 columns=8 images=1 consumers=1 filter_blocks=1 ping_pong=0 channels=64 input_stages=2 "
     "weight_stages=4 cluster=1"}};
std::vector<Case> all_cases() {
  std::vector<Case> all = kCases;
  all.insert(all.end(), kShared.begin(), kShared.end());
  all.insert(all.end(), kLayers.begin(), kLayers.end());
  return all;
}

ConvProblem problem_of(const Case& one) {
  const std::string text = one.problem;
  const std::string precision = text.find("bf16") != text.npos ? "bf16" : "fp16";
  const std::string direction = text.ends_with("bias=0") ? "" : " dir=bwd_d";
  return parse_problem(text + " precision=" + precision + " layout=nhwc" + direction);
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
  if (!host_gpu_tests::device_words().empty()) GTEST_SKIP() << "kernels for 9.0";
  ASSERT_TRUE(cuda::implicit_gemm_half_sm90().supports(problem_of(kCases.front()), gpu.info()));
  for (const Case& one : all_cases()) {
    const auto executable = algorithm_of(one).build(problem_of(one), gpu.info(), config_of(one));
    for (const std::uint64_t seed : {5, 6})  // special numbers in x, and in weights
      for (const TestData data : {TestData::integer, TestData::non_finite}) {
        if (data == TestData::integer && seed > 5) continue;
        host_gpu_tests::set_mode(seed == 5 ? "late watch" : "shuffled watch nan seed=1");
        Testbed bed(problem_of(one), gpu, data, seed, 0);
        EXPECT_EQ(host_gpu_tests::fault_of(bed, *executable), "")
            << one.problem << " " << one.config << " data " << seed;
      }
  }
}

TEST(LyingWeights, ArePackedAsTheFilterChannelsLast) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  if (!host_gpu_tests::device_words().empty()) GTEST_SKIP() << "kernels for 9.0";
  ASSERT_TRUE(cuda::implicit_gemm_half_sm90().supports(problem_of(kCases.front()), gpu.info()));
  for (const Case& one : all_cases()) {
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

// Layers of models that nobody trains have a bias, and their weights are packed once.
TEST(LyingWeights, AreOfLayersAndGradientsWithoutABias) {
  const DeviceInfo& device = cuda::backend({Device::Kind::cuda, 0}).info();
  const Algorithm& gemm = cuda::implicit_gemm_half_sm90();
  ConvProblem problem = problem_of(kCases.front());
  if (!host_gpu_tests::device_words().empty()) GTEST_SKIP() << "kernels for 9.0";
  ASSERT_TRUE(gemm.supports(problem, device));
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
  problem = problem_of(kLayers.front());
  EXPECT_TRUE(gemm.accepts(problem, device, config_of(kLayers.front())));
  EXPECT_TRUE(cuda::is_lying(gemm.candidates(problem, device).front()));
  problem.bias = true;
  EXPECT_FALSE(gemm.accepts(problem, device, config_of(kLayers.front())));
  EXPECT_FALSE(cuda::is_lying(gemm.candidates(problem, device).front()));
  problem.bias = false, problem.layout = Layout::nchw;
  EXPECT_FALSE(gemm.accepts(problem, device, config_of(kLayers.front())));
}

// Sums that few and many blocks share, of whole filters and of some taps; channels that are no whole block;
// strides, frames, and a bias; narrow windows. Groups and first layers by mma.sync.
constexpr const char* kWgmma = "weight_gradient_half_sm90";
constexpr const char* kMma = "weight_gradient_sm80";
const std::vector<Case> kGradients = {{kWgmma, "mb2ic72ih9oc64kh3ph1 dtype=bf16 bias=1",
                                       "filter_groups=1 column_groups=1 row_blocks=1 columns=64 pixels=64 "
                                       "window=0 stages=2 blocks=8 whole=0 early=0 joint=0"},
                                      {kWgmma, "mb3ic64ih9oc72kh3ph1 dtype=f16 bias=0",
                                       "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 "
                                       "window=3 stages=2 blocks=4 whole=0 early=0 joint=0"},
                                      {kWgmma, "mb24ic64ih9oc64kh3ph1 dtype=bf16 bias=0",
                                       "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 "
                                       "window=1 stages=2 blocks=132 whole=0 early=0 joint=0"},
                                      {kWgmma, "mb2ic128ih10oc64kh3sh2ph1 dtype=bf16 bias=0",
                                       "filter_groups=1 column_groups=1 row_blocks=1 columns=128 pixels=32 "
                                       "window=0 stages=2 blocks=9 whole=0 early=0 joint=0"},
                                      {kWgmma, "mb1ic64id5oc64kd3pd1 dtype=bf16 bias=0",
                                       "filter_groups=1 column_groups=1 row_blocks=1 columns=64 pixels=64 "
                                       "window=0 stages=2 blocks=27 whole=0 early=0 joint=0"},
                                      // In one launch: whole tiles, and taps of a channel.
                                      {kWgmma, "mb1ic64ih6oc72kh3ph1 dtype=bf16 bias=0",
                                       "filter_groups=1 column_groups=3 row_blocks=1 columns=96 pixels=64 "
                                       "window=1 stages=6 blocks=2 whole=4 early=0 joint=1"},
                                      {kWgmma, "mb2ic64ih6oc136kh3ph1 dtype=bf16 bias=0",
                                       "filter_groups=1 column_groups=3 row_blocks=1 columns=192 pixels=64 "
                                       "window=6 stages=2 blocks=2 whole=3 early=1 joint=1"},
                                      {kWgmma, "mb1ic72ih10oc72kh3sh2ph1 dtype=f16 bias=1",
                                       "filter_groups=1 column_groups=1 row_blocks=1 columns=64 pixels=32 "
                                       "window=0 stages=8 blocks=36 whole=0 early=0 joint=1"},
                                      {kMma, "mb2ic32ih12oc32kh3ph1 dtype=bf16 bias=0", ""},
                                      {kMma, "mb2ic3ih17oc16kh3sh2ph1 dtype=f16 bias=1", ""},
                                      {kMma, "g4mb2ic32ih9oc32kh3ph1 dtype=bf16 bias=0", ""}};

TEST(LyingGradients, AreThoseOfTheUsualOrder) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  for (const Case& one : kGradients) {
    const std::string text = one.problem;
    const ConvProblem a = parse_problem(
        text + " layout=nhwc dir=bwd_w precision=" + (text.find("bf16") != text.npos ? "bf16" : "fp16"));
    const Algorithm& algorithm = algorithm_of(one);
    if (!algorithm.supports(a, gpu.info())) continue;  // kernels for 9.0
    const Config config =
        *one.config ? parse_config(one.config) : algorithm.candidates(a, gpu.info()).front();
    ASSERT_TRUE(algorithm.accepts(a, gpu.info(), config)) << one.problem;
    const auto executable = algorithm.build(a, gpu.info(), config);
    EXPECT_TRUE(executable->can_lay_dw_last()) << one.problem;
    for (const TestData data : {TestData::real, TestData::non_finite})
      for (const std::size_t shift : {0, 2}) {  // bytes: tensors that begin anywhere
        if (shift > 0 && data == TestData::non_finite) continue;
        host_gpu_tests::set_mode("shuffled watch nan seed=1");
        const TestTensors tensors = test_tensors(a, data, 5);
        const auto put = [&](DType type, const std::vector<float>& numbers) {
          const std::vector<unsigned char> bytes = to_bytes(type, numbers);
          auto memory = gpu.allocate(bytes.size() + shift);
          gpu.upload(static_cast<unsigned char*>(memory.get()) + shift, bytes.data(), bytes.size());
          return memory;
        };
        const auto x = put(a.dtype.x, tensors.x), dy = put(a.dtype.y, tensors.dy);
        const auto count = static_cast<std::size_t>(a.weight_elements());
        const auto at = [&](const std::shared_ptr<void>& memory) {
          return static_cast<unsigned char*>(memory.get()) + shift;
        };
        const auto gradients = [&](bool last) {
          const auto dw = gpu.allocate(2 * count + shift),
                     dbias = gpu.allocate(2 * static_cast<std::size_t>(a.k));
          executable->run({.x = at(x), .dy = at(dy), .dw = at(dw), .dbias = dbias.get(), .dw_last = last},
                          nullptr, nullptr);
          gpu.synchronize(nullptr);
          std::vector<unsigned short> found(count);
          gpu.download(found.data(), at(dw), 2 * count);
          return found;
        };
        const std::vector<unsigned short> usual = gradients(false), last = gradients(true);
        std::vector<unsigned short> expected(count);
        const auto taps = static_cast<std::size_t>(a.t * a.r * a.s);
        const auto channels = static_cast<std::size_t>(a.c / a.groups);
        for (std::size_t i = 0; i < count; ++i)
          expected[(i / taps / channels * taps + i % taps) * channels + i / taps % channels] = usual[i];
        EXPECT_EQ(last, expected) << one.problem << " " << shift;
      }
  }
}

}  // namespace
}  // namespace convtune::lying_test
