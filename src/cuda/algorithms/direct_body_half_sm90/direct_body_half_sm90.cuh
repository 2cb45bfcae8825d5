// Inner layers in half precision on compute capability 9.0, channels last: a product of the filters (rows)
// with outputs (columns), whose sums go over the channels and for each chunk of them over the taps.
//
// An implicit GEMM reads x once a tap, nine times for a 3x3, and waits for L2. Here a tile's pixels with
// their halo come once a chunk, by TMA, and taps are other addresses of the same pixels:
//
//   x in shared memory   row 0: pixels 0 .. pitch-1, row 1: ..., each pixel one chunk of channels
//   operand of a tap     positions() pixels from tap_pixel() on, one after the other
//
// wgmma takes rows of an operand that follow each other in eights, from any pixel on, since the pieces of a
// row are exchanged by its address and not by its number. So columns of a product are pixels in a row, and of
// those that stand between the outputs of two rows the sums are dropped; tiles of 8 columns have none.
// With strides, what taps of one phase read is a box and a stage of its own (BodyAxis).
//
//   block     one warpgroup that loads, and consumers that multiply, each 64 or 128 filters by positions()
//   weights   a ring of taps, shared by a cluster's blocks; or all of them stay, where they fit
//
// Consumers have other filters of the same outputs, and each is lead() steps behind the one before, so that
// one multiplies while the other stores; or, with ping_pong, they have tiles of their own, in turns. Padding
// multiplies: weights that are not finite would make NaN of its zeros. A flag tells of them, and outputs are
// then computed one by one.
#include "cuda/algorithms/direct_body_half_sm90/body.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_body_half_sm90 {

// x by TMA's boxes, or an element at a time where it begins anywhere.
template <DirectBodyHalfSm90 config>
struct LoadsBoxes {
  static constexpr int kArrivals = config.aligned ? 1 : kLoadingThreads;
  __device__ static void init(unsigned) {}
  __device__ static __forceinline__ void load(const MapsOf<config>& maps,
                                              const unsigned short* __restrict__ x,
                                              const unsigned short* __restrict__ cache, unsigned smem,
                                              int warp, int images) {
    if constexpr (!config.aligned) {
      const int loader = warp - (warp > kWeightsWarp);
      load_inputs_anywhere<config>(x, cache, smem, loader * 32 + static_cast<int>(threadIdx.x) % 32, images);
    } else if (warp == 0) {
      load_inputs<config>(maps, smem, images);
    }
  }
};

template <DirectBodyHalfSm90 config>
__global__ void __cluster_dims__(config.cluster, 1, 1) __launch_bounds__(config.threads(), 1)
    direct_body_half_sm90(const __grid_constant__ MapsOf<config> maps, const void* __restrict__ x,
                          const float* __restrict__ packed, void* __restrict__ y,
                          const void* __restrict__ residual, const void* __restrict__ cache, int images) {
  extern __shared__ __align__(1024) unsigned char memory[];
  run_block<config, LoadsBoxes<config>>(maps, x, packed, y, residual, cache, images,
                                        ptx::shared_address(memory),
                                        [](auto& pointer) { ptx::wait_for_earlier_grids(pointer); });
}

// The packed weights. The flag must be 0 before.
template <DirectBodyHalfSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_body_half_sm90(const void* __restrict__ w, const void* __restrict__ bias,
                               unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_body_half_sm90
