// The text form of Conv2dProblem: what a line leaves out is filled in as benchdnn fills it in. See problem.h
// for the grammar, docs/decisions/0019-benchdnns-lines.md for its reasons.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "base/quoted.h"
#include "convtune/error.h"
#include "convtune/problem.h"
#include "problem/problem_line.h"

namespace convtune {
namespace {

__extension__ typedef __int128 Wide;  // holds any sum of products of two 64-bit numbers

// What a line says of one axis: d, h or w. What it leaves out has benchdnn's number for it.
struct Axis {
  std::int64_t image = 0, filter = 0, output = 0, stride = 1, dilation = 1;  // the dilation counts from 1
  std::optional<std::int64_t> before;                                        // padding
  std::int64_t after = 0;

  // Numbers that are what they would be anyway do not make benchdnn see an axis.
  bool is_there() const {
    return image != 0 || filter != 0 || output != 0 || stride != 1 || dilation != 1 || before.value_or(0) > 0;
  }
};

Axis read_axis(const ProblemLine& line, char name) {
  const auto number = [&](char what) { return line.number(std::string{what, name}); };
  const auto value = [&](char what, std::int64_t otherwise) {
    return number(what).value_or(Number{otherwise}).value;
  };
  Axis axis{value('i', 0), value('k', 0), value('o', 0), value('s', 1), value('d', 0), std::nullopt, 0};
  // Past the scanner's int64 this is the one sum that could overflow before validate() sees it.
  if (axis.dilation == std::numeric_limits<std::int64_t>::max())
    line.fail(fmt::format("d{} is too large", name));
  ++axis.dilation;
  if (const auto padding = number('p')) axis.before = padding->value;
  return axis;
}

// What has no default: image and filter of an axis that is there.
void check_complete(const ProblemLine& line, const Axis& axis, std::string_view image,
                    std::string_view filter) {
  if (axis.image == 0) line.fail_missing(image);
  if (axis.filter == 0) line.fail_missing(filter);
}

// A depth of 1 changes nothing, whatever its stride and dilation.
void check_depth(const ProblemLine& line, const Axis& depth) {
  if (!depth.is_there() || (depth.image == 1 && depth.filter == 1 && depth.output <= 1 &&
                            depth.before.value_or(0) == 0 && depth.stride > 0))
    return;
  for (const std::string_view letters : {"id", "od", "kd", "sd", "pd", "dd"})
    if (const auto number = line.number(letters))
      line.fail_at(
          number->position,
          fmt::format("'{}{}' belongs to a 3-D convolution; convtune has 2-D ones, whose depth is none, "
                      "or id1kd1od1pd0",
                      letters, number->value));
}

// Where a line has widths, benchdnn wants both sizes. Beyond it, what to_string writes where the image or the
// filter is square: each width that is not there equals its height, and none stands without its height.
void complete_short_width(const ProblemLine& line, const Axis& height, Axis& width) {
  const std::string_view missing = width.image == 0 ? "iw" : "kw";
  if (line.number("oh") || line.number("ow") || line.number("id"))
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

// benchdnn takes sw1, pw0 and dw0 for not written and copies the height's; whoever wrote them meant them.
void check_square(const ProblemLine& line, const Axis& height) {
  const auto check = [&](std::string_view letters, std::int64_t copied) {
    if (const auto own = line.number(letters); own && own->value != copied)
      line.fail_at(own->position,
                   fmt::format("benchdnn reads {}{} for {}{} where there is neither iw nor kw: "
                               "write them too",
                               letters, copied, letters, own->value));
  };
  check("sw", height.stride);
  check("pw", height.before.value_or(0));
  check("dw", height.dilation - 1);
}

// From a stated output follows the padding that is not written: half of what it needs before the image, the
// rest behind. Padding is the same on both sides where that gives this output, too; and none behind says the
// same as benchdnn's negative one, which is for rows that no window reaches. Where our own word says what is
// behind, nothing is derived.
void derive_padding(const ProblemLine& line, std::string_view word, Axis& axis) {
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

void apply_words(const ProblemLine& line, Conv2dProblem& problem) {
  for (const auto& [key, word] : line.words) {
    try {
      if (key == "precision") problem.precision = parse_precision(word.value);
      if (key == "layout") problem.layout = parse_layout(word.value);
      if (key == "dtype") problem.dtype = parse_dtype(word.value);
      if (key == "act") problem.activation = parse_activation(word.value);
    } catch (const Error& error) {
      line.fail_at(word.position, error.what());
    }
    if (key == "bias") {
      if (word.value != "0" && word.value != "1")
        line.fail_at(word.position, fmt::format("bias is 0 or 1, not {}", quoted(word.value)));
      problem.bias = word.value == "1";
    }
    if (key == "pad_bottom") problem.pad_bottom = line.parse_number(word.value, key, word.position);
    if (key == "pad_right") problem.pad_right = line.parse_number(word.value, key, word.position);
  }
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
  Axis height, width;
};

// Both complete, as benchdnn completes them: widths alone are 1-D, heights alone square, a depth alone a
// cube.
Axes read_axes(const ProblemLine& line) {
  const Axis depth = read_axis(line, 'd');
  Axis height = read_axis(line, 'h'), width = read_axis(line, 'w');
  check_depth(line, depth);
  const bool has_height = height.is_there(), has_width = width.is_there();
  if (!has_height && has_width && !depth.is_there()) {
    check_complete(line, width, "iw", "kw");
    height.image = height.filter = 1;
  } else {
    if (!has_height && !has_width) height = depth;
    check_complete(line, height, "ih", "kh");
  }
  if (!has_width) {
    if (has_height && depth.is_there()) line.fail_missing("iw");
    width = height;
  } else if (width.image == 0 || width.filter == 0) {
    complete_short_width(line, height, width);
  }
  derive_padding(line, "pad_bottom", height);
  derive_padding(line, "pad_right", width);
  if (!has_width) check_square(line, height);
  return {height, width};
}

struct Pair {
  std::int64_t h, w;
  bool is_square() const { return h == w; }
};

// Whether a line must have every width, because benchdnn would copy none of them, or all (see check_square).
// `steps`: strides, paddings, dilations counted from 0.
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

Conv2dProblem parse_problem(std::string_view text) {
  const ProblemLine line(text);
  const auto value = [&](std::string_view letters, std::int64_t otherwise) {
    return line.number(letters).value_or(Number{otherwise}).value;
  };
  for (const std::string_view letters : {"ic", "oc"})
    if (!line.number(letters)) line.fail_missing(letters);
  const auto [height, width] = read_axes(line);

  Conv2dProblem problem;
  problem.n = value("mb", 2);
  problem.groups = value("g", 1);
  problem.c = value("ic", 0);
  problem.k = value("oc", 0);
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
  check_output(line, "oh", problem.p(), "pad_bottom");
  check_output(line, "ow", problem.q(), "pad_right");
  return problem;
}

std::string to_string(const Conv2dProblem& problem) {
  const Conv2dProblem standard;
  std::string letters, words;
  const auto add = [&](std::string_view name, std::int64_t value) {
    letters += fmt::format("{}{}", name, value);
  };
  const std::array<Pair, 3> steps = {{{problem.stride_h, problem.stride_w},
                                      {problem.pad_top, problem.pad_left},
                                      {problem.dilation_h - 1, problem.dilation_w - 1}}};
  const bool widths = needs_widths({problem.h, problem.w}, {problem.r, problem.s}, steps);
  // A width is said only where it differs from its height or would be taken for something else, and a pair
  // only where it is not the default.
  const auto add_pair = [&](std::string_view h, std::string_view w, Pair value,
                            std::optional<std::int64_t> usual) {
    if (value.h == value.w && value.h == usual) return;
    add(h, value.h);
    if (value.w != value.h || widths) add(w, value.w);
  };
  const auto add_word = [&](std::string_view key, auto value) { words += fmt::format(" {}={}", key, value); };

  if (problem.groups != 1) add("g", problem.groups);
  if (problem.n != 2) add("mb", problem.n);
  add("ic", problem.c);
  add_pair("ih", "iw", {problem.h, problem.w}, std::nullopt);
  add("oc", problem.k);
  add_pair("kh", "kw", {problem.r, problem.s}, std::nullopt);
  add_pair("sh", "sw", steps[0], 1);
  add_pair("ph", "pw", steps[1], 0);
  add_pair("dh", "dw", steps[2], 0);
  if (!problem.name.empty()) letters += fmt::format("n\"{}\"", problem.name);

  if (problem.precision != standard.precision) add_word("precision", to_string(problem.precision));
  if (problem.layout != standard.layout) add_word("layout", to_string(problem.layout));
  if (problem.dtype != standard.dtype) add_word("dtype", to_string(problem.dtype));
  if (problem.activation != standard.activation) add_word("act", to_string(problem.activation));
  if (problem.bias != standard.bias) add_word("bias", problem.bias ? 1 : 0);
  if (problem.pad_bottom != problem.pad_top) add_word("pad_bottom", problem.pad_bottom);
  if (problem.pad_right != problem.pad_left) add_word("pad_right", problem.pad_right);
  return letters + words;
}

std::string key(const Conv2dProblem& problem) {
  Conv2dProblem nameless = problem;
  nameless.name.clear();
  return to_string(nameless);
}

}  // namespace convtune
