// See triton_given.h. What a name means in a wrapper round a convolution stands here: `x` and `weight` are
// the tensors, `stride` is the stride.
#include "triton/triton_given.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

using nlohmann::json;
using Sizes = std::vector<std::int64_t>;

// A size for each spatial axis that the problem's layers have: the last one, the last two or all three.
Sizes of_axes(const ConvProblem& problem, std::int64_t depth, std::int64_t height, std::int64_t width) {
  if (problem.has_depth()) return {depth, height, width};
  const bool is_flat = problem.h == 1 && problem.r == 1 && problem.pad_top == 0 && problem.pad_bottom == 0;
  return is_flat ? Sizes{width} : Sizes{height, width};
}

// A batch's extents in PyTorch's order.
Sizes batch(const ConvProblem& problem, std::int64_t channels, const Sizes& extents) {
  Sizes shape = {problem.n};
  if (problem.layout == Layout::nchw) shape.push_back(channels);
  shape.insert(shape.end(), extents.begin(), extents.end());
  if (problem.layout != Layout::nchw) shape.push_back(channels);
  return shape;
}

bool is_number(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && rest == end && std::isfinite(value);
}

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// "3, 5" and "3,"; the extents of a tensor are whole numbers.
bool is_row(std::string_view text, bool whole) {
  while (!without_blanks(text).empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view one = without_blanks(text.substr(0, comma));
    if (!is_number(one) ||
        (whole && !std::all_of(one.begin(), one.end(), [](char c) { return c >= '0' && c <= '9'; })))
      return false;
    text.remove_prefix(std::min(comma + 1, text.size()));
  }
  return true;
}

bool is_value(std::string_view text) {
  if (text == "True" || text == "False" || text == "None" || is_number(text)) return true;
  if (text.size() < 2) return false;
  const char first = text.front(), last = text.back();
  const std::string_view inner = text.substr(1, text.size() - 2);
  if (first == '[' && last == ']') return is_row(inner, true);
  if (first == '(' && last == ')') return inner.find(',') != inner.npos && is_row(inner, false);
  return (first == '\'' || first == '"') && first == last && inner.find_first_of("'\"\\\n") == inner.npos;
}

}  // namespace

json to_json(const TritonGiven& given) {
  json tensors = json::object(), values = json::object(), own = json::object();
  if (given.problem) {
    const ConvProblem& a = *given.problem;
    const bool is_transposed = a.direction == Direction::backward_data;
    const Sizes x = batch(a, a.c, of_axes(a, a.d, a.h, a.w)),
                y = batch(a, a.k, of_axes(a, a.z(), a.p(), a.q()));
    Sizes weight = {a.k, a.c / a.groups};
    for (const std::int64_t extent : of_axes(a, a.t, a.r, a.s)) weight.push_back(extent);
    // A transposed layer is called for what backward data reads.
    for (const char* name : {"x", "input", "inp", "inputs", "input_tensor"})
      tensors[name] = is_transposed ? y : x;
    for (const char* name : {"dy", "grad_output", "grad_out", "d_output", "dout"}) tensors[name] = y;
    for (const char* name : {"w", "weight", "weights"}) tensors[name] = weight;
    for (const char* name : {"b", "bias"}) tensors[name] = {is_transposed ? a.c : a.k};
    const auto more = [](std::int64_t size, std::int64_t out, std::int64_t filter, std::int64_t stride,
                         std::int64_t pads, std::int64_t dilation) {
      return size - ((out - 1) * stride - pads + dilation * (filter - 1) + 1);
    };
    values = {{"stride", of_axes(a, a.stride_d, a.stride_h, a.stride_w)},
              {"padding", of_axes(a, a.pad_front, a.pad_top, a.pad_left)},
              {"dilation", of_axes(a, a.dilation_d, a.dilation_h, a.dilation_w)},
              {"kernel_size", of_axes(a, a.t, a.r, a.s)},
              {"groups", a.groups},
              {"in_channels", is_transposed ? a.k : a.c},
              {"out_channels", is_transposed ? a.c : a.k}};
    if (is_transposed)
      values["output_padding"] =
          of_axes(a, more(a.d, a.z(), a.t, a.stride_d, a.pad_front + a.pad_back, a.dilation_d),
                  more(a.h, a.p(), a.r, a.stride_h, a.pad_top + a.pad_bottom, a.dilation_h),
                  more(a.w, a.q(), a.s, a.stride_w, a.pad_left + a.pad_right, a.dilation_w));
  }
  for (const auto& [name, value] : given.values) {
    tensors.erase(name), values.erase(name);
    own[name] = value;
  }
  return {{"tensors", tensors}, {"values", values}, {"own", own}};
}

void check_let(std::string_view name, std::string_view value) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  if (name.empty() || (name[0] >= '0' && name[0] <= '9') || !std::all_of(name.begin(), name.end(), letter) ||
      !is_value(value))
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format(
            "--let {} is not NAME=VALUE: write M=4096, a tensor's shape as in \"x=[16, 3, 224, 224]\", "
            "or \"kernel_size=(3, 5)\"",
            convtune::quoted(fmt::format("{}={}", name, value), 200)));
}

}  // namespace convtune
