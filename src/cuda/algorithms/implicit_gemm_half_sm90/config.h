// The implicit GEMM in half precision on compute capability 9.0 (implicit_gemm_half_sm90.cuh, which draws
// it): problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/algorithms/implicit_gemm_half_sm90/order.h"
#include "cuda/tile/any_batch.h"
#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/lying.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

struct ImplicitGemmHalfSm90 {
  ConvExtents conv;
  int cache = 0;  // for the problem: frames before x's first that are another tensor's
  int snake =
      0;  // as cache: 1: outputs are what a Snake makes of them, 2: and what they were, in front of these
  int consumers = 2, row_blocks = 1, filters = 128, channels = 64, stages = 4;
  bool ping_pong = false;
  int cluster = 1, split = 1;
  bool aligned = true;     // not a choice: x, y and the residual begin at multiples of 16 bytes
  bool any_batch = false;  // not a choice: takes any batch up to the problem's
  int lying = 0;           // in configs where it is 1
  LyingWeights lie{};      // for the problem, then
  static constexpr const char* kName = "ImplicitGemmHalfSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("cache", self.cache);
    if (self.snake > 0) field("snake", self.snake);
    field("consumers", self.consumers, 1, 3, "warpgroups that multiply");
    field("row_blocks", self.row_blocks, 1, 2, "blocks of 64 pixels that one of them has sums of");
    field("filters", self.filters, 8, 256, "filters of a tile, a multiple of 8 up to 32, then of 16");
    field("channels", self.channels, 32, 64, "input channels of a stage: 32 or 64");
    field("stages", self.stages, 2, 8, "stages kept at once");
    field("ping_pong", self.ping_pong, 0, 1,
          "1: two consumers have tiles of their own, and one stores while the other multiplies");
    field("cluster", self.cluster, 1, 2, "blocks that share the weights that they load");
    field("split", self.split, 1, 8, "blocks that share a sum");
    field("aligned", self.aligned);
    if (self.any_batch) field("any_batch", self.any_batch);
    if (self.lying > 0) field("lying", self.lying, 1, 1, kLyingMeaning), field("lie", self.lie);
  }
  constexpr bool asks_alignment() const { return true; }

  // ---- The product: pixels of y by filters of a group; its sums go over taps, for each over channels ----
  constexpr long long pixels() const { return static_cast<long long>(conv.n) * conv.z * conv.p * conv.q; }
  constexpr int taps() const { return conv.t * conv.r * conv.s; }
  constexpr int depth() const { return conv.group_channels(); }
  constexpr int channel_blocks() const { return ceil_div(depth(), channels); }
  constexpr int steps() const { return taps() * channel_blocks(); }
  constexpr int first_step(int rank) const { return steps() * rank / split; }  // per block that shares a sum
  // Chunks of 16 in a step, of which those of a tap's last channels may have less than others; and in all.
  constexpr int products(int step) const {
    return ceil_div(lesser(depth() - first_channel(step), channels), 16);
  }
  constexpr int all_products() const {
    return (steps() - taps()) * products(0) + taps() * products(steps() - 1);
  }
  // Tells whether pixels of y are pixels of x, one after the other, with all of their channels.
  constexpr bool pointwise() const {
    return conv.groups == 1 && taps() == 1 && conv.z == conv.d && conv.stride_d == 1 && conv.pad_front == 0 &&
           conv.stride_h == 1 && conv.stride_w == 1 && conv.pad_top == 0 && conv.pad_left == 0 &&
           conv.p == conv.h && conv.q == conv.w;
  }

  // Tells whether x leaves L2 first: it comes from memory once, since blocks that share it read it at the
  // same time, and is too large to be there when the next layer wants it.
  constexpr bool reads_once() const {
    return pointwise() && filter_blocks() <= kMostSharing && 2LL * conv.c * pixels() >= kLargeInput;
  }
  static constexpr int kMostSharing = 4, kLargeInput = 24 << 20;  // bytes

  // ---- A tile, and the order in which clusters take tiles (order.h) ----
  constexpr int tile_rows() const { return 64 * row_blocks * (ping_pong ? 1 : consumers); }
  constexpr int group_blocks() const { return ceil_div(conv.group_filters(), filters); }
  constexpr int filter_blocks() const { return conv.groups * group_blocks(); }
  constexpr int frame_pixels() const { return conv.p * conv.q; }
  constexpr int frame_tiles() const { return ceil_div(frame_pixels(), tile_rows()); }
  constexpr long long row_tiles() const {
    return cache > 0 ? 1LL * conv.n * conv.z * frame_tiles() : ceil_div(pixels(), tile_rows());
  }
  constexpr long long tiles() const {
    return ceil_div(row_tiles(), cluster) * filter_blocks();
  }  // per cluster
  constexpr int cluster_blocks() const { return cluster * split; }
  constexpr HalfGemmTiles tile_order() const {
    return {.filter_blocks = filter_blocks(),
            .group_blocks = group_blocks(),
            .group_filters = conv.group_filters(),
            .filters = filters,
            .cluster = cluster,
            .rows = tile_rows(),
            .frame_tiles = frame_tiles(),
            .frame_pixels = frame_pixels(),
            .one_group = conv.groups == 1,
            .shares_sums = split > 1,
            .of_frames = cache > 0};
  }
  constexpr int group(int tile) const { return tile_order().group(tile); }
  constexpr int first_filter(int tile) const { return tile_order().first_filter(tile); }
  constexpr int end_filter(int tile) const { return tile_order().end_filter(tile); }
  constexpr int first_pixel(int tile, int rank) const { return tile_order().first_pixel(tile, rank); }
  constexpr int product_columns() const { return filters; }
  constexpr int threads() const { return 128 * (consumers + 1); }
  constexpr int sums() const { return row_blocks * filters / 2; }  // registers of a thread

  // ---- Describes where a tap of an output's window lies in x ----
  struct Pixel {
    int image, frame, row, column;
  };
  constexpr Pixel output_at(int pixel) const {
    const int frame = pixel / (conv.p * conv.q);
    return {frame / conv.z, frame % conv.z, pixel / conv.q % conv.p, pixel % conv.q};
  }
  constexpr Pixel first_tap(int pixel) const {
    const Pixel at = output_at(pixel);
    return {at.image, at.frame * conv.stride_d - conv.pad_front, at.row * conv.stride_h - conv.pad_top,
            at.column * conv.stride_w - conv.pad_left};
  }
  constexpr HalfGemmSteps step_order() const {
    return {.channels = channels,
            .channel_blocks = channel_blocks(),
            .frames = conv.t,
            .rows = conv.r,
            .columns = conv.s,
            .dilation_d = conv.dilation_d,
            .dilation_h = conv.dilation_h,
            .dilation_w = conv.dilation_w};
  }
  constexpr int tap_row(int step) const { return step_order().row(step); }
  constexpr int tap_column(int step) const { return step_order().column(step); }
  constexpr int first_channel(int step) const { return step_order().first_channel(step); }

  // Returns the box that TMA walks over: positions of first taps, from -padding to that far before the
  // image's end. Frames, or groups, are one more extent, which leaves corners 5 bits each in place of 8, and
  // as many to offsets.
  constexpr int corner_below() const { return (conv.p - 1) * conv.stride_h - conv.pad_top - (conv.h - 1); }
  constexpr int corner_right() const { return (conv.q - 1) * conv.stride_w - conv.pad_left - (conv.w - 1); }
  constexpr int corner_behind() const { return (conv.z - 1) * conv.stride_d - conv.pad_front - (conv.d - 1); }
  constexpr int most_corner() const { return conv.groups > 1 || conv.has_depth() ? 16 : 128; }
  constexpr bool is_corner(int value) const { return value >= -most_corner() && value < most_corner(); }
  constexpr bool can_walk() const {
    return pointwise() ||
           (is_corner(-conv.pad_top) && is_corner(-conv.pad_left) && is_corner(-conv.pad_front) &&
            is_corner(corner_below()) && is_corner(corner_right()) && is_corner(corner_behind()) &&
            conv.stride_h <= 8 && conv.stride_w <= 8 && conv.stride_d <= 8 &&
            (conv.t - 1) * conv.dilation_d < 2 * most_corner() &&
            (conv.r - 1) * conv.dilation_h < 2 * most_corner() &&
            (conv.s - 1) * conv.dilation_w < 2 * most_corner());
  }

  // ---- Operands in shared memory: rows of a stage's channels, whose 16-byte pieces are exchanged as TMA and
  // wgmma have it ----
  constexpr int row_bytes() const { return 2 * channels; }
  constexpr int pieces() const { return channels / 8; }  // per row
  constexpr int exchanged(int row, int piece) const { return weights().exchanged(row, piece); }
  constexpr int input_bytes() const { return tile_rows() * row_bytes(); }
  // Filters of gradients lie in blocks of 64, with a row of these for each channel.
  constexpr bool turned() const { return lying > 0 && !lie.rows; }
  constexpr int weight_blocks() const { return ceil_div(filters, LyingWeights::kBlock); }
  constexpr int weight_bytes() const {
    return (turned() ? weight_blocks() * LyingWeights::kBlock : filters) * row_bytes();
  }
  constexpr int stage_bytes() const { return input_bytes() + weight_bytes(); }

  // ---- Sums on their way: 16 pixels of a warp, up to 64 filters at a time, in pieces of 16 bytes. They are
  // exchanged so that no two threads meet at a bank, neither 4 pixels of 8 filters nor 1 of 64 ----
  static constexpr int kStoredFilters = 64, kStagingBytes = 16 * 4 * kStoredFilters;
  static constexpr int staged_at(int row, int column) {
    const int piece = column / 4;
    return row * 4 * kStoredFilters + (piece ^ (row % 4 * 2) ^ (piece / 8)) * 16 + column % 4 * 4;
  }
  // Filters that are stored at a time. Of blocks that share sums each has a part of its own, if there are
  // eight filters for it: one that added up a whole tile would read from all others while those wait.
  constexpr int stored_filters() const {
    int some = kStoredFilters;
    while (split > 1 && some > 8 && some * split > filters * row_blocks) some /= 2;
    return some;
  }
  constexpr int parts() const { return ceil_div(filters, stored_filters()); }  // per row block
  constexpr int part_filters(int part) const {
    return lesser(filters - part * stored_filters(), stored_filters());
  }
  // The residual of a part, as each thread wants it; of two parts, where it comes 16 bytes at a time.
  static constexpr int kResidualBytes = 16 * 2 * kStoredFilters;
  constexpr int residual_bytes() const { return conv.residual && wide_stores() ? 2 * kResidualBytes : 0; }
  // Alphas and scales of a part, of two parts, where they come 16 bytes at a time.
  static constexpr int kSnakeBytes = 2 * 4 * kStoredFilters;
  constexpr int snake_bytes() const { return snake > 0 && wide_stores() ? 2 * kSnakeBytes : 0; }
  // Tells whether rows of y are read and written 16 bytes at a time.
  constexpr bool wide_stores() const { return aligned && conv.group_results() % 8 == 0; }
  // Laid out for a block that shares sums, in place of the stages: [consumer and sum][thread].
  constexpr long long partial_bytes() const { return split > 1 ? 512LL * consumers * sums() : 0; }

  // ---- Shared memory, in bytes. The stages begin at a multiple of 1024 ----
  struct Smem {
    int stages, staging, residuals, snakes, full, empty;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const int at = plan.take(1LL * stages * stage_bytes());
    const int staging = plan.take(4LL * consumers * kStagingBytes);
    const int residuals = plan.take(4LL * consumers * residual_bytes());
    const int snakes = plan.take(4LL * consumers * snake_bytes());
    const int full = plan.take(8 * stages), empty = plan.take(8 * stages);
    return {at, staging, residuals, snakes, full, empty, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Packed weights (order.h) ----
  constexpr long long block_weights() const { return 1LL * steps() * filters * channels; }
  constexpr Packed packed() const {
    if (lying > 0) return lie.packed(conv);
    return Packed::halves(filter_blocks() * block_weights() / 2, 0, (snake > 0 ? 3LL : 1LL) * conv.k);
  }
  constexpr bool doubts() const { return lying > 0 && LyingWeights::meets_padding(conv); }
  constexpr HalfGemmWeights weights() const {
    return {.pieces = pieces(),
            .filters = filters,
            .steps = steps(),
            .channel_blocks = channel_blocks(),
            .taps = taps(),
            .depth = depth(),
            .group_blocks = group_blocks(),
            .group_filters = conv.group_filters()};
  }
  constexpr long long source_of(long long i) const { return weights().source_of(i); }
  constexpr long long half_of(long long weight) const {
    const int all = conv.taps();
    return weights().half_of(static_cast<int>(weight / all), static_cast<int>(weight % all));
  }

  // Tells whether the kernel compiles without spilling and a multiprocessor can hold a block of it.
  constexpr bool valid(long long smem_per_block) const {
    if (!is_in_range(*this) || filters % (filters <= 32 ? 8 : 16) != 0 || channels % 32 != 0) return false;
    if (sums() > (consumers == 3 ? 96 : 128) || tile_rows() > 256) return false;
    if (ping_pong && (consumers != 2 || split > 1)) return false;
    if (lying > 0 && (cache > 0 || snake > 0 || !lie.can_load(conv, filters))) return false;
    if (split > 1 && (cluster > 1 || split > steps() || partial_bytes() > 1LL * stages * stage_bytes()))
      return false;
    return smem_bytes() <= smem_per_block && pixels() < kInt && tiles() * cluster_blocks() < kInt &&
           tiles() * steps() < kInt;
  }
  static constexpr long long kInt = 1LL << 30;
};

}  // namespace convtune
