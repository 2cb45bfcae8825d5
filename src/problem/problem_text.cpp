// The text form of ConvProblem: what a line leaves out is filled in as benchdnn fills it in. See problem.h
// for the grammar, docs/decisions/0019-benchdnns-lines.md for its reasons.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/problem.h"
#include "problem/problem_line.h"
#include "problem/problem_words.h"

namespace convtune {
namespace {

__extension__ typedef __int128 Wide;  // holds any sum of products of two 64-bit numbers

// Holds a line's numbers for one axis: d, h or w. A number that the line leaves out has benchdnn's default.
struct TextAxis {
  std::int64_t image = 0, filter = 0, output = 0, stride = 1, dilation = 1;  // the dilation counts from 1
  std::optional<std::int64_t> before;                                        // padding
  std::int64_t after = 0;

  // Numbers that are what they would be anyway do not make benchdnn see an axis.
  bool is_there() const {
    return image != 0 || filter != 0 || output != 0 || stride != 1 || dilation != 1 || before.value_or(0) > 0;
  }
};

// The axis of the forward problem whose backward data a transposed layer is: its output is the layer's input,
// and its image the layer's output, which follows from the rest where the line leaves it out.
void transpose(const ProblemLine& line, std::string_view word, TextAxis& axis) {
  std::swap(axis.image, axis.output);
  if (axis.output == 0) axis.image = 0;  // the layer's input has no default
  if (axis.image != 0 || axis.output == 0 || axis.filter == 0) return;
  const std::int64_t before = axis.before.value_or(0);
  const auto behind = line.words.find(word);
  const std::int64_t after = behind == line.words.end()
                                 ? before
                                 : line.parse_number(behind->second.value, word, behind->second.position);
  const Wide image =
      (Wide{axis.output} - 1) * axis.stride + (Wide{axis.filter} - 1) * axis.dilation + 1 - before - after;
  if (image < 1)
    line.fail(fmt::format("the transposed layer has no output: its padding of {} + {} takes all of it",
                          before, after));
  axis.image = static_cast<std::int64_t>(
      std::min<Wide>(image, std::numeric_limits<std::int64_t>::max()));  // too much: validate() says so
}

TextAxis read_axis(const ProblemLine& line, char name, std::string_view pad_behind) {
  const auto number = [&](char what) { return line.number(std::string{what, name}); };
  const auto value = [&](char what, std::int64_t otherwise) {
    return number(what).value_or(Number{otherwise}).value;
  };
  TextAxis axis{value('i', 0), value('k', 0), value('o', 0), value('s', 1), value('d', 0), std::nullopt, 0};
  // Past the scanner's int64 this is the one sum that could overflow before validate() sees it.
  if (axis.dilation == std::numeric_limits<std::int64_t>::max())
    line.fail(fmt::format("d{} is too large", name));
  ++axis.dilation;
  if (const auto padding = number('p')) axis.before = padding->value;
  if (line.is_transposed()) transpose(line, pad_behind, axis);
  return axis;
}

// Lists the sizes without a default: image and filter of an axis that is there.
void check_complete(const ProblemLine& line, const TextAxis& axis, std::string_view image,
                    std::string_view filter, std::string_view rule = "") {
  if (axis.image == 0) line.fail_missing(image, rule);
  if (axis.filter == 0) line.fail_missing(filter, rule);
}

// Tells whether a depth that a line speaks of is none: a single plane, whatever its stride and dilation.
bool is_flat(const TextAxis& depth) {
  return !depth.is_there() || (depth.image == 1 && depth.filter == 1 && depth.output <= 1 &&
                               depth.before.value_or(0) == 0 && depth.stride > 0);
}

// A line that has widths says both sizes, as benchdnn wants. Beyond it, what to_string writes
// where the image or the filter is square: each width that is not there equals its height, and none stands
// without its height.
void complete_short_width(const ProblemLine& line, const TextAxis& height, TextAxis& width) {
  const std::string_view missing = width.image == 0 ? "iw" : "kw";
  if (line.number("oh") || line.number("ow") || line.number("id") || line.is_transposed())
    line.fail(fmt::format("{} is missing: the line has other widths", missing));
  for (const char what : {'s', 'p', 'd'})
    if (const auto own = line.number(std::string{what, 'w'}); own && !line.number(std::string{what, 'h'}))
      line.fail_at(own->position,
                   fmt::format("{} and {}h are missing: the line has {}w", missing, what, what));
  if (width.image == 0) width.image = height.image;
  if (width.filter == 0) width.filter = height.filter;
  if (!line.number("sw")) width.stride = height.stride;
  if (!line.number("pw")) width.before = height.before;
  if (!line.number("dw")) width.dilation = height.dilation;
}

// benchdnn takes steps of 1, 0 and 0 for not written and copies another axis's; whoever wrote them meant
// them.
void check_copied(const ProblemLine& line, char axis, const TextAxis& from) {
  const auto check = [&](char what, std::int64_t copied) {
    const std::string letters{what, axis};
    if (const auto own = line.number(letters); own && own->value != copied)
      line.fail_at(own->position,
                   fmt::format("benchdnn reads {0}{1} for {0}{2} where there is neither i{3} nor k{3}: "
                               "write them too",
                               letters, copied, own->value, axis));
  };
  check('s', from.stride);
  check('p', from.before.value_or(0));
  check('d', from.dilation - 1);
}

// From a stated output follows the padding that is not written: half of what it needs before the image, the
// rest behind. Padding is the same on both sides where that gives this output, too; and none behind says the
// same as benchdnn's negative one, which is for rows that no window reaches. Where our own word says what is
// behind, nothing is derived.
void derive_padding(const ProblemLine& line, std::string_view word, TextAxis& axis) {
  const bool derived = axis.output > 0 && line.words.find(word) == line.words.end();
  const Wide span = (Wide{axis.filter} - 1) * axis.dilation + 1;
  const Wide needed = (Wide{axis.output} - 1) * axis.stride + span - axis.image;
  const auto at_least_0 = [](Wide value) {
    return static_cast<std::int64_t>(std::clamp<Wide>(
        value, 0, std::numeric_limits<std::int64_t>::max()));  // too much: validate() says so
  };
  if (!axis.before) axis.before = derived ? at_least_0(needed / 2) : 0;
  axis.after = *axis.before;
  if (derived && output_size(axis.image, axis.filter, axis.stride, axis.dilation, *axis.before, axis.after) !=
                     axis.output)
    axis.after = at_least_0(needed - *axis.before);
}

// An output size that the line states must be the one that follows from the rest.
void check_output(const ProblemLine& line, std::string_view letters, std::int64_t actual,
                  std::string_view word) {
  const auto stated = line.number(letters);
  if (!stated || stated->value == 0 || stated->value == actual) return;
  const bool worded = line.words.find(word) != line.words.end();
  line.fail_at(stated->position,
               fmt::format("{}{} is stated, but the other numbers give {}{}{}", letters, stated->value,
                           letters, actual, worded ? "" : ", even without padding behind the image"));
}

struct Axes {
  TextAxis depth, height, width;
};

// All complete, as benchdnn completes them: widths alone are 1-D, heights alone square, depths alone cubes.
Axes read_axes(const ProblemLine& line) {
  TextAxis depth = read_axis(line, 'd', "pad_back"), height = read_axis(line, 'h', "pad_bottom"),
           width = read_axis(line, 'w', "pad_right");
  const bool has_depth = depth.is_there(), has_height = height.is_there(), has_width = width.is_there();
  const bool flat = is_flat(depth) && !line.words.contains("pad_back");
  if (has_depth) {
    check_complete(line, depth, "id", "kd");
    if (has_height || has_width) {
      constexpr std::string_view kRule =
          ": beside a depth (id, kd) a line has both heights and widths, or neither for a cube";
      check_complete(line, height, "ih", "kh", kRule);
      check_complete(line, width, "iw", "kw", kRule);
    } else {
      height = width = depth;
    }
  } else if (has_height || !has_width) {
    check_complete(line, height, "ih", "kh");
    if (!has_width) {
      width = height;
    } else if (width.image == 0 || width.filter == 0) {
      complete_short_width(line, height, width);
    }
  } else {
    check_complete(line, width, "iw", "kw");
    height.image = height.filter = 1;
  }
  if (flat) {
    depth = {};
    depth.image = depth.filter = 1;
  }
  derive_padding(line, "pad_back", depth);
  derive_padding(line, "pad_bottom", height);
  derive_padding(line, "pad_right", width);
  if (has_depth && !has_height && !has_width) check_copied(line, 'h', height);
  if (!has_width && (has_height || has_depth)) check_copied(line, 'w', width);
  return {depth, height, width};
}

struct Pair {
  std::int64_t h, w;
  bool is_square() const { return h == w; }
};

// Tells whether a line must have every width, because benchdnn would copy none of them, or all (see
// check_square). `steps`: strides, paddings, dilations counted from 0.
bool needs_widths(Pair image, Pair filter, const std::array<Pair, 3>& steps) {
  if (!image.is_square() || !filter.is_square()) return !image.is_square() && !filter.is_square();
  constexpr std::array<std::int64_t, 3> kUsual = {1, 0, 0};
  bool differ = false, seen = false;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    differ |= !steps[i].is_square();
    seen |= !steps[i].is_square() && steps[i].w != kUsual[i];
  }
  return differ && !seen;
}

}  // namespace

ConvProblem parse_problem(std::string_view text) {
  const ProblemLine line(text);
  const auto value = [&](std::string_view letters, std::int64_t otherwise) {
    return line.number(letters).value_or(Number{otherwise}).value;
  };
  for (const std::string_view letters : {"ic", "oc"})
    if (!line.number(letters)) line.fail_missing(letters);
  const auto [depth, height, width] = read_axes(line);

  ConvProblem problem;
  problem.n = value("mb", 2);
  problem.groups = value("g", 1);
  const bool transposed = line.is_transposed();
  problem.c = value(transposed ? "oc" : "ic", 0);
  problem.k = value(transposed ? "ic" : "oc", 0);
  problem.d = depth.image, problem.t = depth.filter;
  problem.stride_d = depth.stride, problem.dilation_d = depth.dilation;
  problem.pad_front = *depth.before, problem.pad_back = depth.after;
  problem.h = height.image, problem.w = width.image;
  problem.r = height.filter, problem.s = width.filter;
  problem.stride_h = height.stride, problem.stride_w = width.stride;
  problem.dilation_h = height.dilation, problem.dilation_w = width.dilation;
  problem.pad_top = *height.before, problem.pad_left = *width.before;
  problem.pad_bottom = height.after, problem.pad_right = width.after;
  apply_words(line, problem);
  problem.name = line.name.value_or("");

  try {
    validate(problem);
  } catch (const Error& error) {
    line.fail(error.what());
  }
  check_output(line, transposed ? "id" : "od", problem.z(), "pad_back");
  check_output(line, transposed ? "ih" : "oh", problem.p(), "pad_bottom");
  check_output(line, transposed ? "iw" : "ow", problem.q(), "pad_right");
  return problem;
}

std::string to_string(const ConvProblem& problem) {
  std::string letters;
  const auto add = [&](std::string_view name, std::int64_t value) {
    letters += fmt::format("{}{}", name, value);
  };
  const std::array<Pair, 3> steps = {{{problem.stride_h, problem.stride_w},
                                      {problem.pad_top, problem.pad_left},
                                      {problem.dilation_h - 1, problem.dilation_w - 1}}};
  const bool depth = problem.has_depth();
  const bool widths = needs_widths({problem.h, problem.w}, {problem.r, problem.s}, steps);
  // A width is said only where it differs from its height or would be taken for something else, and a pair
  // only where it is not the default. A depth needs all sizes, and takes them for what is not said.
  const auto add_pair = [&](std::string_view h, std::string_view w, Pair value,
                            std::optional<std::int64_t> usual) {
    if (value.h == value.w && value.h == usual) return;
    if (depth) {
      if (value.h != usual) add(h, value.h);
      if (value.w != usual) add(w, value.w);
      return;
    }
    add(h, value.h);
    if (value.w != value.h || widths) add(w, value.w);
  };
  if (problem.groups != 1) add("g", problem.groups);
  if (problem.n != 2) add("mb", problem.n);
  add("ic", problem.c);
  if (depth) add("id", problem.d);
  add_pair("ih", "iw", {problem.h, problem.w}, std::nullopt);
  add("oc", problem.k);
  if (depth) add("kd", problem.t);
  add_pair("kh", "kw", {problem.r, problem.s}, std::nullopt);
  if (problem.stride_d != 1) add("sd", problem.stride_d);
  add_pair("sh", "sw", steps[0], 1);
  if (problem.pad_front != 0) add("pd", problem.pad_front);
  add_pair("ph", "pw", steps[1], 0);
  if (problem.dilation_d != 1) add("dd", problem.dilation_d - 1);
  add_pair("dh", "dw", steps[2], 0);
  if (!problem.name.empty()) letters += fmt::format("n\"{}\"", problem.name);

  return letters + words_of(problem);
}

std::string key(const ConvProblem& problem) {
  ConvProblem nameless = problem;
  nameless.name.clear();
  return to_string(nameless);
}

}  // namespace convtune
