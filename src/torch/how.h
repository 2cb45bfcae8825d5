// How: all that the operator is told besides its tensors, as the one text that graphs hold of it;
// convtune/torch/how.py writes it.
//
//   1 1 1 1 1 1 1 1 1 auto relu reuse
//
// Strides (vertical, horizontal), padding (top, left, bottom, right), dilations, groups; precision,
// activation; and whether packed weights may be used again (reuse, or pack). Behind a line's end: the choices
// of optimize(), a line each. An empty operator costs 1.8 us a call with one text, and 4.3 with three lists
// and three texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convtune::torch {

struct How {
  std::int64_t stride_h = 1, stride_w = 1;
  std::int64_t pad_top = 0, pad_left = 0, pad_bottom = 0, pad_right = 0;
  std::int64_t dilation_h = 1, dilation_w = 1, groups = 1;
  std::string precision = "auto", activation = "none";
  bool reuse = true;
  // fingerprint, problem, layout, algorithm, config
  std::vector<std::vector<std::string>> choices;
};

// The parts of a text between separators: at least one.
std::vector<std::string> split(std::string_view text, char separator);

// Throws std::runtime_error where it is no such text.
How read_how(std::string_view text);

}  // namespace convtune::torch
