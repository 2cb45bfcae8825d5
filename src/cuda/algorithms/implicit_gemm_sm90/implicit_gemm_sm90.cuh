// Convolution in TF32 on compute capability 9.0, NCHW as it lies: a product of the pixels of y (rows) with
// the filters (columns), whose sums go over channels and the taps of a window. wgmma wants operands in shared
// memory as rows of channels, and NCHW has rows of pixels: so pixels go to the products through registers,
// where they are rounded on the way, and only weights, which are packed, come from shared memory.
//
//   stage     [channels][tile_rows pixels]  [filters][channels]        one tap, 16 to 64 channels
//   consumer  row_blocks x 64 pixels x filters, in registers
//
// Which pixel of a warp is which row of its product is free: a thread has 2 * row_blocks neighbours, which it
// loads at once. While products are under way, the numbers of the next ones come into other registers.
//
// A block has one warpgroup that loads into a ring of stages, in teams that take them in turns (load.cuh),
// and `consumers` that multiply from there and store (store.cuh). They share a tile, each with rows of its
// own; or, with ping_pong, have tiles of their own: the ring has the tiles one after the other, and while one
// consumer stores, the other multiplies.
//
// Blocks of a cluster have the same filters at the same time: each brings its part of their weights to all.
// Whatever is added to sums comes ahead of them, into shared memory: a warp asks for a part of it whenever it
// has stored one, so that memory is busy while the warp multiplies, gathers and stores.
//
// `split` blocks of a cluster share the sums of a tile, and add them up through each other's shared memory in
// the order of their ranks: for layers of too few tiles. They take one tile each.
//
// Padding multiplies, and rounding wraps a NaN: a flag tells of weights that are not finite, each warp of
// such numbers of x, and outputs are then computed one by one.
#include "cuda/algorithms/implicit_gemm_sm90/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/wgmma_tf32_registers.cuh"
#include "cuda/tile/consumers.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::implicit_gemm_sm90 {

// Rounds as cuDNN rounds operands of 1x1 layers: ties to even, where other layers' go away from zero.
__device__ inline unsigned round_tf32_to_even(unsigned bits) {
  return bits + 0xfff + (bits >> 13 & 1);
}
template <ImplicitGemmSm90 config>
__device__ inline unsigned rounded_weight(float value) {
  if (!config.ties_to_even() || value != value) return ptx::cvt_rna_tf32(value);
  return round_tf32_to_even(__float_as_uint(value)) & ~0x1fffu;
}

// A thread's pixels for 8 channels, as wgmma takes them.
template <ImplicitGemmSm90 config>
struct Pixels {
  static constexpr int kRowBlocks = config.row_blocks, kPitch = config.pitch();
  unsigned bits[kRowBlocks][4] = {};

  // From the thread's pixels of the first channel on.
  __device__ __forceinline__ void load(unsigned from) {
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) {
      float values[2 * kRowBlocks];
      if constexpr (kRowBlocks == 2)
        ptx::ld_shared_v4(values[0], values[1], values[2], values[3], from + upper * 4 * kPitch);
      else
        ptx::ld_shared_v2(values[0], values[1], from + upper * 4 * kPitch);
#pragma unroll
      for (int i = 0; i < 2 * kRowBlocks; ++i) bits[i / 2][2 * upper + i % 2] = __float_as_uint(values[i]);
    }
  }
  __device__ __forceinline__ void round(const Pixels& from, float& largest) {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bits[m][i] = round_tf32(from.bits[m][i], largest);
        if constexpr (config.ties_to_even()) bits[m][i] = ptx::cvt_rn_tf32(__uint_as_float(from.bits[m][i]));
      }
  }
  // The compiler shall have them in registers here: rounded before the products begin, and as they are until
  // the products are done.
  __device__ __forceinline__ void keep() {
#pragma unroll
    for (int m = 0; m < kRowBlocks; ++m)
      asm volatile("" : "+r"(bits[m][0]), "+r"(bits[m][1]), "+r"(bits[m][2]), "+r"(bits[m][3]));
  }
};

// A consumer's products of a tile, from the ring. `seen()` is called once all its stages have been full.
template <ImplicitGemmSm90 config, class Seen>
__device__ __forceinline__ void multiply(Sums<config>& sums, Ring<config.stages>& ring, float& largest,
                                         int first_step, int end_step, unsigned smem, int first_row,
                                         const Seen& seen) {
  constexpr auto kAt = config.smem();
  constexpr int kStage = config.stage_bytes(), kPitch = config.pitch();
  const unsigned lane = threadIdx.x % 32;
  const unsigned pixels = smem + kAt.stages + lane % 4 * kPitch +
                          (first_row + static_cast<int>(lane) / 4 * 2 * config.row_blocks) * 4;
  const unsigned long long filters =
      ptx::wgmma_descriptor((smem + kAt.stages + constant<config.input_bytes()>) / 16, config.filters, 8);
  const auto release = [&](unsigned empty, bool releases) {
    // By every thread: one for its warp, behind a __syncwarp, was no faster (resnet_3x3_s2_128 0.9 % slower).
    if constexpr (config.cluster > 1)
      for_constants<0, config.cluster>(
          [&](auto rank) { ptx::mbarrier_arrive_there_if(ptx::mapa(empty, rank.value), releases); });
    else
      ptx::mbarrier_arrive_if(empty, releases);
  };
  Pixels<config> next, buffers[2];                  // the next pixels, and what is multiplied
  unsigned empty = ring.barrier(smem + kAt.empty);  // of what the products before read
  ring.wait_full(smem + kAt.full);
  next.load(pixels + ring.slot * kStage);
#pragma unroll 1
  for (int step = first_step; step < end_step; ++step) {
    const unsigned stage = ring.slot * kStage;
    for_constants<0, config.products()>([&](auto k) {
      constexpr int kNext = k.value + 1;
      Pixels<config>& mine = buffers[k.value % 2];
      ptx::wgmma_wait<1>();  // but for the last, products are done
      mine.keep();
      if constexpr (k.value == 1) release(empty, step > first_step);
      mine.round(next, largest);
      mine.keep();
      ptx::wgmma_fence();
      for_constants<0, config.row_blocks>([&](auto m) {
        ptx::WgmmaTf32Registers<config.filters>::multiply(
            sums[m.value], mine.bits[m.value], filters + stage / 16 + (kNext - 1) * 2 * config.filters,
            kNext > 1 || step > first_step);
      });
      ptx::wgmma_commit();
      if constexpr (kNext < config.products()) {
        next.load(pixels + stage + kNext * 8 * kPitch);
      } else {
        empty = ring.barrier(smem + kAt.empty);
        ring.next();
        if (step + 1 < end_step) {
          ring.wait_full(smem + kAt.full);
          next.load(pixels + ring.slot * kStage);
        }
      }
    });
  }
  seen();
  ptx::wgmma_wait<0>();
  buffers[0].keep(), buffers[1].keep();
  release(empty, true);
}

// Sums of all blocks that share them, added up: those of the parts that this block stores. Whether all of
// them saw finite numbers.
template <ImplicitGemmSm90 config>
__device__ __forceinline__ bool add_up(Sums<config>& sums, bool finite, int rank, unsigned smem,
                                       int consumer) {
  constexpr auto kAt = config.smem();
  constexpr int kRegisters = config.filters / 2, kOfPart = config.stored_filters() / 2;
  ptx::bar_sync(1, 128 * config.consumers);  // nobody reads the stages any more
  const int thread = static_cast<int>(threadIdx.x) % 128;
  const unsigned mine = smem + kAt.stages + (consumer * constant<config.sums()> * 128 + thread) * 4;
  const unsigned mine_finite = smem + kAt.finite + (consumer * 4 + thread / 32) * 4;
#pragma unroll
  for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) ptx::st_shared(mine + (m * kRegisters + i) * 512, sums[m][i]);
  ptx::st_shared(mine_finite, finite ? 1.0f : 0.0f);
  ptx::cluster_sync();
#pragma unroll
  for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
    for (int i = 0; i < kRegisters; ++i) sums[m][i] = 0;
#pragma unroll 1
  for (int other = 0; other < config.split; ++other) {
    const unsigned there = ptx::mapa(mine, other);
    finite = finite && ptx::ld_shared_there(ptx::mapa(mine_finite, other)) != 0;
    for_constants<0, config.parts()>([&](auto part) {
      if (part.value % config.split != rank) return;
#pragma unroll
      for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
        for (int i = part.value * kOfPart; i < lesser((part.value + 1) * kOfPart, kRegisters); ++i)
          sums[m][i] += ptx::ld_shared_there(there + (m * kRegisters + i) * 512);
    });
  }
  return finite;
}

// Leaves the steps of another consumer's tile to it.
template <ImplicitGemmSm90 config>
__device__ __forceinline__ void skip_tile(Ring<config.stages>& ring, const Place<config>& place, int tile) {
  if constexpr (config.conv.lies.whole_h > 0) {
#pragma unroll 1
    for (int left = place.end_of(tile); left > 0; --left) ring.template skip<1>();
  } else {
    ring.template skip<config.steps()>();
  }
}

template <ImplicitGemmSm90 config>
__device__ void consume(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                        const float* __restrict__ residual, unsigned smem, int consumer, int backwards) {
  constexpr auto kAt = config.smem();
  constexpr Packed kPacked = config.packed();
  constexpr bool kShares = config.split > 1;
  constexpr int kAhead = config.parts_ahead(), kAddends = config.addend_bytes();
  constexpr Tf32GemmTiles kTiles = config.tile_order();
  const Place<config> place(backwards);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0);
  const bool weights_finite = __float_as_uint(packed[kPacked.flag_at()]) == 0;
  const float* const bias = packed + kPacked.bias_at();
  const int first_row =
      (config.ping_pong ? 0 : consumer * config.row_blocks * 64) + warp * constant<config.warp_pixels()>;
  const unsigned staging = smem + kAt.staging + (consumer * 4 + warp) * constant<config.staging_bytes()>;
  const unsigned addends = smem + kAt.addends + (consumer * 4 + warp) * kAhead * kAddends +
                           threadIdx.x % 32 * (constant<config.wide_output()> ? 16 : 4);
  Ring<config.stages> ring;
  int index = place.first, index_step = place.step;
  if constexpr (config.ping_pong) {
    if (consumer == 1) {
      skip_tile<config>(ring, place, place.tile(index));
      index += place.step;
      Turns::give(0);
    }
    index_step *= 2;
  }
  // Asks for a part of what is added to a tile's outputs: a group of copies, whether or not there is any.
  const auto place_of = [&](int part) { return addends + part % constant<greater(kAhead, 1)> * kAddends; };
  const auto fetch = [&](auto part, int of_index, long long output) {
    if (of_index < place.kTiles)
      Part<config, config.part_filters(part.value)>::fetch(
          output, kTiles.first_filter(place.tile(of_index)),
          kTiles.first_filter(place.tile(of_index)) + part.value * constant<config.stored_filters()>,
          residual, place_of(part.value));
    ptx::cp_async_commit_group();
  };
  const auto output_at = [&](int of_index) {
    return output_of<config>(kTiles.first_pixel(place.tile(of_index), place.rank) + first_row);
  };
  if constexpr (kAhead > 0) {
    const long long output = output_at(index);
    for_constants<0, kAhead>([&](auto part) { fetch(part, index, output); });
  }
  Sums<config> sums;
#pragma unroll 1
  for (; index < place.kTiles; index += index_step) {
    const int tile = place.tile(index);
    float largest = 0;  // for the thread's numbers; NaN where one is
    const int filter = kTiles.first_filter(tile);
    const Biases<config> biases(bias, filter);  // on their way while it multiplies
    if constexpr (config.ping_pong) Turns::wait(consumer);
    multiply<config>(sums, ring, largest, place.first_of(tile), place.end_of(tile), smem, first_row, [&] {
      if constexpr (config.ping_pong)
        if (index + place.step < place.kTiles) Turns::give(1 - consumer);
    });
    if constexpr (config.ping_pong) skip_tile<config>(ring, place, place.tile(index + place.step));
    // Whatever rounds to infinity is not finite either.
    bool finite = weights_finite && __all_sync(0xffffffff, largest < kTf32Overflow);
    if constexpr (kShares) finite = add_up<config>(sums, finite, place.rank, smem, consumer);
    const int pixel = kTiles.first_pixel(tile, place.rank) + first_row;
    if (!finite) {
      if (!kShares || place.rank == 0) store_exact<config>(x, packed, residual, y, pixel, filter);
      // Otherwise the next tile's are yet to be asked for, or what no tap meets to be stored.
      if (kAhead == 0 && !config.fills_rows) continue;
    }
    const long long output = output_of<config>(pixel);
    long long next_output = 0;
    if constexpr (kAhead > 0) next_output = output_at(index + index_step);
    for_constants<0, config.parts()>([&](auto part) {
      if (kShares && part.value % config.split != place.rank) return;
      using P = Part<config, config.part_filters(part.value)>;
      constexpr int kFirst = part.value * config.stored_filters();
      if (finite) P::template gather<kFirst / 2>(sums, staging);
      if constexpr (kAhead > 0) ptx::cp_async_wait_group<kAhead - 1>();
      if constexpr (config.spread() > 1) {
        P::store_abreast(pixel, filter, filter + kFirst, biases.template of_part<kFirst>(), residual, y,
                         staging, finite);
      } else if (finite) {
        P::store(output, filter, filter + kFirst, biases.template of_part<kFirst>(), residual, y, staging,
                 place_of(part.value));
      }
      if constexpr (constexpr int kThen = part.value + kAhead; kAhead > 0 && kThen < config.parts())
        fetch(Int<kThen>{}, index, output);
      else if constexpr (kAhead > 0)
        fetch(Int<kThen - config.parts()>{}, index + index_step, next_output);
    });
  }
}

template <ImplicitGemmSm90 config>
__global__ void __cluster_dims__(config.cluster_blocks(), 1, 1) __launch_bounds__(config.threads(), 1)
    implicit_gemm_sm90(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                       const float* __restrict__ residual, int backwards) {
  extern __shared__ __align__(128) unsigned char memory[];
  constexpr auto kAt = config.smem();
  constexpr bool kClusters = config.cluster_blocks() > 1, kMoves = config.consumers > 1;
  const unsigned smem = ptx::shared_address(memory);
  if (threadIdx.x == 0) {
    Ring<config.stages>::init(smem + kAt.full, Arrivals<config>::kFull, smem + kAt.empty,
                              Arrivals<config>::kEmpty);
    ptx::fence_mbarrier_init();
  }
  if constexpr (kClusters)
    ptx::cluster_sync();
  else
    __syncthreads();
  ptx::wait_for_earlier_grids(packed);
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  // Registers of a thread, where the launch bounds leave too few to those that multiply.
  if (warpgroup == config.consumers) {
    if constexpr (kMoves) ptx::leave_registers<72>();
    load<config>(x, reinterpret_cast<const unsigned*>(packed), smem, backwards);
    if constexpr (config.split > 1) ptx::cluster_sync();  // as in add_up()
  } else {
    if constexpr (kMoves) ptx::take_registers<216>();
    consume<config>(x, packed, y, residual, smem, warpgroup, backwards);
  }
  if constexpr (kClusters) ptx::cluster_sync();  // nobody reaches into this block any more
}

// The packed weights. The flag must be 0 before.
template <ImplicitGemmSm90 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_implicit_gemm_sm90(const float* __restrict__ w, const float* __restrict__ bias,
                            unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, rounded_weight<config>);
}

}  // namespace convtune::implicit_gemm_sm90
