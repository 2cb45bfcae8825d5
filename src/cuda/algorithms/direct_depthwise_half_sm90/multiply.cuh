// A warp of direct_depthwise_half_sm90.cuh that multiplies: four channels of 16 strips, from pixels in shared
// memory to pixels in shared memory.
#pragma once

#include "cuda/algorithms/direct_depthwise_half_sm90/load.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/ring.cuh"

namespace convtune::direct_depthwise_half_sm90 {

template <ElementType kType>
__device__ __forceinline__ void multiply(float (&sums)[4], const unsigned (&strips)[4],
                                         const unsigned (&band)[2]) {
  if constexpr (kType == ElementType::bf16)
    ptx::mma_m16n8k16_bf16(sums, strips, band);
  else
    ptx::mma_m16n8k16_f16(sums, strips, band);
}

template <DirectDepthwiseHalfSm90 config>
struct Consumer {
  static constexpr ConvExtents a = config.conv;
  static constexpr DirectDepthwiseHalfSm90::Smem kAt = config.smem();
  // Pixels as they come: two columns 4 apart, words of two channels each, of eights of columns: two of a
  // lane's first strip, then two of its second, or of a pair's three.
  static constexpr int kEights = config.paired() ? 3 : 4;
  static constexpr int kEight = 8 * config.pixel_bytes();
  static constexpr bool kOdd = config.across % 2 == 1;  // a pair's second strip may not be one
  struct Pixels {
    unsigned words[kEights][2][2];
  };
  unsigned smem;
  int lane;
  unsigned from[2][2];  // per strip, or of a pair's first and third eight, two columns in a stage
  unsigned to[2][2];    // and both outputs, in a slot
  bool stores[2][2];
  bool swapped;           // this lane's strips begin with the second of two columns
  unsigned selectors[2];  // that make a word of two columns of the one channel of two, or the other
  unsigned bands[4][a.r][2];
  float bias[4];
  unsigned trace = 0;  // halves of it become NaN if a sum is
  float sums[config.rows][4][4] = {};
  Pixels pixels;
  Ring<config.stages> stage = {};
  Ring<config.slots()> slot = {};

  __device__ __forceinline__ Consumer(unsigned shared, const float* __restrict__ packed, int warp,
                                      int this_lane)
      : smem(shared), lane(this_lane) {
    const int quad = warp % config.quads(), group = lane / 4, thread = lane % 4;
    swapped = group % 2 == 1;
    selectors[0] = swapped ? 0x1054 : 0x5410;
    selectors[1] = swapped ? 0x3276 : 0x7632;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int unit = config.unit_of(warp / config.quads(), group + 8 * i);
      const int strip = config.first_strip(config.read_unit(unit));
      const bool has_second = !kOdd || config.strip_across(strip) + 1 < config.across;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int input = thread + 4 * config.loaded_column(j, swapped);
        const int column = thread + 4 * config.stored_column(j, swapped);
        from[i][j] = smem + kAt.inputs + config.offset(config.input_pixel(strip) + input, quad);
        to[i][j] = smem + kAt.outputs + config.offset(config.output_pixel(strip) + column, quad);
        stores[i][j] = unit < config.units() && column < config.width();
        if (config.paired() && i == 1) {
          from[i][j] += has_second ? 2 * kEight : kEight;
          to[i][j] += kEight;
          stores[i][j] = stores[i][j] && has_second;
        }
      }
    }
    load_filters(packed, static_cast<int>(blockIdx.x) % config.chunks() * config.channels() + 4 * quad);
  }
  // Entry (k, n) of a band matrix is the tap of column k behind the first of output n.
  __device__ __forceinline__ void load_filters(const float* __restrict__ packed, int channel) {
    constexpr Packed kPacked = config.packed();
    const int place = config.origin() + lane % 4 - a.stride_w * config.output_column(lane / 4);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const auto* const words = reinterpret_cast<const uint4*>(
            packed + (channel + i) * config.channel_words() + (place + 8 * j) * config.filter_words());
#pragma unroll
        for (int four = 0; four < config.filter_words() / 4; ++four) {
          const uint4 some = words[four];
          const unsigned loaded[4] = {some.x, some.y, some.z, some.w};
#pragma unroll
          for (int r = 0; r < 4; ++r)
            if (4 * four + r < a.r) bands[i][4 * four + r][j] = loaded[r];
        }
      }
      bias[i] = channel + i < a.c ? packed[kPacked.bias_at() + channel + i] : 0;
    }
  }

  __device__ __forceinline__ void load(Pixels& to) const {
    stage.wait_full(smem + kAt.full);
    const unsigned at = stage.slot * config.stage_bytes();
#pragma unroll
    for (int i = 0; i < kEights; ++i)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        // If all pairs have their second, a constant takes no register.
        const unsigned first =
            config.paired() && !kOdd ? from[0][j] + i * kEight : from[i / 2][j] + i % 2 * kEight;
        ptx::ld_shared_v2(to.words[i][j][0], to.words[i][j][1], first + at);
      }
  }
  __device__ __forceinline__ void release() {
    __syncwarp();
    ptx::mbarrier_arrive_if(stage.barrier(smem + kAt.empty), lane == 0);
    stage.next();
  }
  // The operand of a channel: of the one strip and the other columns 0 and 4 of a lane, then 8 and 12.
  __device__ __forceinline__ void make_operand(unsigned (&to_strips)[4], int channel) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto& eight = pixels.words[config.paired() ? i % 2 + i / 2 : i % 2 * 2 + i / 2];
      to_strips[i] = __byte_perm(eight[0][channel / 2], eight[1][channel / 2], selectors[channel % 2]);
    }
  }

  __device__ __forceinline__ unsigned place(int i, int j) const {
    return config.paired() ? to[0][j] + i * kEight : to[i][j];
  }
  // A row of outputs, where its residual waits.
  __device__ __forceinline__ void finish(const float (&sums)[4][4]) {
    slot.wait_full(smem + kAt.ready);
    const unsigned at = slot.slot * config.slot_bytes();
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned added[2][2] = {}, words[2][2];
      if constexpr (a.residual)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (stores[i][j]) ptx::ld_shared_v2(added[j][0], added[j][1], place(i, j) + at);
      if constexpr (a.residual) exchange(added);
#pragma unroll
      for (int column = 0; column < 2; ++column)
#pragma unroll
        for (int two = 0; two < 2; ++two) {
          const unsigned word = finish_halves<config.conv>(sums[2 * two][2 * i + column], bias[2 * two],
                                                           sums[2 * two + 1][2 * i + column],
                                                           bias[2 * two + 1], added[column][two]);
          if constexpr (a.y_type == ElementType::bf16)
            trace = ptx::max_nan_bf16x2(trace, word);
          else
            trace = ptx::max_nan_f16x2(trace, word);
          words[column][two] = word;
        }
      exchange(words);
#pragma unroll
      for (int j = 0; j < 2; ++j)
        if (stores[i][j])
          ptx::st_shared_v2(place(i, j) + at, __uint_as_float(words[j][0]), __uint_as_float(words[j][1]));
    }
    __syncwarp();
    ptx::mbarrier_arrive_if(slot.barrier(smem + kAt.finished), lane == 0);
    slot.next();
  }
  // Columns in the order in which this lane stores them, and back.
  __device__ __forceinline__ void exchange(unsigned (&words)[2][2]) const {
    if constexpr (config.staggered()) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const unsigned first = swapped ? words[1][i] : words[0][i];
      words[1][i] = swapped ? words[0][i] : words[1][i];
      words[0][i] = first;
    }
  }

  // An input row's products with all filter rows, and the outputs that are complete behind them.
  __device__ __forceinline__ void multiply_row(const unsigned (&strips)[4][4], int input) {
#pragma unroll
    for (int row = 0; row < config.rows; ++row) {
      const int r = input - row * a.stride_h;
      if (r < 0 || r >= a.r) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (r == 0)
#pragma unroll
          for (float& sum : sums[row][i]) sum = 0;
        multiply<a.x_type>(sums[row][i], strips[i], bands[i][r]);
      }
    }
  }
  __device__ __forceinline__ void finish_row(int input) {
#pragma unroll
    for (int row = 0; row < config.rows; ++row)
      if (config.finished(input) == row) finish(sums[row]);
  }
  // The operands of all four channels; the pixels of the next row come meanwhile.
  __device__ __forceinline__ void next_row(unsigned (&strips)[4][4], bool more) {
#pragma unroll
    for (int i = 0; i < 4; ++i) make_operand(strips[i], i);
    release();
    if (more) load(pixels);
  }
  __device__ __forceinline__ void compute_tile(bool more) {
#pragma unroll
    for (int input = 0; input < config.strip_rows(); ++input) {
      unsigned strips[4][4];
      next_row(strips, input + 1 < config.strip_rows() || more);
      multiply_row(strips, input);
      finish_row(input);
    }
  }
  // Tiles below each other: an input row is multiplied for rows of outputs of its tile, and for those of the
  // tile above which are not complete.
  __device__ __forceinline__ void compute_run(int count, bool more) {
#pragma unroll 1
    for (int turn = 0; turn <= count; ++turn) {
      const bool goes_on = turn > 0, begins = turn < count;
#pragma unroll
      for (int input = 0; input < config.turn_rows(); ++input) {
        const bool may_end = input == a.r - a.stride_h - 1;
        unsigned strips[4][4];
        next_row(strips, !may_end || begins || more);
        if (goes_on) multiply_row(strips, input + config.turn_rows());
        if (begins) multiply_row(strips, input);
        if (goes_on) finish_row(input + config.turn_rows());
        if (begins) finish_row(input);
        if (may_end && !begins) break;
      }
    }
  }
  __device__ __forceinline__ bool found_nan() const {
    const float low = low_half<a.y_type>(trace), high = high_half<a.y_type>(trace);
    return low != low || high != high;
  }
  __device__ __forceinline__ void run() {
    Walk<config> walk;
    load(pixels);
#pragma unroll 1
    while (walk.more()) {
      walk.next();
      if constexpr (config.rolls())
        compute_run(walk.count, walk.more());
      else
        compute_tile(walk.more());
    }
  }
};

}  // namespace convtune::direct_depthwise_half_sm90
