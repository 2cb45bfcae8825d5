// Gradients of depthwise weights in half precision on compute capability 9.0, channels last, strides of 1.
// Products are those of depthwise_weight_gradient_half.cuh: eight columns of dy meet sixteen of x, and the
// products of all pairs of them have the taps on their diagonals. What is other is how pixels become
// operands: nothing is transposed in shared memory.
//
//   x, dy    -> TMA, a row of a unit at a time, into a ring of stages: pixels of some channels
//   a warp   4 channels; a lane has the pixels of one column of each block of its strips: a word of two
//            blocks of one channel is halves of two words that it has, and the blocks of a product may come
//            in any order
//   products a row of x with the rows of dy that it meets, which stay in registers, a place for each that
//            is given to the next when none meets it any more
//
// All rows of all units are dealt out to `split` blocks of each channel evenly. A block leaves its sums, and
// add_up_depthwise_weight_gradient_half_sm90 adds them in the order of their ranks and rounds once, the same
// bits every time. Zeros stand for the padding: an infinity of the other factor makes NaN of them, and such a
// sum is computed again.
#include "cuda/algorithms/depthwise_weight_gradient_half_sm90/load.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::depthwise_weight_gradient_half_sm90 {

template <DepthwiseWeightGradientHalfSm90 config>
struct Consumer {
  static constexpr ConvExtents a = config.conv;
  static constexpr DepthwiseWeightGradientHalfSm90::Smem kAt = config.smem();
  static constexpr int kStrips = config.strips, kAcross = config.across(), kDepth = config.depth();
  static constexpr int kEight = 8 * config.pixel_bytes();
  static constexpr bool kDeep = config.is_deep();
  struct Pixels {
    unsigned x[kStrips][kAcross + 1][2], dy[kStrips][kAcross][2];  // words of two channels
  };
  unsigned smem;
  int lane, quad;
  unsigned inputs[kStrips], gradients[kStrips];  // behind a stage's begin
  // Offset from the first block's column at which the last block's is read. 0: a strip has no such column,
  // and what is read in its place is not kept.
  unsigned last;
  float sums[4][a.r][4] = {};
  unsigned rows[kDepth][4][2];
  Ring<config.stages> ring;

  __device__ __forceinline__ Consumer(unsigned shared, int warp) : smem(shared), quad(warp) {
    lane = static_cast<int>(threadIdx.x) % 32;
    const int column = lane / 4;
    const bool has_last = 8 * (kAcross - 1) + column < config.width;
    last = has_last ? greater((kAcross - 1) * kEight, 1) : 0;
    if constexpr (config.bias) {
      const unsigned zeros[4] = {};
      ptx::st_shared_v4(biases(), zeros);
    }
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      const int strip = lane % 4 + 4 * i;
      inputs[i] = config.offset(config.pixel_of(strip, config.input_pitch()) + column, quad);
      gradients[i] = config.offset(config.input_pixels() + config.pixel_of(strip, config.gradient_pitch()) +
                                       (kAcross > 1 || has_last ? column : 0),
                                   quad);
    }
  }
  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int row = 0; row < kDepth; ++row)
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[row][i][0] = rows[row][i][1] = 0;
  }
  __device__ __forceinline__ void load_input(Pixels& to, unsigned stage) const {
#pragma unroll
    for (int i = 0; i < kStrips; ++i)
#pragma unroll
      for (int j = 0; j <= kAcross; ++j)
        ptx::ld_shared_v2(to.x[i][j][0], to.x[i][j][1], stage + inputs[i] + j * kEight);
  }
  __device__ __forceinline__ void load_gradient(Pixels& to, unsigned stage) const {
#pragma unroll
    for (int i = 0; i < kStrips; ++i)
#pragma unroll
      for (int j = 0; j < kAcross; ++j) {
        const bool masks = config.width % 8 != 0 && j + 1 == kAcross;
        const unsigned behind = masks && kAcross > 1 ? last : static_cast<unsigned>(j * kEight);
        ptx::ld_shared_v2(to.dy[i][j][0], to.dy[i][j][1], stage + gradients[i] + behind);
        if (masks && last == 0) to.dy[i][j][0] = to.dy[i][j][1] = 0;
      }
  }
  // Two slots' blocks of one channel, of x so many blocks on; slots beyond all have zeros.
  __device__ __forceinline__ static unsigned two_of(const unsigned first, const unsigned second,
                                                    int channel) {
    return __byte_perm(first, second, channel % 2 == 0 ? 0x5410 : 0x7632);
  }
  __device__ __forceinline__ static unsigned input_of(const Pixels& from, int slot, int more, int channel) {
    return slot < config.slots() ? from.x[slot / kAcross][slot % kAcross + more][channel / 2] : 0;
  }
  __device__ __forceinline__ static unsigned gradient_of(const Pixels& from, int slot, int channel) {
    return slot < config.slots() ? from.dy[slot / kAcross][slot % kAcross][channel / 2] : 0;
  }
  __device__ __forceinline__ static void multiply(float (&to)[4], const unsigned (&x)[4],
                                                  const unsigned (&dy)[2]) {
    constexpr bool kBf16 = a.x_type == ElementType::bf16;
    if constexpr (kDeep && kBf16)
      ptx::mma_m16n8k16_bf16(to, x, dy);
    else if constexpr (kDeep)
      ptx::mma_m16n8k16_f16(to, x, dy);
    else if constexpr (kBf16)
      ptx::mma_m16n8k8_bf16(to, x[0], x[1], dy[0]);
    else
      ptx::mma_m16n8k8_f16(to, x[0], x[1], dy[0]);
  }
  // A stage: its row of dy is kept at `place`, and its row of x meets those that are.
  __device__ __forceinline__ void step(int place, bool multiplies, bool counts) {
    Pixels pixels;
    ring.wait_full(smem + kAt.full);
    const unsigned stage = smem + kAt.stages + ring.slot * config.stage_bytes();
    load_gradient(pixels, stage);
#pragma unroll
    for (int channel = 0; channel < 4; ++channel)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        rows[place][channel][i] =
            two_of(gradient_of(pixels, 2 * i, channel), gradient_of(pixels, 2 * i + 1, channel), channel);
    if (config.bias && counts) add_bias(rows[place]);
    if (!multiplies) return release();
    load_input(pixels, stage);
    unsigned x[2][4];
#pragma unroll
    for (int two = 0; two < 2; ++two) {
#pragma unroll
      for (int of_two = 0; of_two < 2; ++of_two)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          x[of_two][i] = two_of(input_of(pixels, i / 2 * 2, i % 2, 2 * two),
                                input_of(pixels, i / 2 * 2 + 1, i % 2, 2 * two), of_two);
      if (two == 0) release();
#pragma unroll
      for (int r = 0; r < a.r; ++r)
#pragma unroll
        for (int of_two = 0; of_two < 2; ++of_two)
          multiply(sums[2 * two + of_two][r], x[of_two],
                   rows[(place + kDepth - r * a.dilation_h) % kDepth][2 * two + of_two]);
    }
  }
  // A lane's sums of dy, which lie in shared memory: registers are all taken.
  __device__ __forceinline__ unsigned biases() const {
    return smem + kAt.biases + 16 * threadIdx.x;
  }
  __device__ __forceinline__ void add_bias(const unsigned (&row)[4][2]) const {
    float sum[4];
    ptx::ld_shared_v4(sum[0], sum[1], sum[2], sum[3], biases());
#pragma unroll
    for (int channel = 0; channel < 4; ++channel)
#pragma unroll
      for (int i = 0; i < (kDeep ? 2 : 1); ++i)
        sum[channel] += low_half<a.x_type>(row[channel][i]) + high_half<a.x_type>(row[channel][i]);
    ptx::st_shared_v4(biases(), sum);
  }
  // Gives the stage back. An arrival does not wait for loads of shared memory that this warp has asked for,
  // and ptxas moves their first use behind it, while TMA, which writes there next, is of another proxy: the
  // fence orders both, so each lane that has read makes one (decision 212).
  __device__ __forceinline__ void release() {
    if constexpr (config.aligned) ptx::fence_proxy_async();
    __syncwarp();
    ptx::mbarrier_arrive_if(ring.barrier(smem + kAt.empty), lane == 0);
    ring.next();
  }
  __device__ __forceinline__ void run(int rank) {
    Walk<config> walk(rank);
#pragma unroll 1
    while (walk.next()) {
      clear();
      int at = walk.begin;
#pragma unroll 1
      while (at < walk.end) {
#pragma unroll
        for (int place = 0; place < kDepth; ++place) {
          if (at == walk.end) break;
          step(place, at >= walk.multiplies, at >= walk.counts);
          ++at;
        }
      }
    }
  }
  // Adds diagonals, and leaves them for the block's rank. `shared`: of this warp alone.
  __device__ __forceinline__ void leave(float* shared, float* __restrict__ to) {
    constexpr int kRounds = ceil_div(config.taps(), 32);
    float taps[kRounds][4];
#pragma unroll
    for (int channel = 0; channel < 4; ++channel) {
      __syncwarp();  // nobody reads what was there before
#pragma unroll
      for (int r = 0; r < a.r; ++r)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          shared[r * config.kProductFloats + (lane / 4 + i / 2 * 8) * config.kRowFloats + lane % 4 * 2 +
                 i % 2] = sums[channel][r][i];
      __syncwarp();
#pragma unroll
      for (int round = 0; round < kRounds; ++round) {
        const int tap = lane + 32 * round < config.taps() ? lane + 32 * round : 0;
        const float* const from =
            shared + tap / a.s * config.kProductFloats + tap % a.s * a.dilation_w * config.kRowFloats;
        float sum = 0;
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += from[i * (config.kRowFloats + 1)];
        taps[round][channel] = sum;
      }
    }
#pragma unroll
    for (int round = 0; round < kRounds; ++round)
      if (lane + 32 * round < config.taps())
        *reinterpret_cast<float4*>(to + (lane + 32 * round) * config.all_channels() + 4 * quad) = {
            taps[round][0], taps[round][1], taps[round][2], taps[round][3]};
    if constexpr (config.bias) {
      float bias[4];
      ptx::ld_shared_v4(bias[0], bias[1], bias[2], bias[3], biases());
#pragma unroll
      for (int channel = 0; channel < 4; ++channel)
#pragma unroll
        for (int apart = 16; apart > 0; apart /= 2)
          bias[channel] += __shfl_sync(0xffffffff, bias[channel], lane ^ apart);
      if (lane == 0)
        *reinterpret_cast<float4*>(to + config.taps() * config.all_channels() + 4 * quad) = {
            bias[0], bias[1], bias[2], bias[3]};
    }
  }
};

template <DepthwiseWeightGradientHalfSm90 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    depthwise_weight_gradient_half_sm90(const __grid_constant__ Maps maps, const void* __restrict__ x,
                                        const void* __restrict__ dy, float* __restrict__ partial) {
  extern __shared__ __align__(1024) unsigned char memory[];
  constexpr DepthwiseWeightGradientHalfSm90::Smem kAt = config.smem();
  const unsigned smem = ptx::shared_address(memory);
  if (threadIdx.x == 0) {
    Ring<config.stages>::init(smem + kAt.full, config.aligned ? 1 : 32 * config.copying(), smem + kAt.empty,
                              config.consumers());
    ptx::st_shared(smem + kAt.block, blockIdx.x);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::wait_for_earlier_grids(x, dy);
  const int chunk = static_cast<int>(blockIdx.x) % config.chunks();
  const int rank = static_cast<int>(blockIdx.x) / config.chunks();
  const int warp = __shfl_sync(0xffffffff, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp >= config.consumers()) {
    if constexpr (config.passes_registers()) ptx::leave_registers<config.kCopying>();
    const int thread = static_cast<int>(threadIdx.x) - 32 * config.consumers();
    if constexpr (!config.aligned)
      copy_rows<config>(x, dy, smem, rank, chunk * config.channels(), thread);
    else if (warp == config.consumers())
      load_rows<config>(maps, smem, rank, chunk * config.channels(), thread == 0);
    __syncthreads();
  } else {
    if constexpr (config.passes_registers()) ptx::take_registers<config.register_limit()>();
    Consumer<config> consumer(smem, warp);
    consumer.run(rank);
    __syncthreads();  // all stages are read
    // A register all the while would be one too many.
    const int block = static_cast<int>(ptx::ld_shared(smem + kAt.block));
    consumer.leave(reinterpret_cast<float*>(memory + kAt.stages) + warp * (config.sum_bytes() / 4),
                   partial + 4LL * (block / config.chunks()) * config.rank_fours() +
                       block % config.chunks() * config.channels());
  }
}

// The sums of all blocks, added up.
template <DepthwiseWeightGradientHalfSm90 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_depthwise_weight_gradient_half_sm90(const float* __restrict__ partial, const void* __restrict__ x,
                                               const void* __restrict__ dy, void* __restrict__ dw,
                                               void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  add_up_ranks<config>(partial, x, dy, dw, dbias);
}

// Gradients of weights need none.
template <DepthwiseWeightGradientHalfSm90 config>
__global__ void pack_depthwise_weight_gradient_half_sm90() {}

}  // namespace convtune::depthwise_weight_gradient_half_sm90
