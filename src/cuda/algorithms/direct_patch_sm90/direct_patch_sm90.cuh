// Convolution whose filters neither overlap nor leave gaps, as a vision transformer's first layer, on compute
// capability 9.0: wgmma whose positions come from registers.
//
// It is a product of matrices, positions x numbers of a patch x filters, and the only question is how the
// input gets to the tensor cores rounded. A row of patches is one piece of memory for each of the filter's
// rows (and for several that follow each other), so bulk copies bring it as it lies; and the order of a sum
// is free, so a thread takes 4 numbers at a time, of the 8 or 16 that products want of it, whatever their
// place in the patch:
//
//   shared memory   | row 0 of patch 0 | row 0 of patch 1 | ..       4 threads have 16 bytes each of a patch,
//   16 columns      | t0 | t1 | t2 | t3| t0 | t1 | t2 | t3| ..       a warp those of 8: 512 bytes that follow
//                                                                    each other
//
// They are rounded in registers and multiplied from there: shared memory, which is what products wait for, is
// read once for `filters` sums and never written by a thread. Weights come rounded, in the products' order.
//
//   a warp loads -> `consumers` warpgroups multiply -> and store (store.cuh)
//
// A block stays on its multiprocessor and takes tile after tile. A warp that meets a number that is not
// finite computes its positions again from the tensors as they came.
#include "cuda/algorithms/direct_patch_sm90/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"
#include "cuda/tile/ring.cuh"
#include "cuda/tile/walk.cuh"

namespace convtune::direct_patch_sm90 {

// Boxes of x, of 1 row of patches, of 2, .., and of y.
struct Maps {
  ptx::TensorMap x[DirectPatchSm90::kInputBoxes], y;
};

// One warp, of which one lane acts where the copy engine brings x: `maps` has boxes of 1 row, of 2, ..
template <DirectPatchSm90 config>
__device__ void load(const ptx::TensorMap* maps, bool in_boxes, const float* __restrict__ x,
                     const float* __restrict__ packed, unsigned smem, int lane) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
  const Walk<config> walk;
  const bool acts = lane == 0;
  Ring<S::kStages> ring;
  for (int tile = walk.first; tile < walk.kTiles; tile += walk.step) {
    const int first = walk.first_position(tile), end = min(first + walk.kBlockPositions, S::kAllPositions);
    const int first_row = first / a.q, rows = (end - 1) / a.q - first_row + 1;
    const char* weights =
        reinterpret_cast<const char*>(packed + walk.filter_block(tile) * config.block_weights());
#pragma unroll 1
    for (int channel = 0; channel < a.c; ++channel)
#pragma unroll 1
      for (int row = 0; row < a.r; row += config.rows) {
        const unsigned full = ring.barrier(smem + S::kAt.full);
        unsigned to = smem + S::kAt.stages + ring.slot * S::kStageBytes;
        const unsigned weights_at = to + S::kInputBytes;
        ring.wait_empty(smem + S::kAt.done);
        int image = first_row / a.p, row_of_image = first_row % a.p, left = rows;
        if (in_boxes) {
          ptx::mbarrier_arrive_expect_if(full, S::kWeightBytes + rows * S::kRowBytes, acts);
#pragma unroll 1
          while (left > 0) {
            const int box = min(min(left, a.p - row_of_image), config.most_box_rows());
            ptx::load_box_if(to, maps + box - 1, 0, 0, row, row_of_image, image * a.c + channel, full, acts);
            to += box * S::kRowBytes, left -= box, row_of_image += box;
            if (row_of_image == a.p) row_of_image = 0, ++image;
          }
        } else {
#pragma unroll 1
          for (; left > 0; --left, to += S::kRowBytes) {
            const float* const from = x + a.input_offset(image, channel, row_of_image * a.r + row, 0);
#pragma unroll 1
            for (int e = lane; e < S::kRowBytes / 4; e += 32) ptx::st_shared(to + 4 * e, __ldg(from + e));
            if (++row_of_image == a.p) row_of_image = 0, ++image;
          }
          __syncwarp();
          ptx::mbarrier_arrive_expect_if(full, S::kWeightBytes, acts);
        }
        ptx::bulk_copy_to_shared_if(weights_at, weights, S::kWeightBytes, full, acts);
        weights += S::kWeightBytes;
        ring.next();
      }
  }
}

// 4 numbers of two positions each.
struct Chunks {
  unsigned bits[2][4];
  __device__ void load(unsigned first, unsigned second) {
    ptx::ld_shared_v4(bits[0], first);
    ptx::ld_shared_v4(bits[1], second);
  }
};

template <DirectPatchSm90 config>
__device__ void consume(const ptx::TensorMap* map, bool in_boxes, const float* __restrict__ x,
                        const float* __restrict__ packed, float* __restrict__ y, unsigned smem,
                        int consumer) {
  using S = Sizes<config>;
  constexpr ConvExtents a = config.conv;
  constexpr int kTile = DirectPatchSm90::kTile;
  constexpr Packed kPacked = config.packed();
  const Walk<config> walk;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const bool weights_finite = packed[kPacked.flag_at()] == 0;
  const unsigned staging =
      smem + S::kAt.staging + consumer * (DirectPatchSm90::kSlots * DirectPatchSm90::kSlotBytes);
  const unsigned long long weights =
      ptx::wgmma_descriptor((smem + S::kAt.stages + S::kInputBytes) / 16, S::kFilters, 8);
  Ring<S::kStages> ring;
  int staged = 0;
  float sums[config.sums()];
  for (int tile = walk.first; tile < walk.kTiles; tile += walk.step) {
    const int first = walk.first_position(tile);
    unsigned sources[2];  // bytes from the start of a stage
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int mine = first + consumer * kTile + warp * 16 + lane / 4 + 8 * half;
      const int position = min(mine, S::kAllPositions - 1);  // beyond them, any that is there
      const int row = position / a.q - first / a.q;
      sources[half] = row * S::kRowBytes + position % a.q * (a.s * 4) + config.thread_bytes(lane % 4);
    }
    float largest = 0;  // for the thread's numbers; NaN where one is
    Chunks chunks;
    const auto load = [&](auto block) {
      constexpr int kOffset = config.block_bytes(decltype(block)::value);
      const unsigned stage = smem + S::kAt.stages + ring.slot * S::kStageBytes + kOffset;
      chunks.load(stage + sources[0], stage + sources[1]);
    };
    ring.wait_full(smem + S::kAt.full);
    load(Int<0>{});
    // While products are under way the next chunks come; other warpgroups' products fill what this one
    // leaves.
    const auto multiply = [&](int stage, auto is_last) {
      constexpr bool kIsLast = decltype(is_last)::value;
      const int slot = ring.slot;
      const unsigned long long here = weights + static_cast<unsigned>(slot) * (S::kStageBytes / 16);
      for_constants<0, S::kBlocks>([&](auto block) {
        constexpr int kBlock = decltype(block)::value;
        unsigned rounded[2][4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            rounded[i / 2][i % 2 * 2 + half] = round_tf32(chunks.bits[half][i], largest);
            // Here, and not behind the fence.
            asm volatile("" : "+r"(rounded[i / 2][i % 2 * 2 + half]));
          }
        ptx::wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2; ++step)
          ptx::WgmmaTf32Registers<S::kFilters>::multiply(sums, rounded[step],
                                                         here + (2 * kBlock + step) * (2 * S::kFilters),
                                                         kBlock + step > 0 || stage > 0);
        ptx::wgmma_commit();
        if constexpr (kBlock < S::kBlocks - 1) {
          load(Int<kBlock + 1>{});
        } else {
          ring.next();
          if constexpr (!kIsLast) {
            ring.wait_full(smem + S::kAt.full);
            load(Int<0>{});
          }
        }
        ptx::wgmma_wait<0>();
      });
      ptx::mbarrier_arrive_if(smem + S::kAt.done + 8 * slot, lane == 0);
    };
#pragma unroll 1
    for (int stage = 0; stage < S::kSumStages - 1; ++stage) multiply(stage, Int<0>{});
    multiply(S::kSumStages - 1, Int<1>{});
    // Whatever rounds to infinity is not finite either.
    const bool finite = weights_finite && __all_sync(0xffffffff, largest < kTf32Overflow);
    store<config>(sums, map, in_boxes, x, packed, y, walk.filter_block(tile) * S::kFilters,
                  first + consumer * kTile, finite, staging, consumer, staged);
  }
  ptx::bulk_wait_read();
}

// `input_boxes`, `output_boxes`: the maps can be used.
template <DirectPatchSm90 config>
__global__ void __launch_bounds__(config.threads(), 1)
    direct_patch_sm90(const __grid_constant__ Maps maps, int input_boxes, int output_boxes,
                      const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y) {
  extern __shared__ __align__(1024) unsigned char memory[];
  using S = Sizes<config>;
  const unsigned smem = ptx::shared_address(memory);
  const int thread = threadIdx.x;
  if (thread == 0) {
    Ring<S::kStages>::init(smem + S::kAt.full, 1, smem + S::kAt.done, 4 * config.consumers);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::wait_for_earlier_grids(packed);
  const int warpgroup = __shfl_sync(0xffffffff, thread / 128, 0);
  // Registers of a block of four warpgroups are 128 a thread; the one that loads needs fewer.
  constexpr bool kShares = config.consumers == 3;
  if (warpgroup < config.consumers) {
    if constexpr (kShares) ptx::take_registers<152>();
    consume<config>(&maps.y, output_boxes, x, packed, y, smem, warpgroup);
  } else {
    if constexpr (kShares) ptx::leave_registers<56>();
    if (thread / 32 % 4 == 0) load<config>(maps.x, input_boxes, x, packed, smem, thread % 32);
  }
}

// The packed weights. The flag must be 0 before.
template <DirectPatchSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_patch_sm90(const float* __restrict__ w, const float* __restrict__ bias,
                           unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, ptx::cvt_rna_tf32);
}

}  // namespace convtune::direct_patch_sm90
