// The gradients of weights in half precision for tensor cores of compute capability 8.0 and up
// (weight_gradient_sm80.cuh, which draws it): problem, choices, and what follows from them, shared by the
// kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/smem.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

// A block has `filters` filters and what of their gradients `octets` eights of channels are, for all taps. It
// goes from tile to tile of dy, each `rows` by `columns` pixels of an image; `split` blocks share the tiles.
struct WeightGradientSm80 {
  ConvExtents conv;
  ElementType w_type = ElementType::f32;  // not a choice: dw's
  int rows = 1, columns = 16, filters = 16, octets = 1, warps_m = 1, warps_o = 1, warps_r = 1, stages = 1;
  int split = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "WeightGradientSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv), field("w_type", self.w_type);
    field("rows", self.rows, 1, 32, "rows of a tile of dy");
    field("columns", self.columns, 8, 256,
          "columns of a tile of dy, a multiple of 8; 16 pixels are a product's");
    field("filters", self.filters, 16, 256, "filters of a block, a multiple of 16 times warps_m");
    field("octets", self.octets, 1, 32, "eights of channels that meet a filter in a block");
    field("warps_m", self.warps_m, 1, 8, "warps along filters");
    field("warps_o", self.warps_o, 1, 8, "warps along eights of channels");
    field("warps_r", self.warps_r, 1, 11, "warps along rows of the filter, a part of them");
    field("stages", self.stages, 1, 4, "tiles of the ring");
    field("split", self.split, 1, 1 << 16, "blocks that share a sum");
    field("blocks", self.blocks, 1, 16, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return true; }
  constexpr int warps() const { return warps_m * warps_o * warps_r; }
  constexpr int threads() const { return 32 * warps(); }

  // ---- Units: 16 bytes of a row of x in shared memory, which lie beside each other where outputs do. Eight
  // channels of a pixel; or, of first layers with an even stride, two pixels of four channels. First layers
  // of volumes have a pixel's frames that a filter meets as channels: dw has taps of frames behind channels,
  // and a frame of y is an image ----
  constexpr int pixel_channels() const { return conv.c * conv.t; }
  constexpr bool first_layer() const {
    return conv.groups == 1 && pixel_channels() <= (conv.has_depth() ? 8 : 4);
  }
  constexpr int images() const { return conv.n * conv.z; }
  constexpr bool pairs() const {
    return first_layer() && pixel_channels() <= 4 && conv.stride_w % 2 == 0 && conv.dilation_w == 1;
  }
  constexpr int unit_pixels() const { return pairs() ? 2 : 1; }
  constexpr int unit_stride() const { return conv.stride_w / unit_pixels(); }  // from output to output
  constexpr int unit_dilation() const { return pairs() ? 1 : conv.dilation_w; }
  constexpr int row_taps() const { return ceil_div(conv.s, unit_pixels()); }  // units that an output meets
  constexpr int units() const {  // units of a tile's row, in unit_stride() phases
    return (columns - 1) * unit_stride() + (row_taps() - 1) * unit_dilation() + 1;
  }
  constexpr int phase_units() const { return ceil_div(units(), unit_stride()); }
  constexpr int unit_at(int unit) const {
    return unit % unit_stride() * phase_units() + unit / unit_stride();
  }
  constexpr int input_rows() const { return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1; }

  // ---- Filters and the channels that they meet. A product has 16 filters: a part of a group, or the filters
  // of several, whose channels are all multiplied and of which only a group's own count ----
  constexpr int group_channels() const { return conv.group_channels() * conv.t; }
  constexpr int group_filters() const { return conv.group_filters(); }
  constexpr bool narrow() const { return conv.groups > 1 && group_filters() < 16; }
  constexpr int sixteen_channels() const {  // that 16 filters meet
    return narrow() ? 16 / group_filters() * group_channels() : group_channels();
  }
  constexpr int all_octets() const { return first_layer() ? 1 : ceil_div(sixteen_channels(), 8); }
  // A block within one group may have a part of its channels; one of several groups has all of theirs.
  constexpr bool of_one_group() const {
    return conv.groups == 1 || (!narrow() && filters <= group_filters());
  }
  constexpr int octet_chunks() const { return ceil_div(all_octets(), octets); }
  constexpr int filter_chunks() const {
    return of_one_group() ? conv.groups * ceil_div(group_filters(), filters) : ceil_div(conv.k, filters);
  }
  constexpr int first_filter(int chunk) const {
    if (!of_one_group()) return chunk * filters;
    const int of_group = ceil_div(group_filters(), filters);
    return chunk / of_group * group_filters() + chunk % of_group * filters;
  }
  constexpr int end_filter(int chunk) const {
    if (!of_one_group()) return conv.k;
    return (chunk / ceil_div(group_filters(), filters) + 1) * group_filters();
  }
  constexpr int first_channel(int chunk, int octet_chunk) const {
    return first_filter(chunk) / group_filters() * group_channels() + 8 * octets * octet_chunk;
  }
  // Eights of channels of a block's pixels, and where those of 16 filters begin, counted from the block's.
  constexpr int block_octets() const {
    return of_one_group() ? octets : ceil_div(filters / group_filters() * group_channels(), 8);
  }
  constexpr int octet_of(int sixteen) const {
    return of_one_group() ? 0 : sixteen * 16 / group_filters() * group_channels() / 8;
  }

  // ---- A warp: sixteens of filters by columns of dw, eight each: of a filter row, a unit, an octet ----
  constexpr int sixteens() const { return filters / 16 / warps_m; }
  constexpr int warp_octets() const { return octets / warps_o; }
  constexpr int warp_rows() const { return conv.r / warps_r; }
  constexpr int eights() const { return warp_rows() * row_taps() * warp_octets(); }
  constexpr int sums() const { return 4 * sixteens() * eights(); }

  // ---- Tiles ----
  constexpr int sides() const { return ceil_div(conv.q, columns); }
  constexpr int bands() const { return ceil_div(conv.p, rows); }
  constexpr long long tiles() const { return 1LL * images() * bands() * sides(); }
  constexpr int chunks() const { return filter_chunks() * octet_chunks(); }
  constexpr long long all_blocks() const { return 1LL * chunks() * split; }
  constexpr long long turns() const { return ceil_div(tiles(), static_cast<long long>(split)); }
  constexpr int products() const { return rows * columns / 16; }  // products of 16 pixels

  // ---- Shared memory of a stage: x, [row][unit][channels]; dy, [pixel][filter]. Pixels are an odd number of
  // 16 bytes apart, so that eight of them are in different banks ----
  constexpr int unit_bytes() const {
    return first_layer() ? 16 : 16 * (block_octets() % 2 == 0 ? block_octets() + 1 : block_octets());
  }
  constexpr int row_bytes() const { return phase_units() * unit_stride() * unit_bytes(); }
  constexpr int input_bytes() const { return input_rows() * row_bytes(); }
  constexpr int pixel_bytes() const { return 2 * filters + 16; }
  constexpr int gradient_bytes() const { return rows * columns * pixel_bytes(); }
  constexpr int stage_bytes() const { return input_bytes() + gradient_bytes(); }
  constexpr long long smem_bytes() const { return 1LL * stages * stage_bytes(); }

  // ---- Partial sums, as floats: [rank][chunk][four of a thread][thread][4], biases behind a warp's ----
  constexpr int thread_fours() const { return sixteens() * (eights() + 1); }
  constexpr int chunk_fours() const { return thread_fours() * threads(); }
  constexpr long long rank_fours() const { return 1LL * chunks() * chunk_fours(); }
  constexpr long long partial_words() const { return 4 * rank_fours() * split; }
  // Returns the weight whose gradient element i of four `four` of a thread is, or -1; behind all weights: the
  // bias of a filter. Below: of a rank's four.
  constexpr long long weight_of(int chunk, int thread, int four, int i) const {
    const int lane = thread % 32, warp = thread / 32;
    const int m = warp % warps_m, o = warp / warps_m % warps_o, r = warp / warps_m / warps_o;
    const int sixteen = m * sixteens() + four % sixteens(), eight = four / sixteens();
    const int filter_chunk = chunk / octet_chunks(), octet_chunk = chunk % octet_chunks();
    const int filter = first_filter(filter_chunk) + 16 * sixteen + lane / 4 + i / 2 * 8;
    if (filter >= end_filter(filter_chunk)) return -1;
    const int column = lane % 4 * 2 + i % 2;
    if (eight == eights())  // sums of the bias: every column has the same
      return column == 0 && o == 0 && r == 0 && octet_chunk == 0 ? conv.weights() + filter : -1;
    const int octet = eight % warp_octets(), unit = eight / warp_octets() % row_taps();
    const int row = eight / warp_octets() / row_taps() * warps_r + r;
    const int s = pairs() ? 2 * unit + column / 4 : unit;
    const int of_pixel = pairs() ? column % 4 : 8 * (octet_of(sixteen) + o * warp_octets() + octet) + column;
    const int channel =
        first_channel(filter_chunk, octet_chunk) + of_pixel - filter / group_filters() * group_channels();
    if (row >= conv.r || s >= conv.s || channel < 0 || channel >= group_channels()) return -1;
    return ((1LL * filter * group_channels() + channel) * conv.r + row) * conv.s + s;
  }

  constexpr long long weight_of(long long four, int i) const {
    const int of_chunk = static_cast<int>(four % chunk_fours());
    return weight_of(static_cast<int>(four / chunk_fours()), of_chunk % threads(), of_chunk / threads(), i);
  }

  constexpr int registers() const {  // about: ptxas decides
    return sums() + 6 * sixteens() + (stages > 1 ? 48 : 40);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool fits_problem() const {
    if (conv.k % 8 != 0) return false;
    if (first_layer()) return true;
    if (conv.c % 8 != 0 || conv.has_depth()) return false;
    if (conv.groups == 1) return true;
    const bool filters_fit =
        narrow() ? 16 % group_filters() == 0 && conv.k % 16 == 0 : group_filters() % 16 == 0;
    return filters_fit && sixteen_channels() % 8 == 0;
  }
  constexpr bool possible() const {
    return is_in_range(*this) && fits_problem() && columns % 8 == 0 && rows * columns % 16 == 0 &&
           filters % (16 * warps_m) == 0 && octets % warps_o == 0 && octets <= all_octets() &&
           (of_one_group() ? conv.groups == 1 || group_filters() % filters == 0
                           : octets == all_octets() && filters % greater(group_filters(), 16) == 0 &&
                                 (sixteens() == 1 || group_filters() % (16 * sixteens()) == 0)) &&
           conv.r % warps_r == 0 && warps() <= 16 && sums() <= kMostSums &&
           1LL * input_rows() * row_bytes() < (1 << 20);  // counted in int
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && smem_bytes() <= smem_per_block && registers() <= register_limit() &&
           split <= tiles() && tiles() < (1LL << 30) && partial_sums_fit(partial_words(), split > 1) &&
           conv.offsets_are_ints() && input_rows() * phase_units() * unit_stride() < (1 << 16) &&
           all_blocks() < (1LL << 30);
  }
  static constexpr int kMostSums = 160;
};

}  // namespace convtune
