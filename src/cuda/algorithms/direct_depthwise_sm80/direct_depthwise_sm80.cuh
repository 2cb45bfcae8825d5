// Depthwise convolution of channels last, on CUDA cores, in exact fp32: each channel has a filter of its own.
// These wait for memory. In NHWC a position's channels lie beside each other, so neighbouring threads
// take neighbouring channels, and all that they load and store are whole runs:
//
//   x, rows of a tile with their margins, `channels` of each position --- cp.async ---> a ring of rows in
//   shared memory, zeros at the padding; rows for the next passes are on their way while this one computes
//   a thread: a channel, its filter in registers; a strip of `rows` x `columns` outputs a turn; input rows go
//   by, and each is multiplied for all output rows that it belongs to
//
// In half precision a thread has two channels, a word: it loads and stores as wide as with floats, and has
// twice the sums and filters in registers; numbers are widened once for all products that they are in. Where
// registers are short, as with 49 weights a channel, it may have one, and reads as often again.
//
// Products are real ones, so numbers that are not finite spread as they should; only an infinite weight must
// not meet the zeros of the padding. pack() flags such weights, and all is then computed by exact_sum.
#include "cuda/algorithms/direct_depthwise_sm80/load.cuh"
#include "cuda/algorithms/direct_depthwise_sm80/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_depthwise_sm80 {

// A strip's input: `columns` is the ring at its first column and its channel, `slot` where its first row is.
template <DirectDepthwiseSm80 config>
struct Strip {
  unsigned columns;
  int slot;

  __device__ __forceinline__ unsigned row(int tile_row) const {
    constexpr bool kWraps = config.ring_rows() < config.input_rows();
    const bool wraps = kWraps && slot + tile_row >= config.ring_rows();
    return columns + (slot + tile_row - (wraps ? config.ring_rows() : 0)) * (config.row_words() * 4);
  }
  // Adds what the strip meets of a row.
  __device__ __forceinline__ void read(Channels<config> (&x)[config.strip_columns()], unsigned row) const {
#pragma unroll
    for (int column = 0; column < config.strip_columns(); ++column)
      if (config.uses_column(column)) {
        const unsigned from = row + config.tile_column(0, column) * config.position_bytes();
        if constexpr (config.width == config.word())
          widen<config>(x[column], ptx::ld_shared(from));
        else
          widen<config>(x[column], ptx::ld_shared_u16(from));
      }
  }
};

// A filter row's products with an input row.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void multiply_row(Channels<config> (&sums)[config.columns],
                                             const Channels<config> (&x)[config.strip_columns()],
                                             const Channels<config> (&weights)[config.conv.s]) {
#pragma unroll
  for (int s = 0; s < config.conv.s; ++s)
#pragma unroll
    for (int column = 0; column < config.columns; ++column) {
      const int at = column * config.conv.stride_w + s * config.conv.dilation_w;
      if (!config.has_column(at)) continue;
#pragma unroll
      for (int channel = 0; channel < config.width; ++channel)
        sums[column][channel] = fmaf(x[at][channel], weights[s][channel], sums[column][channel]);
    }
}

// A tap of all channels of a thread.
template <DirectDepthwiseSm80 config>
__device__ __forceinline__ void read_tap(Channels<config>& to, const float* __restrict__ from) {
  if constexpr (config.width == 1) {
    to[0] = *from;
  } else {
    const float2 both = *reinterpret_cast<const float2*>(from);
    to[0] = both.x, to[1] = both.y;
  }
}

// A thread's filters, in registers: input rows go by, each read once.
template <DirectDepthwiseSm80 config>
struct KeptFilter {
  static constexpr int kRow = config.conv.s;
  Channels<config> kept[config.conv.r][kRow];

  __device__ __forceinline__ explicit KeptFilter(const float* packed) {
#pragma unroll
    for (int r = 0; r < config.conv.r; ++r)
#pragma unroll
      for (int s = 0; s < kRow; ++s)
        read_tap<config>(kept[r][s], packed + (r * kRow + s) * config.packed_channels());
  }
  __device__ __forceinline__ void multiply(Sums<config>& sums, const Strip<config>& strip) const {
#pragma unroll
    for (int from = 0; from < config.strip_rows(); ++from) {
      if (!config.uses_row(from)) continue;
      Channels<config> x[config.strip_columns()];
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

// Rows too large for that: their rows go by.
template <DirectDepthwiseSm80 config>
struct LargeFilter {
  const float* packed;

  __device__ __forceinline__ explicit LargeFilter(const float* from) : packed(from) {}
  __device__ __forceinline__ void multiply(Sums<config>& sums, const Strip<config>& strip) const {
    constexpr ConvExtents a = config.conv;
#pragma unroll 1
    for (int r = 0; r < a.r; ++r) {
      Channels<config> weights[a.s];
#pragma unroll
      for (int s = 0; s < a.s; ++s)
        read_tap<config>(weights[s], packed + (r * a.s + s) * config.packed_channels());
#pragma unroll
      for (int output = 0; output < config.rows; ++output) {
        const int tile_row = config.tile_row(0, output * a.stride_h + r * a.dilation_h);
        if (config.all_rows() && (tile_row < 0 || tile_row >= a.h)) continue;
        Channels<config> x[config.strip_columns()];
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
__global__ void __launch_bounds__(config.threads(), config.blocks)
    direct_depthwise_sm80(const void* __restrict__ x, const float* __restrict__ packed,
                          const void* __restrict__ residual, void* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  using Element = typename Stored<a.x_type>::Type;
  extern __shared__ __align__(16) float ring[];
  const Part<config> part(blockIdx.x);
  const bool finite = packed[kPacked.flag_at()] == 0;
  // Threads of nobody's strip load, too, and compute what is not stored.
  const int thread = threadIdx.x < config.used_threads() ? static_cast<int>(threadIdx.x) : 0;
  const int strip = thread / config.lanes(), first = thread % config.lanes() * config.width;
  const int down = strip / config.across, across = strip % config.across;
  const int k = part.first_channel() + first;
  const int q = part.side * config.tile_columns() + across * config.columns;
  const bool exists = threadIdx.x < config.used_threads() && k < a.c && q < a.q;
  const typename FilterOf<config.weights_in_registers(), config>::Type filter(packed + k);
  Channels<config> bias;
#pragma unroll
  for (int channel = 0; channel < config.width; ++channel)
    bias[channel] = packed[kPacked.bias_at() + k + channel];

  const unsigned columns = ptx::shared_address(ring) +
                           across * config.columns * a.stride_w * config.position_bytes() +
                           first * size_of(a.x_type);
  int slot = down * config.rows * a.stride_h;
  int p = part.band * config.tile_rows() + down * config.rows;
  const auto* const residuals = static_cast<const Element*>(residual);
  const unsigned waiting = ptx::shared_address(ring) + config.residual_at() + 4 * threadIdx.x;
  auto* const outputs = static_cast<Element*>(y);
  Element* to = outputs + static_cast<long long>(part.image) * a.p * a.q * a.c + (p * a.q + q) * a.c + k;
#pragma unroll 1
  for (int step = 0; step < config.passes + config.ahead; ++step) {
    if (step >= config.ahead) {
      ptx::cp_async_wait_group<config.waits() ? 2 * config.ahead - 1 : config.ahead - 1>();
      __syncthreads();  // this turn has its rows, and nobody needs those that the last one left behind
      if (!finite) {
        ptx::cp_async_wait_group<0>();
        compute_exactly<config>(x, packed, y, residual, part);
        return;
      }
    }
    if (step < config.passes) {
      const int begin = step == 0 ? 0 : config.rows_for(1) + (step - 1) * config.pass_input_rows();
      const int end = config.rows_for(1) + step * config.pass_input_rows();
      load_rows<config>(static_cast<const Element*>(x), ring, part, begin, end);
    }
    ptx::cp_async_commit_group();
    if constexpr (config.waits())
      if (step < config.ahead) {  // nobody has taken one yet
        if (step == config.ahead - 1 && exists && p < a.p)
          fetch_residual<config>(residuals + (to - outputs), waiting, p, q);
        ptx::cp_async_commit_group();
      }
    if (step < config.ahead) continue;
    if (exists && p < a.p) {
      Sums<config> sums;
#pragma unroll
      for (int row = 0; row < config.rows; ++row)
#pragma unroll
        for (int column = 0; column < config.columns; ++column)
#pragma unroll
          for (int channel = 0; channel < config.width; ++channel)
            sums[row][column][channel] = a.eager ? 0 : bias[channel];
      filter.multiply(sums, {columns, slot});
      if constexpr (config.waits()) {
        ptx::cp_async_wait_group<1>();
        sync_neighbours();
      }
      store<config>(sums, bias, residuals + (a.residual ? to - outputs : 0), waiting, to, p, q, k + 1 < a.c);
    }
    slot += config.pass_input_rows();
    if (slot >= config.ring_rows()) slot -= config.ring_rows();
    p += config.pass_rows();
    to += static_cast<long long>(config.pass_rows()) * a.q * a.c;
    if constexpr (config.waits()) {
      if (step + 1 < config.passes + config.ahead && exists && p < a.p) {
        sync_neighbours();  // they have read what was there
        fetch_residual<config>(residuals + (to - outputs), waiting, p, q);
      }
      ptx::cp_async_commit_group();
    }
  }
}

// The packed weights. The flag must be 0 before.
template <DirectDepthwiseSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_depthwise_sm80(const void* __restrict__ w, const void* __restrict__ bias,
                               unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, __float_as_uint);
}

}  // namespace convtune::direct_depthwise_sm80
