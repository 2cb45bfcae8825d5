// See export_template.h.
#include "export/export_template.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/embedded.h"
#include "base/quoted.h"
#include "contract/abilities.h"
#include "convtune/error.h"
#include "problem/element.h"

namespace convtune {
namespace {

// A name, and no word of the language: super is one to a class that calls it.
bool is_class_name(const std::string& name) {
  constexpr std::array<std::string_view, 37> kWords = {
      "False",    "None",   "True",  "and",  "as",     "assert",   "async",    "await",   "break", "class",
      "continue", "def",    "del",   "elif", "else",   "except",   "for",      "finally", "from",  "global",
      "if",       "import", "in",    "is",   "lambda", "nonlocal", "not",      "or",      "pass",  "raise",
      "return",   "try",    "while", "with", "yield",  "super",    "__debug__"};
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= 100 && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); }) &&
         std::find(kWords.begin(), kWords.end(), name) == kWords.end();
}

std::string_view text_of(std::string_view file) {
  for (const EmbeddedFile& embedded : embedded_exports())
    if (embedded.name == file) return embedded.text;
  throw Error(ErrorKind::internal, fmt::format("there is no template {}", file));
}

}  // namespace

std::string fill_template(std::string_view file, const Words& words) {
  std::string_view left = text_of(file);
  std::string text;
  // "@K@" is a word; the '@' of a decorator stands before a lower-case name.
  for (std::size_t at; (at = left.find('@')) != left.npos;) {
    const std::size_t end = left.find('@', at + 1);
    const auto word = end == left.npos ? words.end() : words.find(left.substr(at + 1, end - at - 1));
    text += left.substr(0, at);
    text += word == words.end() ? "@" : word->second;
    left.remove_prefix(word == words.end() ? at + 1 : end + 1);
  }
  return text.append(left);
}

std::string dtype_of(const ConvProblem& a) {
  return fmt::format("torch.{}", element_row(a.dtype.x).torch_name);
}

Words layer_words(const ExportLayer& layer, std::size_t layers) {
  const ConvProblem& a = layer.problem;
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  const auto shape = [&](std::int64_t first, std::int64_t second, std::int64_t height, std::int64_t width) {
    return layer.one_dimensional ? fmt::format("{}, {}, {}", first, second, width)
                                 : fmt::format("{}, {}, {}, {}", first, second, height, width);
  };
  const std::string suffix = layers > 1 ? "_" + layer.name : "";
  return {{"K", number(a.k)},
          {"C", number(a.c)},
          {"R", number(a.r)},
          {"S", number(a.s)},
          {"GROUPS", number(a.groups)},
          {"GROUP_C", number(a.c / a.groups)},
          {"GROUP_K", number(a.k / a.groups)},
          {"STRIDE_H", number(a.stride_h)},
          {"STRIDE_W", number(a.stride_w)},
          {"PAD_H", number(a.pad_top)},
          {"PAD_W", number(a.pad_left)},
          {"DILATION_H", number(a.dilation_h)},
          {"DILATION_W", number(a.dilation_w)},
          {"BIAS", a.bias ? "True" : "False"},
          {"X_SHAPE", shape(a.n, a.c, a.h, a.w)},
          {"W_SHAPE", shape(a.k, a.c / a.groups, a.r, a.s)},
          {"X_AXES", layer.one_dimensional ? "N, C, W" : "N, C, H, W"},
          {"W_AXES", layer.one_dimensional ? "K, C / groups, S" : "K, C / groups, R, S"},
          {"RANK", layer.one_dimensional ? "3" : "4"},
          {"PLANE", layer.one_dimensional ? ".unsqueeze(2)" : ""},
          {"LINE", layer.one_dimensional ? ".squeeze(2)" : ""},
          {"SUFFIX", suffix},
          {"FUNCTION", (layer.one_dimensional ? "conv1d" : "conv2d") + suffix}};
}

namespace {

// "(3, 5)", or "(5,)" of one dimension.
std::string extents(const ExportLayer& layer, std::int64_t height, std::int64_t width) {
  return layer.one_dimensional ? fmt::format("({},)", width) : fmt::format("({}, {})", height, width);
}

std::string construction(const ExportLayer& layer) {
  const ConvProblem& a = layer.problem;
  const std::string begin =
      fmt::format("        self.{} = nn.Conv{}d(", layer.name, layer.one_dimensional ? 1 : 2);
  if (layer.arguments.empty()) {
    const std::string type = a.dtype == DType::f32 ? "" : fmt::format("            dtype={},\n", dtype_of(a));
    return fmt::format(
        "{}\n            in_channels={},\n            out_channels={},\n            kernel_size={},\n"
        "            stride={},\n            padding={},\n            dilation={},\n            groups={},\n"
        "            bias={},\n{}        )\n",
        begin, a.c, a.k, extents(layer, a.r, a.s), extents(layer, a.stride_h, a.stride_w),
        extents(layer, a.pad_top, a.pad_left), extents(layer, a.dilation_h, a.dilation_w), a.groups,
        a.bias ? "True" : "False", type);
  }
  const bool is_long = begin.size() + layer.arguments.size() > 108;
  std::string text = is_long ? fmt::format("{}\n            {},\n        )\n", begin, layer.arguments)
                             : fmt::format("{}{})\n", begin, layer.arguments);
  return text +
         fmt::format(
             "        assert (self.{0}.stride, self.{0}.padding, self.{0}.dilation, self.{0}.groups) == (\n"
             "            {1}, {2}, {3}, {4}), \"the kernel is for these numbers alone\"\n",
             layer.name, extents(layer, a.stride_h, a.stride_w),
             layer.padding_word.empty() ? extents(layer, a.pad_top, a.pad_left) : layer.padding_word,
             extents(layer, a.dilation_h, a.dilation_w), a.groups);
}

}  // namespace

Words module_words(const ExportModule& module, const std::string& name) {
  std::string layers, fallback = "x";
  for (const ExportLayer& layer : module.layers) layers += construction(layer);
  for (const std::size_t at : module.chain) {
    const ExportLayer& layer = module.layers[at];
    fallback = fmt::format("self.{}({}){}", layer.name, fallback,
                           layer.problem.activation == Activation::relu ? ".relu()" : "");
  }
  return {{"MODULE", name},
          {"PARAMETERS", module.parameters.empty() ? "" : ", " + module.parameters},
          {"LAYERS", layers},
          {"FALLBACK", fallback}};
}

void refuse_export(const ConvProblem& a, const std::string& why) {
  throw Error(ErrorKind::unsupported,
              fmt::format("{} cannot be exported as a PyTorch layer: {}", to_string(a), why));
}

void check_module(const ExportModule& module, std::vector<DType> types, const std::string& name,
                  std::initializer_list<std::string_view> taken) {
  for (const ExportLayer& layer : module.layers) {
    const ConvProblem& a = layer.problem;
    validate(a);
    if (const Support support = within({.types = types}, a); !support) refuse_export(a, support.reason());
    if (a.pad_top != a.pad_bottom || a.pad_left != a.pad_right)
      refuse_export(a, "nn.Conv2d pads both ends alike");
    if (!is_class_name(layer.name))
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} cannot be a layer's name", convtune::quoted(layer.name)));
  }
  const auto is_function = [&](const ExportLayer& layer) {
    return name.starts_with("conv") && name.ends_with("_" + layer.name);
  };
  if (!is_class_name(name) || std::find(taken.begin(), taken.end(), name) != taken.end() ||
      std::any_of(module.layers.begin(), module.layers.end(), is_function))
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} cannot be a module's name; ModelNew can", convtune::quoted(name)));
}

ExportLayer::ExportLayer(const ConvProblem& of)
    : problem(of),
      one_dimensional(of.h == 1 && of.r == 1 && of.w > 1 && of.pad_top == 0 && of.pad_bottom == 0 &&
                      of.stride_h == 1 && of.dilation_h == 1) {}

}  // namespace convtune
