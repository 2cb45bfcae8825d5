// The transforms of Winograd's convolution F(m x m, 3 x 3): m x m outputs from a tile of (m+2) x (m+2) inputs
// with (m+2)^2 products a channel in place of 9 m^2,
//
//   y = A^T [ sum over c of (G w_c G^T) * (B^T x_c B) ] A        (* : element by element)
//
// m = 2 is exact on small integers. m = 4 interpolates at 0, +-5/8, +-25/16 and infinity: of the points whose
// numerators over 16 are integers those of the smallest mean square of rounding errors, and every constant of
// A and B is a float.
//
// The error. For every output, whatever the numbers (barring overflow and underflow),
//
//   |computed - exact| <= n u / (1 - n u) * (|bias| + |A^T| [ sum |G| |w_c| |G^T| * |B^T| |x_c| |B| ] |A|)
//
// with u = 2^-24 and n = winograd_roundings(): the componentwise bound in two dimensions of Barabasz,
// Anderson, Soodhalter, Gregg, "Error Analysis and Improving the Accuracy of Winograd Convolution for Deep
// Neural Networks", ACM Transactions on Mathematical Software 46(4), 2020, with the roundings of our own sums
// counted. A tile of numbers of one size makes the bracket 7 (m = 2) or 57 (m = 4) times the sum of |x w|.
// tests/unit/cpu/winograd_error_test.cpp holds it. Which problems m is offered for: docs/decisions/0038.
#pragma once

#include <cstdint>

namespace convtune::cpu {

constexpr int kWinogradTaps = 3;
// Inputs along one axis of a tile, and products along one axis.
constexpr int winograd_inputs(int m) {
  return m + kWinogradTaps - 1;
}

// The points of m = 4 and what is made of them.
struct WinogradPoints {
  static constexpr double kA = 5.0 / 8, kB = 25.0 / 16;
  static constexpr double kA2 = kA * kA, kB2 = kB * kB;
};

// Rows beyond a smaller m's are not used.
struct WinogradTransform {
  double at[4][6];  // [m][m+2]
  double g[6][3];   // [m+2][taps]
  double bt[6][6];  // [m+2][m+taps-1]
};
// m: 2 or 4. F(2, taps) for fewer than three taps has the A of F(2, 3), and some products less
// (winograd_parts.h).
const WinogradTransform& winograd_transform(int m, int taps = kWinogradTaps);

// The most roundings that a product goes through on its way into an output: of both transforms along both
// axes, of the weights' (made in double, rounded once), of the product, of a sum over `channels` and of the
// bias. Counted without fused multiply-adds, which have fewer.
std::int64_t winograd_roundings(int m, std::int64_t channels);

// Products i and j of G w G^T, rounded once. The taps of w lie `row_step` and `col_step` apart.
struct WinogradFilter {
  const float* w;
  int m, row_taps = kWinogradTaps, col_taps = kWinogradTaps;
  std::int64_t row_step = kWinogradTaps, col_step = 1;
};
float transformed_weight(const WinogradFilter& filter, int i, int j);

}  // namespace convtune::cpu
