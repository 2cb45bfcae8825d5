// Inner layers in half precision on compute capability 9.0, in NCHW as they lie: direct_body_half_sm90.cuh,
// whose products, weights and stores these are, with an x that is transposed in shared memory on its way
// (slices.cuh) and not by a kernel of its own before.
//
//   TMA          boxes [line][8 channels][column] of a stage, from a multiple of 8 columns on
//   two warps    matrices of 8 channels by 8 pixels, transposed, into [line][pixel][channel]
//   consumers    as there
//
// A tap is any pixel's address then, which it could not be where pixels come first: operands, and TMA's
// boxes, begin at multiples of 16 bytes.
#include "cuda/algorithms/direct_body_half_nchw_sm90/slices.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_body_half_nchw_sm90 {

template <DirectBodyHalfSm90 config>
struct LoadsSlices {
  static constexpr int kArrivals = config.aligned ? 32 * kTransposingWarps : kLoadingThreads;
  __device__ static void init(unsigned smem) {
    constexpr auto kAt = config.smem();
    Ring<BodySlices::kPlaces>::init(smem + kAt.slices_full, 1, smem + kAt.slices_empty, kTransposingWarps);
  }
  __device__ static __forceinline__ void load(const MapsOf<config>& maps,
                                              const unsigned short* __restrict__ x,
                                              const unsigned short* __restrict__ cache, unsigned smem,
                                              int warp, int images) {
    if constexpr (!config.aligned) {
      const int loader = warp - (warp > direct_body_half_sm90::kWeightsWarp);
      load_anywhere<config>(x, cache, smem, loader * 32 + static_cast<int>(threadIdx.x) % 32, images);
    } else if (warp == 0) {
      load_slices<config>(maps, smem, images);
    } else {
      transpose_slices<config>(smem, warp - kFirstTransposing, images);
    }
  }
};

template <DirectBodyHalfSm90 config>
__global__ void __cluster_dims__(config.cluster, 1, 1) __launch_bounds__(config.threads(), 1)
    direct_body_half_nchw_sm90(const __grid_constant__ MapsOf<config> maps, const void* __restrict__ x,
                               const float* __restrict__ packed, void* __restrict__ y,
                               const void* __restrict__ residual, const void* __restrict__ cache,
                               int images) {
  extern __shared__ __align__(1024) unsigned char memory[];
  direct_body_half_sm90::run_block<config, LoadsSlices<config>>(
      maps, x, packed, y, residual, cache, images, ptx::shared_address(memory),
      [](auto& pointer) { ptx::wait_for_earlier_grids(pointer); });
}

// The packed weights. The flag must be 0 before.
template <DirectBodyHalfSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_body_half_nchw_sm90(const void* __restrict__ w, const void* __restrict__ bias,
                                    unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_body_half_nchw_sm90
