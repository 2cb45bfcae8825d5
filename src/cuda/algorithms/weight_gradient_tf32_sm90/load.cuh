// How x and dy come in weight_gradient_tf32_sm90.cuh: TMA brings slices, some rows of either as they lie, a
// few ahead; warps read four pixels of 32 channels or filters word by word, round them, and write 16 bytes of
// each to where wgmma reads them, those of x once for each column of the filter. A lane is a channel: neither
// its loads nor its stores meet another's at a bank. In NCHW a slice is a box of some channels, of 8 columns
// of dy, or 16 of x (planes.cuh); with an odd number of rows its lines do not meet at a bank either.
#pragma once

#include "cuda/algorithms/weight_gradient_tf32_sm90/planes.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::weight_gradient_tf32_sm90 {

struct Maps {
  ptx::TensorMap x, dy;
};

// A block's tile of dw, and the chunks of pixels that it has: every split-th.
template <WeightGradientTf32Sm90 config>
struct Part {
  static constexpr int kChunks = static_cast<int>(config.chunks());
  int tile, rank;
  __device__ Part()
      : tile(static_cast<int>(blockIdx.x) % config.tiles()),
        rank(static_cast<int>(blockIdx.x) / config.tiles()) {}
  __device__ int first_filter() const { return tile / config.column_tiles() * config.tile_rows(); }
  __device__ int first_channel() const { return tile % config.column_tiles() * config.tile_channels(); }
  __device__ int chunks() const { return (kChunks - rank + config.split - 1) / config.split; }
};

// Asks for slices, one after the other. Warps do it in turns, so that none is behind: `turn` is how many
// slices are asked for by others before.
template <WeightGradientTf32Sm90 config>
struct Asking {
  static constexpr ConvExtents a = config.conv;
  const Maps& maps;
  unsigned smem;
  int turn;
  Part<config> part{};
  int chunk = part.rank, slice = 0;
  Ring<config.slice_places()> ring{};

  __device__ __forceinline__ void ask() {
    if (chunk >= part.kChunks) return;
    if (turn == 0) {
      load();
      turn = config.transposing_warps();
    }
    --turn;
    ring.next();
    if (++slice == config.slices()) slice = 0, chunk += config.split;
  }

 private:
  __device__ __forceinline__ void load() const {
    constexpr auto kAt = config.smem();
    constexpr int kOfGradient = config.gradient_slices();
    const bool mine = threadIdx.x % 32 == 0, dys = slice < kOfGradient;
    const WeightGradientTf32Sm90::Place at = config.place_of(chunk);
    const int of_input = slice - kOfGradient;
    ring.wait_empty(smem + kAt.slices_empty);
    const unsigned full = ring.barrier(smem + kAt.slices_full);
    const unsigned to = smem + kAt.slices + ring.slot * config.slice_bytes();
    ptx::mbarrier_arrive_expect_if(full, dys ? config.gradient_slice_bytes() : config.input_slice_bytes(),
                                   mine);
    if constexpr (config.planes) {
      ptx::load_box_if(to, &maps.dy, at.column, at.row, part.first_filter() + slice * config.kBlock, at.image,
                       0, full, mine && dys);
      ptx::load_box_if(to, &maps.x, at.column - round_up(a.pad_left, 4), at.row * a.stride_h - a.pad_top,
                       part.first_channel() + of_input * config.slice_channels(), at.image, 0, full,
                       mine && !dys);
    } else if constexpr (config.flat_batch()) {
      ptx::load_rows_if(to, &maps.dy, part.first_filter(),
                        (at.row + slice * config.gradient_slice_rows()) * config.columns, full, mine && dys);
      ptx::load_rows_if(to, &maps.x, part.first_channel(),
                        (at.row + of_input * config.input_slice_rows()) * config.columns, full, mine && !dys);
    } else {
      ptx::load_box_if(to, &maps.dy, part.first_filter(), at.column,
                       at.row + slice * config.gradient_slice_rows(), at.image, 0, full, mine && dys);
      ptx::load_box_if(to, &maps.x, part.first_channel(), at.column * a.stride_w - a.pad_left,
                       at.row * a.stride_h - a.pad_top + of_input * config.input_slice_rows(), at.image, 0,
                       full, mine && !dys);
    }
  }
};

// A warp's fours of pixels of a slice of dy, of as many rows as the stage still has.
template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void transpose_gradients(const Words<config>& words, unsigned slice, unsigned to,
                                                    int first_row, int warp, BiasSums<config>& sums) {
  constexpr int kFours = config.row_fours(), kTogether = 2;  // thirty-twos of filters
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int fours = lesser(config.gradient_slice_rows(), config.rows - first_row) * kFours;
  for_constants<0, config.tile_rows() / 64>([&](auto block) {
    constexpr int kFirst = block.value * kTogether;
    unsigned some[2][kTogether][4];
    for_fours<config>(
        warp, fours,
        [&](int four, auto place) {
#pragma unroll
          for (int j = 0; j < kTogether; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i)
              some[place.value][j][i] = words.gradient(slice, first_row, four / kFours, four % kFours * 4 + i,
                                                       32 * (kFirst + j) + lane);
        },
        [&](int four, auto place, bool is_new) {
          const unsigned there = to + (first_row * kFours + four) * config.gradient_four() + 16 * lane;
#pragma unroll
          for (int j = 0; j < kTogether; ++j) {
            unsigned(&mine)[4] = some[place.value][j];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              if constexpr (config.bias) sums[kFirst + j] += is_new ? __uint_as_float(mine[i]) : 0;
              mine[i] = rounded_tf32(mine[i]);
            }
            ptx::st_shared_v4(there + 512 * (kFirst + j), mine);
          }
        });
  });
}

// As above, of x: pixels that taps of a row meet are read once.
template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void transpose_inputs(const Words<config>& words, unsigned slice, unsigned to,
                                                 int first_row, int warp) {
  constexpr ConvExtents a = config.conv;
  constexpr int kFours = config.row_fours(), kTogether = 2;  // thirty-twos of channels, half a block each
  constexpr int kWords = config.met_columns();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int fours = lesser(config.input_slice_rows(), config.input_rows() - first_row) * kFours;
  for_constants<0, config.channel_blocks>([&](auto block) {
    unsigned some[2][kTogether][kWords];
    for_fours<config>(
        warp, fours,
        [&](int four, auto place) {
          const int row = four / kFours, column = four % kFours * 4 * a.stride_w;
          for_constants<0, kWords>([&](auto word) {
            if constexpr (config.meets(word.value))
#pragma unroll
              for (int j = 0; j < kTogether; ++j)
                some[place.value][j][word.value] =
                    words.input(slice, first_row, row, column + word.value, 64 * block.value + 32 * j + lane);
          });
        },
        [&](int four, auto place, bool) {
          const unsigned there = to +
                                 (config.place_of_row(first_row + four / kFours) * kFours + four % kFours) *
                                     config.input_four() +
                                 16 * lane;
#pragma unroll
          for (int j = 0; j < kTogether; ++j) {
            unsigned(&mine)[kWords] = some[place.value][j];
            for_constants<0, kWords>([&](auto word) {
              if constexpr (config.meets(word.value)) mine[word.value] = rounded_tf32(mine[word.value]);
            });
#pragma unroll
            for (int s = 0; s < a.s; ++s)
              ptx::st_shared_v4(
                  there + 16 * ((block.value * a.s + s) * 64 + 32 * j),
                  {mine[s * a.dilation_w], mine[s * a.dilation_w + a.stride_w],
                   mine[s * a.dilation_w + 2 * a.stride_w], mine[s * a.dilation_w + 3 * a.stride_w]});
          }
        });
  });
}

// The work of transposing_warps(), of which this is `warp`.
template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void transpose_slices(const Maps& maps, const float* __restrict__ x,
                                                 const float* __restrict__ dy, float* __restrict__ partial,
                                                 unsigned smem, int warp) {
  constexpr auto kAt = config.smem();
  constexpr int kAhead = config.slice_places() - 2;  // leaves two places to slices that are still read
  const int lane = static_cast<int>(threadIdx.x) % 32;
  Asking<config> asking{maps, smem, warp};
  const Part<config> part;
  Words<config> words{x, dy, part.first_filter(), part.first_channel(), {}};
  BiasSums<config> sums = {};
  Ring<config.stages> stages;
  Ring<config.slice_places()> ring;
  if constexpr (config.aligned)
#pragma unroll 1
    for (int i = 0; i < kAhead; ++i) asking.ask();
#pragma unroll 1
  for (int chunk = part.rank; chunk < part.kChunks; chunk += config.split) {
    words.at = config.place_of(chunk);
    stages.wait_empty(smem + kAt.empty);
    const unsigned to = smem + kAt.stages + stages.slot * config.stage_bytes();
#pragma unroll 1
    for (int slice = 0; slice < config.slices(); ++slice) {
      const unsigned from = smem + kAt.slices + ring.slot * config.slice_bytes();
      if constexpr (config.aligned) {
        asking.ask();
        ring.wait_full(smem + kAt.slices_full);
      }
      if constexpr (config.planes) {
        for_constants<0, config.gradient_slices()>([&](auto i) {
          if (slice != i.value) return;
          if constexpr (config.flat())
            transpose_flat_planes<config, true>(words, from, to, 64 * i.value, warp,
                                                sums + (config.bias ? 2 * i.value : 0));
          else
            transpose_gradient_planes<config, 64 * i.value>(words, from, to, warp, sums);
        });
        const int first = (slice - config.gradient_slices()) * config.slice_channels();
        if (slice >= config.gradient_slices()) {
          if constexpr (config.flat())
            transpose_flat_planes<config, false>(words, from, to + config.gradient_bytes(), first, warp,
                                                 nullptr);
          else
            transpose_input_planes<config>(words, from, to + config.gradient_bytes(), first, warp);
        }
      } else if (slice < config.gradient_slices())
        transpose_gradients<config>(words, from, to, slice * config.gradient_slice_rows(), warp, sums);
      else
        transpose_inputs<config>(words, from, to + config.gradient_bytes(),
                                 (slice - config.gradient_slices()) * config.input_slice_rows(), warp);
      if constexpr (config.aligned) {
        __syncwarp();
        ptx::mbarrier_arrive_if(ring.barrier(smem + kAt.slices_empty), lane == 0);
        ring.next();
      }
    }
    ptx::fence_proxy_async();
    ptx::mbarrier_arrive(stages.barrier(smem + kAt.full));
    stages.next();
  }
  if constexpr (config.bias) {
    if (part.tile % config.column_tiles() != 0) return;
    float* const to =
        partial + config.biases_at() + part.rank * config.bias_words() +
        (part.tile / config.column_tiles() * config.transposing_warps() + warp) * config.tile_rows();
#pragma unroll
    for (int i = 0; i < config.tile_rows() / 32; ++i) to[32 * i + lane] = sums[i];
  }
}

}  // namespace convtune::weight_gradient_tf32_sm90
