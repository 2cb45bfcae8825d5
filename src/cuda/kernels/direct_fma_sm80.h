// The direct kernel on CUDA cores (direct_fma_sm80.cuh, which draws it): problem, choices, and what follows
// from them, shared by the kernel and by the host that plans it.
#pragma once

#include "conv2d_extents.h"

namespace convtune {

// A unit is one group of one image: its input planes lie behind each other in NCHW, and so do its output
// planes. A block takes `units` of them, a band of `down` strips of rows, and `chunks` chunks of filters. A
// thread has a strip, `rows` by 4 outputs, of one chunk, `filters` filters.
struct DirectFmaSm80 {
  Conv2dExtents problem;
  // The choices. `passes`: strips that a thread computes one after the other; `kept`: they are one place of
  // different filters, whose input stays in registers; `uniform`: all threads of a warp have the same
  // filters, so that weights can be in uniform registers; `staged`: outputs go through shared memory, and to
  // y in long runs.
  int rows = 1, filters = 1, down = 1, units = 1, chunks = 1, passes = 1;
  bool kept = false, uniform = false, staged = false;
  // Not a choice: x and y begin at multiples of 16 bytes.
  bool aligned = true;
  constexpr bool asks_alignment() const { return vectors() || staged || problem.q % kColumns == 0; }

  // ---- A block's part of the output ----
  constexpr long long all_units() const { return static_cast<long long>(problem.n) * problem.groups; }
  constexpr int across() const { return ceil_div(problem.q, kColumns); }  // strips beside each other
  constexpr int band_rows() const { return rows * down; }
  constexpr int bands() const { return ceil_div(problem.p, band_rows()); }
  constexpr int block_filters() const { return filters * chunks; }
  constexpr int filter_blocks() const { return ceil_div(problem.group_filters(), block_filters()); }
  constexpr long long blocks() const { return (all_units() + units - 1) / units * bands() * filter_blocks(); }
  // Of one chunk, with those that a warp leaves out.
  constexpr int places() const { return uniform ? round_up(down * across(), 32) : down * across(); }
  constexpr int strips() const { return units * chunks * places(); }
  constexpr int threads() const { return ceil_div(ceil_div(strips(), passes), 32) * 32; }

  // ---- The input in shared memory: [unit][channel][row][pitch], zero where there is no image ----
  constexpr bool vectors() const { return problem.w % 4 == 0; }  // read 16 bytes at once where `aligned`
  constexpr int margin() const { return vectors() ? round_up(problem.pad_left, 4) : problem.pad_left; }
  constexpr int window() const {  // columns that a strip reads
    return (kColumns - 1) * problem.stride_w + (problem.s - 1) * problem.dilation_w + 1;
  }
  constexpr int first_column() const { return margin() - problem.pad_left; }  // of the first strip's window
  constexpr int last_column() const {
    return first_column() + (across() - 1) * kColumns * problem.stride_w + window();
  }
  constexpr int stored_columns() const {  // of an input row; those behind are never used
    const int used = round_up(last_column() - margin(), vectors() ? 4 : 1);
    return used < 0 ? 0 : used < problem.w ? used : problem.w;
  }
  // With a vector more where the strips of the next rows then continue in the banks where those of a row end.
  constexpr int pitch() const {
    const int end = margin() + stored_columns();
    const int least = round_up(end > last_column() ? end : last_column(), 4);
    const bool continues = (rows * problem.stride_h * (least + 4) - across() * kColumns) % 32 == 0;
    return problem.stride_w == 1 && continues ? least + 4 : least;
  }
  constexpr int strip_rows() const {
    return (rows - 1) * problem.stride_h + (problem.r - 1) * problem.dilation_h + 1;
  }
  constexpr int input_rows() const { return (down - 1) * rows * problem.stride_h + strip_rows(); }
  constexpr int planes() const { return units * problem.group_channels(); }
  constexpr long long input_floats() const {
    return static_cast<long long>(planes()) * input_rows() * pitch();
  }
  // Which filter row makes output row `row` of a strip from the strip's input row `input`, or -1.
  constexpr int filter_row(int input, int row) const {
    const int distance = input - row * problem.stride_h;
    if (distance < 0 || distance % problem.dilation_h != 0) return -1;
    return distance / problem.dilation_h < problem.r ? distance / problem.dilation_h : -1;
  }
  constexpr bool is_used(int input) const {
    if (problem.dilation_h == 1 && problem.stride_h <= problem.r)
      return true;  // as the compiler sees at once
    for (int row = 0; row < rows; ++row)
      if (filter_row(input, row) >= 0) return true;
    return false;
  }

  // ---- Weights of a chunk: [channel][filter row][column][filter], rows of whole vectors; then its biases
  // ----
  constexpr int weight_row_floats() const { return round_up(problem.s * filters, 4); }
  constexpr int chunk_floats() const {
    return problem.group_channels() * problem.r * weight_row_floats() + round_up(filters, 4);
  }
  constexpr bool weights_in_registers() const { return problem.r * problem.s * filters <= 64; }
  constexpr int group_chunks() const { return filter_blocks() * chunks; }  // the last ones may be of nobody
  constexpr int weight_units() const { return problem.groups == 1 ? 1 : units; }  // that differ
  constexpr int block_weight_floats() const { return chunks * chunk_floats(); }   // for one of them

  // ---- Packed: every group's chunks, all weights as they came, the biases, and whether any is not finite
  // ----
  constexpr long long exact_weights() const {
    return static_cast<long long>(problem.groups) * group_chunks() * chunk_floats();
  }
  constexpr long long bias_at() const { return exact_weights() + problem.weights(); }
  constexpr long long flag_at() const { return bias_at() + problem.k; }
  constexpr long long packed_floats() const { return flag_at() + 1; }

  // ---- Shared memory: input, weights, staged outputs [unit][filter][row][q] ----
  constexpr long long staged_floats() const {
    return staged ? static_cast<long long>(units) * block_filters() * band_rows() * problem.q : 0;
  }
  constexpr long long smem_bytes() const {
    return 4 * (input_floats() + static_cast<long long>(weight_units()) * block_weight_floats() +
                staged_floats());
  }

  // ---- Cost ----
  constexpr int sums() const { return filters * rows * kColumns; }
  constexpr int products() const { return sums() * problem.r * problem.s; }  // in straight code
  constexpr int registers() const {                                          // about: ptxas decides
    const int weights = weights_in_registers() ? problem.r * problem.s * filters : weight_row_floats();
    int inputs = window();
    if (kept) {
      for (int row = 0; row < strip_rows() && inputs <= kMostRegisters; ++row)
        inputs += is_used(row) * window();
      inputs = (inputs - window()) * problem.group_channels();
    }
    return 24 + sums() + weights + inputs;
  }

  constexpr bool valid() const {
    return rows >= 1 && filters >= 1 && down >= 1 && units >= 1 && chunks >= 1 && passes >= 1 &&
           rows <= kMostRows && filters <= kMostFilters && down <= kMostStrips && units <= kMostStrips &&
           chunks <= kMostStrips && passes <= kMostPasses && across() <= kMostStrips &&
           window() <= kMostWindow &&
           static_cast<long long>(sums()) * problem.r * problem.s <= kMostProducts &&
           static_cast<long long>(units) * chunks * places() <= kMostThreads * kMostPasses &&
           (passes - 1) * threads() < strips() &&
           (!kept || (passes > 1 && units == 1 && threads() % places() == 0)) && threads() <= kMostThreads &&
           registers() <= kMostRegisters &&  // A quarter of the registers belongs to every fourth warp.
           (registers() + kSpareRegisters) * round_up(threads(), 128) <= 65536 && blocks() < (1LL << 31) &&
           packed_floats() / 256 < (1LL << 31) - 1 &&
           // Offsets in a plane are ints.
           static_cast<long long>(problem.h) * problem.w < (1LL << 30) &&
           static_cast<long long>(problem.p) * problem.q < (1LL << 30);
  }

  static constexpr int kColumns = 4;  // of a strip: a vector to store
  static constexpr int kMostRows = 16, kMostFilters = 16, kMostStrips = 1024, kMostPasses = 64;
  static constexpr int kMostThreads = 1024, kMostRegisters = 224, kMostWindow = 64;
  static constexpr int kSpareRegisters = 8;  // with fewer, all that was seen to spill does
  static constexpr int kMostProducts = 4096;

  static constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
  static constexpr int round_up(int a, int b) { return ceil_div(a, b) * b; }
};

}  // namespace convtune
