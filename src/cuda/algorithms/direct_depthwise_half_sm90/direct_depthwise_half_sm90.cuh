// Depthwise convolution of channels last in half precision on compute capability 9.0: as in
// direct_depthwise_half.cuh a filter row times a row of the image is a product with a band matrix, and one
// operand of 16 strips is multiplied with all filter rows. What is other is how pixels become operands and
// sums become pixels: nothing is transposed in shared memory.
//
//   x           -> TMA, a row of all strips at a time, into a ring of stages: pixels of some channels
//   a warp      4 channels of 8 pixels a lane, of two strips -> operands of 4 channels, in registers:
//               two columns of one channel are halves of two words that came together
//   products    each operand with all filter rows, into as many rows of outputs as are under way
//   a row done  4 channels of 4 pixels a lane -> pixels in shared memory -> TMA -> y
//
// The columns of an operand may come in any order that is also that of the band matrix. A lane has four that
// are 4 apart, and odd strips begin with the second of two: so the pixels that lanes read at once lie in all
// banks. Two warps do nothing but copy; the others wait for those, and not for each other.
//
// A zero makes NaN of an infinity outside of the filter, as of padding's zero and an infinite weight. A block
// with a NaN among its sums computes its tiles again from the tensors as they came.
#include "cuda/algorithms/direct_depthwise_half_sm90/load.cuh"
#include "cuda/algorithms/direct_depthwise_half_sm90/multiply.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_depthwise_half_sm90 {

// All outputs of the block's tiles, slowly.
template <DirectDepthwiseHalfSm90 config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y) {
  constexpr ConvExtents a = config.conv;
  Walk<config> walk;
#pragma unroll 1
  while (walk.more()) {
    walk.next();
    const int rows = walk.count * config.rows, pixels = config.down() * rows * config.tile_columns();
#pragma unroll 1
    for (int i = threadIdx.x; i < pixels * config.channels(); i += config.threads()) {
      const int channel = walk.channel + i % config.channels(), pixel = i / config.channels();
      const int row = pixel / config.tile_columns(), strip = row / rows;
      const int image = walk.image + config.strip_image(strip);
      const int p = walk.p() + config.strip_band(strip) * config.band_rows() + row % rows;
      const int q = walk.q() + pixel % config.tile_columns();
      if (image >= a.n || p >= a.p || q >= a.q || channel >= a.c) continue;
      store_exact_output<config>(x, packed, residual, y, image, channel, p, q);
    }
  }
}

template <DirectDepthwiseHalfSm90 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_depthwise_half_sm90(const __grid_constant__ Maps maps, const void* __restrict__ x,
                               const float* __restrict__ packed, void* __restrict__ y,
                               const void* __restrict__ residual) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr DirectDepthwiseHalfSm90::Smem kAt = config.smem();
  const unsigned smem = ptx::shared_address(memory);
  if (threadIdx.x == 0) {
    Ring<config.stages>::init(smem + kAt.full, 1, smem + kAt.empty, config.consumers());
    Ring<config.slots()>::init(smem + kAt.ready, 1, smem + kAt.finished, config.consumers());
    ptx::st_shared(smem + kAt.found, 0u);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::wait_for_earlier_grids(packed);
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (config.aligned && warp >= config.consumers()) {
    if constexpr (config.passes_registers()) ptx::leave_registers<config.kCopying>();
    if (warp == config.consumers()) {
      load_tiles<config>(maps, smem, lane == 0);
    } else if (warp == config.consumers() + 1) {
      Stores<config> stores{maps, smem, lane == 0};
      stores.run();
    }
  } else if (config.aligned) {
    if constexpr (config.passes_registers()) ptx::take_registers<config.register_limit()>();
    Consumer<config> consumer(smem, packed, warp, lane);
    consumer.run();
    if (consumer.found_nan()) ptx::st_shared(smem + kAt.found, 1u);
  }
  __syncthreads();
  if (!config.aligned || ptx::ld_shared(smem + kAt.found) != 0)
    compute_exactly<config>(x, packed, residual, y);
}

// The packed weights.
template <DirectDepthwiseHalfSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_depthwise_half_sm90(const void* __restrict__ w, const void* __restrict__ bias,
                                    unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_depthwise_half_sm90
