// The gradient of weights in half precision on compute capability 9.0, channels last: a product of filters
// (rows) with channels at taps (columns), whose sums go over the pixels of y. Neither operand is transposed
// or gathered: a pixel's filters of dy, and its channels of x, are a row of shared memory, and tensor cores
// take operands whose k is the outer extent. TMA finds the pixels of x for any tap, stride, dilation and
// padding (load.cuh).
//
// With a window x comes once for a channel block and all taps (config.h), and a tap is positions that begin
// further on: nine times less to copy for a filter of 3x3, where strides and dilations are 1. Of few channels
// a position has 32, so that no product of 64 is half idle.
//
//   stage     [64 columns][pixels] ...  [64 filters][pixels] ...     x at as many taps as there are, and dy
//   consumer  row_blocks x 64 filters x columns, in registers
//
// A block has one warpgroup that loads into a ring of stages, and others that multiply from there, each with
// filters or columns of its own.
//
// Sums are over many pixels, and of few tiles: all chunks of pixels of all tiles are dealt out to the blocks
// evenly (config.h). A block leaves its sums of a part of a tile in memory, in fp32, and
// add_up_weight_gradient_half_sm90 adds those of a tile in the order of the blocks and rounds once
// (add_up.cuh): the same bits in every run. Where tiles are more than blocks, with a window, most of them are
// whole: a block has all taps and pixels of some filters and channels, and stores gradients (store.cuh).
// Blocks store all tiles, and no second kernel runs, where none is split (`joint`, finish.cuh).
//
// The gradient of a bias is one more product, of dy and ones, in tiles of the first columns.
#include "cuda/algorithms/weight_gradient_half_sm90/add_up.cuh"
#include "cuda/algorithms/weight_gradient_half_sm90/finish.cuh"
#include "cuda/ptx/fetch.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/ptx/wgmma_half_turned.cuh"
#include "cuda/tile/consumers.cuh"

namespace convtune::weight_gradient_half_sm90 {

// A consumer's products of chunks, as many as `count`, and with kRowSums the sums of dy.
template <WeightGradientHalfSm90 config, bool kRowSums>
__device__ __forceinline__ void multiply(Sums<config>& sums, RowSums<config>& row_sums,
                                         Ring<config.stages>& ring, unsigned smem, int first_row,
                                         int column_group, int count) {
  constexpr auto kAt = config.smem();
  constexpr bool kBf16 = config.conv.x_type == ElementType::bf16;
  constexpr unsigned kStep = config.block_bytes() / 16, kSixteen = 2048 / 16;
  const unsigned long long rows = ptx::wgmma_descriptor_turned(
      (smem + kAt.stages + config.input_bytes() + first_row / config.kBlock * config.block_bytes()) / 16,
      kStep);
  constexpr unsigned kColumnSixteen = config.is_narrow() ? kSixteen / 2 : kSixteen;
  const unsigned long long columns = ptx::wgmma_descriptor_turned<config.is_narrow()>(
      (smem + kAt.stages + config.columns_at(column_group)) / 16, config.column_step() / 16);
  const unsigned long long ones = ptx::wgmma_descriptor_turned((smem + kAt.ones) / 16, kStep);
  const bool first_lane = threadIdx.x % 32 == 0;
  unsigned empty = ring.barrier(smem + kAt.empty);  // barrier of the stage that the products before read
#pragma unroll 1
  for (int step = 0; step < count; ++step) {
    ring.wait_full(smem + kAt.full);
    const unsigned stage = static_cast<unsigned>(ring.slot) * (config.stage_bytes() / 16);
    ptx::wgmma_fence();
    const auto add_sixteen = [&](int k) {
      for_constants<0, config.row_blocks>([&](auto m) {
        const unsigned long long a = rows + stage + m.value * kStep + static_cast<unsigned>(k) * kSixteen;
        const unsigned long long b = columns + stage + static_cast<unsigned>(k) * kColumnSixteen;
        const bool adds = k > 0 || step > 0;
        ptx::WgmmaHalfTurned<kBf16, config.columns>::multiply(sums[m.value], a, b, adds);
        if constexpr (kRowSums) ptx::WgmmaHalfTurned<kBf16, 8>::multiply(row_sums[m.value], a, ones, adds);
      });
    };
    constexpr int kSixteens = config.positions() / 16, kBefore = config.early ? 1 : kSixteens;
    const auto add_some = [&](auto from, auto to) {
      if constexpr (config.window > 0) {
#pragma unroll 1
        for (int k = from.value; k < to.value; ++k) add_sixteen(k);
      } else {
        for_constants<from.value, to.value>([&](auto k) { add_sixteen(k.value); });
      }
      ptx::wgmma_commit();
    };
    add_some(Int<0>{}, Int<kBefore>{});
    ptx::wgmma_wait<1>();  // earlier work is done
    ptx::mbarrier_arrive_if(empty, step > 0 && first_lane);
    if constexpr (kBefore < kSixteens) {
      ptx::wgmma_fence();
      add_some(Int<kBefore>{}, Int<kSixteens>{});
    }
    empty = ring.barrier(smem + kAt.empty);
    ring.next();
  }
  ptx::wgmma_wait<0>();
  ptx::mbarrier_arrive_if(empty, first_lane);
}

// Leaves a part's sums in memory.
template <WeightGradientHalfSm90 config>
__device__ __forceinline__ void leave(const Sums<config>& sums, const RowSums<config>& row_sums,
                                      float* __restrict__ place, int row, int first_column,
                                      bool has_row_sums) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  float* const to = place + config.sum_at(row, first_column) + lane % 4 * 2;
#pragma unroll
  for (int m = 0; m < config.row_blocks; ++m)
#pragma unroll
    for (int i = 0; i < config.columns / 2; i += 2)
      *reinterpret_cast<float2*>(to + config.sum_at(64 * m + i / 2 % 2 * 8, i / 4 * 8)) = {sums[m][i],
                                                                                           sums[m][i + 1]};
  if (config.bias && has_row_sums && lane % 4 == 0)
#pragma unroll
    for (int m = 0; m < config.row_blocks; ++m) {
      place[config.row_sums_at() + row + 64 * m] = row_sums[m][0];
      place[config.row_sums_at() + row + 64 * m + 8] = row_sums[m][2];
    }
}

template <WeightGradientHalfSm90 config>
__device__ void consume(const Outputs& to, unsigned smem, int consumer) {
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32 % 4, 0);
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first_row = consumer % config.filter_groups * config.consumer_rows();
  const int column_group = consumer / config.filter_groups, first_column = column_group * config.columns;
  const int row = first_row + 16 * warp + lane / 4;
  Ring<config.stages> ring;
  Sums<config> sums;
  RowSums<config> row_sums;
  const Finish<config> finish{to, smem};
  bool is_nan = false;
#pragma unroll 1
  for (Part<config> part; part.exists(); part.next()) {
    const int count = part.end() - part.chunk;
    const bool has_row_sums = config.bias && config.first_block(part.tile) == 0 && column_group == 0;
    if (config.bias && has_row_sums)
      multiply<config, config.bias>(sums, row_sums, ring, smem, first_row, column_group, count);
    else
      multiply<config, false>(sums, row_sums, ring, smem, first_row, column_group, count);
    if constexpr (config.joint && config.whole == 0) {  // a block's only tile
      finish.put(sums, row_sums, first_row, column_group, has_row_sums);
      finish.store(part.tile);
      return;
    }
    if constexpr (config.whole > 0)
      if (part.is_whole()) {
        const bool some = store_whole<config>(sums, to.dw, smem, part.tile, first_row, column_group,
                                              config.joint ? to.dw_last : 0);
        if (config.bias && has_row_sums) store_biases<config>(row_sums, to.dbias, part.tile, first_row);
        if constexpr (config.joint) {
          is_nan = is_nan || some;
        } else {
          const bool none = __all_sync(0xffffffff, !some);
          float* const flags = to.partial + config.flags_at() + 1LL * part.tile * config.tile_flags();
          if (lane == 0) flags[4 * consumer + warp] = none ? 0 : 1;
        }
        continue;
      }
    leave<config>(sums, row_sums,
                  to.partial + config.place(static_cast<int>(blockIdx.x), part.tile) * config.place_words(),
                  row, first_column, has_row_sums);
  }
  if constexpr (config.joint && config.whole > 0) finish.check_whole_tiles(is_nan);
}

// How the operands of a block come where channels come last: arrivals that make a stage full, what is done
// before the first, and the work of the warpgroup that loads, of which this is `warp`.
template <WeightGradientHalfSm90 config>
struct LoadsPixels {
  static constexpr int kArrivals = config.aligned ? 1 : 128;
  __device__ static __forceinline__ void prepare(const Maps& maps, unsigned smem) {
    if (config.aligned && threadIdx.x == 0) ptx::fetch_map(&maps.x), ptx::fetch_map(&maps.dy);
    if constexpr (config.window > 0) {
      clear_ends<config>(smem);
      ptx::fence_proxy_async();
    }
  }
  __device__ static __forceinline__ void bring(const Maps& maps, const unsigned short* __restrict__ x,
                                               const unsigned short* __restrict__ dy, unsigned smem) {
    if constexpr (!config.aligned)
      load_anywhere<config>(x, dy, smem);
    else if (__shfl_sync(0xffffffff, threadIdx.x / 32 % 4, 0) == 0) {
      if constexpr (config.window > 0)
        load_windows<config>(maps, smem);
      else
        load<config>(maps, smem);
    }
  }
};

// Registers of a thread: who transposes has as many as those that multiply can spare.
template <WeightGradientHalfSm90 config>
struct Registers {
  using Usual = ConsumerRegisters<config.consumers()>;
  static constexpr bool kMove = Usual::kMove, kThree = config.consumers() == 3;
  static constexpr int kLoading = config.planes ? 56 : Usual::kLoading;
  static constexpr int kMultiplying = !config.planes ? Usual::kMultiplying : kThree ? 152 : 224;
};

// `wait` waits for earlier grids.
template <WeightGradientHalfSm90 config, class Loads, class Wait>
__device__ __forceinline__ void run_block(const Maps& maps, const Outputs& to, unsigned smem,
                                          const Wait& wait) {
  constexpr auto kAt = config.smem();
  using R = Registers<config>;
  if (threadIdx.x == 0) {
    Ring<config.stages>::init(smem + kAt.full, Loads::kArrivals, smem + kAt.empty, 4 * config.consumers());
    if constexpr (config.planes)
      Ring<config.slice_places()>::init(smem + kAt.slices_full, 1, smem + kAt.slices_empty,
                                        config.kTransposingWarps);
    ptx::fence_mbarrier_init();
  }
  Loads::prepare(maps, smem);
  if constexpr (config.bias) {
    constexpr unsigned kOnes = config.conv.x_type == ElementType::bf16 ? 0x3f803f80 : 0x3c003c00;
    for (unsigned i = threadIdx.x; i < config.kOnesBytes / 4; i += blockDim.x)
      ptx::st_shared(smem + kAt.ones + 4 * i, kOnes);
    ptx::fence_proxy_async();
  }
  __syncthreads();
  wait();
  const int warpgroup = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 128, 0);
  if (warpgroup == config.consumers()) {
    if constexpr (R::kMove) ptx::leave_registers<R::kLoading>();
    Loads::bring(maps, static_cast<const unsigned short*>(to.x), static_cast<const unsigned short*>(to.dy),
                 smem);
  } else {
    if constexpr (R::kMove) ptx::take_registers<R::kMultiplying>();
    consume<config>(to, smem, warpgroup);
  }
}

// Adds up gradients of weights, by the blocks that come first, and of biases. `dw_last`: 1 where dw is to lie
// channels last, without whole tiles.
template <WeightGradientHalfSm90 config>
__device__ __forceinline__ void run_add_up(const float* __restrict__ partial, const void* __restrict__ x,
                                           const void* __restrict__ dy, void* __restrict__ dw,
                                           void* __restrict__ dbias, int dw_last = 0) {
  if (config.bias && blockIdx.y > 0) {
    if (static_cast<int>(blockIdx.x) < ceil_div(config.conv.k, kAddThreads))
      add_up_biases<config>(partial, dbias);
  } else if (blockIdx.x < config.add_blocks()) {
    if constexpr (config.split_tiles() > 0) add_up<config>(x, dy, partial, dw, dw_last);
  } else if constexpr (config.whole > 0) {
    check_whole<config>(partial, x, dy, dw);
  }
}

template <WeightGradientHalfSm90 config>
__global__ void __launch_bounds__(config.threads(), 1)
    weight_gradient_half_sm90(const __grid_constant__ Maps maps, const void* __restrict__ x,
                              const void* __restrict__ dy, float* __restrict__ partial, void* __restrict__ dw,
                              void* __restrict__ dbias, int dw_last) {
  extern __shared__ __align__(1024) unsigned char memory[];
  run_block<config, LoadsPixels<config>>(maps, {x, dy, partial, dw, dbias, dw_last},
                                         ptx::shared_address(memory), [] { ptx::wait_for_earlier_grids(); });
}

template <WeightGradientHalfSm90 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_weight_gradient_half_sm90(const float* __restrict__ partial, const void* __restrict__ x,
                                     const void* __restrict__ dy, void* __restrict__ dw,
                                     void* __restrict__ dbias, int dw_last) {
  ptx::wait_for_earlier_grids(partial);
  run_add_up<config>(partial, x, dy, dw, dbias, dw_last);
}

// Gradients of weights need none.
template <WeightGradientHalfSm90 config>
__global__ void pack_weight_gradient_half_sm90() {}

}  // namespace convtune::weight_gradient_half_sm90
