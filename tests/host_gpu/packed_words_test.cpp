// The words that packing leaves in memory: each half of the prepared ones is the weight that source_of()
// says, taken out of the filter of another order where the problem is a gradient of x.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cuda/algorithms/direct_body_half_sm90/config.h"
#include "cuda/algorithms/direct_depthwise_half/config.h"
#include "cuda/algorithms/direct_depthwise_half_sm90/config.h"
#include "cuda/algorithms/direct_few_half/config.h"
#include "cuda/algorithms/direct_grouped_half/config.h"
#include "cuda/algorithms/direct_stem_half/config.h"
#include "cuda/algorithms/implicit_gemm_half_sm80/config.h"
#include "cuda/algorithms/implicit_gemm_half_sm90/config.h"
#include "cuda/launch/lying_plans.h"
#include "kernel_expectations.h"
#include "kernel_problems.h"
#include "problem/forward_parts.h"
#include "stand_ins.h"

namespace convtune::packed_words_test {
namespace {

// A finite number for each weight, another one for those near it.
unsigned short bits_of(std::int64_t weight) {
  return static_cast<unsigned short>(1 + weight % 30011);
}

// Candidates that pack.
std::vector<Config> packing(std::vector<Config> configs) {
  std::erase_if(configs, cuda::is_lying);
  return configs;
}

// `unit`: words that a thread packs.
template <class Kernel>
void expect_words(std::string_view name, const char* text, int unit = 4) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  const auto own = own_algorithms();
  const auto algorithm = std::ranges::find(own, name, [](auto* one) { return one->name(); });
  ASSERT_NE(algorithm, own.end());
  const ConvProblem problem = parse_problem(text + std::string(" dtype=bf16 precision=bf16 layout=nhwc"));
  const Support support = (*algorithm)->supports(problem, gpu.info());
  ASSERT_TRUE(support) << text << ": " << support.reason();
  ConvProblem forward = problem;
  Gathering gathering;
  if (problem.direction == Direction::backward_data) {
    const std::vector<ForwardPart> parts = forward_parts(problem);
    ASSERT_EQ(parts.size(), 1u);
    forward = parts.front().problem, gathering = parts.front().weights;
  }

  const std::vector<Config> configs = packing((*algorithm)->candidates(problem, gpu.info()));
  std::set<std::vector<long long>> orders;  // each is packed by one config: others write the same words
  for (const Config& config : {configs.front(), configs[configs.size() / 2], configs.back()}) {
    const auto kernel = kernel_of<Kernel>(forward, config);
    const Packed at = kernel.packed();
    ASSERT_EQ(at.unit, unit);
    std::vector<long long> order = {at.prepared, at.exact_at(), at.bias_at(), at.words()};
    for (long long i = 0; i < 2 * at.prepared; ++i) order.push_back(kernel.source_of(i));
    if (!orders.insert(std::move(order)).second) continue;
    std::vector<unsigned short> weights(static_cast<std::size_t>(problem.weight_elements()));
    for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = bits_of(static_cast<std::int64_t>(i));
    const auto executable = (*algorithm)->build(problem, gpu.info(), config);
    const auto w = gpu.allocate(2 * weights.size() + 2), packed = gpu.allocate(executable->packed_bytes());
    auto* const from = static_cast<unsigned short*>(w.get()) + 1;  // begins anywhere
    gpu.upload(from, weights.data(), 2 * weights.size());
    executable->pack(from, nullptr, packed.get(), nullptr);
    gpu.synchronize(nullptr);
    std::vector<unsigned short> halves(static_cast<std::size_t>(2 * at.words()));
    gpu.download(halves.data(), packed.get(), 2 * halves.size());

    const auto expected = [&](std::int64_t source) -> int {
      if (source >= 0 && gathering.elements() > 0) source = gathering.source_of(source);
      return source < 0 ? 0 : bits_of(source);
    };
    for (long long i = 0; i < 2 * at.prepared; ++i)
      ASSERT_EQ(halves[static_cast<std::size_t>(i)], expected(kernel.source_of(i)))
          << text << " with " << to_string(config) << ": half " << i;
    for (long long i = 0; i < at.weights; ++i)  // bfloat16 is the upper half of a float
      ASSERT_EQ(halves[static_cast<std::size_t>(2 * (at.exact_at() + i) + 1)], expected(i))
          << text << ": " << i;
    for (long long i = 2 * at.bias_at(); i < 2 * at.words(); ++i)
      ASSERT_EQ(halves[static_cast<std::size_t>(i)], 0) << text << ": bias or flag " << i;
  }
}

// The flag, in memory that was not 0, of a filter of which one weight is infinite.
unsigned flag_of(std::string_view name, const char* text) {
  Backend& gpu = cuda::backend({Device::Kind::cuda, 0});
  const auto own = own_algorithms();
  const Algorithm& algorithm = **std::ranges::find(own, name, [](auto* one) { return one->name(); });
  const ConvProblem problem = parse_problem(text + std::string(" dtype=bf16 precision=bf16 layout=nhwc"));
  const auto executable =
      algorithm.build(problem, gpu.info(), packing(algorithm.candidates(problem, gpu.info())).front());
  std::vector<unsigned short> weights(static_cast<std::size_t>(problem.weight_elements()), 0x3f80);
  weights[weights.size() / 2] = 0x7f80;
  std::vector<unsigned> words(executable->packed_bytes() / sizeof(unsigned), 7);
  const auto w = gpu.allocate(2 * weights.size()), packed = gpu.allocate(executable->packed_bytes());
  gpu.upload(w.get(), weights.data(), 2 * weights.size());
  gpu.upload(packed.get(), words.data(), executable->packed_bytes());
  executable->pack(w.get(), nullptr, packed.get(), nullptr);
  gpu.synchronize(nullptr);
  gpu.download(words.data(), packed.get(), executable->packed_bytes());
  return words.back();
}

// An infinity is an infinity where no weight meets padding: nothing needs to be computed again.
TEST(PackedWords, FlagInfinitiesThatMeetPadding) {
  host_gpu_tests::set_mode(host_gpu_tests::device_words() + "late watch");
  for (const char* const name : {"direct_body_half_sm90", "implicit_gemm_half_sm90"}) {
    EXPECT_EQ(flag_of(name, "mb1ic64ih9oc72kh3ph1 dir=bwd_d"), 1u) << name;
    EXPECT_EQ(flag_of(name, "mb1ic64ih9oc72kh1 dir=bwd_d"), 0u) << name;
    EXPECT_EQ(flag_of(name, "mb1ic64ih9oc72kh1"), 1u) << name;
  }
}

TEST(PackedWords, AreThoseOfTheDefinition) {
  host_gpu_tests::set_mode(host_gpu_tests::device_words() + "late watch");
  for (const char* text : {"mb1ic128ih7oc192kh1", "mb1ic136ih9oc72kh3ph1", "mb1ic64ih9oc72kh3sh2ph1",
                           "mb1ic136ih9oc72kh3ph1 dir=bwd_d", "mb1ic128ih7oc192kh1 dir=bwd_d",
                           "mb1ic40ih8oc136kh2sh2 dir=bwd_d"}) {
    expect_words<DirectBodyHalfSm90>("direct_body_half_sm90", text);
    expect_words<ImplicitGemmHalfSm90>("implicit_gemm_half_sm90", text);
    if (std::string(text).find("bwd_d") == std::string::npos)
      expect_words<ImplicitGemmHalfSm80>("implicit_gemm_half_sm80", text);
  }
  expect_words<DirectStemHalf>("direct_stem_half", "mb1ic3ih32oc40kh7sh2ph3", 1);
  expect_words<DirectStemHalf>("direct_stem_half", "mb1ic2id5ih9iw9oc24kd3kh3kw3pd1ph1pw1", 1);
  expect_words<DirectFewHalf>("direct_few_half", "mb1ic36ih9iw20oc3kh5ph2");
  expect_words<DirectGroupedHalf>("direct_grouped_half", "g6mb1ic36ih9oc54kh3ph1");
  expect_words<DirectDepthwiseHalf>("direct_depthwise_half", "g40mb1ic40ih19oc40kh7ph3", 1);
  expect_words<DirectDepthwiseHalfSm90>("direct_depthwise_half_sm90", "g64mb1ic64ih14oc64kh7ph3", 1);
}

}  // namespace
}  // namespace convtune::packed_words_test
