// Exported kernels without a GPU: every algorithm of ours stands alone, compiles to what the library's own
// compiles to, and is launched as the library launches it.
#include <gtest/gtest.h>

#include <regex>

#include "convtune/cases.h"
#include "convtune/export.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/dry_run.h"
#include "cuda/launch/kernel_algorithm.h"
#include "cuda/launch/program_text.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "plan/planner.h"
#include "refusal.h"

namespace convtune::cuda_export_test {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
  return found;
}

// The case that an algorithm is first asked for where it is the only one asked.
std::optional<ConvProblem> case_of(const Algorithm& algorithm, const DeviceInfo& device) {
  for (const Suite& suite : suites())
    for (ConvProblem problem : suite.problems) {
      if (problem.precision == Precision::automatic) problem = resolve(problem, Precision::tf32);
      // Others are not written out.
      if (problem.n > 0 && problem.dtype == problem.dtype.x && !problem.residual &&
          algorithm.supports(problem, device))
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
        "mb2ic8ih8oc8kh3 precision=fp32 dir=bwd_d", "mb2ic8ih8oc8kh3 precision=fp32 residual=1"}) {
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

TEST(CudaExport, IsOneFile) {
  CudaExportOptions options;
  options.module_name = "Stem";
  const ConvProblem problem = parse_problem("mb2ic3ih64oc32kh7sh2ph3 act=relu bias=0");
  const CudaExport exported = export_cuda(problem, find_target("rtx4090"), options);
  ASSERT_EQ(exported.kernels.size(), 1u);
  const Plan& plan = exported.kernels[0].plan;
  EXPECT_EQ(plan.source, PlanSource::estimate);
  EXPECT_EQ(exported.note, "");
  const std::string& text = exported.text;
  EXPECT_TRUE(contains(text, "class Stem(nn.Module):"));
  EXPECT_TRUE(contains(text, "-gencode=arch=compute_89,code=sm_89"));
  EXPECT_TRUE(contains(text, "== (8, 9), "));
  EXPECT_TRUE(contains(text, "return self.conv1(x).relu()"));
  EXPECT_TRUE(contains(text, "bias=False,"));
  EXPECT_TRUE(contains(text, "x.shape == (2, 3, 64, 64)"));
  EXPECT_TRUE(contains(text, "at::empty({2, 32, 32, 32}"));
  EXPECT_TRUE(contains(text, plan.algorithm + " " + to_string(plan.config)));
  EXPECT_EQ(count(text, "r\"\"\""), 2u);
  EXPECT_FALSE(std::regex_search(text, std::regex("@[A-Z_]+@")));
  EXPECT_EQ(export_cuda(problem, find_target("rtx4090"), options).text, text) << "not the same bytes again";
}

TEST(CudaExport, NamesFromOutsideStayInTheirComment) {
  ConvProblem problem = parse_problem("mb2ic3ih64oc32kh7sh2ph3");
  Target target = find_target("h100");
  problem.name = "a\nimport os\r";
  EXPECT_TRUE(contains(refusal([&] { export_cuda(problem, target); }), "control character"));
  problem.name =
      "gr\xc3\xb6\xc3\x9f"
      "er\xff\\";
  target.product = "b\nimport sys\r";
  const std::string text = export_cuda(problem, target).text;
  EXPECT_TRUE(contains(text,
                       "n\"gr\xc3\xb6\xc3\x9f"
                       "er\xef\xbf\xbd\\\""))
      << "no UTF-8, which Python needs";
  EXPECT_TRUE(contains(text, "b import sys "));
  EXPECT_FALSE(contains(text, "\r"));
}

TEST(CudaExport, NameOfTheExtensionIsTheKernels) {
  const Target target = find_target("h100");
  const auto name = [&](const char* problem) {
    const std::string text = export_cuda(parse_problem(problem), target).text;
    return text.substr(text.find("name='conv2d_"), 32);
  };
  EXPECT_EQ(name("mb2ic3ih64oc32kh7sh2ph3"), name("mb2ic3ih64oc32kh7sh2ph3"));
  EXPECT_NE(name("mb2ic3ih64oc32kh7sh2ph3"), name("mb4ic3ih64oc32kh7sh2ph3"));
}

// The general kernel takes operands of gradients, too, and there are none.
TEST(CudaExport, TheGeneralKernel) {
  CudaExportOptions options;
  options.algorithm = "general_sm80";
  const std::string text =
      export_cuda(parse_problem("mb1ic8ih8oc8kh3 dtype=f16"), find_target("h100"), options).text;
  const std::string run = text.substr(text.find("at::Tensor conv2d_run("));
  EXPECT_TRUE(std::regex_search(run, std::regex(R"(\(y\),\s+nullptr,\s+nullptr,)"))) << run;
}

TEST(CudaExport, ChannelsLast) {
  const CudaExport exported =
      export_cuda(parse_problem("mb2ic32ih16oc32kh3ph1 layout=nhwc"), find_target("a100"));
  EXPECT_EQ(exported.kernels.at(0).plan.algorithm, "implicit_gemm_sm80");
  EXPECT_TRUE(contains(exported.text, "x.contiguous(memory_format=torch.channels_last)"));
  EXPECT_TRUE(contains(exported.text, ".memory_format(at::MemoryFormat::ChannelsLast)"));
}

TEST(CudaExport, Refusals) {
  const Target target = find_target("h100");
  const auto unsupported = [&](const char* problem, const CudaExportOptions& options = {}) -> std::string {
    try {
      export_cuda(parse_problem(problem), target, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::unsupported) << error.what();
      return error.what();
    }
    return "accepted";
  };
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3ph0 pad_bottom=1"), "both ends"));
  EXPECT_TRUE(contains(unsupported("mb0ic3ih8oc4kh3"), "batch of 0"));
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3 act=silu"), "silu"));
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3 dtype=f16:f16:f32"), "of one type"));
  EXPECT_TRUE(
      contains(unsupported("mb1ic3ih8oc4kh3 dir=bwd_d"), "as a PyTorch layer: it computes forward only"));
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3 residual=1"), "it adds no residual"));
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3 act=silu"), "not silu"));
  EXPECT_TRUE(contains(unsupported("ic3id8oc4kd3"), "no third dimension"));
  CudaExportOptions options;
  options.algorithm = "direct_stem_sm90";
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3", options), "stride of 4"));
  const ConvProblem problem = parse_problem("mb1ic3ih224oc96kh11sh4ph2");
  options.config = parse_config("consumers=9 units=5 filters=96");
  EXPECT_TRUE(contains(refusal([&] { export_cuda(problem, target, options); }), "consumers=9"));
  options.config = {};
  options.algorithm = "direct_stem";
  EXPECT_TRUE(contains(refusal([&] { export_cuda(problem, target, options); }), "direct_stem_sm90"));
  options.algorithm = "";
  for (const char* name : {"class", "a b", "", "1st", "conv2d", "pack", "torch", "super"}) {
    options.module_name = name;
    EXPECT_TRUE(contains(refusal([&] { export_cuda(problem, target, options); }), "module's name")) << name;
  }
  EXPECT_TRUE(contains(refusal([&] { export_cuda(problem, Device{}); }), "NVIDIA GPU"));
}

// The functions that round are exchanged in the text: they must be in it, and nothing may round beside them.
TEST(CudaExport, TiesToEven) {
  const Target target = find_target("h100");
  CudaExportOptions options;
  options.ties_to_even = true;
  const ConvProblem pointwise = parse_problem("mb16ic64ih64oc128kh1 precision=tf32");
  const std::string text = export_cuda(pointwise, target, options).text;
  EXPECT_FALSE(contains(text, "cvt.rna.tf32"));
  EXPECT_FALSE(contains(text, "return bits + 0x1000;"));
  EXPECT_EQ(count(text, "0xfff + (bits >> 13 & 1)"), 2u);
  EXPECT_TRUE(contains(export_cuda(pointwise, target).text, "return bits + 0x1000;"));
  const ConvProblem stem = parse_problem("mb256ic3ih224oc96kh11sh4ph2 precision=tf32");
  EXPECT_TRUE(contains(refusal([&] { export_cuda(stem, target, options); }, ErrorKind::unsupported),
                       "rounds operands while it stores them"));
  EXPECT_TRUE(contains(
      refusal([&] { export_cuda(parse_problem("mb16ic64ih64oc128kh1 precision=fp32"), target, options); }),
      "ties to even are for TF32"));
}

TEST(CudaExport, HalfPrecision) {
  const std::string text =
      export_cuda(parse_problem("mb1ic256ih14oc256kh3ph1 dtype=bf16"), find_target("h100")).text;
  EXPECT_TRUE(contains(text, "x.dtype == torch.bfloat16"));
  EXPECT_TRUE(contains(text, "dtype=torch.bfloat16,"));
  EXPECT_TRUE(contains(text, "weight.options().dtype(at::kFloat)")) << "what is packed is words";
  // NCHW by a kernel for channels last: PyTorch converts.
  EXPECT_TRUE(contains(text, "static convtune::ptx::TensorMap walking_map("));
  EXPECT_TRUE(contains(text, "x.contiguous(memory_format=torch.channels_last)"));
  EXPECT_TRUE(contains(text, "input.options().memory_format(at::MemoryFormat::ChannelsLast)"));
  EXPECT_TRUE(contains(text, "return output.contiguous();"));
  EXPECT_FALSE(contains(text, "_nhwc")) << "an operand that nobody gives";
  const std::string summed =
      export_cuda(parse_problem("mb1ic256ih14oc256kh3ph1 dtype=f16 layout=nhwc"), find_target("rtx4090"))
          .text;
  EXPECT_TRUE(contains(summed, "float* const partial_sums = sums.data_ptr<float>();"));
  EXPECT_FALSE(contains(summed, "output.contiguous()"));
  const std::string alone =
      export_cuda(parse_problem("mb32ic64ih56oc64kh3ph1 dtype=bf16 layout=nhwc"), find_target("rtx4090"))
          .text;
  EXPECT_TRUE(contains(alone, "float* const partial_sums = nullptr;")) << "a sum of one block";
}

TEST(CudaExport, OneDimension) {
  const std::string text =
      export_cuda(parse_problem("mb2ic32iw128oc64kw3sw2dw1pw2 bias=0"), find_target("h100")).text;
  EXPECT_TRUE(contains(text, "self.conv1 = nn.Conv1d("));
  EXPECT_TRUE(contains(text, "kernel_size=(3,),"));
  EXPECT_TRUE(contains(text, "dilation=(2,),"));
  EXPECT_TRUE(contains(text, "x.shape == (2, 32, 128)"));
  EXPECT_TRUE(contains(text, "weight.shape == (64, 32, 3)"));
  EXPECT_TRUE(contains(text, "x = x.unsqueeze(2).contiguous()"));
  EXPECT_TRUE(contains(text, "conv2d_run(x, packed).squeeze(2)"));
}

ExportModule depthwise_and_pointwise() {
  ExportModule module;
  module.parameters = "channels, bias=False";
  module.layers = {ExportLayer(parse_problem("mb16ic64ih112oc16kh1 bias=0")),
                   ExportLayer(parse_problem("g64mb16ic64ih112oc64kh3ph1 bias=0"))};
  module.layers[0].name = "pointwise", module.layers[0].arguments = "channels, 16, 1, bias=bias";
  module.layers[1].name = "depthwise", module.layers[1].arguments = "channels, channels, 3, padding='same'";
  module.layers[1].varies = true;
  module.layers[1].padding_word = "'same'";
  module.chain = {1, 0};
  return module;
}

TEST(CudaExport, TwoLayers) {
  const CudaExport exported = export_cuda(depthwise_and_pointwise(), find_target("h100"));
  ASSERT_EQ(exported.kernels.size(), 2u);
  EXPECT_EQ(exported.kernels[1].plan.algorithm, "direct_fma_sm80");
  EXPECT_GT(exported.kernels[1].estimated_us.value_or(0), 0);
  const std::string& text = exported.text;
  EXPECT_TRUE(contains(text, "def __init__(self, channels, bias=False) -> None:"));
  EXPECT_LT(text.find("self.pointwise = nn.Conv2d(channels, 16, 1, bias=bias)"),
            text.find("self.depthwise = nn.Conv2d(channels, channels, 3, padding='same')"))
      << "the order of construction";
  EXPECT_TRUE(contains(text, "(1, 1), 'same', (1, 1), 64)"));
  EXPECT_LT(
      text.find("x = conv2d_depthwise(x, packed_weights(self.packed[1], self.depthwise, pack_depthwise))"),
      text.find("x = conv2d_pointwise(x, packed_weights(self.packed[0], self.pointwise, pack_pointwise))"));
  EXPECT_TRUE(contains(text, "return self.pointwise(self.depthwise(x))"));
  EXPECT_EQ(count(text, "= load_inline("), 2u);
  CudaExportOptions options;
  options.algorithm = "direct_fma_sm80";
  EXPECT_TRUE(contains(refusal([&] { export_cuda(depthwise_and_pointwise(), find_target("h100"), options); }),
                       "2 layers"));
}

TEST(TritonExport, GroupsAndDepthwise) {
  const std::string grouped = export_triton(parse_problem("mb1g2ic8ih8oc12kh3"), {});
  EXPECT_TRUE(contains(grouped, "GROUPS=2, C=4, R=3, S=3,"));
  EXPECT_TRUE(contains(grouped, "triton.cdiv(6, meta['BLOCK_N']), 2)"));
  EXPECT_TRUE(contains(grouped, "round_tf32"));
  EXPECT_FALSE(contains(grouped, "depthwise_kernel"));
  const std::string depthwise = export_triton(parse_problem("mb1g4ic4ih8oc8kh3"), {});
  EXPECT_TRUE(contains(depthwise, "GROUP_K=2, R=3, S=3,"));
  EXPECT_TRUE(contains(depthwise, "in tl.static_range(R * S)"));
  EXPECT_FALSE(contains(depthwise, "conv2d_kernel"));
  EXPECT_FALSE(contains(depthwise, "round_tf32")) << "it multiplies in fp32";
  EXPECT_TRUE(contains(export_triton(parse_problem("mb1g4ic4ih31oc4kh9"), {}), "in range(R * S)"));
  const std::string pair = export_triton(depthwise_and_pointwise(), {});
  EXPECT_EQ(count(pair, "\n@triton.jit\ndef "), 3u) << "two kernels, and the one that rounds";
  EXPECT_TRUE(contains(pair,
                       "x = conv2d_depthwise(x, self.depthwise.weight, self.depthwise.bias)\n"
                       "        x = conv2d_pointwise(x, self.pointwise.weight, self.pointwise.bias)\n"));
  EXPECT_FALSE(std::regex_search(pair, std::regex("@[A-Z_]+@")));
}

TEST(TritonExport, RefusesWhatItsKernelIsNot) {
  const auto unsupported = [](const char* words) {
    return refusal([&] { export_triton(parse_problem(std::string("mb1g2ic4ih8oc4kh3") + words), {}); },
                   ErrorKind::unsupported);
  };
  EXPECT_TRUE(contains(unsupported(" layout=nhwc"), "for NCHW"));
  EXPECT_TRUE(contains(unsupported(" dtype=f16:f16:f32"), "of one type, and these are f16:f16:f32"));
  EXPECT_TRUE(contains(unsupported(" dir=bwd_w"), "forward only, not bwd_w"));
  EXPECT_TRUE(contains(unsupported(" residual=1"), "it adds no residual"));
  EXPECT_TRUE(contains(unsupported(" act=clip:0:6"), "not clip"));
  EXPECT_TRUE(contains(unsupported(" dtype=bf16 rounding=eager"), "rounds once"));
  EXPECT_TRUE(contains(unsupported(" pad_bottom=1"), "both ends"));
  EXPECT_TRUE(
      contains(export_triton(parse_problem("mb1ic4ih8oc4kh3 dtype=bf16 act=relu"), {}), "torch.bfloat16"));
}

}  // namespace
}  // namespace convtune::cuda_export_test
