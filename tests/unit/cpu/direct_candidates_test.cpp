// The order in which the direct convolution's configs are tried, and that making the list takes little.
#include "cpu/algorithms/direct/direct_candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <new>
#include <set>

#include "convtune/cases.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/tile/direct_kernels.h"
#include "problem/config_fields.h"
#include "problem/random_problem.h"

namespace {
std::atomic<std::size_t> allocated_bytes = 0;  // other tests' threads allocate, too
}  // namespace

// Counts for the test of what a list takes.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  allocated_bytes += bytes;
  if (void* memory = std::malloc(std::max<std::size_t>(bytes, 1))) return memory;
  throw std::bad_alloc();
}
// The standard library's buffers for sorting, which the operators below free, too.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  allocated_bytes += bytes;
  return std::malloc(std::max<std::size_t>(bytes, 1));
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace convtune::direct_candidates_test {
namespace {

// The machine on which the configs below were measured.
DeviceInfo zen5(int threads) {
  DeviceInfo info;
  info.isa = "avx512";
  info.units = threads;
  info.l1_bytes = 48 << 10, info.l2_bytes = 1 << 20, info.l3_bytes = 32 << 20;
  return info;
}

std::vector<std::string> first_ten(const ConvProblem& problem, int threads) {
  std::vector<std::string> texts;
  for (const cpu::DirectConfig& config : cpu::direct_candidates(problem, zen5(threads)))
    if (texts.size() < 10) texts.push_back(to_string(to_config(config)));
  return texts;
}

TEST(DirectExtents, CountWhatTheTapsDo) {
  for (std::int64_t taps = 1; taps <= 7; ++taps)
    for (std::int64_t stride = 1; stride <= 6; ++stride)
      for (std::int64_t dilation = 1; dilation <= 6; ++dilation) {
        const cpu::AxisPhases axis = cpu::axis_phases(taps, stride, dilation);
        const cpu::AxisExtent extent(taps, stride, dilation);
        EXPECT_EQ(extent.halo, axis.halo);
        EXPECT_EQ(extent.phases, static_cast<std::int64_t>(axis.phases.size()));
      }
}

// Measured on one core, all configs of a grid of 900 to 6000 for each problem (docs/notebook/): these took
// at most 4 % longer than the best of them.
TEST(DirectCandidates, AGoodOneIsAmongTheFirstTen) {
  if (!cpu::direct_kernels(512)) GTEST_SKIP() << "this build has no code for AVX-512";
  using Config = cpu::DirectConfig;
  const auto tile = [](int channels, int vectors, int rows, int cols, int flat, int stream, int staged = 1) {
    return Config{512, channels, vectors, rows, cols, 0, flat, stream, staged};
  };
  const std::map<std::string, Config> good = {
      {"alexnet_conv1", tile(6, 4, 55, 0, 1, 0)},         {"vit_b16_patchify", tile(5, 5, 14, 0, 1, 1)},
      {"resnet_3x3_64", tile(8, 3, 56, 0, 1, 0)},         {"resnet_3x3_256", tile(6, 4, 14, 0, 1, 0)},
      {"resnet_3x3_s2_128", tile(6, 4, 28, 0, 1, 0)},     {"resnet_1x1_64_256", tile(8, 3, 56, 0, 1, 1, 0)},
      {"resnet_1x1_s2_256_512", tile(8, 3, 28, 0, 1, 1)}, {"resnext_g32_3x3_128", tile(4, 6, 56, 0, 1, 0)},
  };
  for (const auto& [name, config] : good)
    for (const int threads : {1, 2}) {
      const std::vector<std::string> first = first_ten(find_problem(name), threads);
      EXPECT_TRUE(std::find(first.begin(), first.end(), to_string(to_config(config))) != first.end())
          << name << " with " << threads << " threads";
    }
}

// 36864 taps: a list of them for every config that is ranked would be gigabytes.
TEST(DirectCandidates, ListsOfTapsAreNotMadeToRank) {
  const ConvProblem problem = parse_problem("mb1ic4096ih14oc4096kh3ph1");
  allocated_bytes = 0;
  EXPECT_GT(cpu::direct_candidates(problem, zen5(2)).size(), 50U);
  EXPECT_LT(allocated_bytes, std::size_t{1} << 20);
}

TEST(DirectCandidates, AreAcceptedAndDistinct) {
  for (std::uint64_t i = 0; i < 300; ++i) {
    const ConvProblem problem = random_problem(5, i);
    if (!cpu::direct().supports(problem, zen5(2))) continue;
    std::set<std::string> texts;
    const auto configs = cpu::direct_candidates(problem, zen5(2));
    EXPECT_FALSE(configs.empty()) << to_string(problem);
    for (const cpu::DirectConfig& config : configs) {
      texts.insert(to_string(to_config(config)));
      EXPECT_TRUE(cpu::direct().accepts(problem, zen5(2), to_config(config))) << *texts.rbegin();
    }
    EXPECT_EQ(texts.size(), configs.size()) << to_string(problem);
  }
}

}  // namespace
}  // namespace convtune::direct_candidates_test
