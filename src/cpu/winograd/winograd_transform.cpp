// See winograd_transform.h.
#include "cpu/winograd/winograd_transform.h"

namespace convtune::cpu {
namespace {

constexpr WinogradTransform kTwo = {
    .at = {{1, 1, 1, 0}, {0, 1, -1, -1}},
    .g = {{1, 0, 0}, {0.5, 0.5, 0.5}, {0.5, -0.5, 0.5}, {0, 0, 1}},
    .bt = {{1, 0, -1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, 1, 0, -1}},
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

const WinogradTransform& winograd_transform(int m) {
  return m == 2 ? kTwo : kFour;
}

std::int64_t winograd_roundings(int m, std::int64_t channels) {
  const std::int64_t inputs = m == 2 ? 1 : 4, outputs = m == 2 ? 2 : 5;  // along one axis
  return 2 * inputs + 2 * outputs + 1 + 1 + channels + 1;
}

void transform_filter(int m, const float* w, float* to, std::int64_t step) {
  const WinogradTransform& t = winograd_transform(m);
  const int inputs = winograd_inputs(m);
  for (int i = 0; i < inputs; ++i)
    for (int j = 0; j < inputs; ++j) {
      double sum = 0;
      for (int r = 0; r < kWinogradTaps; ++r)
        for (int s = 0; s < kWinogradTaps; ++s)
          sum += t.g[i][r] * t.g[j][s] * static_cast<double>(w[r * kWinogradTaps + s]);
      to[(i * inputs + j) * step] = static_cast<float>(sum);
    }
}

}  // namespace convtune::cpu
