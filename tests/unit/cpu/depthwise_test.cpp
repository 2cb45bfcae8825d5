// The depthwise convolution: every register tile of every instruction set, and what it stores past the
// caches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/direct_depthwise/depthwise_candidates.h"
#include "cpu/algorithms/direct_depthwise/depthwise_kernels.h"
#include "cpu/algorithms/direct_depthwise/depthwise_lined_pixels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/instruction_sets.h"
#include "measure/testbed.h"
#include "problem/config_fields.h"
#include "unit/cpu/real_tensors.h"

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

TEST(Depthwise, EveryTileOfEveryInstructionSet) {
  int checked = 0, grouped = 0, turn = 0;
  for (const ConvProblem& problem : problems()) {
    Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
    for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
      for (const int tile : {0, 1, 2, 4, 5, 8}) {
        cpu::DepthwiseConfig config{bits, checked % 2 * 3, tile,
                                    problem.layout == Layout::nhwc ? checked % 3 : 0, 1};
        if (!cpu::direct_depthwise().accepts(problem, info(), to_config(config)) || turn++ % 2 == 0)
          config.stream = 0;
        if (!cpu::direct_depthwise().accepts(problem, info(), to_config(config))) continue;
        grouped += problem.groups != problem.c;
        EXPECT_EQ(bed.check(*cpu::direct_depthwise().build(problem, info(), to_config(config))).failure, "")
            << to_string(problem) << " with " << to_string(to_config(config));
        ++checked;
      }
  }
  EXPECT_GT(checked, 800);
  EXPECT_GT(grouped, 60);  // bf16 in groups is for avx512_bf16 alone
}

// Filters of every length round a register tile's, causal, with padding on both sides or none, wider than the
// image too; strides, dilations that divide a vector or do not; special numbers beside padding and in it.
TEST(Depthwise, RowsOfLongFilters) {
  int checked = 0;
  std::uint64_t draw = 0;
  for (const int taps : {1, 4, 9, 15, 16, 17, 31, 33, 64, 130})
    for (const int width : {1, 20, 97, 288, 700})
      for (const char* layout : {"nchw", "nhwc"}) {
        const std::uint64_t bits = random_bits(6, draw++);
        const bool bf16 = bits % 2 == 0;
        const int channels = (bf16 ? 32 : 16) + static_cast<int>(bits / 2 % 9);
        const int stride = 1 + static_cast<int>(bits / 32 % 2);
        const int dilation = std::vector<int>{0, 0, 0, 1, 2, 7, 31}[bits / 64 % 7];
        const int reach = (taps - 1) * (dilation + 1);
        const int left = std::vector<int>{reach, reach, reach / 2, 0}[bits / 512 % 4];
        const int right = std::max(left == reach ? 0 : reach - left, reach + 1 - width - left);
        ConvProblem problem = parse_problem(
            fmt::format("g{0}mb{1}ic{0}ih{2}iw{3}oc{0}kh{2}kw{4}ph0pw{5}dw{6}sw{7} pad_right={8} layout={9}",
                        channels, 1 + bits / 4096 % 2, 1 + bits / 8192 % 5 / 4, width, taps, left, dilation,
                        stride, right, layout));
        problem.residual = bits / 65536 % 3 == 0;
        if (bits / 1048576 % 2 == 0) problem.activation = Activation::relu;
        if (bf16) problem.dtype = DType::bf16;
        Testbed exact(problem, cpu::backend(), TestData::integer, 7, 0),
            special(problem, cpu::backend(), TestData::non_finite, 7, 0);
        for (int vector_bits = cpu::widest_vector_bits(info()); vector_bits >= 128; vector_bits /= 2)
          for (const int tile : {1, 2, 7, 11, 14})
            for (const int cols : {0, 32, 96}) {
              cpu::DepthwiseConfig config{vector_bits, 0, tile, 0, checked % 2, cols};
              const auto accepts = [&] {
                return bool(cpu::direct_depthwise().accepts(problem, info(), to_config(config)));
              };
              if (!accepts()) config.stream = 0;
              if (!accepts()) continue;
              const auto executable = cpu::direct_depthwise().build(problem, info(), to_config(config));
              for (Testbed* bed : {&exact, &special})
                EXPECT_EQ(bed->check(*executable).failure, "")
                    << to_string(problem) << " with " << to_string(to_config(config));
              ++checked;
            }
      }
  EXPECT_GT(checked, 400);
}

// Cubes and other filters of frames: causal, with frames of padding alone on either side, strides, dilations;
// special numbers in the frames of padding's neighbours.
TEST(Depthwise, FramesOfEveryTile) {
  int checked = 0;
  std::uint64_t draw = 0;
  for (const int taps : {2, 3, 5, 7})
    for (const int width : {5, 16, 28, 33})
      for (const char* layout : {"nchw", "nhwc"})
        for (const bool bf16 : {false, true}) {
          const std::uint64_t bits = random_bits(8, draw++);
          const int filter = bits % 4 == 0 ? 1 : taps, pad = filter / 2,
                    stride = 1 + static_cast<int>(bits / 4 % 2);
          const int depth = 1 + static_cast<int>(bits / 8 % 5), dilation = bits / 64 % 3 == 0 ? 1 : 0;
          const int reach = (taps - 1) * (dilation + 1);
          const int front = std::vector<int>{reach, reach / 2, reach + 3, 0}[bits / 256 % 4];
          const int channels = (bf16 ? 32 : 16) + static_cast<int>(bits / 1024 % 9);
          ConvProblem problem = parse_problem(fmt::format(
              "g{0}mb{1}ic{0}id{2}ih{3}iw{4}oc{0}kd{5}kh{6}kw{6}pd{7}ph{8}pw{8}dd{9}sd{10}sh{11}sw{11} "
              "pad_back={12} layout={13}",
              channels, 1 + bits / 16384 % 2, depth, std::max(filter, 9), std::max(width, filter), taps,
              filter, front, pad, dilation, 1 + bits / 32768 % 2, stride,
              std::max(reach + 1 - depth - front, 0), layout));
          problem.residual = bits / 65536 % 3 == 0;
          if (bits / 1048576 % 2 == 0) problem.activation = Activation::relu;
          if (bf16) problem.dtype = DType::bf16;
          Testbed exact(problem, cpu::backend(), TestData::integer, 7, 0),
              special(problem, cpu::backend(), TestData::non_finite, 7, 0);
          for (int vector_bits = cpu::widest_vector_bits(info()); vector_bits >= 128; vector_bits /= 2)
            for (const int tile : {0, 1, 2, 4, 8}) {
              const cpu::DepthwiseConfig config{vector_bits, checked % 3, tile, 0, 0};
              if (!cpu::direct_depthwise().accepts(problem, info(), to_config(config))) continue;
              const auto executable = cpu::direct_depthwise().build(problem, info(), to_config(config));
              for (Testbed* bed : {&exact, &special})
                EXPECT_EQ(bed->check(*executable).failure, "")
                    << to_string(problem) << " with " << to_string(to_config(config));
              ++checked;
            }
        }
  EXPECT_GT(checked, 200);
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
        "g3mb1ic3ih9iw20oc6kh3sh2ph0", "g16mb2ic16ih5iw3oc16kh3ph1 layout=nhwc",
        "g48mb1ic48ih9iw17oc48kh3ph1 layout=nhwc residual=1", "g32mb2ic64ih7iw9oc64kh3sh2ph1 layout=nhwc"}) {
    const ConvProblem problem = parse_problem(text);
    const Host host(problem);
    for (const int rows : {0, 1, 3}) {
      cpu::DepthwiseConfig config{bits, rows, problem.layout == Layout::nhwc ? 4 : 0};
      if (!cpu::direct_depthwise().accepts(problem, info(), to_config(config))) continue;
      const std::vector<float> expected =
          host.run(*cpu::direct_depthwise().build(problem, info(), to_config(config)));
      config.stream = 1;
      if (!cpu::direct_depthwise().accepts(problem, info(), to_config(config))) continue;
      const auto executable = cpu::direct_depthwise().build(problem, info(), to_config(config));
      std::vector<std::byte> packed(executable->packed_bytes());
      executable->pack(host.w.data(), host.bias.data(), packed.data(), nullptr);
      constexpr float kFence = 1234.5F;
      constexpr std::size_t kAround = 40;
      for (std::size_t offset = 0; offset < 17; ++offset) {
        std::vector<float> memory(expected.size() + 2 * kAround, kFence);
        float* const y = memory.data() + offset;
        if (problem.residual) std::copy(host.residual.begin(), host.residual.end(), y);
        executable->run({.x = host.x.data(), .residual = problem.residual ? y : nullptr, .y = y},
                        packed.data(), nullptr);
        ASSERT_TRUE(std::equal(expected.begin(), expected.end(), y)) << text << ' ' << rows << ' ' << offset;
        for (std::size_t i = 0; i < memory.size(); ++i)
          ASSERT_TRUE((i >= offset && i < offset + expected.size()) || memory[i] == kFence)
              << text << ' ' << i;
        ++checked;
      }
    }
  }
  EXPECT_TRUE(!has_rows() || checked > (bits < 512 ? 100 : 300)) << checked;
}

// x and y begin equally far behind a line, channels last: a line is of two pixels, which meet padding or not,
// at a row's ends too, and where tasks share it. The sums are those of vectors that begin with pixels.
TEST(Depthwise, LinesOfTwoPixels) {
  int checked = 0, lined = 0;
  for (const char* text :
       {"g16mb2ic16ih19iw17oc16kh3ph1", "g48mb1ic48ih20iw30oc48kh3ph1", "g64mb2ic64ih40iw21oc64kh5ph2",
        "g32mb1ic32ih12iw60oc32kh3pw0ph1", "g32mb2ic32ih16iw20oc32kh3ph2dh1 act=relu",
        "g32mb1ic32ih20iw70oc32kh3kw7pw6ph1", "g32mb1ic32ih29iw21oc32kh3kw2pw0 pad_right=3",
        "g16mb2ic64ih36iw33oc64kh3ph1", "g4mb8ic64ih30iw40oc64kh3ph1", "g32mb1ic32ih70iw1oc32kh1",
        "g16mb4ic16ih30iw2oc16kh3kw1ph1pw0", "g32mb1ic32id5ih20iw19oc32kd3kh3kw3pd1ph1pw1",
        "g16mb1ic16ih1iw700oc16kh1kw4pw3", "g32mb1ic32ih1iw900oc32kh1kw9ph0pw8"})
    for (const DType type : {DType::f32, DType::bf16}) {
      ConvProblem problem = parse_problem(fmt::format("{} layout=nhwc", text));
      if (type == DType::bf16) problem.dtype = type;
      const Host host(problem);
      for (const int rows : {0, 1, 3})
        for (const int tile : {1, 4, 8})
          for (const int cols : {0, 7}) {
            const cpu::DepthwiseConfig config{512, rows, tile, 0, checked % 2, cols};
            if (!cpu::direct_depthwise().accepts(problem, info(), to_config(config))) continue;
            const auto executable = cpu::direct_depthwise().build(problem, info(), to_config(config));
            const std::vector<std::byte> expected = host.run_behind_a_line(*executable, 0);
            const std::int64_t unit = std::lcm(4, size_of(problem.dtype.x) * problem.c / problem.groups);
            const cpu::DepthwiseGeometry geometry(problem, config);
            const auto* const at = reinterpret_cast<const float*>(unit);
            lined +=
                (problem.dtype.x == DType::bf16 ? cpu::LinedPixels<cpu::Bf16>::cut_of(geometry, at, at)
                                                : cpu::LinedPixels<float>::cut_of(geometry, at, at)) != 0;
            for (const std::int64_t behind : {unit, 32 / unit * unit, 64 - unit})
              ASSERT_TRUE(expected == host.run_behind_a_line(*executable, behind))
                  << to_string(problem) << " with " << to_string(to_config(config)) << " at " << behind;
            ++checked;
          }
    }
  EXPECT_TRUE(cpu::widest_vector_bits(info()) < 512 || lined > 400) << checked << ' ' << lined;
}

// Vectors of some widths have no kernel for pairs of bf16 in such groups, not even of one pixel.
TEST(Depthwise, CandidatesEndWhereAWidthHasNoKernel) {
  for (const int group : {2, 4, 8, 16, 32})
    for (const char* type : {"f32", "bf16"}) {
      const ConvProblem problem =
          parse_problem(fmt::format("g2mb1ic{0}ih14oc{0}kh3ph1 layout=nhwc dtype={1}", 2 * group, type));
      for (const Config& config : cpu::direct_depthwise().candidates(problem, info()))
        EXPECT_TRUE(cpu::direct_depthwise().accepts(problem, info(), config)) << to_string(problem);
    }
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
  EXPECT_TRUE(cpu::direct_depthwise().accepts(problem, info(), to_config(cpu::DepthwiseConfig{bits, 0, 4})));
  EXPECT_FALSE(cpu::direct_depthwise().accepts(problem, info(), to_config(cpu::DepthwiseConfig{bits, 0, 3})));
  EXPECT_FALSE(
      cpu::direct_depthwise().accepts(problem, info(), to_config(cpu::DepthwiseConfig{bits, 0, 4, 1})));
  EXPECT_FALSE(
      cpu::direct_depthwise().accepts(problem, info(), to_config(cpu::DepthwiseConfig{bits, 0, 4, 0, 1})));
  EXPECT_EQ(has_rows(), bool(cpu::direct_depthwise().accepts(
                            problem, info(), to_config(cpu::DepthwiseConfig{bits, 0, 0, 0, 1}))));
  EXPECT_FALSE(cpu::direct_depthwise().accepts(problem, info(), to_config(cpu::DepthwiseConfig{128, 0, 0})));
  EXPECT_FALSE(cpu::direct_depthwise().accepts(problem, info(),
                                               to_config(cpu::DepthwiseConfig{bits, 0, 4, 0, 0, 32})));
  EXPECT_TRUE(cpu::direct_depthwise().accepts(problem, info(),
                                              to_config(cpu::DepthwiseConfig{bits, 0, 1, 0, 0, 32})));
  EXPECT_FALSE(cpu::direct_depthwise().accepts(problem, info(),
                                               to_config(cpu::DepthwiseConfig{bits, 0, 1, 0, 0, 33})));
  problem.dilation_w = 2;
  EXPECT_FALSE(cpu::direct_depthwise().accepts(problem, info(), to_config(cpu::DepthwiseConfig{bits, 0, 0})));
}

}  // namespace
}  // namespace convtune::depthwise_test
