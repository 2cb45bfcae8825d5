// See winograd_transform.h.
#include "cpu/tile/winograd/winograd_transform.h"

namespace convtune::cpu {
namespace {

constexpr WinogradTransform kTwo = {
    .at = {{1, 1, 1, 0}, {0, 1, -1, -1}},
    .g = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
    .bt = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
};

constexpr WinogradTransform kTwoOfTwo = {
    .at = {{1, 1, 1, 0}, {0, 1, -1, -1}},
    .g = {{1, 0}, {1, 1}, {}, {0, 1}},
    .bt = {{1, -1, 0}, {0, 1, 0}, {}, {0, 1, -1}},
};
constexpr WinogradTransform kTwoOfOne = {
    .at = {{1, 1, 1, 0}, {0, 1, -1, -1}},
    .g = {{1}, {}, {}, {-1}},
    .bt = {{1, 0}, {}, {}, {0, 1}},
};

// Toom and Cook's construction: products of values of two polynomials at the points, interpolated.
constexpr WinogradTransform make_four() {
  const double a = WinogradPoints::kA, b = WinogradPoints::kB, a2 = a * a, b2 = b * b;
  const double of_a = 1 / (2 * a2 * (a2 - b2)), of_b = 1 / (2 * b2 * (b2 - a2));
  return {
      .at = {{1, 1, 1, 1, 1, 0},
             {0, a, -a, b, -b, 0},
             {0, a2, a2, b2, b2, 0},
             {0, a2 * a, -a2 * a, b2 * b, -b2 * b, 1}},
      .g = {{1 / (a2 * b2), 0, 0},
            {of_a, of_a * a, of_a * a2},
            {of_a, -of_a * a, of_a * a2},
            {of_b, of_b * b, of_b * b2},
            {of_b, -of_b * b, of_b * b2},
            {0, 0, 1}},
      .bt = {{a2 * b2, 0, -(a2 + b2), 0, 1, 0},
             {0, -a * b2, -b2, a, 1, 0},
             {0, a * b2, -b2, -a, 1, 0},
             {0, -a2 * b, -a2, b, 1, 0},
             {0, a2 * b, -a2, -b, 1, 0},
             {0, a2 * b2, 0, -(a2 + b2), 0, 1}},
  };
}
constexpr WinogradTransform kFour = make_four();

}  // namespace

const WinogradTransform& winograd_transform(int m, int taps) {
  return m == 4 ? kFour : taps == 3 ? kTwo : taps == 2 ? kTwoOfTwo : kTwoOfOne;
}

std::int64_t winograd_roundings(int m, std::int64_t channels) {
  const std::int64_t inputs = m == 2 ? 1 : 4, outputs = m == 2 ? 2 : 5;  // along one axis
  return 2 * inputs + 2 * outputs + 1 + 1 + channels + 1;
}

float transformed_weight(const WinogradFilter& filter, int i, int j) {
  const WinogradTransform& rows = winograd_transform(filter.m, filter.row_taps);
  const WinogradTransform& cols = winograd_transform(filter.m, filter.col_taps);
  double sum = 0;
  for (int r = 0; r < filter.row_taps; ++r)
    for (int s = 0; s < filter.col_taps; ++s)
      sum += rows.g[i][r] * cols.g[j][s] *
             static_cast<double>(filter.w[r * filter.row_step + s * filter.col_step]);
  return static_cast<float>(sum);
}

}  // namespace convtune::cpu
