// See winograd_roundings.h.
#include "cpu/tile/winograd/winograd_roundings.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <span>

#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {

WinogradRoundings winograd_roundings_of(const WinogradAxis& axis) {
  constexpr int m = 2;
  const auto squares = [](const auto& row) {
    return std::inner_product(std::begin(row), std::end(row), std::begin(row), 0.0);
  };
  WinogradRoundings most;
  for (const auto& output : std::span(winograd_transform(m).at).first(m)) {
    WinogradRoundings of;
    for (const WinogradPartProduct& one : axis.products) {
      const WinogradTransform& part = winograd_transform(m, axis.parts[one.part].taps);
      const double size = output[one.product] * output[one.product] * squares(part.bt[one.product]) *
                          squares(part.g[one.product]);
      of.of_products += size, of.of_sums += size * static_cast<double>(axis.parts_with[one.product]);
    }
    most = {std::max(most.of_products, of.of_products), std::max(most.of_sums, of.of_sums)};
  }
  return most;
}

}  // namespace convtune::cpu
