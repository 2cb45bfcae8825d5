// export_triton(): the templates triton_*.py with a module's numbers put in.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "convtune/error.h"
#include "convtune/export.h"
#include "export/export_template.h"

namespace convtune {
namespace {

constexpr std::int64_t kMostGroups = 65'535;  // per grid's last axis
constexpr std::int64_t kMostUnrolled = 64;    // taps

void check_triton_module(const ExportModule& module, const ExportOptions& options) {
  check_module(module, {DType::f32, DType::f16, DType::bf16}, options.module_name,
               {"torch", "nn", "triton", "tl", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
                "conv_transpose2d", "conv_transpose3d", "conv2d_kernel", "conv3d_kernel",
                "conv_transpose_kernel", "taps_of", "depthwise_kernel", "round_tf32", "round_kernel"});
  for (const ExportLayer& layer : module.layers) {
    const ConvProblem& a = layer.problem;
    if (a.layout != Layout::nchw) refuse_export(a, "the Triton kernel is for NCHW");
    const double residues = is_transposed(a) ? 1.0 * a.stride_d * a.stride_h * a.stride_w : 1;  // no overflow
    if (static_cast<double>(a.groups) * residues > kMostGroups)
      refuse_export(a, fmt::format("the Triton kernel has {} groups{} at most", kMostGroups,
                                   is_transposed(a) ? " times residues of the strides" : ""));
  }
}

// The kernels of the templates.
enum class Kernel { dense, depthwise, dense_3d, transposed };

// Depthwise, a channel of its own for each filter: a sum of taps on the plain cores, in fp32.
Kernel kernel_of(const ExportLayer& layer) {
  const ConvProblem& a = layer.problem;
  if (is_transposed(a)) return Kernel::transposed;
  if (layer.rank == 3) return Kernel::dense_3d;
  return a.groups > 1 && a.groups == a.c ? Kernel::depthwise : Kernel::dense;
}

std::string_view launch_of(Kernel kernel) {
  switch (kernel) {
    case Kernel::depthwise:
      return "triton_depthwise_launch.py";
    case Kernel::dense_3d:
      return "triton_conv3d_launch.py";
    case Kernel::transposed:
      return "triton_transposed_launch.py";
    case Kernel::dense:
      break;
  }
  return "triton_launch.py";
}

// fp32 tensors that tensor cores multiply in TF32.
bool rounds(const ExportLayer& layer) {
  const ConvProblem& a = layer.problem;
  return a.dtype == DType::f32 && a.precision != Precision::fp32 && kernel_of(layer) != Kernel::depthwise;
}

// The lines that read x's sizes and say y's: SIZES, FITS and Y_AXES.
Words sizes_of(const ExportLayer& layer) {
  const LayerShape shape(layer.problem);
  const bool transposed = is_transposed(layer.problem);
  const std::size_t first = layer.rank == 3 ? 0 : 1;  // a line is a plane of one row
  constexpr std::string_view kIn = "DHW", kOut = "ZPQ";
  std::string sizes = fmt::format("    N, C, {} = x.shape\n", fmt::join(kIn.substr(first), ", "));
  std::string fits;
  if (transposed && first > 0) sizes += "    D, Z = 1, 1\n";
  for (std::size_t i = first; i < 3; ++i) {
    const std::int64_t span = shape.dilation[i] * (shape.filter[i] - 1) + 1, padding = 2 * shape.padding[i];
    sizes += transposed ? fmt::format("    {} = ({} - 1) * {} + {}\n", kOut[i], kIn[i], shape.stride[i],
                                      span - padding + shape.output_padding[i])
                        : fmt::format("    {} = ({} + {} - {}) // {} + 1\n", kOut[i], kIn[i], padding, span,
                                      shape.stride[i]);
    fits += fmt::format("{}{} > 0", fits.empty() ? "" : " and ", kOut[i]);
  }
  return {
      {"SIZES", sizes}, {"FITS", fits}, {"Y_AXES", fmt::format("{}", fmt::join(kOut.substr(first), ", "))}};
}

// Returns the distance in taps from one that meets a residue of the position to the next that does.
std::int64_t tap_step(std::int64_t stride, std::int64_t dilation) {
  return stride / std::gcd(stride, dilation);
}

Words words_of(const ExportModule& module, const ExportLayer& layer) {
  const ConvProblem& a = layer.problem;
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  Words words = layer_words(layer, module.layers.size());
  words.merge(Words{{"STEP_D", number(tap_step(a.stride_d, a.dilation_d))},
                    {"STEP_H", number(tap_step(a.stride_h, a.dilation_h))},
                    {"STEP_W", number(tap_step(a.stride_w, a.dilation_w))},
                    {"RESIDUES", number(a.stride_d * a.stride_h * a.stride_w)},
                    {"BIAS_POINTER", a.bias ? "bias" : "weight"},
                    {"RELU", a.activation == Activation::relu ? "True" : "False"},
                    {"PRECISION", a.precision == Precision::fp32 ? "ieee" : "tf32"},
                    {"ROUND", rounds(layer) ? "    x, weight = round_tf32(x), round_tf32(weight)\n" : ""},
                    {"X_FREE", fmt::format("N, {}, {}", words.at("C"), words.at("X_AXES").substr(6))},
                    {"DTYPE", dtype_of(a)}});
  words.merge(sizes_of(layer));
  words["LAUNCH"] = fill_template(launch_of(kernel_of(layer)), words);
  return words;
}

}  // namespace

std::string export_triton(const ExportModule& module, const ExportOptions& options) {
  check_triton_module(module, options);
  const auto launches = [&](Kernel kernel) {
    return std::ranges::find(module.layers, kernel, kernel_of) != module.layers.end();
  };
  const bool unrolled = std::ranges::none_of(module.layers, [](const ExportLayer& layer) {
    return kernel_of(layer) == Kernel::depthwise && layer.problem.r * layer.problem.s > kMostUnrolled;
  });
  std::string text = fill_template("triton_imports.py", {});
  if (launches(Kernel::dense)) text += fill_template("triton_kernel.py", {});
  if (launches(Kernel::depthwise))
    text += fill_template("triton_depthwise_kernel.py", {{"RANGE", unrolled ? "tl.static_range" : "range"}});
  if (launches(Kernel::dense_3d)) text += fill_template("triton_conv3d_kernel.py", {});
  if (launches(Kernel::transposed)) text += fill_template("triton_transposed_kernel.py", {});
  if (std::ranges::any_of(module.layers, rounds)) text += fill_template("triton_round_tf32.py", {});
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
