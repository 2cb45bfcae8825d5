// The general tensor-core kernel without a GPU: its geometry, its refusals, and that it serves every problem.

#include <gtest/gtest.h>

#include <set>

#include "convtune/cases.h"
#include "cuda/algorithms/implicit_gemm_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune::implicit_gemm_sm80_test {
namespace {

const Algorithm& gemm() {
  return cuda::implicit_gemm_sm80();
}

// Every kind of kernel that the fragments' order depends on.
std::vector<ImplicitGemmSm80> kinds() {
  std::vector<ImplicitGemmSm80> all;
  for (const bool nhwc : {false, true})
    for (const Multiply multiply : {Multiply::tf32, Multiply::f16, Multiply::fp32})
      for (const int block_k : {16, 32})
        for (const int block_m : {32, 96, 128}) {
          ImplicitGemmSm80 kernel;
          kernel.conv.nhwc = nhwc, kernel.multiply = multiply;
          kernel.block_m = block_m, kernel.block_n = 128, kernel.block_k = block_k;
          kernel.warps_m = 2, kernel.warps_n = 2;
          all.push_back(kernel);
        }
  return all;
}

// Each filter, position and term of a block stands in one place of the fragments.
TEST(ImplicitGemmSm80, FragmentsHoldEverythingOnce) {
  for (const ImplicitGemmSm80& kernel : kinds()) {
    std::set<int> filters, positions, terms;
    for (int tile = 0; tile < kernel.tiles_m(); ++tile)
      for (int row = 0; row < 16; ++row) filters.insert(kernel.filter_of(tile, row / 8, row % 8));
    for (int tile = 0; tile < kernel.tiles_n(); ++tile)
      for (int column = 0; column < 8; ++column) positions.insert(kernel.position_of(tile, column));
    for (int step = 0; step < kernel.steps(); ++step)
      for (int thread = 0; thread < 4; ++thread)
        for (int upper = 0; upper < 2; ++upper)
          for (int element = 0; element < (kernel.is_half() ? 2 : 1); ++element)
            terms.insert(kernel.term_of(step, thread, upper, element));
    const auto is_all = [](const std::set<int>& values, int count) {
      return values.size() == static_cast<std::size_t>(count) && *values.begin() == 0 &&
             *values.rbegin() == count - 1;
    };
    EXPECT_TRUE(is_all(filters, kernel.warp_m()));
    EXPECT_TRUE(is_all(positions, kernel.warp_n()));
    EXPECT_TRUE(is_all(terms, kernel.block_k));
  }
}

// 8 threads that read 16 bytes at once find them in 32 different banks.
TEST(ImplicitGemmSm80, ReadsInputWithoutBankConflicts) {
  for (const ImplicitGemmSm80& kernel : kinds())
    for (int step = 0; step < kernel.steps(); step += kernel.conv.nhwc && !kernel.is_half() ? 2 : 1)
      for (int first = 0; first < 32; first += 8) {
        std::set<int> banks;
        for (int lane = first; lane < first + 8; ++lane) {
          const int position = kernel.position_of(0, lane / 4), k = kernel.term_of(step, lane % 4, 0, 0);
          const int word =
              kernel.conv.nhwc ? kernel.input_word(position, k) : k * kernel.input_pitch() + position;
          EXPECT_EQ(word % 4, 0);
          banks.insert(word / 4 % 8);
        }
        EXPECT_EQ(banks.size(), 8u) << kernel.conv.nhwc << kernel.is_half() << kernel.block_k;
      }
}

// Every term of the sum is made once, in either order, and its place in the input is the problem's.
TEST(ImplicitGemmSm80, TermsAreTheFilter) {
  for (const char* text : {"mb2ic5ih9iw11oc3kh3kw2ph1", "mb2g2ic34ih9oc4kh3kw5dh1", "mb1ic16ih7oc8kh1"})
    for (const char* layout : {"", " layout=nhwc"})
      for (const int chunked : {0, 1}) {
        const ConvProblem problem = tf32(text + std::string(layout));
        const ImplicitGemmSm80 kernel = kernel_of<ImplicitGemmSm80>(
            problem, parse_config("block_m=16 block_n=64 block_k=16 warps_m=1 warps_n=2 stages=3 chunked=" +
                                  std::to_string(chunked) + " specialized=1"));
        const ConvExtents& a = kernel.conv;
        std::set<std::tuple<int, int, int>> met;
        for (int i = 0; i < kernel.k_blocks(a) * kernel.block_k; ++i) {
          const auto term = kernel.term(a, i / kernel.block_k, i % kernel.block_k);
          const auto tap = kernel.tap(a, term);
          if (!term.real) {
            EXPECT_GE(tap.row - a.pad_top - a.h, 0) << "it would be read";
            continue;
          }
          EXPECT_TRUE(met.emplace(term.channel, term.row, term.column).second);
          EXPECT_EQ(tap.offset,
                    a.input_offset(0, term.channel, term.row * a.dilation_h, term.column * a.dilation_w));
        }
        EXPECT_EQ(met.size(), static_cast<std::size_t>(a.taps()));
      }
}

// A kernel that reads or writes 16 bytes at once asks for alignment; another kernel takes other tensors.
TEST(ImplicitGemmSm80, AsksForAlignment) {
  const auto asks = [](const std::string& text, const std::string& chunked) {
    ImplicitGemmSm80 kernel = kernel_of<ImplicitGemmSm80>(
        tf32(text), parse_config("block_m=16 block_n=64 block_k=16 warps_m=1 warps_n=2 stages=3 chunked=" +
                                 chunked + " specialized=1"));
    const ConvExtents& a = kernel.conv;
    const std::string asked =
        std::string(kernel.wide_input(a) ? "x" : "") + (kernel.wide_output(a) ? "y" : "");
    kernel.aligned = false;
    EXPECT_FALSE(kernel.wide_input(a) || kernel.wide_output(a));
    return asked;
  };
  EXPECT_EQ(asks("mb1ic16ih8oc8kh1", "1"), "xy");
  EXPECT_EQ(asks("mb1ic16ih8oc8kh1", "0"), "y");
  EXPECT_EQ(asks("mb1ic16ih8oc8kh3ph1", "1"), "y");
  EXPECT_EQ(asks("mb1ic16ih8oc8kh1ph1", "1"), "y");
  EXPECT_EQ(asks("mb1ic16ih7oc8kh1", "1"), "");
  EXPECT_EQ(asks("mb1ic16ih7oc8kh3 layout=nhwc", "1"), "xy");
  EXPECT_EQ(asks("mb1ic16ih7oc8kh3 layout=nhwc", "0"), "y");
  EXPECT_EQ(asks("mb1ic15ih7oc8kh3 layout=nhwc", "1"), "y");
  EXPECT_EQ(asks("mb1g2ic12ih7oc8kh3 layout=nhwc", "1"), "y");
  EXPECT_EQ(asks("mb1g4ic16ih7oc8kh3 layout=nhwc", "1"), "x");
}

TEST(ImplicitGemmSm80, RefusesWithAReason) {
  expect_refusals(gemm(), {{"mb2ic3ih32oc16kh3ph1", "8.0", {7, 5}},
                           {"mb2ic3ih32oc16kh3ph1", "8.0", {}},
                           {"mb2ic3ih32oc16kh3ph1 dtype=f16 precision=fp16", "f32"},
                           {"mb1ic1ih2000000oc1kh1", "extent"},
                           {"mb1ic1000ih3000oc1kh2000", "31 bits"}});
  const ConvProblem problem = tf32("resnet_3x3_64");
  expect_config_refusals(
      gemm(), problem,
      "block_m=64 block_n=128 block_k=16 warps_m=1 warps_n=4 stages=4 chunked=1 specialized=1",
      {"block_m=72", "block_n=96", "block_k=8", "warps_n=16", "warps_n=3", "stages=1", "chunked=2"});
  const Config large =
      parse_config("block_m=128 block_n=256 block_k=32 warps_m=2 warps_n=4 stages=3 chunked=1 specialized=1");
  EXPECT_TRUE(gemm().accepts(problem, gpu(), large));
  EXPECT_FALSE(gemm().accepts(problem, gpu({8, 6}), large)) << "99 KB of shared memory are all that it has";
}

// One kernel at least needs no compiling for a problem, because it is that of every problem.
TEST(ImplicitGemmSm80, OffersConfigsForEveryCase) {
  for (const ComputeCapability capability : kCapabilities)
    for (const char* suite : {"stem", "body", "depthwise", "edges"})
      for (const ConvProblem& problem : load_suite(suite)) {
        const ConvProblem asked = tf32(to_string(problem));
        const std::vector<Config> configs = gemm().candidates(asked, gpu(capability));
        ASSERT_FALSE(configs.empty()) << to_string(problem);
        EXPECT_TRUE(gemm().compiles(configs.front()));
        EXPECT_FALSE(gemm().compiles(configs.back()));
        const ConvProblem other =
            tf32("mb3ic7ih9oc5kh3" + std::string(asked.layout == Layout::nhwc ? " layout=nhwc" : ""));
        const auto kernel = [&](const ConvProblem& of) {
          const cuda::LaunchPlan plan =
              cuda::kernel_algorithm(gemm())->plan(of, gpu(capability), configs.back());
          return compile_job(plan, plan.configs.front()).kernels[0];
        };
        EXPECT_EQ(kernel(asked), kernel(other));
      }
}

// Frames of padding, too, and groups; channels last is for other kernels.
TEST(ImplicitGemmSm80, TakesFramesOfPaddingInNchw) {
  for (const char* text : {"mb2ic3id6ih9iw7oc20kd3kh3kw3pd1ph1pw1 precision=fp32",
                           "g4mb8ic32id24ih48iw96oc32kd3kh5kw7sd2sh2sw2pd1ph2pw3 precision=fp32 dir=bwd_d"})
    EXPECT_TRUE(gemm().supports(parse_problem(text), gpu())) << text;
  EXPECT_FALSE(gemm().supports(
      parse_problem("mb2ic3id6ih9iw7oc20kd3kh3kw3pd1ph1pw1 precision=fp32 layout=nhwc"), gpu()));
}

// Residues of a stride go between each other, also of groups and in fp32; in NHWC another kernel has them.
TEST(ImplicitGemmSm80, TakesStridesOfBackwardDataInNchw) {
  std::vector<PlannedKernel> kernels;
  for (const char* text : {"g4mb16ic64ih57oc32kh4sh2ph1 precision=fp32 dir=bwd_d",
                           "mb1ic24iw400oc40kw16sw8pw4 precision=tf32 dir=bwd_d act=relu"}) {
    const ConvProblem problem = parse_problem(text);
    const std::vector<Config> configs = gemm().candidates(problem, gpu());
    ASSERT_FALSE(configs.empty()) << text;
    for (const Config& config : configs) EXPECT_EQ(config.at("specialized"), 1) << text;
    kernels.push_back({problem, configs.front(), kCapabilities[kernels.size()]});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(gemm()), kernels);
  EXPECT_FALSE(
      gemm().supports(parse_problem("mb2ic64ih28oc64kh4sh2ph1 precision=fp32 dir=bwd_d layout=nhwc"), gpu()));
}

// Each precision and layout, on one architecture after the other, in both forms.
TEST(ImplicitGemmSm80, CompilesForEveryPrecisionAndLayout) {
  std::vector<PlannedKernel> kernels;
  for (const char* text :
       {"resnet_3x3_128", "mb64ic64ih56oc64kh3ph1 layout=nhwc", "mb4ic64ih14oc96kh3ph1 precision=fp32",
        "mb4ic64ih14oc96kh3ph1 precision=fp16 layout=nhwc", "mobilenet_dw_3x3_144",
        "mb2ic3ih17oc48kh5ph2 precision=bf16 act=relu bias=0"}) {
    const ComputeCapability capability = kCapabilities[kernels.size() / 2 % std::size(kCapabilities)];
    const ConvProblem problem = tf32(text);
    const std::vector<Config> configs = gemm().candidates(problem, gpu(capability));
    kernels.push_back({problem, configs[configs.size() / 2], capability});
    kernels.push_back({problem, configs.back(), capability, true});
  }
  expect_compiles_as_planned(*cuda::kernel_algorithm(gemm()), kernels);
}

}  // namespace
}  // namespace convtune::implicit_gemm_sm80_test
