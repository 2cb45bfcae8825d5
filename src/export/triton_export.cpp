// export_triton(): the templates triton_*.py with a module's numbers put in.
#include <fmt/format.h>

#include <algorithm>

#include "convtune/error.h"
#include "convtune/export.h"
#include "export/export_template.h"

namespace convtune {
namespace {

constexpr std::int64_t kMostGroups = 65'535;  // per grid's last axis
constexpr std::int64_t kMostUnrolled = 64;    // taps

void check_triton_module(const ExportModule& module, const ExportOptions& options) {
  check_module(module, {DType::f32, DType::f16, DType::bf16}, options.module_name,
               {"torch", "nn", "triton", "tl", "conv1d", "conv2d", "conv2d_kernel", "depthwise_kernel",
                "round_tf32", "round_kernel"});
  for (const ExportLayer& layer : module.layers) {
    const ConvProblem& a = layer.problem;
    if (a.layout != Layout::nchw) refuse_export(a, "the Triton kernel is for NCHW");
    if (a.groups > kMostGroups)
      refuse_export(a, fmt::format("the Triton kernel has {} groups at most", kMostGroups));
  }
}

// A channel of its own for each filter: a sum of taps on the plain cores, in fp32.
bool is_depthwise(const ConvProblem& a) {
  return a.groups > 1 && a.groups == a.c;
}

// fp32 tensors that tensor cores multiply in TF32.
bool rounds(const ConvProblem& a) {
  return a.dtype == DType::f32 && a.precision != Precision::fp32 && !is_depthwise(a);
}

Words words_of(const ExportModule& module, const ExportLayer& layer) {
  const ConvProblem& a = layer.problem;
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  Words words = layer_words(layer, module.layers.size());
  words.merge(
      Words{{"PAD_H_SUM", number(2 * a.pad_top)},
            {"PAD_W_SUM", number(2 * a.pad_left)},
            {"SPAN_H", number(a.dilation_h * (a.r - 1) + 1)},
            {"SPAN_W", number(a.dilation_w * (a.s - 1) + 1)},
            {"BIAS_POINTER", a.bias ? "bias" : "weight"},
            {"RELU", a.activation == Activation::relu ? "True" : "False"},
            {"PRECISION", a.precision == Precision::fp32 ? "ieee" : "tf32"},
            {"ROUND", rounds(a) ? "    x, weight = round_tf32(x), round_tf32(weight)\n" : ""},
            {"X_FREE", layer.one_dimensional ? "N, " + number(a.c) + ", W" : "N, " + number(a.c) + ", H, W"},
            {"DTYPE", dtype_of(a)}});
  words["LAUNCH"] = fill_template(is_depthwise(a) ? "triton_depthwise_launch.py" : "triton_launch.py", words);
  return words;
}

}  // namespace

std::string export_triton(const ExportModule& module, const ExportOptions& options) {
  check_triton_module(module, options);
  const auto any = [&](const auto& is) {
    return std::any_of(module.layers.begin(), module.layers.end(),
                       [&](const ExportLayer& layer) { return is(layer.problem); });
  };
  const bool unrolled =
      !any([](const ConvProblem& a) { return is_depthwise(a) && a.r * a.s > kMostUnrolled; });
  std::string text = fill_template("triton_imports.py", {});
  if (any([](const ConvProblem& a) { return !is_depthwise(a); }))
    text += fill_template("triton_kernel.py", {});
  if (any(is_depthwise))
    text += fill_template("triton_depthwise_kernel.py", {{"RANGE", unrolled ? "tl.static_range" : "range"}});
  if (any(rounds)) text += fill_template("triton_round_tf32.py", {});
  std::string forward;
  for (const ExportLayer& layer : module.layers)
    text += fill_template("triton_function.py", words_of(module, layer));
  for (const std::size_t at : module.chain)
    forward += fmt::format("        x = {0}(x, self.{1}.weight, self.{1}.bias)\n",
                           layer_words(module.layers[at], module.layers.size()).at("FUNCTION"),
                           module.layers[at].name);
  Words words = module_words(module, options.module_name);
  words["KEPT"] = "";
  words["FORWARD"] = forward + "        return x\n";
  return text + fill_template("module.py", words);
}

}  // namespace convtune
