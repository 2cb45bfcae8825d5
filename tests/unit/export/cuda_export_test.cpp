// Exported CUDA files as text: the layer, its shapes and types, its parts, and what is refused.
#include <gtest/gtest.h>

#include <regex>

#include "convtune/export.h"
#include "refusal.h"
#include "unit/export/texts.h"

namespace convtune::cuda_export_test {
namespace {

using exported::contains, exported::count, exported::depthwise_and_pointwise;

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
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3 dir=bwd_w"), "as a PyTorch layer: it computes "));
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3sh2 pad_bottom=1 dir=bwd_d"),
                       "nn.ConvTranspose2d pads both ends"));
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3 residual=1"), "it adds no residual"));
  EXPECT_TRUE(contains(unsupported("mb1ic3ih8oc4kh3 act=silu"), "not silu"));
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
  const std::string plain = export_cuda(pointwise, target).text;
  const std::string even = "0xfff + (bits >> 13 & 1)";  // a kernel's own for 1x1 layers, too
  EXPECT_EQ(count(text, even), count(plain, even) + 2);
  EXPECT_TRUE(contains(plain, "return bits + 0x1000;"));
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
  EXPECT_TRUE(contains(text, "return y.squeeze(2)\n"));
}

TEST(CudaExport, ThreeDimensions) {
  const std::string text =
      export_cuda(parse_problem("mb2ic32id4ih8iw9oc64kd3kh3kw3pd1ph1pw1 layout=nhwc dtype=bf16"),
                  find_target("h100"))
          .text;
  EXPECT_TRUE(contains(text, "self.conv1 = nn.Conv3d("));
  EXPECT_TRUE(contains(text, "kernel_size=(3, 3, 3),"));
  EXPECT_TRUE(contains(text, "x.shape == (2, 32, 4, 8, 9)"));
  EXPECT_TRUE(contains(text, "x.contiguous(memory_format=torch.channels_last_3d)"));
  EXPECT_TRUE(contains(text, "at::empty({2, 64, 4, 8, 9}"));
  EXPECT_TRUE(contains(text, ".memory_format(at::MemoryFormat::ChannelsLast3d)"));
}

TEST(CudaExport, TransposedLayers) {
  const std::string text =
      export_cuda(parse_problem("mb2ic64iw100oc32ow201kw4sw2pw1 dir=transposed"), find_target("h100")).text;
  EXPECT_TRUE(contains(text, "self.conv1 = nn.ConvTranspose1d("));
  EXPECT_TRUE(contains(text, "in_channels=64,"));
  EXPECT_TRUE(contains(text, "out_channels=32,"));
  EXPECT_TRUE(contains(text, "output_padding=(1,),"));
  EXPECT_TRUE(contains(text, "x.shape == (2, 64, 100)"));
  EXPECT_TRUE(contains(text, "weight.shape == (64, 32, 4)"));
  EXPECT_TRUE(contains(text, "bias.shape == (32,)"));
  EXPECT_TRUE(contains(text, "at::empty({2, 32, 1, 201}"));
  EXPECT_TRUE(contains(text, "def conv_transpose1d(x: torch.Tensor"));
  EXPECT_TRUE(contains(text, "    return y.squeeze(2)\n"));
}

// Parts of a layer share its input, its output and what is packed.
TEST(CudaExport, PartsOfATransposedLayer) {
  CudaExportOptions options;
  options.algorithm = "implicit_gemm_half_sm90";
  const std::string text =
      export_cuda(parse_problem("mb2ic64ih16oc64kh3sh2ph1 dir=transposed dtype=bf16 layout=nhwc"),
                  find_target("h100"), options)
          .text;
  EXPECT_EQ(count(text, "= load_inline("), 4u) << "rows and columns with two taps, and with one";
  EXPECT_EQ(count(text, ".conv2d_run(x, packed"), 4u);
  EXPECT_EQ(count(text, ", None)\n"), 1u);
  EXPECT_TRUE(contains(text, "return torch.cat([extension.conv2d_pack(weight, bias), extension_part2."));
  EXPECT_TRUE(contains(text, "    extension_part2.conv2d_run(x, packed["));
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

}  // namespace
}  // namespace convtune::cuda_export_test
