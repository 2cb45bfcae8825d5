// The gradient of weights in half precision on compute capability 9.0 (weight_gradient_half_sm90.cuh, which
// draws it, and weight_gradient_half_nchw_sm90.cuh): problem, choices, and what follows from them, shared by
// the kernels and by the host that plans them.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/smem.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

struct WeightGradientHalfSm90 {
  ConvExtents conv;
  bool bias = false;    // not a choice: the gradient of the bias is wanted, too
  bool planes = false;  // not a choice: x and dy are in NCHW, and are transposed on their way; with a window
  int filter_groups = 2, column_groups = 1, row_blocks = 1, columns = 256, pixels = 64, window = 0,
      stages = 4;
  int blocks = 132, whole = 0, early = 0, joint = 0;
  bool aligned = true;  // not a choice: x and dy begin at multiples of 16 bytes
  static constexpr const char* kName = "WeightGradientHalfSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("bias", self.bias);
    field("planes", self.planes);
    field("filter_groups", self.filter_groups, 1, 3, "warpgroups that multiply, with other filters each");
    field("column_groups", self.column_groups, 1, 3, "of each of those, with other columns each");
    field("row_blocks", self.row_blocks, 1, 2, "blocks of 64 filters that one of them has sums of");
    field(
        "columns", self.columns, 32, 256,
        "columns that one of them has sums of: a multiple of 64; with a window 64 or 32 channels at all taps "
        "of a row");
    field("pixels", self.pixels, 32, 128, "pixels of a stage: 32, 64 or 128");
    field("window", self.window, 0, 16,
          "rows of y of a stage, for which x comes once for all taps; 0: pixels, and x for each tap");
    field("stages", self.stages, 2, 8, "stages kept at once");
    field("blocks", self.blocks, 1, kMostBlocks, "blocks that share all products evenly");
    field("whole", self.whole, 0, 1 << 20,
          "tiles, the first, of which a block has all products and stores the gradients; with a window");
    field("early", self.early, 0, 1,
          "1: a stage is given back behind the first 16 positions of the next, else behind all of them");
    field("joint", self.joint, 0, 1,
          "1: no tile is split, and blocks store gradients of theirs; 0: a second kernel does, or adds up");
    field("aligned", self.aligned);
  }
  static constexpr int kMostBlocks = 4096;
  constexpr bool asks_alignment() const { return true; }

  // ---- The product: filters by columns, and its sums go over the pixels of y. A column is a channel at a
  // tap; 64 channels of one tap lie beside each other, with a window maybe 32; the last of a tap may be
  // fewer ----
  static constexpr int kBlock = 64;
  constexpr bool is_narrow() const { return window > 0 && columns == kBlock / 2 * conv.s; }
  constexpr int block_channels() const { return is_narrow() ? kBlock / 2 : kBlock; }
  constexpr long long all_pixels() const { return static_cast<long long>(conv.n) * conv.z * conv.p * conv.q; }
  constexpr int taps() const { return conv.t * conv.r * conv.s; }
  constexpr int channel_blocks() const { return ceil_div(conv.c, block_channels()); }
  constexpr int all_blocks() const { return taps() * channel_blocks(); }  // blocks of columns
  // The order of blocks of columns without a window: all of a tap; or, where one launch stores what dw has
  // beside each other, all taps of a channel.
  constexpr int column_block(int tap, int channel_block) const {
    return joint ? channel_block * taps() + tap : tap * channel_blocks() + channel_block;
  }
  constexpr int tap_of(int block) const { return joint ? block % taps() : block / channel_blocks(); }
  constexpr int channel_block_of(int block) const {
    return joint ? block / taps() : block % channel_blocks();
  }
  // Rows of a frame that a chunk of a window begins with, and of which frame.
  struct Rows {
    int image, frame, row;
  };
  constexpr Rows rows_of(int chunk) const {
    const int frame = chunk / row_chunks();
    return {frame / conv.z, frame % conv.z, chunk % row_chunks() * window};
  }
  // With a window: the first channel of a tile, and the frame of the filter.
  constexpr int window_channel(int tile) const { return tile % channel_blocks() * block_channels(); }
  constexpr int window_frame(int tile) const { return tile % column_tiles() / channel_blocks(); }
  constexpr int row_chunks() const { return ceil_div(conv.p, window); }  // chunks of an image, with a window
  constexpr long long chunks() const {
    return window > 0 ? 1LL * conv.n * conv.z * row_chunks() : ceil_div(all_pixels(), pixels);
  }
  // Tells whether pixels of y are pixels of x, one after the other.
  constexpr bool pointwise() const {
    return taps() == 1 && conv.z == conv.d && conv.stride_d == 1 && conv.pad_front == 0 &&
           conv.stride_h == 1 && conv.stride_w == 1 && conv.pad_top == 0 && conv.pad_left == 0 &&
           conv.p == conv.h && conv.q == conv.w;
  }

  // ---- With a window a stage has rows of y, and of x those that all taps meet, in rows of equal length one
  // behind the other: a tap is positions of x that begin some positions further on. Behind a row of y are as
  // many zeros as taps reach further, but for padding to the right, for which the next row's to the left
  // stands ----
  constexpr int shared_padding() const {
    const int right = conv.q - 1 + conv.s - 1 - conv.pad_left - (conv.w - 1);
    // At most what taps reach further: a stage has all columns of y, whose sums are the bias's gradient.
    return greater(lesser(lesser(conv.pad_left, right), conv.s - 1), 0);
  }
  constexpr int pitch() const { return conv.q + conv.s - 1 - shared_padding(); }
  constexpr int window_rows() const { return window + conv.r - 1; }  // rows of x
  constexpr bool can_have_window() const {
    return conv.r * conv.s > 1 && conv.stride_h == 1 && conv.stride_w == 1 && conv.dilation_h == 1 &&
           conv.dilation_w == 1 && conv.r <= 3 && conv.s <= 4 && pitch() <= 256;
  }
  constexpr int positions() const {
    return window > 0 ? round_up(window * pitch(), 16) : pixels;
  }  // positions of a stage
  constexpr int input_positions() const {
    return round_up(positions() + (conv.r - 1) * pitch() + conv.s - 1, 8);
  }

  // ---- Tiles. The first are whole ones, which the blocks take in turns. All chunks of the others, a tile's
  // one after the other, are dealt out to the blocks evenly: a block has a part of a tile, or the end of one
  // and the beginning of the next, or all of some between ----
  constexpr int consumers() const { return filter_groups * column_groups; }
  constexpr int consumer_rows() const { return kBlock * row_blocks; }
  constexpr int tile_rows() const { return filter_groups * consumer_rows(); }
  constexpr int tile_columns() const { return column_groups * columns; }
  constexpr int tile_blocks() const { return tile_columns() / block_channels(); }
  constexpr int column_tiles() const {
    return window > 0 ? conv.t * channel_blocks() : ceil_div(all_blocks(), tile_blocks());
  }
  constexpr int row_tiles() const { return ceil_div(conv.k, tile_rows()); }
  constexpr int tiles() const { return row_tiles() * column_tiles(); }
  constexpr int first_filter(int tile) const { return tile / column_tiles() * tile_rows(); }
  // Lists of blocks of columns: without a window all are one, else a tile has those of all taps of a frame.
  constexpr int first_block(int tile) const {
    return tile % column_tiles() * (window > 0 ? 1 : tile_blocks());
  }
  constexpr int tile_of(int filter, int tap, int channel_block) const {
    const int column_tile = window > 0 ? tap / (conv.r * conv.s) * channel_blocks() + channel_block
                                       : column_block(tap, channel_block) / tile_blocks();
    return filter / tile_rows() * column_tiles() + column_tile;
  }
  constexpr int block_in_tile(int tap, int channel_block) const {
    return window > 0 ? tap % (conv.r * conv.s) : column_block(tap, channel_block) % tile_blocks();
  }
  constexpr int threads() const { return 128 * (consumers() + 1); }
  constexpr int resident() const { return 1; }                     // block on a multiprocessor
  constexpr int sums() const { return row_blocks * columns / 2; }  // registers of a thread

  constexpr int split_tiles() const { return tiles() - whole; }
  constexpr long long work() const { return split_tiles() * chunks(); }
  constexpr int sharers() const { return work() < blocks ? static_cast<int>(work()) : blocks; }
  constexpr long long first_work(int block) const {
    return block < sharers() ? work() * block / sharers() : work();
  }
  // The block that has a piece of work, and so the first and the last that share a tile.
  constexpr int block_of(long long piece) const {
    return static_cast<int>(((piece + 1) * sharers() - 1) / work());
  }
  constexpr int first_sharer(int tile) const { return block_of((tile - whole) * chunks()); }
  constexpr int last_sharer(int tile) const { return block_of((tile - whole + 1) * chunks() - 1); }

  // ---- Partial sums in memory, in words: from tile to tile and from block to block it goes one place on,
  // so that each part of a tile has a place of its own. [place][eight columns][row][column of them]: a warp
  // stores eight rows of them in one run. Then of each row the sum of dy, which tiles of the first columns
  // have. Behind all places each warp's word for a whole tile, 0 where none of its gradients is NaN ----
  constexpr int sum_at(int row, int column) const {  // in a place
    return (column / 8 * tile_rows() + row) * 8 + column % 8;
  }
  constexpr int place(int block, int tile) const { return block + tile - whole; }
  constexpr int places() const { return split_tiles() > 0 ? sharers() + split_tiles() - 1 : 0; }
  constexpr long long place_words() const { return 1LL * tile_rows() * (tile_columns() + (bias ? 1 : 0)); }
  constexpr long long flags_at() const { return places() * place_words(); }
  constexpr int tile_flags() const { return 4 * consumers(); }
  constexpr long long partial_words() const { return joint ? 0 : flags_at() + 1LL * whole * tile_flags(); }
  constexpr long long row_sums_at() const { return 1LL * tile_rows() * tile_columns(); }

  // ---- One launch, without a window: a block's sums, when all are complete, in the place of the stages:
  // [row][block of columns][channel], a block 16 bytes further on, which spreads taps over banks, and behind
  // them the sum of dy ----
  constexpr int joint_block_bytes() const { return 4 * kBlock + 16; }
  constexpr int joint_row_bytes() const { return tile_blocks() * joint_block_bytes() + 16; }
  constexpr bool can_be_joint() const {
    if (window > 0) return whole == tiles();
    return blocks == tiles() && tile_rows() * joint_row_bytes() <= stages * stage_bytes();
  }
  // The tap, and the first channel, of a tile's block of columns; a tap behind all where it is none.
  struct Columns {
    int tap, channel;
  };
  constexpr Columns columns_of(int tile, int block) const {
    const int of_all = first_block(tile) + block;
    if (of_all >= all_blocks()) return {taps(), conv.c};
    return {tap_of(of_all), channel_block_of(of_all) * kBlock};
  }

  // ---- Describes where a tap of an output's window lies in x ----
  struct Pixel {
    int image, frame, row, column;
  };
  constexpr Pixel first_tap(int pixel) const {
    const int frame = pixel / (conv.p * conv.q);
    return {frame / conv.z, frame % conv.z * conv.stride_d - conv.pad_front,
            pixel / conv.q % conv.p * conv.stride_h - conv.pad_top,
            pixel % conv.q * conv.stride_w - conv.pad_left};
  }
  struct Reach {
    int channel, frames, rows, columns;  // the first channel, and how far behind the first tap
  };
  constexpr Reach reach(int block) const {  // block: 64 columns; without a window
    const int tap = tap_of(block);
    return {channel_block_of(block) * kBlock, tap / (conv.r * conv.s) * conv.dilation_d,
            tap / conv.s % conv.r * conv.dilation_h, tap % conv.s * conv.dilation_w};
  }
  // Returns the corners that TMA walks between, as far from the image's end, and whether it can: positions of
  // first taps have 8 bits each, 5 where frames are one more extent, and offsets as many.
  constexpr int corner_below() const { return (conv.p - 1) * conv.stride_h - conv.pad_top - (conv.h - 1); }
  constexpr int corner_right() const { return (conv.q - 1) * conv.stride_w - conv.pad_left - (conv.w - 1); }
  constexpr int corner_behind() const { return (conv.z - 1) * conv.stride_d - conv.pad_front - (conv.d - 1); }
  constexpr int most_corner() const { return conv.has_depth() ? 16 : 128; }
  constexpr bool can_walk() const {
    const auto is_corner = [this](int value) { return value >= -most_corner() && value < most_corner(); };
    return pointwise() ||
           (is_corner(-conv.pad_top) && is_corner(-conv.pad_left) && is_corner(-conv.pad_front) &&
            is_corner(corner_below()) && is_corner(corner_right()) && is_corner(corner_behind()) &&
            conv.stride_h <= 8 && conv.stride_w <= 8 && conv.stride_d <= 8 &&
            (conv.t - 1) * conv.dilation_d < 2 * most_corner() &&
            (conv.r - 1) * conv.dilation_h < 2 * most_corner() &&
            (conv.s - 1) * conv.dilation_w < 2 * most_corner());
  }

  // ---- Operands in shared memory: for 64 filters, or columns, a row of 128 bytes a pixel, of 32 columns 64,
  // whose 16-byte pieces are exchanged as TMA and wgmma have it ----
  static constexpr int kRowBytes = 2 * kBlock;
  constexpr int input_row_bytes() const { return 2 * block_channels(); }
  constexpr int block_bytes() const { return positions() * kRowBytes; }
  constexpr int gradient_bytes() const { return tile_rows() / kBlock * block_bytes(); }  // dy's of a stage
  // x comes first in a stage. Columns of a window overlap, and compute-sanitizer takes them for as many bytes
  // one behind the other: dy lies behind them, and room where that is less.
  constexpr int counted_end() const {
    return columns_at(column_groups - 1) + (positions() - 16) * input_row_bytes() + 32 * columns;
  }
  constexpr int input_bytes() const {
    if (window == 0) return tile_blocks() * block_bytes();
    return round_up(greater(input_positions() * input_row_bytes(), counted_end() - gradient_bytes()), 1024);
  }
  constexpr int stage_bytes() const { return gradient_bytes() + input_bytes(); }
  // Bytes that TMA brings: of 64 filters of dy, and of x with a window.
  constexpr int loaded_block_bytes() const {
    return window > 0 ? window * pitch() * kRowBytes : block_bytes();
  }
  constexpr int loaded_window_bytes() const { return window_rows() * pitch() * input_row_bytes(); }
  // From 64 columns to the next, and from the first filter row's to a consumer's, in bytes.
  constexpr int column_step() const { return window > 0 ? input_row_bytes() : block_bytes(); }
  constexpr int columns_at(int column_group) const {
    return column_group * (window > 0 ? pitch() * input_row_bytes() : columns / kBlock * block_bytes());
  }

  // ---- In NCHW a plane's rows lie one behind the other, and come in slices of 64 channels by a few pieces
  // of 8 pixels, an odd number, so that the same piece of 8 channels meets at no bank. A slice begins at a
  // multiple of 16 bytes, as TMA asks, and so up to 7 pixels before the rows that a stage has ----
  static constexpr int kPiece = 8, kMostSlicePieces = 15, kMostSlicePlaces = 6, kTransposingWarps = 3;
  constexpr bool has_whole_planes() const {
    return 1LL * conv.h * conv.w % kPiece == 0 && 1LL * conv.p * conv.q % kPiece == 0;
  }
  // A slice is an image's 64 channels as they lie where planes have another length and a stage is an image.
  constexpr bool has_images() const { return window == conv.p && conv.t * conv.d * conv.z == 1; }
  static constexpr int first_of_piece(int pixel) { return pixel & -kPiece; }  // below 0, too
  // Pieces that `rows` rows reach into at most, at whichever row they begin.
  static constexpr int pieces_of(int rows, int width) {
    int together = kPiece;  // a row begins at a multiple of it
    while (width % together != 0) together /= 2;
    return ceil_div(rows * width + kPiece - together, kPiece);
  }
  constexpr int input_slices(int pieces) const { return ceil_div(pieces_of(window_rows(), conv.w), pieces); }
  constexpr int gradient_slices(int pieces) const { return ceil_div(pieces_of(window, conv.q), pieces); }
  constexpr int slices(int pieces) const {  // slices of a stage
    return input_slices(pieces) + tile_rows() / kBlock * gradient_slices(pieces);
  }
  static constexpr int slice_bytes(int pieces) { return kBlock * 2 * kPiece * pieces; }
  constexpr long long slice_room() const {
    return kMostSmem - 1024 - 1LL * stages * stage_bytes() - (bias ? kOnesBytes : 0) - all_staged_bytes();
  }
  // Returns the pieces of a slice that has few to spare, of those of which four have room.
  constexpr int slice_pieces() const {
    constexpr int kAsking = 2;  // pieces that a slice costs besides
    int best = 3;
    for (int some = 5; some <= kMostSlicePieces; some += 2)
      if (4 * slice_bytes(some) <= slice_room() &&
          slices(some) * (some + kAsking) <= slices(best) * (best + kAsking))
        best = some;
    return best;
  }
  constexpr int slice_bytes() const {
    return has_whole_planes() ? slice_bytes(slice_pieces())
                              : round_up(2 * kBlock * greater(conv.h * conv.w, conv.p * conv.q), 1024);
  }
  // As many are on their way, or read, as have room.
  constexpr int slice_places() const {
    if (!planes) return 0;
    const int some = static_cast<int>(greater(static_cast<int>(slice_room() / slice_bytes()), 2));
    return lesser(some, kMostSlicePlaces);
  }
  constexpr int stage_slices() const {
    return has_whole_planes() ? slices(slice_pieces()) : 1 + tile_rows() / kBlock;
  }

  // ---- Gradients of a whole tile, which warps of the same 16 filters put into dw's order, eight filters at
  // a time: a filter's are 16 bytes further on than a multiple of 128 ----
  static constexpr int kStagedRows = 8;
  constexpr int window_taps() const { return conv.r * conv.s; }
  constexpr int staged_row_bytes() const { return input_row_bytes() * window_taps() + 16; }
  constexpr int staged_bytes() const { return kStagedRows * staged_row_bytes(); }
  constexpr int all_staged_bytes() const { return whole > 0 ? 4 * filter_groups * staged_bytes() : 0; }

  // ---- Shared memory, in bytes. The stages, slices, and the ones by which the sums of dy are multiplied,
  // begin at multiples of 1024 ----
  static constexpr int kOnesBytes = 2048, kMostSmem = 227 << 10;
  struct Smem {
    int stages, slices, ones, staged, full, empty, slices_full, slices_empty;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const int at = plan.take(1LL * stages * stage_bytes());
    const int some_slices = plan.take(planes ? slice_places() * slice_bytes() : 0);
    const int ones = plan.take(bias ? kOnesBytes : 0), staged = plan.take(all_staged_bytes());
    const int full = plan.take(8 * stages), empty = plan.take(8 * stages);
    const int slices_full = plan.take(8 * slice_places()), slices_empty = plan.take(8 * slice_places());
    return {at, some_slices, ones, staged, full, empty, slices_full, slices_empty, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- The second kernel: a block adds up some filters' gradients of a block of channels at some taps,
  // each of four channels by so many threads as leave a thread few places to go through ----
  static constexpr int kPlacesOfThread = 8, kMostAdders = 16, kMostTaps = 128;
  static constexpr int kMostAdded = 4096, kLeastAddBlocks = 512;
  constexpr int most_sharers() const {
    return ceil_div(sharers(), greater(split_tiles(), 1)) + 1;
  }  // sharers of a tile
  constexpr int adders() const {
    int some = 1;
    while (some < kMostAdders && some * kPlacesOfThread < most_sharers()) some *= 2;
    return some;
  }
  static constexpr int kAddedTogether = 4;  // filters whose sums of eight channels are 128 bytes
  constexpr int added_at_once() const {
    return kAddThreads / adders() / (block_channels() / 4);
  }  // taps of filters
  constexpr int added_taps() const {
    return adders() == 1 ? taps() : lesser(taps(), greater(added_at_once() / kAddedTogether, 1));
  }
  constexpr int tap_blocks() const { return ceil_div(taps(), added_taps()); }
  // Filters that a block of the second kernel adds up: of tiles with few parts so many that a thread has some
  // loads under way, while there are blocks for all of a GPU.
  constexpr int added_filters() const {
    int some = adders() > 1 ? kAddedTogether : 1;  // a power of 2, so that they are of one tile
    if (adders() > 1) {
      while (2 * some * added_taps() <= added_at_once()) some *= 2;
      return some;
    }
    const long long all = whole > 0 ? 1LL * split_tiles() * tile_rows() : 1LL * conv.k * channel_blocks();
    while (2 * some * block_channels() * added_taps() <= kMostAdded && all >= 2 * some * kLeastAddBlocks)
      some *= 2;
    return some;
  }
  constexpr int places_at_once() const { return lesser(kPlacesOfThread, most_sharers()); }
  constexpr long long add_blocks() const {
    return whole > 0 ? 1LL * split_tiles() * tile_filters() * tap_blocks()
                     : 1LL * ceil_div(conv.k, added_filters()) * channel_blocks() * tap_blocks();
  }
  constexpr int tile_filters() const { return ceil_div(tile_rows(), added_filters()); }  // added at once
  // Blocks behind those look at the flags of so many whole tiles each, a flag a thread.
  constexpr int checked_tiles() const { return kAddThreads / tile_flags(); }
  constexpr int check_blocks() const { return ceil_div(whole, checked_tiles()); }
  constexpr long long behind_blocks() const {
    const long long of_weights = add_blocks() + check_blocks(), of_biases = ceil_div(conv.k, kAddThreads);
    return bias && of_biases > of_weights ? of_biases : of_weights;
  }

  // Tells whether the kernel compiles without spilling and a multiprocessor can hold a block of it.
  constexpr bool valid(long long smem_per_block) const {
    if (!is_in_range(*this) || (columns % kBlock != 0 && !is_narrow()) ||
        (pixels != 32 && pixels != 64 && pixels != 128))
      return false;
    if (window > 0 && (!can_have_window() || column_groups != conv.r ||
                       columns != block_channels() * conv.s || pixels != 64 || window > conv.p))
      return false;
    if (planes && (window == 0 || is_narrow() || !(has_whole_planes() || has_images()))) return false;
    if (consumers() > 3 || sums() > (consumers() == 3 ? 96 : 128)) return false;
    if (whole > 0 && (window == 0 || conv.t > 1 || whole > tiles())) return false;
    if (joint && !can_be_joint()) return false;
    return all_pixels() < kInt && chunks() * tiles() < kInt && blocks <= (whole > 0 ? whole : work()) &&
           smem_bytes() <= smem_per_block && partial_sums_fit(partial_words(), sharers() > split_tiles()) &&
           taps() <= kMostTaps && behind_blocks() < kInt;
  }
  static constexpr long long kInt = 1LL << 30;
};

}  // namespace convtune
