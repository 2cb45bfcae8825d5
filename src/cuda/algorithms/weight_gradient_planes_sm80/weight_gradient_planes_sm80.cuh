// Gradients of the weights of 1x1 layers in NCHW, for tensor cores of compute capability 8.0 and up: a
// product of filters (rows) with channels (columns), whose sums go over the pixels, which lie beside each
// other in both tensors. So both are as mma.sync takes them, and nothing is transposed:
//
//   dy  cp.async --> stage  [filter][pixels]     ldmatrix: 16 filters of 16 pixels (of 8 in TF32)
//   x   cp.async --> stage  [channel][pixels]    ldmatrix: as many pixels of 16 channels
//   a warp: sixteens of filters by eights of channels, in registers from the first chunk to the last
//
// A row of a stage is 128 bytes of a plane. Planes that begin at no multiple of 16 bytes are copied in pieces
// of 8 or 4; element by element where tensors begin anywhere. Beyond a plane's end both have zeros, which
// meet each other alone: what is not finite spreads as it should.
//
// `split` blocks share the chunks of a tile. They leave their sums in memory, which are added in the order
// of their ranks and rounded once (tile/weight_sums.cuh): the same bits every time. The gradient of the bias
// is a product of dy with ones.
#include "cuda/algorithms/weight_gradient_planes_sm80/config.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/shared.cuh"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/split_tf32.cuh"
#include "cuda/tile/tf32.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::weight_gradient_planes_sm80 {

// Rows of `tensor` from `first_row` on, of those that it has, from a pixel of their planes on.
template <WeightGradientPlanesSm80 config>
__device__ __forceinline__ void load_rows(const void* __restrict__ tensor, int rows, int first_row,
                                          int all_rows, int image, int pixel, unsigned to) {
  constexpr int kPlane = config.plane(), kSize = config.size(), kCopied = config.copied_bytes();
  constexpr int kOfRow = config.kRowBytes / kCopied;
  const auto* const from = static_cast<const unsigned char*>(tensor) +
                           (static_cast<long long>(image) * all_rows + first_row) * kPlane * kSize +
                           pixel * kSize;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < rows * kOfRow; i += config.threads()) {
    const int row = i / kOfRow, byte = i % kOfRow * kCopied;
    const bool there = first_row + row < all_rows && pixel + byte / kSize < kPlane;
    const unsigned char* const piece =
        from + (there ? static_cast<long long>(row) * kPlane * kSize + byte : 0);
    const unsigned at = to + config.piece_at(row, byte / 16) + byte % 16;
    if constexpr (kCopied == 16)
      ptx::cp_async_16(at, piece, there ? 16 : 0);
    else if constexpr (kCopied == 8)
      ptx::cp_async_8(at, piece, there ? 8 : 0);
    else if constexpr (kCopied == 4)
      ptx::cp_async_4(at, piece, there ? 4 : 0);
    else
      ptx::st_shared_u16(at, there ? *reinterpret_cast<const unsigned short*>(piece) : 0u);
  }
}

template <WeightGradientPlanesSm80 config>
struct Warp {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kSixteens = config.sixteens(), kEights = config.eights();
  static constexpr bool kTf32 = config.conv.x_type == ElementType::f32;
  int lane, m, n;
  float sums[kEights][kSixteens][4] = {}, bias[kSixteens][4] = {};

  __device__ __forceinline__ Warp() {
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
    lane = static_cast<int>(threadIdx.x) % 32, m = warp % config.warps_m, n = warp / config.warps_m;
  }
  __device__ __forceinline__ static void multiply(float (&to)[4], const unsigned (&filters)[4],
                                                  const unsigned (&channels)[2]) {
    if constexpr (kTf32)
      ptx::mma_m16n8k8_tf32(to, filters, channels);
    else if constexpr (a.x_type == ElementType::bf16)
      ptx::mma_m16n8k16_bf16(to, filters, channels);
    else
      ptx::mma_m16n8k16_f16(to, filters, channels);
  }
  __device__ __forceinline__ static void load(unsigned (&to)[4], unsigned address) {
    ptx::ldmatrix_x4(to, address);
    if constexpr (kTf32)
#pragma unroll
      for (unsigned& word : to) word = ptx::cvt_rna_tf32(__uint_as_float(word));
  }
  // Products with ones. In TF32 those of what fits and of what is left, for sums of fp32.
  __device__ __forceinline__ void add_biases(const unsigned (&filters)[kSixteens][4], unsigned from) {
    constexpr unsigned kHalves = a.x_type == ElementType::bf16 ? 0x3f803f80u : 0x3c003c00u;
    constexpr unsigned kOnes = kTf32 ? 0x3f800000u : kHalves;
    const unsigned ones[2] = {kOnes, kOnes};
#pragma unroll
    for (int i = 0; i < kSixteens; ++i) {
      if constexpr (kTf32) {
        unsigned fits[4], rest[4];
        ptx::ldmatrix_x4(fits, from + i * (16 * config.kRowBytes));
        split_tf32(fits, rest);
        multiply(bias[i], fits, ones);
        multiply(bias[i], rest, ones);
      } else {
        multiply(bias[i], filters[i], ones);
      }
    }
  }
  // The products of a stage. Of dy four matrices are rows 0 to 7 and 8 to 15 of a piece, then of the next; of
  // x two pieces of rows 0 to 7, then of 8 to 15.
  __device__ __forceinline__ void add(unsigned stage) {
    const int row = m * (16 * kSixteens) + lane % 16, column = n * (8 * kEights) + lane / 16 * 8 + lane % 8;
    const unsigned gradients = stage + row * config.kRowBytes;
    const unsigned inputs = stage + (config.filters + column) * config.kRowBytes;
#pragma unroll
    for (int step = 0; step < config.kRowBytes / 32; ++step) {
      const unsigned piece = ((2 * step + lane / 16) ^ lane % 8) * 16;
      const unsigned other = ((2 * step + lane / 8 % 2) ^ lane % 8) * 16;
      unsigned filters[kSixteens][4];
#pragma unroll
      for (int i = 0; i < kSixteens; ++i) load(filters[i], gradients + i * (16 * config.kRowBytes) + piece);
#pragma unroll
      for (int pair = 0; pair < kEights / 2; ++pair) {
        unsigned channels[4];
        load(channels, inputs + pair * (16 * config.kRowBytes) + other);
        const unsigned one[2] = {channels[0], channels[1]}, two[2] = {channels[2], channels[3]};
#pragma unroll
        for (int i = 0; i < kSixteens; ++i) {
          multiply(sums[2 * pair][i], filters[i], one);
          multiply(sums[2 * pair + 1][i], filters[i], two);
        }
      }
      if constexpr (config.bias)
        if (n == 0) add_biases(filters, gradients + piece);
    }
  }
  // In TF32 rounding makes infinities of large numbers: what is not finite is left as NaN, which is computed
  // again.
  __device__ __forceinline__ static float left(float sum) {
    return !kTf32 || is_finite(__float_as_uint(sum)) ? sum : __uint_as_float(0x7fffffff);
  }
  // Leaves its sums for the block's rank. `row_tile`: whose biases are this block's, or -1.
  __device__ __forceinline__ void leave(float4* __restrict__ rank, int tile, int row_tile) const {
    float4* const to = rank + static_cast<long long>(tile) * config.tile_fours() + threadIdx.x;
#pragma unroll
    for (int j = 0; j < kEights; ++j)
#pragma unroll
      for (int i = 0; i < kSixteens; ++i)
        to[(j * kSixteens + i) * config.threads()] = {left(sums[j][i][0]), left(sums[j][i][1]),
                                                      left(sums[j][i][2]), left(sums[j][i][3])};
    if constexpr (config.bias) {
      if (row_tile < 0 || n != 0 || lane % 4 != 0) return;
      auto* const biases =
          reinterpret_cast<float*>(rank + static_cast<long long>(config.tiles()) * config.tile_fours());
#pragma unroll
      for (int i = 0; i < kSixteens; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          biases[row_tile * config.filters + (m * kSixteens + i) * 16 + half * 8 + lane / 4] =
              bias[i][2 * half];
    }
  }
};

template <WeightGradientPlanesSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    weight_gradient_planes_sm80(const void* __restrict__ x, const void* __restrict__ dy,
                                float* __restrict__ partial) {
  ptx::wait_for_earlier_grids(x, dy);
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr ConvExtents a = config.conv;
  constexpr int kStages = config.stages;
  const unsigned smem = ptx::shared_address(memory);
  const int tile = static_cast<int>(blockIdx.x) % config.tiles();
  const int rank = static_cast<int>(blockIdx.x) / config.tiles();
  const int row_tile = tile / config.column_tiles(), column_tile = tile % config.column_tiles();
  const int first = static_cast<int>(config.first_chunk(rank));
  const int end = static_cast<int>(config.first_chunk(rank + 1));
  const auto load = [&](int chunk, unsigned to) {
    const int image = chunk / config.plane_chunks(), pixel = chunk % config.plane_chunks() * config.pixels();
    load_rows<config>(dy, config.filters, row_tile * config.filters, a.k, image, pixel, to);
    load_rows<config>(x, config.channels, column_tile * config.channels, a.c, image, pixel,
                      to + config.filters * config.kRowBytes);
  };
  Warp<config> warp;
#pragma unroll 1
  for (int i = 0; i < kStages - 1; ++i) {
    if (first + i < end) load(first + i, smem + i * config.stage_bytes());
    ptx::cp_async_commit_group();
  }
  int slot = 0;
#pragma unroll 1
  for (int chunk = first; chunk < end; ++chunk) {
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();  // this chunk is there for all, and all have read the one before it
    const int next = chunk + kStages - 1;
    if (next < end) load(next, smem + (slot == 0 ? kStages - 1 : slot - 1) * config.stage_bytes());
    ptx::cp_async_commit_group();
    warp.add(smem + slot * config.stage_bytes());
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  warp.leave(reinterpret_cast<float4*>(partial) + rank * config.rank_fours(), tile,
             column_tile == 0 ? row_tile : -1);
}

template <WeightGradientPlanesSm80 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_weight_gradient_planes_sm80(const float* __restrict__ partial, const void* __restrict__ x,
                                       const void* __restrict__ dy, void* __restrict__ dw,
                                       void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  add_up_ranks<config>(partial, x, dy, dw, dbias);
}

// Gradients of weights need none.
template <WeightGradientPlanesSm80 config>
__global__ void pack_weight_gradient_planes_sm80() {}

}  // namespace convtune::weight_gradient_planes_sm80
