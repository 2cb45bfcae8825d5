#include "torch/how.h"

#include <sstream>
#include <stdexcept>

namespace convtune::torch {

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
  std::istringstream lines{std::string(text.substr(end + 1))};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::vector<std::string>& choice = how.choices.emplace_back();
    for (std::string field; std::getline(fields, field, '\t');) choice.push_back(field);
    choice.resize(5);  // an empty config ends the line
  }
  return how;
}

}  // namespace convtune::torch
