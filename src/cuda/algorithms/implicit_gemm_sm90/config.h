// The implicit GEMM in TF32 on compute capability 9.0 (implicit_gemm_sm90.cuh, which draws it): problem,
// choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/algorithms/implicit_gemm_sm90/order.h"
#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

struct ImplicitGemmSm90 {
  ConvExtents conv;
  int consumers = 2, row_blocks = 2, filters = 128, channels = 32, stages = 3;
  bool ping_pong = false;
  int cluster = 1, split = 1;
  bool fills_rows = false;  // for the problem: what lies between residues of a row is stored, too
  bool aligned = true;      // not a choice: x, y and the residual begin at multiples of 16 bytes
  static constexpr const char* kName = "ImplicitGemmSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("consumers", self.consumers, 1, 2, "warpgroups that multiply");
    field("row_blocks", self.row_blocks, 1, 2, "blocks of 64 pixels that one of them has sums of");
    field("filters", self.filters, 8, 256,
          "filters of a tile: 8, 24, or a multiple of 16 up to 128, then of 32");
    field("channels", self.channels, 16, 64, "input channels of a stage, a multiple of 16");
    field("stages", self.stages, 2, 8, "stages kept at once");
    field("ping_pong", self.ping_pong, 0, 1,
          "1: two consumers have tiles of their own, and one stores while the other multiplies");
    field("cluster", self.cluster, 1, 2, "blocks that share the weights that they load");
    field("split", self.split, 1, 8, "blocks that share a sum");
    field("fills_rows", self.fills_rows);
    field("aligned", self.aligned);
  }

  // ---- The product: pixels of y by filters. Its sums go over blocks of channels, and for each over taps, so
  // that what taps share of x is found in L1 ----
  constexpr long long pixels() const { return static_cast<long long>(conv.n) * conv.z * conv.p * conv.q; }
  constexpr int taps() const { return conv.t * conv.r * conv.s; }
  constexpr bool ties_to_even() const { return taps() == 1 && !conv.lies.between(); }  // rounding to TF32
  constexpr int channel_blocks() const { return ceil_div(conv.group_channels(), channels); }
  constexpr int steps() const { return taps() * channel_blocks(); }
  constexpr int first_step(int rank) const { return steps() * rank / split; }  // per block that shares a sum
  constexpr int first_step(int tile, int rank) const { return tile_steps(tile) * rank / split; }
  constexpr int products() const { return channels / 8; }  // products of 8 channels in a step
  constexpr Tf32GemmSteps step_order() const {
    return {channels, taps(), conv.r, conv.s, conv.dilation_d, conv.dilation_h, conv.dilation_w};
  }
  constexpr int tap_row(int step) const { return step_order().row(step); }
  constexpr int tap_column(int step) const { return step_order().column(step); }
  constexpr int first_channel(int step) const { return step_order().first_channel(step); }

  // ---- Residues of a stride (ConvLies). Those of a row are abreast: neighbours in a tile, stored together,
  // with zeros for the first column that some lack. Filters of residues that lack the first row are a section
  // of their own, as a group's are, whose tiles leave that row out ----
  constexpr int abreast() const {
    const int all = conv.lies.between() ? conv.lies.residues_w : 1;
    const bool whole_parts = parts() == 1 || stored_filters() % all == 0;
    return (conv.lies.stride_w == all || fills_rows) && filters % all == 0 && whole_parts ? all : 1;
  }
  // Outputs of a pixel in a row of the tensor, those included that no tap meets.
  constexpr int spread() const { return fills_rows ? conv.lies.stride_w : abreast(); }
  constexpr Tf32GemmFilters filter_order() const { return {abreast(), conv.group_results()}; }
  constexpr int filter_of(int place) const { return filter_order().at(place); }
  constexpr int sections() const {
    return conv.lies.whole_h > 0 ? conv.lies.residues_d * conv.lies.residues_h : conv.groups;
  }
  constexpr int section_filters() const { return conv.k / sections(); }
  constexpr bool lacks_row(int tile) const {
    return conv.lies.whole_h > 0 &&
           tile % filter_blocks() / section_blocks() % conv.lies.residues_h >= conv.lies.whole_h;
  }
  constexpr int tile_steps(int tile) const {
    return channel_blocks() * (taps() - (lacks_row(tile) ? conv.t * conv.s : 0));
  }
  // The step among all of them that is a tile's so many-th.
  constexpr int step_of(int tile, int index) const {
    if (!lacks_row(tile)) return index;
    const int frame = (conv.r - 1) * conv.s, block = conv.t * frame;  // steps of a tile
    return index / block * taps() + index % block / frame * conv.r * conv.s + conv.s + index % frame;
  }

  // ---- A tile, and the order in which clusters take tiles (order.h) ----
  constexpr int tile_rows() const { return 64 * row_blocks * (ping_pong ? 1 : consumers); }
  constexpr int section_blocks() const { return ceil_div(section_filters(), filters); }
  constexpr int filter_blocks() const { return sections() * section_blocks(); }
  constexpr long long row_tiles() const { return ceil_div(pixels(), tile_rows()); }
  constexpr long long tiles() const {
    return ceil_div(row_tiles(), cluster) * filter_blocks();
  }  // per cluster
  constexpr int cluster_blocks() const { return cluster * split; }
  constexpr Tf32GemmTiles tile_order() const {
    return {.filter_blocks = filter_blocks(),
            .section_blocks = section_blocks(),
            .section_filters = section_filters(),
            .filters = filters,
            .group_channels = conv.group_channels(),
            .cluster = cluster,
            .rows = tile_rows(),
            .all_filters = conv.k,
            .one_section = sections() == 1,
            .one_group = conv.groups == 1,
            .shares_sums = split > 1};
  }
  constexpr int first_filter(int tile) const { return tile_order().first_filter(tile); }
  constexpr int end_filter(int filter) const { return tile_order().end_filter(filter); }
  constexpr int first_channel_of(int tile) const { return tile_order().first_channel(tile); }
  constexpr int first_pixel(int tile, int rank) const { return tile_order().first_pixel(tile, rank); }
  constexpr int product_columns() const { return filters; }
  constexpr int threads() const { return 128 * (consumers + 1); }
  constexpr int sums() const { return row_blocks * filters / 2; }  // registers of a thread

  struct Pixel {
    int image, frame, row, column;
  };
  constexpr Pixel output_at(int pixel) const {
    const int frame = pixel / (conv.p * conv.q);
    return {frame / conv.z, frame % conv.z, pixel / conv.q % conv.p, pixel % conv.q};
  }

  // ---- 16 bytes at once: where four pixels of y are four of x, and all rows of four are aligned ----
  constexpr bool wide_input() const {
    return aligned && taps() == 1 && conv.stride_h == 1 && conv.stride_w == 1 && conv.pad_top == 0 &&
           conv.pad_left == 0 && conv.p == conv.h && conv.q == conv.w && conv.stride_d == 1 &&
           conv.pad_front == 0 && conv.z == conv.d &&
           static_cast<long long>(conv.d) * conv.h * conv.w % 4 == 0;
  }
  constexpr bool wide_output() const {
    return aligned && !conv.lies.between() && static_cast<long long>(conv.z) * conv.p * conv.q % 4 == 0;
  }
  constexpr bool asks_alignment() const { return wide_input() || wide_output(); }

  // ---- Who loads: teams of warps with stages of their own in turns, so that none waits for what another is
  // working out. A place is as many pixels as are copied at once, and a thread has up to four. A team has the
  // same slots of the ring in every lap: a barrier knows whether its phase is odd and no more ----
  constexpr int at_once() const { return wide_input() ? 4 : 1; }
  constexpr int places() const { return tile_rows() / at_once(); }
  constexpr int teams() const {
    for (const int some : {4, 2})
      if (stages % some == 0 && places() * some <= 4 * 128) return some;
    return 1;
  }
  constexpr int team_threads() const { return 128 / teams(); }

  // ---- A stage, in bytes: [channel][pixel], whose pitch keeps the threads of a load off each other's banks,
  // then [8 channels][4 of them][filter][channel] ----
  constexpr int pitch() const { return 4 * (tile_rows() + 8); }
  constexpr int input_bytes() const { return channels * pitch(); }
  constexpr int weight_bytes() const { return 4 * filters * channels; }
  constexpr int stage_bytes() const { return input_bytes() + weight_bytes(); }

  // ---- Sums on their way: a warp's pixels, so many filters at a time that a thread has 32 of them. Fewer
  // beside residuals that wait where pixels of x are copied one by one: L1 is worth more to those ----
  constexpr int warp_pixels() const { return 16 * row_blocks; }
  constexpr int stored_filters() const {
    return conv.residual && ping_pong && !wide_input() ? 32 : 64 / row_blocks;
  }
  constexpr int parts() const { return ceil_div(filters, stored_filters()); }
  constexpr int part_filters(int part) const {
    return lesser(filters - part * stored_filters(), stored_filters());
  }
  constexpr int staged_pitch() const { return 4 * (warp_pixels() + 4); }
  constexpr int staging_bytes() const { return lesser(stored_filters(), filters) * staged_pitch(); }

  // ---- The residual: so many parts of a warp's are on their way before their sums, a number that divides
  // the parts, so that each has a place. A thread asks for what it will store, and nobody else reads it. Not
  // where the loads of a shared tile's pixels are one by one: L1 was worth more to those ----
  constexpr int parts_ahead() const {
    if (!conv.residual || conv.lies.between() || split > 1 || !(wide_input() || ping_pong)) return 0;
    return parts() % 2 == 0 ? 2 : parts();
  }
  constexpr int addend_bytes() const {  // per warp's part
    return 4 * lesser(stored_filters(), filters) * warp_pixels();
  }
  // Other residuals are loaded where they are added, in batches of so many loads of a thread.
  constexpr int batch() const {
    return (conv.activation <= ConvActivation::clip ? 4 : 2) * (wide_output() ? 1 : 2);
  }
  constexpr double batches() const {  // per warp, in a tile
    return filters * warp_pixels() / (32.0 * (wide_output() ? 4 : 1) * batch());
  }

  // Laid out for a block that shares sums, in place of the stages: [consumer and sum][thread].
  constexpr long long partial_bytes() const { return split > 1 ? 512LL * consumers * sums() : 0; }

  // ---- Shared memory, in bytes ----
  struct Smem {
    int stages, staging, addends, finite, full, empty;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    return {.stages = plan.take(1LL * stages * stage_bytes()),
            .staging = plan.take(4LL * consumers * staging_bytes()),
            .addends = plan.take(4LL * consumers * parts_ahead() * addend_bytes()),
            .finite = plan.take(16 * consumers),  // per block that shares sums, by warps
            .full = plan.take(8 * stages),
            .empty = plan.take(8 * stages),
            .end = plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Packed weights (order.h) ----
  constexpr long long block_weights() const { return 1LL * steps() * filters * channels; }
  constexpr Packed packed() const { return {filter_blocks() * block_weights(), conv.weights(), conv.k}; }
  constexpr Tf32GemmWeights weights() const {
    return {.filters = filters,
            .channels = channels,
            .steps = steps(),
            .taps = taps(),
            .section_blocks = section_blocks(),
            .section_filters = section_filters(),
            .group_channels = conv.group_channels(),
            .order = filter_order()};
  }
  constexpr long long source_of(long long i) const { return weights().source_of(i); }

  // Tells whether the kernel compiles without spilling and a multiprocessor can hold a block of it.
  constexpr bool valid(long long smem_per_block) const {
    if (!is_in_range(*this) || channels % 16 != 0) return false;
    if (filters % (filters > 128 ? 32 : filters == 8 || filters == 24 ? 8 : 16) != 0) return false;
    if (sums() > 128) return false;
    if (ping_pong && (consumers != 2 || split > 1)) return false;
    if (conv.lies.whole_h > 0 && split > channel_blocks() * (taps() - conv.t * conv.s)) return false;
    if (fills_rows && abreast() != conv.lies.residues_w) return false;
    if (split > 1 && (cluster > 1 || split > steps() || partial_bytes() > 1LL * stages * stage_bytes()))
      return false;
    return smem_bytes() <= smem_per_block && pixels() < kInt && tiles() * cluster_blocks() < kInt &&
           tiles() * steps() < kInt && block_weights() < kInt;
  }
  static constexpr long long kInt = 1LL << 30;
};

}  // namespace convtune
