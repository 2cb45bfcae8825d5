// The text forms of the nouns in tensor.h, both ways, each from one table.
#include "convtune/tensor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>
#include <vector>

#include "base/quoted.h"
#include "convtune/error.h"
#include "problem/activation.h"
#include "problem/element.h"

namespace convtune {
namespace {

template <class Enum>
using Name = std::pair<Enum, std::string_view>;

constexpr auto kDTypes = [] {
  std::array<Name<DType>, kElements.size()> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = {kElements[i].type, kElements[i].name};
  return names;
}();
// The first name of a value is the one that is written.
constexpr Name<Layout> kLayouts[] = {{Layout::nchw, "nchw"},  {Layout::nhwc, "nhwc"},
                                     {Layout::nchw, "ncw"},   {Layout::nhwc, "nwc"},
                                     {Layout::nchw, "ncdhw"}, {Layout::nhwc, "ndhwc"}};
constexpr Name<Direction> kDirections[] = {
    {Direction::forward, "fwd"}, {Direction::backward_data, "bwd_d"}, {Direction::backward_weights, "bwd_w"}};
constexpr Name<Precision> kPrecisions[] = {{Precision::automatic, "auto"},
                                           {Precision::fp32, "fp32"},
                                           {Precision::tf32, "tf32"},
                                           {Precision::fp16, "fp16"},
                                           {Precision::bf16, "bf16"}};
constexpr Name<Snake> kSnakes[] = {{Snake::none, "none"}, {Snake::after, "after"}, {Snake::beside, "beside"}};
constexpr Name<Rounding> kRoundings[] = {{Rounding::once, "once"}, {Rounding::eager, "eager"}};

template <class Enum>
std::string_view name_of(const auto& names, Enum value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} is not a value of its enumeration", static_cast<int>(value)));
}

template <class Names>
auto parse(const Names& names, std::string_view what, std::string_view text) {
  std::string known_names;
  for (const auto& [known, name] : names) {
    if (name == text) return known;
    known_names += known_names.empty() ? "" : ", ";
    known_names += name;
  }
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} {} is not one of {}", what, quoted(text), known_names));
}

}  // namespace

std::string_view to_string(DType dtype) {
  return name_of(kDTypes, dtype);
}
std::string to_string(const DTypes& types) {
  if (types == DTypes(types.x)) return std::string(to_string(types.x));
  std::string text = fmt::format("{}:{}:{}", to_string(types.x), to_string(types.w), to_string(types.y));
  if (types.bias != types.w) text += fmt::format(":{}", to_string(types.bias));
  return text;
}
std::string_view to_string(Direction direction) {
  return name_of(kDirections, direction);
}
std::string_view to_string(Rounding rounding) {
  return name_of(kRoundings, rounding);
}
std::string_view to_string(Snake snake) {
  return name_of(kSnakes, snake);
}
std::string_view to_string(Layout layout) {
  return name_of(kLayouts, layout);
}
std::string_view to_string(Precision precision) {
  return name_of(kPrecisions, precision);
}
std::string_view to_string(Activation activation) {
  return activation_row(activation).name();
}

DType parse_dtype(std::string_view text) {
  return parse(kDTypes, "dtype", text);
}
DTypes parse_dtypes(std::string_view text) {
  std::vector<DType> types;
  for (std::string_view rest = text;;) {
    const std::size_t colon = rest.find(':');
    types.push_back(parse_dtype(rest.substr(0, colon)));
    if (colon == rest.npos) break;
    rest.remove_prefix(colon + 1);
  }
  if (types.size() == 1) return types[0];
  if (types.size() == 3) return {types[0], types[1], types[2]};
  if (types.size() == 4) return {types[0], types[1], types[2], types[3]};
  throw Error(ErrorKind::invalid_argument,
              fmt::format("dtype {} is not one type, x:w:y or x:w:y:bias", quoted(text)));
}
Direction parse_direction(std::string_view text) {
  return parse(kDirections, "dir", text);
}
Rounding parse_rounding(std::string_view text) {
  return parse(kRoundings, "rounding", text);
}
Snake parse_snake(std::string_view text) {
  return parse(kSnakes, "snake", text);
}
Layout parse_layout(std::string_view text) {
  return parse(kLayouts, "layout", text);
}
Precision parse_precision(std::string_view text) {
  return parse(kPrecisions, "precision", text);
}
Activation parse_activation(std::string_view text) {
  std::vector<Name<Activation>> names;
  for (const ActivationRow& row : activation_rows()) names.emplace_back(row.activation, row.name());
  return parse(names, "act", text);
}

std::int64_t size_of(DType dtype) {
  return element_row(dtype).bytes;
}

std::string to_string(Device device) {
  return device.kind == Device::Kind::cpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

Device parse_device(std::string_view text) {
  if (text == "cpu") return {};
  if (text == "cuda") return {Device::Kind::cuda, 0};
  constexpr std::string_view kCuda = "cuda:";
  if (text.starts_with(kCuda)) {
    const std::string_view digits = text.substr(kCuda.size());
    Device device{Device::Kind::cuda, 0};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), device.index);
    // from_chars would take a minus sign.
    if (error == std::errc() && end == digits.data() + digits.size() && digits.front() != '-') return device;
  }
  throw Error(ErrorKind::invalid_argument, fmt::format("device {} is not cpu, cuda or cuda:N", quoted(text)));
}

}  // namespace convtune
