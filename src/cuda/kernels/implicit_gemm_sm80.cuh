// Convolution as a matrix product whose right operand is gathered while it is copied: for any problem, on
// compute capability 8.0 and up.
//
//   terms (channel, filter row, filter column)    output positions, the pixels of all images in a row
//             +--------- k ---------+                    +------ n ------+
//     filters |  packed weights     |              terms |  x, gathered  |
//       (m)   |  (in fragments)     |               (k)  |               |
//             +---------------------+                    +---------------+
//
// A block of threads has one tile of block_m x block_n outputs. cp.async copies blocks of block_k terms into
// a ring of shared memory, a few ahead, zeros where a term lies in the padding; mma.sync multiplies. Weights
// lie in the order of the registers, rounded; input is rounded after it was read. Which term, filter and
// position stands in which register is free: chosen so that shared memory is read, and the output written, 16
// bytes at a time in either layout (implicit_gemm_sm80.h).
//
// Zeros in the padding times infinite weights, and rounding, make sums infinite or NaN that should not be:
// every such output is computed again from the tensors as they came.
#include "implicit_gemm_sm80_store.cuh"

namespace convtune {
namespace implicit_gemm {

template <ImplicitGemmSm80 config>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const unsigned (&a)[4],
                                             const unsigned (&b)[2]) {
  if constexpr (config.multiply == Multiply::f16)
    ptx::mma_m16n8k16_f16(sum, a, b);
  else if constexpr (config.multiply == Multiply::bf16)
    ptx::mma_m16n8k16_bf16(sum, a, b);
  else
    ptx::mma_m16n8k8_tf32(sum, a, b);
}

template <ImplicitGemmSm80 config>
__device__ __forceinline__ unsigned round_pair(float first, float second) {
  return config.multiply == Multiply::f16 ? ptx::cvt_rn_f16x2(first, second)
                                          : ptx::cvt_rn_bf16x2(first, second);
}

// To the nearest TF32, ties to even: 8193 * value has room for its upper 11 bits below 8192 * value. What
// overflows becomes NaN. From 9.0 on cvt.rna is a comparison and a conditional sum in place, whose results
// the compiler then moved into pairs of registers, several times over.
__device__ __forceinline__ unsigned round_tf32(float value) {
  return __float_as_uint(fmaf(-8192.0f, value, 8193.0f * value));
}
// What a number is without that.
__device__ __forceinline__ unsigned rest(float value) {
  return round_tf32(value - __uint_as_float(round_tf32(value)));
}

// The input of one step, four numbers a load: neighbours in shared memory, which are four positions or four
// terms.
template <ImplicitGemmSm80 config>
struct Inputs {
  static constexpr int kTiles = config.tiles_n();
  float values[kTiles][4];

  // Channels-last, four terms are enough for two steps of 8.
  __device__ __forceinline__ void read(const float* input, int warp_n, int step) {
    const int lane = threadIdx.x % 32, group = lane / 4, thread = lane % 4;
    if constexpr (!config.problem.nhwc) {
#pragma unroll
      for (int i = 0; i < (config.is_half() ? 4 : 2); ++i)
#pragma unroll
        for (int tile = 0; tile < kTiles; tile += 4) {
          const int k = config.term_of(step, thread, i % 2, i / 2);
          const float4 four = *reinterpret_cast<const float4*>(input + k * config.input_pitch() + warp_n +
                                                               config.position_of(tile, group));
          values[tile][i] = four.x, values[tile + 1][i] = four.y;
          values[tile + 2][i] = four.z, values[tile + 3][i] = four.w;
        }
    } else if (config.is_half() || step % 2 == 0) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float4 four = *reinterpret_cast<const float4*>(
            input +
            config.input_word(warp_n + config.position_of(tile, group), config.term_of(step, thread, 0, 0)));
        values[tile][0] = four.x, values[tile][1] = four.y;
        values[tile][2] = four.z, values[tile][3] = four.w;
      }
    }
  }

  __device__ __forceinline__ void round(int tile, int step, unsigned (&to)[2]) const {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper)
      if constexpr (config.is_half())
        to[upper] = round_pair<config>(value(tile, step, upper, 0), value(tile, step, upper, 1));
      else
        to[upper] = round_tf32(value(tile, step, upper, 0));
  }
  __device__ __forceinline__ void round_rest(int tile, int step, unsigned (&to)[2]) const {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) to[upper] = rest(value(tile, step, upper, 0));
  }

 private:
  __device__ __forceinline__ float value(int tile, int step, int upper, int element) const {
    if (!config.problem.nhwc) return values[tile][upper + 2 * element];
    return values[tile][config.is_half() ? 2 * upper + element : step % 2 * 2 + upper];
  }
};

// One block of terms. `load()` begins the copies of a later one, when the first numbers are on their way.
template <ImplicitGemmSm80 config, class F>
__device__ __forceinline__ void multiply(Sums<config>& sums, const unsigned* stage, int warp_m, int warp_n,
                                         F&& load) {
  constexpr int kTilesM = config.tiles_m(), kTilesN = config.tiles_n(), kTiles = config.block_m / 16;
  constexpr int kParts = config.multiply == Multiply::fp32 ? 2 : 1;
  const int lane = threadIdx.x % 32;
  const auto* weights = reinterpret_cast<const uint4*>(stage) + warp_m / 16 * 32 + lane;
  const auto* input = reinterpret_cast<const float*>(stage + config.weight_words());
  const auto read_weights = [&](unsigned(&to)[kTilesM][4], int step, int part) {
#pragma unroll
    for (int tile = 0; tile < kTilesM; ++tile) {
      const uint4 four = weights[((step * kParts + part) * kTiles + tile) * 32];
      to[tile][0] = four.x, to[tile][1] = four.y, to[tile][2] = four.z, to[tile][3] = four.w;
    }
  };
  Inputs<config> inputs;
  const auto products = [&](const unsigned(&a)[kTilesM][4], const unsigned(&b)[kTilesN][2],
                            Sums<config>& to) {
#pragma unroll
    for (int i = 0; i < kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) multiply_add<config>(to[i][j], a[i], b[j]);
  };
  if constexpr (config.multiply != Multiply::fp32) {
    for_constants<0, config.steps()>([&](auto index) {
      constexpr int step = index.value;
      inputs.read(input, warp_n, step);
      unsigned a[kTilesM][4], b[kTilesN][2];
      read_weights(a, step, 0);
      if constexpr (step == 0) load();
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) inputs.round(j, step, b[j]);
      products(a, b, sums);
    });
  } else {
    Sums<config> block{};
    for_constants<0, config.steps()>([&](auto index) {
      constexpr int step = index.value;
      inputs.read(input, warp_n, step);
      unsigned a[kTilesM][4], b[kTilesN][2];
      read_weights(a, step, 1);
      if constexpr (step == 0) load();
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) inputs.round(j, step, b[j]);
      products(a, b, block);
      read_weights(a, step, 0);
      products(a, b, block);
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) inputs.round_rest(j, step, b[j]);
      products(a, b, block);
    });
#pragma unroll
    for (int i = 0; i < kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < kTilesN; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] += block[i][j][e];
  }
}

}  // namespace implicit_gemm

// `given`: the problem where the config is not specialized. `wide_x`, `wide_y`: which of them are aligned to
// 16 bytes.
template <ImplicitGemmSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks_per_unit())
    implicit_gemm_sm80(const float* __restrict__ x, const unsigned* __restrict__ packed,
                       float* __restrict__ y, const Conv2dExtents given, bool wide_x, bool wide_y) {
  using namespace implicit_gemm;
  extern __shared__ __align__(16) unsigned memory[];
  const Conv2dExtents a = extents<config>(given);
  const Smem<config> smem(memory);
  const Tile tile = tile_of_block<config>(a);
  find_positions<config>(a, tile, smem);
  __syncthreads();

  Loader<config> loader(a, tile, x, packed, smem, wide_x);
  const int k_blocks = config.k_blocks(a);
#pragma unroll
  for (int stage = 0; stage < config.stages - 1; ++stage) {
    if (stage < k_blocks) loader.load(stage);
    ptx::cp_async_commit_group();
  }
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int warp_m = warp / config.warps_n * config.warp_m(),
            warp_n = warp % config.warps_n * config.warp_n();
  Sums<config> sums{};
  int stage = 0, free = config.stages - 1;
#pragma unroll 1
  for (int block = 0; block < k_blocks; ++block) {
    ptx::cp_async_wait_group<config.stages - 2>();
    __syncthreads();  // this stage is there for all, and all have read the one before it
    const bool loads = block + config.stages - 1 < k_blocks;
    multiply<config>(sums, smem.ring + stage * config.stage_words(), warp_m, warp_n, [&] {
      if (loads) loader.load(free);
      ptx::cp_async_commit_group();
    });
    free = stage;
    stage = stage + 1 == config.stages ? 0 : stage + 1;
  }
  Storer<config>(a, tile, x, packed, y, smem, wide_y).store(sums);
}

// A thread a word.
template <ImplicitGemmSm80 config>
__global__ void __launch_bounds__(256)
    pack_implicit_gemm_sm80(const float* __restrict__ w, const float* __restrict__ bias,
                            unsigned* __restrict__ packed, const Conv2dExtents given) {
  using namespace implicit_gemm;
  const Conv2dExtents a = extents<config>(given);
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= config.packed_words(a)) return;
  unsigned bits = 0;
  if (i >= config.bias_at(a)) {
    bits = bias ? __float_as_uint(bias[i - config.bias_at(a)]) : 0;
  } else if (i >= config.weights_at(a)) {
    bits = __float_as_uint(w[i - config.weights_at(a)]);
  } else if (i >= config.taps_at(a)) {
    const int index = static_cast<int>((i - config.taps_at(a)) / 4), word = i % 4;
    const auto tap = config.tap(a, config.term(a, index / config.block_k, index % config.block_k));
    bits = word == 0   ? static_cast<unsigned>(tap.offset)
           : word == 1 ? static_cast<unsigned>(tap.offset >> 32)
           : word == 2 ? tap.row
                       : tap.column;
  } else {
    constexpr int kTiles = config.block_m / 16, kParts = config.multiply == Multiply::fp32 ? 2 : 1;
    const long long block = i / config.weight_words();  // [group][m_block][k_block]
    const int within = static_cast<int>(i % config.weight_words());
    const int reg = within % 4, lane = within / 4 % 32, tile = within / 128 % kTiles;
    const int part = within / 128 / kTiles % kParts, step = within / 128 / kTiles / kParts;
    const int k_block = static_cast<int>(block % config.k_blocks(a));
    const long long m_block = block / config.k_blocks(a);
    const int filter = static_cast<int>(m_block % config.m_blocks(a)) * config.block_m +
                       tile / config.tiles_m() * config.warp_m() +
                       config.filter_of(tile % config.tiles_m(), reg % 2, lane / 4);
    const long long group = m_block / config.m_blocks(a);
    const auto weight = [&](int element) {
      const auto term = config.term(a, k_block, config.term_of(step, lane % 4, reg / 2, element));
      if (!term.real || filter >= a.group_filters()) return 0.0f;
      return w[(group * a.group_filters() + filter) * a.taps() + (term.channel * a.r + term.row) * a.s +
               term.column];
    };
    if constexpr (config.is_half())
      bits = round_pair<config>(weight(0), weight(1));
    else
      bits = part == 0 ? round_tf32(weight(0)) : rest(weight(0));
  }
  packed[i] = bits;
}

}  // namespace convtune
