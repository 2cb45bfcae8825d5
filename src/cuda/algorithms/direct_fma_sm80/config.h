// The direct kernel on CUDA cores (direct_fma_sm80.cuh, which draws it): problem, choices, and what follows
// from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// A unit is one group of one image: its input planes lie behind each other in NCHW, and so do its output
// planes. A block takes `units` of them, a band of `down` strips of rows, and `chunks` chunks of filters. A
// thread has a strip, `rows` by 4 outputs, of one chunk, `filters` filters.
struct DirectFmaSm80 {
  ConvExtents conv;
  int rows = 1, filters = 1, down = 1, units = 1, chunks = 1, passes = 1;
  bool kept = false, uniform = false, staged = false;
  bool aligned = true;  // not a choice: x and y begin at multiples of 16 bytes
  static constexpr const char* kName = "DirectFmaSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 1, kMostRows, "rows of a thread's strip of outputs, 4 columns each");
    field("filters", self.filters, 1, kMostFilters, "filters of a thread's strip");
    field("down", self.down, 1, kMostStrips, "strips below each other in a block");
    field("units", self.units, 1, kMostStrips, "units of a block: groups of an image");
    field("chunks", self.chunks, 1, kMostStrips, "chunks of `filters` filters in a block");
    field("passes", self.passes, 1, kMostPasses, "strips that a thread computes one after the other");
    field("kept", self.kept, 0, 1,
          "passes are different filters of one place, whose input stays in registers");
    field("uniform", self.uniform, 0, 1,
          "all threads of a warp have the same filters, so that weights can be in uniform registers");
    field("staged", self.staged, 0, 1, "outputs go through shared memory, and to y in long runs");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return vectors() || staged || conv.q % kColumns == 0; }

  // ---- A block's part of the output ----
  constexpr long long all_units() const { return static_cast<long long>(conv.n) * conv.groups; }
  // Long rows are several blocks', in equal parts of whole vectors.
  constexpr int sides() const { return ceil_div(conv.q, kMostColumns); }
  constexpr int block_columns() const {
    return sides() == 1 ? conv.q : round_up(ceil_div(conv.q, sides()), 8);
  }
  constexpr int across() const { return ceil_div(block_columns(), kColumns); }  // strips beside each other
  constexpr int band_rows() const { return rows * down; }
  constexpr int bands() const { return ceil_div(conv.p, band_rows()); }
  constexpr int block_filters() const { return filters * chunks; }
  constexpr int filter_blocks() const { return ceil_div(conv.group_filters(), block_filters()); }
  constexpr long long blocks() const {
    return ceil_div(all_units(), units) * bands() * filter_blocks() * sides();
  }
  // Positions of one chunk, with those that a warp leaves out.
  constexpr int places() const { return uniform ? round_up(down * across(), 32) : down * across(); }
  constexpr int strips() const { return units * chunks * places(); }
  constexpr int threads() const { return ceil_div(ceil_div(strips(), passes), 32) * 32; }

  // ---- The input in shared memory: [unit][channel][row][pitch], zero where there is no image ----
  constexpr bool vectors() const { return conv.w % 4 == 0; }  // read 16 bytes at once where `aligned`
  constexpr int margin() const {
    return vectors() ? round_up(conv.pad_left, sides() > 1 ? 8 : 4) : conv.pad_left;
  }
  constexpr int window() const {  // columns that a strip reads
    return (kColumns - 1) * conv.stride_w + (conv.s - 1) * conv.dilation_w + 1;
  }
  constexpr int first_column() const { return margin() - conv.pad_left; }  // for the first strip's window
  constexpr int last_column() const {
    return first_column() + (across() - 1) * kColumns * conv.stride_w + window();
  }
  constexpr int stored_columns() const {  // per input row; those behind are never used
    const int used = round_up(last_column() - margin(), vectors() ? 4 : 1);
    return used < 0 ? 0 : used < conv.w ? used : conv.w;
  }
  // Columns that are brought, from which on. A part of a row brings its margins too: they may be another's.
  constexpr int loaded_columns() const {
    return sides() == 1 ? stored_columns() : round_up(last_column(), vectors() ? 8 : 1);
  }
  constexpr int loaded_from() const { return sides() == 1 ? margin() : 0; }
  // With a vector more where the strips of the next rows then continue in the banks where those of a row end.
  constexpr int pitch() const {
    const int end = loaded_from() + loaded_columns();
    const int least = round_up(end > last_column() ? end : last_column(), 4);
    const bool continues = (rows * conv.stride_h * (least + 4) - across() * kColumns) % 32 == 0;
    return conv.stride_w == 1 && continues ? least + 4 : least;
  }
  constexpr int strip_rows() const { return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1; }
  constexpr int input_rows() const { return (down - 1) * rows * conv.stride_h + strip_rows(); }
  constexpr int planes() const { return units * conv.group_channels(); }
  constexpr long long input_floats() const {
    return static_cast<long long>(planes()) * input_rows() * pitch();
  }
  // Which filter row makes output row `row` of a strip from the strip's input row `input`, or -1.
  constexpr int filter_row(int input, int row) const {
    const int distance = input - row * conv.stride_h;
    if (distance < 0 || distance % conv.dilation_h != 0) return -1;
    return distance / conv.dilation_h < conv.r ? distance / conv.dilation_h : -1;
  }
  constexpr bool is_used(int input) const {
    if (conv.dilation_h == 1 && conv.stride_h <= conv.r) return true;  // as the compiler sees at once
    for (int row = 0; row < rows; ++row)
      if (filter_row(input, row) >= 0) return true;
    return false;
  }

  // Columns of half precision that a thread brings at once; they are widened on their way.
  constexpr int copied_halves() const {
    if (!aligned || !vectors()) return 1;
    return conv.w % 8 == 0 && loaded_columns() % 8 == 0 ? 8 : 4;
  }
  constexpr bool halves() const { return conv.x_type != ElementType::f32; }

  // ---- Weights of a chunk: [channel][filter row][column][filter], rows of whole vectors; then its biases
  // ----
  constexpr int weight_row_floats() const { return round_up(conv.s * filters, 4); }
  constexpr int chunk_floats() const {
    return conv.group_channels() * conv.r * weight_row_floats() + round_up(filters, 4);
  }
  constexpr bool weights_in_registers() const { return conv.r * conv.s * filters <= 64; }
  constexpr int group_chunks() const { return filter_blocks() * chunks; }  // the last ones may be of nobody
  constexpr int weight_units() const { return conv.groups == 1 ? 1 : units; }    // that differ
  constexpr int block_weight_floats() const { return chunks * chunk_floats(); }  // for one of them

  // ---- Packed weights: every group's chunks ----
  constexpr Packed packed() const {
    return {1LL * conv.groups * group_chunks() * chunk_floats(), conv.weights(), conv.k};
  }
  constexpr long long source_of(long long i) const {
    const int row_floats = weight_row_floats(), biases = conv.group_channels() * conv.r * row_floats;
    const int at = static_cast<int>(i % chunk_floats());
    const long long chunk = i / chunk_floats(), group = chunk / group_chunks();
    const int in_chunk = at >= biases ? at - biases : at % row_floats % filters;
    const int filter = static_cast<int>(chunk % group_chunks()) * filters + in_chunk;  // for the group
    const long long k = group * conv.group_filters() + filter;
    if (in_chunk >= filters || filter >= conv.group_filters()) return -1;
    if (at >= biases) return conv.weights() + k;
    const int row = at / row_floats, s = at % row_floats / filters;  // row: channel * r + filter row
    return s < conv.s ? (k * (conv.group_channels() * conv.r) + row) * conv.s + s : -1;
  }

  // ---- Shared memory: where each region begins, in floats. Staged outputs are [unit][filter][row][q] ----
  struct Smem {
    int input, weights, staged;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    return {.input = plan.take(input_floats()),
            .weights = plan.take(1LL * weight_units() * block_weight_floats()),
            .staged = plan.take(staged ? 1LL * units * block_filters() * band_rows() * conv.q : 0),
            .end = plan.end};
  }
  constexpr long long smem_bytes() const { return 4 * smem().end; }

  // ---- Cost ----
  constexpr int sums() const { return filters * rows * kColumns; }
  constexpr int products() const { return sums() * conv.r * conv.s; }  // in straight code
  constexpr int registers() const {                                    // about: ptxas decides
    const int weights = weights_in_registers() ? conv.r * conv.s * filters : weight_row_floats();
    int inputs = window();
    if (kept) {
      for (int row = 0; row < strip_rows() && inputs <= kMostRegisters; ++row)
        inputs += is_used(row) * window();
      inputs = (inputs - window()) * conv.group_channels();
    }
    return 24 + sums() + weights + inputs;
  }

  constexpr bool valid() const {
    return is_in_range(*this) && across() <= kMostStrips && window() <= kMostWindow &&
           static_cast<long long>(sums()) * conv.r * conv.s <= kMostProducts &&
           static_cast<long long>(units) * chunks * places() <= kMostThreads * kMostPasses &&
           (passes - 1) * threads() < strips() && (!staged || sides() == 1) &&
           (!kept || (passes > 1 && units == 1 && threads() % places() == 0)) && threads() <= kMostThreads &&
           registers() <= kMostRegisters &&  // A quarter of the registers belongs to every fourth warp.
           (registers() + kSpareRegisters) * round_up(threads(), 128) <= 65536 && blocks() < (1LL << 31) &&
           packed().launchable() &&  // Offsets in a plane are ints.
           static_cast<long long>(conv.h) * conv.w < (1LL << 30) &&
           static_cast<long long>(conv.p) * conv.q < (1LL << 30);
  }

  static constexpr int kColumns = 4;  // per strip: a vector to store
  static constexpr int kMostColumns = 1024;
  static constexpr int kMostRows = 16, kMostFilters = 16, kMostStrips = 1024, kMostPasses = 64;
  static constexpr int kMostThreads = 1024, kMostRegisters = 224, kMostWindow = 64;
  static constexpr int kSpareRegisters = 8;  // with fewer, all that was seen to spill does
  static constexpr int kMostProducts = 4096;
};

}  // namespace convtune
