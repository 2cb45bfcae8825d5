// Convolution for many channels on compute capability 9.0, NCHW and NHWC as they lie: wgmma whose positions
// are chunks of 4 channels, so that a filter tap is only another address.
//
// A product is 64 filters x `positions` output positions x 8 channels. wgmma reads its second operand in
// blocks of 8 positions of 16 bytes, 128 contiguous bytes where nothing is swizzled. A chunk, 16 bytes, is 4
// channels of one pixel; chunks of neighbouring pixels follow each other, rows of pixels follow each other.
// So the operand of filter tap (r, s) is the same chunks, r rows and s chunks further on: the input is loaded
// once, and neither an im2col matrix nor a second copy is ever made. (Below: 3x3, padding 1, width 6.)
//
//   chunks      | 0 . . . . . . | 0 . . . . . . | 0 . . . ..       0: padding, of two rows at once
//   tap (0, 0)    0 1 2 3 4 5 x   7 8 9 ..                         position 0 is output (0, 0) ..
//   tap (0, 1)      0 1 2 3 4 5 x   7 8 9 ..                       .. x is no output: it is not stored
//   tap (1, 0)                    0 1 2 3 4 5 x ..
//
// Channels last, of few filters, a product's rows are 64 positions and its columns all filters: 96 of them
// would leave a quarter of 128 rows idle, 3 nearly all of 64.
//
// In three dimensions an image is a frame, and a stage of input has the frames that one tap over time reads:
// x is read once for each of these taps, and their products are as in two dimensions.
//
// A block stays on its multiprocessor and takes tile after tile: all of the sum for block_filters() filters
// and block_positions() positions. One warpgroup loads (load.cuh): input through registers,
// where it is rounded, into a ring of stages; packed weights by bulk copies into another. The others multiply
// and store (store.cuh).
//
// A stage in which a number is not finite is flagged: the tile is computed again from the tensors as they
// came, in fp32 and with no padding. So are all where a weight is not finite.
#include "cuda/algorithms/direct_body_sm90/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_body_sm90 {

template <DirectBodySm90 config>
__device__ void consume(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                        const float* __restrict__ residual, unsigned smem, int consumer, int backwards) {
  using S = Sizes<config>;
  constexpr Packed kPacked = config.packed();
  const Walk<config> walk{backwards};
  const int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
  const int filter_group = consumer % config.along_filters();
  const int position_group = consumer / config.along_filters();
  const unsigned staging =
      smem + S::kAt.staging + (consumer * 4 + warp) * (config.staged * S::kStagingPitch * 4);
  const unsigned table = smem + S::kAt.output_table + (consumer * 4 + warp) * (S::kPositions * 4);
  const bool weights_finite = packed[kPacked.flag_at()] == 0;
  const unsigned long long weights =
      ptx::wgmma_descriptor((smem + S::kAt.weights) / 16 + filter_group * 128, config.product_filters(), 8);
  const unsigned long long window =
      ptx::wgmma_descriptor((smem + S::kAt.stages) / 16 + position_group * S::kPositions, S::kPlane, 8);
  Ring<S::kStages> ring;
  Ring<S::kWeightStages> weight_ring;
  int stage = 0;
  float sums[config.sums()];
  for (int tile = walk.first; tile < walk.kTiles; tile += walk.step) {
    const DirectBodySm90::Range blocks = blocks_that_count<config>(walk.first_position(tile));
    bool finite = weights_finite;  // as thread 0 of the warp saw it, who also releases
    unsigned done = smem + S::kAt.done,
             weights_done = smem + S::kAt.weights_done;  // stages that the products before read
#pragma unroll 1
    for (int block = blocks.first; block < blocks.end; ++block) {
      ring.wait_full(smem + S::kAt.full);
      const unsigned long long here = window + static_cast<unsigned>(ring.slot) * (S::kStageBytes / 16);
      for_constants<0, S::kWeightGroups>([&](auto group) {
        constexpr int kGroup = decltype(group)::value;
        weight_ring.wait_full(smem + S::kAt.weights_full);
        const unsigned long long filters =
            weights + static_cast<unsigned>(weight_ring.slot) * (S::kWeightBytes / 16);
        ptx::wgmma_fence();
        constexpr int kThrees = config.turned() ? 0 : S::kWeightSteps / 3;
        for_constants<0, kThrees>([&](auto i) {
          constexpr int kFirst = decltype(i)::value * 3, kStep = kGroup * S::kWeightSteps + kFirst;
          constexpr int kChunk = config.step_chunk(kStep), kFilters = config.block_filters() * 2;
          ptx::ThreeWgmmaTf32<S::kPositions>::template multiply<
              kFilters, config.step_chunk(kStep + 1) - kChunk, 2 * kFilters,
              config.step_chunk(kStep + 2) - kChunk>(sums, filters + kFirst * kFilters, here + kChunk,
                                                     kStep > 0 || block > blocks.first);
        });
        for_constants<kThrees * 3, S::kWeightSteps>([&](auto i) {
          constexpr int step = kGroup * S::kWeightSteps + decltype(i)::value;
          constexpr int chunk = config.step_chunk(step);
          const unsigned long long of_step = filters + i.value * (config.block_filters() * 2);
          const bool adds = step > 0 || block > blocks.first;
          if constexpr (config.turned())
            for_constants<0, config.row_blocks()>([&](auto m) {
              ptx::WgmmaTf32<config.columns()>::multiply(sums_of<config, m.value>(sums),
                                                         here + chunk + m.value * 64, of_step, adds);
            });
          else
            ptx::WgmmaTf32<S::kPositions>::multiply(sums, of_step, here + chunk, adds);
        });
        ptx::wgmma_commit();
        if (kGroup == 0)
          finite = finite &&
                   ptx::ld_shared(smem + S::kAt.flags + 4 * ring.slot) != static_cast<unsigned>(stage + 1);
        ptx::wgmma_wait<1>();  // earlier work is done
        ptx::mbarrier_arrive_if(weights_done, lane == 0 && (kGroup > 0 || block > blocks.first));
        if (kGroup == 0) ptx::mbarrier_arrive_if(done, lane == 0 && block > blocks.first);
        weights_done = weight_ring.barrier(smem + S::kAt.weights_done);
        weight_ring.next();
      });
      done = ring.barrier(smem + S::kAt.done);
      ring.next();
      ++stage;
    }
    ptx::wgmma_wait<0>();
    ptx::mbarrier_arrive_if(weights_done, lane == 0);
    ptx::mbarrier_arrive_if(done, lane == 0);
    const int first_position = walk.first_position(tile) + position_group * S::kPositions;
    const int first_filter = walk.filter_block(tile) * config.block_filters() +
                             filter_group * DirectBodySm90::kTile + (config.turned() ? 0 : 16 * warp);
    finite = __shfl_sync(0xffffffff, finite, 0);
    if (!finite)
      store_exact<config>(x, packed, residual, y, first_filter,
                          first_position + (config.turned() ? 16 * warp : 0));
    else if constexpr (config.turned())
      store_turned<config>(sums, packed + kPacked.bias_at(), residual, y, first_position + 16 * warp);
    else if constexpr (config.conv.nhwc)
      store_pixels<config>(sums, packed + kPacked.bias_at(), residual, y, first_filter, first_position,
                           table);
    else if constexpr (config.staged > 0)
      store_staged<config>(sums, packed + kPacked.bias_at(), y, first_filter, first_position, staging, table);
    else
      store_direct<config>(sums, packed + kPacked.bias_at(), y, first_filter, first_position, table);
  }
  ptx::bulk_wait_read();
}

template <DirectBodySm90 config>
__global__ void __launch_bounds__(config.threads(), 1)
    direct_body_sm90(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                     int backwards, const float* __restrict__ residual) {
  extern __shared__ __align__(128) unsigned char memory[];
  using S = Sizes<config>;
  const unsigned smem = ptx::shared_address(memory);
  const int thread = threadIdx.x;
  if (thread == 0) {
    Ring<S::kStages>::init(smem + S::kAt.full, config.loaders(), smem + S::kAt.done, 4 * config.consumers());
    Ring<S::kWeightStages>::init(smem + S::kAt.weights_full, 1, smem + S::kAt.weights_done,
                                 4 * config.consumers());
    for (int i = 0; i < config.stages; ++i) ptx::st_shared(smem + S::kAt.flags + 4 * i, 0u);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::wait_for_earlier_grids(packed);
  const int warpgroup = __shfl_sync(0xffffffff, thread / 128, 0);
  if (warpgroup < config.consumers())
    consume<config>(x, packed, y, residual, smem, warpgroup, backwards);
  else if (thread / 32 % 4 < 3) {
    const int loader = (warpgroup - config.consumers()) * 96 + thread % 128;
    load_input<config>(x, smem, loader, backwards);
  } else if (thread == 128 * config.consumers() + 96)
    bring_weights<config>(packed, smem, backwards);
}

// The packed weights. The flag must be 0 before.
template <DirectBodySm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_body_sm90(const float* __restrict__ w, const float* __restrict__ bias,
                          unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, ptx::cvt_rna_tf32);
}

}  // namespace convtune::direct_body_sm90
