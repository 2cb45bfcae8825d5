// Depthwise convolution of channels last, on CUDA cores, in exact fp32: each channel has a filter of its own.
// Such layers wait for memory. In NHWC a position's channels lie beside each other, so neighbouring threads
// take neighbouring channels, and all that they load and store are whole runs:
//
//   x, rows of a tile with their margins, `channels` of each position --- cp.async ---> a ring of rows in
//   shared memory, zeros at the padding; rows for the next passes are on their way while this one computes
//   a thread: a channel, its filter in registers; a strip of `rows` x `columns` outputs a turn; input rows go
//   by, and each is multiplied for all output rows that it belongs to
//
// Products are real ones, so numbers that are not finite spread as they should; only an infinite weight must
// not meet the zeros of the padding. pack() flags such weights, and all is then computed by exact_sum.
#include "cuda/algorithms/direct_depthwise_sm80/config.h"
#include "cuda/tile/exact_sum.cuh"
#include "cuda/ptx/sm80.cuh"

namespace convtune {
namespace depthwise_sm80 {

// What a block computes.
template <DirectDepthwiseSm80 config>
struct Part {
  int chunk, side, band, image;

  __device__ explicit Part(unsigned block) {
    chunk = static_cast<int>(block % config.chunks());
    block /= config.chunks();
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    band = static_cast<int>(block % config.bands());
    image = static_cast<int>(block / config.bands());
  }
  __device__ int first_channel() const { return chunk * config.channels; }
};

// Rows [begin, end) of a tile's input into the ring, four channels at a time where it can be.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void load_rows(const float* __restrict__ x, float* ring, const Part<config>& part,
                                          int begin, int end) {
  constexpr Conv2dExtents a = config.conv;
  constexpr int kWidth = config.vectors() && config.aligned ? 4 : 1;
  constexpr int kAcross = config.channels / kWidth, kColumns = config.input_columns();
  constexpr bool kKeeps = config.threads() % kAcross == 0;  // a thread its channels
  constexpr int kStep = kKeeps ? config.threads() / kAcross : 1;
  const int top = config.first_row(part.band), left = config.first_column(part.side);
  const float* image = x + static_cast<long long>(part.image) * a.h * a.w * a.c + part.first_channel();
  const unsigned to = ptx::shared_address(ring);
  const int all = end * kColumns;  // positions
  const auto load = [&](int position, int channel) {
    const int tile_row = position / kColumns, tile_column = position % kColumns;
    const int row = top + tile_row, column = left + tile_column;
    const bool inside = (config.all_rows() || (row >= 0 && row < a.h)) &&
                        (config.all_columns() || (column >= 0 && column < a.w)) &&
                        (a.c % config.channels == 0 || part.first_channel() + channel < a.c);
    const float* from = image + (inside ? (row * a.w + column) * a.c + channel : 0);
    const int there = (tile_row % config.ring_rows() * kColumns + tile_column) * config.channels + channel;
    if constexpr (kWidth == 4)
      ptx::cp_async_16(to + there * 4, from, inside ? 16 : 0);
    else
      ptx::cp_async_4(to + there * 4, from, inside ? 4 : 0);
  };
  if constexpr (kKeeps && kWidth == 4) {
    const int channel = static_cast<int>(threadIdx.x) % kAcross * kWidth;
#pragma unroll 4
    for (int position = begin * kColumns + static_cast<int>(threadIdx.x) / kAcross; position < all;
         position += kStep)
      load(position, channel);
  } else {
#pragma unroll 1
    for (int i = begin * kColumns * kAcross + static_cast<int>(threadIdx.x); i < all * kAcross;
         i += config.threads())
      load(i / kAcross, i % kAcross * kWidth);
  }
}

template <DirectDepthwiseSm80 config>
using Sums = float[config.rows][config.columns];

// A strip's input: `columns` is the ring at its first column and its channel, `slot` where its first row is.
template <DirectDepthwiseSm80 config>
struct Strip {
  unsigned columns;
  int slot;

  __device__ __forceinline__ unsigned row(int tile_row) const {
    constexpr bool kWraps = config.ring_rows() < config.input_rows();
    const bool wraps = kWraps && slot + tile_row >= config.ring_rows();
    return columns + (slot + tile_row - (wraps ? config.ring_rows() : 0)) * (config.row_floats() * 4);
  }
  // What the strip meets of a row. Statements: the optimizer thinks half as long about them as about loads.
  __device__ __forceinline__ void read(float (&x)[config.strip_columns()], unsigned row) const {
#pragma unroll
    for (int column = 0; column < config.strip_columns(); ++column)
      if (config.uses_column(column))
        asm volatile("ld.shared.f32 %0, [%1];"
                     : "=f"(x[column])
                     : "r"(row + config.tile_column(0, column) * config.channels * 4));
  }
};

// A filter row's products with an input row.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void multiply_row(float (&sums)[config.columns],
                                             const float (&x)[config.strip_columns()],
                                             const float (&weights)[config.conv.s]) {
#pragma unroll
  for (int s = 0; s < config.conv.s; ++s)
#pragma unroll
    for (int column = 0; column < config.columns; ++column) {
      const int at = column * config.conv.stride_w + s * config.conv.dilation_w;
      if (config.has_column(at)) sums[column] = fmaf(x[at], weights[s], sums[column]);
    }
}

// A thread's filter, in registers: input rows go by, each read once.
template <DirectDepthwiseSm80 config>
struct KeptFilter {
  static constexpr int kRow = config.conv.s;
  float kept[config.conv.r][kRow];

  __device__ __forceinline__ explicit KeptFilter(const float* packed) {
#pragma unroll
    for (int r = 0; r < config.conv.r; ++r)
#pragma unroll
      for (int s = 0; s < kRow; ++s) kept[r][s] = packed[(r * kRow + s) * config.packed_channels()];
  }
  __device__ __forceinline__ void multiply(Sums<config>& sums, const Strip<config>& strip) const {
#pragma unroll
    for (int from = 0; from < config.strip_rows(); ++from) {
      if (!config.uses_row(from)) continue;
      float x[config.strip_columns()];
      strip.read(x, strip.row(config.tile_row(0, from)));
#pragma unroll
      for (int r = config.conv.r - 1; r >= 0; --r) {
        const int distance = from - r * config.conv.dilation_h;  // to the strip's output row
        if (distance < 0 || distance % config.conv.stride_h != 0) continue;
        const int output = distance / config.conv.stride_h;
        if (output < config.rows) multiply_row<config>(sums[output], x, kept[r]);
      }
    }
  }
};

// One too large for that: its rows go by.
template <DirectDepthwiseSm80 config>
struct LargeFilter {
  const float* packed;

  __device__ __forceinline__ explicit LargeFilter(const float* from) : packed(from) {}
  __device__ __forceinline__ void multiply(Sums<config>& sums, const Strip<config>& strip) const {
    constexpr Conv2dExtents a = config.conv;
#pragma unroll 1
    for (int r = 0; r < a.r; ++r) {
      float weights[a.s];
#pragma unroll
      for (int s = 0; s < a.s; ++s) weights[s] = packed[(r * a.s + s) * config.packed_channels()];
#pragma unroll
      for (int output = 0; output < config.rows; ++output) {
        const int tile_row = config.tile_row(0, output * a.stride_h + r * a.dilation_h);
        if (config.all_rows() && (tile_row < 0 || tile_row >= a.h)) continue;
        float x[config.strip_columns()];
        strip.read(x, strip.row(tile_row));
        multiply_row<config>(sums[output], x, weights);
      }
    }
  }
};

template <bool kKept, DirectDepthwiseSm80 config>
struct FilterOf {
  using Type = LargeFilter<config>;
};
template <DirectDepthwiseSm80 config>
struct FilterOf<true, config> {
  using Type = KeptFilter<config>;
};

template <DirectDepthwiseSm80 config>
__device__ float finish(float sum) {
  return config.conv.relu && sum < 0 ? 0.0f : sum;  // NaN stays
}

// `to`: the strip's first output, which is p, q.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void store(const Sums<config>& sums, float* __restrict__ to, int p, int q) {
  constexpr Conv2dExtents a = config.conv;
#pragma unroll
  for (int row = 0; row < config.rows; ++row)
#pragma unroll
    for (int column = 0; column < config.columns; ++column)
      ptx::st_global_if(
          to + (row * a.q + column) * a.c, finish<config>(sums[row][column]),
          (a.p % config.rows == 0 || p + row < a.p) && (a.q % config.columns == 0 || q + column < a.q));
}

// Everything, slowly: where a weight is not finite.
template <DirectDepthwiseSm80 config>
__device__ __noinline__ void compute_exactly(const float* __restrict__ x, const float* __restrict__ packed,
                                             float* __restrict__ y, const Part<config>& part) {
  constexpr Conv2dExtents a = config.conv;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.tile_rows() * config.tile_columns() * config.channels;
       i += config.threads()) {
    const int k = part.first_channel() + i % config.channels, at = i / config.channels;
    const int p = part.band * config.tile_rows() + at / config.tile_columns();
    const int q = part.side * config.tile_columns() + at % config.tile_columns();
    if (p >= a.p || q >= a.q || k >= a.c) continue;
    const float sum = exact_sum(a, x, packed + config.exact_weights(), part.image, k, p, q);
    y[a.output_offset(part.image, k, p, q)] = finish<config>(sum + packed[config.bias_at() + k]);
  }
}

}  // namespace depthwise_sm80

template <DirectDepthwiseSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_depthwise_sm80(const float* __restrict__ x, const float* __restrict__ packed,
                          float* __restrict__ y) {
  namespace of = depthwise_sm80;
  constexpr Conv2dExtents a = config.conv;
  extern __shared__ __align__(16) float ring[];
  const of::Part<config> part(blockIdx.x);
  const bool finite = packed[config.flag_at()] == 0;
  // Threads of nobody's strip load, too, and compute what is not stored.
  const int thread = threadIdx.x < config.used_threads() ? static_cast<int>(threadIdx.x) : 0;
  const int strip = thread / config.channels, channel = thread % config.channels;
  const int down = strip / config.across, across = strip % config.across;
  const int k = part.first_channel() + channel;
  const int q = part.side * config.tile_columns() + across * config.columns;
  const bool exists = threadIdx.x < config.used_threads() && k < a.c && q < a.q;
  const typename of::FilterOf<config.weights_in_registers(), config>::Type filter(packed + k);
  const float bias = packed[config.bias_at() + k];

  const unsigned columns =
      ptx::shared_address(ring + across * config.columns * a.stride_w * config.channels + channel);
  int slot = down * config.rows * a.stride_h;
  int p = part.band * config.tile_rows() + down * config.rows;
  float* to = y + static_cast<long long>(part.image) * a.p * a.q * a.c + (p * a.q + q) * a.c + k;
#pragma unroll 1
  for (int step = 0; step < config.passes + config.ahead; ++step) {
    if (step >= config.ahead) {
      ptx::cp_async_wait_group<config.ahead - 1>();
      __syncthreads();  // this turn has its rows, and nobody needs those that the last one left behind
      if (!finite) {
        ptx::cp_async_wait_group<0>();
        of::compute_exactly<config>(x, packed, y, part);
        return;
      }
    }
    if (step < config.passes) {
      const int begin = step == 0 ? 0 : config.rows_for(1) + (step - 1) * config.pass_input_rows();
      const int end = config.rows_for(1) + step * config.pass_input_rows();
      of::load_rows<config>(x, ring, part, begin, end);
    }
    ptx::cp_async_commit_group();
    if (step < config.ahead) continue;
    if (exists && p < a.p) {
      of::Sums<config> sums;
#pragma unroll
      for (int row = 0; row < config.rows; ++row)
#pragma unroll
        for (int column = 0; column < config.columns; ++column) sums[row][column] = bias;
      filter.multiply(sums, {columns, slot});
      of::store<config>(sums, to, p, q);
    }
    slot += config.pass_input_rows();
    if (slot >= config.ring_rows()) slot -= config.ring_rows();
    p += config.pass_rows();
    to += static_cast<long long>(config.pass_rows()) * a.q * a.c;
  }
}

// The packed weights. The flag must be 0 before.
template <DirectDepthwiseSm80 config>
__global__ void __launch_bounds__(256)
    pack_direct_depthwise_sm80(const float* __restrict__ w, const float* __restrict__ bias,
                               float* __restrict__ packed) {
  constexpr Conv2dExtents a = config.conv;
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= config.flag_at()) return;
  float value = 0;
  if (i >= config.exact_weights()) {
    value = w[i - config.exact_weights()];
    if (!(fabsf(value) < __int_as_float(0x7f800000))) packed[config.flag_at()] = 1;
  } else {
    const int channel = static_cast<int>(i % config.packed_channels());
    const int tap = static_cast<int>(i / config.packed_channels());
    if (channel < a.c && tap == config.taps())
      value = bias ? bias[channel] : 0;
    else if (channel < a.c)
      value = w[static_cast<long long>(channel) * config.taps() + tap];
  }
  packed[i] = value;
}

}  // namespace convtune
