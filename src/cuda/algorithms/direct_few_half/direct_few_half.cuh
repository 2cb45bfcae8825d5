// Few filters in half precision, channels last, on tensor cores of compute capability 8.0 and up. A product
// has 8 columns, and a layer that makes an image has three filters: so columns of products are the filter's
// columns, of all filters. 7x7 for three filters: 21 of 24, where 7 products of three have 21 of 56.
//
//                    columns of the filter, filters of each
//                     0r 0g 0b 1r 1g 1b 2r 2g 2b ...         output q, filter r
//   column 0 of x      #  .  .  .  .  .  .  .  .             #: its sums of q = 0, one from each of as many
//   column 1           .  .  .  #  .  .  .  .  .             columns of x as the filter has
//   column 2           .  .  .  .  .  .  #  .  .
//
// The rows of a product are 16 columns of x that lie beside each other, its sum is over channels, rows and
// frames of the filter; a row of x that was loaded serves all rows of the output that a warp has. In the end
// those sums go through shared memory, where each output adds up its own.
//
// A NaN or an infinity of x reaches the outputs that meet it and no others. An infinite weight would make NaN
// of padding's zeros: then a tile is computed from the tensors as they came.
#include "cuda/algorithms/direct_few_half/load.cuh"
#include "cuda/algorithms/direct_few_half/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_few_half {

// A warp's products with a turn's channels, each parts-th sixteen of them from `part` on. `pixels`: its first
// pixel of this lane, without the piece; `weights`: those of this lane.
template <DirectFewHalf config>
__device__ __forceinline__ void multiply(Sums<config>& sums, unsigned pixels, unsigned weights, int part,
                                         int steps, int lane) {
  constexpr ConvExtents a = config.conv;
  const int exchange = config.exchange(lane % 16);
#pragma unroll 1
  for (int step = part; step < steps; step += config.parts) {
    const unsigned from = pixels + 16 * ((2 * step + lane / 16) ^ exchange);
    const unsigned of_step = weights + step * config.step_bytes();
    unsigned b[a.r][config.eights()][2];
#pragma unroll
    for (int row = 0; row < config.window_rows(); ++row) {
      if (row % a.dilation_h == 0 && row / a.dilation_h < a.r) {
        const int r = row / a.dilation_h;
#pragma unroll
        for (int eight = 0; eight < config.eights(); ++eight)
          ptx::ld_shared_v2(b[r][eight][0], b[r][eight][1], of_step + (r * config.eights() + eight) * 256);
      }
      if (!config.is_met(row)) continue;
#pragma unroll
      for (int sixteen = 0; sixteen < config.sixteens; ++sixteen) {
        unsigned operand[4];
        ptx::ldmatrix_x4(operand, from + row * config.row_bytes() + sixteen * (16 * config.pixel_bytes()));
#pragma unroll
        for (int j = 0; j < config.rows; ++j) {
          const int rest = row - j * a.stride_h, r = rest / a.dilation_h;
          if (rest < 0 || rest % a.dilation_h != 0 || r >= a.r) continue;
#pragma unroll
          for (int eight = 0; eight < config.eights(); ++eight) {
            if constexpr (a.x_type == ElementType::bf16)
              ptx::mma_m16n8k16_bf16(sums[j][sixteen][eight], operand, b[r][eight]);
            else
              ptx::mma_m16n8k16_f16(sums[j][sixteen][eight], operand, b[r][eight]);
          }
        }
      }
    }
  }
}

// The tile of the block, slowly: where a weight is not finite.
template <DirectFewHalf config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y) {
  constexpr ConvExtents a = config.conv;
  const Part<config> part(blockIdx.x);
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < config.tile_rows() * config.tile_columns() * a.k;
       i += config.threads()) {
    const int at = i / a.k, p = part.p() + at / config.tile_columns(),
              q = part.q() + at % config.tile_columns();
    if (p >= a.p || q >= a.q) continue;
    store_exact_output<config>(x, packed, residual, y, part.frame / a.z, i % a.k, p, q, part.frame % a.z);
  }
}

template <DirectFewHalf config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_few_half(const void* __restrict__ x, const float* __restrict__ packed,
                    const void* __restrict__ residual, void* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  constexpr DirectFewHalf::Smem kSmem = config.smem();
  constexpr int kTurns = config.turns(), kStages = config.stages;
  extern __shared__ __align__(128) unsigned char smem[];
  const unsigned shared = ptx::shared_address(smem), stages = shared + kSmem.stages;
  if (packed[kPacked.flag_at()] != 0) return compute_exactly<config>(x, packed, residual, y);

  const Part<config> part(blockIdx.x);
  const auto load = [&](int turn, int slot) {
    if (turn < kTurns)
      load_turn<config>(static_cast<const unsigned short*>(x), packed, part, turn,
                        stages + slot * config.stage_bytes());
    ptx::cp_async_commit_group();
  };
#pragma unroll 1
  for (int i = 0; i < kStages; ++i) load(i, i);
  for (int i = static_cast<int>(threadIdx.x); i < a.k; i += config.threads())
    ptx::st_shared(shared + kSmem.biases + 4 * i, packed[kPacked.bias_at() + i]);

  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int of = warp % config.parts, across = warp / config.parts % config.across;
  const int down = warp / (config.parts * config.across);
  const unsigned pixels = stages + down * (config.rows * a.stride_h * config.row_bytes()) +
                          (across * (16 * config.sixteens) + lane % 16) * config.pixel_bytes();
  const unsigned weights = stages + config.input_bytes() + 8 * lane;
  Sums<config> sums = {};
  int slot = 0;
#pragma unroll 1
  for (int turn = 0; turn < kTurns; ++turn) {
    ptx::cp_async_wait_group<kStages - 1>();
    __syncthreads();  // the turn has come
    const int channels = a.c - turn % config.chunks() * config.channels;
    multiply<config>(sums, pixels + slot * config.stage_bytes(), weights + slot * config.stage_bytes(), of,
                     lesser(ceil_div(channels, 16), config.steps()), lane);
    if constexpr (kTurns > kStages) {
      __syncthreads();  // nobody needs it any more
      load(turn + kStages, slot);
    } else {
      ptx::cp_async_commit_group();
    }
    slot = slot + 1 == kStages ? 0 : slot + 1;
  }
  __syncthreads();  // sums go where stages were
  leave_sums<config>(sums,
                     stages + 4 * ((of * config.tile_rows() + down * config.rows) * config.row_sums() +
                                   across * (16 * config.sixteens)),
                     lane);
  __syncthreads();  // all sums are there
  store_outputs<config>(residual, y, part, stages, shared + kSmem.biases);
}

// The packed weights. The flag must be 0 before.
template <DirectFewHalf config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_few_half(const void* __restrict__ w, const void* __restrict__ bias,
                         unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_few_half
