// The implicit GEMM: every register tile of every instruction set, its bound, and its estimate beside that of
// direct.
#include <gtest/gtest.h>

#include <vector>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "cpu/algorithms/cpu_algorithms.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_candidates.h"
#include "cpu/algorithms/implicit_gemm/implicit_gemm_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/instruction_sets.h"
#include "measure/testbed.h"
#include "problem/activation.h"
#include "problem/config_fields.h"
#include "problem/random_problem.h"

namespace convtune::implicit_gemm_test {
namespace {

using cpu::ImplicitGemmConfig;

const DeviceInfo& info() {
  return cpu::backend().info();
}

std::string check(const ConvProblem& problem, const ImplicitGemmConfig& config) {
  Testbed bed(problem, cpu::backend(), TestData::integer, 7, 0);
  return bed.check(*cpu::implicit_gemm().build(problem, info(), to_config(config))).failure;
}

TEST(ImplicitGemm, ReadsRowsOfTheFilterInPlanes) {
  int checked = 0;
  for (std::uint64_t i = 0; i < 60; ++i) {
    std::uint64_t drawn = 0;
    const auto between = [&](std::int64_t low, std::int64_t high) {
      return low + static_cast<std::int64_t>(random_bits(19 + i, drawn++) %
                                             static_cast<std::uint64_t>(high - low + 1));
    };
    ConvProblem problem;
    problem.n = between(1, 3), problem.c = between(1, 4), problem.k = between(1, 70);
    problem.r = between(1, 9), problem.s = between(1, 9);
    problem.stride_h = between(1, 9), problem.stride_w = between(1, 9), problem.dilation_h = between(1, 2);
    problem.h = 1 + (problem.r - 1) * problem.dilation_h + between(0, 20),
    problem.w = problem.s + between(0, 20);
    problem.bias = i % 2 == 0;
    ImplicitGemmConfig config{.vector_bits = cpu::widest_vector_bits(info()), .staged = 0, .joined = 1};
    config.pixels = static_cast<int>(between(1, 8)), config.vectors = static_cast<int>(between(1, 3));
    config.rows = static_cast<int>(between(1, 6));
    config.cols = static_cast<int>(between(0, 5));
    if (!cpu::implicit_gemm().accepts(problem, info(), to_config(config))) continue;
    EXPECT_EQ(check(problem, config), "") << to_string(problem) << " with " << to_string(to_config(config));
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

// Every register tile of pixels that follow each other in a plane: odd rests, rows, images and strides down.
TEST(ImplicitGemm, MultipliesPixelsSideBySide) {
  int checked = 0;
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2)
    for (int pixels = 1; pixels <= cpu::kMaxGemmPixels; ++pixels)
      for (int vectors = 1; vectors <= cpu::kMaxGemmVectors; ++vectors)
        for (const char* text :
             {"mb1ic7ih14oc65kh1", "mb3ic5ih3iw5oc37kh1 act=relu", "mb2ic3ih9iw11oc50kh3kw1",
              "mb2ic4ih7iw13oc33kh1sh2 residual=1", "mb1ic40ih1iw1oc130kh1 bias=0"}) {
          const ConvProblem problem = parse_problem(text);
          for (const int rows : {1, 4, 14}) {
            const ImplicitGemmConfig config{.vector_bits = bits,
                                            .pixels = pixels,
                                            .vectors = vectors,
                                            .rows = rows,
                                            .filters = rows == 4 ? vectors * bits / 32 : 0,
                                            .staged = 0,
                                            .joined = 1};
            if (!cpu::reads_side_by_side(problem, config)) continue;
            if (!cpu::implicit_gemm().accepts(problem, info(), to_config(config))) continue;  // no such tile
            EXPECT_EQ(check(problem, config), "") << text << " with " << to_string(to_config(config));
            ++checked;
          }
        }
  EXPECT_GT(checked, 200);
}

// 14 pixels have one pointer: where they do not follow each other in planes there is no such tile.
TEST(ImplicitGemm, FourteenPixelsLieSideBySideOrAreRefused) {
  if (cpu::widest_vector_bits(info()) < 512) GTEST_SKIP() << "28 sums do not fit the registers";
  const ImplicitGemmConfig config{.pixels = 14, .rows = 7, .staged = 0, .joined = 1};
  const auto reason = [&](const char* text, auto change) {
    ImplicitGemmConfig changed = config;
    change(changed);
    return cpu::implicit_gemm().accepts(parse_problem(text), info(), to_config(changed)).reason();
  };
  const auto same = [](auto&) {};
  EXPECT_EQ(reason("mb1ic1024ih14oc256kh1", same), "");
  EXPECT_EQ(reason("mb4ic1024ih14oc256kh1", same), "");
  EXPECT_NE(reason("mb1ic1024ih14oc256kh1", [](auto& c) { c.staged = c.joined = 0; }).find("side by side"),
            std::string::npos);
  EXPECT_NE(reason("mb1ic1024ih14oc256kh1", [](auto& c) { c.cols = 7; }).find("side by side"),
            std::string::npos);
  EXPECT_NE(reason("mb1ic1024ih14oc256kh1sh2", same).find("side by side"), std::string::npos);
  EXPECT_NE(reason("mb1ic1024ih14oc256kh1 layout=nhwc", same).find("side by side"), std::string::npos);
  EXPECT_NE(reason("mb1ic8ih14oc256kh3", same).find("side by side"), std::string::npos);
  EXPECT_NE(reason("mb1ic8ih14oc256kh1ph1", same).find("side by side"), std::string::npos);
  EXPECT_NE(reason("g2mb1ic8ih14oc256kh1", same).find("groups"), std::string::npos);
  EXPECT_NE(reason("mb1ic8ih14oc256kh1 dtype=bf16", same), "");
  const auto first = cpu::implicit_gemm_candidates(parse_problem("mb1ic1024ih14oc256kh1"), info()).front();
  EXPECT_EQ(first.pixels, 14);
}

TEST(ImplicitGemm, EveryTileOfEveryInstructionSetOnTheEdgeCases) {
  constexpr DType kTypes[] = {DType::f32, DType::bf16, DType::f16};
  const std::vector<Activation> activations = all_activations();
  int checked = 0, joined = 0;
  for (int bits = cpu::widest_vector_bits(info()); bits >= 128; bits /= 2) {
    const cpu::ImplicitGemmKernels* kernels = cpu::implicit_gemm_kernels(bits);
    ASSERT_NE(kernels, nullptr) << bits;
    const std::vector<ConvProblem> edges = load_suite("edges");
    for (int pixels = 1; pixels <= cpu::kMaxGemmPixels; ++pixels)
      for (int vectors = 1; vectors <= cpu::kMaxGemmVectors; ++vectors)
        for (std::size_t i = 0; i < edges.size(); ++i) {
          const std::uint64_t draw = random_bits(11, static_cast<std::uint64_t>(checked));
          // An eighth of the problems for each tile, and every one of them for some.
          if ((i + static_cast<std::size_t>(pixels * 5 + vectors)) % 8 != 0) continue;
          ConvProblem problem = edges[i];
          problem.dtype = kTypes[draw % 3];
          problem.layout = draw / 8 % 2 == 0 ? Layout::nhwc : Layout::nchw;
          problem.residual = draw / 16 % 2 == 0;
          if (draw / 32 % 2 == 0) problem.rounding = Rounding::eager;
          if (draw / 64 % 2 == 0) {
            problem.activation = activations[draw / 128 % activations.size()];
            problem.alpha = problem.beta = 0;
            if (problem.activation == Activation::clip) problem.alpha = -3, problem.beta = 5;
            if (problem.activation == Activation::leaky_relu) problem.alpha = 0.25F;
          }
          ImplicitGemmConfig config{.vector_bits = bits, .pixels = pixels, .vectors = vectors};
          config.bf16 = problem.dtype == DType::bf16 && draw / 4096 % 4 != 0;
          config.rows = 1 + static_cast<int>(draw / 65536 % 5);
          config.cols = draw / 524288 % 2 == 0 ? 0 : 1 + static_cast<int>(draw / 1048576 % 16);
          config.channels = draw / 16777216 % 2 == 0 ? 0 : 1 + static_cast<int>(draw / 33554432 % 8);
          config.filters = draw / 268435456 % 2 == 0 ? 0 : vectors * bits / 32;
          config.staged = draw / 536870912 % 2 == 0;
          config.joined = draw / 1073741824 % 2 == 0;
          if (config.joined != 0) config.channels = 0;
          if (!cpu::implicit_gemm().accepts(problem, info(), to_config(config))) config.joined = 0;
          if (!cpu::implicit_gemm().accepts(problem, info(), to_config(config))) config.staged = 1;
          if (!cpu::implicit_gemm().accepts(problem, info(), to_config(config))) config.bf16 = 0;
          if (!cpu::implicit_gemm().accepts(problem, info(), to_config(config))) continue;  // no such tile
          EXPECT_EQ(check(problem, config), "")
              << to_string(problem) << " with " << to_string(to_config(config));
          ++checked, joined += config.joined;
        }
  }
  EXPECT_GT(checked, 200);
  EXPECT_GT(joined, 10);
}

TEST(ImplicitGemm, BoundsNoLessThanTheProblem) {
  for (std::uint64_t i = 0; i < 300; ++i) {
    const ConvProblem problem = random_problem_of_any_kind(5, i);
    // Gradients of data are computed by forward parts, without the products of what is cropped.
    if (problem.direction != Direction::forward) continue;
    if (!cpu::implicit_gemm().supports(problem, info())) continue;
    for (const ImplicitGemmConfig& config : cpu::implicit_gemm_candidates(problem, info())) {
      if (config.vector_bits != cpu::widest_vector_bits(info())) continue;
      const double flops_per_second = config.bf16 != 0 ? 5e8 : 1e9;
      const double us =
          cpu::implicit_gemm().bound_us(problem, info(), to_config(config), {flops_per_second, 1e9});
      EXPECT_GE(us * 1e3 * 1.000001, problem.flops()) << to_string(problem) << to_string(to_config(config));
    }
  }
}

// Covers what is planned where nothing was measured, for a processor with AVX-512, whichever this one is.
TEST(ImplicitGemm, IsEstimatedBesideDirectAsItWasMeasured) {
  if (!cpu::implicit_gemm_kernels(512)) GTEST_SKIP() << "this build has no code for AVX-512";
  DeviceInfo device = info();
  device.isa = "avx512", device.units = 2;
  device.l1_bytes = 32 << 10, device.l2_bytes = 1 << 20, device.l3_bytes = 32 << 20;
  const auto estimated_us = [&](const Algorithm& algorithm, const ConvProblem& problem) {
    return *algorithm.estimated_us(problem, device, algorithm.candidates(problem, device).front());
  };
  const auto wins = [&](const char* name, Layout layout) {
    ConvProblem problem = find_problem(name);
    problem.n = 1, problem.layout = layout;
    return estimated_us(cpu::implicit_gemm(), problem) < estimated_us(cpu::direct(), problem);
  };
  for (const char* stem : {"alexnet_conv1", "resnet_stem", "vgg_conv1_1", "convnext_patchify"})
    EXPECT_FALSE(wins(stem, Layout::nchw)) << stem;
  for (const char* inner : {"resnet_3x3_256", "resnet_3x3_512", "alexnet_conv2"})
    EXPECT_TRUE(wins(inner, Layout::nchw)) << inner;
  for (const char* inner : {"resnet_3x3_64", "resnet_3x3_s2_128", "resnet_1x1_64_256", "resnet_1x1_256_64"})
    EXPECT_TRUE(wins(inner, Layout::nhwc)) << inner;
}

TEST(ImplicitGemm, RefusesConfigsThatMakeNoSense) {
  const ConvProblem problem = parse_problem("mb1ic3ih8oc8kh3ph1 layout=nhwc");
  const int bits = cpu::widest_vector_bits(info());
  const ImplicitGemmConfig good{.vector_bits = bits, .pixels = 4, .vectors = 1};
  EXPECT_TRUE(cpu::implicit_gemm().accepts(problem, info(), to_config(good)));
  const auto reason = [&](auto change) {
    ImplicitGemmConfig config = good;
    change(config);
    return cpu::implicit_gemm().accepts(problem, info(), to_config(config)).reason();
  };
  EXPECT_NE(reason([](auto& c) { c.pixels = 12, c.vectors = 4; }).find("12x4"), std::string::npos);
  EXPECT_NE(reason([](auto& c) { c.bf16 = 1; }).find("bf16"), std::string::npos);
  EXPECT_NE(reason([](auto& c) { c.staged = 0; }).find("padding"), std::string::npos);
  EXPECT_NE(reason([](auto& c) { c.joined = 1, c.channels = 2; }).find("channels=0"), std::string::npos);
}

TEST(ImplicitGemm, StepsAsideWithAReason) {
  const auto reason = [](const char* text) {
    return cpu::implicit_gemm().supports(parse_problem(text), info()).reason();
  };
  EXPECT_NE(reason("mb1ic3ih8oc8kh3ph1 dir=bwd_w").find("forward"), std::string::npos);
  EXPECT_NE(reason("mb1ic100000ih40oc1kh40ph20").find("MiB"), std::string::npos);
}

}  // namespace
}  // namespace convtune::implicit_gemm_test
