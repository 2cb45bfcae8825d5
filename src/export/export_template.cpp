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

Words layer_words(const ConvProblem& a) {
  const auto number = [](std::int64_t value) { return fmt::format("{}", value); };
  return {{"K", number(a.k)},
          {"C", number(a.c)},
          {"R", number(a.r)},
          {"S", number(a.s)},
          {"STRIDE_H", number(a.stride_h)},
          {"STRIDE_W", number(a.stride_w)},
          {"PAD_H", number(a.pad_top)},
          {"PAD_W", number(a.pad_left)},
          {"DILATION_H", number(a.dilation_h)},
          {"DILATION_W", number(a.dilation_w)},
          {"BIAS", a.bias ? "True" : "False"}};
}

void refuse_export(const ConvProblem& a, const std::string& why) {
  throw Error(ErrorKind::unsupported,
              fmt::format("{} cannot be exported as a PyTorch layer: {}", to_string(a), why));
}

void check_layer(const ConvProblem& a, std::vector<DType> types, const std::string& name,
                 std::initializer_list<std::string_view> taken) {
  validate(a);
  if (const Support support = within({.types = std::move(types)}, a); !support)
    refuse_export(a, support.reason());
  if (a.pad_top != a.pad_bottom || a.pad_left != a.pad_right)
    refuse_export(a, "nn.Conv2d pads both ends alike");
  if (!is_class_name(name) || std::find(taken.begin(), taken.end(), name) != taken.end())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} cannot be a module's name; ModelNew can", convtune::quoted(name)));
}

}  // namespace convtune
