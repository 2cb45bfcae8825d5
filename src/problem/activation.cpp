// See activation.h.
#include "problem/activation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "convtune/error.h"

namespace convtune {
namespace {

using enum Activation;

constexpr double kGeluTanh = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;

constexpr ActivationRow kRows[] = {
    {none, "none", [](double v, double, double) { return v; }},
    {relu, "relu", [](double v, double, double) { return v < 0 ? 0 : v; }},
    {clip, "clip:LOW:HIGH",
     [](double v, double low, double high) { return v < low    ? low
                                                    : v > high ? high
                                                               : v; }},
    {silu, "silu", [](double v, double, double) { return v / (1 + std::exp(-v)); }},
    {gelu_erf, "gelu_erf",
     [](double v, double, double) { return 0.5 * v * (1 + std::erf(v / std::numbers::sqrt2)); }},
    {gelu_tanh, "gelu_tanh",
     [](double v, double, double) {
       return 0.5 * v * (1 + std::tanh(kGeluTanh * (v + 0.044715 * v * v * v)));
     }},
    {hardswish, "hardswish",
     [](double v, double, double) { return std::isnan(v) ? v : v * std::clamp(v + 3, 0.0, 6.0) / 6; }},
    {leaky_relu, "leaky_relu:SLOPE", [](double v, double slope, double) { return v > 0 ? v : slope * v; }},
    {sigmoid, "sigmoid", [](double v, double, double) { return 1 / (1 + std::exp(-v)); }},
};

constexpr bool complete_and_in_order() {
  for (std::size_t i = 0; i < std::size(kRows); ++i)
    if (static_cast<std::size_t>(kRows[i].activation) != i) return false;
  return kRows[std::size(kRows) - 1].activation == kLastActivation;
}
static_assert(complete_and_in_order());

}  // namespace

std::string_view ActivationRow::name() const {
  const std::string_view text = usage;
  return text.substr(0, text.find(':'));
}

std::size_t ActivationRow::parameters() const {
  return static_cast<std::size_t>(std::ranges::count(std::string_view(usage), ':'));
}

std::span<const ActivationRow> activation_rows() {
  return kRows;
}

const ActivationRow& activation_row(Activation activation) {
  const auto index = static_cast<std::size_t>(activation);
  if (index < std::size(kRows)) return kRows[index];
  throw Error(ErrorKind::invalid_argument, fmt::format("{} is not an activation", index));
}

std::vector<Activation> all_activations() {
  std::vector<Activation> all;
  for (const ActivationRow& row : kRows) all.push_back(row.activation);
  return all;
}

std::vector<const char*> activation_usages() {
  std::vector<const char*> all;
  for (const ActivationRow& row : kRows) all.push_back(row.usage);
  return all;
}

double activate(Activation activation, double value, double alpha, double beta) {
  return activation_row(activation).formula(value, alpha, beta);
}

}  // namespace convtune
