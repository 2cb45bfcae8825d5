// The implicit GEMM in half precision for compute capability 8.0 and up (implicit_gemm_half_sm80.cuh, which
// draws it): problem, choices, and what follows from them, shared by the kernel and by the host that plans
// it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

struct ImplicitGemmHalfSm80 {
  ConvExtents conv;
  int rows = 128, filters = 128, warps_m = 2, warps_n = 2, channels = 32, stages = 3, blocks = 1, split = 1;
  bool window = false;
  bool aligned = true;  // not a choice: x, y and the residual begin at multiples of 16 bytes
  static constexpr const char* kName = "ImplicitGemmHalfSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 32, 256, "pixels of a block's tile, a multiple of 16 times warps_m");
    field("filters", self.filters, 32, 256, "filters of a block's tile, a multiple of 32 times warps_n");
    field("warps_m", self.warps_m, 1, 8, "warps along pixels, a power of 2");
    field("warps_n", self.warps_n, 1, 8, "warps along filters, a power of 2");
    field("channels", self.channels, 32, 64, "terms of a stage: 32 or 64");
    field("stages", self.stages, kLeastStages, kMostStages, "stages of the ring");
    field("blocks", self.blocks, 1, 8, "blocks that an SM shall hold at once, a launch bound");
    field("split", self.split, 1, kMostSplit, "blocks that share a sum, a power of 2");
    field("window", self.window, 0, 1,
          "1: a tile's pixels come once for a chunk of channels, and all taps are read from there");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return true; }

  // ---- The product: pixels of y (rows) by filters of a group (columns). Its sums go over pieces of 8
  // channels, 16 bytes ----
  constexpr long long pixels() const { return static_cast<long long>(conv.n) * conv.p * conv.q; }
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr int pixel_pieces() const { return conv.c / 8; }                 // per pixel of x
  constexpr int group_pieces() const { return conv.group_channels() / 8; }  // of it and a group
  constexpr int all_pieces() const { return taps() * group_pieces(); }
  constexpr int pieces() const { return channels / 8; }  // per stage
  constexpr int steps() const { return ceil_div(all_pieces(), pieces()); }
  constexpr int first_step(int rank) const { return steps() * rank / split; }  // per block that shares a sum
  // Tells whether a stage is channels of one tap. Then all taps of a chunk of channels follow each other, so
  // that the pixels that they share are found in L1. Else a tap's channels do, and a stage has several taps.
  constexpr bool chunked() const { return group_pieces() % pieces() == 0; }
  // Describes a piece of a stage: its tap, and which piece of a pixel's group. Behind the last one there is
  // no tap.
  struct Term {
    int tap, piece;
  };
  constexpr Term term(int step, int piece) const {
    if (chunked()) return {step % taps(), step / taps() * pieces() + piece};
    const int index = step * pieces() + piece;
    return {index / group_pieces(), index % group_pieces()};
  }
  // Tells whether the last stage has terms that are none.
  constexpr bool ragged() const { return all_pieces() % pieces() != 0; }

  // ---- Positions, which tiles are made of: the pixels of y; or, with a window, of a grid of rows so long
  // and images so high that the zeros behind one row are those before the next. There a tap is as far from an
  // output as from any other, and a tile with what its taps reach is a row of positions ----
  constexpr int grid_columns() const {
    return greater(greater(conv.w + conv.pad_left, conv.q + (conv.s - 1) * conv.dilation_w - conv.pad_left),
                   conv.q);
  }
  constexpr int grid_rows() const {
    return greater(greater(conv.h + conv.pad_top, conv.p + (conv.r - 1) * conv.dilation_h - conv.pad_top),
                   conv.p);
  }
  constexpr long long positions() const {
    if (!window) return pixels();
    return (static_cast<long long>(conv.n - 1) * grid_rows() + conv.p - 1) * grid_columns() + conv.q;
  }
  struct Pixel {
    int image, row, column;
  };
  constexpr Pixel place_of(int position) const {
    const int rows_of = window ? grid_rows() : conv.p, columns = window ? grid_columns() : conv.q;
    return {position / (rows_of * columns), position / columns % rows_of, position % columns};
  }
  // The pixel of y, or -1 where there is none.
  constexpr int pixel_at(int position) const {
    if (position >= positions()) return -1;
    if (!window) return position;
    const Pixel at = place_of(position);
    return at.row < conv.p && at.column < conv.q ? (at.image * conv.p + at.row) * conv.q + at.column : -1;
  }
  constexpr Pixel output_at(int pixel) const {
    return {pixel / (conv.p * conv.q), pixel / conv.q % conv.p, pixel % conv.q};
  }
  // Returns the offset in x of an output's window; with a window, of the position in it.
  constexpr Pixel first_tap(int position) const {
    const Pixel at = place_of(position);
    return {at.image, at.row * conv.stride_h - conv.pad_top, at.column * conv.stride_w - conv.pad_left};
  }
  constexpr bool is_inside(const Pixel& at) const {
    return at.image < conv.n && at.row >= 0 && at.row < conv.h && at.column >= 0 && at.column < conv.w;
  }
  constexpr int tap_positions(int tap) const { return tap_row(tap) * grid_columns() + tap_column(tap); }
  constexpr int tap_row(int tap) const { return tap / conv.s * conv.dilation_h; }
  constexpr int tap_column(int tap) const { return tap % conv.s * conv.dilation_w; }
  // The first piece of a pixel of x, counted from its beginning; modulo 2^32, which sums do not mind.
  constexpr unsigned piece_at(const Pixel& at) const {
    return ((static_cast<unsigned>(at.image) * static_cast<unsigned>(conv.h) +
             static_cast<unsigned>(at.row)) *
                static_cast<unsigned>(conv.w) +
            static_cast<unsigned>(at.column)) *
           static_cast<unsigned>(pixel_pieces());
  }

  // ---- A tile. Filter blocks of the same pixels follow each other, so that one finds in L2 what another has
  // read; blocks that share a sum are neighbours ----
  constexpr int threads() const { return 32 * warps_m * warps_n; }
  constexpr int warp_rows() const { return rows / warps_m; }
  constexpr int warp_filters() const { return filters / warps_n; }
  constexpr int tiles_m() const { return warp_rows() / 16; }  // products of a warp: 16 pixels by 8 filters
  constexpr int tiles_n() const { return warp_filters() / 8; }
  constexpr int sums() const { return 4 * tiles_m() * tiles_n(); }  // registers of a thread
  constexpr int products() const { return channels / 16; }          // of 16 terms, in a stage
  constexpr int group_blocks() const { return ceil_div(conv.group_filters(), filters); }
  constexpr int filter_blocks() const { return conv.groups * group_blocks(); }
  constexpr long long tiles() const { return ceil_div(positions(), rows) * filter_blocks(); }
  constexpr int group(int tile) const {
    return conv.groups == 1 ? 0 : tile % filter_blocks() / group_blocks();
  }
  constexpr int first_filter(int tile) const {
    return group(tile) * conv.group_filters() + tile % group_blocks() * filters;
  }
  constexpr int end_filter(int tile) const {  // for the group
    return (group(tile) + 1) * conv.group_filters();
  }
  constexpr int first_position(int tile) const { return tile / filter_blocks() * rows; }
  // A thread has 8 neighbours among 32 filters, two of each of 4 products: it stores them together. Of
  // product `tile` of the 32 column `column` is
  static constexpr int filter_of(int tile, int column) { return column / 2 * 8 + 2 * tile + column % 2; }

  // ---- Shared memory: stages of [pixel][piece, exchanged] and of weights as threads have them in products.
  // Eight rows of a column of pieces are in banks of their own. With a window two of them stand before stages
  // that are weights alone: one is read while the other is filled ----
  constexpr int row_bytes() const { return 2 * channels; }
  constexpr int exchanged(int row, int piece) const { return piece ^ (row * row_bytes() / 128 % pieces()); }
  constexpr int loaded_rows() const {  // rows of x, at a time
    return window ? round_up(rows + tap_positions(taps() - 1), copied_rows()) : rows;
  }
  constexpr int input_bytes() const { return loaded_rows() * row_bytes(); }
  constexpr int weight_bytes() const { return filters * row_bytes(); }
  constexpr int window_bytes() const { return window ? 2 * input_bytes() : 0; }
  constexpr int stage_bytes() const { return (window ? 0 : input_bytes()) + weight_bytes(); }
  // Weights of the first stage.
  constexpr int weights_at() const { return window ? window_bytes() : input_bytes(); }
  constexpr long long smem_bytes() const { return window_bytes() + 1LL * stages * stage_bytes(); }
  // Returns a thread's copies of a stage: rows this far apart, all with the same piece; and weights in a
  // row.
  constexpr int copied_rows() const { return threads() / pieces(); }
  constexpr int row_copies() const { return loaded_rows() / copied_rows(); }
  // The number of rows for which a word has bits, one a tap; 0: there are too many taps.
  constexpr int mask_rows() const { return window ? 0 : 32 / taps(); }
  constexpr int masks() const { return mask_rows() > 0 ? ceil_div(row_copies(), mask_rows()) : 1; }
  constexpr int weight_copies() const { return ceil_div(weight_bytes(), 16 * threads()); }

  // ---- Packed weights, in halves: [filter block][step][16 terms][32 filters][2][lane][8] ----
  constexpr Packed packed() const {
    return Packed::halves(1LL * filter_blocks() * steps() * filters * channels / 2, conv.weights(), conv.k);
  }
  constexpr long long source_of(long long i) const {
    const int half = static_cast<int>(i % 8), lane = static_cast<int>(i / 8 % 32);
    const int tile = static_cast<int>(i / 256 % 2) * 2 + half / 4;  // for the 32 filters
    const int some = static_cast<int>(i / 512 % (filters / 32));
    const int product = static_cast<int>(i / (16 * filters) % products());
    const int step = static_cast<int>(i / (filters * channels) % steps());
    const int block = static_cast<int>(i / (1LL * filters * channels * steps()));
    const int filter = first_filter(block) + 32 * some + filter_of(tile, lane / 4);
    const int k = 16 * product + half / 2 % 2 * 8 + lane % 4 * 2 + half % 2;
    const Term at = term(step, k / 8);
    if (filter >= end_filter(block) || at.tap >= taps()) return -1;
    return (static_cast<long long>(filter) * conv.group_channels() + 8 * at.piece + k % 8) * taps() + at.tap;
  }

  // ---- Sums that blocks share, in words: [rank][tile][four of a thread's][thread][4] ----
  constexpr int tile_words() const { return rows * filters; }
  constexpr long long shared_words() const { return split > 1 ? 1LL * split * tiles() * tile_words() : 0; }

  // ---- Registers: sums, operands of this product and of the next, rows that are copied and, without a
  // window, their taps, and what else there is. About: ptxas decides ----
  constexpr int registers() const {
    const int copies = window ? 3 * row_copies() / 2 + 47 : 2 * row_copies() + masks() + 44;
    return sums() + 2 * (4 * tiles_m() + 2 * tiles_n()) + copies;
  }
  constexpr int register_limit() const { return registers_for(threads(), blocks); }

  constexpr bool possible() const {
    const auto is_power = [](int value) { return (value & (value - 1)) == 0; };
    return is_in_range(*this) && is_power(warps_m) && is_power(warps_n) && warps_m * warps_n >= 2 &&
           warps_m * warps_n <= 8 && rows % (16 * warps_m) == 0 && filters % (32 * warps_n) == 0 &&
           channels % 32 == 0 && rows % copied_rows() == 0 && is_power(split) && (!window || can_window());
  }
  constexpr bool can_window() const {
    return taps() >= stages && chunked() && split == 1 && conv.stride_h == 1 && conv.stride_w == 1 &&
           1LL * grid_columns() * conv.r * conv.dilation_h < 1024;
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && registers() <= register_limit() && smem_bytes() <= smem_per_block &&
           split <= steps() && fits();
  }
  // Pixels, tiles and terms that can be counted.
  constexpr bool fits() const {
    return positions() < kMost && tiles() * split < kMost && shared_words() < kMost &&
           1LL * conv.n * conv.h * conv.w < 4 * kMost / pixel_pieces() &&
           1LL * taps() * pixel_pieces() < kMost / channels && packed().words() / 256 < kMost;
  }
  static constexpr int kMostStages = 8, kMostSplit = 16;
  static constexpr long long kMost = 1LL << 30;
  // With two the compiler writes the loop out twice, and spills.
  static constexpr int kLeastStages = 3;
};

}  // namespace convtune
