// AMX: every register tile beside the oracle, by a model of the tiles where the processor has none.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cpu/algorithms/amx/amx_candidates.h"
#include "cpu/algorithms/amx/amx_executable.h"
#include "cpu/algorithms/amx/amx_kernels.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/tensor_kernels.h"
#include "measure/testbed.h"
#include "problem/activation.h"
#include "problem/config_fields.h"
#include "unit/cpu/amx_model.h"
#include "unit/cpu/real_tensors.h"

namespace convtune::amx_test {
namespace {

using cpu::AmxConfig;

const DeviceInfo& info() {
  return cpu::backend().info();
}

std::unique_ptr<Executable> build(const ConvProblem& problem, const AmxConfig& config, int threads = 2) {
  return cpu::amx_executable(problem, config, threads, cpu::widest_vector_bits(info()),
                             amx_kernels_or_model());
}

std::string check(const ConvProblem& problem, const AmxConfig& config) {
  Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
  return bed.check(*build(problem, config)).failure;
}

ConvProblem bf16(const char* text) {
  ConvProblem problem = parse_problem(text);
  problem.dtype = DType::bf16;
  return problem;
}

AmxConfig drawn(std::uint64_t draw, int m, int n) {
  AmxConfig config{.pixel_tiles = m, .filter_tiles = n};
  config.rows = 1 + static_cast<int>(draw / 65536 % 5);
  config.cols = draw / 524288 % 2 == 0 ? 0 : 1 + static_cast<int>(draw / 1048576 % 40);
  config.filters = draw / 268435456 % 2 == 0 ? 0 : n * cpu::kAmxFilters;
  config.stream = static_cast<int>(draw / 1073741824 % 3);
  config.gathered = draw / 2147483648 % 2 == 0;
  return config;
}

TEST(Amx, EveryRegisterTileOnTheEdgeCases) {
  const std::vector<Activation> activations = all_activations();
  const std::vector<ConvProblem> edges = load_suite("edges");
  int checked = 0;
  for (std::size_t at = 0; at < 2 * edges.size(); ++at) {
    ConvProblem problem = edges[at / 2];
    const std::uint64_t draw = random_bits(17, at);
    problem.dtype = DType::bf16;
    if (draw / 2 % 4 == 0) problem.dtype.y = DType::f32;
    problem.layout = at % 2 == 0 ? Layout::nhwc : Layout::nchw;
    problem.residual = draw / 16 % 2 == 0;
    if (draw / 32 % 2 == 0) problem.rounding = Rounding::eager;
    if (draw / 64 % 2 == 0) {
      problem.activation = activations[draw / 128 % activations.size()];
      problem.alpha = problem.beta = 0;
      if (problem.activation == Activation::clip) problem.alpha = -3, problem.beta = 5;
      if (problem.activation == Activation::leaky_relu) problem.alpha = 0.25F;
    }
    if (!amx_or_model().supports(problem, info())) continue;
    Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
    for (int m = 1; m <= cpu::kAmxSums; ++m)
      for (int n = 1; m * n <= cpu::kAmxSums; ++n) {
        AmxConfig config = drawn(random_bits(18, static_cast<std::uint64_t>(++checked)), m, n);
        if (!amx_or_model().accepts(problem, info(), to_config(config))) config.stream = 0;
        ASSERT_TRUE(amx_or_model().accepts(problem, info(), to_config(config))) << to_string(problem);
        EXPECT_EQ(bed.check(*build(problem, config)).failure, "")
            << to_string(problem) << " with " << to_string(to_config(config));
      }
  }
  EXPECT_GT(checked, 400);
}

// Strides, dilation, groups, and tails of runs; both layouts.
TEST(Amx, KindsOfRuns) {
  int checked = 0, gathered = 0;
  for (const char* text : {"mb2ic3ih17iw53oc19kh3ph1",    "mb2ic1ih28oc5kh5ph2",
                           "mb1ic3ih37iw45oc7kh7sh2ph3",  "mb1ic3ih64iw61oc6kh11sh4ph2",
                           "mb2ic3ih32oc37kh4sh4",        "mb1ic15ih9iw11oc40kh3ph1",
                           "mb1ic12ih9oc33kh3ph1",        "mb2ic10ih14oc33kh1sh2",
                           "mb1ic14ih9oc16kh3sh2ph1",     "mb3ic8ih7oc80kh1",
                           "g2mb1ic20ih9iw17oc36kh3ph1",  "mb2ic3ih17iw53oc64kh3ph1",
                           "mb1ic13ih14iw16oc96kh1",      "g2mb2ic28ih6oc70kh1",
                           "mb1ic11ih12oc20kh3ph2dh1",    "mb1ic8ih12iw20oc20kh3kw1sh1sw2",
                           "mb1ic5ih30iw33oc18kh3",       "mb1ic6ih30iw33oc18kh3",
                           "mb1ic9ih20iw40oc16kh2sh2",    "mb1ic4ih5oc3kh5",
                           "mb2ic3ih24iw52oc37kh3sh2ph1", "mb1ic7ih8iw20oc40kh3ph1"})
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      for (int repeat = 0; repeat < 10; ++repeat) {
        ConvProblem problem = bf16(text);
        problem.layout = layout;
        const std::uint64_t draw = random_bits(19, static_cast<std::uint64_t>(++checked));
        AmxConfig config = drawn(draw, 1 + static_cast<int>(draw % 2), 1 + static_cast<int>(draw / 2 % 2));
        if (!cpu::may_stream(problem) && !cpu::may_stream_planes(problem)) config.stream = 0;
        if (!amx_or_model().accepts(problem, info(), to_config(config))) config.stream = 0;
        ASSERT_TRUE(amx_or_model().accepts(problem, info(), to_config(config))) << to_string(problem);
        gathered += config.gathered;
        EXPECT_EQ(check(problem, config), "")
            << to_string(problem) << " with " << to_string(to_config(config));
      }
  EXPECT_GT(gathered, 100);
}

// While one panel is multiplied, the next is gathered: panels of one call and of several, the last of them
// shorter, by one block of filters and by several, for whose sums a step has several parts.
TEST(Amx, PanelAfterPanel) {
  for (const char* text : {"mb1ic3ih23iw31oc70kh3ph1", "mb1ic3ih40iw33oc70kh7sh2ph3", "mb2ic1ih12oc20kh5ph2"})
    for (const Layout layout : {Layout::nchw, Layout::nhwc})
      for (const int m : {1, 2, 4})
        for (const int n : {1, 2, 4}) {
          if (m * n > cpu::kAmxSums) continue;
          ConvProblem problem = bf16(text);
          problem.layout = layout;
          const AmxConfig config{.pixel_tiles = m, .filter_tiles = n, .rows = 9, .gathered = 1};
          const cpu::AmxGeometry geometry(problem, config);
          EXPECT_EQ(geometry.panel % geometry.call, 0);
          EXPECT_GT(geometry.tile_rows * geometry.tile_cols, geometry.panel / 2);
          EXPECT_EQ(check(problem, config), "")
              << to_string(problem) << " with " << to_string(to_config(config));
        }
}

// Whatever another problem left in a thread's memory is not multiplied, by zeros neither.
TEST(Amx, MemoryOfOtherProblemsDoesNotShow) {
  Host before(bf16("mb1ic15ih9oc16kh3ph1"));
  std::fill(before.x.begin(), before.x.end(), std::numeric_limits<float>::quiet_NaN());
  for (const char* text : {"mb1ic10ih7oc64kh3ph1", "mb1ic13ih7oc64kh3ph1 layout=nhwc", "mb1ic15ih7oc16kh3"}) {
    const AmxConfig config{.rows = 3};
    before.run(*build(bf16("mb1ic15ih9oc16kh3ph1"), config, 1));
    Testbed bed(bf16(text), cpu::backend(), TestData::integer, 7, 0);
    EXPECT_EQ(bed.check(*build(bf16(text), config, 1)).failure, "") << text;
  }
}

TEST(Amx, RefusesWithAReason) {
  const ConvProblem problem = bf16("mb1ic3ih8oc8kh3ph1 layout=nhwc");
  EXPECT_NE(amx_or_model()
                .accepts(problem, info(), to_config(cpu::AmxConfig{.pixel_tiles = 3, .filter_tiles = 2}))
                .reason()
                .find("3x2"),
            std::string::npos);
  EXPECT_NE(amx_or_model().supports(bf16("mb1ic16ih8oc8kh3"), info()).reason().find("15 input channels"),
            std::string::npos);
  EXPECT_NE(amx_or_model().supports(parse_problem("mb1ic3ih8oc8kh3"), info()).reason().find("bf16"),
            std::string::npos);
  EXPECT_NE(amx_or_model().supports(bf16("mb1ic3ih8oc8kh3 dir=bwd_w"), info()).reason().find("forward"),
            std::string::npos);
  EXPECT_NE(amx_or_model().supports(bf16("mb1ic15ih9000oc1kh9000ph20"), info()).reason().find("MiB"),
            std::string::npos);
  EXPECT_NE(
      amx_or_model()
          .accepts(bf16("mb1ic8ih4096oc16kh3 layout=nhwc"), info(), to_config(cpu::AmxConfig{.rows = 4094}))
          .reason()
          .find("MiB"),
      std::string::npos);
  if (!cpu::amx_missing().empty()) {
    EXPECT_EQ(cpu::amx().supports(problem, info()).reason(), cpu::amx_missing());
    EXPECT_THROW(cpu::amx().build(problem, info(), to_config(AmxConfig{})), Error);
  }
}

}  // namespace
}  // namespace convtune::amx_test
