// A block of direct_body_half_sm90.cuh, whoever loads its x: consumers that multiply and store, a warp that
// loads weights, and what they need at the start.
#pragma once

#include "cuda/algorithms/direct_body_half_sm90/store.cuh"
#include "cuda/ptx/votes.cuh"
#include "cuda/ptx/wgmma_half_rows.cuh"
#include "cuda/ptx/wgmma_half_shared.cuh"
#include "cuda/tile/consumers.cuh"

namespace convtune::direct_body_half_sm90 {

// An operand of pixels where these come first: columns of 16 channels of it are 64 pixels each, the next 64
// pixels a block on, and eight channels are 1024 bytes.
template <DirectBodyHalfSm90 config>
__device__ constexpr unsigned long long pixel_rows_descriptor(unsigned address) {
  return (address & 0x3fff) | static_cast<unsigned long long>(config.block_bytes() / 16) << 16 |
         1024ull / 16 << 32 | 1ull << 62;
}

// An operand of pixels: rows of the stage's channels, eight that follow each other, the next eight
// group_pitch() pixels on. Any pixel may be the first.
template <DirectBodyHalfSm90 config>
__device__ constexpr unsigned long long pixels_descriptor(unsigned address) {
  if constexpr (config.pixels_first()) return pixel_rows_descriptor<config>(address);
  constexpr unsigned long long kEight = config.group_pitch() * config.row_bytes() / 16;
  return (address & 0x3fff) | 1ull << 16 | kEight << 32 | (config.row_bytes() == 128 ? 1ull : 2ull) << 62;
}

// Holds a consumer's positions in both rings.
template <DirectBodyHalfSm90 config>
struct Rings {
  Ring<config.input_stages> inputs;
  Ring<config.weight_stages> weights;

  __device__ void skip_tile(int tile) {
    if constexpr (config.conv.lies.uneven()) {
      const int frames = frames_that_count<config>(tile).count(), steps = frames * config.tile_steps(tile);
#pragma unroll 1
      for (int i = 0; i < frames * constant<config.chunks()>; ++i) inputs.template skip<1>();
#pragma unroll 1
      for (int i = 0; i < steps; ++i) weights.template skip<1>();
    } else if constexpr (config.skips_frames()) {
      const int frames = config.tile_frames(tile).count();
#pragma unroll 1
      for (int frame = 0; frame < frames; ++frame) skip<config.conv.t>();
    } else {
      skip<1>();
    }
  }
  // A tile's stages, or those of one frame of several.
  template <int kFrames>
  __device__ void skip() {
    inputs.template skip<config.stages() / kFrames>();
    if constexpr (!config.weights_stay()) weights.template skip<config.steps() / kFrames>();
  }
};

// Products of a config's operands: of weights that lie k is the outer extent.
template <DirectBodyHalfSm90 config, bool kBf16, bool kTurned = config.turned()>
struct ProductsOf {
  using Are = ptx::WgmmaHalfShared<kBf16, config.positions(), config.pixels_first()>;
};
template <DirectBodyHalfSm90 config, bool kBf16>
struct ProductsOf<config, kBf16, true> {
  using Are = ptx::WgmmaHalfRows<kBf16, config.positions()>;
};
template <DirectBodyHalfSm90 config, bool kBf16>
using ProductOf = typename ProductsOf<config, kBf16>::Are;

// Tells whether outputs of a consumer must be computed again, where weights are read as they lie.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ bool must_repair(LyingDoubt<config>& doubt, const Sums<config>& sums,
                                            const void* __restrict__ w, int barrier) {
  bool is_nan = false;
#pragma unroll
  for (int block = 0; block < config.filter_blocks; ++block)
#pragma unroll
    for (int i = 0; i < config.positions() / 2; ++i) is_nan |= sums[block][i] != sums[block][i];
  return ptx::bar_sync_or(static_cast<unsigned>(barrier), 128, is_nan) && doubt.holds(w);
}

// A consumer's products of a tile, which is its first or not. `seen()` is called once all its stages have
// been full.
template <DirectBodyHalfSm90 config, class Seen>
__device__ __forceinline__ void multiply(Sums<config>& sums, Rings<config>& rings, unsigned smem,
                                         int consumer, int tile, bool first_tile, const Seen& seen) {
  constexpr auto kAt = config.smem();
  const DirectBodyHalfSm90::Frames frames = frames_that_count<config>(tile);
  const DirectBodyHalfSm90::Taps taps = taps_that_count<config>(tile);
  constexpr bool kBf16 = config.conv.x_type == ElementType::bf16, kStay = config.weights_stay();
  constexpr BodyAxis kRows = config.vertical(), kColumns = config.horizontal();
  constexpr BodyStages kStages = config.stage_order();
  constexpr BodyPixels kPixels = config.pixel_order();
  constexpr int kAllStages = config.stages();
  constexpr bool kSkips = config.skips_frames();
  constexpr int kAll = config.products(0), kLast = config.products(config.steps() - 1);  // per step
  constexpr int kSixteen = config.pixels_first() ? 2048 / 16 : 32 / 16;                  // channels of pixels
  const int first_filter = config.ping_pong ? 0 : consumer * config.consumer_filters();
  const unsigned long long pixels = pixels_descriptor<config>((smem + kAt.inputs) / 16);
  // 16 channels of filters, and 64 filters.
  constexpr int kSixteenOfA = config.turned() ? kLyingSixteen : 2;
  constexpr int kBlockOfA = 64 * config.row_bytes() / 16;
  const unsigned at_filters = (smem + kAt.weights + first_filter * config.row_bytes()) / 16;
  const unsigned long long filters = config.turned()
                                         ? lying_descriptor(at_filters, kBlockOfA)
                                         : ptx::wgmma_descriptor_exchanged<config.row_bytes()>(at_filters);
  const unsigned lane = threadIdx.x % 32;
  const auto release_weights = [&](unsigned empty, bool releases) {
    if constexpr (kStay)
      return;
    else if constexpr (config.cluster > 1)
      ptx::mbarrier_arrive_there_if(ptx::mapa(empty, lane % config.cluster),
                                    releases && lane < config.cluster);
    else
      ptx::mbarrier_arrive_if(empty, releases && lane == 0);
  };
  unsigned inputs_empty = 0, weights_empty = 0;  // stages that the products before the last read
  int step = 0;
#pragma unroll 1
  for (int stage = 0; stage < kAllStages; ++stage) {
    if (kSkips && !frames.has(kStages.frame(stage))) continue;
    const bool first_stage = kSkips ? step == 0 : stage == 0;
    rings.inputs.wait_full(smem + kAt.full);
    const unsigned inputs = rings.inputs.slot * constant<config.input_stage_bytes() / 16>;
    bool first_of_stage = true;
#pragma unroll 1
    for (int row = kStages.first_row(stage) + taps.row; row < kRows.filter; row += constant<kRows.period()>)
#pragma unroll 1
      for (int column = kStages.first_column(stage) + taps.column; column < kColumns.filter;
           column += constant<kColumns.period()>) {
        const unsigned weights = kStay ? step : rings.weights.slot;
        if constexpr (kStay) {
          if (first_tile) ptx::mbarrier_wait(smem + kAt.weights_full + 8 * weights, 0);
        } else {
          rings.weights.wait_full(smem + kAt.weights_full);
        }
        const unsigned long long a = filters + weights * constant<config.weight_bytes() / 16>;
        const unsigned long long b =
            pixels + inputs + kPixels.of_tap(row, column) * constant<config.row_bytes() / 16>;
        const auto add_products = [&](auto count) {
          using Product = ProductOf<config, kBf16>;
          ptx::wgmma_fence();
          if constexpr (config.filter_blocks == 1 && count.value == 4)
            Product::template multiply_four<kSixteen>(sums[0], a, b, step > 0);
          else
            for_constants<0, count.value>([&](auto k) {
              for_constants<0, config.filter_blocks>([&](auto block) {
                Product::multiply(sums[block.value], a + block.value * kBlockOfA + kSixteenOfA * k.value,
                                  b + kSixteen * k.value, k.value > 0 || step > 0);
              });
            });
          ptx::wgmma_commit();
        };
        // Each arm with its commit: with only the last product under a condition, it is a group of its own.
        if (kLast < kAll && stage >= constant<kAllStages - config.chunk_stages()>)
          add_products(Int<kLast>{});
        else
          add_products(Int<kAll>{});
        ptx::wgmma_wait<1>();  // earlier work is done
        release_weights(weights_empty, step > 0);
        ptx::mbarrier_arrive_if(inputs_empty, !first_stage && first_of_stage && lane == 0);
        first_of_stage = false;
        weights_empty = rings.weights.barrier(smem + kAt.weights_empty);
        if constexpr (!kStay) rings.weights.next();
        ++step;
        if constexpr (config.lead() > 0)
          if (first_tile && step == constant<config.lead()> && consumer + 1 < config.consumers)
            Turns::lead(consumer);
      }
    inputs_empty = rings.inputs.barrier(smem + kAt.empty);
    rings.inputs.next();
  }
  seen();
  ptx::wgmma_wait<0>();
  release_weights(weights_empty, true);
  ptx::mbarrier_arrive_if(inputs_empty, lane == 0);
}

template <DirectBodyHalfSm90 config>
__device__ void consume(const Maps& maps, const unsigned short* __restrict__ x,
                        const unsigned short* __restrict__ cache, const float* __restrict__ packed,
                        unsigned short* __restrict__ y, const unsigned short* __restrict__ residual,
                        unsigned smem, int consumer, int images) {
  constexpr auto kAt = config.smem();
  constexpr Packed kPacked = config.packed();
  constexpr int kPlaces = config.places();
  const Place<config> place(images);
  const bool finite = config.lying > 0 || __float_as_uint(packed[kPacked.flag_at()]) == 0;
  Rings<config> rings;
  int tile = place.first_tile, tile_step = place.tile_step;
  if constexpr (config.ping_pong) {
    if (consumer == 1) {
      tile += place.tile_step;
      rings.skip_tile(place.first_tile);
      Turns::give(0);
    }
    tile_step *= 2;
  }
  Store<config> store{
      {},
      smem + kAt.staging +
          (config.shares_staging() ? 0 : consumer * constant<kPlaces * config.staging_bytes()>),
      smem + kAt.residual_full + 8 * kPlaces * consumer,
      0,
      static_cast<int>(threadIdx.x) % 128,
      Turns::own(consumer),
      images};
  const auto corner_of = [&](int some_tile) {
    constexpr BodyTiles kTiles = config.tile_order();
    DirectBodyHalfSm90::Corner corner = kTiles.corner(some_tile, place.rank);
    if constexpr (!config.ping_pong) corner.filter += consumer * constant<config.consumer_filters()>;
    return corner;
  };
  bool first_tile = true;
  Sums<config> sums;
  Biases<config> biases;
  LyingDoubt<config> doubt;
#pragma unroll 1
  for (; tile < place.tiles; tile += tile_step) {
    store.corner = corner_of(tile);
    if (finite && (kPlaces == 1 || first_tile)) store.load_residual(maps, residual);
    store.load_biases(biases, packed + kPacked.bias_at());
    if constexpr (config.ping_pong) Turns::wait(consumer);
    if constexpr (config.lead() > 0)
      if (first_tile && consumer > 0) Turns::follow(consumer);
    multiply<config>(sums, rings, smem, consumer, tile, first_tile, [&] {
      if constexpr (config.ping_pong)
        if (tile + place.tile_step < place.tiles) Turns::give(1 - consumer);
    });
    first_tile = false;
    if constexpr (config.ping_pong) rings.skip_tile(tile + place.tile_step);
    if (!finite) {
      store.store_exact(x, cache, packed, residual, y);
      continue;
    }
    if constexpr (config.doubts())
      if (must_repair<config>(doubt, sums, packed, store.barrier)) {
        store.store_exact(x, cache, packed, residual, y);
        continue;
      }
    if constexpr (kPlaces > 1)
      if (tile + tile_step < place.tiles) {
        Store<config> next = store;
        next.next_place();
        next.corner = corner_of(tile + tile_step);
        next.load_residual(maps, residual);
      }
    if constexpr (config.shares_staging())
      if (tile != place.first_tile) Turns::wait_to_store(consumer);
    store.finish_sums(sums, biases);
    store.store(maps, y);
    if constexpr (config.shares_staging())
      if (tile + place.tile_step < place.tiles) {
        store.wait_until_free();
        __syncwarp();
        Turns::let_store(1 - consumer);
      }
    store.next_place();
  }
  store.wait_until_free();
}

// Zeros behind the boxes of all stages, where outputs at the end of a tile read; and where outputs that are
// dropped have a residual, which nobody brings. Two outputs may share a reciprocal (times_sigmoids), so that
// the last bits of one depend on its neighbour: that must not be what was in shared memory before.
template <DirectBodyHalfSm90 config>
__device__ __forceinline__ void clear_what_nobody_brings(unsigned smem) {
  constexpr int kBytes = config.input_stage_bytes();
  constexpr unsigned kZeros[4] = {0, 0, 0, 0};
  for (int stage = 0; stage < config.input_stages; ++stage)
    for (int i = constant<config.input_bytes()> + 16 * static_cast<int>(threadIdx.x); i < kBytes;
         i += constant<16 * config.threads()>)
      ptx::st_shared_v4(smem + constant<config.smem().inputs> + stage * kBytes + i, kZeros);
  if constexpr (config.conv.residual) {
    constexpr int kBlock = config.staging_bytes() / config.filter_blocks, kDropped = 8 * 128;
    constexpr int kBlocks = config.stagings() * config.places() * config.filter_blocks;
    constexpr int kEach = config.wide_stores() ? kDropped : kBlock;  // at the end of each
#pragma unroll 1
    for (int i = 16 * static_cast<int>(threadIdx.x); i < kBlocks * kEach;
         i += constant<16 * config.threads()>)
      ptx::st_shared_v4(
          smem + constant<config.smem().staging> + i / kEach * kBlock + kBlock - kEach + i % kEach, kZeros);
  }
  ptx::fence_proxy_async();
}

// A block's work. `Loads` says how x comes: kArrivals at a stage's barrier besides the bytes, barriers of its
// own, and what its warps of the loading warpgroup do. `wait(packed)` is for earlier grids.
template <DirectBodyHalfSm90 config, class Loads, class Wait>
__device__ __forceinline__ void run_block(const MapsOf<config>& maps, const void* __restrict__ x,
                                          const float* __restrict__ packed, void* __restrict__ y,
                                          const void* __restrict__ residual, const void* __restrict__ cache,
                                          int images, unsigned smem, const Wait& wait) {
  constexpr auto kAt = config.smem();
  using R = ConsumerRegisters<config.consumers>;
  using A = Arrivals<config>;
  if (threadIdx.x == 0) {
    Ring<config.input_stages>::init(smem + kAt.full, Loads::kArrivals, smem + kAt.empty, A::kEmpty);
    Ring<config.weight_stages>::init(smem + kAt.weights_full, 1, smem + kAt.weights_empty, A::kWeightsEmpty);
    for (int i = 0; i < constant<config.stagings() * config.places()>; ++i)
      ptx::mbarrier_init(smem + kAt.residual_full + 8 * i, 1);
    Loads::init(smem);
    ptx::fence_mbarrier_init();
  }
  clear_what_nobody_brings<config>(smem);
  if constexpr (config.cluster > 1)
    ptx::cluster_sync();
  else
    __syncthreads();
  wait(packed);
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == config.consumers) {
    if constexpr (R::kMove) ptx::leave_registers<R::kLoading>();
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    if (warp == kWeightsWarp)
      load_weights<config>(maps, reinterpret_cast<const unsigned*>(packed), smem, images);
    else
      Loads::load(maps, static_cast<const unsigned short*>(x), static_cast<const unsigned short*>(cache),
                  smem, warp, images);
  } else {
    if constexpr (R::kMove) ptx::take_registers<R::kMultiplying>();
    consume<config>(maps, static_cast<const unsigned short*>(x), static_cast<const unsigned short*>(cache),
                    packed, static_cast<unsigned short*>(y), static_cast<const unsigned short*>(residual),
                    smem, warpgroup, images);
  }
  if constexpr (config.cluster > 1) ptx::cluster_sync();  // nobody reaches into this block any more
}

}  // namespace convtune::direct_body_half_sm90
