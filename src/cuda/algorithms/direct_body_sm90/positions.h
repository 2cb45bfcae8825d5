// Maps the positions of direct_body_sm90.h to places in x and in y. Templates, so that all that is divided by
// is a constant in device code; constexpr, so that tests need no device.
#pragma once

#include "cuda/algorithms/direct_body_sm90/config.h"

namespace convtune::direct_body_sm90 {

// The numbers that device code divides by and multiplies with, as constants for certain.
template <DirectBodySm90 config>
struct Sizes {
  static constexpr int kPitch = config.pitch(), kImageRows = config.image_rows();
  static constexpr int kImagePositions = static_cast<int>(config.image_positions());
  static constexpr int kStripWidth = config.strip_width(), kStrips = config.strips;
  static constexpr int kWindow = config.window();
  static constexpr int kPlane = config.plane_chunks(), kUnitChunks = config.unit_chunks();
  static constexpr int kStageBytes = config.stage_bytes(), kStages = config.stages;
  static constexpr int kWeightBytes = config.weight_stage_bytes(), kWeightStages = config.weight_stages;
  static constexpr int kWeightGroups = config.weight_groups(), kWeightSteps = config.weight_steps();
  static constexpr int kBlocks = config.blocks(), kFrameBlocks = config.frame_blocks();
  static constexpr int kPositions = config.positions, kStagingPitch = config.staging_pitch();
  static constexpr auto kAt = config.smem();  // from the start of shared memory
};

// Returns the offset in x of a chunk of a unit, for a tap over time, from the tile's first image (in three
// dimensions its first volume) on, or -1 for padding.
template <DirectBodySm90 config>
constexpr int chunk_source(int chunk, int first_position, int first_image, int tap = 0) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
  constexpr int kFrame = a.h * a.w;
  constexpr int kPhasesH = config.phases_h(), kPhasesW = config.phases_w();
  // One phase, or all of them: numbered as they are. Registers are too few to work it out.
  constexpr bool kPlainH = kPhasesH == 1 || kPhasesH == a.stride_h;
  constexpr bool kPlainW = kPhasesW == 1 || kPhasesW == a.stride_w;
  if (chunk >= S::kUnitChunks) return -1;
  const int phase = chunk / S::kWindow;
  const int position = first_position + chunk % S::kWindow;
  const int phase_h = kPlainH ? phase / kPhasesW : config.phase_h(phase / kPhasesW);
  const int phase_w = kPlainW ? phase % kPhasesW : config.phase_w(phase % kPhasesW);
  const int strip_image = position / S::kImagePositions, in_image = position % S::kImagePositions;
  const int image = strip_image / S::kStrips;
  const int row = in_image / S::kPitch * a.stride_h + phase_h - a.pad_top;
  const int column =
      (strip_image % S::kStrips * S::kStripWidth + in_image % S::kPitch) * a.stride_w + phase_w - a.pad_left;
  if (image >= config.images() || row < 0 || row >= a.h || column < 0 || column >= a.w) return -1;
  if constexpr (a.has_depth()) {
    const int frame = image % a.z * a.stride_d + tap * a.dilation_d - a.pad_front;
    if (frame < 0 || frame >= a.d) return -1;
    if constexpr (a.nhwc)
      return (((image / a.z - first_image) * a.d + frame) * kFrame + row * a.w + column) * a.c;
    return (image / a.z - first_image) * (a.c * a.d * a.h * a.w) + (frame * a.h + row) * a.w + column;
  }
  if constexpr (a.nhwc) return ((image - first_image) * kFrame + row * a.w + column) * a.c;
  return (image - first_image) * (a.c * a.h * a.w) + row * a.w + column;
}

struct Output {
  int image, row, column;  // an image is a frame of a volume, counted through all of them
};

// The output of a position; its column is the image's width or more where it has none.
template <DirectBodySm90 config>
constexpr Output output_of(int position) {
  using S = Sizes<config>;
  const int strip_image = position / S::kImagePositions, in_image = position % S::kImagePositions;
  const int row = in_image / S::kPitch, column = in_image % S::kPitch;
  Output at{strip_image / S::kStrips, row, strip_image % S::kStrips * S::kStripWidth + column};
  if (column >= S::kStripWidth || row >= config.conv.p || at.image >= config.images())
    at.column = config.conv.q;
  return at;
}

// Describes the part of a segment, contiguous in y, that a warpgroup's positions cover.
template <DirectBodySm90 config>
struct Segment {
  using S = Sizes<config>;
  static constexpr int kPositions = static_cast<int>(config.segment_positions());
  int image, origin /* in y's image, of the segment */, begin, end /* outputs of the segment */;
  int slot /* floats from the start of a filter's staging */;

  constexpr Segment(int index, int first_index, int first_position) {
    constexpr ConvExtents a = config.conv;
    const int start = index * kPositions, from = greater(first_position - start, 0);
    const int to = lesser(first_position + S::kPositions - start, kPositions);
    slot = (greater(start - first_position, 0) + 3) / 4 * 4 + 8 * (index - first_index);
    if constexpr (config.strips == 1) {
      image = index;
      origin = 0;
      begin = before(from);
      end = before(to);
    } else {
      const int strip = index / S::kImageRows % S::kStrips, row = index % S::kImageRows;
      const int width = row < a.p ? lesser(S::kStripWidth, a.q - strip * S::kStripWidth) : 0;
      image = index / S::kImageRows / S::kStrips;
      origin = row * a.q + strip * S::kStripWidth;
      begin = lesser(from, width);
      end = lesser(to, width);
    }
    if (image >= config.images()) end = begin;
  }
  // Outputs of a segment before one of its positions.
  static constexpr int before(int position) {
    if constexpr (config.strips > 1) return position;
    return lesser(position / S::kPitch * config.conv.q + lesser(position % S::kPitch, config.conv.q),
                  config.conv.p * config.conv.q);
  }
};

}  // namespace convtune::direct_body_sm90
