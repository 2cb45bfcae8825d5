// The depthwise kernel in half precision (direct_depthwise_half.cuh, which draws it): problem, choices, and
// what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// A block has 8 channels times `octets` of a tile of outputs: of `images` images, `bands` strips below each
// other and `across` beside each other, each of `rows` rows by 8 columns. All strips of a channel, at most
// 16, are the rows of one chain of products; a warp takes channels two at a time.
struct DirectDepthwiseHalf {
  ConvExtents conv;
  int rows = 1, bands = 1, across = 1, images = 1, octets = 1, warps = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DirectDepthwiseHalf";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 1, kMostRows, "output rows of a strip, which has 8 columns");
    field("bands", self.bands, 1, kStrips, "strips of a tile below each other");
    field("across", self.across, 1, kStrips, "strips of a tile beside each other");
    field("images", self.images, 1, kStrips, "images of a tile");
    field("octets", self.octets, 1, kMostOctets, "eights of channels of a block");
    field("warps", self.warps, 1, 4 * kMostOctets, "warps of a block, which share its pairs of channels");
    field("blocks", self.blocks, 1, 32, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return true; }
  // The least of blocks.
  static constexpr DirectDepthwiseHalf least(const ConvExtents& conv) { return {.conv = conv}; }
  constexpr int threads() const { return 32 * warps; }

  // ---- A block's part of the output ----
  constexpr int tile_rows() const { return rows * bands; }
  constexpr int tile_columns() const { return 8 * across; }
  constexpr int tile_pixels() const { return images * tile_rows() * tile_columns(); }
  constexpr int channels() const { return 8 * octets; }
  constexpr int pairs() const { return 4 * octets; }
  constexpr int chunks() const { return ceil_div(conv.c, channels()); }
  constexpr int sides() const { return ceil_div(conv.q, tile_columns()); }
  constexpr int levels() const { return ceil_div(conv.p, tile_rows()); }
  constexpr int image_sets() const { return ceil_div(conv.n, images); }
  constexpr long long all_blocks() const { return 1LL * chunks() * sides() * levels() * image_sets(); }
  // Returns the image row (column) at which a tile's input begins.
  constexpr int first_row(int level) const { return level * tile_rows() * conv.stride_h - conv.pad_top; }
  constexpr int first_column(int side) const { return side * tile_columns() - conv.pad_left; }

  // ---- Strips: row m of an operand is strip m. Eight of them are one matrix of ldmatrix ----
  constexpr int slots_across() const {  // a power of two
    int slots = 1;
    while (slots < across) slots *= 2;
    return slots;
  }
  constexpr int slots_down() const { return kStrips / slots_across(); }  // slots of images and bands
  constexpr int strip_across(int m) const { return slots_across() == kStrips ? m : m % 8 % slots_across(); }
  // Image by image. Those of a matrix are two apart, which leaves more choice of a pitch without conflicts.
  constexpr int strip_down(int m) const {
    return slots_across() == kStrips ? 0 : m % 8 / slots_across() * 2 + m / 8;
  }
  constexpr bool is_strip(int m) const { return strip_across(m) < across && strip_down(m) < images * bands; }
  constexpr int strip_image(int m) const { return strip_down(m) / bands; }
  constexpr int strip_band(int m) const { return strip_down(m) % bands; }

  // ---- Input in shared memory: [channel][image][row][column], halves, so that eight columns of a channel
  // are 16 bytes, a row of ldmatrix. A product's 16 columns end 8 behind the strip's ----
  constexpr int strip_rows() const { return (rows - 1) * conv.stride_h + conv.r; }
  constexpr int input_rows() const { return (tile_rows() - 1) * conv.stride_h + conv.r; }
  constexpr int input_columns() const { return tile_columns() + 8; }
  constexpr int read_columns() const { return tile_columns() + conv.s - 1; }  // the others stay zero
  constexpr int column_pairs() const { return input_columns() / 2; }
  // A matrix's rows that share their banks with others of it, at pitches in units of 16 bytes.
  constexpr int conflicts(int row_units, int image_units) const {
    int all = 0;
    for (int matrix = 0; matrix < 2; ++matrix) {
      int rows_at[8] = {};
      for (int m = 8 * matrix; m < 8 * matrix + 8; ++m)
        if (is_strip(m))
          ++rows_at[(strip_image(m) * image_units + strip_band(m) * rows * conv.stride_h * row_units +
                     strip_across(m)) %
                    8];
      int most = 0;
      for (const int some : rows_at) most = greater(most, some);
      all += greater(most - 1, 0);
    }
    return all;
  }
  struct Pitch {
    int row = 0, image = 0;  // bytes
    int conflicts = 0;       // of a load of four matrices
  };
  constexpr Pitch pitch() const {
    const int least_units = across + 1;
    Pitch best;
    int best_cost = 0;
    for (int row = least_units; row <= least_units + (bands > 1 ? 3 : 0); ++row)
      for (int more = 0; more <= (images > 1 ? 7 : 0); ++more) {
        const int image = input_rows() * row + more, conflict = conflicts(row, image);
        const int cost = (images * image << 4) * (4 + conflict);
        if (best_cost == 0 || cost < best_cost) best_cost = cost, best = {16 * row, 16 * image, 2 * conflict};
      }
    return best;
  }
  // Two planes beside each other are half of all banks apart, for outputs.
  constexpr int plane_bytes() const { return round_up(images * pitch().image + 64, 128) - 64; }
  // Eights of channels, which lanes beside each other have, begin in different banks.
  constexpr int octet_bytes() const { return 8 * plane_bytes() + round_up(4 * 32 / octets, 16) % 128; }
  constexpr int channel_offset(int channel) const {
    return channel / 8 * octet_bytes() + channel % 8 * plane_bytes();
  }
  // Outputs of two channels, words. They take the place of input that has been read: of a strip's row, of
  // which each plane has 8 halves, the first 4 words in the one plane and 4 in the next. With a residual they
  // have one of their own, where it waits for them.
  struct Outputs {
    int row = 0, image = 0, strip = 0, half = 0, pair = 0, octet = 0;  // bytes from one to the next
    constexpr int offset(int of_image, int of_row, int column) const {
      return of_image * image + of_row * row + column / 8 * strip + column % 8 / 4 * half + column % 4 * 4;
    }
  };
  constexpr Outputs outputs() const {
    if (!conv.residual)
      return {conv.stride_h * pitch().row, pitch().image, 16, plane_bytes(),
              2 * plane_bytes(),           octet_bytes()};
    // Eights of channels, which lanes beside each other have, begin in different banks.
    const int row = 32 * across, image = tile_rows() * row;
    const int pair = round_up(images * image - output_skew(), 128) + output_skew();
    return {row, image, 32, 16, pair, 4 * pair};
  }
  constexpr int output_skew() const { return greater(4 / octets * 8, 8); }
  // Columns in the order in which they are stored, that of their words.
  constexpr int stored_column(int i) const {
    const int half = tile_columns() / 2;
    return conv.residual ? i : i % half / 4 * 8 + i / half * 4 + i % 4;
  }
  // The input row of a strip behind which its output row is complete, and in nobody's way: the bands above
  // read the first rows of this one.
  constexpr int stored_after(int row) const {
    int after = row * conv.stride_h + conv.r - 1;
    for (int above = 1; above < bands && !conv.residual; ++above)
      if (const int input = (above * rows + row) * conv.stride_h; input < strip_rows())
        after = greater(after, input);
    return after;
  }

  // ---- Packed weights: [channel][place][filter row], words of two taps beside each other: place 0 has none
  // and the first, place 1 the first and the second ... Every lane has one place, in the one half of its
  // operand or the other: the rest of a band matrix is zeros ----
  constexpr int filter_words() const { return round_up(conv.r, 4); }
  constexpr int channel_words() const { return 8 * filter_words(); }
  constexpr Packed packed() const {
    // An infinity among them makes NaN of a sum, which is then computed again.
    return Packed::few_halves(1LL * chunks() * channels() * channel_words(), conv.weights(), conv.k, false);
  }
  constexpr long long source_of(long long i) const {
    const long long word = i / 2, channel = word / channel_words();
    const int row = static_cast<int>(word % filter_words());
    const int column = static_cast<int>(word / filter_words() % 8 - 1 + i % 2);
    if (channel >= conv.c || row >= conv.r || column < 0 || column >= conv.s) return -1;
    return (channel * conv.r + row) * conv.s + column;
  }

  // ---- Shared memory, in bytes ----
  struct Smem {
    int planes, filters, biases, outputs;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const int planes = plan.take(1LL * octets * octet_bytes());
    const int filters = plan.take(4LL * channels() * channel_words()), biases = plan.take(4LL * channels());
    const int own = conv.residual ? plan.take(1LL * octets * outputs().octet) : planes;
    return {planes, filters, biases, own, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Cost ----
  constexpr int products() const { return 2 * rows * conv.r; }       // per pair of channels: straight code
  constexpr int registers() const {                                  // about: ptxas decides
    const int live = lesser(rows, ceil_div(conv.r, conv.stride_h));  // rows of outputs under way
    const bool waits = !conv.residual && bands > 1 && (rows > live || (images > 1 && bands > 2));
    const int waiting = waits ? 4 * (conv.r - 1) : 0, added = conv.residual ? 8 : 0;
    return greater(32 + rows + 8 * live + 4 * conv.r + waiting + added * (1 + conv.eager),
                   images > 1 ? 96 : 80);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  // Rows of so many pieces that all threads take at once.
  constexpr int rows_abreast(int pieces) const { return greater(threads() / pieces, 1); }
  // Eights of channels of two pixels: those of a thread, of a column, and how many of them are under way
  // together, in 8 registers each.
  constexpr int thread_loads() const {
    return ceil_div(images * input_rows(), rows_abreast(column_pairs() * octets));
  }
  constexpr int loads_together() const {
    const int most = lesser((register_limit() - (images > 1 ? 64 : 40)) / 8, 12);
    return ceil_div(thread_loads(), ceil_div(thread_loads(), most));
  }
  // The residual's eights of one pixel: those of a thread and a column, and how many under way together.
  constexpr int thread_residuals() const {
    return ceil_div(images * tile_rows(), rows_abreast(tile_columns() * octets));
  }
  constexpr int residuals_together() const {
    const int most = lesser((register_limit() - (images > 1 ? 64 : 40)) / 4, 16);
    return ceil_div(thread_residuals(), ceil_div(thread_residuals(), most));
  }

  constexpr bool possible() const {
    return is_in_range(*this) && images * bands <= slots_down() && warps <= pairs();
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && 1LL * input_rows() * input_columns() < (1 << 16) && products() <= kMostProducts &&
           smem_bytes() <= smem_per_block && registers() <= register_limit() && all_blocks() < (1LL << 31) &&
           packed().launchable() && conv.offsets_are_ints(images) &&
           // Rows of padding may be more than an image's own.
           1LL * (images * input_rows() + conv.pad_top) * conv.w < (1LL << 31) / conv.c;
  }

  static constexpr int kStrips = 16, kMostRows = 16, kMostOctets = 8;
  static constexpr int kMostFilter = 7;      // rows and columns: of a band's two halves a lane has one
  static constexpr int kMostProducts = 256;  // more compile for long
};

}  // namespace convtune
