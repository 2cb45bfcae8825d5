// See export_template.h.
#include "export/export_template.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

bool is_transposed(const ConvProblem& problem) {
  return problem.direction == Direction::backward_data;
}

LayerShape::LayerShape(const ConvProblem& a)
    : in_channels(a.c),
      out_channels(a.k),
      input{a.d, a.h, a.w},
      output{a.z(), a.p(), a.q()},
      filter{a.t, a.r, a.s},
      stride{a.stride_d, a.stride_h, a.stride_w},
      padding{a.pad_front, a.pad_top, a.pad_left},
      dilation{a.dilation_d, a.dilation_h, a.dilation_w} {
  if (!is_transposed(a)) return;
  std::swap(in_channels, out_channels);
  std::swap(input, output);
  for (std::size_t i = 0; i < output.size(); ++i)
    output_padding[i] =
        output[i] - ((input[i] - 1) * stride[i] - 2 * padding[i] + dilation[i] * (filter[i] - 1) + 1);
}

namespace {

// "3, 5": the axes that the layer has.
std::string numbers(const ExportLayer& layer, const Extents& extents) {
  return fmt::format("{}", fmt::join(extents.end() - layer.rank, extents.end(), ", "));
}

// "(3, 5)", or "(5,)" of one dimension.
std::string tuple(const ExportLayer& layer, const Extents& extents) {
  return fmt::format("({}{})", numbers(layer, extents), layer.rank == 1 ? "," : "");
}

// "H, W" of "DHW".
std::string axes(const ExportLayer& layer, std::string_view letters) {
  return fmt::format("{}",
                     fmt::join(letters.substr(letters.size() - static_cast<std::size_t>(layer.rank)), ", "));
}

// "ConvTranspose3d"
std::string class_of(const ExportLayer& layer) {
  return fmt::format("Conv{}{}d", is_transposed(layer.problem) ? "Transpose" : "", layer.rank);
}

}  // namespace

Words layer_words(const ExportLayer& layer, std::size_t layers) {
  const ConvProblem& a = layer.problem;
  const LayerShape shape(a);
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  const std::string suffix = layers > 1 ? "_" + layer.name : "";
  const std::string function = fmt::format("conv{}{}d", is_transposed(a) ? "_transpose" : "", layer.rank);
  return {{"K", number(shape.out_channels)},
          {"C", number(shape.in_channels)},
          {"T", number(a.t)},
          {"R", number(a.r)},
          {"S", number(a.s)},
          {"GROUPS", number(a.groups)},
          {"GROUP_C", number(shape.in_channels / a.groups)},
          {"GROUP_K", number(shape.out_channels / a.groups)},
          {"STRIDE_D", number(a.stride_d)},
          {"STRIDE_H", number(a.stride_h)},
          {"STRIDE_W", number(a.stride_w)},
          {"PAD_D", number(a.pad_front)},
          {"PAD_H", number(a.pad_top)},
          {"PAD_W", number(a.pad_left)},
          {"DILATION_D", number(a.dilation_d)},
          {"DILATION_H", number(a.dilation_h)},
          {"DILATION_W", number(a.dilation_w)},
          {"BIAS", a.bias ? "True" : "False"},
          {"X_SHAPE", fmt::format("{}, {}, {}", a.n, shape.in_channels, numbers(layer, shape.input))},
          {"W_SHAPE", fmt::format("{}, {}, {}", a.k, a.c / a.groups, numbers(layer, shape.filter))},
          {"X_AXES", "N, C, " + axes(layer, "DHW")},
          {"W_AXES", (is_transposed(a) ? "C, K / groups, " : "K, C / groups, ") + axes(layer, "TRS")},
          {"RANK", number(layer.rank + 2)},
          {"PLANE", layer.rank == 1 ? ".unsqueeze(2)" : ""},
          {"LINE", layer.rank == 1 ? ".squeeze(2)" : ""},
          {"SUFFIX", suffix},
          {"FUNCTION", function + suffix}};
}

namespace {

std::string construction(const ExportLayer& layer) {
  const ConvProblem& a = layer.problem;
  const LayerShape shape(a);
  const std::string begin = fmt::format("        self.{} = nn.{}(", layer.name, class_of(layer));
  // Texts that a transposed layer has and others have not.
  const bool pads_output = shape.output_padding != Extents{};
  if (layer.arguments.empty()) {
    std::string more =
        pads_output ? fmt::format("            output_padding={},\n", tuple(layer, shape.output_padding))
                    : "";
    if (a.dtype != DType::f32) more += fmt::format("            dtype={},\n", dtype_of(a));
    return fmt::format(
        "{}\n            in_channels={},\n            out_channels={},\n            kernel_size={},\n"
        "            stride={},\n            padding={},\n            dilation={},\n            groups={},\n"
        "            bias={},\n{}        )\n",
        begin, shape.in_channels, shape.out_channels, tuple(layer, shape.filter), tuple(layer, shape.stride),
        tuple(layer, shape.padding), tuple(layer, shape.dilation), a.groups, a.bias ? "True" : "False", more);
  }
  const bool is_long = begin.size() + layer.arguments.size() > 108;
  std::string text = is_long ? fmt::format("{}\n            {},\n        )\n", begin, layer.arguments)
                             : fmt::format("{}{})\n", begin, layer.arguments);
  if (is_transposed(a))
    text += fmt::format(
        "        assert self.{}.output_padding == {}, \"the kernel is for this output padding alone\"\n",
        layer.name, tuple(layer, shape.output_padding));
  return text +
         fmt::format(
             "        assert (self.{0}.stride, self.{0}.padding, self.{0}.dilation, self.{0}.groups) == (\n"
             "            {1}, {2}, {3}, {4}), \"the kernel is for these numbers alone\"\n",
             layer.name, tuple(layer, shape.stride),
             layer.padding_word.empty() ? tuple(layer, shape.padding) : layer.padding_word,
             tuple(layer, shape.dilation), a.groups);
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

namespace {

// Tells whether its padding is as a layer's constructor takes it: alike at both ends; the size of a
// transposed layer's output says what is added at one.
bool pads_as_layers_do(const ConvProblem& a) {
  if (!is_transposed(a))
    return a.pad_front == a.pad_back && a.pad_top == a.pad_bottom && a.pad_left == a.pad_right;
  const LayerShape shape(a);
  for (std::size_t i = 0; i < shape.output.size(); ++i)
    if (shape.output_padding[i] < 0 ||
        (shape.output_padding[i] > 0 &&
         shape.output_padding[i] >= std::max(shape.stride[i], shape.dilation[i])))
      return false;
  return true;
}

}  // namespace

void refuse_export(const ConvProblem& a, const std::string& why) {
  throw Error(ErrorKind::unsupported,
              fmt::format("{} cannot be exported as a PyTorch layer: {}", to_string(a), why));
}

void check_module(const ExportModule& module, std::vector<DType> types, const std::string& name,
                  std::initializer_list<std::string_view> taken) {
  for (const ExportLayer& layer : module.layers) {
    const ConvProblem& a = layer.problem;
    validate(a);
    const Abilities abilities{
        .types = types, .depth = true, .directions = {Direction::forward, Direction::backward_data}};
    if (const Support support = within(abilities, a); !support) refuse_export(a, support.reason());
    if (!pads_as_layers_do(a)) refuse_export(a, fmt::format("nn.{} pads both ends alike", class_of(layer)));
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
      rank(of.has_depth() ? 3
           : of.h == 1 && of.r == 1 && of.w > 1 && of.pad_top == 0 && of.pad_bottom == 0 &&
                   of.stride_h == 1 && of.dilation_h == 1
               ? 1
               : 2) {}

}  // namespace convtune
