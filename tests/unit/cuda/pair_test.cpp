// Pairs of convolutions: their geometry and what their kernels take to compile, without a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda/pairs/pair_executable.h"

namespace convtune::pair_test {
namespace {

using cuda::CompiledModule, cuda::PairExecutable, cuda::pair_kernels;

DeviceInfo h200() {
  DeviceInfo device;
  device.device = {Device::Kind::cuda, 0};
  device.isa = "sm_90a";
  device.units = 132;
  return device;
}

// The steps of HiFi-GAN V1 on 100 frames, and of a DAC decoder on 8.
std::vector<PairProblem> vocoders() {
  std::vector<PairProblem> all;
  for (const auto& [c, t] : {std::pair{256, 800}, {128, 6400}, {64, 12800}, {32, 25600}})
    for (const int taps : {3, 7, 11})
      for (const int dilation : {1, 3, 5})
        all.push_back({.c = c, .t = t, .first_taps = taps, .dilation = dilation, .second_taps = taps});
  for (const auto& [c, t] : {std::pair{768, 64}, {384, 512}, {192, 2048}, {96, 4096}})
    for (const int dilation : {1, 3, 9})
      all.push_back({.c = c,
                     .t = t,
                     .first_taps = 7,
                     .dilation = dilation,
                     .second_taps = 1,
                     .activation = PairActivation::snake});
  return all;
}

TEST(Pair, EveryWeightHasOnePlaceThatReadersFind) {
  for (const PairProblem& problem : vocoders()) {
    if (problem.c > 192 || problem.dilation > 1) continue;
    for (const PairSm90& kernel : pair_kernels(problem, h200())) {
      std::set<long long> places;
      for (long long unit = 0; unit < kernel.packed().weights / 4; ++unit) {
        const PairSm90::Weights at = kernel.weights_of(unit);
        ASSERT_EQ(kernel.half_of(at.second, at.filter, at.channel, at.tap), 8 * unit);
        ASSERT_EQ(kernel.half_of(at.second, at.filter, at.channel + 7, at.tap), 8 * unit + 7);
        places.insert(((at.second * 64LL + at.tap) * problem.c + at.filter) * problem.c + at.channel);
      }
      EXPECT_EQ(std::ssize(places) * 8, problem.c * problem.c * (problem.first_taps + problem.second_taps));
    }
  }
}

TEST(Pair, KernelsCompileWithoutSpills) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "there is no NVRTC";
  for (const PairProblem& problem : vocoders()) {
    if (problem.dilation != 1 || problem.first_taps == 3) continue;
    if (!cuda::supports_pair(problem, h200())) continue;
    auto kernels = pair_kernels(problem, h200());
    kernels.resize(std::min<std::size_t>(kernels.size(), 2));
    for (const PairSm90& kernel : kernels) {
      const CompiledModule module = cuda::compile(PairExecutable::job(kernel, "sm_90a"));
      const std::string what = fmt::format("{} {}", to_string(problem), to_string(to_config(kernel)));
      EXPECT_EQ(module.kernels[0].spill_bytes, 0) << what;
      EXPECT_EQ(module.log.find("serializ"), std::string::npos) << what << module.log;
    }
  }
}

}  // namespace
}  // namespace convtune::pair_test
