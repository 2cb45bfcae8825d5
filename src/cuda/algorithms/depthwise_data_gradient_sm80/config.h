// The gradient of x of a depthwise layer with strides (depthwise_data_gradient_sm80.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"

namespace convtune {

// Along an axis of dx, outputs of a strip from a multiple of the stride on: which of dy they meet by which
// tap is the same for every strip. Positions of dy count from the first that any of them meets.
struct StripAxis {
  int outputs, filter, stride, dilation, pad;

  static constexpr int floor_div(int a, int b) { return a / b - (a % b < 0 ? 1 : 0); }
  constexpr int first() const { return -floor_div(dilation * (filter - 1) - pad, stride); }
  constexpr int count() const { return greater(floor_div(outputs - 1 + pad, stride) - first() + 1, 0); }
  // The position that an output meets by a tap, or -1.
  constexpr int met(int output, int tap) const {
    const int distance = output + pad - dilation * tap;
    return floor_div(distance, stride) * stride == distance ? distance / stride - first() : -1;
  }
  constexpr bool uses(int position) const {
    for (int output = 0; output < outputs; ++output)
      for (int tap = 0; tap < filter; ++tap)
        if (met(output, tap) == position) return true;
    return false;
  }
  constexpr int used() const {  // positions that are met
    int some = 0;
    for (int position = 0; position < count(); ++position) some += uses(position);
    return some;
  }
  constexpr int products() const {
    int all = 0;
    for (int output = 0; output < outputs; ++output)
      for (int tap = 0; tap < filter; ++tap) all += met(output, tap) >= 0;
    return all;
  }
};

// A thread has `width` channels (in NCHW one) of strips of dx of `rows` by `columns`, `passes` of them below
// each other. `conv` is the problem's own: dy is [n][p][q][k], dx [n][h][w][c], or as NCHW has them.
struct DepthwiseDataGradientSm80 {
  ConvExtents conv;
  int width = 1, rows = 1, columns = 1, passes = 1, warps = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DepthwiseDataGradientSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("width", self.width, 1, 8, "channels of a thread, 16 bytes at most; 1 in NCHW");
    field("rows", self.rows, 1, kMostStrip, "rows of a thread's strip of dx, a multiple of the stride");
    field("columns", self.columns, 1, kMostStrip,
          "columns of a thread's strip of dx, a multiple of the stride");
    field("passes", self.passes, 1, kMostPasses, "strips below each other that a thread goes through");
    field("warps", self.warps, 1, 16, "warps of a block");
    field("blocks", self.blocks, 1, 32, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return loaded_bytes() > size() || stored_bytes() > size(); }
  static constexpr int kMostStrip = 16, kMostPasses = 64, kMostWeights = 128, kMostWindow = 256,
                       kMostProducts = 1400;

  constexpr int size() const { return size_of(conv.x_type); }
  constexpr int threads() const { return 32 * warps; }
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr StripAxis down() const { return {rows, conv.r, conv.stride_h, conv.dilation_h, conv.pad_top}; }
  constexpr StripAxis across() const {
    return {columns, conv.s, conv.stride_w, conv.dilation_w, conv.pad_left};
  }

  // ---- The threads' shares: channels, or columns in NCHW, run fastest ----
  constexpr int sides() const { return ceil_div(conv.w, columns); }
  constexpr int bands() const { return ceil_div(conv.h, rows * passes); }
  constexpr int chunks() const { return ceil_div(conv.c, width); }
  constexpr long long shares() const { return 1LL * conv.n * sides() * bands() * chunks(); }
  constexpr long long all_blocks() const { return ceil_div(shares(), 1LL * threads()); }

  // ---- Numbers of a load and of a store: with channels last the channels of a pixel; in NCHW one number of
  // dy, and pieces of a row of dx. A number at a time where tensors begin anywhere ----
  constexpr int piece() const {  // columns of dx that NCHW stores at once
    int some = 16 / size();
    while (columns % some != 0 || conv.w % some != 0) some /= 2;
    return some;
  }
  constexpr int run() const { return conv.nhwc ? width : piece(); }  // numbers that are stored at once
  constexpr int loaded_bytes() const { return width * size(); }
  constexpr int stored_bytes() const { return run() * size(); }

  // ---- Packed weights, as floats: [tap][channel] ----
  constexpr Packed packed() const {
    return {.prepared = conv.weights(), .weights = conv.weights(), .biases = conv.c};
  }
  constexpr long long source_of(long long i) const { return i % conv.c * taps() + i / conv.c; }

  // ---- Cost ----
  constexpr int products() const { return width * down().products() * across().products(); }
  // Numbers of dy that a thread keeps of a channel: with dilations not all that lie between.
  constexpr int window() const { return down().used() * across().used(); }
  // About: ptxas decides. Rows of sums are finished and stored one after the other. With long filters it
  // keeps more at once: seen of 5x5, stride 2.
  constexpr int registers() const {
    const int more = width * columns / 2 + greater(window() - 26, 0) * width + (passes > 4 ? 4 * width : 0);
    return 32 + width * columns + width * taps() * 7 / 6 + window() * ceil_div(loaded_bytes(), 4) +
           (taps() > 9 ? more : 0);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }
  constexpr long long smem_bytes() const { return 0; }

  constexpr bool possible() const {
    return is_in_range(*this) && rows % conv.stride_h == 0 && columns % conv.stride_w == 0 &&
           (width & (width - 1)) == 0 && loaded_bytes() <= 16 && conv.c % width == 0 &&
           (conv.nhwc || width == 1) && taps() * width <= kMostWeights &&
           1LL * down().count() * across().count() <= kMostWindow && products() <= kMostProducts;
  }
  constexpr bool valid() const {
    return possible() && registers() <= register_limit() && shares() < (1LL << 30) && packed().launchable() &&
           conv.offsets_are_ints();
  }
};

}  // namespace convtune
