// Gradients of weights in TF32, in both layouts, for tensor cores of compute capability 8.0 and up: a product
// of filters (rows) with channels at all taps (columns), whose sums go over the pixels of dy.
//
//   dy  cp.async --> stage, as it lies                   8 pixels of 16 filters, word by word
//   x   cp.async --> stage, as it lies, once for all     8 pixels of 8 channels, from the place of a
//       taps of a tile                                   tap of them
//   a warp: sixteens of filters by eights of columns, in registers from the first tile to the last
//
// A TF32 number is a word of shared memory, which can be read wherever it lies: nothing is transposed, a tap
// is another offset, and layouts differ by distances that the compiler knows, chosen so that a warp reads
// from 32 banks. Numbers are rounded on their way into products.
//
// `split` blocks share the tiles, and leave their sums in memory for add_up_ranks(): the same bits every
// time. The gradient of the bias is a product of dy with ones, and of what rounding has left of it.
#include "cuda/algorithms/weight_gradient_tf32_sm80/load.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/split_tf32.cuh"
#include "cuda/tile/tf32.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::weight_gradient_tf32_sm80 {

// A warp's part of its block's sums, and where this lane reads operands of it, in bytes behind a stage's
// begin.
template <WeightGradientTf32Sm80 config>
struct Warp {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kSixteens = config.sixteens(), kEights = config.eights();
  int lane, m, o, r;
  unsigned gradients, inputs;
  float sums[kEights][kSixteens][4] = {}, bias[kSixteens][4] = {};

  __device__ __forceinline__ Warp() {
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
    lane = static_cast<int>(threadIdx.x) % 32, m = warp % config.warps_m;
    o = warp / config.warps_m % config.warps_o, r = warp / config.warps_m / config.warps_o;
    const int group = lane / 4, thread = lane % 4;
    gradients = 4 * (config.input_size() + thread * config.gradient_pixel() +
                     (m * 16 * kSixteens + group) * config.gradient_filter());
    inputs = 4 * ((config.early() + thread * a.stride_w) * config.input_pixel() +
                  (o * config.warp_octets() * 8 + group) * config.input_channel() +
                  r * config.warp_rows() * a.dilation_h * config.input_row());
  }
  // Bytes from a lane's first number of sixteen filters to its j-th.
  static constexpr int gradient_at(int sixteen, int j) {
    return 4 * ((16 * sixteen + j % 2 * 8) * config.gradient_filter() + j / 2 * 4 * config.gradient_pixel());
  }
  // The products of a stage.
  __device__ __forceinline__ void add(unsigned stage) {
    constexpr int kRowEights = config.columns / 8;
#pragma unroll 1
    for (int product = 0; product < config.products(); ++product) {
      const int row = product / kRowEights, column = product % kRowEights * 8;
      const unsigned dy = stage + gradients + 4 * (row * config.columns + column) * config.gradient_pixel();
      const unsigned x =
          stage + inputs +
          4 * (row * a.stride_h * config.input_row() + column * a.stride_w * config.input_pixel());
      unsigned filters[kSixteens][4];
#pragma unroll
      for (int i = 0; i < kSixteens; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          filters[i][j] = ptx::cvt_rna_tf32(__uint_as_float(ptx::ld_shared(dy + gradient_at(i, j))));
      for_constants<0, kEights>([&](auto eight) {
        constexpr int kAt = config.eight_at(eight.value), kFour = 4 * a.stride_w * config.input_pixel();
        const unsigned channels[2] = {
            ptx::cvt_rna_tf32(__uint_as_float(ptx::ld_shared(x + 4 * kAt))),
            ptx::cvt_rna_tf32(__uint_as_float(ptx::ld_shared(x + 4 * (kAt + kFour))))};
#pragma unroll
        for (int i = 0; i < kSixteens; ++i) ptx::mma_m16n8k8_tf32(sums[eight.value][i], filters[i], channels);
      });
      if constexpr (config.bias)
        if (o == 0 && r == 0) add_biases(dy);
    }
  }
  // Products with ones of what fits into TF32 and of what is left, for sums of fp32.
  __device__ __forceinline__ void add_biases(unsigned dy) {
    const unsigned ones[2] = {0x3f800000u, 0x3f800000u};
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      unsigned fits[4], rest[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) fits[j] = ptx::ld_shared(dy + gradient_at(i, j));
      split_tf32(fits, rest);
      ptx::mma_m16n8k8_tf32(bias[i], fits, ones);
      ptx::mma_m16n8k8_tf32(bias[i], rest, ones);
    }
  }
  // Rounding makes infinities of large numbers: what is not finite is left as NaN, which is computed
  // again.
  __device__ __forceinline__ static float left(float sum) {
    return is_finite(__float_as_uint(sum)) ? sum : __uint_as_float(0x7fffffff);
  }
  // Leaves its sums for the block's rank. `row_chunk`: whose biases are this block's, or -1.
  __device__ __forceinline__ void leave(float4* __restrict__ rank, int chunk, int row_chunk) const {
    float4* const to = rank + static_cast<long long>(chunk) * config.chunk_fours() + threadIdx.x;
#pragma unroll
    for (int j = 0; j < kEights; ++j)
#pragma unroll
      for (int i = 0; i < kSixteens; ++i)
        to[(j * kSixteens + i) * config.threads()] = {left(sums[j][i][0]), left(sums[j][i][1]),
                                                      left(sums[j][i][2]), left(sums[j][i][3])};
    if constexpr (config.bias) {
      if (row_chunk < 0 || o != 0 || r != 0 || lane % 4 != 0) return;
      auto* const biases =
          reinterpret_cast<float*>(rank + static_cast<long long>(config.chunks()) * config.chunk_fours());
#pragma unroll
      for (int i = 0; i < kSixteens; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          biases[row_chunk * config.filters + (m * kSixteens + i) * 16 + half * 8 + lane / 4] =
              bias[i][2 * half];
    }
  }
};

template <WeightGradientTf32Sm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    weight_gradient_tf32_sm80(const void* __restrict__ x, const void* __restrict__ dy,
                              float* __restrict__ partial) {
  ptx::wait_for_earlier_grids(x, dy);
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr int kStages = config.stages, kTiles = static_cast<int>(config.tiles());
  const unsigned smem = ptx::shared_address(memory);
  const int chunk = static_cast<int>(blockIdx.x) % config.chunks();
  const int rank = static_cast<int>(blockIdx.x) / config.chunks();
  const int row_chunk = chunk / config.column_chunks(), column_chunk = chunk % config.column_chunks();
  const Loader<config> loader{static_cast<const float*>(x), static_cast<const float*>(dy),
                              row_chunk * config.filters, column_chunk * config.octets * 8};
  Warp<config> warp;
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    if (rank + i * config.split < kTiles)
      loader.load(rank + i * config.split, smem + i * config.stage_bytes());
    ptx::cp_async_commit_group();
  }
  int slot = 0;
#pragma unroll 1
  for (int tile = rank; tile < kTiles; tile += config.split) {
    if constexpr (kStages == 1) {
      __syncthreads();  // nobody reads the tile before
      loader.load(tile, smem);
      ptx::cp_async_commit_group();
      ptx::cp_async_wait_group<0>();
      __syncthreads();
    } else {
      ptx::cp_async_wait_group<greater(kStages - 2, 0)>();
      __syncthreads();  // this tile is there for all, and all have read the one before it
      const int next = tile + (kStages - 1) * config.split;
      if (next < kTiles)
        loader.load(next, smem + (slot == 0 ? kStages - 1 : slot - 1) * config.stage_bytes());
      ptx::cp_async_commit_group();
    }
    warp.add(smem + slot * config.stage_bytes());
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  warp.leave(reinterpret_cast<float4*>(partial) + rank * config.rank_fours(), chunk,
             column_chunk == 0 ? row_chunk : -1);
}

template <WeightGradientTf32Sm80 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_weight_gradient_tf32_sm80(const float* __restrict__ partial, const void* __restrict__ x,
                                     const void* __restrict__ dy, void* __restrict__ dw,
                                     void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  add_up_ranks<config>(partial, x, dy, dw, dbias);
}

// Gradients of weights need none.
template <WeightGradientTf32Sm80 config>
__global__ void pack_weight_gradient_tf32_sm80() {}

}  // namespace convtune::weight_gradient_tf32_sm80
