// The kernel for first layers in half precision (direct_stem_half.cuh, which draws it): problem, choices, and
// what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/any_batch.h"
#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// A block computes tiles of whole output rows of one frame (an image is one), for `filters` filters whose
// weights stay in shared memory; its warps take 16 outputs each at a time. A window is segments of contiguous
// input: a filter row of all channels where channels come last, of one channel where they come first. Frames
// of x that a frame of outputs meets are planes of the window.
struct DirectStemHalf {
  ConvExtents conv;
  int filters = 64, rows = 1, warps = 8, stages = 2, blocks = 1;
  bool wgmma = true;       // warpgroups multiply, for compute capability 9.0; else warps
  bool aligned = true;     // not a choice: x and y begin at multiples of 16 bytes
  bool any_batch = false;  // not a choice: takes any batch up to the problem's
  static constexpr const char* kName = "DirectStemHalf";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("filters", self.filters, 16, 128, "filters of a block, a multiple of 16");
    field("rows", self.rows, 1, 1 << 20, "output rows of a tile");
    field("warps", self.warps, 4, 16, "warps that multiply, a multiple of 4");
    field("stages", self.stages, 2, 4, "tiles whose input is kept at once");
    field("blocks", self.blocks, 1, 6, "blocks that an SM shall hold at once, a launch bound");
    field("wgmma", self.wgmma, 0, 1, "1: warpgroups multiply (compute capability 9.0), 0: warps");
    field("aligned", self.aligned);
    if (self.any_batch) field("any_batch", self.any_batch);
  }
  constexpr bool asks_alignment() const { return true; }
  // Rows of the input come by bulk copies, which one warp asks for; else by all threads' copies.
  constexpr bool has_bulk_form() const { return wgmma && row_halves() % 8 == 0; }
  constexpr bool bulk() const { return has_bulk_form() && aligned; }
  constexpr int product_columns() const { return wgmma ? filters : 0; }
  constexpr int threads() const { return 32 * warps; }

  // ---- The sum: segments of a window, each some pairs of halves ----
  constexpr int segments() const { return planes() * conv.r; }
  constexpr int segment_halves() const { return conv.nhwc ? conv.s * conv.c : conv.s; }
  constexpr int pixel_halves() const { return conv.nhwc ? conv.c : 1; }  // from column to column
  constexpr int output_step() const {
    return conv.stride_w * pixel_halves();
  }  // from output to output, in halves
  // A half before the first where it would lie at an odd place: loads take pairs.
  constexpr int before() const { return conv.pad_left * pixel_halves() % 2; }
  constexpr int segment_pairs() const { return ceil_div(before() + segment_halves(), 2); }
  constexpr int pairs() const { return segments() * segment_pairs(); }
  constexpr int steps() const { return ceil_div(pairs(), 8); }  // per matrix product, 16 halves each
  constexpr bool whole_pairs() const {
    return output_step() % 2 == 0;
  }  // else windows begin at odd places, too

  // ---- A tile's input in shared memory: [image plane][row][halves], zero outside of the image ----
  constexpr int planes() const { return conv.nhwc ? conv.t : conv.c * conv.t; }
  constexpr int row_halves() const { return conv.w * pixel_halves(); }  // for the image
  constexpr int tile_rows() const { return (rows - 1) * conv.stride_h + (conv.r - 1) * conv.dilation_h + 1; }
  constexpr int copy_halves() const { return gcd(aligned ? 8 : 1, row_halves()); }  // that are aligned
  // Halves of zeros before the image, so that copies into shared memory are aligned.
  constexpr int lead() const { return round_up(conv.pad_left * pixel_halves() + before(), 8); }
  // Returns the column at which the window of a row's first output begins.
  constexpr int first_window() const { return lead() - conv.pad_left * pixel_halves() - before(); }
  constexpr int pitch() const {  // halves from row to row
    return round_up(
        greater(first_window() + (conv.q - 1) * output_step() + 2 * segment_pairs(), lead() + row_halves()),
        8);
  }
  constexpr int plane_halves() const { return tile_rows() * pitch(); }
  constexpr int tile_halves() const { return planes() * plane_halves(); }
  struct Window {  // in numbers: each step of the kernel asks for eight pairs
    int pairs, segment_pairs, segment_halves, before, rows, plane_halves, row_halves;

    // From a window's first half to that of a pair.
    constexpr int offset(int pair) const {
      const int segment = pair / segment_pairs;
      return segment / rows * plane_halves + segment % rows * row_halves + pair % segment_pairs * 2;
    }
    // Which halves of a pair count.
    constexpr unsigned mask(int pair) const {
      const int at = pair % segment_pairs * 2 - before;
      if (pair >= pairs) return 0;
      return (at >= 0 ? 0x0000ffffu : 0) | (at + 1 < segment_halves ? 0xffff0000u : 0);
    }
  };
  constexpr Window window() const {
    return {pairs(), segment_pairs(), segment_halves(),         before(),
            conv.r,  plane_halves(),  conv.dilation_h * pitch()};
  }
  // From the tile's first half to the window of one of its outputs.
  constexpr int window_offset(int output) const {
    return output / conv.q * conv.stride_h * pitch() + first_window() + output % conv.q * output_step();
  }
  // Which of a warp's 16 outputs has a row of its products. Windows of outputs beside each other begin 3 or 6
  // words apart; of 6 only those of every second output lie in banks of their own.
  constexpr int output_of_row(int row) const { return exchanges_outputs() ? row % 8 * 2 + row / 8 : row; }
  constexpr int row_of_output(int output) const {
    return exchanges_outputs() ? output % 2 * 8 + output / 2 : output;
  }
  constexpr bool exchanges_outputs() const {
    return conv.nhwc && output_step() % 4 == 0 && output_step() % 8 != 0;
  }

  // Tells whether warps bring the residual of a strip after the one that they compute to L2, for all filters
  // if they have the first. Only where a strip's products are too few for its way from memory: a layer of 7
  // steps becomes 4 % slower, one of 10 no faster.
  constexpr bool prefetches_residual() const {
    return conv.residual && wgmma && aligned && conv.nhwc && conv.k % 8 == 0 && steps() <= 4;
  }
  // How many strips of its own after it: images whose rows no bulk copy can bring are small, and so is the
  // time that a strip of them takes.
  constexpr int residual_ahead() const {
    return has_bulk_form() ? 1 : lesser(4, ceil_div(strips(), warps / 4));
  }

  // ---- Tiles ----
  constexpr int outputs() const { return rows * conv.q; }
  constexpr int strips() const { return ceil_div(outputs(), strip_outputs()); }
  constexpr int strip_outputs() const { return 64; }  // that a warpgroup, or four warps, take at a time
  constexpr int bands() const { return ceil_div(conv.p, rows); }
  constexpr int filter_blocks() const { return ceil_div(conv.k, filters); }
  constexpr long long tiles() const { return 1LL * conv.n * conv.z * bands(); }

  // ---- Weights, in shared memory as they are packed: [step][half of the step][filter][8 halves] ----
  constexpr int weight_halves() const { return steps() * 16 * filters; }
  // Behind those of all blocks a row of zeros, which stands for rows outside of the image.
  constexpr long long zeros_at() const { return 1LL * filter_blocks() * weight_halves(); }  // in halves
  constexpr Packed packed() const {
    return Packed::few_halves((zeros_at() + (has_bulk_form() ? row_halves() : 0)) / 2, conv.weights(),
                              conv.k);
  }
  struct Weights {  // in numbers, which the kernel that packs has as constants
    long long zeros_at;
    int block_halves, filters, segment_pairs, segments, segment_halves, before, k, c, t, r, s;
    int nhwc;  // 1 or 0

    // Which weight stands at a half of the prepared ones, or -1.
    constexpr long long source_of(long long i) const {
      if (i >= zeros_at) return -1;
      const int in_block = static_cast<int>(i % block_halves);
      const int filter = static_cast<int>(i / block_halves) * filters + in_block / 8 % filters;
      const int at_k = in_block / (16 * filters) * 16 + in_block / (8 * filters) % 2 * 8 + in_block % 8;
      const int segment = at_k / 2 / segment_pairs;
      const int at = at_k / 2 % segment_pairs * 2 + at_k % 2 - before;
      if (filter >= k || segment >= segments || at < 0 || at >= segment_halves) return -1;
      const int plane = segment / r, row = segment % r;
      const int channel = nhwc == 1 ? at % c : plane / t, column = nhwc == 1 ? at / c : at;
      return (((1LL * filter * c + channel) * t + plane % t) * r + row) * s + column;
    }
  };
  constexpr Weights weights() const {
    return {zeros_at(),
            weight_halves(),
            filters,
            segment_pairs(),
            segments(),
            segment_halves(),
            before(),
            conv.k,
            conv.c,
            conv.t,
            conv.r,
            conv.s,
            static_cast<int>(conv.nhwc)};
  }
  constexpr long long source_of(long long i) const { return weights().source_of(i); }

  // ---- Shared memory ----
  // Staged outputs, for all filters of the block: where channels come last [output][filter] of a warp's 16,
  // else [filter][output] of the strip of four warps. The pitch spreads rows over the banks.
  constexpr int staging_warps() const { return conv.nhwc ? 1 : 4; }
  constexpr int staging_pitch() const { return (conv.nhwc ? filters : strip_outputs()) + 8; }  // halves
  constexpr int staging_bytes() const {
    return 2 * staging_pitch() * (conv.nhwc ? 16 : round_up(filters, 16));
  }
  struct Smem {
    int weights, biases, tiles, staging, full, empty;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    const int weights = plan.take(2LL * weight_halves());
    const int biases = plan.take(4LL * filters);
    const int tiles = plan.take(1LL * used_stages() * tile_bytes());
    const int staging = plan.take(1LL * warps / staging_warps() * staging_bytes());
    const int full = plan.take(8LL * stages), empty = plan.take(8LL * stages);
    return {weights, biases, tiles, staging, full, empty, plan.end};
  }
  constexpr int tile_bytes() const { return 2 * round_up(tile_halves(), 64); }
  constexpr int used_stages() const { return bulk() ? stages : 2; }
  constexpr long long smem_bytes() const { return smem().end; }

  constexpr bool possible() const {
    return is_in_range(*this) && filters % 16 == 0 && rows <= conv.p && warps % 4 == 0 &&
           conv.dilation_w == 1 && conv.groups == 1 && steps() <= kMostSteps;
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && 1LL * planes() * tile_rows() * pitch() < (1 << 24) &&
           smem_bytes() <= smem_per_block && registers() <= register_limit() && tiles() < (1LL << 31) &&
           1LL * conv.c * conv.d * conv.h * conv.w < (1LL << 31) &&
           1LL * conv.k * conv.z * conv.p * conv.q < (1LL << 31);
  }
  // About: ptxas decides. Operands of more than four steps are loaded while others are multiplied; GELU and
  // 128 filters have many addresses and numbers at once.
  constexpr int registers() const {
    const bool gelu =
        conv.activation == ConvActivation::gelu_erf || conv.activation == ConvActivation::gelu_tanh;
    return filters / 2 + (!wgmma ? 88 : steps() > 4 || gelu || filters > 96 ? 72 : 64);
  }
  constexpr int register_limit() const { return registers_for(threads(), blocks); }

  static constexpr int kMostSteps = 64;  // straight code
};

}  // namespace convtune
