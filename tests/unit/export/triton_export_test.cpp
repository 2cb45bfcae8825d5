// Exported Triton files as text: which kernels are in them, and what is refused. export_class_test.py runs
// them.
#include <gtest/gtest.h>

#include <regex>

#include "convtune/export.h"
#include "refusal.h"
#include "unit/export/texts.h"

namespace convtune::triton_export_test {
namespace {

using exported::contains, exported::count, exported::depthwise_and_pointwise;

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
  EXPECT_TRUE(contains(unsupported(" dir=bwd_w"), "not bwd_w"));
  EXPECT_TRUE(contains(unsupported(" residual=1"), "it adds no residual"));
  EXPECT_TRUE(contains(unsupported(" act=clip:0:6"), "not clip"));
  EXPECT_TRUE(contains(unsupported(" dtype=bf16 rounding=eager"), "rounds once"));
  EXPECT_TRUE(contains(unsupported(" pad_bottom=1"), "both ends"));
  const std::string strides = unsupported("id8iw8kd3kw3sd4194304sh4194304sw4194304 dir=bwd_d");
  EXPECT_TRUE(contains(strides, "65535 groups times residues of the strides")) << strides;
  EXPECT_TRUE(
      contains(export_triton(parse_problem("mb1ic4ih8oc4kh3 dtype=bf16 act=relu"), {}), "torch.bfloat16"));
}

TEST(TritonExport, EveryKernelOnlyWhereItIsLaunched) {
  const std::string volume = export_triton(parse_problem("mb1ic4id4ih8iw8oc4kd3kh3kw3"), {});
  EXPECT_TRUE(contains(volume, "conv3d_kernel[grid]("));
  EXPECT_TRUE(contains(volume, "N, C, D, H, W = x.shape"));
  EXPECT_FALSE(contains(volume, "conv2d_kernel"));
  const std::string up = export_triton(parse_problem("mb1g2ic4ih8oc6kh3sh4dh5 dir=transposed"), {});
  EXPECT_TRUE(contains(up, "conv_transpose_kernel[grid]("));
  EXPECT_TRUE(contains(up, "STEP_D=1, STEP_H=2, STEP_W=2,")) << "taps that a residue meets";
  EXPECT_TRUE(contains(up, "P = (H - 1) * 4 + 13"));
  EXPECT_FALSE(contains(up, "conv3d_kernel"));
  EXPECT_FALSE(std::regex_search(up, std::regex("@[A-Z_]+@")));
}

}  // namespace
}  // namespace convtune::triton_export_test
