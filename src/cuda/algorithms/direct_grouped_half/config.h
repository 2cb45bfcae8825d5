// The kernel for few channels a group in half precision (direct_grouped_half.cuh, which draws it): problem,
// choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// A block has `filters` filters of a tile of one frame's output (an image is one): `down` by `across` strips,
// each of `rows` rows by 8 columns. A warp takes strips for `eights` times 8 filters, whose input it finds in
// pieces of 8 channels, 16 bytes. What of a piece belongs to another group meets weights of zero.
struct DirectGroupedHalf {
  ConvExtents conv;
  int rows = 2, down = 1, across = 1, filters = 8, eights = 1, warps = 1, stages = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DirectGroupedHalf";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 2, kMostRows, "output rows of a strip, an even number; 8 columns");
    field("down", self.down, 1, kMostStrips, "strips of a tile below each other");
    field("across", self.across, 1, kMostStrips, "strips of a tile beside each other");
    field("filters", self.filters, 8, kMostFilters, "filters of a block, a multiple of 8 times eights");
    field("eights", self.eights, 1, kMostEights, "eights of filters of a warp");
    field("warps", self.warps, 1, 32, "warps of a block, as many for each of its eights");
    field("stages", self.stages, 1, 2, "tiles whose input is kept at once: of 2 the next is on its way");
    field("blocks", self.blocks, 1, 32, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return conv.c % 8 == 0 || conv.k % 2 == 0; }
  // The least of blocks.
  static constexpr DirectGroupedHalf least(const ConvExtents& conv) { return {.conv = conv}; }
  constexpr int threads() const { return 32 * warps; }

  // ---- A block's part of the output ----
  constexpr int tile_rows() const { return rows * down; }
  constexpr int tile_columns() const { return 8 * across; }
  constexpr int bands() const { return ceil_div(conv.p, tile_rows()); }
  constexpr int sides() const { return ceil_div(conv.q, tile_columns()); }
  constexpr int chunks() const { return ceil_div(conv.k, filters); }
  constexpr long long tiles() const { return 1LL * conv.n * conv.z * bands() * sides() * chunks(); }
  constexpr int strips() const { return down * across; }
  // A warp's eights, and every how many-th strip it takes.
  constexpr int parts() const { return filters / (8 * eights); }
  constexpr int strip_warps() const { return warps / parts(); }

  // ---- Pieces of the input's channels ----
  constexpr int all_pieces() const { return ceil_div(conv.c, 8); }
  // That so many filters meet at most, from a multiple of as many on.
  constexpr int pieces_of(int some) const {
    const int group = conv.group_filters(), channels = conv.group_channels();
    const int whole = group % some == 0 ? 1 : some % group == 0 ? some / group : 0;  // groups, if they are
    const int groups = whole > 0 ? whole : (some + group - 2) / group + 1;
    const int begin = (whole > 0 ? whole : 1) * channels;  // a multiple of that
    if (begin % 8 == 0) return lesser(ceil_div(groups * channels, 8), all_pieces());
    if (whole > 0 && 8 % begin == 0) return 1;
    return lesser((groups * channels + 6) / 8 + 1, all_pieces());
  }
  constexpr int span() const { return pieces_of(8); }
  constexpr int pieces() const { return greater(pieces_of(filters), span()); }
  // Tells whether all eights of a warp meet the same pieces.
  constexpr bool shared() const { return conv.group_filters() % (8 * eights) == 0; }
  // Returns the offset of a chunk's input among all pieces, and that of an eight among those of its
  // chunk.
  constexpr int chunk_piece(int chunk) const {
    return chunk * filters / conv.group_filters() * conv.group_channels() / 8;
  }
  constexpr int first_piece(int eight) const {
    const int channel = lesser(8 * eight, conv.k - 1) / conv.group_filters() * conv.group_channels();
    return lesser(channel / 8 - chunk_piece(8 * eight / filters), pieces() - span());
  }

  // ---- The sum: piece by piece, column by column of the filter. A strip's output rows m and m + depth()
  // make one operand, whose two matrices at a filter row are a couple; couples that follow each other are
  // loaded together, for the products with two filter rows at once: 16 channels, two taps of 8 ----
  constexpr int depth() const { return rows / 2; }
  // If rows of outputs are as far apart as those of the filter, one chain of couples is for all of them:
  // number i has the input rows i and i + depth(). Else each m has a chain of its own.
  constexpr bool one_chain() const { return conv.stride_h == conv.dilation_h; }
  constexpr int chains() const { return one_chain() ? 1 : depth(); }
  constexpr int chain_outputs() const { return one_chain() ? depth() : 1; }  // ms of a chain
  constexpr int couples() const { return conv.r + chain_outputs() - 1; }     // of a chain
  // Pairs of filter rows, two words of weights each: from every row on in a chain of several outputs, whose
  // pairs begin at even couples; else from every second.
  constexpr int pair_step() const { return chain_outputs() > 1 ? 1 : 2; }
  constexpr int pairs() const {
    return greater(ceil_div(conv.r - 1, pair_step()) + (pair_step() == 2 && conv.r % 2 == 1), 1);
  }
  constexpr int column_words() const { return 2 * pairs(); }  // per lane
  // Returns the position, among a column's words, of the weight of a filter row that is multiplied alone.
  constexpr int single_word(int r) const {
    const int pair = lesser(r / pair_step(), pairs() - 1);
    return 2 * pair + r - pair * pair_step();
  }

  // ---- A tile's input in shared memory: [frame][row][column % stride][column / stride][piece], 16 bytes
  // each; zero where there is no image. Columns that outputs beside each other meet lie beside each other, an
  // odd number of pieces apart, so that eight of them are in banks of their own ----
  constexpr int pixel_bytes() const { return 16 * (pieces() + 1 - pieces() % 2); }
  constexpr int window_rows() const {  // per strip
    return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1;
  }
  constexpr int input_rows() const {
    return (tile_rows() - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1;
  }
  constexpr int input_columns() const {
    return (tile_columns() - 1) * conv.stride_w + (conv.s - 1) * conv.dilation_w + 1;
  }
  constexpr int phase_columns() const { return ceil_div(input_columns(), conv.stride_w); }
  constexpr int row_bytes() const { return pixel_bytes() * conv.stride_w * phase_columns(); }
  constexpr int frame_bytes() const { return input_rows() * row_bytes(); }
  constexpr int tile_bytes() const { return conv.t * frame_bytes(); }
  constexpr int column_offset(int column) const {  // per tile's row, or of a tap's column
    return pixel_bytes() * (column % conv.stride_w * phase_columns() + column / conv.stride_w);
  }
  // Returns the position in the image at which a tile begins.
  constexpr int first_row(int band) const { return band * tile_rows() * conv.stride_h - conv.pad_top; }
  constexpr int first_column(int side) const { return side * tile_columns() * conv.stride_w - conv.pad_left; }

  // ---- Weights: [eight][frame][piece][column][pair][lane][4 halves], as a lane has them in operands of
  // products
  // ----
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr int piece_words() const { return 32 * conv.s * column_words(); }
  constexpr int eight_words() const { return conv.t * span() * piece_words(); }
  // A few stay in registers, others in shared memory.
  constexpr bool kept() const {
    return conv.t * span() == 1 && eights * conv.s * column_words() <= kMostKept;
  }
  constexpr Packed packed() const {
    // An infinity among them makes NaN of a sum, which is then computed again.
    return Packed::halves(1LL * chunks() * (filters / 8) * eight_words(), conv.weights(), conv.k, false);
  }
  constexpr long long source_of(long long i) const {
    const int lane = static_cast<int>(i / 4 % 32);
    const int r = static_cast<int>(i / 128 % pairs()) * pair_step() + static_cast<int>(i / 2 % 2);
    const int s = static_cast<int>(i / (128 * pairs()) % conv.s);
    const int of_eight = static_cast<int>(i / (2 * piece_words()) % (conv.t * span()));
    const int eight = static_cast<int>(i / (2 * eight_words())), filter = 8 * eight + lane / 4;
    if (filter >= conv.k || r >= conv.r) return -1;
    const int piece = chunk_piece(8 * eight / filters) + first_piece(eight) + of_eight % span();
    const int channel = 8 * piece + lane % 4 * 2 + static_cast<int>(i % 2) -
                        filter / conv.group_filters() * conv.group_channels();  // for the group
    if (channel < 0 || channel >= conv.group_channels()) return -1;
    const long long frame = (1LL * filter * conv.group_channels() + channel) * conv.t + of_eight / span();
    return (frame * conv.r + r) * conv.s + s;
  }

  // ---- Shared memory ----
  // A warp's strip of all its filters, where the residual waits and from where outputs are stored, in pieces
  // of 16 bytes.
  constexpr int staging_bytes() const { return 16 * 8 * rows * eights; }
  // Which of them has 8 filters of a pixel: exchanged where eights are 2, 4 or 8, so that those of 8 columns,
  // which are written together, lie in banks of their own.
  constexpr int staged_piece(int row, int column, int eight) const {
    const int exchange = 8 % eights == 0 ? column * eights / 8 : 0;
    return (8 * row + column) * eights + (eight ^ exchange);
  }
  struct Smem {
    int staging, weights, input;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const int staging = plan.take(1LL * warps * staging_bytes());
    const int weights = plan.take(kept() ? 0 : 4LL * (filters / 8) * eight_words());
    const int input = plan.take(1LL * stages * tile_bytes());
    return {staging, weights, input, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Cost ----
  // Counts of a strip, piece and eight: products of 16 channels, and of 8; loads of two couples, and of one.
  constexpr int double_products() const {
    return conv.s * (depth() * (conv.r / 2) - (one_chain() && conv.r % 2 == 0 ? depth() / 2 : 0));
  }
  constexpr int single_products() const { return conv.s * depth() * conv.r - 2 * double_products(); }
  constexpr int double_loads() const { return conv.s * chains() * (couples() / 2); }
  constexpr int single_loads() const { return conv.s * chains() * (couples() % 2); }
  constexpr int products() const {
    return (double_products() + single_products()) * eights;
  }                                  // straight code
  constexpr int registers() const {  // about: ptxas decides, and loads many operands ahead
    return 46 + 2 * rows * eights + 5 * depth() + 3 * eights + 6 * (stages - 1) +
           column_words() * (kept()     ? eights * conv.s
                             : shared() ? eights
                                        : 1) +
           (shared() ? 0 : 12 * greater(eights - 2, 0)) + (conv.residual ? 16 : 0);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool possible() const {
    return is_in_range(*this) && rows % 2 == 0 && filters % (8 * eights) == 0 && warps % parts() == 0;
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && taps() <= kMostTaps && products() <= kMostProducts && window_rows() <= kMostWindow &&
           strip_warps() <= strips() && 1LL * input_rows() * input_columns() < (1 << 24) &&
           1LL * conv.t * input_rows() * row_bytes() < (1 << 24) && smem_bytes() <= smem_per_block &&
           registers() <= register_limit() && tiles() < (1LL << 31) && packed().launchable() &&
           conv.offsets_are_ints();
  }

  static constexpr int kMostRows = 16, kMostStrips = 128, kMostFilters = 256, kMostEights = 8;
  static constexpr int kMostTaps = 64, kMostWindow = 40;
  static constexpr int kMostKept = 48;       // words of weights in registers
  static constexpr int kMostProducts = 256;  // more compile for long
};

}  // namespace convtune
