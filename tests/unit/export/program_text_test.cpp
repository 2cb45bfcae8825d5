// The texts of kernels without a GPU: every algorithm of ours stands alone, compiles to what the library's
// own compiles to, and is launched as the library launches it.
#include "cuda/launch/program_text.h"

#include <gtest/gtest.h>

#include <regex>

#include "convtune/cases.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/dry_run.h"
#include "cuda/launch/kernel_algorithm.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "plan/planner.h"
#include "unit/export/texts.h"

namespace convtune::program_text_test {
namespace {

using exported::contains, exported::count;

// The case that an algorithm is first asked for where it is the only one asked.
std::optional<ConvProblem> case_of(const Algorithm& algorithm, const DeviceInfo& device) {
  for (const Suite& suite : suites())
    for (ConvProblem problem : suite.problems) {
      if (problem.precision == Precision::automatic) problem = resolve(problem, Precision::tf32);
      // Others are not written out.
      if (problem.n > 0 && problem.dtype == problem.dtype.x && !problem.residual &&
          problem.direction != Direction::backward_weights && algorithm.supports(problem, device))
        return problem;
    }
  return std::nullopt;
}

// Algorithms whose kernels are written out, but the general one.
std::vector<const Algorithm*> ours() {
  std::vector<const Algorithm*> all;
  for (const Algorithm* algorithm : algorithms(Device::Kind::cuda))
    if (!algorithm->vendor() && !algorithm->reference() && algorithm->name() != "general_sm80" &&
        case_of(*algorithm, device_of(find_target("h100"))))
      all.push_back(algorithm);
  return all;
}

std::string kernel_name(const std::string& kernel) {
  return kernel.substr(0, kernel.find('<'));
}

TEST(ProgramText, StandsAlone) {
  const DeviceInfo device = device_of(find_target("h100"));
  for (const Algorithm* algorithm : ours()) {
    SCOPED_TRACE(algorithm->name());
    const auto problem = case_of(*algorithm, device);
    ASSERT_TRUE(problem);
    const Config config = algorithm->candidates(*problem, device).front();
    const cuda::ProgramText program = cuda::program_text(*problem, device, {algorithm, config});
    EXPECT_EQ(program.arch, "sm_90a");
    EXPECT_GT(program.packed_bytes, 0u);
    EXPECT_FALSE(contains(program.device_code, "#include"));
    EXPECT_FALSE(contains(program.device_code, "#pragma once"));
    EXPECT_FALSE(contains(program.device_code, "config>\n__global__"));
    EXPECT_GE(count(program.device_code, "\n__global__ "), 2u) << "the kernel, and its packing";
    EXPECT_TRUE(contains(program.run, fmt::format("convtune::{0}::{0}<<<", algorithm->name())))
        << program.run;
    EXPECT_TRUE(contains(program.pack, "<<<dim3(")) << program.pack;
    EXPECT_FALSE(std::regex_search(program.run, std::regex(R"(\b(dbias|dx|dw|dy|\w+_nhwc)\b)")))
        << "an operand that nobody gives: " << program.run;
    EXPECT_EQ(program.has_tensor_maps, std::regex_search(program.run, std::regex("(tensor|walking)_map\\(")));
    EXPECT_EQ(program.has_walks, contains(program.run, "walking_map("));
    // KernelBench's forbidden words, in comments too.
    EXPECT_FALSE(std::regex_search(program.device_code, std::regex("\\b(try|except|pass|eval|exec)\\b")));
  }
}

// The others are refused, never written out wrongly.
TEST(ProgramText, RefusesWhatItCannotWriteOut) {
  const DeviceInfo device = device_of(find_target("h100"));
  for (const char* text :
       {"mb2ic64ih14oc64kh3ph1 dtype=f16:f16:f32 precision=fp16 layout=nhwc",
        "mb2ic8ih8oc8kh3 precision=fp32 dir=bwd_w", "mb2ic8ih8oc8kh3 precision=fp32 residual=1",
        "ic8id8ih8iw8oc8kd3kh3kw3pd2 pad_back=0 cache=2 precision=fp32"}) {
    const ConvProblem problem = parse_problem(text);
    for (const Algorithm* algorithm : algorithms(Device::Kind::cuda))
      if (!algorithm->vendor() && algorithm->supports(problem, device)) {
        const Config config = algorithm->candidates(problem, device).front();
        EXPECT_THROW(cuda::program_text(problem, device, {algorithm, config}), Error)
            << algorithm->name() << ": " << text;
      }
  }
}

// By NVRTC, which compiles the exported text as it does the library's.
TEST(ProgramText, CompilesToTheSameKernels) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  for (const auto& [target, most] : {std::pair{"h100", 10}, {"rtx4090", 1}}) {
    const DeviceInfo device = device_of(find_target(target));
    int tried = 0;
    for (const Algorithm* algorithm : ours()) {
      SCOPED_TRACE(fmt::format("{} on {}", algorithm->name(), target));
      const auto problem = case_of(*algorithm, device);
      if (!problem || tried == most) continue;
      ++tried;
      const Config config = algorithm->candidates(*problem, device).front();
      const cuda::LaunchPlan plan = cuda::kernel_algorithm(*algorithm)->plan(*problem, device, config);
      const cuda::CompileJob job = cuda::compile_job(plan, plan.configs.front());
      const cuda::ProgramText program = cuda::program_text(*problem, device, {algorithm, config});
      cuda::CompileJob alone{program.device_code, {}, {}, program.arch, {}};
      for (const std::string& kernel : job.kernels) alone.kernels.push_back(kernel_name(kernel));
      const cuda::CompiledModule exported = cuda::compile(alone), library = cuda::compile(job);
      for (std::size_t i = 0; i < job.kernels.size(); ++i) {
        const cuda::KernelResources& a = exported.kernels[i];
        const cuda::KernelResources& b = library.kernels[i];
        // ptxas chooses a little otherwise where names are others; an SM deals registers by eights.
        EXPECT_LE((a.registers + 7) / 8, (b.registers + 7) / 8);
        EXPECT_LE(a.spill_bytes, b.spill_bytes);
        EXPECT_EQ(a.static_smem_bytes, b.static_smem_bytes);
      }
    }
    EXPECT_GT(tried, 0);
  }
}

TEST(ProgramText, LaunchesWhatTheLibraryLaunches) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  const DeviceInfo device = device_of(find_target("h100"));
  const ConvProblem problem = parse_problem("mb8ic3ih224oc96kh11sh4ph2 precision=tf32");
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, "direct_stem_sm90");
  const Config config = parse_config("consumers=3 units=5 filters=96");
  const auto runs = cuda::dry_run(problem, device, {{&algorithm, config}}, 1, 60);
  ASSERT_EQ(runs[0].failure, "");
  const cuda::Launch& launch = runs[0].launch;
  const std::string run = cuda::program_text(problem, device, {&algorithm, config}).run;
  EXPECT_TRUE(
      contains(run, fmt::format("<<<dim3({}, 1, 1), dim3({}, 1, 1), ", launch.blocks, launch.threads)));
  EXPECT_TRUE(std::regex_search(
      run, std::regex(R"(tensor_map\(y, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, \{24200,\s+12, 8\}, )"
                      R"(\{96800, 1161600\}, \{48, )")))
      << run;
  EXPECT_TRUE(contains(run, "x, packed, y);"));
}

TEST(ProgramText, ArgumentsAreNamesAndOffsets) {
  const DeviceInfo device = device_of(find_target("h100"));
  const ConvProblem problem = parse_problem("mb8ic3ih224oc96kh11sh4ph2 precision=tf32");
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, "direct_stem_sm90");
  const std::string pack =
      cuda::program_text(problem, device, {&algorithm, parse_config("consumers=3 units=5 filters=96")}).pack;
  EXPECT_TRUE(std::regex_search(pack, std::regex(R"(cudaMemsetAsync\(packed \+ [0-9]+, 0, 1 \* sizeof)")))
      << pack;
  EXPECT_TRUE(
      std::regex_search(pack, std::regex(R"(\(w,\s+bias,\s+reinterpret_cast<unsigned\*>\(packed\)\);)")))
      << pack;
}

// A transposed layer's input is dy and its output dx; its filter is put into the parts' order before it is
// packed.
TEST(ProgramText, TransposedLayers) {
  const DeviceInfo device = device_of(find_target("h100"));
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, "implicit_gemm_half_sm90");
  const auto text_of = [&](const char* text) {
    const ConvProblem problem = resolve(parse_problem(text), Precision::tf32);
    return cuda::program_text(problem, device, {&algorithm, algorithm.candidates(problem, device).front()});
  };
  const cuda::ProgramText one = text_of("mb2ic64ih16oc64kh2sh2 dir=transposed dtype=bf16 layout=nhwc bias=1");
  EXPECT_TRUE(one.more.empty());
  EXPECT_EQ(count(one.pack, "convtune::gather_numbers<unsigned short><<<"), 2u) << one.pack;
  EXPECT_TRUE(contains(one.pack, "reinterpret_cast<const unsigned short*>(bias)"));
  EXPECT_TRUE(contains(one.device_code, "gather_numbers("));
  EXPECT_TRUE(std::regex_search(one.run, std::regex(R"((tensor|walking)_map\(x,\s)"))) << one.run;
  EXPECT_FALSE(std::regex_search(one.run, std::regex(R"(\b(dx|dy|w_gathered|\w+_nhwc)\b)"))) << one.run;
  const cuda::ProgramText parts = text_of("mb2ic64ih16oc64kh3sh2ph1 dir=transposed dtype=bf16 layout=nhwc");
  EXPECT_EQ(parts.more.size(), 3u);
  for (const cuda::ProgramText& part : parts.more)
    EXPECT_TRUE(std::regex_search(part.run, std::regex(R"((tensor|walking)_map\(x,\s)"))) << part.run;
  const cuda::ProgramText turned = text_of("mb2ic64ih16oc64kh3ph1 dir=transposed dtype=bf16 layout=nhwc");
  EXPECT_EQ(count(turned.pack, "gather_numbers<unsigned short><<<"), 2u)
      << "of stride 1: the filter is turned";
}

// Residues that lack the filter's first row or column have 0 there, and nothing from behind the filter.
TEST(ProgramText, TransposedLayersOfUnevenResidues) {
  const DeviceInfo device = device_of(find_target("h100"));
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, "direct_body_half_sm90");
  const ConvProblem problem = resolve(
      parse_problem("mb2ic64ih16oc64kh3sh2ph1 dir=transposed dtype=bf16 layout=nhwc"), Precision::tf32);
  const cuda::ProgramText program =
      cuda::program_text(problem, device, {&algorithm, algorithm.candidates(problem, device).front()});
  EXPECT_TRUE(program.more.empty());
  EXPECT_TRUE(std::regex_search(program.pack, std::regex(R"(\},\s+\{0,\s+1,\s+1\}\}\);)"))) << program.pack;
}

TEST(ProgramText, TransposedLayersCompile) {
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  const DeviceInfo device = device_of(find_target("h100"));
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, "implicit_gemm_half_sm90");
  const ConvProblem problem =
      resolve(parse_problem("mb2ic64ih16oc64kh2sh2 dir=transposed dtype=bf16 layout=nhwc"), Precision::tf32);
  const cuda::ProgramText program =
      cuda::program_text(problem, device, {&algorithm, algorithm.candidates(problem, device).front()});
  cuda::CompileJob alone{.source = program.device_code, .arch = program.arch};
  alone.kernels = {"convtune::gather_numbers<unsigned short>",
                   "convtune::implicit_gemm_half_sm90::implicit_gemm_half_sm90"};
  const cuda::CompiledModule module = cuda::compile(alone);
  for (const cuda::KernelResources& kernel : module.kernels) EXPECT_EQ(kernel.spill_bytes, 0);
}

// Outputs between the reach of a 1x1 filter of stride 2 are stored by a kernel of their own.
TEST(ProgramText, OutputsThatNoTapMeets) {
  const DeviceInfo device = device_of(find_target("h100"));
  const ConvProblem problem =
      resolve(parse_problem("mb2ic64ih16oc64kh1sh2 dir=transposed precision=tf32"), Precision::tf32);
  const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, "implicit_gemm_sm90");
  const cuda::ProgramText program =
      cuda::program_text(problem, device, {&algorithm, algorithm.candidates(problem, device).front()});
  EXPECT_TRUE(contains(program.run, "convtune::store_bare_residues<<<dim3("));
  EXPECT_TRUE(contains(program.device_code, "__device__ constexpr BareResidues what{.conv="));
  EXPECT_FALSE(contains(program.device_code, "what>\n__global__"));
  if (!cuda::has_nvrtc()) GTEST_SKIP() << cuda::describe_nvrtc();
  cuda::CompileJob alone{.source = program.device_code, .arch = program.arch};
  alone.kernels = {"convtune::store_bare_residues", "convtune::gather_numbers<unsigned>"};
  for (const cuda::KernelResources& kernel : cuda::compile(alone).kernels) EXPECT_EQ(kernel.spill_bytes, 0);
}

}  // namespace
}  // namespace convtune::program_text_test
