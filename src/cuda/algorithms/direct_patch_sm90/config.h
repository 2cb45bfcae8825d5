// The direct kernel for patches on compute capability 9.0 (direct_patch_sm90.cuh, which draws it): problem,
// choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

struct DirectPatchSm90 {
  ConvExtents conv;
  int consumers = 3, filters = 192, rows = 1, stages = 4;
  static constexpr const char* kName = "DirectPatchSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("consumers", self.consumers, 1, 3, "warpgroups that multiply, 64 positions each");
    field("filters", self.filters, 32, 256, "filters of a block, a multiple of 32");
    field("rows", self.rows, 1, 1 << 20, "filter rows of a stage, a divisor of the filter's");
    field("stages", self.stages, 2, kMostStages, "stages kept at once");
  }

  // Patches neither overlap nor leave gaps, and rows of input are multiples of 128 bytes.
  static constexpr bool takes(const ConvExtents& a) {
    return a.groups == 1 && a.r == a.stride_h && a.s == a.stride_w && a.dilation_h == 1 &&
           a.dilation_w == 1 && a.pad_top == 0 && a.pad_left == 0 && a.p * a.r <= a.h && a.q * a.s <= a.w &&
           a.w % 32 == 0 && (a.s % 16 == 0 || a.s == 8 || a.s == 4);
  }

  // ---- The sum: a stage is `rows` filter rows of a channel, in blocks of 16 numbers ----
  // A thread holds 4 numbers that follow each other in x, a chunk: thread t of 4 has the t-th chunk of a
  // block. Products take 8 numbers: a chunk's first two are columns t and t + 4 of one, the others of the
  // next. So the sum's order is not the filter's, which only those who pack need to know.
  constexpr int row_chunks() const { return conv.s / 4; }  // per filter row
  constexpr int stage_numbers() const { return rows * conv.s; }
  constexpr int blocks() const { return stage_numbers() / 16; }  // per stage
  constexpr int steps() const { return 2 * blocks(); }           // products of a stage
  constexpr int sum_stages() const { return conv.c * (conv.r / rows); }
  constexpr int chunk_of(int block, int thread) const { return 4 * block + thread; }
  // Locates a number of a stage in its filter: the stage's row, and the column.
  struct Number {
    int row, column;
  };
  constexpr Number number(int step, int column) const {
    const int chunk = chunk_of(step / 2, column % 4);
    return {chunk / row_chunks(), chunk % row_chunks() * 4 + step % 2 * 2 + column / 4};
  }
  // Bytes from a position's first number in a stage to a thread's chunk of a block: the two add up.
  constexpr int block_bytes(int block) const { return chunk_bytes(chunk_of(block, 0)); }
  constexpr int thread_bytes(int thread) const { return chunk_bytes(thread); }

  // ---- Positions: all outputs of all images, one after the other ----
  constexpr int block_positions() const { return kTile * consumers; }
  constexpr long long all_positions() const { return static_cast<long long>(conv.n) * conv.p * conv.q; }
  constexpr int position_tiles() const {
    return static_cast<int>(ceil_div(all_positions(), block_positions()));
  }
  // Rows of patches that a tile meets at most: it begins at a multiple of what the two have in common.
  constexpr int patch_rows() const {
    return (conv.q - gcd(conv.q, block_positions()) + block_positions() - 1) / conv.q + 1;
  }
  constexpr int row_bytes() const { return rows * conv.w * 4; }  // per row of patches, in a stage
  // The copy engine takes some rows of patches at once, of one image and channel.
  constexpr int most_box_rows() const {
    const int rows_of_image = conv.p < patch_rows() ? conv.p : patch_rows();
    return rows_of_image < kInputBoxes ? rows_of_image : kInputBoxes;
  }
  // It counts no further than 256: a row of input is some pieces of as many columns.
  constexpr int box_columns() const {
    int columns = 32;
    for (int pieces = 1; pieces <= 8; ++pieces)
      if (conv.w % (32 * pieces) == 0) columns = 32 * pieces;
    return columns;
  }

  // ---- A stage: rows of patches as they lie in x, then the weights of all filters of the block ----
  constexpr long long input_bytes() const { return static_cast<long long>(patch_rows()) * row_bytes(); }
  constexpr int weight_bytes() const { return stage_numbers() * filters * 4; }
  constexpr long long stage_bytes() const { return input_bytes() + weight_bytes(); }

  // ---- A block; one more warpgroup, of which one warp loads ----
  constexpr int filter_blocks() const { return ceil_div(conv.k, filters); }
  constexpr long long tiles() const { return static_cast<long long>(position_tiles()) * filter_blocks(); }
  constexpr int product_columns() const { return filters; }
  constexpr int threads() const { return 128 * (consumers + 1); }
  constexpr int sums() const { return filters / 2; }  // registers of a thread

  // ---- Outputs on their way through shared memory, a warpgroup's in two slots ----
  // A slot has 2 boxes of kStagedFilters rows of 32 positions, 128 bytes; within 8 rows the 16-byte pieces
  // are swizzled, as the copy engine does it: so no two threads of a warp write to one bank.
  constexpr int staging_bytes() const { return consumers * kSlots * kSlotBytes; }
  static constexpr int staged_at(int filter, int position) {  // bytes, in a box
    return filter * 128 + ((position / 4 ^ filter % 8) * 16) + position % 4 * 4;
  }
  // Tells whether boxes of y can be stored: the copy engine counts in 16 bytes.
  constexpr bool has_boxes() const { return conv.p * conv.q % 4 == 0; }

  // ---- Shared memory: where each region begins, in bytes. A stage is `full`, or `done` ----
  struct Smem {
    int staging, stages, full, done;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    return {.staging = plan.take(staging_bytes()),
            .stages = plan.take(stages * stage_bytes()),
            .full = plan.take(8 * stages),
            .done = plan.take(8 * stages),
            .end = plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Packed weights: [filter block][stage][step][half of the step's columns][filter][column]. Biases of
  // all filters of the blocks ----
  constexpr long long block_weights() const {
    return static_cast<long long>(sum_stages()) * stage_numbers() * filters;
  }
  constexpr Packed packed() const {
    return {.prepared = filter_blocks() * block_weights(),
            .weights = conv.weights(),
            .biases = conv.k,
            .zeros = 1LL * filter_blocks() * filters - conv.k};
  }
  constexpr long long source_of(long long i) const {
    const int groups = conv.r / rows;  // stages of a channel
    const int column = static_cast<int>(i % 4), filter = static_cast<int>(i / 4 % filters);
    const int half = static_cast<int>(i / (4 * filters) % 2);
    const int step = static_cast<int>(i / (8 * filters) % steps());
    const int stage = static_cast<int>(i / (8LL * filters * steps()) % sum_stages());
    const int k = static_cast<int>(i / block_weights()) * filters + filter;
    if (k >= conv.k) return -1;
    const Number at = number(step, 4 * half + column);
    const long long row =
        (static_cast<long long>(k) * conv.c + stage / groups) * conv.r + stage % groups * rows + at.row;
    return row * conv.s + at.column;
  }

  // Tells whether the kernel compiles without spilling and a multiprocessor can hold a block of it.
  constexpr bool valid(long long smem_per_block) const {
    if (!takes(conv) || !is_in_range(*this) || (consumers == 3 && filters > 192) || filters % 32 != 0 ||
        conv.r % rows != 0 || rows > kMostStageNumbers || conv.s > kMostStageNumbers ||
        stage_numbers() > kMostStageNumbers || stage_numbers() % 16 != 0)
      return false;
    return all_positions() < kInt && tiles() < kInt && conv.w < smem_per_block &&
           conv.w / box_columns() <= 256 && conv.r <= 256 && smem_bytes() <= smem_per_block;
  }

  static constexpr int kTile = 64;  // positions of a product
  static constexpr int kStagedFilters = 32, kSlots = 2, kBoxBytes = kStagedFilters * 128;
  static constexpr int kSlotBytes = 2 * kBoxBytes;
  static constexpr int kMostStageNumbers = 64, kMostStages = 8, kInputBoxes = 16;
  static constexpr long long kInt = 1LL << 30;

 private:
  constexpr int chunk_bytes(int chunk) const {
    return chunk / row_chunks() * conv.w * 4 + chunk % row_chunks() * 16;
  }
};

}  // namespace convtune
