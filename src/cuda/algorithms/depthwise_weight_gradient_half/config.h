// The gradients of depthwise weights in half precision (depthwise_weight_gradient_half.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/smem.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

// A block has 8 channels times `octets` of strips beside each other: each `rows` rows of an image's dy by
// `across` blocks of 8 columns. A product has 16 such blocks of columns, of as many strips as that are.
struct DepthwiseWeightGradientHalf {
  ConvExtents conv;
  ElementType w_type = ElementType::f32;  // not a choice: dw's
  bool bias = true;                       // nor this: whether the bias's gradient is wanted
  int rows = 1, step = 1, across = 1, octets = 2, warps = 4, ahead = 0, split = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "DepthwiseWeightGradientHalf";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv), field("w_type", self.w_type), field("bias", self.bias);
    field("rows", self.rows, 1, 1 << 20, "rows of dy of a strip");
    field("step", self.step, 1, 8, "rows that come together");
    field("across", self.across, 1, kSlots, "blocks of 8 columns of a strip");
    field("octets", self.octets, 1, 8, "eights of channels of a block");
    field("warps", self.warps, 1, 16, "warps of a block, which share its channels");
    field("ahead", self.ahead, 0, kMostAhead,
          "steps on their way into shared memory as they lie; 0: one, in registers; in NCHW always");
    field("split", self.split, 1, 1 << 16, "blocks that share a sum");
    field("blocks", self.blocks, 1, 16, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  constexpr bool asks_alignment() const { return true; }
  constexpr int threads() const { return 32 * warps; }
  constexpr int channels() const { return 8 * octets; }
  constexpr int warp_channels() const { return channels() / warps; }
  constexpr int chunks() const { return ceil_div(conv.c, channels()); }
  constexpr long long all_blocks() const { return 1LL * chunks() * split; }

  // ---- Strips: `abreast` of them go down their images together ----
  constexpr int abreast() const { return kSlots / across; }
  constexpr int slots() const { return abreast() * across; }  // slots of a product that are used, of kSlots
  constexpr int sides() const { return ceil_div(conv.q, 8 * across); }
  constexpr int bands() const { return ceil_div(conv.p, rows); }
  constexpr long long strips() const { return 1LL * conv.n * bands() * sides(); }
  constexpr long long groups() const { return ceil_div(strips(), static_cast<long long>(abreast())); }
  constexpr long long turns() const { return ceil_div(groups(), static_cast<long long>(split)); }
  // A row of x meets the dy of so many rows, the last of which comes with it.
  constexpr int depth() const { return (conv.r - 1) * conv.dilation_h + 1; }
  constexpr int stages() const { return ceil_div(rows + depth() - 1, step); }

  // ---- Shared memory, in units of 8 columns: [channel][row of x][strip][block and one more], behind them
  // [row of dy][strip][block]. Two of all that, one of which is filled; a unit of zeros ----
  constexpr int input_units() const { return abreast() * (across + 1); }  // units of a row of x
  constexpr int gradient_units() const { return slots(); }
  constexpr int input_at(int row, int strip) const {
    return 16 * (row * input_units() + strip * (across + 1));
  }
  constexpr int gradient_at(int row, int strip) const {
    return 16 * (step * input_units() + row * gradient_units() + strip * across);
  }
  constexpr int plane_bytes() const { return 16 * step * (input_units() + gradient_units()); }
  // Eights of channels, which lanes beside each other have, begin half of all banks apart.
  constexpr int octet_bytes() const { return 8 * plane_bytes() + 64; }
  constexpr int channel_at(int channel) const {
    return channel / 8 * octet_bytes() + channel % 8 * plane_bytes();
  }
  constexpr int buffer_bytes() const { return octets * octet_bytes(); }
  constexpr int zeros_at() const { return 2 * buffer_bytes(); }
  static constexpr int kSumBytes = 4 * 16 * 8;  // sums of one product: 16 x 8 floats
  constexpr long long smem_bytes() const {
    const int all = coming_at() + ahead * coming_bytes();
    return greater(all, warps * kSumBytes);
  }
  // ---- Behind them steps that are on their way, in which each thread has what it will put into planes:
  // [pair][column][thread], 16 bytes each ----
  constexpr int coming_at() const { return zeros_at() + 16; }
  constexpr int coming_bytes() const { return 32 * (thread_inputs() + thread_gradients()) * threads(); }

  // ---- Columns of x in shared memory begin so far before the image's. In NCHW by whole fours, where a
  // filter leaves room for that: then `shift` more than the padding ----
  constexpr int shift() const {
    const int more = (4 - conv.pad_left % 4) % 4;
    return !conv.nhwc && (conv.s - 1) * conv.dilation_w + 8 + more <= 16 ? more : 0;
  }
  constexpr int before() const { return conv.pad_left + shift(); }

  // ---- Loads: a thread brings 8 channels of two neighbouring columns; in NCHW four columns of a channel,
  // and of every (threads() / input_quads())-th one after it ----
  constexpr int input_quads() const { return step * 2 * input_units(); }  // fours of columns of x, a channel
  constexpr int gradient_quads() const { return step * 2 * gradient_units(); }
  constexpr int input_pairs() const { return step * 4 * input_units() * octets; }
  constexpr int gradient_pairs() const { return step * 4 * gradient_units() * octets; }
  constexpr int thread_inputs() const {
    return conv.nhwc ? ceil_div(input_pairs(), threads())
                     : ceil_div(channels(), greater(threads() / input_quads(), 1));
  }
  constexpr int thread_gradients() const {
    return conv.nhwc ? ceil_div(gradient_pairs(), threads())
                     : ceil_div(channels(), greater(threads() / gradient_quads(), 1));
  }

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
  constexpr int registers() const {  // about: ptxas decides
    return 30 + warp_channels() * (4 * conv.r + 4 * bias + 2 * (depth() - 1 + step)) +
           (!conv.nhwc   ? 5
            : ahead == 0 ? 20
                         : 7) *
               (thread_inputs() + thread_gradients()) +
           (conv.nhwc ? 0 : 22) + (ahead > 0 ? 16 : 0);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }
  constexpr bool fits_problem() const {
    return (conv.c % 8 == 0 || !conv.nhwc) && conv.stride_h == 1 && conv.stride_w == 1 &&
           (conv.s - 1) * conv.dilation_w + 8 <= 16 && depth() <= kMostDepth;
  }
  constexpr bool possible() const {
    return is_in_range(*this) && fits_problem() && channels() % warps == 0 && warp_channels() <= 4 &&
           (warp_channels() == 1 || warp_channels() % 2 == 0) &&
           (conv.nhwc || (input_quads() <= threads() && ahead == 0)) &&
           32LL * kMostAhead * (thread_inputs() + thread_gradients()) * threads() < (1 << 24);
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && rows <= conv.p && 8 * (across - 1) < conv.q && split <= groups() &&
           smem_bytes() <= smem_per_block && registers() <= register_limit() && strips() < (1LL << 30) &&
           4 * partial_words() <= kMostPartialBytes && conv.offsets_are_ints() &&
           turns() * stages() < (1LL << 30);
  }
  static constexpr int kSlots = 16, kMostDepth = 9, kMostAhead = 4;
};

}  // namespace convtune
