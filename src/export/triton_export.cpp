// export_triton(): the template src/export/conv2d_triton.py with a problem's numbers put in.
#include <fmt/format.h>

#include "convtune/error.h"
#include "convtune/export.h"
#include "export/export_template.h"

namespace convtune {
namespace {

void check(const ConvProblem& a, const ExportOptions& options) {
  check_layer(a, {DType::f32, DType::f16, DType::bf16}, options.module_name,
              {"torch", "nn", "triton", "tl", "conv2d", "conv2d_kernel", "round_tf32", "round_kernel"});
  if (a.groups != 1) refuse_export(a, fmt::format("the Triton kernel is for one group, not {}", a.groups));
  if (a.layout != Layout::nchw) refuse_export(a, "the Triton kernel is for NCHW");
}

}  // namespace

std::string export_triton(const ConvProblem& a, const ExportOptions& options) {
  check(a, options);
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  const std::string dtype = a.dtype == DType::f32   ? "torch.float32"
                            : a.dtype == DType::f16 ? "torch.float16"
                                                    : "torch.bfloat16";
  const bool rounds = a.dtype == DType::f32 && a.precision != Precision::fp32;
  const bool relu = a.activation == Activation::relu;
  Words words = layer_words(a);
  words.merge(Words{{"PAD_H_SUM", number(2 * a.pad_top)},
                    {"PAD_W_SUM", number(2 * a.pad_left)},
                    {"SPAN_H", number(a.dilation_h * (a.r - 1) + 1)},
                    {"SPAN_W", number(a.dilation_w * (a.s - 1) + 1)},
                    {"RELU", relu ? "True" : "False"},
                    {"PRECISION", a.precision == Precision::fp32 ? "ieee" : "tf32"},
                    {"ROUND_KERNEL", rounds ? fill_template("round_tf32.py", {}) : ""},
                    {"ROUND", rounds ? "    x, weight = round_tf32(x), round_tf32(weight)\n" : ""},
                    {"DTYPE", dtype},
                    {"LAYER_DTYPE", a.dtype == DType::f32 ? "" : "\n            dtype=" + dtype + ","},
                    {"FALLBACK", relu ? "torch.relu(self.conv1(x))" : "self.conv1(x)"},
                    {"MODULE", options.module_name}});
  return fill_template("conv2d_triton.py", words);
}

}  // namespace convtune
