// The general convolution for tensor cores of compute capability 8.0 and up (implicit_gemm_sm80.cuh, which
// draws it): problem, choices, and what follows from them, shared by the kernel and by the host that plans
// it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/smem.h"

namespace convtune {

// Names the type that the operands of a product are rounded to; fp32 is split into a TF32 number and the rest
// of it.
enum class Multiply { tf32, f16, bf16, fp32 };

// A matrix product for each group: filters (m) x terms (k) times terms x output positions (n), which are the
// pixels of all images in a row. What depends on the problem takes it as an argument: a kernel that is not
// specialized is told it at every launch.
struct ImplicitGemmSm80 {
  ConvExtents conv;  // if not specialized: its layout and activation alone
  Multiply multiply = Multiply::tf32;
  int block_m = 64, block_n = 64, block_k = 16, warps_m = 2, warps_n = 2, stages = 3;
  bool chunked = false, specialized = true;
  // Tells whether x and y begin at multiples of 16 bytes. Not a choice: another kernel is compiled for those
  // that do not.
  bool aligned = true;
  static constexpr const char* kName = "ImplicitGemmSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv), field("multiply", self.multiply);
    field("block_m", self.block_m, 16, 256, "filters of a block's tile");
    field("block_n", self.block_n, 32, 256, "output positions of a block's tile: 32, 64, 128 or 256");
    field("block_k", self.block_k, 16, 32, "terms of a stage: 16 or 32");
    field("warps_m", self.warps_m, 1, 8, "warps along filters, a power of 2");
    field("warps_n", self.warps_n, 1, 8, "warps along positions, a power of 2");
    field("stages", self.stages, 2, kMostStages, "stages of the ring");
    field("chunked", self.chunked, 0, 1, "a stage is channels of one filter tap; else all terms in a row");
    field("specialized", self.specialized, 0, 1,
          "compiled for the problem; else for every problem of the layout");
    field("aligned", self.aligned);
  }

  // ---- 16 bytes at once: where neighbours of the tile are neighbours in the tensor, and aligned ----
  constexpr bool wide_input(const ConvExtents& a) const {
    if (conv.nhwc) return aligned && chunked && a.c % 4 == 0 && a.group_channels() % 4 == 0;
    const bool pointwise = !has_frames() && a.r == 1 && a.s == 1 && a.stride_h == 1 && a.stride_w == 1 &&
                           a.pad_top == 0 && a.pad_left == 0 && a.p == a.h && a.q == a.w;
    return aligned && chunked && pointwise && static_cast<long long>(a.h) * a.w % 4 == 0;
  }
  constexpr bool wide_output(const ConvExtents& a) const {
    if (conv.nhwc) return aligned && a.k % 4 == 0 && a.group_filters() % 4 == 0;
    return aligned && !between() && filter_outputs(a) % 4 == 0;
  }
  // Tells whether filters are residues of a stride, whose outputs lie between each other.
  constexpr bool between() const { return conv.lies.between(); }
  constexpr bool asks_alignment() const { return !specialized || wide_input(conv) || wide_output(conv); }

  // ---- Residues of a row that fill it are abreast: neighbours in a warp's tile, stored together, with zeros
  // for the first column that some lack ----
  constexpr int abreast() const {
    const int all = between() ? conv.lies.residues_w : 1;
    return conv.lies.stride_w == all && warp_m() % all == 0 ? all : 1;
  }
  // The filter of a group that stands at a place in the order of tiles: [channel][residue of a row].
  constexpr int ordered(int place) const {
    if (abreast() == 1) return place;
    const int results = conv.group_results(), row = results * abreast(), rest = place % row;
    return place - rest + rest % abreast() * results + rest / abreast();
  }

  // ---- Frames are told apart by terms and by positions; where some are padding, terms name theirs, too ----
  constexpr bool has_frames() const { return specialized && conv.has_depth(); }
  constexpr bool pads_frames() const {
    return has_frames() &&
           (conv.pad_front > 0 ||
            (conv.z - 1) * conv.stride_d + (conv.t - 1) * conv.dilation_d - conv.pad_front >= conv.d);
  }
  constexpr long long filter_outputs(const ConvExtents& a) const {  // per image
    return static_cast<long long>(has_frames() ? a.z : 1) * a.p * a.q;
  }

  // ---- The terms of a sum ----
  constexpr int k_blocks(const ConvExtents& a) const {
    return chunked ? ceil_div(a.group_channels(), block_k) * a.r * a.s : ceil_div(a.taps(), block_k);
  }
  struct Term {
    int channel, row, column;  // for the filter
    bool real;                 // otherwise there is none: both operands are zero
    int frame = 0;
  };
  // All taps of a chunk of channels follow each other, so that what they share is found in L1.
  constexpr Term term(const ConvExtents& a, int k_block, int k) const {
    const int window = (has_frames() ? a.t : 1) * a.r * a.s;
    int channel = k_block / window * block_k + k, tap = k_block % window;
    bool real = channel < a.group_channels();
    if (!chunked) {
      const int index = k_block * block_k + k;
      real = index < a.taps();
      channel = conv.nhwc ? index % a.group_channels() : index / window;
      tap = conv.nhwc ? index / a.group_channels() : index % window;
    }
    const int row = tap / a.s;
    if (has_frames()) return {channel, row % a.r, tap % a.s, real, row / a.r};
    return {channel, row, tap % a.s, real};
  }
  // Terms of all those blocks, in order: what is added to a position's place in the input, and to its row
  // and column.
  struct Tap {
    long long offset;
    int row, column;
    int frame = 0;
  };
  constexpr Tap tap(const ConvExtents& a, const Term& term) const {
    if (!term.real) return {0, kOutside, kOutside};
    const int row = term.row * a.dilation_h, column = term.column * a.dilation_w;
    if (has_frames())
      return {a.input_offset(0, term.channel, term.frame * a.dilation_d, row, column), row, column,
              term.frame * a.dilation_d};
    return {a.input_offset(0, term.channel, row, column), row, column};
  }

  // ---- Fragments: which number a thread holds in which register ----
  constexpr bool is_half() const { return multiply == Multiply::f16 || multiply == Multiply::bf16; }
  constexpr int k_step() const { return is_half() ? 16 : 8; }  // terms of one matrix product
  constexpr int steps() const { return block_k / k_step(); }
  // Which term of a block is element `element` of register `upper` of thread `thread` (lane % 4). The order
  // is free as long as both operands agree: channels-last, four neighbours belong to one thread.
  constexpr int term_of(int step, int thread, int upper, int element) const {
    if (is_half())
      return conv.nhwc ? 16 * step + 4 * thread + 2 * upper + element
                       : 16 * step + thread + 8 * upper + 4 * element;
    return conv.nhwc ? step / 2 * 16 + 4 * thread + step % 2 * 2 + upper : 8 * step + thread + 4 * upper;
  }
  // Which filter of a warp's is row `group` (lane / 4), or group + 8, of its product `tile`. Channels-last,
  // a thread has four neighbours in two products: it stores them together.
  constexpr int filter_of(int tile, int upper, int group) const {
    if (!conv.nhwc) return 16 * tile + 8 * upper + group;
    if ((tile | 1) < tiles_m()) return tile / 2 * 32 + 4 * group + tile % 2 * 2 + upper;
    return 16 * tile + 2 * group + upper;
  }
  // Which position of a warp's is column `column` of its product `tile`. Channels-first, four neighbours are
  // the same column of four products: they are loaded together, and stored 16 in a row by four threads.
  constexpr int position_of(int tile, int column) const {
    return conv.nhwc ? 8 * tile + column : tile / 4 * 32 + (column / 2 + column % 2 * 4) * 4 + tile % 4;
  }

  // ---- A block ----
  constexpr int threads() const { return 32 * warps_m * warps_n; }
  constexpr int warp_m() const { return block_m / warps_m; }
  constexpr int warp_n() const { return block_n / warps_n; }
  constexpr int tiles_m() const { return warp_m() / 16; }
  constexpr int tiles_n() const { return warp_n() / 8; }
  // Registers of sums. fp32's are added up by the tensor cores within a block of terms only, since those do
  // not round to nearest.
  constexpr int sums() const { return tiles_m() * tiles_n() * 4 * (multiply == Multiply::fp32 ? 2 : 1); }
  // How many the compiler shall leave room for, by registers.
  constexpr int blocks_per_unit() const {
    const int sized = sums() + (specialized ? 0 : 24) + (chunked ? 0 : 24) +  // registers that addresses take
                      (conv.nhwc && block_k == 32 ? 8 : 0);
    const int registers = sized <= 32 ? 104 : sized <= 64 ? 128 : sized <= 96 ? 168 : 255;
    return greater(65536 / (registers * threads()), 1);
  }

  constexpr int m_blocks(const ConvExtents& a) const { return ceil_div(a.group_filters(), block_m); }
  constexpr long long positions(const ConvExtents& a) const { return a.n * filter_outputs(a); }
  constexpr long long n_blocks(const ConvExtents& a) const { return ceil_div(positions(a), block_n); }
  constexpr long long blocks(const ConvExtents& a) const { return a.groups * m_blocks(a) * n_blocks(a); }

  // ---- Shared memory, in 32-bit words: a stage has weights in fragments, then input ----
  constexpr int weight_words() const {
    return block_m * block_k * (multiply == Multiply::fp32 ? 2 : 1) / (is_half() ? 2 : 1);
  }
  // Channels-first a row is a term's positions, and 4 words keep the threads of a load off each other's
  // banks.
  constexpr int input_pitch() const { return conv.nhwc ? block_k : block_n + 4; }
  constexpr int input_words() const { return input_pitch() * (conv.nhwc ? block_n : block_k); }
  // Channels-last a row is a position's terms; where it is 128 bytes long, halves of odd rows are swapped.
  constexpr int input_word(int position, int k) const {
    return position * block_k + (block_k == 32 ? k ^ position % 2 * 16 : k);
  }
  constexpr int stage_words() const { return weight_words() + input_words(); }
  constexpr int staging_pitch() const { return warp_n() + 16; }
  // Filters of a warp that are staged at a time: whole channels where residues of a row are abreast.
  constexpr int staged_filters() const { return 16 % abreast() == 0 ? 16 : warp_m(); }
  constexpr int staging_words() const {
    return conv.nhwc ? 0 : warps_m * warps_n * staged_filters() * staging_pitch();  // in place of the ring
  }
  // If each region begins: the block's positions in the input and in the output, the ring.
  struct Smem {
    int columns, outputs, ring;
    long long end;
  };
  constexpr Smem smem() const {
    SmemPlan plan;
    return {.columns = plan.take(4 * block_n),
            .outputs = plan.take(2 * block_n),
            .ring = plan.take(greater(stages * stage_words(), staging_words())),
            .end = plan.end};
  }
  constexpr long long smem_bytes() const { return 4 * smem().end; }

  // ---- Packed weights: fragments, then taps ----
  constexpr long long taps_at(const ConvExtents& a) const {
    return static_cast<long long>(a.groups) * m_blocks(a) * k_blocks(a) * weight_words();
  }
  constexpr int taps(const ConvExtents& a) const { return chunked ? 0 : k_blocks(a) * block_k; }
  // It has no flag: what is not finite is seen by the sums.
  constexpr Packed packed(const ConvExtents& a) const {
    return {taps_at(a) + 4LL * taps(a), a.weights(), a.k, false};
  }

  // ---- Tells whether the kernel can be compiled without spilling, and launched with so much shared memory
  // ----
  constexpr bool valid(long long most_smem_bytes) const {
    const auto is_power = [](int value) { return (value & (value - 1)) == 0; };
    return is_in_range(*this) && is_power(block_n) && is_power(block_k) && is_power(warps_m) &&
           is_power(warps_n) && warps_m <= 4 && warps_m * warps_n >= 2 && warps_m * warps_n <= 8 &&
           block_m % (16 * warps_m) == 0 && block_n % (32 * warps_n) == 0 && sums() <= kMostSums &&
           smem_bytes() <= most_smem_bytes && (!conv.has_depth() || (specialized && !chunked)) &&
           (!between() || specialized);
  }
  // Tells whether its numbers of terms and blocks fit: with `a` of small extents (cuda/extents.h).
  constexpr bool fits(const ConvExtents& a) const {
    const long long window = static_cast<long long>(a.t) * a.r * a.s;
    return window < kMostTerms && (a.group_channels() + block_k) * window < kMostTerms &&
           (!pads_frames() || 1LL * a.group_channels() * a.d * a.h * a.w < kMostTerms) &&
           static_cast<double>(a.groups) * m_blocks(a) * static_cast<double>(n_blocks(a)) < kMostTerms;
  }

  static constexpr int kMostStages = 8;
  static constexpr int kMostSums = 128;
  static constexpr long long kMostTerms = (1LL << 31) - 1;
  static constexpr int kOutside = 1 << 30;  // a row that no image has, whatever is added to it
};

}  // namespace convtune
