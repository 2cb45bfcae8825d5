// The gradient of weights in TF32 (weight_gradient_tf32_sm80.cuh, which draws it): problem, choices, and what
// follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

// A block has `filters` filters by `octets` eights of channels at all taps. A tile is `rows` by `columns`
// pixels of dy and what they meet of x, and `split` blocks share the tiles. Warps share filters, eights of
// channels, or rows of the filter.
struct WeightGradientTf32Sm80 {
  ConvExtents conv;
  ElementType w_type = ElementType::f32;  // not a choice: dw's
  bool bias = false;                      // not a choice: the gradient of the bias is wanted, too
  int filters = 16, octets = 1, warps_m = 1, warps_o = 1, warps_r = 1, rows = 1, columns = 8, stages = 1,
      split = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "WeightGradientTf32Sm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("w_type", self.w_type);
    field("bias", self.bias);
    field("filters", self.filters, 16, 256, "filters of a block, a multiple of 16 for each of warps_m");
    field("octets", self.octets, 1, 16, "eights of channels of a block");
    field("warps_m", self.warps_m, 1, 8, "warps that share its filters");
    field("warps_o", self.warps_o, 1, 8, "of each of those, warps that share its eights of channels");
    field("warps_r", self.warps_r, 1, 16, "of each of those, warps that share rows of the filter");
    field("rows", self.rows, 1, 32, "rows of a tile of dy");
    field("columns", self.columns, 8, 128, "columns of a tile of dy, a multiple of 8");
    field("stages", self.stages, 1, 4, "tiles kept at once");
    field("split", self.split, 1, kMostSplit, "blocks that share the tiles");
    field("blocks", self.blocks, 1, 8, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  static constexpr int kMostSplit = 65535, kMostSums = 152, kMostTaps = 64;
  constexpr bool asks_alignment() const { return gradient_words() > 1 || input_words() > 1; }

  // ---- Words of a copy: channels of a pixel, or columns of a row in NCHW. There x begins some columns
  // before those that a tile meets, at a multiple of four ----
  constexpr int gradient_words() const { return aligned && (conv.nhwc ? conv.k : conv.q) % 4 == 0 ? 4 : 1; }
  constexpr int input_words() const { return aligned && (conv.nhwc ? conv.c : conv.w) % 4 == 0 ? 4 : 1; }
  constexpr int early() const { return !conv.nhwc && input_words() == 4 ? (4 - conv.pad_left % 4) % 4 : 0; }

  // ---- Tiles ----
  constexpr int sides() const { return ceil_div(conv.q, columns); }
  constexpr int bands() const { return ceil_div(conv.p, rows); }
  constexpr long long tiles() const { return 1LL * conv.n * bands() * sides(); }
  constexpr int row_chunks() const { return ceil_div(conv.k, filters); }
  constexpr int column_chunks() const { return ceil_div(conv.c, 8 * octets); }
  constexpr int chunks() const { return row_chunks() * column_chunks(); }
  constexpr long long all_blocks() const { return 1LL * chunks() * split; }
  constexpr int products() const { return rows * columns / 8; }  // products of 8 pixels of a row
  constexpr int input_rows() const { return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1; }
  constexpr int input_columns() const {
    return early() + (columns - 1) * conv.stride_w + (conv.s - 1) * conv.dilation_w + 1;
  }

  // ---- A warp: sixteens of filters by eights of columns of dw: of a filter row, a tap, an octet ----
  constexpr int warps() const { return warps_m * warps_o * warps_r; }
  constexpr int threads() const { return 32 * warps(); }
  constexpr int sixteens() const { return filters / (16 * warps_m); }
  constexpr int warp_octets() const { return octets / warps_o; }
  constexpr int warp_rows() const { return conv.r / warps_r; }
  constexpr int eights() const { return warp_rows() * conv.s * warp_octets(); }
  constexpr int sums() const { return 4 * sixteens() * eights(); }

  // ---- Shared memory of a stage, in words: x, then dy. Where pixels, channels and filters lie is the
  // tensors' own order, [row][column][channel] or [channel][row][column]. A warp reads four pixels of eight
  // channels, or filters, at once: distances leave them in 32 banks where they can ----
  static constexpr bool apart(int of_four, int of_eight) {  // no two of 4 by 8 words in one bank
    unsigned banks = 0;
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 8; ++j) banks |= 1u << (i * of_four + j * of_eight) % 32;
    return banks == ~0u;
  }
  constexpr int input_pixel() const {  // from pixel to pixel
    if (!conv.nhwc) return 1;
    for (int some = 8 * octets; some < 8 * octets + 32; some += 4)
      if (apart(some * conv.stride_w, 1)) return some;
    return 8 * octets + 4;
  }
  constexpr int input_row() const { return round_up(input_columns() * input_pixel(), 4); }
  constexpr int input_channel() const {
    if (conv.nhwc) return 1;
    const int plane = input_rows() * input_row();
    for (int some = plane; some < plane + 32; some += 4)
      if (apart(conv.stride_w, some)) return some;
    return plane + 4;
  }
  constexpr int input_size() const {
    return conv.nhwc ? input_rows() * input_row() : 8 * octets * input_channel();
  }
  constexpr int gradient_pixel() const {
    return conv.nhwc ? filters + (filters % 32 == 0 || filters % 32 == 16 ? 8 : 0) : 1;
  }
  constexpr int gradient_filter() const { return conv.nhwc ? 1 : rows * columns + 4; }
  constexpr int gradient_size() const {
    return conv.nhwc ? rows * columns * gradient_pixel() : filters * gradient_filter();
  }
  constexpr int stage_bytes() const { return 4 * (input_size() + gradient_size()); }
  constexpr long long smem_bytes() const { return 1LL * stages * stage_bytes(); }

  // ---- Partial sums in memory, as fours of floats: [rank][chunk][four of a thread][thread], of each rank
  // then the sums of dy of all filters ----
  constexpr int thread_fours() const { return sixteens() * eights(); }
  constexpr int chunk_fours() const { return thread_fours() * threads(); }
  constexpr int bias_fours() const { return bias ? row_chunks() * filters / 4 : 0; }
  constexpr long long rank_fours() const { return 1LL * chunks() * chunk_fours() + bias_fours(); }
  constexpr long long partial_words() const { return 4 * rank_fours() * split; }
  // Which gradient the i-th number of a four of a rank is: an index into dw, and behind it into the biases'.
  constexpr long long weight_of(long long four, int i) const {
    if (four >= 1LL * chunks() * chunk_fours()) {
      const long long filter = (four - 1LL * chunks() * chunk_fours()) * 4 + i;
      return filter < conv.k ? conv.weights() + filter : -1;
    }
    const int chunk = static_cast<int>(four / chunk_fours()),
              of_chunk = static_cast<int>(four % chunk_fours());
    const int thread = of_chunk % threads(), of_thread = of_chunk / threads();
    const int lane = thread % 32, warp = thread / 32;
    const int m = warp % warps_m, o = warp / warps_m % warps_o, row_of = warp / warps_m / warps_o;
    const int eight = of_thread / sixteens();
    const int filter = chunk / column_chunks() * filters + (m * sixteens() + of_thread % sixteens()) * 16 +
                       i / 2 * 8 + lane / 4;
    const int octet = o * warp_octets() + eight % warp_octets();
    const int channel = (chunk % column_chunks() * octets + octet) * 8 + lane % 4 * 2 + i % 2;
    const int s = eight / warp_octets() % conv.s, r = row_of * warp_rows() + eight / warp_octets() / conv.s;
    if (filter >= conv.k || channel >= conv.c) return -1;
    return ((1LL * filter * conv.c + channel) * conv.r + r) * conv.s + s;
  }
  // How far eight columns of dw lie behind the first of a warp's, in words of x.
  constexpr int eight_at(int eight) const {
    const int octet = eight % warp_octets(), s = eight / warp_octets() % conv.s;
    const int r = eight / warp_octets() / conv.s;
    return r * conv.dilation_h * input_row() + s * conv.dilation_w * input_pixel() +
           8 * octet * input_channel();
  }

  constexpr int registers() const { return 52 + sums() + 6 * sixteens() + (bias ? 4 * sixteens() : 0); }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool possible() const {
    return is_in_range(*this) && columns % 8 == 0 && filters % (16 * warps_m) == 0 && octets % warps_o == 0 &&
           conv.r % warps_r == 0 && conv.r * conv.s <= kMostTaps && warps() <= 16 && sums() <= kMostSums &&
           8LL * octets * input_rows() * input_columns() < (1 << 20);  // counted in int
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && smem_bytes() <= smem_per_block && registers() <= register_limit() &&
           split <= tiles() && tiles() < (1LL << 30) && all_blocks() < (1LL << 30) &&
           conv.offsets_are_ints() && partial_sums_fit(partial_words(), split > 1);
  }
};

}  // namespace convtune
