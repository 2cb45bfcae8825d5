// The gradient of weights in TF32 on compute capability 9.0: a product of filters (rows) with channels at
// taps (columns), whose sums go over the pixels of y. In TF32 wgmma takes operands whose k lies beside each
// other alone, pixels here, so both are transposed in shared memory on their way (load.cuh).
//
// clang-format off
//   TMA           slices [rows][pixels][filters, or channels], in NCHW [channels][rows][pixels], a few ahead
//   some warps    dy [four pixels][filter][4] and x [four pixels][64 channels][column of the filter][64][4],
//                 shifted for each column of the filter, and rounded to TF32
//   consumers     row_blocks x 64 filters by the taps of a row of the filter, in registers
// clang-format on
//
// A row of the filter begins some fours of pixels further on, so that a tile has all taps of its channels,
// and x and dy come once for them. `split` blocks share the pixels of a tile and leave their sums in memory;
// add_up.cuh adds them in one order. The gradient of the bias is summed in fp32 by who transposes dy.
#include "cuda/algorithms/weight_gradient_tf32_sm90/add_up.cuh"
#include "cuda/algorithms/weight_gradient_tf32_sm90/load.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/wgmma_tf32.cuh"
#include "cuda/tile/tf32.cuh"

namespace convtune::weight_gradient_tf32_sm90 {

// Large numbers become infinities where they are rounded: sums that are not finite are left as NaN, which is
// computed again.
__device__ __forceinline__ float left(float sum) {
  return is_finite(__float_as_uint(sum)) ? sum : __uint_as_float(0x7fffffff);
}

template <WeightGradientTf32Sm90 config>
__device__ __forceinline__ void consume(float* __restrict__ partial, unsigned smem, int consumer) {
  constexpr auto kAt = config.smem();
  constexpr ConvExtents a = config.conv;
  constexpr int kStage = config.stage_bytes() / 16;
  constexpr int kGradientFour = config.gradient_four() / 16, kInputFour = config.input_four() / 16;
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int group = consumer % config.filter_groups, r = consumer / config.filter_groups;
  const int first_row = group * config.consumer_rows();
  const int input_at = config.place_of_row(r * a.dilation_h) * config.row_fours() * kInputFour;
  const unsigned long long rows =
      ptx::wgmma_descriptor((smem + kAt.stages) / 16 + first_row, kGradientFour, 8);
  const unsigned long long columns =
      ptx::wgmma_descriptor((smem + kAt.stages + config.gradient_bytes()) / 16 + input_at, kInputFour, 8);
  const bool first_lane = lane == 0;
  const Part<config> part;
  const int count = part.chunks();
  Ring<config.stages> ring;
  float sums[config.row_blocks][config.row_columns() / 2];
  unsigned empty = ring.barrier(smem + kAt.empty);  // barrier of the stage that the products before read
#pragma unroll 1
  for (int step = 0; step < count; ++step) {
    ring.wait_full(smem + kAt.full);
    const unsigned stage = static_cast<unsigned>(ring.slot) * kStage;
    ptx::wgmma_fence();
#pragma unroll 1
    for (int k = 0; k < config.positions() / 8; ++k)
#pragma unroll
      for (int m = 0; m < config.row_blocks; ++m)
        ptx::WgmmaTf32<config.row_columns()>::multiply(
            sums[m], rows + stage + m * config.kBlock + static_cast<unsigned>(k) * (2 * kGradientFour),
            columns + stage + static_cast<unsigned>(k) * (2 * kInputFour), k > 0 || step > 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();  // earlier work is done
    ptx::mbarrier_arrive_if(empty, step > 0 && first_lane);
    empty = ring.barrier(smem + kAt.empty);
    ring.next();
  }
  ptx::wgmma_wait<0>();
  ptx::mbarrier_arrive_if(empty, first_lane);
  float* const to = partial + (1LL * part.rank * config.tiles() + part.tile) * config.tile_words() +
                    (first_row + 16 * warp + lane / 4) * config.tile_columns() + r * config.row_columns() +
                    lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
    for (int i = 0; i < config.row_columns() / 2; i += 2)
      *reinterpret_cast<float2*>(to + (64 * m + i / 2 % 2 * 8) * config.tile_columns() + i / 4 * 8) = {
          left(sums[m][i]), left(sums[m][i + 1])};
}

// Registers of a thread: what those that transpose leave, evenly. A warpgroup that asks for more than the
// launch has waits forever.
template <WeightGradientTf32Sm90 config>
struct Shares {
  static constexpr int kTransposing = 80, kConsumers = config.consumers();
  static constexpr int kLeft = config.warpgroups() * registers_for(config.threads(), 1) -
                               (config.warpgroups() - kConsumers) * kTransposing;
  static constexpr int kMultiplying = lesser(kLeft / kConsumers / 8 * 8, 232);
};

template <WeightGradientTf32Sm90 config>
__global__ void __launch_bounds__(config.threads(), 1)
    weight_gradient_tf32_sm90(const __grid_constant__ Maps maps, const void* __restrict__ x,
                              const void* __restrict__ dy, float* __restrict__ partial) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr auto kAt = config.smem();
  using R = Shares<config>;
  const unsigned smem = ptx::shared_address(memory);
  if (threadIdx.x == 0) {
    Ring<config.stages>::init(smem + kAt.full, 32 * config.transposing_warps(), smem + kAt.empty,
                              4 * config.consumers());
    Ring<config.slice_places()>::init(smem + kAt.slices_full, 1, smem + kAt.slices_empty,
                                      config.transposing_warps());
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::wait_for_earlier_grids();
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup >= config.consumers()) {
    ptx::leave_registers<R::kTransposing>();
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) - 4 * config.consumers();
    transpose_slices<config>(maps, static_cast<const float*>(x), static_cast<const float*>(dy), partial, smem,
                             warp);
  } else {
    ptx::take_registers<R::kMultiplying>();
    consume<config>(partial, smem, warpgroup);
  }
}

template <WeightGradientTf32Sm90 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_weight_gradient_tf32_sm90(const float* __restrict__ partial, const void* __restrict__ x,
                                     const void* __restrict__ dy, void* __restrict__ dw,
                                     void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  if (config.bias && blockIdx.y > 0) {
    if (static_cast<int>(blockIdx.x) < ceil_div(config.conv.k, config.kBiasFilters))
      add_up_biases<config>(partial, dbias);
  } else if (blockIdx.x < config.add_blocks()) {
    add_up<config>(partial, x, dy, dw);
  }
}

// Gradients of weights need none.
template <WeightGradientTf32Sm90 config>
__global__ void pack_weight_gradient_tf32_sm90() {}

}  // namespace convtune::weight_gradient_tf32_sm90
