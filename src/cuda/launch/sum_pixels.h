// A tensor of pixels whose channels come last, summed over all pixels: the gradient of a bias beside a
// library that has none.
#pragma once

#include "cuda/tile/conv_extents.h"

namespace convtune {

struct SumPixels {
  int channels = 1;
  ElementType type = ElementType::f32, sum_type = ElementType::f32;
  static constexpr const char* kName = "SumPixels";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("channels", self.channels), field("type", self.type), field("sum_type", self.sum_type);
  }
  static constexpr int kThreads = 256;
  // Channels that a thread loads at once.
  constexpr int width() const {
    const int most = 16 / size_of(type);
    return channels % most == 0 ? most : 1;
  }
  constexpr int columns() const { return channels / width(); }
  // A block of the second kernel adds up kAdded channels, each in kShares shares.
  static constexpr int kAdded = 8, kShares = 128, kAddThreads = kAdded * kShares;
};

}  // namespace convtune
