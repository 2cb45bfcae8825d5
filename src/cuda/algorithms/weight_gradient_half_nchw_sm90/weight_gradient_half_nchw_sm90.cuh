// The gradient of weights in half precision on compute capability 9.0, in NCHW as it lies:
// weight_gradient_half_sm90.cuh with a window, whose products, sums and stores these are, with operands that
// are transposed in shared memory on their way (slices.cuh) and not by kernels of their own before.
//
//   TMA           slices [64 channels][pixels] of the rows of x and dy that a stage has
//   three warps   matrices of 8 channels by 8 pixels, transposed, into [position][64 channels]
//   consumers     as there
//
// A plane is one row to TMA, so that rows of any length come: a pixel's position is counted where it is
// written, and padding between rows is zeros that nobody writes to.
#include "cuda/algorithms/weight_gradient_half_nchw_sm90/slices.cuh"
#include "cuda/algorithms/weight_gradient_half_sm90/weight_gradient_half_sm90.cuh"

namespace convtune::weight_gradient_half_nchw_sm90 {

template <WeightGradientHalfSm90 config>
struct LoadsSlices {
  static constexpr int kArrivals = config.aligned ? 32 * config.kTransposingWarps : 128;
  __device__ static __forceinline__ void prepare(const Maps&, unsigned smem) {
    constexpr unsigned kZeros[4] = {0, 0, 0, 0}, kBytes = config.stages * config.stage_bytes();
    for (unsigned i = threadIdx.x * 16; i < kBytes; i += config.threads() * 16)
      ptx::st_shared_v4(smem + config.smem().stages + i, kZeros);
    ptx::fence_proxy_async();
  }
  __device__ static __forceinline__ void bring(const Maps& maps, const unsigned short* __restrict__ x,
                                               const unsigned short* __restrict__ dy, unsigned smem) {
    const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32 % 4, 0);
    if constexpr (!config.aligned) {
      weight_gradient_half_sm90::load_anywhere<config>(x, dy, smem);
    } else if constexpr (config.has_whole_planes()) {
      if (warp == 0)
        load_slices<config>(maps, smem);
      else
        transpose_slices<config>(smem, warp - 1);
    } else {
      if (warp == 0)
        load_images<config>(x, dy, smem);
      else
        transpose_images<config>(smem, warp - 1);
    }
  }
};

template <WeightGradientHalfSm90 config>
__global__ void __launch_bounds__(config.threads(), 1)
    weight_gradient_half_nchw_sm90(const __grid_constant__ Maps maps, const void* __restrict__ x,
                                   const void* __restrict__ dy, float* __restrict__ partial,
                                   void* __restrict__ dw, void* __restrict__ dbias) {
  extern __shared__ __align__(1024) unsigned char memory[];
  weight_gradient_half_sm90::run_block<config, LoadsSlices<config>>(maps, {x, dy, partial, dw, dbias, 0},
                                                                    ptx::shared_address(memory),
                                                                    [] { ptx::wait_for_earlier_grids(); });
}

template <WeightGradientHalfSm90 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_weight_gradient_half_nchw_sm90(const float* __restrict__ partial, const void* __restrict__ x,
                                          const void* __restrict__ dy, void* __restrict__ dw,
                                          void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  weight_gradient_half_sm90::run_add_up<config>(partial, x, dy, dw, dbias);
}

// Gradients of weights need none.
template <WeightGradientHalfSm90 config>
__global__ void pack_weight_gradient_half_nchw_sm90() {}

}  // namespace convtune::weight_gradient_half_nchw_sm90
