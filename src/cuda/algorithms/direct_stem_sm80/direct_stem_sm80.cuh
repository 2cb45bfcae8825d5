// Convolution for few input channels on compute capability 8.0 and up: mma.sync fed by plain loads from the
// raw input window, which is in shared memory once, rounded to TF32. The im2col matrix is never made.
//
// Rows of the product m16n8k8 are filters, its columns are pixels, k is the tap. Weights are packed in the
// order of fragments: 16 bytes a thread. Of the window a thread reads, for its pixel g = lane / 4 and its tap
// t = lane % 4 of a group of 4,
//
//     window[stride * g + t  +  tap_offset(group) + pixel_offset(tile)]
//            one register       a constant in the instruction
//
// A group that goes from a filter's row into the next has another distance between its taps: there are 4
// patterns, one register each (direct_stem_sm80.h). So a sum has no padding but to a multiple of 8.
//
// A block fills its window, multiplies, stores, ends; the blocks beside it on the multiprocessor multiply
// while it loads or stores. Weights that do not fit into shared memory come in stages by cp.async.
//
// A block that meets a number that is not finite computes all of its outputs from the tensors as they came
// (tile/exact.cuh).
#include "cuda/algorithms/direct_stem_sm80/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_stem_sm80 {

// `mine`: the window from the warp's first pixel on. `to` and `piece`: of weights, this
// thread's first piece.
template <DirectStemSm80 config>
__device__ __forceinline__ void multiply(Sums<config>& sums, const float* ring, unsigned to,
                                         const float* mine, const float* __restrict__ packed, unsigned piece,
                                         int filter_warp) {
  const int lane = threadIdx.x % 32;
  const float* from[4];
#pragma unroll
  for (int pattern = 0; pattern < 4; ++pattern)
    from[pattern] = mine + lane / 4 * config.pixel_pitch + config.thread_offset(pattern, lane % 4);
  const float4* const first_stage =
      reinterpret_cast<const float4*>(ring) + filter_warp * config.filter_tiles() * 32 + lane;
  const float4* fragments = first_stage;
  constexpr int kBody = config.body_steps(), kLast = config.last_steps(), kParts = config.body_stages();
  constexpr int kStages = config.resident() ? 1 : config.stages;
  constexpr bool kConstantSlots = kParts % kStages == 0;
  int left = config.bodies() - 1;
  int slot = 0;
  // This stage has come, for all threads; and all are done with the one before, which makes room.
  const auto begin_stage = [&](auto part) {
    ptx::cp_async_wait_group<kStages - 2>();
    __syncthreads();
    constexpr int kNext = part.value + kStages - 1;
    if constexpr (kConstantSlots) {
      load_stage<config, kNext, kNext % kStages>(to, packed, piece, left);
    } else {
      load_stage<config, kNext, 0>(to + slot * (config.stage_floats() * 4), packed, piece, left);
      slot = slot + 1 == kStages ? 0 : slot + 1;
      fragments = first_stage + slot * (config.stage_floats() / 4);
    }
  };
  const auto multiply_step = [&](auto step) {
    constexpr int kPart = config.part_of(step.value), kInPart = step.value - config.stage_begin(kPart);
    if constexpr (kPart > 0 && kInPart == 0) begin_stage(Int<kPart>{});
    // Later loads, moved up, would take more registers than are left.
    if constexpr (config.held > 0)
      if constexpr (step.value % config.held == 0) __syncwarp();
    constexpr int kSlot = kConstantSlots ? kPart % kStages : 0;
    constexpr int kAt = (kSlot * config.stage_floats() + kInPart * config.step_floats()) / 4;
    unsigned pixels[config.tiles()][2];
    constexpr int kGroup = 2 * step.value;
    constexpr int kPatterns[] = {config.pattern(kGroup), config.pattern(kGroup + 1)};
    constexpr int kGroupOffsets[] = {config.group_offset(kGroup), config.group_offset(kGroup + 1)};
    for_constants<0, config.tiles()>([&](auto tile) {
      constexpr int kPixel =
          config.pixel_offset(tile.value / config.warp_columns, tile.value % config.warp_columns * 8) -
          config.pixel_offset(0, 0);
      pixels[tile.value][0] = __float_as_uint(from[kPatterns[0]][kPixel + kGroupOffsets[0]]);
      pixels[tile.value][1] = __float_as_uint(from[kPatterns[1]][kPixel + kGroupOffsets[1]]);
    });
#pragma unroll
    for (int i = 0; i < config.filter_tiles(); ++i) {
      const float4 four = fragments[kAt + i * 32];
      const unsigned filters[4] = {__float_as_uint(four.x), __float_as_uint(four.y), __float_as_uint(four.z),
                                   __float_as_uint(four.w)};
#pragma unroll
      for (int tile = 0; tile < config.tiles(); ++tile)
        ptx::mma_m16n8k8_tf32(sums[i][tile], filters, pixels[tile]);
    }
  };
#pragma unroll 1
  for (;; --left) {
    for_constants<0, kLast>(multiply_step);
    if (left == 0) break;
    for_constants<kLast, kBody>(multiply_step);
    if constexpr (config.resident())
      fragments += kBody * config.step_floats() / 4;
    else
      begin_stage(Int<kParts>{});
#pragma unroll
    for (int pattern = 0; pattern < 4; ++pattern) from[pattern] += config.body_offset();
  }
}

template <DirectStemSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_stem_sm80(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y,
                     int multiprocessors, int delay, int backwards) {
  ptx::wait_for_earlier_grids(packed);
  extern __shared__ __align__(128) float memory[];
  constexpr Packed kPacked = config.packed();
  // Blocks that begin together stay together, and load, multiply and store at the same time all over the
  // device. So those that a multiprocessor gets first begin one after the other.
  if (delay > 0 && blockIdx.x < multiprocessors * config.blocks) {
    const long long begin = clock64();
    const int wait = static_cast<int>(blockIdx.x) / multiprocessors * delay;
    while (clock64() - begin < wait) __nanosleep(200);
  }
  const unsigned ring = ptx::shared_address(memory) + threadIdx.x * 16;  // this thread's first piece
  float* const window = memory + config.window_at();
  int* const kept = reinterpret_cast<int*>(memory + config.place_at());
  constexpr int kStages = config.resident() ? 2 : config.stages, kTurns = config.bodies() - 1;
  bool finite = packed[kPacked.flag_at()] == 0;
  {
    const Place at = place_of<config>(backwards ? gridDim.x - 1 - blockIdx.x : blockIdx.x);
    keep_place<config>(kept, at);
    const unsigned piece = first_piece<config>(at.filter_block);
    for_constants<0, kStages - 1>(
        [&](auto stage) { load_stage<config, stage.value, stage.value>(ring, packed, piece, kTurns); });
    constexpr int kWidth = config.load_width, kNumbers = (config.register_limit() - 32) / 2;
    if (kWidth == 1 || reinterpret_cast<unsigned long long>(x) % (4 * kWidth) == 0)
      finite = load_window<config, kWidth, kNumbers>(window, x, at) && finite;
    else  // seldom: little code is worth more than speed
      finite = load_window<config, 1, 4>(window, x, at) && finite;
  }
  ptx::cp_async_wait_group<kStages - 2>();
  const bool exact = __syncthreads_or(!finite);
  if (exact) {
    ptx::cp_async_wait_group<0>();
    store_exact<config>(x, packed, y, kept_place<config>(kept));
    return;
  }

  Sums<config> sums = {};
  {
    const unsigned piece = first_piece<config>(kept_place<config>(kept).filter_block);
    if constexpr (!config.resident())
      load_stage<config, kStages - 1, kStages - 1>(ring, packed, piece, kTurns);
    const Part part = part_of<config>(threadIdx.x / 32);
    multiply<config>(sums, memory, ring, window + config.pixel_offset(part.row, part.column), packed, piece,
                     part.filter_warp);
  }
  // Which thread this is comes from a number that the compiler cannot know to be the same as before: so
  // little but sums and operands lives through the products. What else did was spilled.
  const unsigned thread = threadIdx.x + (static_cast<unsigned>(multiprocessors) >> 31);
  const Place place = kept_place<config>(kept);
  const int lane = static_cast<int>(thread % 32), warp = static_cast<int>(thread / 32);
  const float* bias = packed + kPacked.bias_at();
  if constexpr (config.staged)
    store_staged<config>(sums, memory, bias, y, place, warp, lane);
  else
    store_direct<config>(sums, bias, y, place, warp, lane);
}

// The packed weights. The flag must be 0 before.
template <DirectStemSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_stem_sm80(const float* __restrict__ w, const float* __restrict__ bias,
                          unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, ptx::cvt_rna_tf32);
}

}  // namespace convtune::direct_stem_sm80
