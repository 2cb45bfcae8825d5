// Pairs of convolutions: their geometry and what their kernels take to compile, without a GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda/pairs/pair_executable.h"
#include "problem/config_fields.h"

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

std::string refusal(const PairProblem& problem) {
  return cuda::supports_pair(problem, h200()).reason();
}

TEST(Pair, RefusalsNameWhatIsNotSo) {
  EXPECT_TRUE(cuda::supports_pair({.c = 512, .t = 1 << 26}, h200()));
  EXPECT_EQ(refusal({.c = 544}), "pairs are for channels up to 512, not 544");
  EXPECT_EQ(refusal({.n = 70000}), "pairs are for a batch up to 65535, not 70000");
  EXPECT_EQ(refusal({.t = 1 << 27}), "pairs are for positions up to 67108864, not 134217728");
  EXPECT_EQ(refusal({.first_taps = 65}), "pairs are for taps of the first convolution up to 63, not 65");
  EXPECT_EQ(refusal({.second_taps = 33}), "pairs are for taps of the second convolution up to 31, not 33");
  EXPECT_EQ(refusal({.dilation = 257}), "pairs are for a dilation up to 256, not 257");
  EXPECT_EQ(refusal({.c = 352}), "up to 8 blocks share channels in multiples of 32 up to 256, and not 352");
  EXPECT_EQ(refusal({.c = 64, .first_taps = 63, .dilation = 256}),
            "a tile of 64 channels with 63 and 3 taps and a dilation of 256 does not fit into shared memory");
  for (int c = 32; c <= 512; c += 32)  // else it is shared memory that has no room
    EXPECT_EQ(static_cast<bool>(cuda::supports_pair({.c = c, .first_taps = 1, .second_taps = 1}, h200())),
              c != 352 && c != 416)
        << c;
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
