// The kernel for few filters in half precision (direct_few_half.cuh, which draws it): problem, choices, and
// what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// A block has a tile of one frame's output (an image is one) for all filters. A warp multiplies `sixteens`
// times 16 columns of the input by all columns of the filter, for `rows` rows of the output; what belongs to
// one output is added up afterwards. Channels of a frame of the filter come in stages.
struct DirectFewHalf {
  ConvExtents conv;
  int rows = 1, sixteens = 1, down = 1, across = 1, parts = 1, channels = 16, stages = 1, blocks = 1;
  bool aligned = true;  // not a choice: x begins at a multiple of 16 bytes
  static constexpr const char* kName = "DirectFewHalf";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 1, kMostRows, "output rows of a warp");
    field("sixteens", self.sixteens, 1, kMostSixteens, "16 columns of the input, so many times, of a warp");
    field("down", self.down, 1, kMostWarps, "warps below each other");
    field("across", self.across, 1, kMostWarps, "warps beside each other");
    field("parts", self.parts, 1, 4, "warps that share the channels of a stage");
    field("channels", self.channels, 16, 128, "channels of a stage: 16, 32, 64 or 128");
    field("stages", self.stages, 1, 4, "parts of the input that are kept at once");
    field("blocks", self.blocks, 1, 32, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return conv.c % 8 == 0; }
  // Returns the least of blocks that is valid, or, where none is, the one that has a row of the filter in the
  // fewest products. More sixteens a warp are more products; more warps leave fewer registers to each.
  static constexpr DirectFewHalf least(const ConvExtents& conv, long long smem_per_block) {
    DirectFewHalf one{.conv = conv};
    const int reached = ceil_div(one.reach(), 16);  // sixteens
    for (one.sixteens = 1; one.sixteens <= kMostSixteens; ++one.sixteens)
      for (one.across = ceil_div(reached, one.sixteens); one.across <= kMostWarps; ++one.across)
        if (one.valid(smem_per_block)) return one;
    one.sixteens = lesser(ceil_div(reached, kMostWarps), kMostSixteens);
    one.across = lesser(ceil_div(reached, one.sixteens), kMostWarps);
    return one;
  }
  constexpr int warps() const { return down * across * parts; }
  constexpr int threads() const { return 32 * warps(); }

  // ---- A block's part of the output. Columns are dealt evenly among as few tiles as there can be ----
  constexpr int reach() const { return (conv.s - 1) * conv.dilation_w + 1; }  // of a filter's row
  constexpr int most_columns() const {                                        // whose input the warps have
    return 16 * sixteens * across < reach() ? 0 : (16 * sixteens * across - reach()) / conv.stride_w + 1;
  }
  constexpr int tile_rows() const { return rows * down; }
  constexpr int bands() const { return ceil_div(conv.p, tile_rows()); }
  constexpr int sides() const { return ceil_div(conv.q, greater(most_columns(), 1)); }
  constexpr int tile_columns() const { return ceil_div(conv.q, sides()); }
  constexpr long long tiles() const { return 1LL * conv.n * conv.z * bands() * sides(); }

  // ---- A stage in shared memory: [row][column][piece ^ f(column)], 16 bytes each, zero where there is no
  // image, and its weights behind it. Eight columns beside each other lie in banks of their own ----
  constexpr int pieces() const { return channels / 8; }
  constexpr int steps() const { return channels / 16; }  // of a stage at most: products of 16 channels
  constexpr int chunks() const { return ceil_div(conv.c, channels); }
  constexpr int turns() const { return conv.t * chunks(); }  // stages of a tile, one after the other
  constexpr int window_rows() const {                        // of a warp
    return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1;
  }
  constexpr int input_rows() const {
    return (tile_rows() - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1;
  }
  constexpr int input_columns() const { return (tile_columns() - 1) * conv.stride_w + reach(); }
  constexpr int pixel_bytes() const { return 16 * pieces(); }
  // Warps read beyond a row's last column: the next row lies there, or the weights. No output uses those
  // sums.
  constexpr long long overhang_bytes() const {
    return (16LL * sixteens * across - round_up(input_columns(), 8)) * pixel_bytes();
  }
  constexpr int row_bytes() const { return round_up(input_columns(), 8) * pixel_bytes(); }
  constexpr int input_bytes() const { return input_rows() * row_bytes(); }
  constexpr int exchange(int column) const { return column * lesser(pieces(), 8) / 8 % lesser(pieces(), 8); }
  constexpr int piece_offset(int column, int piece) const {  // from a row's first byte
    return column * pixel_bytes() + 16 * (piece ^ exchange(column));
  }
  // Returns the position in the image at which a tile begins.
  constexpr int first_row(int band) const { return band * tile_rows() * conv.stride_h - conv.pad_top; }
  constexpr int first_column(int side) const { return side * tile_columns() * conv.stride_w - conv.pad_left; }

  // ---- Weights: [frame][chunk][step][row][eight][lane][4 halves], as a lane has them in operands of
  // products, whose columns are those of the filter: column s of filter k is s * all filters + k ----
  constexpr int columns() const { return conv.s * conv.k; }
  constexpr int eights() const { return ceil_div(columns(), 8); }
  constexpr int step_bytes() const { return 256 * conv.r * eights(); }
  constexpr int weight_bytes() const { return steps() * step_bytes(); }  // per stage
  constexpr Packed packed() const {
    return Packed::halves(1LL * turns() * (weight_bytes() / 4), conv.weights(), conv.k);
  }
  constexpr long long source_of(long long i) const {
    const int lane = static_cast<int>(i / 4 % 32),
              column = static_cast<int>(i / 128 % eights()) * 8 + lane / 4;
    const int r = static_cast<int>(i / (128 * eights()) % conv.r);
    const int step = static_cast<int>(i / (step_bytes() / 2) % steps());
    const int turn = static_cast<int>(i / (weight_bytes() / 2));
    const int channel = turn % chunks() * channels + step * 16 + static_cast<int>(i / 2 % 2) * 8 +
                        lane % 4 * 2 + static_cast<int>(i % 2);
    if (column >= columns() || channel >= conv.c) return -1;
    const long long frame = (1LL * (column % conv.k) * conv.c + channel) * conv.t + turn / chunks();
    return (frame * conv.r + r) * conv.s + column / conv.k;
  }

  // ---- Sums in shared memory, where stages were: [part][row][column of the filter][column of the input].
  // Lanes that store beside each other have banks of their own, and so have filters of few pixels ----
  constexpr int sums_pitch() const { return round_up(16 * sixteens * across + 4, 8) - 4; }  // floats
  constexpr int row_sums() const { return columns() * sums_pitch(); }
  constexpr long long sums_bytes() const { return 4LL * parts * tile_rows() * row_sums(); }

  struct Smem {
    int biases, stages;
    long long end;
  };
  constexpr int stage_bytes() const { return input_bytes() + weight_bytes(); }
  constexpr Smem smem() const {
    SmemPlan plan;
    const int biases = plan.take(4LL * round_up(conv.k, 32));
    const long long all = 1LL * stages * stage_bytes();
    const int begin = plan.take(all > sums_bytes() ? all : sums_bytes());
    return {biases, begin, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Cost ----
  // Products, loads of pixels and rows of weights that a warp has in a step, straight code.
  constexpr int products() const { return rows * conv.r * sixteens * eights(); }
  constexpr bool is_met(int row) const {  // a row of the window, by an output
    for (int j = 0; j < rows; ++j) {
      const int rest = row - j * conv.stride_h;
      if (rest >= 0 && rest % conv.dilation_h == 0 && rest / conv.dilation_h < conv.r) return true;
    }
    return false;
  }
  constexpr int met_rows() const {
    int met = 0;
    for (int row = 0; row < window_rows(); ++row) met += is_met(row);
    return met;
  }
  constexpr int registers() const {  // about: ptxas decides, and loads operands ahead
    const int kept = lesser((rows - 1) * conv.stride_h / conv.dilation_h + 1, conv.r);
    return 48 + 4 * rows * sixteens * eights() + 16 * sixteens + 2 * eights() * (kept + 1);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool possible() const {
    return is_in_range(*this) && (channels & (channels - 1)) == 0 && parts <= steps() && stages <= turns() &&
           warps() <= kMostWarps && most_columns() > 0 && columns() <= kMostColumns &&
           window_rows() <= kMostWindow;
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && overhang_bytes() <= weight_bytes() && products() <= kMostProducts &&
           1LL * input_rows() * input_columns() < (1 << 20) && 1LL * stages * stage_bytes() < (1 << 24) &&
           sums_bytes() < (1 << 24) && smem_bytes() <= smem_per_block && registers() <= register_limit() &&
           tiles() < (1LL << 31) && packed().launchable() && conv.offsets_are_ints() &&
           // Rows of padding may be more than an image's own.
           1LL * (conv.h + conv.pad_top) * conv.w < (1LL << 31) / conv.c;
  }

  static constexpr int kMostRows = 8, kMostSixteens = 6, kMostWarps = 16;
  static constexpr int kMostColumns = 72;    // of filters: nine eights
  static constexpr int kMostWindow = 64;     // rows, of a warp
  static constexpr int kMostProducts = 320;  // more compile for long
};

}  // namespace convtune
