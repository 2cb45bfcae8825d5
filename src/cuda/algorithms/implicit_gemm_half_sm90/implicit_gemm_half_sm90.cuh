// Convolution in half precision on compute capability 9.0, channels last: a product of the pixels of y (rows)
// with the filters (columns), whose sums go over the taps of a window and for each over the channels. Neither
// operand is ever gathered: a row of the first is a pixel's channels, which TMA finds for any tap, stride,
// dilation and padding (load.cuh); the second is packed as it is read.
//
//   stage     [tile_rows pixels][channels]  [filters][channels]        one tap, 64 or 32 channels
//   consumer  row_blocks x 64 pixels x filters, in registers
//
// A block has one warpgroup that loads into a ring of stages and `consumers` that multiply from there. They
// share a tile, each with rows of its own; or, with ping_pong, have tiles of their own: the ring has the
// tiles one after the other, and while one consumer stores, the other multiplies. That is for short sums,
// whose stores take as long as their products; for long ones a tile of twice the rows reads fewer weights.
//
// A cluster of two blocks has the same filters at the same time: each brings half of their weights to both.
// `split` blocks of a cluster share the sums of a tile, and add them up through each other's shared memory in
// the order of their ranks: for layers of too few tiles. They take one tile each.
//
// Padding multiplies: weights that are not finite would make NaN of its zeros. A flag tells of them, and
// outputs are then computed one by one.
#include "cuda/algorithms/implicit_gemm_half_sm90/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/wgmma_half_shared.cuh"
#include "cuda/tile/consumers.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::implicit_gemm_half_sm90 {

template <ImplicitGemmHalfSm90 config>
using Sums = float[config.row_blocks][config.filters / 2];

// A consumer's products of a tile, from the ring. `seen()` is called once all its stages have been full.
template <ImplicitGemmHalfSm90 config, class Seen>
__device__ __forceinline__ void multiply(Sums<config>& sums, Ring<config.stages>& ring,
                                         const Place<config>& place, unsigned smem, int first_row,
                                         const Seen& seen) {
  constexpr auto kAt = config.smem();
  constexpr bool kBf16 = config.conv.x_type == ElementType::bf16;
  constexpr int kRowBytes = config.row_bytes(), kRowBlock = 64 * kRowBytes / 16;
  constexpr int kStage = config.stage_bytes() / 16, kBlocks = config.channel_blocks();
  constexpr int kAll = config.products(0), kLast = config.products(config.steps() - 1);  // per step
  const unsigned long long pixels =
      ptx::wgmma_descriptor_exchanged<config.row_bytes()>((smem + kAt.stages + first_row * kRowBytes) / 16);
  constexpr bool kLying = config.turned();
  constexpr int kSixteen = kLying ? kLyingSixteen : 2;  // 16 channels of filters
  const unsigned at_filters = (smem + kAt.stages + constant<config.input_bytes()>) / 16;
  const unsigned long long filters = kLying ? lying_descriptor(at_filters, config.channels * 128 / 16)
                                            : ptx::wgmma_descriptor_exchanged<config.row_bytes()>(at_filters);
  const unsigned lane = threadIdx.x % 32;
  const auto release = [&](unsigned empty, bool releases) {
    if constexpr (config.cluster > 1)
      ptx::mbarrier_arrive_there_if(ptx::mapa(empty, lane % config.cluster),
                                    releases && lane < config.cluster);
    else
      ptx::mbarrier_arrive_if(empty, releases && lane == 0);
  };
  unsigned empty = ring.barrier(smem + kAt.empty);  // stages that the products before read
#pragma unroll 1
  for (int step = place.first_step; step < place.end_step; ++step) {
    ring.wait_full(smem + kAt.full);
    const unsigned stage = static_cast<unsigned>(ring.slot) * kStage;
    const auto add_products = [&](auto count) {
      using Product = ptx::WgmmaHalfShared<kBf16, config.filters, kLying>;
      const bool adds = step > place.first_step;
      ptx::wgmma_fence();
      if constexpr (config.row_blocks == 1 && count.value == 4)
        Product::template multiply_four<kSixteen>(sums[0], pixels + stage, filters + stage, adds);
      else
        for_constants<0, count.value>([&](auto k) {
          for_constants<0, config.row_blocks>([&](auto m) {
            Product::multiply(sums[m.value], pixels + stage + m.value * kRowBlock + 2 * k.value,
                              filters + stage + kSixteen * k.value, k.value > 0 || adds);
          });
        });
      ptx::wgmma_commit();
    };
    // Each arm with its commit: with only the last product under a condition, it is a group of its own.
    if (kLast < kAll && step % kBlocks == kBlocks - 1)
      add_products(Int<kLast>{});
    else
      add_products(Int<kAll>{});
    ptx::wgmma_wait<1>();  // earlier work is done
    release(empty, step > place.first_step);
    empty = ring.barrier(smem + kAt.empty);
    ring.next();
  }
  seen();
  ptx::wgmma_wait<0>();
  release(empty, true);
}

// Sums of all blocks that share them, added up: those of the parts that this block stores.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ void add_up(Sums<config>& sums, int rank, unsigned smem, int consumer) {
  constexpr int kRegisters = config.filters / 2, kOfPart = config.stored_filters() / 2;
  ptx::bar_sync(1, 128 * config.consumers);  // nobody reads the stages any more
  const unsigned mine = smem + constant<config.smem()>.stages +
                        (consumer * constant<config.sums()> * 128 + static_cast<int>(threadIdx.x) % 128) * 4;
#pragma unroll
  for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) ptx::st_shared(mine + (m * kRegisters + i) * 512, sums[m][i]);
  ptx::cluster_sync();
#pragma unroll
  for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) sums[m][i] = 0;
  for_constants<0, config.row_blocks * config.parts()>([&](auto index) {
    constexpr int m = index.value / config.parts(), kPart = index.value % config.parts();
    if (index.value % config.split != rank) return;
#pragma unroll
    for (int other = 0; other < config.split; ++other) {  // all on their way at once
      const unsigned there = ptx::mapa(mine, other);
#pragma unroll
      for (int i = kPart * kOfPart; i < lesser((kPart + 1) * kOfPart, kRegisters); ++i)
        sums[m][i] += ptx::ld_shared_there(there + (m * kRegisters + i) * 512);
    }
  });
  ptx::cluster_arrive();  // has read what it reads of others, who may end once all have
}

// Tells whether outputs of a warp must be computed again, where weights are read as they lie.
template <ImplicitGemmHalfSm90 config>
__device__ __forceinline__ bool must_repair(LyingDoubt<config>& doubt, const Sums<config>& sums,
                                            const void* __restrict__ w) {
  bool is_nan = false;
#pragma unroll
  for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
    for (int i = 0; i < config.filters / 2; ++i) is_nan |= sums[m][i] != sums[m][i];
  return !__all_sync(0xffffffff, !is_nan) && doubt.holds(w);
}

template <ImplicitGemmHalfSm90 config>
__device__ void consume(const unsigned short* __restrict__ x, const unsigned short* __restrict__ cache,
                        const float* __restrict__ packed, unsigned short* __restrict__ y,
                        const unsigned short* __restrict__ residual, unsigned smem, int consumer,
                        int images) {
  constexpr auto kAt = config.smem();
  constexpr Packed kPacked = config.packed();
  constexpr bool kShares = config.split > 1;
  constexpr HalfGemmTiles kTiles = config.tile_order();
  using S = Store<config>;
  const Place<config> place(images);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
  const bool finite = config.lying > 0 || __float_as_uint(packed[kPacked.flag_at()]) == 0;
  const float* const bias = packed + kPacked.bias_at();
  const int first_row = config.ping_pong ? 0 : consumer * config.row_blocks * 64;
  Ring<config.stages> ring;
  int tile = place.first_tile, tile_step = place.tile_step;
  if constexpr (config.ping_pong) {
    if (consumer == 1) {
      tile += place.tile_step;
      ring.template skip<config.steps()>();
      Turns::give(0);
    }
    tile_step *= 2;
  }
  Sums<config> sums;
  LyingDoubt<config> doubt;
#pragma unroll 1
  for (; tile < place.tiles; tile += tile_step) {
    const int first_pixel = kTiles.first_pixel(tile, place.rank);
    const S store{first_pixel + first_row + 16 * warp,
                  kTiles.first_filter(tile),
                  kTiles.end_filter(tile),
                  kTiles.end_pixel(first_pixel, pixels_of_run<config>(images)),
                  smem + kAt.staging + (consumer * 4 + warp) * ImplicitGemmHalfSm90::kStagingBytes,
                  smem + kAt.residuals + (consumer * 4 + warp) * constant<config.residual_bytes()> +
                      static_cast<int>(threadIdx.x) % 32 * 16,
                  smem + kAt.snakes + (consumer * 4 + warp) * constant<config.snake_bytes()>,
                  images};
    const Biases<config> biases(bias, store.first_filter);
    if constexpr (kShares)
      for_constants<0, lesser(config.split, S::kAll)>([&](auto index) {
        if (index.value == place.rank) store.template load_residual<index.value>(residual, bias);
      });
    else
      store.template load_residual<0>(residual, bias);
    if constexpr (config.ping_pong) Turns::wait(consumer);
    multiply<config>(sums, ring, place, smem, first_row, [&] {
      if constexpr (config.ping_pong)
        if (tile + place.tile_step < place.tiles) Turns::give(1 - consumer);
    });
    if constexpr (config.ping_pong) ring.template skip<config.steps()>();
    if constexpr (kShares) add_up<config>(sums, place.rank, smem, consumer);
    bool is_exact = !finite;
    if constexpr (config.doubts()) is_exact = must_repair<config>(doubt, sums, packed);
    if (is_exact) {
      // Each of a cluster has seen its own parts alone, where it looks at sums.
      if (!kShares || config.doubts() || place.rank == 0)
        store_exact<config>(x, cache, packed, residual, y, store.first_pixel, store.first_filter,
                            store.end_filter, store.end_pixel, images, config.doubts() ? place.rank : -1);
      continue;
    }
    for_constants<0, S::kAll>([&](auto index) {
      constexpr int kFirst = index.value % S::kParts * (config.stored_filters() / 2);
      if (kShares && index.value % config.split != place.rank) return;
      if constexpr (!kShares || index.value >= config.split)
        store.template load_residual<kShares ? index.value : index.value + 1>(residual, bias);
      constexpr int kPending = kShares || index.value + 1 == S::kAll ? 0 : 1;
      store.template store<index.value, kPending>(sums[index.value / S::kParts] + kFirst, bias, biases,
                                                  residual, y);
    });
  }
}

template <ImplicitGemmHalfSm90 config>
__global__ void __cluster_dims__(config.cluster_blocks(), 1, 1) __launch_bounds__(config.threads(), 1)
    implicit_gemm_half_sm90(const __grid_constant__ MapsOf<config> maps, const void* __restrict__ x,
                            const float* __restrict__ packed, void* __restrict__ y,
                            const void* __restrict__ residual, const void* __restrict__ cache, int images) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr auto kAt = config.smem();
  constexpr bool kClusters = config.cluster_blocks() > 1;
  using R = ConsumerRegisters<config.consumers>;
  const unsigned smem = ptx::shared_address(memory);
  if (threadIdx.x == 0) {
    Ring<config.stages>::init(smem + kAt.full, Arrivals<config>::kFull, smem + kAt.empty,
                              Arrivals<config>::kEmpty);
    ptx::fence_mbarrier_init();
  }
  if constexpr (config.cluster > 1)
    ptx::cluster_sync();
  else
    __syncthreads();
  if constexpr (config.split > 1 && config.lying == 0)
    if (threadIdx.x == 128 * config.consumers) ask_early<config>(maps, packed, images);
  ptx::wait_for_earlier_grids(packed);
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == config.consumers) {
    if constexpr (R::kMove) ptx::leave_registers<R::kLoading>();
    const auto* const weights = reinterpret_cast<const unsigned*>(packed);
    if constexpr (!config.aligned)
      load_anywhere<config>(maps, static_cast<const unsigned short*>(x),
                            static_cast<const unsigned short*>(cache), weights, smem, images);
    else if (__shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0) == 0)
      load<config>(maps, weights, smem, images);
    if constexpr (config.split > 1) ptx::cluster_sync(), ptx::cluster_arrive();  // as in add_up()
  } else {
    if constexpr (R::kMove) ptx::take_registers<R::kMultiplying>();
    consume<config>(static_cast<const unsigned short*>(x), static_cast<const unsigned short*>(cache), packed,
                    static_cast<unsigned short*>(y), static_cast<const unsigned short*>(residual), smem,
                    warpgroup, images);
  }
  if constexpr (config.split > 1)
    ptx::cluster_wait();  // nobody reaches into this block any more
  else if constexpr (kClusters)
    ptx::cluster_sync();  // likewise
}

// The packed weights. The flag must be 0 before.
template <ImplicitGemmHalfSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_implicit_gemm_half_sm90(const void* __restrict__ w, const void* __restrict__ bias,
                                 unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::implicit_gemm_half_sm90
