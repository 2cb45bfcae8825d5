// export_triton(): the template src/export/conv2d_triton.py with a problem's numbers put in.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "convtune/error.h"
#include "convtune/export.h"
#include "embedded.h"
#include "quoted.h"

namespace convtune {
namespace {

bool is_python_name(const std::string& name) {
  constexpr std::array<std::string_view, 35> kWords = {
      "False", "None",     "True",  "and",    "as",   "assert", "async",  "await",    "break",
      "class", "continue", "def",   "del",    "elif", "else",   "except", "for",      "finally",
      "from",  "global",   "if",    "import", "in",   "is",     "lambda", "nonlocal", "not",
      "or",    "pass",     "raise", "return", "try",  "while",  "with",   "yield"};
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && name.size() <= 100 && letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); }) &&
         std::find(kWords.begin(), kWords.end(), name) == kWords.end();
}

void check(const Conv2dProblem& a, const ExportOptions& options) {
  validate(a);
  const auto refuse = [&](const std::string& why) {
    throw Error(ErrorKind::unsupported, fmt::format("{} cannot be exported: {}", to_string(a), why));
  };
  if (a.groups != 1) refuse(fmt::format("the Triton kernel is for one group, not {}", a.groups));
  if (a.layout != Layout::nchw) refuse("the Triton kernel is for NCHW");
  if (a.pad_top != a.pad_bottom || a.pad_left != a.pad_right) refuse("nn.Conv2d pads both ends alike");
  if (!is_python_name(options.module_name) || options.module_name == "conv2d" ||
      options.module_name == "conv2d_kernel")
    throw Error(ErrorKind::invalid_argument, fmt::format("{} cannot be a module's name; ModelNew can",
                                                         convtune::quoted(options.module_name)));
}

std::map<std::string, std::string, std::less<>> words_of(const Conv2dProblem& a,
                                                         const ExportOptions& options) {
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  const std::string dtype = a.dtype == DType::f32   ? "torch.float32"
                            : a.dtype == DType::f16 ? "torch.float16"
                                                    : "torch.bfloat16";
  const bool relu = a.activation == Activation::relu;
  return {{"K", number(a.k)},
          {"C", number(a.c)},
          {"R", number(a.r)},
          {"S", number(a.s)},
          {"STRIDE_H", number(a.stride_h)},
          {"STRIDE_W", number(a.stride_w)},
          {"PAD_H", number(a.pad_top)},
          {"PAD_W", number(a.pad_left)},
          {"PAD_H_SUM", number(2 * a.pad_top)},
          {"PAD_W_SUM", number(2 * a.pad_left)},
          {"DILATION_H", number(a.dilation_h)},
          {"DILATION_W", number(a.dilation_w)},
          {"SPAN_H", number(a.dilation_h * (a.r - 1) + 1)},
          {"SPAN_W", number(a.dilation_w * (a.s - 1) + 1)},
          {"BIAS", a.bias ? "True" : "False"},
          {"RELU", relu ? "True" : "False"},
          {"PRECISION", a.precision == Precision::fp32 ? "ieee" : "tf32"},
          {"DTYPE", dtype},
          {"LAYER_DTYPE", a.dtype == DType::f32 ? "" : "\n            dtype=" + dtype + ","},
          {"FALLBACK", relu ? "torch.relu(self.conv1(x))" : "self.conv1(x)"},
          {"MODULE", options.module_name}};
}

}  // namespace

std::string export_triton(const Conv2dProblem& problem, const ExportOptions& options) {
  check(problem, options);
  const auto words = words_of(problem, options);
  std::string_view left = embedded_exports().front().text;
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

}  // namespace convtune
