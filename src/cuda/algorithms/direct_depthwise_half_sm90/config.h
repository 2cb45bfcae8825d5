// The depthwise kernel in half precision for compute capability 9.0 (direct_depthwise_half_sm90.cuh, which
// draws it): problem, choices, and what follows from them, shared by the kernel and by the host that plans
// it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// A block has 8 channels times `octets`, and of them tile after tile: of `images` images, `bands` strips
// below each other and `across` beside each other, each of `rows` rows by width() columns. 16 strips of a
// channel are the rows of a product; a warp has four channels of 16 strips, all strips are those of `groups`
// warps.
struct DirectDepthwiseHalfSm90 {
  ConvExtents conv;
  int rows = 1, bands = 1, across = 1, images = 1, octets = 1, groups = 1, stages = 2, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DirectDepthwiseHalfSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 1, kMostRows, "output rows of a strip");
    field("bands", self.bands, 1, kStrips * kMostGroups, "strips of a tile below each other");
    field("across", self.across, 1, kStrips * kMostGroups, "strips of a tile beside each other");
    field("images", self.images, 1, kStrips * kMostGroups, "images of a tile");
    field("octets", self.octets, 1, kMostOctets,
          "eights of channels of a block: 1, 2, 4, 8 or an odd number");
    field("groups", self.groups, 1, kMostGroups, "warps with the same channels, of 16 strips each");
    field("stages", self.stages, 2, kMostStages, "input rows of a tile kept at once");
    field("blocks", self.blocks, 1, 8, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return true; }
  static constexpr DirectDepthwiseHalfSm90 least(const ConvExtents& conv) { return {.conv = conv}; }

  // ---- Warps: those that multiply, and two that copy, which fills warpgroups ----
  constexpr int quads() const { return 2 * octets; }
  constexpr int consumers() const { return quads() * groups; }
  // Warpgroups hand registers on: all of one leave them, and so the one that copies is a whole one.
  constexpr bool passes_registers() const { return consumers() % 4 == 0; }
  constexpr int threads() const { return 32 * (consumers() + (passes_registers() ? 4 : 2)); }
  static constexpr int kCopying = 40;  // registers
  constexpr int launch_registers() const { return registers_by_quarters(threads(), blocks); }
  constexpr int register_limit() const {  // for warps that multiply
    if (!passes_registers()) return launch_registers();
    return lesser((launch_registers() * (threads() / 128) - kCopying) / (consumers() / 4) / 8 * 8, 240);
  }

  // ---- A tile of the output. A strip is as wide as 16 columns of the image allow, and at most 8 ----
  constexpr int width() const { return lesser(8, (16 - conv.s) / conv.stride_w + 1); }
  constexpr int tile_rows() const { return rows * bands; }
  constexpr int band_rows() const { return rows * levels(); }  // from a band of an image to the next
  constexpr int tile_columns() const { return width() * across; }
  constexpr int tile_pixels() const { return images * tile_rows() * tile_columns(); }
  constexpr int channels() const { return 8 * octets; }
  constexpr int chunks() const { return ceil_div(conv.c, channels()); }
  constexpr int sides() const { return ceil_div(conv.q, tile_columns()); }
  constexpr int levels() const { return ceil_div(conv.p, tile_rows()); }
  constexpr int image_sets() const { return ceil_div(conv.n, images); }
  constexpr long long chunk_tiles() const { return 1LL * sides() * levels() * image_sets(); }
  constexpr long long tiles() const { return chunks() * chunk_tiles(); }
  // Tells whether strips go on in the tile below, as sums that began in the one are those of the other's
  // input.
  constexpr bool rolls() const {
    return levels() > 1 && rows * conv.stride_h >= conv.r && conv.r > conv.stride_h;
  }
  constexpr int turn_rows() const { return rows * conv.stride_h; }  // rows of input
  // Returns the image row (column) at which a tile's input begins.
  constexpr int first_row(int level) const { return level * rows * conv.stride_h - conv.pad_top; }
  constexpr int first_column(int side) const { return side * tile_columns() * conv.stride_w - conv.pad_left; }

  // ---- Strips: those at the same columns first, so that two that follow each other are multiples of eight
  // pixels apart ----
  constexpr int down() const { return bands * images; }
  constexpr int strips() const { return down() * across; }
  constexpr int strip_across(int strip) const { return strip / down(); }
  constexpr int strip_band(int strip) const { return strip % down() % bands; }
  constexpr int strip_image(int strip) const { return strip % down() / bands; }
  // Rows of an operand 8 apart are a pair, which the same lanes have. Where strips beside each other are a
  // pair, the one's last columns are the other's first, and are loaded once. The last may have no other.
  constexpr bool paired() const { return across > 1 && width() * conv.stride_w == 8; }
  constexpr int strips_of_pair() const { return paired() ? 2 : 1; }
  constexpr int units() const { return down() * ceil_div(across, strips_of_pair()); }  // pairs, or strips
  constexpr int group_units() const { return kStrips / strips_of_pair(); }
  // Addresses of an operand's row of a group of warps, which may be beyond all, and which it reads instead:
  // the last whose number is even or odd as its own.
  constexpr int unit_of(int group, int row) const {
    return group * group_units() + (paired() ? row % 8 : row);
  }
  constexpr int read_unit(int unit) const {
    return unit < units() ? unit : greater(units() - 1 - (unit - units() + 1) % 2, 0);
  }
  constexpr int first_strip(int unit) const {
    return unit / down() * strips_of_pair() * down() + unit % down();
  }
  // The strip whose outputs a row has, or none: -1.
  constexpr int strip_of(int group, int row) const {
    const int unit = unit_of(group, row);
    const int strip = first_strip(unit) + (paired() ? row / 8 * down() : 0);
    return unit < units() && strip < strips() ? strip : -1;
  }

  // ---- Input in shared memory. A stage is a row of all strips: [band][image][column][channel], as TMA has
  // it. A product's 16 columns may end behind what the filter reads ----
  constexpr int strip_rows() const { return (rows - 1) * conv.stride_h + conv.r; }
  constexpr int pitch() const { return round_up((across - 1) * width() * conv.stride_w + 16, 8); }
  constexpr int input_pixel(int strip) const {
    return (strip_band(strip) * images + strip_image(strip)) * pitch() +
           strip_across(strip) * width() * conv.stride_w;
  }
  constexpr int pixel_bytes() const { return 16 * octets; }
  // Pieces of 16 bytes are exchanged so that those of eight pixels in a row lie in different banks. An odd
  // number of them does as they are.
  constexpr bool swizzled() const { return octets % 2 == 0; }
  constexpr int piece_at(int pixel, int piece) const {
    return swizzled() ? piece ^ (pixel * octets / 8 % octets) : piece;
  }
  // Handles four channels of a pixel.
  constexpr int offset(int pixel, int quad) const {
    return pixel * pixel_bytes() + 16 * piece_at(pixel, quad / 2) + quad % 2 * 8;
  }
  constexpr int band_bytes() const { return images * pitch() * pixel_bytes(); }
  constexpr int stage_bytes() const { return round_up(bands * band_bytes(), 1024); }
  // The row's output that is complete behind an input row of a strip, or -1.
  constexpr int finished(int input) const {
    const int first = input - (conv.r - 1);
    return first >= 0 && first % conv.stride_h == 0 ? first / conv.stride_h : -1;
  }

  // ---- Outputs on their way, and before that the residual: a row of all strips, [band][image][column]
  // [channel], as stages have x ----
  // Every other band half of all banks away: lanes of odd strips store their columns in the others' order.
  constexpr bool staggered() const { return bands % 2 == 0 && swizzled(); }
  constexpr int band_pixels() const { return round_up(images * tile_columns(), 8) + (staggered() ? 4 : 0); }
  constexpr int output_pixel(int strip) const {
    return strip_band(strip) * band_pixels() + strip_image(strip) * tile_columns() +
           strip_across(strip) * width();
  }
  constexpr int slot_bytes() const { return round_up(bands * band_pixels() * pixel_bytes(), 1024); }
  constexpr int slots() const { return conv.residual ? 6 : 3; }

  // ---- Columns: a lane has four of the image, 4 apart, and two of the output, 4 apart. So lanes of two
  // strips read eight pixels in a row: one begins with the second of two ----
  static constexpr int output_column(int n) { return n / 2 + n % 2 * 4; }
  // Which of its two columns a lane loads first or second, and which it stores: of an odd row of operands the
  // other one, unless outputs are staggered.
  static constexpr int loaded_column(int j, bool odd) { return j ^ static_cast<int>(odd); }
  constexpr int stored_column(int j, bool odd) const { return staggered() ? j : loaded_column(j, odd); }

  // ---- Packed weights: [channel][place][filter row], words of two taps 4 apart. Place `origin()` begins
  // with the first tap; a lane has the word of place lane % 4 - stride * column, and that 8 places on ----
  constexpr int origin() const { return 7 * conv.stride_w; }
  constexpr int places() const { return origin() + 12; }
  constexpr int filter_words() const { return round_up(conv.r, 4); }
  constexpr int channel_words() const { return places() * filter_words(); }
  constexpr Packed packed() const {
    // An infinity among them makes NaN of a sum, which is then computed again.
    return Packed::few_halves(1LL * chunks() * channels() * channel_words(), conv.weights(), conv.k, false);
  }
  struct Weights {  // in numbers, which the kernel that packs has as constants
    int filter_words, places, origin, c, r, s;

    constexpr long long source_of(long long i) const {
      const long long word = i / 2, channel = word / (places * filter_words);
      const int row = static_cast<int>(word % filter_words);
      const int column = static_cast<int>(word / filter_words % places) - origin + (i % 2 == 0 ? 0 : 4);
      if (channel >= c || row >= r || column < 0 || column >= s) return -1;
      return (channel * r + row) * s + column;
    }
  };
  constexpr Weights weights() const { return {filter_words(), places(), origin(), conv.c, conv.r, conv.s}; }
  constexpr long long source_of(long long i) const { return weights().source_of(i); }

  // ---- Shared memory, in bytes ----
  struct Smem {
    int inputs, outputs, full, empty, ready, finished, found;  // a NaN
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const int inputs = plan.take(1LL * stages * stage_bytes());
    const int outputs = plan.take(1LL * slots() * slot_bytes());
    const int full = plan.take(8 * stages), empty = plan.take(8 * stages);
    const int ready = plan.take(8 * slots()), done = plan.take(8 * slots());
    const int found = plan.take(8);
    return {inputs, outputs, full, empty, ready, done, found, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Cost ----
  constexpr int products() const { return 4 * rows * conv.r; }  // products of four channels: straight code
  constexpr int live_rows() const { return lesser(rows, ceil_div(conv.r, conv.stride_h)); }
  constexpr int registers() const {  // about: ptxas decides
    return 56 + 16 * live_rows() + 8 * conv.r + (conv.eager ? 8 : 0);
  }

  constexpr bool possible() const {
    return is_in_range(*this) && (octets % 2 == 1 || octets == 2 || octets == 4 || octets == 8) &&
           units() <= group_units() * groups && units() > group_units() * (groups - 1) && pitch() <= 256 &&
           images <= 256 && consumers() <= kMostConsumers;
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && !(rolls() && rows > kMostRolled) && products() <= kMostProducts &&
           smem_bytes() <= smem_per_block && registers() <= register_limit() && tiles() < (1LL << 30) &&
           packed().launchable() && conv.offsets_are_ints(images);
  }

  static constexpr int kMostRolled = 8;  // rows: ptxas spills of more
  static constexpr int kStrips = 16, kMostRows = 16, kMostOctets = 9, kMostGroups = 4, kMostStages = 24;
  static constexpr int kMostConsumers = 24;
  static constexpr int kMostFilter = 7;      // rows and columns
  static constexpr int kLeastTaps = 25;      // below them products with zeros cost more than they save
  static constexpr int kMostProducts = 512;  // more compile for long
};

}  // namespace convtune
