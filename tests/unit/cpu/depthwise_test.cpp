// The depthwise convolution: every register tile of every instruction set, and the promises of floats.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct_depthwise/depthwise_candidates.h"
#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/reference/oracle.h"
#include "cpu/tile/instruction_sets.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"
#include "problem/element.h"

namespace convtune::depthwise_test {
namespace {

const DeviceInfo& info() {
  return cpu::backend().info();
}

// Filters and strides that have kernels of their own and those that have none; widths round those of vectors;
// images smaller than a register tile or than the filter.
std::vector<ConvProblem> problems() {
  std::vector<ConvProblem> all;
  std::uint64_t draw = 0;
  for (const int filter : {1, 2, 3, 5, 7})
    for (const int stride : {1, 2, 3})
      for (const int width : {1, 6, 15, 16, 33, 70})
        for (const char* layout : {"nchw", "nhwc"}) {
          const std::uint64_t bits = random_bits(5, draw++);
          const bool bf16 = bits / 4194304 % 2 == 0;
          const int channels = (bf16 ? 32 : 16) + static_cast<int>(bits % 9),
                    pad = static_cast<int>(bits / 16 % 4), dilation = bits / 64 % 4 == 0 ? 1 : 0,
                    height = 1 + static_cast<int>(bits / 256 % 19);
          const int multiplier = layout[1] == 'c' && bits / 8192 % 4 == 0 ? 2 : 1;
          const int group = layout[1] == 'h' && bits / 65536 % 2 == 0 ? 2 << bits / 33554432 % 4 : 1;
          if (width + 2 * pad < (filter - 1) * (dilation + 1) + 1 ||
              height + 2 * pad < (filter - 1) * (dilation + 1) + 1)
            continue;
          ConvProblem problem = parse_problem(fmt::format(
              "g{10}mb{1}ic{0}ih{2}iw{3}oc{4}kh{5}sh{6}ph{7}dh{8} layout={9}", channels / group * group,
              1 + bits / 32768 % 2, height, width, channels / group * group * multiplier, filter, stride, pad,
              dilation, layout, channels / group));
          problem.pad_bottom += static_cast<std::int64_t>(bits / 131072 % 3);
          problem.pad_right += static_cast<std::int64_t>(bits / 524288 % 3);
          if (bits / 2097152 % 2 == 0)
            problem.activation = Activation::clip, problem.alpha = -3, problem.beta = 5;
          if (bf16) problem.dtype = DType::bf16;
          problem.residual = bits / 8388608 % 3 == 0;
          all.push_back(problem);
        }
  return all;
}

// A problem's tensors as floats of its types; they are run as its types' bytes.
struct Host {
  explicit Host(const ConvProblem& problem)
      : x(fill(problem, problem.input_elements(), 1)),
        w(fill(problem, problem.weight_elements(), 2)),
        bias(fill(problem, problem.k, 3)),
        residual(fill(problem, problem.output_elements(), 4)) {}

  static std::vector<float> fill(const ConvProblem& problem, std::int64_t count, std::uint64_t stream) {
    std::vector<float> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(
          rounded(problem.dtype.x, static_cast<double>(random_bits(stream, i) % 2001) / 1000 - 1));
    return values;
  }
  // With y in the place of the residual, or beside it.
  void run(const ConvProblem& problem, const cpu::DepthwiseConfig& config, bool in_place = false) {
    const DType type = problem.dtype.x;
    const auto executable = cpu::direct_depthwise().build(problem, info(), to_config(config));
    std::vector<std::byte> packed(executable->packed_bytes());
    executable->pack(to_bytes(type, w).data(), to_bytes(type, bias).data(), packed.data(), nullptr);
    const auto added = to_bytes(type, residual), image = to_bytes(type, x);
    std::vector<unsigned char> out = added;
    executable->run({.x = image.data(), .residual = in_place ? out.data() : added.data(), .y = out.data()},
                    packed.data(), nullptr);
    y = to_floats(type, out.data(), problem.output_elements());
  }
  double expected(const ConvProblem& problem, std::int64_t index) const {
    return cpu::oracle(problem, {x.data(), w.data(), bias.data(), residual.data()}, index).value;
  }
  std::vector<float> x, w, bias, residual, y;
};

TEST(Depthwise, EveryTileOfEveryInstructionSet) {
  int checked = 0, grouped = 0, turn = 0;
  for (const ConvProblem& problem : problems()) {
    Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (const int tile : {0, 1, 2, 4, 5, 8}) {
        cpu::DepthwiseConfig config{bits, checked % 2 * 3, tile,
                                    problem.layout == Layout::nhwc ? checked % 3 : 0, 1};
        if (!cpu::depthwise_accepts(problem, info(), config) || turn++ % 2 == 0) config.stream = 0;
        if (!cpu::depthwise_accepts(problem, info(), config)) continue;
        grouped += problem.groups != problem.c;
        EXPECT_EQ(bed.check(*cpu::direct_depthwise().build(problem, info(), to_config(config))).failure, "")
            << to_string(problem) << " with " << to_string(to_config(config));
        ++checked;
      }
  }
  EXPECT_GT(checked, 800);
  EXPECT_GT(grouped, 60);  // bf16 in groups is for avx512_bf16 alone
}

TEST(Depthwise, CandidatesAreRight) {
  for (const char* suite : {"edges", "depthwise"})
    for (ConvProblem problem : load_suite(suite)) {
      problem.n = std::min<std::int64_t>(problem.n, 2);
      if (!cpu::depthwise_supports(problem, info())) continue;
      Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
      const auto candidates = cpu::direct_depthwise().candidates(problem, info());
      EXPECT_FALSE(candidates.empty());
      for (std::size_t i = 0; i < candidates.size(); i += 5)
        EXPECT_EQ(bed.check(*cpu::direct_depthwise().build(problem, info(), candidates[i])).failure, "")
            << to_string(problem) << " with " << to_string(candidates[i]);
    }
}

TEST(Depthwise, WhatIsNotFiniteSpreadsExactlyAsInTheOracle) {
  constexpr float kInf = std::numeric_limits<float>::infinity(),
                  kNan = std::numeric_limits<float>::quiet_NaN();
  for (const char* text :
       {"g16mb2ic16ih9iw17oc16kh3ph1 act=relu", "g16mb1ic16ih12oc32kh5sh2ph2",
        "g16mb2ic16ih9iw17oc16kh3ph1 layout=nhwc", "g16mb2ic16ih9iw35oc16kh3ph1 dtype=bf16",
        "g16mb1ic16ih12iw70oc16kh5sh2ph2 dtype=bf16 act=relu",
        "g16mb2ic16ih9iw17oc16kh3ph1 residual=1 act=relu",
        "g35mb2ic35ih9iw17oc35kh3ph1 dtype=bf16 layout=nhwc", "g8mb2ic32ih9iw17oc32kh3ph1 layout=nhwc",
        "g10mb2ic40ih9iw17oc40kh3ph1 dtype=bf16 layout=nhwc"}) {
    const ConvProblem problem = parse_problem(text);
    for (const float special : {kInf, -kInf, kNan})
      for (const bool in_weights : {false, true}) {
        Host host(problem);
        std::vector<float>& values = in_weights ? host.w : host.x;
        for (const std::size_t at : {std::size_t{0}, values.size() / 2, values.size() - 1})
          values[at] = special;
        for (const int tile : {0, 1, 4}) {
          const cpu::DepthwiseConfig config{cpu::widest_vector_bits(info()), 0, tile};
          if (!cpu::depthwise_accepts(problem, info(), config)) continue;
          host.run(problem, config, problem.residual);
          for (std::int64_t i = 0; i < problem.output_elements(); ++i) {
            const double expected = host.expected(problem, i);
            const float got = host.y[static_cast<std::size_t>(i)];
            if (std::isfinite(expected))
              ASSERT_NEAR(expected, got,
                          problem.dtype.x == DType::bf16 ? 0.02 * (1 + std::abs(expected)) : 1e-4)
                  << text;
            else
              ASSERT_TRUE(std::isnan(expected) ? std::isnan(got) : expected == got) << text << ' ' << i;
          }
        }
      }
  }
}

// A last part of a vector of channels is computed twice, and its residual is added once.
TEST(Depthwise, AResidualMayBeTheOutput) {
  for (const char* text :
       {"g35mb2ic35ih6iw9oc35kh3ph1 residual=1 layout=nhwc",
        "g71mb2ic71ih6iw9oc71kh3ph1 residual=1 dtype=bf16 layout=nhwc",
        "g5mb2ic20ih6iw9oc20kh3ph1 residual=1 layout=nhwc",
        "g9mb2ic36ih6iw9oc36kh3ph1 residual=1 dtype=bf16 layout=nhwc",
        "g5mb2ic5ih9iw37oc5kh3ph1 residual=1 act=relu", "g5mb2ic5ih9iw37oc5kh3ph1 residual=1 dtype=bf16"}) {
    const ConvProblem problem = parse_problem(text);
    // Groups of bf16, without avx512_bf16.
    if (!cpu::depthwise_supports(problem, info()) && problem.groups != problem.c) continue;
    Host host(problem);
    for (const int vectors : {0, 1}) {
      const cpu::DepthwiseConfig config{cpu::widest_vector_bits(info()), 0, 4,
                                        problem.layout == Layout::nhwc ? vectors : 0};
      ASSERT_TRUE(cpu::depthwise_accepts(problem, info(), config)) << text;
      host.run(problem, config);
      const std::vector<float> beside = host.y;
      host.run(problem, config, true);
      EXPECT_EQ(beside, host.y) << text;
      for (std::int64_t i = 0; i < problem.output_elements(); ++i) {
        const double expected = host.expected(problem, i);
        ASSERT_NEAR(expected, host.y[static_cast<std::size_t>(i)],
                    problem.dtype.x == DType::bf16 ? 0.01 * (1 + std::abs(expected)) : 1e-4)
            << text;
      }
    }
  }
}

// Tells whether the widest vectors have kernels that read a row once.
bool has_rows() {
  const ConvProblem problem = parse_problem("g3mb1ic3ih9iw9oc3kh3ph1");
  const auto* const kernels = cpu::depthwise_kernels<float>(cpu::widest_vector_bits(info()));
  return kernels->planes(cpu::plane_tile(problem, cpu::kAllRows)) != nullptr;
}

// y begins at any float; planes, and tasks of a few rows, share lines with their neighbours; what lies around
// y stays as it was. The same sums come out, whichever way they are stored.
TEST(Depthwise, WholeLinesPastTheCaches) {
  const int bits = cpu::widest_vector_bits(info());
  int checked = 0;
  for (const char* text :
       {"g3mb2ic3ih5iw1oc3kh3ph1", "g3mb2ic3ih4iw3oc3kh3ph1 residual=1", "g3mb2ic3ih9iw17oc3kh3ph1",
        "g3mb1ic3ih9iw33oc3kh5ph2 act=relu", "g3mb1ic3ih9iw32oc3kh7ph3 residual=1",
        "g5mb1ic5ih14iw56oc5kh3ph1", "g3mb1ic3ih9iw64oc3kh3ph1", "g3mb1ic3ih9iw111oc3kh3sh2ph1",
        "g3mb1ic3ih9iw128oc3kh5sh2ph2", "g3mb1ic3ih9iw224oc3kh3sh2ph1", "g3mb1ic3ih9iw112oc3kh3ph1",
        "g3mb1ic3ih9iw20oc6kh3sh2ph0"}) {
    const ConvProblem problem = parse_problem(text);
    Host host(problem);
    for (const int rows : {0, 1, 3}) {
      cpu::DepthwiseConfig config{bits, rows, 0};
      if (!cpu::depthwise_accepts(problem, info(), config)) continue;
      host.run(problem, config);
      config.stream = 1;
      if (!cpu::depthwise_accepts(problem, info(), config)) continue;
      const auto executable = cpu::direct_depthwise().build(problem, info(), to_config(config));
      std::vector<std::byte> packed(executable->packed_bytes());
      executable->pack(host.w.data(), host.bias.data(), packed.data(), nullptr);
      constexpr float kFence = 1234.5F;
      constexpr std::size_t kAround = 40;
      for (std::size_t offset = 0; offset < 17; ++offset) {
        std::vector<float> memory(host.y.size() + 2 * kAround, kFence);
        float* const y = memory.data() + offset;
        if (problem.residual) std::copy(host.residual.begin(), host.residual.end(), y);
        executable->run({.x = host.x.data(), .residual = problem.residual ? y : nullptr, .y = y},
                        packed.data(), nullptr);
        ASSERT_TRUE(std::equal(host.y.begin(), host.y.end(), y)) << text << ' ' << rows << ' ' << offset;
        for (std::size_t i = 0; i < memory.size(); ++i)
          ASSERT_TRUE((i >= offset && i < offset + host.y.size()) || memory[i] == kFence) << text << ' ' << i;
        ++checked;
      }
    }
  }
  EXPECT_TRUE(!has_rows() || checked > (bits < 512 ? 100 : 300)) << checked;
}

TEST(Depthwise, StepsAsideWithAReason) {
  const auto reason = [](const char* text) {
    return cpu::direct_depthwise().supports(parse_problem(text), info()).reason();
  };
  EXPECT_NE(reason("g16mb1ic16ih8oc16kh3ph1 dtype=f16").find("f16"), std::string::npos);
  EXPECT_NE(reason("g8mb1ic16ih8oc16kh3ph1").find("one input channel"), std::string::npos);
  EXPECT_NE(reason("g16mb1ic16ih8oc32kh3ph1 layout=nhwc").find("as many output"), std::string::npos);
  EXPECT_NE(reason("g16mb1ic48ih8oc48kh3ph1 layout=nhwc").find("groups of 1, 2"), std::string::npos);
  EXPECT_NE(reason("g2mb1ic128ih8oc128kh3ph1 layout=nhwc").find("wider than"), std::string::npos);
  EXPECT_NE(reason("g3mb1ic3ih8oc3kh3ph1 layout=nhwc").find("a vector of channels"), std::string::npos);
  ConvProblem problem = parse_problem("g16mb1ic16ih8oc16kh3ph1");
  problem.pad_right = std::int64_t{1} << 32;
  EXPECT_NE(cpu::direct_depthwise().supports(problem, info()).reason().find("columns"), std::string::npos);
  problem.pad_right = 1;
  const int bits = cpu::widest_vector_bits(info());
  EXPECT_TRUE(cpu::depthwise_accepts(problem, info(), {bits, 0, 4}));
  EXPECT_FALSE(cpu::depthwise_accepts(problem, info(), {1024, 0, 4}));
  EXPECT_FALSE(cpu::depthwise_accepts(problem, info(), {bits, -1, 4}));
  EXPECT_FALSE(cpu::depthwise_accepts(problem, info(), {bits, 0, 3}));
  EXPECT_FALSE(cpu::depthwise_accepts(problem, info(), {bits, 0, 4, 1}));
  EXPECT_FALSE(cpu::depthwise_accepts(problem, info(), {bits, 0, 4, 0, 1}));
  EXPECT_EQ(has_rows(), bool(cpu::depthwise_accepts(problem, info(), {bits, 0, 0, 0, 1})));
  EXPECT_FALSE(cpu::depthwise_accepts(problem, info(), {128, 0, 0}));
  problem.dilation_w = 2;
  EXPECT_FALSE(cpu::depthwise_accepts(problem, info(), {bits, 0, 0}));
}

}  // namespace
}  // namespace convtune::depthwise_test
