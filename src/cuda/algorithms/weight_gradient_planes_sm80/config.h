// The gradient of the weights of 1x1 layers in NCHW (weight_gradient_planes_sm80.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

#include "cuda/tile/arithmetic.h"
#include "cuda/tile/conv_extents.h"
#include "cuda/tile/packed.h"
#include "cuda/tile/weight_sums.h"

namespace convtune {

// A tile of dw is `filters` by `channels`, shared by `warps_m` by `warps_n` warps. `split` blocks have one,
// each some chunks of pixels.
struct WeightGradientPlanesSm80 {
  ConvExtents conv;
  ElementType w_type = ElementType::f32;  // not a choice: dw's
  bool bias = false;                      // not a choice: the gradient of the bias is wanted, too
  int filters = 16, channels = 16, warps_m = 1, warps_n = 1, stages = 2, split = 1, blocks = 1;
  bool aligned = true;  // not a choice: tensors begin at multiples of 16 bytes
  static constexpr const char* kName = "WeightGradientPlanesSm80";
  template <class Self, class F>
  static constexpr void visit(Self& self, F&& field) {
    field("conv", self.conv);
    field("w_type", self.w_type);
    field("bias", self.bias);
    field("filters", self.filters, 16, 256, "filters of a block, a multiple of 16 for each of warps_m");
    field("channels", self.channels, 16, 256, "channels of a block, a multiple of 16 for each of warps_n");
    field("warps_m", self.warps_m, 1, 8, "warps that share its filters");
    field("warps_n", self.warps_n, 1, 8, "warps that share its channels");
    field("stages", self.stages, 2, 6, "chunks of pixels kept at once");
    field("split", self.split, 1, kMostSplit, "blocks that share the chunks of a tile");
    field("blocks", self.blocks, 1, 8, "blocks that an SM shall hold at once, a launch bound");
    field("aligned", self.aligned);
  }
  static constexpr int kMostSplit = 65535, kMostSums = 128;
  constexpr bool asks_alignment() const { return copied_bytes() > size(); }

  // ---- A chunk: 128 bytes of pixels of an image's planes, beyond whose ends are zeros ----
  static constexpr int kRowBytes = 128;
  constexpr int size() const { return size_of(conv.x_type); }
  constexpr int pixels() const { return kRowBytes / size(); }  // pixels of a chunk
  constexpr int plane() const { return conv.p * conv.q; }
  constexpr int plane_chunks() const { return ceil_div(plane(), pixels()); }
  constexpr long long chunks() const { return 1LL * conv.n * plane_chunks(); }
  // Bytes that are copied at once: as many as every plane begins at a multiple of; 2: element by element.
  constexpr int copied_bytes() const {
    int some = aligned ? 16 : 2;
    while (some > 2 && 1LL * plane() * size() % some != 0) some /= 2;
    return some < size() ? size() : some;
  }

  // ---- The tiles ----
  constexpr int row_tiles() const { return ceil_div(conv.k, filters); }
  constexpr int column_tiles() const { return ceil_div(conv.c, channels); }
  constexpr int tiles() const { return row_tiles() * column_tiles(); }
  constexpr long long all_blocks() const { return 1LL * tiles() * split; }
  constexpr int threads() const { return 32 * warps_m * warps_n; }
  constexpr int sixteens() const { return filters / (16 * warps_m); }  // sixteens of a warp's filters
  constexpr int eights() const { return channels / (8 * warps_n); }    // eights of a warp's channels
  constexpr int sums() const { return 4 * sixteens() * eights(); }
  constexpr long long first_chunk(int rank) const { return chunks() * rank / split; }

  // ---- Shared memory: of each stage rows of filters, then of channels, 16-byte pieces of which are
  // exchanged by the row's number modulo 8 ----
  constexpr int stage_bytes() const { return (filters + channels) * kRowBytes; }
  static constexpr int piece_at(int row, int piece) { return row * kRowBytes + (piece ^ row % 8) * 16; }
  constexpr long long smem_bytes() const { return 1LL * stages * stage_bytes(); }

  // ---- Partial sums in memory, as fours of floats: [rank][tile][four of a thread][thread], of each rank
  // then the sums of dy of all filters ----
  constexpr int thread_fours() const { return sixteens() * eights(); }
  constexpr int tile_fours() const { return thread_fours() * threads(); }
  constexpr int bias_fours() const { return bias ? row_tiles() * filters / 4 : 0; }
  constexpr long long rank_fours() const { return 1LL * tiles() * tile_fours() + bias_fours(); }
  constexpr long long partial_words() const { return 4 * rank_fours() * split; }
  // Which gradient the i-th number of a four of a rank is: an index into dw, and behind it into the biases'.
  constexpr long long weight_of(long long four, int i) const {
    if (four >= 1LL * tiles() * tile_fours()) {
      const long long filter = (four - 1LL * tiles() * tile_fours()) * 4 + i;
      return filter < conv.k ? conv.weights() + filter : -1;
    }
    const int tile = static_cast<int>(four / tile_fours()), of_tile = static_cast<int>(four % tile_fours());
    const int thread = of_tile % threads(), of_thread = of_tile / threads();
    const int warp = thread / 32, lane = thread % 32;
    const int filter = tile / column_tiles() * filters +
                       (warp % warps_m * sixteens() + of_thread % sixteens()) * 16 + i / 2 * 8 + lane / 4;
    const int channel = tile % column_tiles() * channels +
                        (warp / warps_m * eights() + of_thread / sixteens()) * 8 + lane % 4 * 2 + i % 2;
    return filter < conv.k && channel < conv.c ? 1LL * filter * conv.c + channel : -1;
  }

  constexpr int registers() const {
    return 48 + (copied_bytes() < 4 ? 12 : 0) + sums() + 8 * sixteens() + (bias ? 4 * sixteens() : 0);
  }
  constexpr int register_limit() const { return registers_by_quarters(threads(), blocks); }

  constexpr bool possible() const {
    return is_in_range(*this) && filters % (16 * warps_m) == 0 && channels % (16 * warps_n) == 0 &&
           threads() <= 512 && sums() <= kMostSums;
  }
  constexpr bool valid(long long smem_per_block) const {
    return possible() && smem_bytes() <= smem_per_block && registers() <= register_limit() &&
           split <= chunks() && chunks() < (1LL << 30) && all_blocks() < (1LL << 30) &&
           conv.offsets_are_ints() && plane() < (1 << 28) && partial_sums_fit(partial_words(), split > 1);
  }
};

}  // namespace convtune
