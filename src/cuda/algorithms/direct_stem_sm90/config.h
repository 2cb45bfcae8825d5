// The direct kernel for first layers of stride 4 on compute capability 9.0 (direct_stem_sm90.cuh, which draws
// it): problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

struct DirectStemSm90 {
  ConvExtents conv;  // rows may have any stride, columns have one of 4
  int consumers = 3, units = 3, filters = 32;
  static constexpr const char* kName = "DirectStemSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("consumers", self.consumers, 2, kMostConsumers, "warpgroups that multiply");
    field("units", self.units, 2, 4096,
          "units of input kept at once, a unit being stride_h rows of all channels");
    field("filters", self.filters, 32, kMostFilters, "filters of a block, a multiple of 32");
  }

  // ---- The input, in chunks of 4 columns ----
  // A pixel's window begins one chunk behind its neighbour's.
  constexpr int column_groups() const { return ceil_div(conv.s, 4); }  // per filter's row
  constexpr int row_chunks() const { return conv.q + column_groups() - 1; }
  constexpr int stored_chunks() const { return ceil_div(conv.w, 4); }  // per row as it lies in x
  // A unit is stride_h input rows of all channels, or as many of them as any filter row meets. Its buffer
  // holds rows as they lie in x, then as chunks.
  constexpr int unit_rows() const { return conv.r < conv.stride_h ? conv.r : conv.stride_h; }
  constexpr int halo() const {
    return (conv.r - 1) / conv.stride_h;
  }  // units that an output row needs beside its own
  constexpr long long unit_bytes() const {
    return 16LL * conv.c * unit_rows() * greater(row_chunks(), stored_chunks());
  }

  // Threads that round take so many chunks of a row each, and hold so many pieces at once.
  constexpr int pieces() const { return ceil_div(row_chunks(), kPiece); }  // per row

  // ---- The sum, in groups of 4 filter columns ----
  // Two groups are a k-step of the matrix product: an odd one out is given a partner of zeros.
  constexpr int rows_of_unit(int unit) const { return lesser(conv.r - unit * conv.stride_h, conv.stride_h); }
  constexpr int real_groups(int unit) const { return conv.c * rows_of_unit(unit) * column_groups(); }
  constexpr int groups(int unit) const { return round_up(real_groups(unit), 2); }
  constexpr int groups() const {
    int sum = 0;
    for (int unit = 0; unit <= halo(); ++unit) sum += groups(unit);
    return sum;
  }
  constexpr int k_steps() const { return groups() / 2; }
  constexpr int unit_steps() const { return groups(0) / 2; }

  // Locates a group's numbers. Within a unit the chunks' order is the groups', so that offsets
  // grow.
  struct Group {
    int unit, channel, row /* for the unit */, column_group;
    bool real;
  };
  constexpr Group group(int index) const {
    int unit = 0;
    for (; index >= groups(unit); ++unit) index -= groups(unit);
    const bool real = index < real_groups(unit);
    if (!real) index = real_groups(unit) - 1;
    const int row = index / column_groups();
    return {unit, row / rows_of_unit(unit), row % rows_of_unit(unit), index % column_groups(), real};
  }
  // Chunks from the start of a unit to the first position of a group.
  constexpr int group_offset(const Group& g) const {
    return (g.channel * unit_rows() + g.row) * row_chunks() + g.column_group;
  }

  // ---- The output, in runs of whole sectors ----
  constexpr int tiles() const { return ceil_div(conv.q, kTile); }             // per row
  constexpr int last_tile() const { return conv.q - (tiles() - 1) * kTile; }  // its positions
  // Filters 8m + j are plane j: their rows begin equally far behind a sector. Column 8i + 2l + e of a product
  // is filter 8 (4t + l) + j with j * (filters / 32) + t = 2i + e, so a thread has whole planes, of one l.
  constexpr int members() const { return filters / kPlanes; }  // per plane
  constexpr int filter_of_column(int column) const {
    return filter_of(column / 8 * 2 + column % 2, column / 2 % 4);
  }
  constexpr int filter_of(int pair, int lane) const {
    const int each = filters / 32;  // pairs of a plane
    return kPlanes * (4 * (pair % each) + lane) + pair / each;
  }
  // Runs of the last tile are this long, or a sector longer; those of the others are kTile.
  constexpr int short_run() const { return last_tile() / kSector * kSector; }
  constexpr int longest_run() const {
    return tiles() > 1 && short_run() < kTile ? kTile : short_run() + kSector;
  }
  constexpr int plane_bytes() const { return round_up(members() * longest_run() * 4, kBoxAlignment); }
  constexpr int slot_bytes() const { return kPlanesOfSlot * plane_bytes(); }
  constexpr int carry_bytes() const { return filters * kSector * 4; }
  // Tells whether boxes of y can be stored: its map counts 8 filters at once.
  constexpr bool has_boxes() const { return conv.k % kPlanes == 0; }

  // ---- A block ----
  constexpr long long rows() const { return static_cast<long long>(conv.n) * conv.p; }  // for all images
  constexpr int filter_blocks() const { return ceil_div(conv.k, filters); }
  // After the consumers: a warpgroup of which two warps load and store, and one that rounds.
  constexpr int product_columns() const { return filters; }
  constexpr int threads() const { return 128 * (consumers + 2); }
  constexpr int sums() const { return filters / 2; }  // registers of a thread

  // ---- Shared memory: where each region begins, in bytes ----
  // Slots are of outputs, `carry` has the ends of rows. Barriers: a unit is `raw`, `full`, and of a row
  // `done`; a slot is `filled` or `free`; a consumer has its `turn`. `repaired`: the first and last row that
  // are to be. What follows the units is longer than an operand: the last tile's is read to its end.
  // Two `full` barriers a unit, in turns: a consumer that comes late waits for units of rows that others have
  // done, and with one barrier each that could be full and written over before it looks.
  constexpr int full_barriers() const { return 2 * units; }
  constexpr long long weight_bytes() const { return 16LL * groups() * filters; }
  struct Smem {
    int weights, slots, units, carry, bias, raw, full, done, filled, free, turn, repaired;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    return {.weights = plan.take(weight_bytes()),
            .slots = plan.take(kSlots * slot_bytes()),
            .units = plan.take(units * unit_bytes()),
            .carry = plan.take(2 * carry_bytes()),
            .bias = plan.take(4 * filters),
            .raw = plan.take(8 * units),
            .full = plan.take(8 * full_barriers()),
            .done = plan.take(8 * units),
            .filled = plan.take(8 * kSlots),
            .free = plan.take(8 * kSlots),
            .turn = plan.take(8 * consumers),
            .repaired = plan.take(2 * 4),
            .end = plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Packed weights: [filter block][group][column of the product][4 filter columns] ----
  constexpr Packed packed() const { return {filter_blocks() * weight_bytes() / 4, conv.weights(), conv.k}; }
  constexpr long long source_of(long long i) const {
    const int filter = filter_of_column(static_cast<int>(i / 4 % filters));
    const int all_groups = static_cast<int>(i / 4 / filters), k = all_groups / groups() * filters + filter;
    const Group at = group(all_groups % groups());
    const int row = at.unit * conv.stride_h + at.row;
    const int column = at.column_group * 4 + static_cast<int>(i % 4);
    if (!at.real || k >= conv.k || column >= conv.s) return -1;
    return ((static_cast<long long>(k) * conv.c + at.channel) * conv.r + row) * conv.s + column;
  }

  // Tells whether the kernel compiles without spilling and a multiprocessor can hold a block of it.
  constexpr bool valid(long long smem_per_block) const {
    return is_in_range(*this) && filters % 32 == 0 && units >= halo() + 2 &&
           units <= halo() + kMostUnitsBesideHalo && last_tile() >= kSector && pieces() <= kMostPieces &&
           k_steps() <= kMostProducts && smem_bytes() <= smem_per_block &&
           // Offsets in an image, a plane's group and a block are ints.
           static_cast<long long>(conv.c + 1) * (conv.h + conv.pad_top + conv.stride_h) * conv.w <
               (1LL << 31) &&
           static_cast<long long>(kPlanes) * conv.p * conv.q < (1LL << 31) &&
           rows() * (1 + halo()) * tiles() * kPlanes < (1LL << 31);
  }

  static constexpr int kTile = 64;  // positions of a product
  static constexpr int kPlanes = 8, kSector = 8 /* floats */, kBoxAlignment = 128;
  // The order of a block's steps depends on these two (store.cuh).
  static constexpr int kPlanesOfSlot = 2, kSlots = 3;
  static constexpr int kMostConsumers = 3, kMostFilters = 96;
  static constexpr int kPiece = 3, kMostPieces = 256;
  static constexpr int kMostProducts = 256;
  static constexpr int kMostUnitsBesideHalo = 8;
};

}  // namespace convtune
