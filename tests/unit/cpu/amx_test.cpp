// AMX: every register tile beside the oracle, by a model of the tiles where the processor has none.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cpu/algorithms/amx/amx_candidates.h"
#include "cpu/algorithms/amx/amx_executable.h"
#include "cpu/algorithms/amx/amx_kernels.h"
#include "cpu/algorithms/amx/amx_multiply.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/tensor_kernels.h"
#include "measure/testbed.h"
#include "problem/activation.h"
#include "problem/config_fields.h"
#include "problem/element.h"
#include "problem/random_problem.h"
#include "unit/cpu/real_tensors.h"

namespace convtune::amx_test {
namespace {

using cpu::AmxConfig;

const DeviceInfo& info() {
  return cpu::backend().info();
}

// The eight tiles as the processor's manual describes them, in memory. Products of rows and columns that the
// configuration leaves out are not made, and what lies there is not touched.
struct ModelTiles {
  struct State {
    bool configured = false;
    std::array<int, 8> rows, bytes;
    std::array<std::array<std::array<unsigned char, 64>, 16>, 8> data;
  };
  static State& state() {
    thread_local State all;
    return all;
  }
  static void configure(int tail) {
    State& s = state();
    EXPECT_FALSE(s.configured);
    s.configured = true;
    s.rows.fill(16), s.bytes.fill(64);
    if (tail > 0) s.bytes[cpu::kAmxTailA] = 2 * tail, s.rows[cpu::kAmxTailB] = tail / 2;
  }
  static void release() {
    EXPECT_TRUE(state().configured);
    state().configured = false;
  }
  template <int t>
  static void zero() {
    for (auto& row : state().data[t]) row.fill(0);
  }
  template <int t>
  static void load(const void* from, std::int64_t row_bytes) {
    State& s = state();
    zero<t>();
    for (int row = 0; row < s.rows[t]; ++row)
      std::memcpy(s.data[t][static_cast<std::size_t>(row)].data(),
                  static_cast<const char*>(from) + row * row_bytes, static_cast<std::size_t>(s.bytes[t]));
  }
  template <int t>
  static void store(void* to, std::int64_t row_bytes) {
    State& s = state();
    for (int row = 0; row < s.rows[t]; ++row)
      std::memcpy(static_cast<char*>(to) + row * row_bytes, s.data[t][static_cast<std::size_t>(row)].data(),
                  static_cast<std::size_t>(s.bytes[t]));
  }
  template <int sums, int a, int b>
  static void multiply_add() {
    State& s = state();
    ASSERT_TRUE(s.configured);
    ASSERT_EQ(s.bytes[a], 4 * s.rows[b]);
    for (std::size_t row = 0; row < 16; ++row) {
      auto sum = std::bit_cast<std::array<float, 16>>(s.data[sums][row]);
      const auto x = std::bit_cast<Words>(s.data[a][row]);
      for (std::size_t word = 0; word < static_cast<std::size_t>(s.rows[b]); ++word) {
        const auto w = std::bit_cast<Words>(s.data[b][word]);
        for (std::size_t col = 0; col < 16; ++col)
          sum[col] = (sum[col] + lower(x[word]) * lower(w[col])) + upper(x[word]) * upper(w[col]);
      }
      s.data[sums][row] = std::bit_cast<std::array<unsigned char, 64>>(sum);
    }
  }
  // Two bf16, each the upper half of a float.
  using Words = std::array<std::uint32_t, 16>;
  static float lower(std::uint32_t word) { return std::bit_cast<float>(word << 16); }
  static float upper(std::uint32_t word) { return std::bit_cast<float>(word & 0xFFFF0000U); }
};

const cpu::AmxKernels& kernels() {
  static constexpr cpu::AmxKernels model = cpu::amx_kernels_of<ModelTiles>();
  return cpu::amx_missing().empty() ? cpu::amx_kernels() : model;
}

std::unique_ptr<Executable> build(const ConvProblem& problem, const AmxConfig& config, int threads = 2) {
  return cpu::amx_executable(problem, config, threads, cpu::widest_vector_bits(info()), kernels());
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
    if (!cpu::amx_takes(problem, info())) continue;
    Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
    for (int m = 1; m <= cpu::kAmxSums; ++m)
      for (int n = 1; m * n <= cpu::kAmxSums; ++n) {
        AmxConfig config = drawn(random_bits(18, static_cast<std::uint64_t>(++checked)), m, n);
        if (!cpu::amx_takes(problem, info(), config)) config.stream = 0;
        ASSERT_TRUE(cpu::amx_takes(problem, info(), config)) << to_string(problem);
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
        if (!cpu::amx_takes(problem, info(), config)) config.stream = 0;
        ASSERT_TRUE(cpu::amx_takes(problem, info(), config)) << to_string(problem);
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

// A tail's neighbours are other pixels, a padded channel's are none: no infinity of theirs may show.
TEST(Amx, NanAndInfSpreadExactlyAsInTheOracle) {
  const float specials[] = {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()};
  for (const char* text :
       {"mb1ic3ih9iw11oc7kh3sh2ph1 act=relu", "mb2ic5ih6iw7oc18kh3ph1 layout=nhwc",
        "mb1ic3ih6iw37oc18kh3ph1 layout=nhwc act=sigmoid residual=1", "mb1ic4ih6iw7oc18kh3ph2dh1 act=silu",
        "mb1ic4ih6oc5kh1 layout=nhwc act=hardswish", "mb1ic15ih6iw9oc5kh3 layout=nhwc",
        "g2mb1ic4ih6oc6kh3sh2ph2dh1 bias=0 layout=nhwc act=leaky_relu:0.5"}) {
    const ConvProblem problem = bf16(text);
    for (const int gathered : {0, 1})
      for (const float special : specials) {
        const AmxConfig config{.rows = 2, .gathered = gathered};
        if (!cpu::amx_takes(problem, info(), config)) continue;
        for (std::size_t at = 0; at < Host(problem).x.size();
             at += problem.input_elements() < 200 ? 7 : 131) {
          Host host(problem);
          host.x[at] = special;
          expect_as_in_oracle(host, host.run(*build(problem, config)));
        }
        // Over the padding a weight is never multiplied.
        Host host(problem);
        host.w.front() = special;
        host.w.back() = std::numeric_limits<float>::quiet_NaN();
        expect_as_in_oracle(host, host.run(*build(problem, config)));
      }
  }
}

TEST(Amx, SameBitsForAnyNumberOfThreadsAndAnyAlignment) {
  for (const char* text : {"mb2ic3ih16iw28oc40kh3ph1", "mb3ic4ih20oc40kh3ph1",
                           "mb2ic13ih9oc33kh3ph1 layout=nhwc act=silu residual=1",
                           "mb2ic6ih9oc33kh1 layout=nhwc residual=1", "mb5ic14ih7oc64kh3ph1"}) {
    const ConvProblem problem = bf16(text);
    for (const int gathered : {0, 1}) {
      const AmxConfig config{.pixel_tiles = 3,
                             .filter_tiles = 1,
                             .rows = 3,
                             .filters = 16,
                             .gathered = gathered,
                             .stream = cpu::may_stream_planes(problem)};
      if (!cpu::amx_takes(problem, info(), config)) continue;
      const std::vector<float> expected = Host(problem).run(*build(problem, config, 1));
      for (const int threads : {2, 3, 16})
        for (const std::int64_t shift : {0, 1}) {
          const std::vector<float> y = Host(problem, shift).run(*build(problem, config, threads));
          EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
              << text << " with " << to_string(to_config(config)) << ", " << threads << " threads";
        }
    }
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

TEST(Amx, TheResidualMayBeTheOutput) {
  for (const char* text :
       {"mb1ic6ih1iw37oc20kh1 layout=nhwc residual=1", "mb1ic6ih7iw9oc20kh3ph1 residual=1"}) {
    const ConvProblem problem = bf16(text);
    const auto executable = build(problem, {.rows = 7});
    const Host host(problem);
    const auto packed = cpu::backend().allocate(executable->packed_bytes());
    const auto x = to_bytes(DType::bf16, host.x), w = to_bytes(DType::bf16, host.w),
               bias = to_bytes(DType::bf16, host.bias);
    executable->pack(w.data(), bias.data(), packed.get(), nullptr);
    auto y = to_bytes(DType::bf16, host.residual);
    executable->run({.x = x.data(), .residual = y.data(), .y = y.data()}, packed.get(), nullptr);
    EXPECT_EQ(to_floats(DType::bf16, y.data(), problem.output_elements()), host.run(*executable)) << text;
  }
}

TEST(Amx, CandidatesAreTakenAndDistinct) {
  int lists = 0;
  for (std::uint64_t i = 0; i < 600; ++i) {
    ConvProblem problem = random_problem_of_any_kind(5, i);
    problem.dtype.x = problem.dtype.w = DType::bf16;
    if (!cpu::amx_takes(problem, info())) continue;
    std::set<std::string> texts;
    const auto configs = cpu::amx_candidates(problem, info());
    EXPECT_FALSE(configs.empty()) << to_string(problem);
    for (const AmxConfig& config : configs) {
      texts.insert(to_string(to_config(config)));
      EXPECT_TRUE(cpu::amx_takes(problem, info(), config)) << *texts.rbegin();
    }
    EXPECT_EQ(texts.size(), configs.size()) << to_string(problem);
    ++lists;
  }
  EXPECT_GT(lists, 100);
}

TEST(Amx, RandomProblemsByAnyCandidate) {
  int checked = 0;
  for (std::uint64_t i = 0; i < 400; ++i) {
    ConvProblem problem = random_problem_of_any_kind(9, i);
    problem.dtype.x = problem.dtype.w = DType::bf16;
    if (problem.n == 0 || problem.flops() > 1e7 || !cpu::amx_takes(problem, info())) continue;
    const auto configs = cpu::amx_candidates(problem, info());
    const AmxConfig config = configs[random_bits(23, i) % configs.size()];
    EXPECT_EQ(check(problem, config), "") << to_string(problem) << " with " << to_string(to_config(config));
    ++checked;
  }
  EXPECT_GT(checked, 50);
}

TEST(Amx, RefusesWithAReason) {
  const ConvProblem problem = bf16("mb1ic3ih8oc8kh3ph1 layout=nhwc");
  EXPECT_NE(cpu::amx_takes(problem, info(), {.pixel_tiles = 3, .filter_tiles = 2}).reason().find("3x2"),
            std::string::npos);
  EXPECT_NE(cpu::amx_takes(bf16("mb1ic16ih8oc8kh3"), info()).reason().find("15 input channels"),
            std::string::npos);
  EXPECT_NE(cpu::amx_takes(parse_problem("mb1ic3ih8oc8kh3"), info()).reason().find("bf16"),
            std::string::npos);
  EXPECT_NE(cpu::amx_takes(bf16("mb1ic3ih8oc8kh3 dir=bwd_d"), info()).reason().find("forward"),
            std::string::npos);
  EXPECT_NE(cpu::amx_takes(bf16("mb1ic15ih9000oc1kh9000ph20"), info()).reason().find("MiB"),
            std::string::npos);
  EXPECT_NE(
      cpu::amx_takes(bf16("mb1ic8ih4096oc16kh3 layout=nhwc"), info(), {.rows = 4094}).reason().find("MiB"),
      std::string::npos);
  if (!cpu::amx_missing().empty()) {
    EXPECT_EQ(cpu::amx().supports(problem, info()).reason(), cpu::amx_missing());
    EXPECT_THROW(cpu::amx().build(problem, info(), to_config(AmxConfig{})), Error);
  }
}

}  // namespace
}  // namespace convtune::amx_test
