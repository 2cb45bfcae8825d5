// Convolution for few input channels on compute capability 8.0 and up: mma.sync fed by plain loads from the
// raw input window, which is in shared memory once, rounded to TF32. The im2col matrix is never made.
//
// Rows of the product m16n8k8 are filters, its columns are pixels, k is the tap. Weights are packed in the
// order of fragments: 16 bytes a thread. Of the window a thread reads, for its pixel g = lane / 4 and its tap
// t = lane % 4 of a group of 4,
//
//     window[stride * g + t  +  tap_offset(group) + pixel_offset(tile)]
//            one register       a constant in the instruction
//
// A group that goes from a filter's row into the next has another distance between its taps: there are 4
// patterns, one register each (direct_stem_sm80.h). So a sum has no padding but to a multiple of 8.
//
// A block fills its window, multiplies, stores, ends; the blocks beside it on the multiprocessor multiply
// while it loads or stores. Weights that do not fit into shared memory come in stages by cp.async.
//
// A block that meets a number that is not finite computes all of its outputs from the tensors as they came
// (exact_sum.cuh).
#include "constants.cuh"
#include "direct_stem_sm80.h"
#include "exact_sum.cuh"
#include "ptx_sm80.cuh"

namespace convtune {
namespace stem {

// The first output of a block.
struct Place {
  int image, p, q, filter, filter_block;
};
template <DirectStemSm80 config>
__device__ Place place_of(int block) {
  constexpr int kFilterBlocks = config.filter_blocks(), kSplits = config.splits(), kBands = config.bands();
  // Blocks that need the same input follow each other.
  const int filter_block = block % kFilterBlocks, split = block / kFilterBlocks % kSplits;
  const int band = block / (kFilterBlocks * kSplits) % kBands;
  return {block / (kFilterBlocks * kSplits * kBands), band * config.band(), split * config.columns(),
          filter_block * config.filters(), filter_block};
}

// One stage of weights on its way, as a group of cp.async of its own: an empty one behind the last stage.
template <DirectStemSm80 config>
__device__ __forceinline__ void load_stage(unsigned ring, const float* __restrict__ weights, int stage) {
  constexpr int kAll = config.k_steps() * config.step_floats() / 4;  // pieces of 16 bytes
  constexpr int kPieces = config.stage_floats() / 4;
  if (stage < config.all_stages()) {
#pragma unroll
    for (int first = 0; first < kPieces; first += config.threads()) {
      const int piece = first + static_cast<int>(threadIdx.x), of_all = stage * kPieces + piece;
      if ((kPieces % config.threads() == 0 || piece < kPieces) && of_all < kAll)
        ptx::cp_async_16(ring + (stage % config.ring_stages() * kPieces + piece) * 16, weights + of_all * 4,
                         16);
    }
  }
  ptx::cp_async_commit_group();
}

// The larger; NaN if one is.
__device__ inline float max_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// kWidth floats of one load or store.
template <int kWidth>
struct alignas(4 * kWidth) Chunk {
  float values[kWidth];
};

// Fills the window: a warp, or a part of it, takes a row; zeros where there is no input. Whether all of it is
// finite, as TF32 too. `kNumbers` of a thread are on their way at once.
template <DirectStemSm80 config, int kWidth, int kNumbers>
__device__ __forceinline__ bool load_window(float* window, const float* __restrict__ x, const Place& at) {
  constexpr Conv2dExtents of = config.of;
  constexpr int kChunks = config.window_columns() / kWidth;  // of a row
  constexpr int kLanes = kChunks > 16 ? 32 : kChunks > 8 ? 16 : kChunks > 4 ? 8 : 4;
  constexpr int kColumns = (kChunks + kLanes - 1) / kLanes;  // chunks of a thread, in a row
  constexpr int kStep = config.threads() / kLanes;           // rows at a time
  constexpr int kInFlight = kNumbers / kWidth;
  constexpr int kMostRows = (config.smem_rows() + kStep - 1) / kStep;  // of a thread
  constexpr int kBatches = (kMostRows * kColumns + kInFlight - 1) / kInFlight;
  constexpr int kRows = (kMostRows + kBatches - 1) / kBatches;  // with loads in flight
  const int lane = threadIdx.x % kLanes;
  const float* image = x + of.input_offset(at.image, 0, 0, 0);
  float largest = 0;
#pragma unroll 1
  for (int first = threadIdx.x / kLanes; first < config.smem_rows(); first += kStep * kRows) {
    Chunk<kWidth> chunks[kRows][kColumns];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kStep, input_row = config.input_row(at.p, row / of.c);
      const bool inside = row < config.window_rows() * of.c && input_row >= 0 && input_row < of.h;
      const float* from = image + (row % of.c * of.h + input_row) * static_cast<long long>(of.w);
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        // Its columns are all inside, or none: the row's width is a multiple of theirs.
        const int column = config.input_column(at.q, (lane + kLanes * j) * kWidth);
        Chunk<kWidth>& chunk = chunks[i][j];
        chunk = {};
        if (inside && column >= 0 && column < of.w) {
          if constexpr (kWidth == 4) {
            const float4 got = __ldg(reinterpret_cast<const float4*>(from + column));
            chunk.values[0] = got.x, chunk.values[1] = got.y, chunk.values[2] = got.z,
            chunk.values[3] = got.w;
          } else if constexpr (kWidth == 2) {
            const float2 got = __ldg(reinterpret_cast<const float2*>(from + column));
            chunk.values[0] = got.x, chunk.values[1] = got.y;
          } else {
            chunk.values[0] = __ldg(from + column);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int row = first + i * kStep;
#pragma unroll
      for (int j = 0; j < kColumns; ++j) {
        Chunk<kWidth> rounded;
#pragma unroll
        for (int k = 0; k < kWidth; ++k) {
          const float value = chunks[i][j].values[k];
          largest = max_nan(largest, fabsf(value));
          rounded.values[k] = __uint_as_float(ptx::cvt_rna_tf32(value));
        }
        if (row < config.smem_rows() && (kLanes * (j + 1) <= kChunks || lane + kLanes * j < kChunks))
          *reinterpret_cast<Chunk<kWidth>*>(window + row * config.row_pitch + (lane + kLanes * j) * kWidth) =
              rounded;
      }
    }
  }
  return largest < __uint_as_float(0x7f7ff000);  // the least that rounds to infinity; no for NaN
}

// The sums of a warp: [16 filters][8 pixels][a thread's 4].
template <DirectStemSm80 config>
using Sums = float[config.filter_tiles()][config.tiles()][4];

// `mine`: the window from the warp's first pixel on.
template <DirectStemSm80 config>
__device__ __forceinline__ void multiply(Sums<config>& sums, const float* ring_at, unsigned ring,
                                         const float* mine, const float* __restrict__ weights,
                                         int filter_warp) {
  const int lane = threadIdx.x % 32;
  const float* from[4];
#pragma unroll
  for (int pattern = 0; pattern < 4; ++pattern)
    from[pattern] = mine + lane / 4 * config.pixel_pitch + config.thread_offset(pattern, lane % 4);
  const float4* fragments =
      reinterpret_cast<const float4*>(ring_at) + filter_warp * config.filter_tiles() * 32 + lane;
  for_constants<0, config.k_steps()>([&](auto step) {
    constexpr int kStage = step.value / config.steps, kStages = config.ring_stages();
    if constexpr (!config.resident() && step.value % config.steps == 0 && step.value > 0) {
      // This stage has come, for all threads; and all are done with the one before, which makes room.
      ptx::cp_async_wait_group<kStages - 2>();
      __syncthreads();
      load_stage<config>(ring, weights, kStage + kStages - 1);
    }
    // Later loads, moved up, would take more registers than are left.
    if constexpr (config.held > 0)
      if constexpr (step.value % config.held == 0) __syncwarp();
    constexpr int kAt =
        (kStage % kStages * config.stage_floats() + step.value % config.steps * config.step_floats()) / 4;
    unsigned pixels[config.tiles()][2];
    constexpr int kGroup = 2 * step.value;
    constexpr int kPatterns[] = {config.pattern(kGroup), config.pattern(kGroup + 1)};
    constexpr int kGroupOffsets[] = {config.group_offset(kGroup), config.group_offset(kGroup + 1)};
    for_constants<0, config.tiles()>([&](auto tile) {
      constexpr int kPixel =
          config.pixel_offset(tile.value / config.warp_columns, tile.value % config.warp_columns * 8) -
          config.pixel_offset(0, 0);
      pixels[tile.value][0] = __float_as_uint(from[kPatterns[0]][kPixel + kGroupOffsets[0]]);
      pixels[tile.value][1] = __float_as_uint(from[kPatterns[1]][kPixel + kGroupOffsets[1]]);
    });
#pragma unroll
    for (int i = 0; i < config.filter_tiles(); ++i) {
      const float4 four = fragments[kAt + i * 32];
      const unsigned filters[4] = {__float_as_uint(four.x), __float_as_uint(four.y), __float_as_uint(four.z),
                                   __float_as_uint(four.w)};
#pragma unroll
      for (int tile = 0; tile < config.tiles(); ++tile)
        ptx::mma_m16n8k8_tf32(sums[i][tile], filters, pixels[tile]);
    }
  });
}

template <DirectStemSm80 config>
__device__ float finish(float sum, float bias) {
  const float value = sum + bias;
  return config.of.relu && value < 0 ? 0.0f : value;  // NaN stays
}

// Where a warp's part of the block begins.
struct Part {
  int filter_warp, filter, row, column;
};
template <DirectStemSm80 config>
__device__ __forceinline__ Part part_of(int warp) {
  const int filter_warp = warp % config.filter_warps;
  return {filter_warp, filter_warp * config.warp_filters,
          warp / config.filter_warps % config.row_warps * config.warp_rows,
          warp / (config.filter_warps * config.row_warps) * config.warp_columns * 8};
}

// Straight from the registers: 4 threads write 8 neighbouring pixels, which is a sector if rows are aligned.
template <DirectStemSm80 config>
__device__ __forceinline__ void store_direct(const Sums<config>& sums, const float* __restrict__ bias,
                                             float* __restrict__ y, const Place& at, int warp, int lane) {
  constexpr Conv2dExtents of = config.of;
  const Part part = part_of<config>(warp);
  const bool aligned = of.q % 2 == 0 && reinterpret_cast<unsigned long long>(y) % 8 == 0;
#pragma unroll
  for (int i = 0; i < config.filter_tiles(); ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int filter = at.filter + part.filter + 16 * i + 8 * half + lane / 4;
      if (of.k % config.filters() != 0 && filter >= of.k) continue;
      const float addend = __ldg(bias + filter);
      float* const to = y + of.output_offset(at.image, filter, at.p + part.row, at.q + part.column);
#pragma unroll
      for (int tile = 0; tile < config.tiles(); ++tile) {
        const int row = tile / config.warp_columns, column = tile % config.warp_columns * 8 + lane % 4 * 2;
        if (at.p + part.row + row >= of.p || at.q + part.column + column >= of.q) continue;
        const float two[] = {finish<config>(sums[i][tile][2 * half], addend),
                             finish<config>(sums[i][tile][2 * half + 1], addend)};
        float* const pair = to + row * of.q + column;
        if (aligned) {
          *reinterpret_cast<float2*>(pair) = make_float2(two[0], two[1]);
        } else {
          pair[0] = two[0];
          if (at.q + part.column + column + 1 < of.q) pair[1] = two[1];
        }
      }
    }
}

// Through shared memory, for a block that has whole rows: a filter's band is one piece of the output, and is
// written in one piece.
template <DirectStemSm80 config>
__device__ __forceinline__ void store_staged(const Sums<config>& sums, float* staging,
                                             const float* __restrict__ bias, float* __restrict__ y,
                                             const Place& at, int warp, int lane) {
  constexpr Conv2dExtents of = config.of;
  const Part part = part_of<config>(warp);
  constexpr int kPitch = config.staging_pitch(), kTiles = config.staged_tiles(), kRun = config.run();
  const int floats = min(config.band(), of.p - at.p) * of.q;  // of a piece
#pragma unroll
  for (int first = 0; first < config.filter_tiles(); first += kTiles) {
    __syncthreads();  // what was here is read
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int staged = (part.filter_warp * kTiles + i) * 16 + half * 8 + lane / 4;
        const int filter = at.filter + part.filter + 16 * (first + i) + 8 * half + lane / 4;
        const float addend = of.k % config.filters() == 0 || filter < of.k ? __ldg(bias + filter) : 0.0f;
        float* const mine = staging + staged * kPitch + part.row * of.q + part.column + lane % 4 * 2;
#pragma unroll
        for (int tile = 0; tile < config.tiles(); ++tile) {
          const int column = tile % config.warp_columns * 8;
          const int left = of.q - part.column - column - lane % 4 * 2;
          const float two[] = {finish<config>(sums[first + i][tile][2 * half], addend),
                               finish<config>(sums[first + i][tile][2 * half + 1], addend)};
          float* const to = mine + tile / config.warp_columns * of.q + column;
          // Beyond the row's end only the last 8 pixels can be, or so, and what is known is not asked.
          const bool whole = column + 8 + config.columns() - of.q <= config.warp_columns * 8;
          if constexpr (of.q % 2 == 0) {
            if (whole || left > 0) *reinterpret_cast<float2*>(to) = make_float2(two[0], two[1]);
          } else {
            if (whole || left > 0) to[0] = two[0];
            if (whole || left > 1) to[1] = two[1];
          }
        }
      }
    __syncthreads();
#pragma unroll 1
    for (int i = warp; i < config.filter_warps * kTiles * 16; i += config.warps()) {
      const int filter = at.filter + i / (kTiles * 16) * config.warp_filters + first * 16 + i % (kTiles * 16);
      if (of.k % config.filters() != 0 && filter >= of.k) continue;
      const float* const from = staging + i * kPitch;
      float* const to = y + of.output_offset(at.image, filter, at.p, 0);
      if (of.q % 4 == 0 && reinterpret_cast<unsigned long long>(y) % 16 == 0) {
#pragma unroll
        for (int j = 0; j < kRun; j += 128)
          if (j + lane * 4 < floats)
            *reinterpret_cast<float4*>(to + j + lane * 4) =
                *reinterpret_cast<const float4*>(from + j + lane * 4);
      } else {
        // A warp writes 32 floats from a sector's start on: only the ends of a piece are parts of sectors.
        // (4 floats a thread, staged as the output is aligned, took longer: the ends are many instructions.)
        const int mine = lane - static_cast<int>(reinterpret_cast<unsigned long long>(to) / 4 % 8);
#pragma unroll
        for (int j = 0; j < kRun + 7; j += 32)
          if ((j > 0 || mine >= 0) && j + mine < floats) to[j + mine] = from[j + mine];
      }
    }
  }
}

// All outputs of the block, slowly.
template <DirectStemSm80 config>
__device__ __forceinline__ void store_exact(const float* __restrict__ x, const float* __restrict__ packed,
                                            float* __restrict__ y, const Place& at) {
  constexpr Conv2dExtents of = config.of;
  constexpr int kPixels = config.band() * config.columns();
#pragma unroll 1
  for (int i = threadIdx.x; i < config.filters() * kPixels; i += config.threads()) {
    const int filter = at.filter + i / kPixels, p = at.p + i % kPixels / config.columns(),
              q = at.q + i % config.columns();
    if (filter >= of.k || p >= of.p || q >= of.q) continue;
    const float sum = exact_sum(of, x, packed + config.exact_weights(), at.image, filter, p, q);
    y[of.output_offset(at.image, filter, p, q)] = finish<config>(sum, packed[config.bias_at() + filter]);
  }
}

}  // namespace stem

template <DirectStemSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_stem_sm80(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                     int multiprocessors, int delay) {
  extern __shared__ __align__(128) float memory[];
  // Blocks that begin together stay together, and load, multiply and store at the same time all over the
  // device. So those that a multiprocessor gets first begin one after the other.
  if (delay > 0 && blockIdx.x < multiprocessors * config.blocks) {
    const long long begin = clock64();
    const int wait = static_cast<int>(blockIdx.x) / multiprocessors * delay;
    while (clock64() - begin < wait) __nanosleep(200);
  }
  const stem::Place at = stem::place_of<config>(blockIdx.x);
  const float* weights =
      packed + static_cast<long long>(at.filter_block) * config.k_steps() * config.step_floats();
  const unsigned ring = ptx::shared_address(memory);
  constexpr int kFirst = config.resident() ? config.ring_stages() : config.ring_stages() - 1;
#pragma unroll 1
  for (int stage = 0; stage < kFirst; ++stage) stem::load_stage<config>(ring, weights, stage);
  float* window = memory + config.window_at();
  constexpr int kWidth = config.load_width, kNumbers = (config.register_limit() - 32) / 2;
  bool finite = packed[config.flag_at()] == 0;
  if (kWidth == 1 || reinterpret_cast<unsigned long long>(x) % (4 * kWidth) == 0)
    finite = stem::load_window<config, kWidth, kNumbers>(window, x, at) && finite;
  else  // seldom: little code is worth more than speed
    finite = stem::load_window<config, 1, 4>(window, x, at) && finite;
  ptx::cp_async_wait_group<config.resident() ? 0 : config.ring_stages() - 2>();
  const bool exact = __syncthreads_or(!finite);
  if (exact) {
    ptx::cp_async_wait_group<0>();
    stem::store_exact<config>(x, packed, y, at);
    return;
  }
  if constexpr (!config.resident()) stem::load_stage<config>(ring, weights, kFirst);

  const stem::Part part = stem::part_of<config>(threadIdx.x / 32);
  stem::Sums<config> sums = {};
  stem::multiply<config>(sums, memory, ring, window + config.pixel_offset(part.row, part.column), weights,
                         part.filter_warp);
  // Where outputs go is computed anew, from numbers that the compiler cannot know to be the same: so little
  // but sums and operands lives through the products. What else did was spilled.
  const unsigned zero = static_cast<unsigned>(multiprocessors) >> 31;
  const stem::Place place = stem::place_of<config>(blockIdx.x + zero);
  const int lane = static_cast<int>((threadIdx.x + zero) % 32),
            warp = static_cast<int>((threadIdx.x + zero) / 32);
  const float* bias = packed + config.bias_at();
  if constexpr (config.staged)
    stem::store_staged<config>(sums, memory, bias, y, place, warp, lane);
  else
    stem::store_direct<config>(sums, bias, y, place, warp, lane);
}

// The packed weights. The flag must be 0 before.
template <DirectStemSm80 config>
__global__ void __launch_bounds__(256)
    pack_direct_stem_sm80(const float* __restrict__ w, const float* __restrict__ bias,
                          unsigned* __restrict__ packed) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= config.flag_at()) return;
  unsigned bits = 0;
  if (i >= config.bias_at()) {
    bits = bias ? __float_as_uint(bias[i - config.bias_at()]) : 0;
  } else if (i >= config.exact_weights()) {
    bits = __float_as_uint(w[i - config.exact_weights()]);
  } else {
    // In the fragment of a thread: (filter, k) = (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4).
    const int element = static_cast<int>(i % 4), lane = static_cast<int>(i / 4 % 32);
    const int tile = static_cast<int>(i / 128 % (config.filters() / 16));
    const int step = static_cast<int>(i / config.step_floats() % config.k_steps());
    const int block = static_cast<int>(i / config.step_floats() / config.k_steps());
    const int k = block * config.filters() + tile * 16 + element % 2 * 8 + lane / 4;
    const int weight = config.weight_of(step * 8 + element / 2 * 4 + lane % 4);
    if (k < config.of.k && weight >= 0) {
      bits = ptx::cvt_rna_tf32(w[static_cast<long long>(k) * config.of.taps() + weight]);
      if ((bits & 0x7f800000) == 0x7f800000) packed[config.flag_at()] = 1;
    }
  }
  packed[i] = bits;
}

}  // namespace convtune
