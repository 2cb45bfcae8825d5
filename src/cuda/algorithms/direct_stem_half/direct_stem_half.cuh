// First layers in half precision, for compute capability 8.0 and up: few input channels, any window, one
// group.
//
//   x, channels last       shared memory            operand of a product
//   row  r g b r g b ...   row  0 0 r g b r g b ... output 0: |window, 16 halves|
//   row  r g b r g b ...   row  0 0 r g b r g b ... output 1:      |window, 16 halves|
//
// A row of a window is contiguous in x, and so it is an operand as it lies: a lane loads pairs of halves from
// where the window of its output begins, wherever that is, and no copy of the windows is made. The sum runs
// over the window's rows, each padded to a whole number of pairs, not of products: a product's 16 halves may
// begin in one row and end in the next. What is padding there is masked, so that an infinity of a neighbour
// does not meet a weight of zero. Weights of all steps stay in shared memory while the block goes from tile
// to tile; the next tile's input is on its way meanwhile.
#pragma once

#include "cuda/algorithms/direct_stem_half/store.cuh"
#include "cuda/algorithms/direct_stem_half/store_planes.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#include "cuda/ptx/sm90.cuh"
#include "cuda/ptx/wgmma_half.cuh"
#include "cuda/tile/ring.cuh"
#endif

namespace convtune::direct_stem_half {

template <DirectStemHalf config>
using Sums = float[config.filters / 2];

// Steps whose operands are loaded before the first of them is multiplied.
inline constexpr int kBatch = 4;

// Returns the starting values of a lane's sums: its two filters of each eight, for two outputs. Each from
// shared memory: loads are as many instructions as copies of registers.
template <DirectStemHalf config>
__device__ __forceinline__ void begin_sums(Sums<config>& sums, unsigned biases, int thread) {
#pragma unroll
  for (int i = 0; i < config.filters / 2; i += 2) {
    sums[i] = sums[i + 1] = 0;
    if constexpr (kBegin<config> == SumsBegin::at_bias)
      ptx::ld_shared_v2(sums[i], sums[i + 1], biases + 32 * (i / 4) + 8 * thread);
  }
}

// Warpgroups: the products of one batch run while the operands of the next are loaded.
template <DirectStemHalf config>
struct ByWarpgroups {
  static constexpr int kSteps = config.steps(), kBatches = (kSteps + kBatch - 1) / kBatch;
  using Operands = unsigned[kBatch][4];

  template <int kIndex>
  __device__ __forceinline__ static void load(Operands& operands, unsigned zero, unsigned eight, int thread) {
    constexpr int kCount = kSteps - kIndex * kBatch < kBatch ? kSteps - kIndex * kBatch : kBatch;
    for_constants<0, kCount>([&](auto i) {
      load_operand<config, kIndex * kBatch + i.value>(operands[i.value], zero, eight, thread);
    });
  }

  __device__ __forceinline__ static void multiply(Sums<config>& sums, unsigned weights, unsigned zero,
                                                  unsigned eight, int thread) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    constexpr int kStepBytes = 32 * config.filters;
    const unsigned long long descriptor =
        ptx::wgmma_descriptor(weights >> 4, config.filters, 8);  // 16 bytes each: k to k, 8 filters to 8
    Operands operands[2];
    load<0>(operands[0], zero, eight, thread);
    for_constants<0, kBatches>([&](auto batch) {
      constexpr int kIndex = batch.value;
      constexpr int kCount = kSteps - kIndex * kBatch < kBatch ? kSteps - kIndex * kBatch : kBatch;
      ptx::wgmma_fence();
      for_constants<0, kCount>([&](auto i) {
        constexpr int kStep = kIndex * kBatch + i.value;
        ptx::WgmmaHalfRegisters<config.conv.x_type == ElementType::bf16, config.filters>::multiply(
            sums, operands[kIndex % 2][i.value], descriptor + kStep * (kStepBytes / 16),
            kStep > 0 || kBegin<config> == SumsBegin::at_bias);
      });
      ptx::wgmma_commit();
      if constexpr (kIndex + 1 < kBatches) {
        ptx::wgmma_wait<1>();  // the batch before, whose registers are loaded again
        load<kIndex + 1>(operands[(kIndex + 1) % 2], zero, eight, thread);
      }
    });
    ptx::wgmma_wait<0>();
#endif
  }
};

// Warps of their own, before compute capability 9.0.
template <DirectStemHalf config>
struct ByWarps {
  __device__ __forceinline__ static void multiply(Sums<config>& sums, unsigned weights, unsigned zero,
                                                  unsigned eight, int thread) {
    constexpr int kFilters = config.filters;
    const int lane = static_cast<int>(threadIdx.x) % 32;
    // Lane l gives the address of row l % 8 of matrix l / 8: two halves of the step for each 8 filters.
    const unsigned row = weights + 16 * (lane / 8 % 2 * kFilters + lane / 16 * 8 + lane % 8);
    auto& blocks = reinterpret_cast<float(&)[kFilters / 8][4]>(sums);
    for_constants<0, config.steps()>([&](auto step) {
      unsigned a[4];
      load_operand<config, step.value>(a, zero, eight, thread);
#pragma unroll
      for (int j = 0; j < kFilters / 8; j += 2) {
        unsigned b[4];
        ptx::ldmatrix_x4(b, row + step.value * (32 * kFilters) + j * 128);
        const unsigned first[] = {b[0], b[1]}, second[] = {b[2], b[3]};
        if constexpr (config.conv.x_type == ElementType::bf16) {
          ptx::mma_m16n8k16_bf16(blocks[j], a, first);
          ptx::mma_m16n8k16_bf16(blocks[j + 1], a, second);
        } else {
          ptx::mma_m16n8k16_f16(blocks[j], a, first);
          ptx::mma_m16n8k16_f16(blocks[j + 1], a, second);
        }
      }
    });
  }
};

template <bool kWarpgroups, DirectStemHalf config>
struct ProductsOf {
  using Type = ByWarps<config>;
};
template <DirectStemHalf config>
struct ProductsOf<true, config> {
  using Type = ByWarpgroups<config>;
};

// Everything, slowly: where a weight is not finite.
template <DirectStemHalf config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y,
                                             int first, int step, int first_filter,
                                             const TilesOfRun<config> run) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int index = first; index < run.tiles; index += step) {
    const Tile<config> tile(index);
#pragma unroll 1
    for (int i = threadIdx.x; i < config.outputs() * config.filters; i += config.threads()) {
      const int filter = first_filter + i % config.filters;
      const Output<config> output(tile, i / config.filters);
      if (filter >= a.k || !output.exists) continue;
      const long long at = output.offset(tile, filter);
      const float more = a.residual ? load_element<a.y_type>(residual, at) : 0;
      store_element<a.y_type>(y, at,
                              exact_output<config>(x, packed, tile.frame / a.z, filter, output.at / a.q,
                                                   output.at % a.q, more, tile.frame % a.z));
    }
  }
}

// Computes a warp's share of tiles, strips of 64 outputs that four warps take together.
template <DirectStemHalf config>
struct Worker : TilesOfRun<config> {
  static constexpr int kGroups = config.warps / 4;
  const void* residual;
  void* y;
  int first_filter;
  unsigned weights, biases, staging;
  int turn = 0;  // strips of all tiles so far, modulo the groups of four warps

  // Fetches what is added to the outputs of a strip, to L2: by one of its four warps, each in its turn.
  __device__ __forceinline__ void prefetch_residual(const Tile<config>& tile, int strip) const {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    if (first_filter != 0 || static_cast<int>(threadIdx.x) / 32 % 4 != strip % 4) return;
    const int first = strip * config.strip_outputs();
    const Output<config> output(tile, first);
    const int count = lesser(config.strip_outputs(),
                             lesser(config.outputs() - first, config.conv.p * config.conv.q - output.at));
    ptx::prefetch_l2_if(static_cast<const unsigned short*>(residual) + output.offset(tile, 0),
                        2 * config.conv.k * count, count > 0 && threadIdx.x % 32 == 0);
#endif
  }

  // As above, for the strips that compute() has no strip before: the first of a block's first tile.
  __device__ void prefetch_first_residuals(int index) const {
    if constexpr (config.prefetches_residual())
      for (int i = 0; i < config.residual_ahead(); ++i)
        if (const int strip = static_cast<int>(threadIdx.x) / 128 + i * kGroups; strip < config.strips())
          prefetch_residual(Tile<config>(index), strip);
  }

  // The tile `index`; the block's next one is `step` behind it.
  __device__ void compute(int index, int step, unsigned input) {
    const Tile<config> tile(index);
    const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, thread = lane % 4;
    const int warp = static_cast<int>(threadIdx.x) / 32;
    int strip = warp / 4 - turn;
    if (strip < 0) strip += kGroups;
#pragma unroll 1
    for (; strip < config.strips(); strip += kGroups) {
      const int first_output = strip * config.strip_outputs() + warp % 4 * 16;
      // Whatever does not exist is computed from another's window, and not stored.
      const auto existing = [](int output) { return output < config.outputs() ? output : 0; };
      const unsigned from = input + 4 * thread;
      unsigned windows[2];
      if constexpr (config.conv.q % 16 == 0) {  // all in one row
        windows[0] = from + 2 * (config.window_offset(existing(first_output)) +
                                 config.output_of_row(group) * config.output_step());
        windows[1] = windows[0] + 2 * config.output_of_row(8) * config.output_step();
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i)
          windows[i] =
              from + 2 * config.window_offset(existing(first_output + config.output_of_row(group + 8 * i)));
      }
      // Anew for each strip, or the compiler keeps all that follows from it in registers, a pair of steps in
      // one.
      int pairs_of = thread;
      asm volatile("" : "+r"(pairs_of));
      const auto planes = [&] {
        return PlanesStore<config>(residual, y, biases, staging, tile, strip * config.strip_outputs(),
                                   first_filter);
      };
      if constexpr (config.conv.nhwc)
        load_residual<config>(residual, tile, first_output, first_filter, staging);
      else
        planes().load_residual();
      if constexpr (config.prefetches_residual()) {
        const int next = strip + config.residual_ahead() * kGroups;
        if (next < config.strips())
          prefetch_residual(tile, next);
        else if (next - config.strips() < config.strips() && index + step < this->tiles)
          prefetch_residual(Tile<config>(index + step), next - config.strips());
      }
      Sums<config> sums;
      begin_sums<config>(sums, biases, thread);
      ProductsOf<config.wgmma, config>::Type::multiply(sums, weights, windows[0], windows[1], pairs_of);
      asm volatile("" : "+r"(strip));  // opaque: what follows from it is not kept beside the sums
      if constexpr (config.conv.nhwc)
        store<config>(sums, residual, biases, y, tile, first_output, first_filter, staging);
      else
        planes().store(sums);
    }
    turn = (turn + config.strips()) % kGroups;
  }
};

// One warp asks for tile after tile, row by row, before it computes an earlier one. (A warp of its own for
// that costs all others a quarter of their registers, which are given to four warps at once.)
template <DirectStemHalf config>
__device__ void run_in_bulk(const void* __restrict__ x, const float* __restrict__ packed, unsigned shared,
                            int first, int step, Worker<config>& worker) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr DirectStemHalf::Smem kSmem = config.smem();
  constexpr int kLines = config.planes() * config.tile_rows();
  constexpr int kRowBytes = 2 * config.row_halves();
  const unsigned full = shared + kSmem.full, empty = shared + kSmem.empty, tiles = shared + kSmem.tiles;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  using Slots = Ring<config.stages>;
  if (threadIdx.x == 0) {
    Slots::init(full, 1, empty, config.threads());
    ptx::fence_mbarrier_init();
  }
  // Whatever copies leave alone stays zero.
  for (int i = threadIdx.x * 4; i < config.stages * config.tile_bytes(); i += config.threads() * 4)
    ptx::st_shared(tiles + i, 0u);
  ptx::cp_async_commit_group();  // the weights: a wait counts what is committed
  ptx::cp_async_wait_group<0>();
  ptx::fence_proxy_async();
  __syncthreads();
  Slots asked, ring;
  const bool asks = threadIdx.x / 32 == config.warps - 1;
  const auto ask = [&](int index) {
    if (!asks || index >= worker.tiles) return;
    asked.wait_empty(empty);
    if (lane == 0) ptx::mbarrier_arrive_expect(asked.barrier(full), kLines * kRowBytes);
    __syncwarp();
    const auto* const zeros = reinterpret_cast<const unsigned short*>(packed) + config.zeros_at();
    const Tile<config> tile(index);
    const unsigned short* const image = tile.input(x);
#pragma unroll 1
    for (int line = lane; line < kLines; line += 32) {
      const int row = tile.first_row() + line % config.tile_rows();
      const int plane = tile.input_plane(line / config.tile_rows());
      const unsigned short* const from = tile.has_plane(plane) && row >= 0 && row < config.conv.h
                                             ? image + (plane * config.conv.h + row) * config.row_halves()
                                             : zeros;
      const unsigned to =
          tiles + asked.slot * config.tile_bytes() + 2 * (line * config.pitch() + config.lead());
      ptx::bulk_copy_to_shared(to, from, kRowBytes, asked.barrier(full));
    }
    asked.next();
  };
  for (int i = 0; i < config.stages - 1; ++i) ask(first + i * step);
#pragma unroll 1
  for (int index = first; index < worker.tiles; index += step) {
    ask(index + (config.stages - 1) * step);
    ring.wait_full(full);
    worker.compute(index, step, tiles + ring.slot * config.tile_bytes());
    ptx::mbarrier_arrive(ring.barrier(empty));  // by every thread: racecheck follows no warp's one arrival
    ring.next();
  }
#endif
}

// All threads load the next tile before they compute one.
template <DirectStemHalf config>
__device__ void run_by_all(const void* __restrict__ x, unsigned shared, int first, int step,
                           Worker<config>& worker) {
  constexpr DirectStemHalf::Smem kSmem = config.smem();
  unsigned slot = 0;
  load_tile<config>(x, Tile<config>(first), shared + kSmem.tiles);
  ptx::cp_async_commit_group();
#pragma unroll 1
  for (int index = first; index < worker.tiles; index += step) {
    ptx::cp_async_wait_group<0>();
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
    ptx::fence_proxy_async();  // the weights, the first time
#endif
    __syncthreads();  // the tile has come, and nobody needs the one before
    const unsigned input = shared + kSmem.tiles + slot * config.tile_bytes();
    slot ^= 1;
    if (index + step < worker.tiles)
      load_tile<config>(x, Tile<config>(index + step), shared + kSmem.tiles + slot * config.tile_bytes());
    ptx::cp_async_commit_group();
    worker.compute(index, step, input);
  }
}

template <DirectStemHalf config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_stem_half(const void* __restrict__ x, const float* __restrict__ packed,
                     const void* __restrict__ residual, void* __restrict__ y, int images) {
  ptx::wait_for_earlier_grids(packed);
  constexpr Packed kPacked = config.packed();
  constexpr DirectStemHalf::Smem kSmem = config.smem();
  constexpr int kFilterBlocks = config.filter_blocks(), kWeightBytes = 2 * config.weight_halves();
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned shared = ptx::shared_address(smem);
  const int filter_block = static_cast<int>(blockIdx.x) % kFilterBlocks;
  const int first_filter = filter_block * config.filters;
  const int first = static_cast<int>(blockIdx.x) / kFilterBlocks;
  const int step = static_cast<int>(gridDim.x) / kFilterBlocks;
  const TilesOfRun<config> run(images);
  if (packed[kPacked.flag_at()] != 0)
    return compute_exactly<config>(x, packed, residual, y, first, step, first_filter, run);

  const auto* const weights =
      reinterpret_cast<const unsigned char*>(packed) + static_cast<long long>(filter_block) * kWeightBytes;
  for (int i = threadIdx.x * 16; i < kWeightBytes; i += config.threads() * 16)
    ptx::cp_async_16(shared + kSmem.weights + i, weights + i, 16);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (int i = threadIdx.x; i < config.filters; i += config.threads())
    ptx::st_shared(shared + kSmem.biases + 4 * i,
                   first_filter + i < config.conv.k ? packed[kPacked.bias_at() + first_filter + i] : 0.0f);
  Worker<config> worker{run,
                        residual,
                        y,
                        first_filter,
                        shared + kSmem.weights,
                        shared + kSmem.biases,
                        shared + kSmem.staging + warp / config.staging_warps() * config.staging_bytes()};
  worker.prefetch_first_residuals(first);
  if constexpr (config.bulk())
    run_in_bulk<config>(x, packed, shared, first, step, worker);
  else
    run_by_all<config>(x, shared, first, step, worker);
}

// The packed weights. The flag must be 0 before.
template <DirectStemHalf config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_stem_half(const void* __restrict__ w, const void* __restrict__ bias,
                          unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_stem_half
