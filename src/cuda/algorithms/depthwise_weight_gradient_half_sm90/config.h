// The gradients of depthwise weights in half precision on compute capability 9.0
// (depthwise_weight_gradient_half_sm90.cuh, which draws it): problem, choices, and what follows from them,
// shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/smem.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

// A block has 8 channels times `octets`, a warp four of them. A strip is `width` columns, of which an image
// has `parts` beside each other; four lanes of a warp have `strips` of them each. A product has 16 blocks of
// 8 columns, four of each lane.
struct DepthwiseWeightGradientHalfSm90 {
  ConvExtents conv;
  ElementType w_type = ElementType::f32;  // not a choice: dw's
  bool bias = true;                       // nor this: whether the bias's gradient is wanted
  int width = 8, parts = 1, strips = 1, octets = 4, stages = 4, split = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DepthwiseWeightGradientHalfSm90";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv), field("w_type", self.w_type), field("bias", self.bias);
    field("width", self.width, 1, 8 * kSlots, "columns of a strip");
    field("parts", self.parts, 1, kLanes, "strips beside each other of an image: 1, 2 or 4");
    field("strips", self.strips, 1, kSlots, "strips of a lane");
    field("octets", self.octets, 1, 8, "eights of channels of a block: 1, 2 or 4");
    field("stages", self.stages, 2, kMostStages, "rows of x and of dy kept at once");
    field("split", self.split, 1, 1 << 16, "blocks that share a sum");
    field("blocks", self.blocks, 1, 8, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return true; }

  // ---- Warps: those that multiply, four channels each, and those that copy; whole warpgroups of them hand
  // registers on ----
  constexpr int consumers() const { return 2 * octets; }
  constexpr bool passes_registers() const { return consumers() % 4 == 0; }
  constexpr int copying() const { return passes_registers() ? 4 : 1; }
  constexpr int threads() const { return 32 * (consumers() + copying()); }
  static constexpr int kCopying = 40;  // registers
  constexpr int launch_registers() const { return registers_by_quarters(threads(), blocks); }
  constexpr int register_limit() const {  // for warps that multiply
    if (!passes_registers()) return launch_registers();
    return lesser((launch_registers() * (threads() / 128) - kCopying) / (consumers() / 4) / 8 * 8, 240);
  }
  constexpr int channels() const { return 8 * octets; }
  constexpr int chunks() const { return ceil_div(conv.c, channels()); }
  constexpr long long all_blocks() const { return 1LL * chunks() * split; }

  // ---- Strips: those of a unit go down their images together ----
  constexpr int across() const { return ceil_div(width, 8); }  // blocks of 8 columns
  constexpr int slots() const { return strips * across(); }    // of a lane's four, that are used
  constexpr int images() const { return kLanes * strips / parts; }
  constexpr int unit_columns() const { return parts * width; }
  constexpr int sides() const { return ceil_div(conv.q, unit_columns()); }
  constexpr long long units() const { return 1LL * ceil_div(conv.n, images()) * sides(); }
  // Rows of x of all units, which are dealt out to the blocks evenly.
  constexpr long long rows() const { return units() * conv.h; }
  // A row of x meets the dy of so many rows, the last of which comes with it.
  constexpr int depth() const { return (conv.r - 1) * conv.dilation_h + 1; }
  constexpr int reach() const { return (conv.s - 1) * conv.dilation_w; }

  // ---- Shared memory: a stage is a row of a unit, [image][column][channel] of x and then of dy, as TMA has
  // it. What a lane reads behind a row of x meets zeros, but must be numbers: what follows in the stage ----
  constexpr int pixel_bytes() const { return 16 * octets; }
  // A strip's first pixel, of rows that are so many pixels apart.
  constexpr int pixel_of(int strip, int pitch) const { return strip / parts * pitch + strip % parts * width; }
  // How many of 16 lanes that read at once meet at one bank: 4 pixels in a row of each of 4 strips.
  constexpr int meeting(int pitch) const {
    int most = 0;
    for (int place = 0; place < 8; ++place) {
      int lanes = 0;
      for (int lane = 0; lane < kLanes; ++lane) lanes += (place + 8 * 256 - pixel_of(lane, pitch)) % 8 < 4;
      most = greater(most, lanes);
    }
    return most;
  }
  // The least pitch from so many columns on whose rows begin where TMA can have them, with fewest that meet.
  constexpr int pitch_from(int columns) const {
    int best = 0;
    for (int pitch = columns; pitch < columns + 8; ++pitch)
      if (pitch % 2 == 0 && images() * pitch * pixel_bytes() % 128 == 0 &&
          (best == 0 || meeting(pitch) < meeting(best)))
        best = pitch;
    return best;
  }
  constexpr int input_pitch() const { return pitch_from(unit_columns() + reach()); }
  constexpr int gradient_pitch() const { return pitch_from(unit_columns()); }
  constexpr int input_pixels() const { return images() * input_pitch(); }
  constexpr int gradient_pixels() const { return images() * gradient_pitch(); }
  constexpr int input_bytes() const { return input_pixels() * pixel_bytes(); }
  constexpr int gradient_bytes() const { return gradient_pixels() * pixel_bytes(); }
  constexpr int stage_bytes() const { return round_up(input_bytes() + gradient_bytes(), 1024); }
  // Pieces of 16 bytes are exchanged so that those of eight pixels in a row lie in different banks.
  constexpr int piece_at(int pixel, int piece) const {
    return octets == 1 ? piece : piece ^ (pixel * octets / 8 % octets);
  }
  // Handles four channels of a pixel of a stage.
  constexpr int offset(int pixel, int quad) const {
    return pixel * pixel_bytes() + 16 * piece_at(pixel, quad / 2) + quad % 2 * 8;
  }
  constexpr int last_read() const { return pixel_of(kLanes * strips - 1, input_pitch()) + 8 * across() + 8; }
  // In the end, for each warp: the products of one channel, a row of 8 sums being 9 apart.
  static constexpr int kRowFloats = 9, kProductFloats = 16 * kRowFloats;
  constexpr int sum_bytes() const { return 4 * conv.r * kProductFloats; }
  struct Smem {
    int stages, biases, full, empty, block;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const long long ring = 1LL * stages * stage_bytes(), sums = 1LL * consumers() * sum_bytes();
    const int begin = plan.take(round_up(ring > sums ? ring : sums, 16LL));
    const int biases = plan.take(bias ? 16 * 32 * consumers() : 0);
    const int full = plan.take(8 * stages), empty = plan.take(8 * stages);
    const int block = plan.take(8);
    return {begin, biases, full, empty, block, plan.end};
  }
  constexpr long long smem_bytes() const { return smem().end; }

  // ---- Partial sums of each rank ----
  constexpr int taps() const { return conv.r * conv.s; }
  constexpr int all_channels() const { return chunks() * channels(); }
  constexpr DepthwiseSums sums() const { return {conv.c, all_channels(), taps(), bias}; }
  constexpr long long rank_fours() const { return sums().words() / 4; }
  constexpr long long weight_of(long long four, int i) const {
    return sums().weight_of(static_cast<int>(4 * four) + i);
  }
  constexpr long long partial_words() const { return 1LL * split * sums().words(); }

  // ---- Cost ----
  // About, by ptxas of CUDA 13.0: where registers are handed on it spills with some twenty to spare.
  constexpr bool is_deep() const { return slots() > 2; }  // else half of a product's depth is enough
  constexpr int registers() const {
    const int kept = 16 * conv.r + (is_deep() ? 8 * depth() : 4 * depth() - 8) + 4 * (strips - 1);
    return 30 + kept + (passes_registers() ? 20 : 0);
  }
  constexpr bool fits_problem() const {
    return conv.nhwc && conv.c % 8 == 0 && conv.stride_h == 1 && conv.stride_w == 1 && reach() + 8 <= 16 &&
           depth() <= kMostDepth && conv.pad_top < depth() && conv.p <= conv.h + conv.pad_top;
  }
  constexpr bool possible() const {
    return is_in_range(*this) && fits_problem() && (parts == 1 || parts == 2 || parts == 4) &&
           (octets == 1 || octets == 2 || octets == 4) && slots() <= kSlots && kLanes * strips % parts == 0 &&
           input_pitch() > 0 && gradient_pitch() > 0 && input_pitch() <= 256 && gradient_pitch() <= 256 &&
           last_read() <= input_pixels() + gradient_pixels();
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && width <= conv.q && split <= rows() && smem_bytes() <= smem_per_block &&
           registers() <= register_limit() && 4 * partial_words() <= kMostPartialBytes &&
           conv.offsets_are_ints() && rows() < (1LL << 30);
  }
  static constexpr int kLanes = 4, kSlots = 4, kMostDepth = 9, kMostStages = 16;
};

}  // namespace convtune
