// The depthwise kernel for three dimensions (direct_depthwise_3d_sm80.cuh, which draws it): problem, choices,
// and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// A block has `channels` channels of a tile of a frame of outputs, and goes through `frames` frames. A thread
// has `width` channels of a strip of `rows` by `columns` outputs. In NCHW a block's channels may be of two
// images: a volume is one channel of one image.
struct DirectDepthwise3dSm80 {
  ConvExtents conv;
  int rows = 1, columns = 1, channels = 1, width = 1, down = 1, across = 1, frames = 1, stages = 2,
      blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DirectDepthwise3dSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("rows", self.rows, 1, kMostStrip, "rows of a thread's strip of outputs");
    field("columns", self.columns, 1, kMostStrip, "columns of a thread's strip of outputs: 4 in NCHW");
    field("channels", self.channels, 1, kMostThreads,
          "channels of a block, whole pieces of 16 bytes in NHWC");
    field("width", self.width, 1, 2, "channels of a thread: one, or in NHWC a word of two halves");
    field("down", self.down, 1, kMostThreads, "strips below each other");
    field("across", self.across, 1, kMostThreads, "strips beside each other");
    field("frames", self.frames, 1, 1 << 20, "frames of outputs that a block goes through");
    field("stages", self.stages, 2, kMostStages, "frames of input in shared memory");
    field("blocks", self.blocks, 1, 32, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return true; }
  // The least of blocks.
  static constexpr DirectDepthwise3dSm80 least(const ConvExtents& conv) {
    return conv.nhwc ? DirectDepthwise3dSm80{.conv = conv, .channels = 16 / size_of(conv.x_type)}
                     : DirectDepthwise3dSm80{.conv = conv, .columns = kVector};
  }
  constexpr int word() const { return 4 / size_of(conv.x_type); }  // elements of 4 bytes

  // ---- A block's part of the output ----
  constexpr int tile_rows() const { return rows * down; }
  constexpr int tile_columns() const { return columns * across; }
  constexpr int bands() const { return ceil_div(conv.p, tile_rows()); }
  constexpr int sides() const { return ceil_div(conv.q, tile_columns()); }
  constexpr int marches() const { return ceil_div(conv.z, frames); }
  constexpr int images() const { return conv.nhwc ? conv.n : 1; }
  constexpr long long volumes() const { return conv.nhwc ? conv.c : 1LL * conv.n * conv.c; }
  constexpr long long chunks() const { return ceil_div(volumes(), channels); }
  constexpr long long all_blocks() const { return images() * chunks() * bands() * sides() * marches(); }
  constexpr int lanes() const { return channels / width; }
  constexpr int used_threads() const { return lanes() * down * across; }
  constexpr int threads() const { return round_up(used_threads(), 32); }

  // ---- Frames: each that comes is multiplied for all outputs that it belongs to, whose sums are `live()`
  // frames of registers. A turn ends with a frame of outputs that is complete; in it come `turn_frames()`
  // frames, one after the other ----
  constexpr int seen_frames() const { return (conv.t - 1) * conv.dilation_d + 1; }
  constexpr int live() const { return ceil_div(seen_frames(), conv.stride_d); }
  constexpr int turn_frames() const { return lesser(conv.stride_d, seen_frames()); }
  // Returns the frame of x that comes as number `step` of the turn that completes z.
  constexpr int frame(int z, int step) const {
    return z * conv.stride_d - conv.pad_front + seen_frames() - turn_frames() + step;
  }
  // Returns the filter's frame that meets it for the output `later` frames behind, or -1.
  constexpr int filter_frame(int step, int later) const {
    return tap(seen_frames() - turn_frames() + step - later * conv.stride_d, conv.dilation_d, conv.t);
  }

  // ---- A strip's input ----
  constexpr int strip_rows() const { return window(rows, conv.stride_h, conv.r, conv.dilation_h); }
  constexpr int strip_columns() const { return window(columns, conv.stride_w, conv.s, conv.dilation_w); }
  constexpr int filter_row(int input, int output) const {
    return tap(input - output * conv.stride_h, conv.dilation_h, conv.r);
  }
  constexpr int filter_column(int input, int output) const {
    return tap(input - output * conv.stride_w, conv.dilation_w, conv.s);
  }
  constexpr bool uses_row(int input) const {
    for (int output = 0; output < rows; ++output)
      if (filter_row(input, output) >= 0) return true;
    return false;
  }
  constexpr bool uses_column(int input) const {
    for (int output = 0; output < columns; ++output)
      if (filter_column(input, output) >= 0) return true;
    return false;
  }

  // ---- A frame in shared memory: lines of elements, zero where there is no image. In NHWC a line is a row,
  // [column][channel]; in NCHW it is a row of one channel, whose columns begin at a multiple of what is
  // copied at once, `margin()` before the first output's ----
  constexpr bool pieces() const {  // true: lines are copied by 16 bytes
    const int some = 16 / size_of(conv.x_type);
    if (conv.nhwc) return conv.c % some == 0;
    return conv.w % some == 0 && (sides() == 1 || tile_columns() * conv.stride_w % some == 0);
  }
  constexpr bool words() const {
    if (conv.nhwc) return conv.c % word() == 0;
    return conv.w % word() == 0 && (sides() == 1 || tile_columns() * conv.stride_w % word() == 0);
  }
  constexpr int copied() const {
    return aligned && pieces() ? 16 / size_of(conv.x_type) : word();
  }                                                                              // elements
  constexpr bool copies() const { return word() == 1 || (aligned && words()); }  // else halves one by one
  constexpr int margin() const {
    return conv.nhwc ? conv.pad_left
                     : round_up(conv.pad_left, pieces() ? 16 / size_of(conv.x_type) : kVector);
  }
  constexpr int shift() const { return margin() - conv.pad_left; }  // columns before a window in NCHW
  constexpr int input_rows() const { return window(tile_rows(), conv.stride_h, conv.r, conv.dilation_h); }
  constexpr int input_columns() const {
    const int all = window(tile_columns(), conv.stride_w, conv.s, conv.dilation_w);
    return conv.nhwc ? all : round_up(shift() + all, pieces() ? 16 / size_of(conv.x_type) : kVector);
  }
  constexpr int lines() const { return conv.nhwc ? input_rows() : channels * input_rows(); }
  constexpr int line_elements() const { return input_columns() * (conv.nhwc ? channels : 1); }
  constexpr int line_bytes() const { return line_elements() * size_of(conv.x_type); }
  constexpr long long frame_bytes() const { return 1LL * lines() * line_bytes(); }
  constexpr int first_row(int band) const { return band * tile_rows() * conv.stride_h - conv.pad_top; }
  constexpr int first_column(int side) const { return side * tile_columns() * conv.stride_w - margin(); }
  // Returns where a thread's strip begins in a frame, bytes.
  constexpr int strip_offset(int first_channel, int strip_down, int strip_across) const {
    const int row = strip_down * rows * conv.stride_h, column = strip_across * columns * conv.stride_w;
    const int in_line = conv.nhwc ? column * channels + first_channel : column;
    return (row + (conv.nhwc ? 0 : first_channel * input_rows())) * line_bytes() +
           in_line * size_of(conv.x_type);
  }

  // ---- Packed weights, floats: in NHWC [tap][channel of all chunks], in NCHW [channel][tap, in fours] ----
  constexpr int taps() const { return conv.taps(); }
  constexpr int channel_taps() const { return round_up(taps(), 4); }
  constexpr int packed_channels() const { return conv.nhwc ? static_cast<int>(chunks()) * channels : conv.c; }
  constexpr Packed packed() const {
    return {.prepared = 1LL * (conv.nhwc ? taps() : channel_taps()) * packed_channels(),
            .weights = conv.weights(),
            .biases = conv.k,
            .zeros = packed_channels() - conv.k};
  }
  constexpr long long source_of(long long i) const {
    const long long channel = conv.nhwc ? i % packed_channels() : i / channel_taps();
    const long long tap = conv.nhwc ? i / packed_channels() : i % channel_taps();
    return channel < conv.c && tap < taps() ? channel * taps() + tap : -1;
  }
  // Else they are in shared memory, in the same order, of the block's channels.
  constexpr bool weights_in_registers() const { return taps() * width <= kMostWeights; }
  constexpr int tap_stride() const {
    return !conv.nhwc ? 1 : weights_in_registers() ? packed_channels() : channels;
  }
  constexpr int block_weights() const {
    return weights_in_registers() ? 0 : channels * (conv.nhwc ? taps() : channel_taps());
  }

  struct Smem {
    int input, weights;  // bytes
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    return {.input = plan.take(round_up(stages * frame_bytes(), 16LL)),
            .weights = plan.take(4LL * block_weights()),
            .end = plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Cost, of a thread and a turn ----
  constexpr int used_rows() const {
    int used = 0;
    for (int row = 0; row < strip_rows(); ++row) used += uses_row(row);
    return used;
  }
  constexpr int row_loads() const {  // instructions: of words, or of vectors of 4 elements
    return conv.nhwc ? strip_columns() : ceil_div(shift() % kVector + strip_columns(), kVector);
  }
  constexpr int products() const { return taps() * rows * columns * width; }  // in straight code
  constexpr int registers() const {                                           // about: ptxas decides
    return 36 +
           width *
               (live() * rows * columns + (weights_in_registers() ? taps() : 2 * conv.s) + strip_columns()) +
           (conv.residual ? rows * columns * width / word() : 0);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool possible() const {
    const bool strips = conv.nhwc
                            ? channels % (16 / size_of(conv.x_type)) == 0 && (width == 1 || width == word())
                            : columns == kVector && width == 1;
    return is_in_range(*this) && strips && 1LL * lanes() * down * across <= kMostThreads;
  }
  constexpr bool valid() const {
    return possible() && strip_rows() <= kMostWindow && strip_columns() <= kMostWindow &&
           live() <= kMostLive && 1LL * products() * live() <= 4LL * kMostProducts * conv.t &&
           products() <= kMostProducts && registers() <= register_limit() && all_blocks() < (1LL << 31) &&
           packed().launchable() && conv.offsets_are_ints() && frame_bytes() < (1 << 20);
  }

  static constexpr int kVector = 4;  // elements that a thread reads at once in NCHW
  static constexpr int kMostThreads = 1024, kMostStrip = 16, kMostWindow = 64, kMostStages = 8,
                       kMostLive = 16;
  static constexpr int kMostWeights = 56;     // in registers
  static constexpr int kMostProducts = 2048;  // more compile for long

  static constexpr int window(int outputs, int stride, int filter, int dilation) {
    return (outputs - 1) * stride + (filter - 1) * dilation + 1;
  }
  static constexpr int tap(int distance, int dilation, int filter) {
    if (distance < 0 || distance % dilation != 0) return -1;
    return distance / dilation < filter ? distance / dilation : -1;
  }
};

}  // namespace convtune
