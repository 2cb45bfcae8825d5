#include "torch/how.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace convtune::torch {

namespace {

constexpr std::ptrdiff_t kWords = 3;           // behind the numbers
constexpr std::string_view kEager = " eager";  // behind those

}  // namespace

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts(1);
  for (const char letter : text)
    if (letter == separator)
      parts.emplace_back();
    else
      parts.back() += letter;
  return parts;
}

How read_how(std::string_view text) {
  const std::size_t end = text.find_first_of("\n\x1e");
  std::string said(text.substr(0, end));
  How how;
  how.eager = said.ends_with(kEager);
  if (how.eager) said.resize(said.size() - kEager.size());
  std::istringstream words(said);
  std::string reuse, more;
  const auto numbers_of_axes = static_cast<std::int32_t>(std::ranges::count(said, ' ') + 1 - kWords - 1);
  how.transposed = numbers_of_axes % 4 != 0;  // five numbers for each axis, and not four
  how.axes = numbers_of_axes / (how.transposed ? 5 : 4);
  const bool sound = how.axes >= 1 && how.axes <= 3;
  std::vector<How::Axes*> read{&how.stride, &how.before, &how.behind, &how.dilation};
  if (how.transposed) read.push_back(&how.output_padding);
  if (sound)
    for (How::Axes* const numbers : read)
      for (auto at = numbers->end() - how.axes; at != numbers->end(); ++at) words >> *at;
  words >> how.groups >> how.precision >> how.activation >> reuse;
  if (!sound || !words || words >> more || (reuse != "reuse" && reuse != "pack"))
    throw std::runtime_error("convtune::conv2d_forward: \"" + std::string(text) + "\" does not say how");
  how.reuse = reuse == "reuse";
  if (end == std::string_view::npos) return how;
  std::string lines(text.substr(end + 1));
  std::ranges::replace(lines, '\x1e', '\n');
  for (const std::string& line : split(lines, '\n'))
    if (how.choices.emplace_back(split(line, '\t')).size() != 5) how.choices.pop_back();
  return how;
}

bool packs_anew(std::string_view text) {
  std::string_view said = text.substr(0, text.find_first_of("\n\x1e"));
  if (said.ends_with(kEager)) said.remove_suffix(kEager.size());
  return said.ends_with(" pack");
}

}  // namespace convtune::torch
