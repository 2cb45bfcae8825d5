// The direct kernel for many channels on compute capability 9.0 (direct_body_sm90.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

struct DirectBodySm90 {
  ConvExtents conv;
  int filter_groups = 1, position_groups = 2, positions = 256, strips = 1, channels = 8, stages = 3;
  int staged = 16, producers = 1;
  // Set by the host: as many stages of weights as there is room for.
  int weight_stages = 2;
  bool aligned = true;  // not a choice: x, y and the residual begin at multiples of 16 bytes
  static constexpr const char* kName = "DirectBodySm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field(
        "filter_groups", self.filter_groups, 0, 3,
        "warpgroups that multiply along filters, 64 filters each; 0, channels last: all filters are columns "
        "of products whose rows are positions, of few filters");
    field("position_groups", self.position_groups, 1, 2, "warpgroups that multiply along positions");
    field("positions", self.positions, 8, 256, "positions of a warpgroup, a multiple of 8");
    field("strips", self.strips, 1, 1 << 20, "vertical strips that an image is cut into");
    field("channels", self.channels, 8, 64, "input channels of a stage, a multiple of 8");
    field("stages", self.stages, 2, 8, "stages of input kept at once");
    field("staged", self.staged, 0, 16,
          "filters of a warp whose outputs are gathered in shared memory before they are stored: 8, 16, or 0 "
          "to store "
          "them from registers, as channels last always are");
    field("producers", self.producers, 1, 2, "warpgroups that load");
    field("weight_stages", self.weight_stages);
    if (self.conv.nhwc) field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return conv.nhwc; }

  // ---- The sum ----
  // A chunk is 4 channels of a pixel, 16 bytes. A unit is what is loaded as one: 4 channels with all their
  // pixels. In three dimensions what is said of images holds for frames, and a stage has the frames that one
  // tap over time reads.
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr int units() const { return ceil_div(conv.c, 4); }
  constexpr int stage_units() const { return channels / 4; }
  constexpr int frame_blocks() const { return ceil_div(units(), stage_units()); }  // for a tap over time
  constexpr int blocks() const { return conv.t * frame_blocks(); }                 // stages that a sum takes
  constexpr int steps() const { return channels / 8 * taps(); }  // products of a stage for 8 channels each

  // ---- Positions ----
  // An image is rows of `pitch` positions, one for each output, and some more so that a filter tap is the
  // same distance from every position. Padding on the right of a row serves as that on the left of the next
  // where both are zeros; so do rows, from image to image. With strides, input pixels that differ in
  // y % stride_h or x % stride_w lie in planes of their own (`phases`); those that no tap meets in none.
  constexpr int strip_width() const { return ceil_div(conv.q, strips); }
  constexpr int column_reach() const { return (conv.s - 1) * conv.dilation_w / conv.stride_w; }
  constexpr int row_reach() const { return (conv.r - 1) * conv.dilation_h / conv.stride_h; }
  constexpr int pitch() const {
    return strips > 1 ? strip_width() + column_reach()
                      : run(conv.q, conv.s, conv.dilation_w, conv.stride_w, conv.pad_left, conv.w);
  }
  constexpr int image_rows() const {
    return run(conv.p, conv.r, conv.dilation_h, conv.stride_h, conv.pad_top, conv.h);
  }
  constexpr int phases_h() const {
    return phases_below(conv.stride_h, conv.r, conv.dilation_h, conv.stride_h);
  }
  constexpr int phases_w() const {
    return phases_below(conv.stride_w, conv.s, conv.dilation_w, conv.stride_w);
  }
  constexpr int phases() const { return phases_h() * phases_w(); }
  constexpr int phase_h(int index) const { return nth_phase(index, conv.r, conv.dilation_h, conv.stride_h); }
  constexpr int phase_w(int index) const { return nth_phase(index, conv.s, conv.dilation_w, conv.stride_w); }
  constexpr long long image_positions() const { return static_cast<long long>(image_rows()) * pitch(); }
  constexpr int images() const { return conv.n * conv.z; }
  constexpr long long all_positions() const { return image_positions() * images() * strips; }
  constexpr int image_of(int position) const {
    return position / static_cast<int>(image_positions()) / strips;
  }

  // ---- Frames of the filter that see nothing but padding are left out of a tile's sums ----
  struct Range {
    int first, end;
    constexpr int count() const { return end - first; }
  };
  // Frames of the filter with which some output of these frames of a volume meets a frame of x, or one.
  constexpr Range frames_of(int first_frame, int last_frame) const {
    const int missing = conv.pad_front - last_frame * conv.stride_d;  // before the last one's first
    const int there = conv.d + conv.pad_front - first_frame * conv.stride_d;
    const int first = missing > 0 ? ceil_div(missing, conv.dilation_d) : 0;
    const int end = there > 0 ? lesser(ceil_div(there, conv.dilation_d), conv.t) : 0;
    return first < end ? Range{first, end} : Range{0, 1};
  }
  // The first output of a volume meets the fewest frames of the filter, or the last one does.
  constexpr bool skips_frames() const {
    return lesser(frames_of(0, 0).count(), frames_of(conv.z - 1, conv.z - 1).count()) < conv.t;
  }
  // Blocks of the sum of a tile that begins there.
  constexpr Range tile_blocks(int first_position) const {
    if (!skips_frames()) return {0, blocks()};
    const int first = image_of(first_position);
    const int last = lesser(image_of(first_position + block_positions() - 1), images() - 1);
    if (first / conv.z != last / conv.z) return {0, blocks()};
    const Range frames = frames_of(first % conv.z, last % conv.z);
    return {frames.first * frame_blocks(), frames.end * frame_blocks()};
  }

  // ---- A stage: [unit][phase][position] chunks ----
  constexpr int block_positions() const { return positions * position_groups; }
  constexpr int window() const { return block_positions() + row_reach() * pitch() + column_reach(); }
  // From unit to unit: 2 modulo 8, so that neighbours do not begin in the same banks. Where channels come
  // last threads beside each other store all units of a pixel, which take turns at the banks.
  constexpr int plane_rest() const { return conv.nhwc ? greater(8 / stage_units(), 1) : 2; }
  constexpr int plane_chunks() const {
    return (phases() * window() + 7 - plane_rest()) / 8 * 8 + plane_rest();
  }
  constexpr int stage_bytes() const { return channels / 4 * plane_chunks() * 16; }
  // Chunks of a unit, numbered as they are loaded: along the input's columns.
  constexpr int unit_chunks() const { return phases() * window(); }
  // Chunks from the start of a stage to what position 0 meets in a step.
  constexpr int step_chunk(int step) const {
    const int tap = step % taps(), octet = step / taps();
    const int row = tap / conv.s * conv.dilation_h, column = tap % conv.s * conv.dilation_w;
    const int phase = phases_below(row % conv.stride_h, conv.r, conv.dilation_h, conv.stride_h) * phases_w() +
                      phases_below(column % conv.stride_w, conv.s, conv.dilation_w, conv.stride_w);
    return 2 * octet * plane_chunks() + phase * window() + row / conv.stride_h * pitch() +
           column / conv.stride_w;
  }

  // ---- Weights: a stage of theirs is some steps of all filters of a block ----
  // Tells whether a product is 64 positions x all filters, not 64 filters x positions.
  constexpr bool turned() const { return filter_groups == 0; }
  constexpr int product_filters() const { return turned() ? round_up(conv.k, 8) : kTile; }
  constexpr int block_filters() const { return product_filters() * along_filters(); }
  constexpr int along_filters() const { return greater(filter_groups, 1); }  // warpgroups
  constexpr int filter_blocks() const { return ceil_div(conv.k, block_filters()); }
  constexpr int weight_steps() const {
    int best = 1;
    for (int some = 1; some <= steps() && some * block_filters() * 32 <= kMostWeightStageBytes; ++some)
      if (steps() % some == 0) best = some;
    return best;
  }
  constexpr int weight_stage_bytes() const { return weight_steps() * block_filters() * 32; }
  constexpr int weight_groups() const { return steps() / weight_steps(); }
  // Stages for which a block with so much shared memory has room. To be asked of what is possible().
  constexpr int most_weight_stages(long long smem_per_block) const {
    DirectBodySm90 without = *this;
    without.weight_stages = 0;
    const long long room = (smem_per_block - without.smem_bytes()) / (weight_stage_bytes() + 16LL);
    return room < 0 ? 0 : room < kMostWeightStages ? static_cast<int>(room) : kMostWeightStages;
  }

  // ---- A block ----
  constexpr int position_tiles() const {
    return static_cast<int>((all_positions() + block_positions() - 1) / block_positions());
  }
  constexpr long long tiles() const { return static_cast<long long>(position_tiles()) * filter_blocks(); }
  constexpr int consumers() const { return along_filters() * position_groups; }
  constexpr int threads() const { return 128 * (consumers() + producers); }
  constexpr int row_blocks() const { return turned() ? positions / kTile : 1; }  // products of a warpgroup
  constexpr int columns() const { return turned() ? product_filters() : positions; }  // columns of each
  constexpr int product_columns() const { return turned() ? 0 : columns(); }          // turned ones name both
  constexpr int sums() const { return row_blocks() * columns() / 2; }                 // registers of a thread
  constexpr int loaders() const { return 96 * producers; }  // threads; each fourth warp does other things

  // ---- Outputs on their way through shared memory ----
  // A segment is what can be stored in one piece: an image's, or where there are strips a row's.
  constexpr long long segment_positions() const { return strips > 1 ? pitch() : image_positions(); }
  constexpr int most_segments() const {  // that a warpgroup's positions can meet
    return static_cast<int>((positions - 2) / segment_positions()) + 2;
  }
  // Floats from filter to filter: each segment may begin some further on, so that it is aligned as it is in
  // y. 8 modulo 32: no two threads of a warp write to one bank.
  constexpr int staging_pitch() const { return (positions + 8 * (most_segments() + 1) + 23) / 32 * 32 + 8; }
  constexpr int staging_bytes() const { return 4 * consumers() * staged * staging_pitch() * 4; }

  // ---- Shared memory ----
  // A loading thread has chunks of each unit; where channels come last it has one unit, and its neighbours
  // the others of the same pixels, so that they read whole sectors.
  constexpr int shared_units() const { return conv.nhwc ? stage_units() : 1; }
  constexpr int together() const { return loaders() / shared_units(); }  // pixels that they load at once
  constexpr int loader_chunks() const { return ceil_div(unit_chunks(), together()); }  // per thread and unit
  constexpr int loads() const { return loader_chunks() * stage_units() / shared_units(); }  // in a stage
  constexpr int most_loader_chunks() const { return threads() > 384 ? 12 : conv.nhwc ? 24 : 20; }
  // Tells whether a chunk is 16 bytes of x, and whether two filters of a pixel are 8 of y.
  constexpr bool wide_input() const { return conv.nhwc && aligned && conv.c % 4 == 0; }
  constexpr bool wide_output() const { return conv.nhwc && aligned && conv.k % 2 == 0; }
  // Gives the offset of each region, in bytes. Barriers: a stage of input is `full` or `done`, and one of
  // weights.
  struct Smem {
    int weights, stages, staging, output_table, full, done, weights_full, weights_done, flags;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    return {.weights = plan.take(1LL * weight_stages * weight_stage_bytes()),
            .stages = plan.take(1LL * stages * stage_bytes()),
            .staging = plan.take(staging_bytes()),
            .output_table = plan.take(4 * consumers() * positions * 4),
            .full = plan.take(8 * stages),
            .done = plan.take(8 * stages),
            .weights_full = plan.take(8 * weight_stages),
            .weights_done = plan.take(8 * weight_stages),
            .flags = plan.take(4 * stages),
            .end = plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Packed weights: [filter block][block of the sum][step][filter group][chunk of the step][filter]
  // [number of the chunk] ----
  constexpr long long block_weights() const {
    return static_cast<long long>(blocks()) * steps() * block_filters() * 8;
  }
  constexpr Packed packed() const { return {filter_blocks() * block_weights(), conv.weights(), conv.k}; }
  constexpr long long source_of(long long i) const {
    const int rows = product_filters(), in_product = rows * 8, in_step = static_cast<int>(i % in_product);
    const int filter_group = static_cast<int>(i / in_product % along_filters());
    const int step = static_cast<int>(i / (in_product * along_filters()) % steps());
    const int block = static_cast<int>(i / (in_product * along_filters() * steps()) % blocks());
    const int filter_block = static_cast<int>(i / block_weights());
    const int k = (filter_block * along_filters() + filter_group) * rows + filter_of(in_step / 4 % rows);
    const int channel =
        block % frame_blocks() * channels + step / taps() * 8 + in_step / (rows * 4) * 4 + in_step % 4;
    if (k >= conv.k || channel >= conv.c) return -1;
    return ((static_cast<long long>(k) * conv.c + channel) * conv.t + block / frame_blocks()) * taps() +
           step % taps();
  }

  // The filter of a product's row. A thread has the sums of rows 8 apart: where channels come last they are
  // neighbours.
  constexpr int filter_of(int row) const {
    return conv.nhwc && !turned() ? row / 16 * 16 + row % 8 * 2 + row / 8 % 2 : row;
  }

  // Tells whether what is computed further up is in range.
  constexpr bool possible() const {
    if (!is_in_range(*this) || consumers() > 3 || positions % 8 != 0 || threads() > 512 ||
        (threads() == 512 && sums() > 80) || strips > conv.q || channels % 8 != 0 || staged % 8 != 0)
      return false;
    if (turned() && (!conv.nhwc || positions % kTile != 0 || conv.k > kMostTurned || sums() > 112))
      return false;
    if (conv.nhwc && (staged > 0 || loaders() % stage_units() != 0)) return false;
    return steps() <= kMostSteps && static_cast<long long>(row_reach()) * pitch() < kMostReach &&
           image_positions() < kInt && loader_chunks() <= most_loader_chunks();
  }
  // Tells whether the kernel compiles without spilling and a multiprocessor can hold a block of it.
  constexpr bool valid(long long smem_per_block) const {
    if (!possible()) return false;
    const long long image = static_cast<long long>(conv.c) * conv.d * conv.h * conv.w;
    const long long output = static_cast<long long>(conv.k) * conv.z * conv.p * conv.q;
    const long long window_frames = block_positions() / image_positions() + row_reach() + 3;
    const long long window_images = conv.has_depth() ? window_frames / conv.z + 2 : window_frames;
    return all_positions() + 2 * window() < kInt && tiles() < kInt && plane_chunks() < (1 << 14) &&
           weight_stages >= 2 && weight_stages <= kMostWeightStages && smem_bytes() <= smem_per_block &&
           (staged == 0 || most_segments() <= kMostSegments) && image * window_images < kInt &&
           (conv.nhwc ? 1LL * images() * conv.p * conv.q : output * window_images) < kInt &&
           tiles() * blocks() * weight_groups() < kInt;
  }

  static constexpr int kTile = 64;         // filters of a product
  static constexpr int kMostTurned = 128;  // filters in all, of products whose rows are positions
  static constexpr int kMostWeightStageBytes = 20 * 1024;
  static constexpr int kMostWeightStages = 8;
  static constexpr int kMostSegments = 40;
  static constexpr int kMostSteps = 512;
  static constexpr int kMostReach = 1 << 18;  // so that a window is an int
  static constexpr long long kInt = 1LL << 30;

 private:
  // In all that follows, loops are over taps alone: strides, dilations and padding may be of any size, and
  // planning asks thousands of times.

  // The phases less than `below` that some tap meets: after so many taps they come again.
  static constexpr int phases_below(int below, int taps, int dilation, int stride) {
    const int period = stride / gcd(dilation, stride);
    int count = 0;
    for (int tap = 0; tap < taps && tap < period; ++tap) count += tap * dilation % stride < below;
    return count;
  }
  static constexpr int nth_phase(int index, int taps, int dilation, int stride) {
    int phase = 0;  // for the first tap
    for (; index > 0; --index) {
      int next = stride;
      for (int tap = 0; tap < taps; ++tap) {
        const int other = tap * dilation % stride;
        if (other > phase && other < next) next = other;
      }
      phase = next;
    }
    return phase;
  }

  // The least distance from row to row (or image to image) of positions at which every pixel beyond it is
  // padding, and so is the pixel of the next row that lies in its place: all that each tap asks for.
  static constexpr int run(int outputs, int taps, int dilation, int stride, int pad, int extent) {
    int length = outputs;
    for (int tap = 0; tap < taps; ++tap) {
      const int end = outputs + tap * dilation / stride;  // for the tap's positions
      const int shift = pad - tap * dilation % stride;
      // Its positions on pixels; all others are padding.
      const int first = ceil_div(greater(0, shift), stride);
      const int last = ceil_div(greater(0, extent + shift), stride);
      int least = (end + 1) / 2;  // none lies in the row after the next
      if (first < last) {
        if (first < end) least = greater(least, last);  // beyond the row, padding
        least = greater(least, end - first);            // in the next row's first places, padding
      }
      length = greater(length, least < end ? least : end);
    }
    return length;
  }
};

}  // namespace convtune
