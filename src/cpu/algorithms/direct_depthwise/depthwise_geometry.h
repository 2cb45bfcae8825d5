// The depthwise convolution's search space, its tasks and its packed weights. Plain arithmetic.
//
// A task is some rows, or some columns of them, of one plane of the output, or of one image of it where
// channels are last; with a depth of a frame of those.
//
//   packed weights, NCHW   [output channel][filter frame][filter column][filter row], bias, whether one is
//                          not finite
//   packed weights, NHWC   [vector][filter frame][filter row][word of a group][filter column][part][lane],
//                          bias [vector][part][lane]
//
// Channels last, a vector has `parts` times as many channels as lanes: of bf16, whose even and odd channels
// are widened apart. With groups of several channels a lane is a filter, which multiplies the words of its
// group, f32 or pairs of bf16, and the parts are the lower and the upper half. The last vector ends with the
// last channel: its first ones may be another's too.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convtune/problem.h"
#include "cpu/tile/memory_plan.h"

namespace convtune::cpu {

struct DepthwiseConfig {
  int vector_bits = 512, rows = 0, tile = 4, vectors = 0, stream = 0, cols = 0;

  template <class Self, class Field>
  static void visit(Self& self, Field&& field) {
    constexpr int kMost = 1 << 30;
    field("vector_bits", self.vector_bits, 128, 512, "instruction set: 512, 256 or 128");
    field("rows", self.rows, 0, kMost, "output rows of a task; 0: all of an image");
    field("tile", self.tile, 0, 14,
          "register tile: output rows (1, 2, 4 or 8; 0: one after the other, each row of x read once), "
          "or pixels where channels are last");
    field("vectors", self.vectors, 0, kMost,
          "channels last: vectors of channels that a task goes through together; 0: all");
    field("stream", self.stream, 0, 1,
          "outputs go past the caches: channels last where vectors are whole lines, else of tile=0 and 1");
    field("cols", self.cols, 0, kMost,
          "output columns of a task; 0: all of a row. Channels first, of tile=1, a multiple of 32");
  }
};

// Lines that LinedPixels joins at a time, and floats that it takes beside weights.
constexpr std::int64_t kLinesJoined = 8, kLinedFloats = (2 * kLinesJoined + 5) * kCacheLineBytes / 4;

// A thread's working memory: outputs past the caches whose lines are not whole yet, or weights for vectors
// that begin with lines.
MemoryPlan depthwise_memory(const ConvProblem& problem, const DepthwiseConfig& config);

struct DepthwiseGeometry {
  DepthwiseGeometry(const ConvProblem& problem, const DepthwiseConfig& config);

  std::int64_t packed_weight(std::int64_t k, std::int64_t tap) const {
    if (channels_last) return tap * filters + k;
    const std::int64_t in_frame = tap % frame_taps, rows = frame_taps / filter_cols;
    return k * taps + tap - in_frame + in_frame % filter_cols * rows + in_frame / filter_cols;
  }

  // Channels last: the channel of a lane of a vector.
  std::int64_t channel(std::int64_t vector, std::int64_t part, std::int64_t lane) const {
    const std::int64_t first = std::min(vector * step, filters - step);
    return first + (group_channels > 1 ? part * lanes + lane : lane * parts + part);
  }
  // Which of a vector's words that lane multiplies as word 0 of its group.
  std::int64_t shuffled(std::int64_t part, std::int64_t lane) const {
    return (part * lanes + lane) / group_channels * words;
  }

  bool channels_last;
  std::int64_t lanes, parts, step;              // lanes and parts of a vector; step: its channels
  std::int64_t group_channels, words, vectors;  // words: of a group
  std::int64_t filters, output_frames, output_rows, output_cols, filter_cols, frame_taps, taps;
  std::int64_t task_rows, row_tasks, task_cols, col_tasks;
  std::int64_t buffered_rows;  // channels first: at most, where strips are no whole lines; 0: none
  std::int64_t tasks;
  std::int64_t lined_floats;  // LinedPixels' memory of a thread; 0: vectors begin with pixels always
  std::int64_t packed_bias, packed_flag;  // offsets of the bias and the flag, in floats
  MemoryPlan memory;
};

}  // namespace convtune::cpu
