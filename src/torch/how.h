// How: all that the operator is told besides its tensors, as the one text that graphs hold of it;
// convtune/torch/how.py writes it.
//
//   1 1 1 1 1 1 1 1 1 auto relu reuse
//
// Strides (vertical, horizontal), padding (top, left, bottom, right), dilations, groups: so many for each
// axis, one in 1-D, with the depth before the others in 3-D; a transposed convolution has its output padding
// before the groups. Then precision, activation; and whether packed weights may be used again (reuse, or
// pack); and eager, where it rounds as PyTorch's own calls do. Behind a line's end, or \x1e as graphs have
// it: the choices of optimize(), a line each. An empty
// operator costs 1.8 us a call with one text, and 4.3 with three lists and three texts.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace convtune::torch {

struct How {
  using Axes = std::array<std::int64_t, 3>;  // depth, vertical, horizontal

  std::int32_t axes = 2;  // that were said, the last of the three
  Axes stride{1, 1, 1}, before{}, behind{}, dilation{1, 1, 1}, output_padding{};
  bool transposed = false;
  std::int64_t groups = 1;
  std::string precision = "auto", activation = "none";
  bool reuse = true, eager = false;
  // fingerprint, problem, layout, algorithm, config
  std::vector<std::vector<std::string>> choices;
};

// The parts of a text between separators: at least one.
std::vector<std::string> split(std::string_view text, char separator);

// Throws std::runtime_error where it is no such text.
How read_how(std::string_view text);
// True of a text that says "pack".
bool packs_anew(std::string_view text);

}  // namespace convtune::torch
