// Gradients of depthwise weights in half precision on tensor cores, strides of 1. Eight columns of dy from
// 8b on meet sixteen of x from there on, and the products of all pairs of them have the taps on their
// diagonals: dw[r][s] is the sum over i of C_r[i + s][i], where
//
//   C_r[j][i] = sum over blocks b and rows p of x[p + r][8b + j] * dy[p][8b + i]
//
// is one chain of products, 16 columns of x by 8 of dy, whose terms are 16 blocks of a row: of one strip, or
// of several that go down their images together. Nearly half of what is multiplied counts, and everything is
// read once:
//
//   x, dy   NHWC: 16 bytes a thread, 8 channels of 2 columns; NCHW: 8 bytes of a plane as it is
//           --> planes of channels in shared memory, `step` rows of each; of NHWC some steps `ahead`, which
//           lie in shared memory as they came
//   a warp  a channel or some: a row of x is an operand of all filter rows at once, and the rows of dy
//           that it meets stay in registers
//
// In the end diagonals are added. `split` blocks share the strips: add_up_depthwise_weight_gradient_half adds
// their sums in the order of their ranks and rounds once, the same bits every time. Zeros stand for the
// padding: an infinity of the other factor makes NaN of them, and such a sum is computed again.
#include "cuda/algorithms/depthwise_weight_gradient_half/load.cuh"
#include "cuda/algorithms/depthwise_weight_gradient_half/load_planes.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::depthwise_weight_gradient_half {

// A warp's channels: their sums, and the rows of dy that the next row of x meets.
template <DepthwiseWeightGradientHalf config>
struct Warp {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kChannels = config.warp_channels(), kKept = config.depth() - 1;
  // Channels whose dy is read at once, and how often that is done.
  static constexpr int kTogether = lesser(kChannels, 2);
  int lane, first;
  unsigned inputs, gradients;  // behind a buffer's begin, of the first channel
  bool reads_input, reads_gradient;
  float sums[kChannels][a.r][4] = {}, bias[kChannels][4] = {};
  unsigned rows[kChannels][kKept + config.step][2] = {};

  __device__ __forceinline__ Warp() {
    lane = static_cast<int>(threadIdx.x) % 32;
    first = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0) * kChannels;
    // Matrices of x: blocks 0 to 7, their first 8 columns and the others; blocks 8 to 15. Of dy: blocks 0 to
    // 7 and 8 to 15, of one channel and of the next.
    const int of_x = lane / 16 * 8 + lane % 8, of_dy = lane % 16;
    reads_input = of_x < config.slots(), reads_gradient = of_dy < config.slots();
    inputs = config.channel_at(first) + config.input_at(0, of_x / config.across) + of_x % config.across * 16 +
             lane / 8 % 2 * 16;
    gradients = config.channel_at(first) + config.gradient_at(0, of_dy / config.across) +
                of_dy % config.across * 16 + (kTogether == 2 ? lane / 16 * config.plane_bytes() : 0);
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel)
#pragma unroll
      for (int row = 0; row < kKept; ++row) rows[channel][row][0] = rows[channel][row][1] = 0;
  }
  __device__ __forceinline__ static void multiply(float (&to)[4], const unsigned (&x)[4],
                                                  const unsigned (&dy)[2]) {
    if constexpr (a.x_type == ElementType::bf16)
      ptx::mma_m16n8k16_bf16(to, x, dy);
    else
      ptx::mma_m16n8k16_f16(to, x, dy);
  }
  // The products of a buffer's rows.
  __device__ __forceinline__ void add(unsigned buffer, unsigned zeros) {
#pragma unroll
    for (int row = 0; row < config.step; ++row) {
#pragma unroll
      for (int channel = 0; channel < kChannels; channel += kTogether) {
        unsigned of_two[4];
        const unsigned from =
            buffer + gradients + channel * config.plane_bytes() + row * (16 * config.gradient_units());
        ptx::ldmatrix_x4_trans(of_two, reads_gradient ? from : zeros);
#pragma unroll
        for (int i = 0; i < kTogether; ++i)
          rows[channel + i][kKept + row][0] = of_two[2 * i],
                                    rows[channel + i][kKept + row][1] = of_two[2 * i + 1];
      }
#pragma unroll
      for (int channel = 0; channel < kChannels; ++channel) {
        unsigned x[4];
        const unsigned from =
            buffer + inputs + channel * config.plane_bytes() + row * (16 * config.input_units());
        ptx::ldmatrix_x4_trans(x, reads_input ? from : zeros);
#pragma unroll
        for (int r = 0; r < a.r; ++r)
          multiply(sums[channel][r], x, rows[channel][kKept + row - r * a.dilation_h]);
        if constexpr (config.bias) {
          constexpr unsigned kOnes = a.x_type == ElementType::bf16 ? 0x3f803f80u : 0x3c003c00u;
          const unsigned ones[4] = {kOnes, kOnes, kOnes, kOnes};
          multiply(bias[channel], ones, rows[channel][kKept + row]);
        }
      }
    }
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel)
#pragma unroll
      for (int row = 0; row < kKept; ++row)
#pragma unroll
        for (int i = 0; i < 2; ++i) rows[channel][row][i] = rows[channel][row + config.step][i];
  }
  // Adds diagonals, and leaves them for the block's rank. `shared`: of this warp alone.
  __device__ __forceinline__ void leave(float* shared, float* __restrict__ partial, int first_channel) const {
    const auto put = [&](const float(&four)[4]) {
      __syncwarp();  // nobody reads what was there before
      float* const to = shared + lane / 4 * 8 + lane % 4 * 2;
      to[0] = four[0], to[1] = four[1], to[64] = four[2], to[65] = four[3];
      __syncwarp();
    };
#pragma unroll
    for (int channel = 0; channel < kChannels; ++channel) {
      float* const to = partial + first_channel + first + channel;
#pragma unroll
      for (int r = 0; r < a.r; ++r) {
        put(sums[channel][r]);
        if (lane >= a.s) continue;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += shared[(i + lane * a.dilation_w + config.shift()) * 8 + i];
        to[(r * a.s + lane) * config.all_channels()] = sum;
      }
      if constexpr (config.bias) {
        put(bias[channel]);
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += shared[i];
        if (lane == 0) to[config.taps() * config.all_channels()] = sum;
      }
    }
  }
};

// The products of a block's strips, of which a step is on its way in registers while the one before it is
// multiplied.
template <DepthwiseWeightGradientHalf config, class Loads>
__device__ __forceinline__ void add_fetched(Warp<config>& warp, Loads& loader, unsigned smem, int rank) {
  constexpr int kStages = config.stages(), kGroups = static_cast<int>(config.groups());
  const unsigned zeros = smem + config.zeros_at();
  loader.fetch();
  loader.store(smem);
  __syncthreads();
  unsigned buffer = 0;
#pragma unroll 1
  for (int group = rank; group < kGroups; group += config.split) {
    warp.clear();
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      const bool last = stage + 1 == kStages;
      if (last) loader.begin(group + config.split);
      loader.fetch();
      warp.add(smem + buffer, zeros);
      buffer = config.buffer_bytes() - buffer;
      loader.store(smem + buffer);
      __syncthreads();  // the next rows are there, and nobody reads these any more
    }
  }
}

// As above, with more steps on their way, each in a place of shared memory.
template <DepthwiseWeightGradientHalf config, class Loads>
__device__ __forceinline__ void add_asked(Warp<config>& warp, Loads& loader, unsigned smem, int rank) {
  constexpr int kStages = config.stages(), kGroups = static_cast<int>(config.groups());
  const unsigned zeros = smem + config.zeros_at(), coming = smem + config.coming_at();
  int asked = 0, asked_group = rank;
  const auto ask = [&](unsigned place) {
    if (asked_group < kGroups) {
      loader.ask(coming + place);
      if (++asked == kStages) {
        asked = 0, asked_group += config.split;
        loader.begin(asked_group);
      }
    }
    ptx::cp_async_commit_group();
  };
#pragma unroll 1
  for (int i = 0; i < config.ahead; ++i) ask(i * config.coming_bytes());
  unsigned buffer = 0, place = 0;
#pragma unroll 1
  for (int group = rank; group < kGroups; group += config.split) {
    warp.clear();
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) {
      ptx::cp_async_wait_group<config.ahead - 1>();
      loader.store_asked(coming + place, smem + buffer);
      __syncthreads();  // these rows are there, and nobody reads those before them any more
      ask(place);
      warp.add(smem + buffer, zeros);
      buffer = config.buffer_bytes() - buffer;
      place = place + config.coming_bytes() == config.ahead * config.coming_bytes()
                  ? 0
                  : place + config.coming_bytes();
    }
  }
  __syncthreads();
}

template <DepthwiseWeightGradientHalf config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    depthwise_weight_gradient_half(const void* __restrict__ x, const void* __restrict__ dy,
                                   float* __restrict__ partial) {
  ptx::wait_for_earlier_grids(x, dy);
  extern __shared__ __align__(128) unsigned char memory[];
  const unsigned smem = ptx::shared_address(memory);
  const int chunk = static_cast<int>(blockIdx.x) % config.chunks();
  const int rank = static_cast<int>(blockIdx.x) / config.chunks();
  constexpr ConvExtents a = config.conv;
  typename LoaderOf<a.nhwc, config>::Type loader(static_cast<const unsigned short*>(x),
                                                 static_cast<const unsigned short*>(dy),
                                                 chunk * config.channels());
  if (threadIdx.x < 4) ptx::st_shared(smem + config.zeros_at() + 4 * threadIdx.x, 0u);
  Warp<config> warp;
  loader.begin(rank);
  if constexpr (config.ahead > 0 && config.aligned)
    add_asked(warp, loader, smem, rank);
  else
    add_fetched(warp, loader, smem, rank);
  warp.leave(reinterpret_cast<float*>(memory) + static_cast<int>(threadIdx.x) / 32 * (config.kSumBytes / 4),
             partial + 4LL * rank * config.rank_fours(), chunk * config.channels());
}

// The sums of all blocks, added up.
template <DepthwiseWeightGradientHalf config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_depthwise_weight_gradient_half(const float* __restrict__ partial, const void* __restrict__ x,
                                          const void* __restrict__ dy, void* __restrict__ dw,
                                          void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  add_up_ranks<config>(partial, x, dy, dw, dbias);
}

// Gradients of weights need none.
template <DepthwiseWeightGradientHalf config>
__global__ void pack_depthwise_weight_gradient_half() {}

}  // namespace convtune::depthwise_weight_gradient_half
