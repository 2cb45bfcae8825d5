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
//
// How long it compiles is how many statements and branches it is written out to: so loads, copies and stores
// are asm statements of four with their conditions inside, and how tensors are aligned is known in advance
// (another kernel is compiled for others).
#include "cuda/algorithms/implicit_gemm_sm80/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::implicit_gemm_sm80 {

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
// Returns the rest of a number without its TF32 part.
__device__ __forceinline__ unsigned rest(float value) {
  return round_tf32(value - __uint_as_float(round_tf32(value)));
}

// Holds a thread's operands, for one step of a block of terms at a time.
template <ImplicitGemmSm80 config>
class Multiplier {
  static constexpr int kTilesM = config.tiles_m(), kTilesN = config.tiles_n();
  static constexpr bool kSplit = config.multiply == Multiply::fp32;

 public:
  __device__ __forceinline__ explicit Multiplier(const Smem<config>& smem) {
    const int lane = threadIdx.x % 32, group = lane / 4, thread = lane % 4;
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
    const int warp_m = warp / config.warps_n * config.warp_m(),
              warp_n = warp % config.warps_n * config.warp_n();
    const unsigned ring = ptx::shared_address(smem.ring);
    weights_ = ring + 16 * (warp_m / 16 * 32 + lane);
    const int position = warp_n + config.position_of(0, group), k = config.term_of(0, thread, 0, 0);
    input_ = ring + 4 * (config.weight_words() + (config.conv.nhwc ? config.input_word(position, k)
                                                                   : k * config.input_pitch() + position));
    swap_ = config.input_word(position, k + 16) - config.input_word(position, k);
  }

  // The first numbers of the stage that is so many bytes on. The copies of another one can begin when they
  // are on their way.
  __device__ __forceinline__ void begin(unsigned stage) {
    read_input(stage, 0);
    read_weights(stage, 0, kSplit ? 1 : 0);
  }
  // The rest of it.
  __device__ __forceinline__ void multiply(Sums<config>& sums, unsigned stage) {
    if constexpr (!kSplit) {
      multiply_steps(sums, stage);
    } else {
      Sums<config> block{};
      multiply_steps(block, stage);
#pragma unroll
      for (int i = 0; i < kTilesM; ++i)
#pragma unroll
        for (int j = 0; j < kTilesN; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) sums[i][j][e] += block[i][j][e];
    }
  }

 private:
  __device__ __forceinline__ void multiply_steps(Sums<config>& sums, unsigned stage) {
#pragma unroll
    for (int step = 0; step < config.steps(); ++step) {
      if (step > 0) {
        read_input(stage, step);
        read_weights(stage, step, kSplit ? 1 : 0);
      }
      round(step, false);
      products(sums);
      if constexpr (kSplit) {
        read_weights(stage, step, 0);
        products(sums);
        round(step, true);
        products(sums);
      }
    }
  }
  __device__ __forceinline__ void products(Sums<config>& sums) {
#pragma unroll
    for (int i = 0; i < kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < kTilesN; ++j) multiply_add<config>(sums[i][j], a_[i], b_[j]);
  }

  __device__ __forceinline__ void read_weights(unsigned stage, int step, int part) {
    constexpr int kParts = kSplit ? 2 : 1, kTiles = config.block_m / 16;
#pragma unroll
    for (int tile = 0; tile < kTilesM; ++tile)
      ptx::ld_shared_v4(a_[tile], weights_ + stage + 512 * ((step * kParts + part) * kTiles + tile));
  }
  // Four numbers a load: neighbours in shared memory, which are four positions or four terms. Channels-last,
  // four terms are enough for two steps of 8.
  __device__ __forceinline__ void read_input(unsigned stage, int step) {
    if constexpr (!config.conv.nhwc) {
#pragma unroll
      for (int i = 0; i < (config.is_half() ? 4 : 2); ++i)
#pragma unroll
        for (int tile = 0; tile < kTilesN; tile += 4)
          ptx::ld_shared_v4(x_[tile][i], x_[tile + 1][i], x_[tile + 2][i], x_[tile + 3][i],
                            input_ + stage +
                                4 * (config.term_of(step, 0, i % 2, i / 2) * config.input_pitch() +
                                     config.position_of(tile, 0)));
    } else if (config.is_half() || step % 2 == 0) {
      const unsigned from = input_ + stage + (config.term_of(step, 0, 0, 0) > 0 ? 4 * swap_ : 0);
#pragma unroll
      for (int tile = 0; tile < kTilesN; ++tile)
        ptx::ld_shared_v4(x_[tile][0], x_[tile][1], x_[tile][2], x_[tile][3],
                          from + 4 * config.input_word(config.position_of(tile, 0), 0));
    }
  }

  // The input as the tensor cores take it, or what that leaves.
  __device__ __forceinline__ void round(int step, bool rests) {
#pragma unroll
    for (int tile = 0; tile < kTilesN; ++tile)
#pragma unroll
      for (int upper = 0; upper < 2; ++upper)
        if constexpr (config.is_half())
          b_[tile][upper] = round_pair<config>(value(tile, step, upper, 0), value(tile, step, upper, 1));
        else
          b_[tile][upper] =
              rests ? rest(value(tile, step, upper, 0)) : round_tf32(value(tile, step, upper, 0));
  }
  __device__ __forceinline__ float value(int tile, int step, int upper, int element) const {
    if (!config.conv.nhwc) return x_[tile][upper + 2 * element];
    return x_[tile][config.is_half() ? 2 * upper + element : step % 2 * 2 + upper];
  }

  unsigned weights_, input_;  // addresses where this thread's pieces begin in the first stage
  int swap_;                  // channels-last, from a row's first 16 terms to the others: words
  float x_[kTilesN][4];
  unsigned a_[kTilesM][4], b_[kTilesN][2];
};

// `given`: the problem where the config is not specialized.
template <ImplicitGemmSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks_per_unit())
    implicit_gemm_sm80(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                       const ConvExtents given) {
  ptx::wait_for_earlier_grids(packed);
  extern __shared__ __align__(16) unsigned memory[];
  const ConvExtents a = extents<config>(given);
  const Smem<config> smem(memory);
  const Tile tile = tile_of_block<config>(a);
  find_positions<config>(a, tile, smem);
  __syncthreads();

  Loader<config> loader(a, tile, x, packed, smem);
  Multiplier<config> multiplier(smem);
  Sums<config> sums{};
  const int k_blocks = config.k_blocks(a);
  constexpr unsigned kStage = 4 * config.stage_words();
  const auto next = [](unsigned stage) {
    return stage + kStage == config.stages * kStage ? 0 : stage + kStage;
  };
  unsigned stage = 0, free = 0;
  // A loop, since copies written out for each stage take their time to compile. (As laps of the loop below
  // that multiply nothing, 2 % more at run time.)
#pragma unroll 1
  for (int block = 0; block < config.stages - 1; ++block) {
    if (block < k_blocks) loader.load(free);
    ptx::cp_async_commit_group();
    free = next(free);
  }
#pragma unroll 1
  for (int block = 0; block < k_blocks; ++block) {
    ptx::cp_async_wait_group<config.stages - 2>();
    __syncthreads();  // this stage is there for all, and all have read the one before it
    multiplier.begin(stage);
    if (block + config.stages - 1 < k_blocks) loader.load(free);
    ptx::cp_async_commit_group();
    multiplier.multiply(sums, stage);
    free = stage, stage = next(stage);
  }
  Storer<config>(a, tile, x, packed, y, smem).store(sums);
}

template <ImplicitGemmSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_implicit_gemm_sm80(const float* __restrict__ w, const float* __restrict__ bias,
                            unsigned* __restrict__ packed, const ConvExtents given) {
  const ConvExtents a = extents<config>(given);
  pack_words(config.packed(a), w, bias, packed, [&](long long i) -> unsigned {
    if (i >= config.taps_at(a)) {
      const int index = static_cast<int>((i - config.taps_at(a)) / 4), word = i % 4;
      const auto tap = config.tap(a, config.term(a, index / config.block_k, index % config.block_k));
      return word == 0   ? static_cast<unsigned>(tap.offset)
             : word == 1 ? (config.pads_frames() ? tap.frame : static_cast<unsigned>(tap.offset >> 32))
             : word == 2 ? tap.row
                         : tap.column;
    }
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
      const int row = config.has_frames() ? (term.channel * a.t + term.frame) * a.r : term.channel * a.r;
      return w[(group * a.group_filters() + config.ordered(filter)) * a.taps() + (row + term.row) * a.s +
               term.column];
    };
    if constexpr (config.is_half())
      return round_pair<config>(weight(0), weight(1));
    else
      return part == 0 ? round_tf32(weight(0)) : rest(weight(0));
  });
}

}  // namespace convtune::implicit_gemm_sm80
