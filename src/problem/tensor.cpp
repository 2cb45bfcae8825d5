// The text forms of the nouns in tensor.h, both ways, each from one table.
#include "convtune/tensor.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/quoted.h"
#include "convtune/error.h"

namespace convtune {
namespace {

template <class Enum>
using Name = std::pair<Enum, std::string_view>;

constexpr Name<DType> kDTypes[] = {{DType::f32, "f32"}, {DType::f16, "f16"}, {DType::bf16, "bf16"}};
constexpr Name<Layout> kLayouts[] = {{Layout::nchw, "nchw"}, {Layout::nhwc, "nhwc"}};
constexpr Name<Precision> kPrecisions[] = {{Precision::automatic, "auto"},
                                           {Precision::fp32, "fp32"},
                                           {Precision::tf32, "tf32"},
                                           {Precision::fp16, "fp16"},
                                           {Precision::bf16, "bf16"}};
constexpr Name<Activation> kActivations[] = {{Activation::none, "none"}, {Activation::relu, "relu"}};

template <class Enum, std::size_t count>
std::string_view name_of(const Name<Enum> (&names)[count], Enum value) {
  for (const auto& [known, name] : names)
    if (known == value) return name;
  throw Error(ErrorKind::invalid_argument,
              fmt::format("{} is not a value of its enumeration", static_cast<int>(value)));
}

template <class Enum, std::size_t count>
Enum parse(const Name<Enum> (&names)[count], std::string_view what, std::string_view text) {
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
std::string_view to_string(Layout layout) {
  return name_of(kLayouts, layout);
}
std::string_view to_string(Precision precision) {
  return name_of(kPrecisions, precision);
}
std::string_view to_string(Activation activation) {
  return name_of(kActivations, activation);
}

DType parse_dtype(std::string_view text) {
  return parse(kDTypes, "dtype", text);
}
Layout parse_layout(std::string_view text) {
  return parse(kLayouts, "layout", text);
}
Precision parse_precision(std::string_view text) {
  return parse(kPrecisions, "precision", text);
}
Activation parse_activation(std::string_view text) {
  return parse(kActivations, "act", text);
}

std::int64_t size_of(DType dtype) {
  return dtype == DType::f32 ? 4 : 2;
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
