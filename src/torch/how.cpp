#include "torch/how.h"

#include <sstream>
#include <stdexcept>

namespace convtune::torch {

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
  const std::size_t end = text.find('\n');
  std::istringstream words{std::string(text.substr(0, end))};
  How how;
  std::string reuse, more;
  for (std::int64_t* const number :
       {&how.stride_h, &how.stride_w, &how.pad_top, &how.pad_left, &how.pad_bottom, &how.pad_right,
        &how.dilation_h, &how.dilation_w, &how.groups})
    words >> *number;
  words >> how.precision >> how.activation >> reuse;
  if (!words || words >> more || (reuse != "reuse" && reuse != "pack"))
    throw std::runtime_error("convtune::conv2d_forward: \"" + std::string(text) + "\" does not say how");
  how.reuse = reuse == "reuse";
  if (end == std::string_view::npos) return how;
  for (const std::string& line : split(text.substr(end + 1), '\n'))
    if (how.choices.emplace_back(split(line, '\t')).size() != 5) how.choices.pop_back();
  return how;
}

}  // namespace convtune::torch
