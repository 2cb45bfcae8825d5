// The gradients of depthwise weights on CUDA cores (depthwise_weight_gradient_sm80.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

// A block has `lanes` times `width` channels, and its `workers` take strips of dy: `rows` rows by `columns`
// columns of an image. `split` blocks of the same channels share the strips.
struct DepthwiseWeightGradientSm80 {
  ConvExtents conv;
  ElementType w_type = ElementType::f32;  // not a choice: dw's
  int rows = 1, columns = 1, width = 1, lanes = 4, workers = 8, ahead = 1, split = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DepthwiseWeightGradientSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv), field("w_type", self.w_type);
    field("rows", self.rows, 1, kMostRows, "rows of dy that a thread has at once");
    field("columns", self.columns, 1, 1 << 20, "columns of dy that a thread goes along");
    field("width", self.width, 1, 4, "channels of a thread: 1, 2 or 4, of 16 bytes at most");
    field("lanes", self.lanes, 4, 256, "threads beside each other along channels, a multiple of 4");
    field("workers", self.workers, 1, 256, "strips of a block at once; whole warps of threads");
    field("ahead", self.ahead, 1, 2, "columns that are on their way");
    field("split", self.split, 1, 1 << 16, "blocks that share a sum");
    field("blocks", self.blocks, 1, 16, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return width > 1; }

  // ---- Threads ----
  constexpr int threads() const { return lanes * workers; }
  constexpr int channels() const { return lanes * width; }
  constexpr int chunks() const { return ceil_div(conv.c, channels()); }
  constexpr long long all_blocks() const { return 1LL * chunks() * split; }

  // ---- Strips, which workers of all blocks of a chunk take in turns: those beside each other first, then
  // those below each other, so that one finds in the caches what another has read of x ----
  constexpr int sides() const { return ceil_div(conv.q, columns); }
  constexpr int bands() const { return ceil_div(conv.p, rows); }
  constexpr long long strips() const { return 1LL * conv.n * bands() * sides(); }
  constexpr long long turns() const { return ceil_div(strips(), 1LL * split * workers); }

  // ---- A strip's part of x: rows, and a window of columns that goes along with an output. A column has its
  // place in the window for as long as it is there; after period() outputs all begins again ----
  constexpr int input_rows() const { return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1; }
  constexpr int reach() const { return (conv.s - 1) * conv.dilation_w + 1; }
  constexpr int fresh() const { return lesser(conv.stride_w, reach()); }  // columns that an output brings
  constexpr int kept() const { return reach() - fresh(); }                // of the output before
  constexpr int places() const { return round_up(reach(), conv.stride_w); }
  constexpr int period() const { return places() / conv.stride_w; }
  constexpr int place(int column) const { return column % places(); }
  constexpr bool uses_row(int row) const {
    for (int output = 0; output < rows; ++output) {
      const int distance = row - output * conv.stride_h;
      if (distance >= 0 && distance % conv.dilation_h == 0 && distance / conv.dilation_h < conv.r)
        return true;
    }
    return false;
  }
  constexpr bool uses_column(int column) const { return column % gcd(conv.stride_w, conv.dilation_w) == 0; }

  // ---- Words that a thread loads at once ----
  constexpr int size() const { return size_of(conv.x_type); }
  constexpr int load_bytes() const { return width * size(); }
  constexpr int load_words() const { return ceil_div(load_bytes(), 4); }

  // ---- Partial sums of each rank ----
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr int all_channels() const { return chunks() * channels(); }
  constexpr DepthwiseSums sums() const { return {conv.c, all_channels(), taps(), true}; }
  constexpr long long rank_fours() const { return sums().words() / 4; }
  constexpr long long weight_of(long long four, int i) const {
    return sums().weight_of(static_cast<int>(4 * four) + i);
  }
  constexpr long long partial_words() const { return 1LL * split * sums().words(); }

  // ---- Shared memory: sums of a row of taps, [tap and channel of a thread][thread] ----
  constexpr int exchanged() const { return conv.s * width; }
  constexpr long long smem_bytes() const { return 4LL * exchanged() * threads(); }

  // ---- Cost ----
  constexpr int used_rows() const {
    int used = 0;
    for (int row = 0; row < input_rows(); ++row) used += uses_row(row);
    return used;
  }
  constexpr int used_places() const {
    int used = 0;
    for (int column = 0; column < places(); ++column) used += column < reach() && uses_column(column);
    return used;
  }
  constexpr int loads() const { return used_rows() * fresh() + rows; }  // for an output column
  constexpr int products() const { return rows * taps() * width; }
  constexpr int registers() const {  // about: ptxas decides
    const int window = width * used_rows() * used_places();
    return 46 + width * (taps() + 1 + rows) + window + greater(window - 30, 0) +
           3 * ahead * loads() * load_words() / 2 + input_rows() / 4;
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool possible() const {
    const bool is_power = width == 1 || width == 2 || width == 4;
    return is_in_range(*this) && is_power && load_bytes() <= 16 && conv.c % width == 0 && lanes % 4 == 0 &&
           threads() % 32 == 0 && threads() <= kMostThreads;
  }
  constexpr bool valid() const {
    return possible() && columns <= conv.q && rows <= conv.p && split <= strips() &&
           input_rows() <= kMostInputRows && 1LL * input_rows() * places() <= kMostWindow &&
           taps() <= kMostTaps && 1LL * products() * period() <= kMostProducts &&
           registers() <= register_limit() && 1LL * input_rows() * conv.w * conv.c < (1 << 28) &&
           strips() < (1LL << 30) && 4 * partial_words() <= kMostPartialBytes && conv.offsets_are_ints();
  }
  static constexpr int kMostInputRows = 32;  // that have a bit each
  static constexpr int kMostRows = 8, kMostThreads = 512, kMostTaps = 128, kMostWindow = 256;
  static constexpr int kMostProducts = 2400;  // in straight code: more compile for long
};

}  // namespace convtune
