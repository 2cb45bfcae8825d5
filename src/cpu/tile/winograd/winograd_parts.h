// One axis of a filter cut into parts of at most three taps: a filter that is longer than three, or moves by
// a stride, is the sum of filters of stride 1 over inputs taken `stride` apart, and each of those has a
// Winograd transform (Huang et al., "DWM: A Decomposable Winograd Method for Convolution Acceleration", AAAI
// 2020). All of them end in the same outputs' transform, so that parts are added as channels are.
//
//   11 taps, stride 4:   0 4 8 | 1 5 9 | 2 6 10 | 3 7      15 products for two outputs in place of 22
#pragma once

#include <cstdint>
#include <vector>

namespace convtune::cpu {

// Taps first, first + stride, ...: of two outputs it reads the `taps` + 1 inputs that lie there, seen from
// the first output's window.
struct WinogradPart {
  std::int64_t first;
  int taps;
};
std::vector<WinogradPart> winograd_parts(std::int64_t taps, std::int64_t stride);

// A product along an axis that has a part, and where it stands among those of the same product.
struct WinogradPartProduct {
  std::size_t part;
  int product;  // of the transform's
  std::int64_t rank;
};

// A whole axis, with tiles of m outputs; where m is 4 it is one part.
struct WinogradAxis {
  WinogradAxis(std::int64_t taps, std::int64_t stride, int m);

  std::vector<WinogradPart> parts;
  std::vector<WinogradPartProduct> products;  // part by part, as many as it reads inputs
  std::int64_t parts_with[6] = {};            // of each product
};

}  // namespace convtune::cpu
