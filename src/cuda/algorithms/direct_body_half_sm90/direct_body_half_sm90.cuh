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
#include "cuda/algorithms/direct_body_half_sm90/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/wgmma_half_shared.cuh"
#include "cuda/tile/consumers.cuh"
#include "cuda/tile/pack.cuh"

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
      for (int i = 0; i < frames * config.chunks(); ++i) inputs.template skip<1>();
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

// A consumer's products of a tile, which is its first or not. `seen()` is called once all its stages have
// been full.
template <DirectBodyHalfSm90 config, class Seen>
__device__ __forceinline__ void multiply(Sums<config>& sums, Rings<config>& rings, unsigned smem,
                                         int consumer, int tile, bool first_tile, const Seen& seen) {
  constexpr auto kAt = config.smem();
  const DirectBodyHalfSm90::Frames frames = frames_that_count<config>(tile);
  const DirectBodyHalfSm90::Taps taps = config.tile_taps(tile);
  constexpr bool kBf16 = config.conv.x_type == ElementType::bf16, kStay = config.weights_stay();
  constexpr BodyAxis kRows = config.vertical(), kColumns = config.horizontal();
  constexpr int kAll = config.products(0), kLast = config.products(config.steps() - 1);  // per step
  constexpr int kSixteen = config.pixels_first() ? 2048 / 16 : 32 / 16;                  // channels of pixels
  const int first_filter = config.ping_pong ? 0 : consumer * config.consumer_filters();
  const unsigned long long pixels = pixels_descriptor<config>((smem + kAt.inputs) / 16);
  const unsigned long long filters = ptx::wgmma_descriptor_exchanged<config.row_bytes()>(
      (smem + kAt.weights + first_filter * config.row_bytes()) / 16);
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
  for (int stage = 0; stage < config.stages(); ++stage) {
    if (config.skips_frames() && !frames.has(config.stage_frame(stage))) continue;
    const bool first_stage = config.skips_frames() ? step == 0 : stage == 0;
    rings.inputs.wait_full(smem + kAt.full);
    const unsigned inputs = rings.inputs.slot * (config.input_stage_bytes() / 16);
    bool first_of_stage = true;
#pragma unroll 1
    for (int row = config.first_row(stage) + taps.row; row < kRows.filter; row += kRows.period())
#pragma unroll 1
      for (int column = config.first_column(stage) + taps.column; column < kColumns.filter;
           column += kColumns.period()) {
        const unsigned weights = kStay ? step : rings.weights.slot;
        if constexpr (kStay) {
          if (first_tile) ptx::mbarrier_wait(smem + kAt.weights_full + 8 * weights, 0);
        } else {
          rings.weights.wait_full(smem + kAt.weights_full);
        }
        const unsigned long long a = filters + weights * (config.weight_bytes() / 16);
        const unsigned long long b =
            pixels + inputs + config.tap_pixel(row, column) * (config.row_bytes() / 16);
        const auto add_products = [&](auto count) {
          using Product = ptx::WgmmaHalfShared<kBf16, config.positions(), config.pixels_first()>;
          ptx::wgmma_fence();
          if constexpr (config.filter_blocks == 1 && count.value == 4)
            Product::template multiply_four<kSixteen>(sums[0], a, b, step > 0);
          else
            for_constants<0, count.value>([&](auto k) {
              for_constants<0, config.filter_blocks>([&](auto block) {
                constexpr int kBlock = block.value * 64 * config.row_bytes() / 16;
                Product::multiply(sums[block.value], a + kBlock + 2 * k.value, b + kSixteen * k.value,
                                  k.value > 0 || step > 0);
              });
            });
          ptx::wgmma_commit();
        };
        // Each arm with its commit: with only the last product under a condition, it is a group of its own.
        if (kLast < kAll && stage >= config.stages() - config.chunk_stages())
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
          if (first_tile && step == config.lead() && consumer + 1 < config.consumers) Turns::lead(consumer);
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
                        unsigned smem, int consumer) {
  constexpr auto kAt = config.smem();
  constexpr Packed kPacked = config.packed();
  constexpr int kPlaces = config.places();
  const Place<config> place;
  const bool finite = __float_as_uint(packed[kPacked.flag_at()]) == 0;
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
      smem + kAt.staging + (config.shares_staging() ? 0 : consumer * kPlaces * config.staging_bytes()),
      smem + kAt.residual_full + 8 * kPlaces * consumer,
      0,
      static_cast<int>(threadIdx.x) % 128,
      Turns::own(consumer)};
  const auto corner_of = [&](int some_tile) {
    DirectBodyHalfSm90::Corner corner = config.corner(some_tile, place.rank);
    if constexpr (!config.ping_pong) corner.filter += consumer * config.consumer_filters();
    return corner;
  };
  bool first_tile = true;
  Sums<config> sums;
  Biases<config> biases;
#pragma unroll 1
  for (; tile < place.kTiles; tile += tile_step) {
    store.corner = corner_of(tile);
    if (finite && (kPlaces == 1 || first_tile)) store.load_residual(maps, residual);
    store.load_biases(biases, packed + kPacked.bias_at());
    if constexpr (config.ping_pong) Turns::wait(consumer);
    if constexpr (config.lead() > 0)
      if (first_tile && consumer > 0) Turns::follow(consumer);
    multiply<config>(sums, rings, smem, consumer, tile, first_tile, [&] {
      if constexpr (config.ping_pong)
        if (tile + place.tile_step < place.kTiles) Turns::give(1 - consumer);
    });
    first_tile = false;
    if constexpr (config.ping_pong) rings.skip_tile(tile + place.tile_step);
    if (!finite) {
      store.store_exact(x, cache, packed, residual, y);
      continue;
    }
    if constexpr (kPlaces > 1)
      if (tile + tile_step < place.kTiles) {
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
      if (tile + place.tile_step < place.kTiles) {
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
    for (int i = config.input_bytes() + 16 * static_cast<int>(threadIdx.x); i < kBytes;
         i += 16 * config.threads())
      ptx::st_shared_v4(smem + config.smem().inputs + stage * kBytes + i, kZeros);
  if constexpr (config.conv.residual) {
    constexpr int kBlock = config.staging_bytes() / config.filter_blocks, kDropped = 8 * 128;
    constexpr int kBlocks = config.stagings() * config.places() * config.filter_blocks;
    constexpr int kEach = config.wide_stores() ? kDropped : kBlock;  // at the end of each
#pragma unroll 1
    for (int i = 16 * static_cast<int>(threadIdx.x); i < kBlocks * kEach; i += 16 * config.threads())
      ptx::st_shared_v4(smem + config.smem().staging + i / kEach * kBlock + kBlock - kEach + i % kEach,
                        kZeros);
  }
  ptx::fence_proxy_async();
}

template <DirectBodyHalfSm90 config>
__global__ void __cluster_dims__(config.cluster, 1, 1) __launch_bounds__(config.threads(), 1)
    direct_body_half_sm90(const __grid_constant__ MapsOf<config> maps, const void* __restrict__ x,
                          const float* __restrict__ packed, void* __restrict__ y,
                          const void* __restrict__ residual, const void* __restrict__ cache) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr auto kAt = config.smem();
  using R = ConsumerRegisters<config.consumers>;
  using A = Arrivals<config>;
  const unsigned smem = ptx::shared_address(memory);
  if (threadIdx.x == 0) {
    Ring<config.input_stages>::init(smem + kAt.full, A::kFull, smem + kAt.empty, A::kEmpty);
    Ring<config.weight_stages>::init(smem + kAt.weights_full, 1, smem + kAt.weights_empty, A::kWeightsEmpty);
    for (int i = 0; i < config.stagings() * config.places(); ++i)
      ptx::mbarrier_init(smem + kAt.residual_full + 8 * i, 1);
    ptx::fence_mbarrier_init();
  }
  clear_what_nobody_brings<config>(smem);
  if constexpr (config.cluster > 1)
    ptx::cluster_sync();
  else
    __syncthreads();
  ptx::wait_for_earlier_grids(packed);
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == config.consumers) {
    if constexpr (R::kMove) ptx::leave_registers<R::kLoading>();
    const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
    if (warp == kWeightsWarp) {
      load_weights<config>(reinterpret_cast<const unsigned*>(packed), smem);
    } else if constexpr (!config.aligned) {
      const int loader = warp - (warp > kWeightsWarp);
      load_inputs_anywhere<config>(static_cast<const unsigned short*>(x),
                                   static_cast<const unsigned short*>(cache), smem,
                                   loader * 32 + static_cast<int>(threadIdx.x) % 32);
    } else if (warp == 0) {
      load_inputs<config>(maps, smem);
    }
  } else {
    if constexpr (R::kMove) ptx::take_registers<R::kMultiplying>();
    consume<config>(maps, static_cast<const unsigned short*>(x), static_cast<const unsigned short*>(cache),
                    packed, static_cast<unsigned short*>(y), static_cast<const unsigned short*>(residual),
                    smem, warpgroup);
  }
  if constexpr (config.cluster > 1) ptx::cluster_sync();  // nobody reaches into this block any more
}

// The packed weights. The flag must be 0 before.
template <DirectBodyHalfSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_body_half_sm90(const void* __restrict__ w, const void* __restrict__ bias,
                               unsigned* __restrict__ packed) {
  pack_halves<config>(w, bias, packed);
}

}  // namespace convtune::direct_body_half_sm90
