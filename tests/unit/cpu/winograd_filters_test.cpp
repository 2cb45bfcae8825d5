// Winograd's convolution with vectors over output channels: every instruction set and register tile, the
// promises of floats, and what the precision allows. CONVTUNE_WINOGRAD_PROBLEMS=5000 in the environment draws
// so many problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/winograd_filters/winograd_filters_candidates.h"
#include "cpu/algorithms/winograd_filters/winograd_filters_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "cpu/tile/instruction_sets.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"
#include "unit/cpu/winograd_problems.h"

namespace convtune::winograd_filters_test {
namespace {

const DeviceInfo& info() {
  return cpu::backend().info();
}

int problems() {
  const char* const wanted = std::getenv("CONVTUNE_WINOGRAD_PROBLEMS");
  return wanted ? std::max(1, std::atoi(wanted)) : 30;
}

// The next random problem that it takes, from draw `drawn` on: every second has a stride of 2.
ConvProblem next_problem(std::uint64_t seed, std::uint64_t& drawn) {
  for (;;) {
    ConvProblem problem = random_winograd_problem(seed, ++drawn);
    problem.layout = Layout::nchw, problem.precision = Precision::fp32;
    if (random_bits(seed, drawn) % 2 == 0) {
      problem.stride_h = problem.stride_w = 2;
      problem.c = problem.groups * std::max<std::int64_t>(problem.c / problem.groups, 48);
      problem.k = problem.groups * (32 + problem.k / problem.groups % 20);
    }
    if (cpu::winograd_filters().supports(problem, info())) return problem;
  }
}

WinogradHost host_of(const ConvProblem& problem, const cpu::WinogradFiltersConfig& config) {
  return {problem, cpu::winograd_filters().build(problem, info(), to_config(config))};
}

cpu::WinogradFiltersConfig first_config(const ConvProblem& problem) {
  return cpu::winograd_filters_candidates(problem, info()).front();
}

TEST(WinogradFilters, EveryInstructionSetAndTile) {
  int checked = 0;
  std::uint64_t drawn = 0;
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2) {
    if (!cpu::winograd_filters_kernels(bits)) continue;
    for (const auto& tile : cpu::winograd_filters_kernels(bits)->tiles)
      for (int i = 0; i < 8; ++i) {
        const ConvProblem problem = next_problem(17, drawn);
        const std::uint64_t draw = random_bits(18, drawn);
        const Config config = to_config(
            cpu::WinogradFiltersConfig{.vector_bits = bits,
                                       .block = tile.rows,
                                       .vectors = 1 + i % tile.vectors,
                                       .tiles = 1 + static_cast<int>(draw % 150),
                                       .filters = static_cast<int>(draw / 256 % 2 * (draw / 512 % 60))});
        Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
        EXPECT_EQ(bed.check(*cpu::winograd_filters().build(problem, info(), config)).failure, "")
            << to_string(problem) << " with " << to_string(config);
        ++checked;
      }
  }
  EXPECT_GE(checked, 24);
}

// Covers what every algorithm of a problem is held to, by the tuner too. Its bound is winograd's: the
// transforms and the order of their sums are the same (winograd_error_test.cpp).
TEST(WinogradFilters, ErrorIsWithinWhatThePrecisionAllows) {
  std::uint64_t drawn = 0;
  for (int i = 0; i < problems(); ++i) {
    const ConvProblem problem = next_problem(19, drawn);
    Testbed bed(problem, cpu::backend(), TestData::real, static_cast<std::uint64_t>(i), 0);
    const std::vector<cpu::WinogradFiltersConfig> configs = cpu::winograd_filters_candidates(problem, info());
    ASSERT_FALSE(configs.empty()) << to_string(problem);
    const Config config = to_config(configs[static_cast<std::size_t>(i) % configs.size()]);
    EXPECT_EQ(bed.check(*cpu::winograd_filters().build(problem, info(), config)).failure, "")
        << to_string(problem) << " with " << to_string(config);
  }
}

TEST(WinogradFilters, ReadsNothingBesideTheInput) {
  for (const char* text : {"mb1ic16ih8oc16kh3ph1 precision=fp32", "mb2ic32ih4iw16oc17kh3 precision=fp32",
                           "mb1ic64ih8oc32kh3sh2ph1 precision=fp32",
                           "mb1ic64ih4iw32oc32kh3sh2 precision=fp32", "mb4ic256ih1oc16kh3ph1 precision=fp32"})
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2) {
      if (!cpu::winograd_filters_kernels(bits)) continue;
      for (const auto& tile : cpu::winograd_filters_kernels(bits)->tiles) {
        WinogradHost host =
            host_of(parse_problem(text), {.vector_bits = bits, .block = tile.rows, .vectors = tile.vectors});
        const std::vector<float> expected = host.run();
        const GuardedFloats x(host.x);
        host.executable->run({.x = x.data(), .y = host.y.data()}, host.packed.data(), nullptr);
        EXPECT_EQ(expected, host.y) << text << ' ' << bits << ' ' << tile.rows;
      }
    }
}

const char* const kProblems[] = {"mb2ic16ih9iw11oc17kh3ph1 precision=fp32 act=relu",
                                 "g2mb1ic32ih7iw8oc36kh3ph2 precision=fp32 act=clip:-1:1",
                                 "mb2ic50ih13iw38oc33kh3sh2ph1 precision=fp32"};

// Covers what makes it fit for fp32: a number beside an output's window has no part in the output.
TEST(WinogradFilters, OutputsReadTheirWindowAlone) {
  for (const char* text : kProblems) {
    const ConvProblem problem = parse_problem(text);
    WinogradHost host = host_of(problem, first_config(problem));
    const std::vector<float> before = host.run();
    for (std::int64_t row = 0; row < problem.h; ++row)
      for (std::int64_t col = 0; col < problem.w; col += 3) {
        float& spot = host.x[static_cast<std::size_t>((2 * problem.h + row) * problem.w + col)];
        const float kept = spot;
        spot = 1e20F;
        const std::vector<float>& after = host.run();
        spot = kept;
        for (std::size_t i = 0; i < after.size(); ++i) {
          const auto at = static_cast<std::int64_t>(i);
          const std::int64_t q = at % problem.q(), p = at / problem.q() % problem.p();
          const std::int64_t r = row - p * problem.stride_h + problem.pad_top,
                             s = col - q * problem.stride_w + problem.pad_left;
          const bool reads = r >= 0 && r < problem.r && s >= 0 && s < problem.s;
          if (!reads) {
            EXPECT_EQ(before[i], after[i]) << text << ' ' << row << ' ' << col << ": " << at;
          }
        }
      }
  }
}

TEST(WinogradFilters, TakesWhatItIsFor) {
  const auto reason = [](const char* text) {
    return cpu::winograd_filters().supports(parse_problem(text), info()).reason();
  };
  EXPECT_EQ(reason("mb1ic16ih8oc16kh3ph1 precision=fp32"), "");
  EXPECT_EQ(reason("mb1ic48ih8oc32kh3sh2ph1 precision=fp32"), "");
  EXPECT_NE(reason("mb1ic16ih8oc32kh3sh2ph1 precision=fp32").find("too short"), std::string::npos);
  EXPECT_NE(reason("mb1ic15ih8oc16kh3ph1 precision=fp32").find("16 channels"), std::string::npos);
  EXPECT_NE(reason("mb1ic16ih8oc16kh3ph1 layout=nhwc").find("NCHW"), std::string::npos);
  EXPECT_NE(reason("mb1ic48ih8oc32kh5ph1").find("3x3"), std::string::npos);
  EXPECT_NE(reason("mb1ic48ih8oc32kh3dh1").find("dilation"), std::string::npos);
  EXPECT_NE(reason("mb1ic48ih8iw8oc32kh3kw3sh2sw1").find("strides"), std::string::npos);
  EXPECT_NE(reason("mb1ic16ih8oc16kh3ph1 dtype=bf16").find("bf16"), std::string::npos);

  const ConvProblem problem = parse_problem(kProblems[0]);
  const auto refused = [&](auto change) {
    cpu::WinogradFiltersConfig config = first_config(problem);
    change(config);
    return !cpu::winograd_filters().accepts(problem, info(), to_config(config));
  };
  EXPECT_FALSE(refused([](auto&) {}));
  EXPECT_TRUE(refused([](auto& config) { config.block = 63; }));
  EXPECT_TRUE(refused([](auto& config) { config.vectors = 63; }));
}

}  // namespace
}  // namespace convtune::winograd_filters_test
