// The gradient of weights in TF32 on compute capability 9.0 (weight_gradient_tf32_sm90.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/smem.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

struct WeightGradientTf32Sm90 {
  ConvExtents conv;
  ElementType w_type = ElementType::f32;  // not a choice: dw's
  bool bias = false;                      // not a choice: the gradient of the bias is wanted, too
  bool planes = false;                    // not a choice: x and dy are in NCHW as they lie
  int filter_groups = 1, row_blocks = 1, channel_blocks = 1, rows = 8, columns = 8, stages = 2, split = 1;
  bool aligned = true;  // not a choice: x and dy begin at multiples of 16 bytes
  static constexpr const char* kName = "WeightGradientTf32Sm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("w_type", self.w_type);
    field("bias", self.bias);
    field("planes", self.planes);
    field("filter_groups", self.filter_groups, 1, 3, "warpgroups that multiply, with other filters each");
    field("row_blocks", self.row_blocks, 1, 2, "blocks of 64 filters that one of them has sums of");
    field("channel_blocks", self.channel_blocks, 1, 4, "blocks of 64 channels that a tile of dw has");
    field("rows", self.rows, 1, 64, "rows of y of a stage");
    field("columns", self.columns, 4, 64, "columns of y of a stage, a multiple of 4");
    field("stages", self.stages, 2, 4, "stages kept at once");
    field("split", self.split, 1, kMostSplit, "blocks that share the pixels of a tile");
    field("aligned", self.aligned);
  }
  static constexpr int kMostSplit = 4096, kBlock = 64;
  constexpr bool asks_alignment() const { return true; }

  // ---- The product: filters by columns, whose sums go over the pixels of y. A warpgroup that multiplies has
  // some filters, and a row of the filter: its columns are [64 channels of the tile][tap of the row][64] ----
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr int consumers() const { return filter_groups * conv.r; }
  constexpr int consumer_rows() const { return kBlock * row_blocks; }
  constexpr int tile_rows() const { return filter_groups * consumer_rows(); }
  constexpr int row_columns() const { return channel_blocks * conv.s * kBlock; }  // columns of a consumer
  constexpr int tile_columns() const { return conv.r * row_columns(); }
  constexpr int tile_channels() const { return channel_blocks * kBlock; }
  constexpr int sums() const { return row_blocks * row_columns() / 2; }  // registers of a thread
  constexpr int row_tiles() const { return ceil_div(conv.k, tile_rows()); }
  constexpr int column_tiles() const { return ceil_div(conv.c, tile_channels()); }
  constexpr int tiles() const { return row_tiles() * column_tiles(); }
  constexpr long long all_blocks() const { return 1LL * tiles() * split; }
  // Warpgroups that do not multiply transpose. ptxas refuses products of 256 columns where a launch of 512
  // threads has 128 registers each.
  constexpr int warpgroups() const { return row_columns() > 192 ? 3 : 4; }
  constexpr int threads() const { return 128 * warpgroups(); }
  constexpr int transposing_warps() const { return 4 * (warpgroups() - consumers()); }
  constexpr int resident() const { return 1; }  // block on a multiprocessor

  // ---- A stage has a rectangle of y's pixels. Where pixels of y are pixels of x, one after the other, all
  // of a batch are one image, of rows of `columns` ----
  constexpr bool flat() const {
    return taps() == 1 && conv.stride_h == 1 && conv.stride_w == 1 && conv.pad_top == 0 &&
           conv.pad_left == 0 && conv.p == conv.h && conv.q == conv.w;
  }
  constexpr long long all_pixels() const { return 1LL * conv.n * conv.p * conv.q; }
  constexpr bool flat_batch() const { return flat() && !planes; }
  constexpr bool flat_planes() const { return flat() && planes; }
  constexpr int height() const { return flat_planes() ? 1 : conv.p; }  // rows of y
  constexpr int width() const { return flat_planes() ? conv.p * conv.q : conv.q; }
  constexpr int input_height() const { return flat_planes() ? 1 : conv.h; }
  constexpr int input_width() const { return flat_planes() ? conv.h * conv.w : conv.w; }
  constexpr int images() const { return flat_batch() ? 1 : conv.n; }
  constexpr int sides() const { return flat_batch() ? 1 : ceil_div(width(), columns); }
  constexpr int bands() const {
    return flat_batch() ? static_cast<int>(ceil_div(all_pixels(), 1LL * rows * columns))
                        : ceil_div(height(), rows);
  }
  constexpr long long chunks() const { return 1LL * images() * bands() * sides(); }
  struct Place {
    int image, row, column;  // the first pixel's, in y
  };
  constexpr Place place_of(int chunk) const {
    const int rest = chunk / sides();
    return {rest / bands(), rest % bands() * rows, chunk % sides() * columns};
  }
  constexpr int positions() const { return rows * columns; }
  constexpr int row_fours() const { return columns / 4; }  // fours of pixels in a row
  constexpr int input_rows() const { return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1; }
  constexpr int input_columns() const {
    return (columns - 1) * conv.stride_w + (conv.s - 1) * conv.dilation_w + 1;
  }

  // ---- Operands in shared memory, as wgmma reads them without exchanges: 4 pixels, 16 bytes, of each filter
  // or column, of 8 beside each other. x is there once for each column of the filter, shifted, so that rows
  // of the filter are rows that begin further on: those that a stride apart meet lie one behind the other
  // ----
  constexpr int gradient_four() const { return 16 * tile_rows(); }  // bytes, of four pixels
  constexpr int input_four() const { return 16 * row_columns(); }
  constexpr int gradient_bytes() const { return positions() / 4 * gradient_four(); }
  constexpr int input_bytes() const { return input_rows() * row_fours() * input_four(); }
  constexpr int stage_bytes() const { return gradient_bytes() + input_bytes(); }
  // Columns of x from the first that four pixels of a row meet to the last, and which of them they meet.
  constexpr int met_columns() const { return 3 * conv.stride_w + (conv.s - 1) * conv.dilation_w + 1; }
  constexpr bool meets(int column) const {
    for (int s = 0; s < conv.s; ++s)
      for (int i = 0; i < 4; ++i)
        if (s * conv.dilation_w + i * conv.stride_w == column) return true;
    return false;
  }
  constexpr int place_of_row(int row) const {  // place in a stage of a row of x
    int place = row / conv.stride_h;
    for (int i = 0; i < row % conv.stride_h; ++i) place += ceil_div(input_rows() - i, conv.stride_h);
    return place;
  }

  // ---- Slices, some rows of dy or x as they lie, are what TMA brings. In NCHW they are boxes of channels by
  // 8 columns of a row of dy, and by 16 of x from a multiple of four on; or by 32 of both where the filter
  // has one tap. TMA exchanges pieces of lines of 32, 64 and 128 bytes ----
  constexpr int slice_channels() const { return flat() ? 64 : 32; }  // channels of a slice of x
  constexpr int plane_columns() const { return flat() ? 32 : 8; }
  constexpr int plane_input_columns() const { return flat() ? 32 : 16; }
  constexpr int early() const { return round_up(conv.pad_left, 4) - conv.pad_left; }
  constexpr bool can_have_planes() const {
    if (flat()) return 1LL * conv.h * conv.w % 4 == 0 && 1LL * conv.h * conv.w < kInt;
    return conv.w % 4 == 0 && conv.q % 4 == 0 && conv.stride_w == 1 &&
           early() + plane_columns() + (conv.s - 1) * conv.dilation_w <= plane_input_columns();
  }
  static constexpr int kMostSliceBytes = 12 << 10, kMostSlicePlaces = 16, kLeastSlicePlaces = 3;
  constexpr int gradient_row_bytes() const { return 4 * columns * tile_rows(); }
  constexpr int input_row_bytes() const { return 4 * input_columns() * tile_channels(); }
  // Rows of a slice by which warps are busy: they take fours of pixels in turns, two at a time.
  constexpr int slice_rows(int of_stage, int row_bytes) const {
    int best = 1, best_turns = 0;
    for (int some = 1; some <= of_stage && (some == 1 || some * row_bytes <= kMostSliceBytes); ++some) {
      // Asking costs as much as a turn.
      const int turns =
          ceil_div(of_stage, some) * (ceil_div(some * row_fours(), 2 * transposing_warps()) + 1);
      if (some == 1 || turns < best_turns) best = some, best_turns = turns;
    }
    return best;
  }
  constexpr int gradient_slice_rows() const { return slice_rows(rows, gradient_row_bytes()); }
  constexpr int input_slice_rows() const { return slice_rows(input_rows(), input_row_bytes()); }
  constexpr int gradient_slices() const {
    return planes ? tile_rows() / kBlock : ceil_div(rows, gradient_slice_rows());
  }
  constexpr int input_slices() const {
    return planes ? tile_channels() / slice_channels() : ceil_div(input_rows(), input_slice_rows());
  }
  constexpr int slices() const { return gradient_slices() + input_slices(); }
  constexpr int gradient_slice_bytes() const {
    return planes ? 4 * kBlock * rows * plane_columns() : gradient_slice_rows() * gradient_row_bytes();
  }
  constexpr int input_slice_bytes() const {
    return planes ? 4 * slice_channels() * input_rows() * plane_input_columns()
                  : input_slice_rows() * input_row_bytes();
  }
  constexpr int slice_bytes() const {
    return round_up(greater(gradient_slice_bytes(), input_slice_bytes()), 1024);
  }
  constexpr int slice_places() const {
    const long long room = kMostSmem - 1024 - 1LL * stages * stage_bytes();
    return lesser(greater(static_cast<int>(room / slice_bytes()), kLeastSlicePlaces), kMostSlicePlaces);
  }

  // ---- Shared memory, in bytes ----
  static constexpr int kMostSmem = 227 << 10;
  struct Smem {
    int stages, slices, full, empty, slices_full, slices_empty;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const int at = plan.take(1LL * stages * stage_bytes());
    const int some_slices = plan.take(1LL * slice_places() * slice_bytes());
    const int full = plan.take(8 * stages), empty = plan.take(8 * stages);
    const int slices_full = plan.take(8 * slice_places()), slices_empty = plan.take(8 * slice_places());
    return {at, some_slices, full, empty, slices_full, slices_empty, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Partial sums in memory, in words: [rank][tile][filter][column], and behind them, of each rank and
  // tile of filters, the sums of dy of each transposing warp, [rank][row tile][warp][filter] ----
  constexpr long long tile_words() const { return 1LL * tile_rows() * tile_columns(); }
  constexpr long long biases_at() const { return tile_words() * tiles() * split; }
  constexpr long long bias_words() const { return 1LL * row_tiles() * transposing_warps() * tile_rows(); }
  constexpr long long partial_words() const { return biases_at() + (bias ? bias_words() * split : 0); }
  // Column of a tile that a tap and channel have.
  constexpr int column_of(int tap, int channel) const {
    return tap / conv.s * row_columns() + (channel / kBlock * conv.s + tap % conv.s) * kBlock +
           channel % kBlock;
  }

  // ---- The second kernel: a block adds up filters of a tile, of all taps and some channels; so many threads
  // share the ranks of four channels ----
  static constexpr int kRanksOfThread = 8, kMostAdders = 16, kMostItems = 1024, kLeastItems = 512;
  constexpr int adders() const {
    int some = 1;
    while (some < kMostAdders && some * kRanksOfThread < split) some *= 2;
    return some;
  }
  constexpr int added_channels() const {
    int some = tile_channels();
    while (some % 32 == 0 && some / 4 * taps() * adders() > kMostItems) some /= 2;
    return some;
  }
  constexpr int added_filters() const {
    int some = 1;
    while (2 * some <= kBlock && 2 * some * added_channels() / 4 * taps() * adders() <= kLeastItems)
      some *= 2;
    return some;
  }
  constexpr long long add_blocks() const {
    return 1LL * tiles() * (tile_channels() / added_channels()) * (tile_rows() / added_filters());
  }
  static constexpr int kBiasFilters = 32;  // filters whose biases a block adds up
  constexpr long long behind_blocks() const {
    const long long of_biases = bias ? ceil_div(conv.k, kBiasFilters) : 0;
    return of_biases > add_blocks() ? of_biases : add_blocks();
  }

  constexpr bool possible() const {
    return is_in_range(*this) && consumers() < warpgroups() && row_columns() <= 256 &&
           sums() <= (consumers() == 3 ? 96 : 128) && tile_rows() <= 256 && columns % 4 == 0 &&
           positions() % 8 == 0 && input_columns() <= 256 && input_rows() <= 256 && positions() <= 256 &&
           (!planes || (can_have_planes() && columns == plane_columns() && (!flat() || rows == 1)));
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && smem_bytes() <= smem_per_block && all_pixels() < kInt && chunks() < kInt &&
           split <= chunks() && all_blocks() < kInt && behind_blocks() < kInt &&
           partial_sums_fit(partial_words(), split > 1);
  }
  static constexpr long long kInt = 1LL << 30;
};

}  // namespace convtune
