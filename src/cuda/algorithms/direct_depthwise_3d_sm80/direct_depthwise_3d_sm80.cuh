// Depthwise convolution in three dimensions, on CUDA cores, in exact fp32, of either layout: each channel has
// a filter of its own. A block goes along the frames, so that x is read once:
//
//   frames of x, a tile with its margins --- cp.async ---> stages in shared memory, zeros at the padding
//   a thread: a strip of `rows` x `columns` outputs of each frame that is under way; a frame of x goes by,
//   and each of its rows is multiplied for all rows, and frames, of outputs that it belongs to:
//
//     frame 0   filter frame 0 -> output frame 0
//     frame 1   filter frame 1 -> output frame 0, filter frame 0 -> output frame 1
//     frame 2   filter frame 2 -> output frame 0, which is stored; 1 -> 1; 0 -> 2
//
// In NHWC neighbouring threads take neighbouring channels, two of halves; in NCHW neighbouring columns, four
// each. Frames of padding are neither loaded nor multiplied.
//
// Products are real ones, so numbers that are not finite spread as they should; only an infinite weight must
// not meet the zeros of the padding. pack() flags such weights, and all is then computed by exact_sum.
#include "cuda/algorithms/direct_depthwise_3d_sm80/load.cuh"
#include "cuda/algorithms/direct_depthwise_3d_sm80/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_depthwise_3d_sm80 {

// A thread's filters, from global memory into registers, or where they lie in shared memory.
template <DirectDepthwise3dSm80 config, bool kKept = config.weights_in_registers()>
struct Filter {
  const float* from;
  __device__ __forceinline__ explicit Filter(const float* taps) : from(taps) {}
  __device__ __forceinline__ float tap(int index, int channel) const {
    return from[index * config.tap_stride() + channel];
  }
};
template <DirectDepthwise3dSm80 config>
struct Filter<config, true> {
  Channels<config> kept[config.taps()];
  __device__ __forceinline__ explicit Filter(const float* taps) {
#pragma unroll
    for (int i = 0; i < config.taps(); ++i)
#pragma unroll
      for (int channel = 0; channel < config.width; ++channel)
        kept[i][channel] = taps[i * config.tap_stride() + channel];
  }
  __device__ __forceinline__ float tap(int index, int channel) const {
    return kept[index][channel];
  }
};

template <DirectDepthwise3dSm80 config>
using Sums = typename Strip<config>::Values[config.live()];

// The products with a frame, number `step` of its turn, in which the strip begins at `from`.
template <DirectDepthwise3dSm80 config>
__device__ __forceinline__ void multiply_frame(Sums<config>& sums, const Filter<config>& filter, int step,
                                               unsigned from) {
  constexpr ConvExtents a = config.conv;
#pragma unroll
  for (int input = 0; input < config.strip_rows(); ++input) {
    if (!config.uses_row(input)) continue;
    Channels<config> x[config.strip_columns()];
    read_row<config>(x, from + input * config.line_bytes());
#pragma unroll
    for (int later = 0; later < config.live(); ++later) {
      const int t = config.filter_frame(step, later);
      if (t < 0) continue;
#pragma unroll
      for (int row = 0; row < config.rows; ++row) {
        const int r = config.filter_row(input, row);
        if (r < 0) continue;
#pragma unroll
        for (int s = 0; s < a.s; ++s)
#pragma unroll
          for (int channel = 0; channel < config.width; ++channel) {
            const float weight = filter.tap((t * a.r + r) * a.s + s, channel);
#pragma unroll
            for (int column = 0; column < config.columns; ++column) {
              float& sum = sums[later][row][column][channel];
              sum = fmaf(x[column * a.stride_w + s * a.dilation_w][channel], weight, sum);
            }
          }
      }
    }
  }
}

// The sums of the next frame take the place of those that are complete; the last begin.
template <DirectDepthwise3dSm80 config>
__device__ __forceinline__ void advance(Sums<config>& sums) {
#pragma unroll
  for (int later = 0; later < config.live(); ++later)
#pragma unroll
    for (int row = 0; row < config.rows; ++row)
#pragma unroll
      for (int column = 0; column < config.columns; ++column)
#pragma unroll
        for (int channel = 0; channel < config.width; ++channel)
          sums[later][row][column][channel] =
              later + 1 < config.live() ? sums[later + 1][row][column][channel] : 0;
}

template <DirectDepthwise3dSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_depthwise_3d_sm80(const void* __restrict__ x, const float* __restrict__ packed,
                             const void* __restrict__ residual, void* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  constexpr DirectDepthwise3dSm80::Smem kAt = config.smem();
  constexpr int kStages = config.stages, kTurnFrames = config.turn_frames(), kFirst = 1 - config.live();
  using Stored = Element<config>;
  extern __shared__ __align__(16) float memory[];
  const unsigned smem = ptx::shared_address(memory);
  const Part<config> part(blockIdx.x);
  if (packed[kPacked.flag_at()] != 0) {
    compute_exactly<config>(x, packed, residual, y, part);
    return;
  }
  // Threads of nobody's strip load, too, and compute what is not stored.
  constexpr int kStrips = config.down * config.across;
  const int thread = threadIdx.x < config.used_threads() ? static_cast<int>(threadIdx.x) : 0;
  const int strip = a.nhwc ? thread / config.lanes() : thread % kStrips;
  const int first = a.nhwc ? thread % config.lanes() * config.width : thread / kStrips;
  const int volume = part.first_channel + first;
  const int image = a.nhwc ? part.image : volume / a.c, k = a.nhwc ? volume : volume % a.c;
  const Strip<config> place = {part.band * config.tile_rows() + strip / config.across * config.rows,
                               part.side * config.tile_columns() + strip % config.across * config.columns,
                               k + 1 < a.c};
  const bool exists =
      threadIdx.x < config.used_threads() && part.has_channel(first) && place.p < a.p && place.q < a.q;
  const int first_z = part.march * config.frames;
  const int count = a.z % config.frames == 0 ? config.frames : lesser(config.frames, a.z - first_z);
  const int steps = (count - kFirst) * kTurnFrames;

  const auto frame_of = [&](int step) {
    return config.frame(first_z + kFirst + step / kTurnFrames, step % kTurnFrames);
  };
  const auto has_frame = [&](int frame) { return frame >= 0 && frame < a.d; };
  const auto load = [&](int step, int slot) {
    if (step < steps && has_frame(frame_of(step)))
      load_frame<config>(static_cast<const Stored*>(x), part, frame_of(step),
                         smem + kAt.input + slot * static_cast<int>(config.frame_bytes()));
    ptx::cp_async_commit_group();
  };
#pragma unroll 1
  for (int step = 0; step < kStages - 1; ++step) load(step, step);

  const float* weights = packed + (a.nhwc ? k : static_cast<long long>(k) * config.channel_taps());
  if constexpr (!config.weights_in_registers()) {
    float* const shared = memory + kAt.weights / 4;
#pragma unroll 1
    for (int i = threadIdx.x; i < config.block_weights(); i += config.threads()) {
      const int channel = a.nhwc ? i % config.channels : i / config.channel_taps();
      const int tap = a.nhwc ? i / config.channels : i % config.channel_taps();
      shared[i] = a.nhwc ? packed[tap * config.packed_channels() + part.first_channel + channel]
                         : packed[(part.first_channel + channel) % a.c * config.channel_taps() + tap];
    }
    weights = shared + first * (a.nhwc ? 1 : config.channel_taps());
    __syncthreads();
  }
  const Filter<config> filter(weights);
  Channels<config> bias;
#pragma unroll
  for (int channel = 0; channel < config.width; ++channel)
    bias[channel] = packed[kPacked.bias_at() + k + channel];

  const unsigned mine =
      smem + kAt.input + config.strip_offset(first, strip / config.across, strip % config.across);
  Sums<config> sums = {};
  int slot = 0, step = 0;
  long long offset = a.output_offset(image, k, first_z, place.p, place.q);
  constexpr long long kFrame = 1LL * a.p * a.q * (a.nhwc ? a.k : 1);
#pragma unroll 1
  for (int turn = kFirst; turn < count; ++turn) {
    typename Strip<config>::Values added = {};
#pragma unroll
    for (int i = 0; i < kTurnFrames; ++i, ++step) {
      ptx::cp_async_wait_group<kStages - 2>();
      __syncthreads();  // the frame has come, and nobody needs the one before
      load(step + kStages - 1, slot == 0 ? kStages - 1 : slot - 1);
      if (a.residual && i == kTurnFrames - 1 && turn >= 0 && exists)
        place.load(added, static_cast<const Stored*>(residual) + offset);
      if (has_frame(config.frame(first_z + turn, i)))
        multiply_frame<config>(sums, filter, i, mine + slot * static_cast<int>(config.frame_bytes()));
      slot = slot + 1 == kStages ? 0 : slot + 1;
    }
    if (turn >= 0) {
      if (exists) place.store(sums[0], added, bias, static_cast<Stored*>(y) + offset);
      offset += kFrame;
    }
    advance<config>(sums);
  }
}

// The packed weights. The flag must be 0 before.
template <DirectDepthwise3dSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_depthwise_3d_sm80(const void* __restrict__ w, const void* __restrict__ bias,
                                  unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, __float_as_uint);
}

}  // namespace convtune::direct_depthwise_3d_sm80
