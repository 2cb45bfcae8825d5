// The numbers of any convolution of up to three dimensions, as a kernel is told them that is compiled for
// all: letters as in convtune/problem.h.
#pragma once

namespace convtune {

// One dimension. A problem without it has ones, and no padding.
struct ConvAxis {
  long long input = 1, output = 1, filter = 1, stride = 1, dilation = 1, pad = 0;  // pad: before the first
  static constexpr const char* kName = "ConvAxis";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("input", self.input), field("output", self.output), field("filter", self.filter);
    field("stride", self.stride), field("dilation", self.dilation), field("pad", self.pad);
  }
};

struct ConvNumbers {
  long long n = 1, c = 1, k = 1, groups = 1;
  ConvAxis depth, height, width;
  float alpha = 0, beta = 0;  // the activation's
  static constexpr const char* kName = "ConvNumbers";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("n", self.n), field("c", self.c), field("k", self.k), field("groups", self.groups);
    field("depth", self.depth), field("height", self.height), field("width", self.width);
    field("alpha", self.alpha), field("beta", self.beta);
  }

  constexpr long long taps() const { return depth.filter * height.filter * width.filter; }
  constexpr long long inputs() const { return n * c * depth.input * height.input * width.input; }
  constexpr long long outputs() const { return n * k * depth.output * height.output * width.output; }
  constexpr long long weights() const { return k * (c / groups) * taps(); }
};

}  // namespace convtune
