// The general tensor-core kernel without a GPU: its geometry, refusals, and that what is offered compiles
// without spills, for every architecture, into the registers and shared memory that were planned.

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "convtune/cases.h"
#include "cuda/algorithms/implicit_gemm_sm80/config.h"
#include "kernel_expectations.h"

namespace convtune {
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
        const Conv2dProblem problem = tf32(text + std::string(layout));
        const ImplicitGemmSm80 kernel = kernel_of<ImplicitGemmSm80>(
            problem, parse_config("block_m=16 block_n=64 block_k=16 warps_m=1 warps_n=2 stages=3 chunked=" +
                                  std::to_string(chunked) + " specialized=1"));
        const Conv2dExtents& a = kernel.conv;
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

// Where it reads or writes 16 bytes at once, another kernel is for tensors that are badly aligned.
TEST(ImplicitGemmSm80, AsksForAlignment) {
  const auto asks = [](const std::string& text, const std::string& chunked) {
    ImplicitGemmSm80 kernel = kernel_of<ImplicitGemmSm80>(
        tf32(text), parse_config("block_m=16 block_n=64 block_k=16 warps_m=1 warps_n=2 stages=3 chunked=" +
                                 chunked + " specialized=1"));
    const Conv2dExtents& a = kernel.conv;
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
  const auto reason = [](const std::string& text, ComputeCapability capability = {8, 0}) {
    return gemm().supports(tf32(text), gpu(capability)).reason();
  };
  for (const ComputeCapability capability : kCapabilities)
    EXPECT_EQ(reason("mb2ic3ih32oc16kh3ph1", capability), "");
  EXPECT_EQ(reason("mb2g8ic8ih32oc16kh3ph1 precision=fp32 layout=nhwc"), "");
  EXPECT_NE(reason("mb2ic3ih32oc16kh3ph1", {7, 5}).find("8.0"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih32oc16kh3ph1", {}).find("8.0"), std::string::npos);
  EXPECT_NE(reason("mb2ic3ih32oc16kh3ph1 dtype=f16 precision=fp16").find("f32"), std::string::npos);
  EXPECT_NE(reason("mb1ic1ih2000000oc1kh1").find("extent"), std::string::npos);
  EXPECT_NE(reason("mb1ic1000ih3000oc1kh2000").find("31 bits"), std::string::npos);
}

TEST(ImplicitGemmSm80, TakesNoConfigFromOutsideThatIsNotItsOwn) {
  const Conv2dProblem problem = tf32("resnet_3x3_64");
  const auto accepts = [&](const char* text, ComputeCapability capability = {9, 0}) {
    return static_cast<bool>(gemm().accepts(problem, gpu(capability), parse_config(text)));
  };
  const char* const good =
      "block_m=64 block_n=128 block_k=16 warps_m=1 warps_n=4 stages=4 chunked=1 specialized=1";
  const char* const large =
      "block_m=128 block_n=256 block_k=32 warps_m=2 warps_n=4 stages=3 chunked=1 specialized=1";
  EXPECT_TRUE(accepts(good));
  EXPECT_TRUE(accepts(good, {8, 6}));
  EXPECT_TRUE(accepts(large));
  EXPECT_FALSE(accepts(large, {8, 6})) << "99 KB of shared memory are all that it has";
  for (const auto& [from, to] : std::map<std::string, std::string>{{"block_m=64", "block_m=72"},
                                                                   {"block_n=128", "block_n=96"},
                                                                   {"block_k=16", "block_k=8"},
                                                                   {"warps_n=4", "warps_n=16"},
                                                                   {"warps_n=4", "warps_n=3"},
                                                                   {"stages=4", "stages=1"},
                                                                   {"stages=4", "stages=4294967300"},
                                                                   {"chunked=1", "chunked=2"},
                                                                   {" specialized=1", ""}}) {
    std::string bad = good;
    bad.replace(bad.find(from), from.size(), to);
    EXPECT_FALSE(accepts(bad.c_str())) << bad;
  }
}

TEST(ImplicitGemmSm80, OffersConfigsForEveryCase) {
  for (const ComputeCapability capability : {ComputeCapability{8, 0}, {8, 6}, {9, 0}})
    for (const char* suite : {"stem", "body", "depthwise", "edges"})
      for (const Conv2dProblem& problem : load_suite(suite)) {
        const Conv2dProblem asked = tf32(to_string(problem));
        const std::vector<Config> configs = gemm().candidates(asked, gpu(capability));
        ASSERT_FALSE(configs.empty()) << to_string(problem);
        for (const Config& config : configs)
          EXPECT_TRUE(gemm().accepts(asked, gpu(capability), config)) << to_string(config);
        EXPECT_TRUE(gemm().compiles(configs.front()));
        EXPECT_FALSE(gemm().compiles(configs.back()));
        const Conv2dProblem other =
            tf32("mb3ic7ih9oc5kh3" + std::string(asked.layout == Layout::nhwc ? " layout=nhwc" : ""));
        EXPECT_EQ(job_of(gemm(), asked, configs.back(), capability).kernels[0],
                  job_of(gemm(), other, configs.back(), capability).kernels[0]);
      }
}

// The first guess and one from anywhere, each problem for another architecture.
TEST(ImplicitGemmSm80, CompilesAsPlanned) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << "NVRTC: " << cuda::describe_nvrtc();
  const char* const problems[] = {"resnet_3x3_128",
                                  "resnet_3x3_64 layout=nhwc",
                                  "alexnet_conv1",
                                  "alexnet_conv2 layout=nhwc",
                                  "mb4ic64ih14oc96kh3ph1 precision=fp32",
                                  "mb4ic64ih14oc96kh3ph1 precision=fp16 layout=nhwc",
                                  "mobilenet_dw_3x3_144",
                                  "mb2ic3ih17oc48kh5ph2 precision=bf16 act=relu bias=0"};
  std::vector<cuda::CompileJob> jobs;
  std::vector<int> threads;
  for (std::size_t i = 0; i < std::size(problems); ++i) {
    const ComputeCapability capability = kCapabilities[i % std::size(kCapabilities)];
    std::string text = problems[i];
    const bool nhwc = text.find(" layout=nhwc") != text.npos;
    Conv2dProblem problem = tf32(text.substr(0, text.find(" layout")));
    if (nhwc) problem.layout = Layout::nhwc;
    const std::vector<Config> configs = gemm().candidates(problem, gpu(capability));
    ASSERT_FALSE(configs.empty());
    const auto add = [&](const Config& config, bool aligned) {
      const cuda::LaunchPlan plan = plan_of(gemm(), problem, config, capability);
      if (!aligned && plan.config_for_any_pointer.empty()) return;
      jobs.push_back(cuda::compile_job(plan, aligned ? plan.configs.front() : plan.config_for_any_pointer));
      const auto kernel = kernel_of<ImplicitGemmSm80>(problem, config);
      threads.push_back(kernel.threads() * kernel.blocks_per_unit());
    };
    for (const Config& config : {configs.front(), configs[configs.size() * (i + 1) / 10], configs.back()})
      add(config, true);
    add(i % 2 == 0 ? configs.front() : configs.back(), false);
  }
  expect_compiles(jobs, threads);
}

}  // namespace
}  // namespace convtune
