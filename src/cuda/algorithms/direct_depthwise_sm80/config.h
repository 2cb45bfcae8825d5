// The depthwise kernel for channels last (direct_depthwise_sm80.cuh, which draws it): problem, choices, and
// what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"

namespace convtune {

// A block has `channels` channels of a tile of one image's output, and a thread has `width` of them of
// strips, each of `rows` by `columns` outputs. The tile is gone through from its top in `passes`, `down` by
// `across` strips a turn; input rows are on their way for `ahead` passes, into a ring of rows.
struct DirectDepthwiseSm80 {
  ConvExtents conv;
  int rows = 1, columns = 1, channels = 4, width = 1, down = 1, across = 1, passes = 1, ahead = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  // Not a choice: a strip's residual a row at a time, where registers are short for all of it.
  bool residual_by_rows = false;
  // Not a choice: a strip's residual comes while another is multiplied, where shared memory has room for it.
  bool residual_waits = false;
  static constexpr const char* kName = "DirectDepthwiseSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 1, kMostStrip, "rows of a thread's strip of outputs");
    field("columns", self.columns, 1, kMostStrip, "columns of a thread's strip of outputs");
    field("channels", self.channels, 4, kMostThreads, "channels of a block, a multiple of 4, or of 8 halves");
    field("width", self.width, 1, 2, "channels of a thread: one, or a word of two halves");
    field("down", self.down, 1, kMostThreads, "strips below each other in each of the passes");
    field("across", self.across, 1, kMostThreads, "strips beside each other in each of the passes");
    field("passes", self.passes, 1, kMostPasses, "passes from a tile's top to its bottom");
    field("ahead", self.ahead, 1, kMostAhead, "passes whose input rows are on their way");
    field("blocks", self.blocks, 1, 32, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
    field("residual_by_rows", self.residual_by_rows);
    field("residual_waits", self.residual_waits);
  }
  constexpr bool asks_alignment() const { return word() == 1 ? vectors() : conv.c % word() == 0; }

  // The least of blocks.
  static constexpr DirectDepthwiseSm80 least(const ConvExtents& conv, int rows = 1, int columns = 1) {
    return {.conv = conv, .rows = rows, .columns = columns, .channels = 16 / size_of(conv.x_type)};
  }

  // ---- Words of 4 bytes, which are what is copied ----
  constexpr int word() const { return 4 / size_of(conv.x_type); }  // channels of one
  constexpr int words_abreast() const { return channels / word(); }
  constexpr int position_bytes() const { return channels * size_of(conv.x_type); }
  // Tells whether words of a tensor are read and written as they are; else element by element.
  constexpr bool words() const { return word() == 1 || (aligned && conv.c % word() == 0); }

  // ---- A block's part of the output ----
  constexpr int pass_rows() const { return rows * down; }
  constexpr int tile_rows() const { return pass_rows() * passes; }
  constexpr int tile_columns() const { return columns * across; }
  constexpr int bands() const { return ceil_div(conv.p, tile_rows()); }
  constexpr int sides() const { return ceil_div(conv.q, tile_columns()); }
  constexpr int chunks() const { return ceil_div(conv.c, channels); }
  constexpr long long all_blocks() const {
    return static_cast<long long>(conv.n) * bands() * sides() * chunks();
  }
  constexpr int lanes() const { return channels / width; }
  constexpr int used_threads() const { return lanes() * down * across; }
  constexpr int threads() const { return round_up(used_threads(), 32); }

  // ---- A strip's input ----
  constexpr int strip_rows() const { return window(rows, conv.stride_h, conv.r, conv.dilation_h); }
  constexpr int strip_columns() const { return window(columns, conv.stride_w, conv.s, conv.dilation_w); }
  // If one strip is all of the height (the width), the compiler knows which of its input is padding:
  // neither stored nor multiplied.
  constexpr bool all_rows() const { return down * passes == 1 && bands() == 1; }
  constexpr bool all_columns() const { return across == 1 && sides() == 1; }
  // Which filter row makes the strip's output row from its input row, or -1; the same for columns.
  constexpr int filter_row(int input, int output) const {
    return tap(input - output * conv.stride_h, conv.dilation_h, conv.r);
  }
  constexpr int filter_column(int input, int output) const {
    return tap(input - output * conv.stride_w, conv.dilation_w, conv.s);
  }
  // Returns the taps that the compiler cannot know to be padding.
  constexpr bool has_row(int input) const { return !all_rows() || is_inside(input - conv.pad_top, conv.h); }
  constexpr bool has_column(int input) const {
    return !all_columns() || is_inside(input - conv.pad_left, conv.w);
  }
  constexpr bool uses_row(int input) const {
    if (!has_row(input)) return false;
    if (conv.dilation_h == 1 && conv.stride_h <= conv.r) return true;  // seen at once
    for (int output = 0; output < rows; ++output)
      if (filter_row(input, output) >= 0) return true;
    return false;
  }
  constexpr bool uses_column(int input) const {
    if (!has_column(input)) return false;
    if (conv.dilation_w == 1 && conv.stride_w <= conv.s) return true;
    for (int output = 0; output < columns; ++output)
      if (filter_column(input, output) >= 0) return true;
    return false;
  }

  // ---- A tile's input: rows and columns from its first ones; zero where there is no image ----
  // Places in the image of the first ones.
  constexpr int first_row(int band) const {
    return all_rows() ? 0 : band * tile_rows() * conv.stride_h - conv.pad_top;
  }
  constexpr int first_column(int side) const {
    return all_columns() ? 0 : side * tile_columns() * conv.stride_w - conv.pad_left;
  }
  // Returns the offset of a strip's input row (column) in the tile; `strip`: of all passes.
  constexpr int tile_row(int strip, int input) const {
    return all_rows() ? input - conv.pad_top : strip * rows * conv.stride_h + input;
  }
  constexpr int tile_column(int strip, int input) const {
    return all_columns() ? input - conv.pad_left : strip * columns * conv.stride_w + input;
  }
  constexpr int input_columns() const {
    const int end = tile_column(across - 1, strip_columns() - 1) + 1;
    return !all_columns() || end < conv.w ? greater(end, 0) : conv.w;
  }
  // Rows that must have come for the first passes.
  constexpr int rows_for(int some_passes) const {
    const int end = tile_row(some_passes * down - 1, strip_rows() - 1) + 1;
    return !all_rows() || end < conv.h ? greater(end, 0) : conv.h;
  }
  constexpr int input_rows() const { return rows_for(passes); }

  // ---- In shared memory: a ring of rows, [row of the tile % ring rows][column][word] ----
  constexpr int pass_input_rows() const { return pass_rows() * conv.stride_h; }  // that a turn leaves behind
  constexpr int ring_rows() const { return lesser(rows_for(1) + ahead * pass_input_rows(), input_rows()); }
  constexpr int row_words() const { return input_columns() * words_abreast(); }
  // Behind the ring, [output of a strip][thread]: words of the residual.
  constexpr int residual_at() const { return 4 * ring_rows() * row_words(); }
  constexpr bool can_wait() const { return conv.residual && aligned && vectors() && width == word(); }
  constexpr bool waits() const { return residual_waits && can_wait(); }
  constexpr long long smem_bytes() const {
    return 4LL * ring_rows() * row_words() + (residual_waits ? 4LL * rows * columns * threads() : 0);
  }
  constexpr bool vectors() const { return conv.c % (4 * word()) == 0; }  // 16 bytes at once where `aligned`

  // ---- Packed weights, as floats: [tap][channel of all chunks]. Biases of all channels of the chunks ----
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr int packed_channels() const { return chunks() * channels; }
  constexpr Packed packed() const {
    return {.prepared = 1LL * taps() * packed_channels(),
            .weights = conv.weights(),
            .biases = conv.k,
            .zeros = packed_channels() - conv.k};
  }
  constexpr long long source_of(long long i) const {
    const long long channel = i % packed_channels();
    return channel < conv.c ? channel * taps() + i / packed_channels() : -1;
  }
  // Else a row of the filter at a time, for which the input is read again.
  constexpr bool weights_in_registers() const { return taps() * width <= kMostWeights; }

  // ---- Cost ----
  // Counts of a strip and a channel: input numbers read, filter rows met, and multiply-adds.
  struct Work {
    int inputs = 0, filter_rows = 0, products = 0, straight = 0;  // `straight`: products written out
  };
  constexpr Work work() const {
    Work all;
    int used_columns = 0, column_products = 0;
    for (int input = 0; input < strip_columns(); ++input)
      if (uses_column(input)) {
        ++used_columns;
        for (int output = 0; output < columns; ++output) column_products += filter_column(input, output) >= 0;
      }
    for (int input = 0; input < strip_rows(); ++input)
      if (uses_row(input)) {
        all.inputs += used_columns;
        for (int output = 0; output < rows; ++output) all.filter_rows += filter_row(input, output) >= 0;
      }
    all.products = all.straight = all.filter_rows * column_products;
    if (!weights_in_registers())
      all.inputs = all.filter_rows * used_columns, all.straight = rows * column_products;
    return all;
  }
  constexpr int registers() const {  // about: ptxas decides
    int used_columns = 0;
    for (int input = 0; input < strip_columns(); ++input) used_columns += uses_column(input);
    return 30 + width * (rows * columns + (weights_in_registers() ? taps() : conv.s) + used_columns);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool possible() const {
    return is_in_range(*this) && channels % (4 * word()) == 0 && (width == 1 || width == word()) &&
           static_cast<long long>(lanes()) * down * across <= kMostThreads;
  }
  constexpr bool valid() const {
    return possible() && ahead <= passes && strip_rows() <= kMostWindow && strip_columns() <= kMostWindow &&
           work().straight <= kMostProducts && registers() <= register_limit() &&
           all_blocks() < (1LL << 31) && packed().launchable() && conv.offsets_are_ints() &&
           static_cast<long long>(input_rows()) * input_columns() < (1 << 24);  // offsets are ints here, too
  }

  static constexpr int kMostThreads = 1024, kMostStrip = 32, kMostWindow = 160;
  static constexpr int kMostPasses = 1024, kMostAhead = 8;
  static constexpr int kMostWeights = 100;    // in registers
  static constexpr int kMostProducts = 1400;  // in straight code: more compile for long

  static constexpr bool is_inside(int a, int extent) { return a >= 0 && a < extent; }
  static constexpr int window(int outputs, int stride, int filter, int dilation) {
    return (outputs - 1) * stride + (filter - 1) * dilation + 1;
  }
  static constexpr int tap(int distance, int dilation, int filter) {
    if (distance < 0 || distance % dilation != 0) return -1;
    return distance / dilation < filter ? distance / dilation : -1;
  }
};

}  // namespace convtune
