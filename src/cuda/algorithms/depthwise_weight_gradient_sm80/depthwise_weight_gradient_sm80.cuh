// Gradients of depthwise weights, channels last, on CUDA cores: dw[c][r][s] is the sum over all pixels of
// dy[pixel][c] * x[what tap (r, s) of it meets][c], in fp32. Each number of x and dy is read from memory
// once, and with small filters that is what takes the time.
//
//   a thread: `width` channels; all of their taps' sums in registers, from the first strip to the last
//   a strip:  rows of dy ----> it goes along the columns; what dy meets of x is a window of registers, in
//             which an output exchanges the columns that its neighbour no longer meets
//   a block:  `workers` such threads for each of its channels, which take strips in turns and add up in the
//             end what they have, in their order
//
// `split` blocks share the strips of a channel. They leave their sums in memory, from where
// add_up_depthwise_weight_gradient_sm80 adds them in the order of their ranks and rounds once: the same bits
// every time. The gradient of the bias, the sum of dy, is one sum more.
//
// Zeros stand for the padding, and for dy behind a row's end: an infinity of the other factor would make NaN
// of them. A sum that is NaN is computed again, of the products alone that there are.
#include "cuda/algorithms/depthwise_weight_gradient_sm80/load.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/weight_sums.cuh"

namespace convtune::depthwise_weight_gradient_sm80 {

// A thread's sums: of taps, and of the bias.
template <DepthwiseWeightGradientSm80 config>
struct Sums {
  float taps[config.conv.r][config.conv.s][config.width] = {};
  float bias[1][config.width] = {};
};

// A strip, as a thread goes along it.
template <DepthwiseWeightGradientSm80 config>
struct Strip {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kRows = config.input_rows(), kFresh = config.fresh(), kKept = config.kept();
  static constexpr int kAhead = config.ahead;
  const Element<config>*x, *dy;  // at the window of the output that is fetched next, and at the output
  unsigned rows, gradient_rows;  // bits: those that there are
  int column, left;              // column of x where that window begins; outputs still to be fetched
  float window[kRows][config.places()][config.width];
  Words<config> fresh[kAhead][kRows][kFresh], gradients[kAhead][config.rows];

  __device__ __forceinline__ Strip(const Element<config>* __restrict__ all_x,
                                   const Element<config>* __restrict__ all_dy, int strip, int channel) {
    const int side = strip % config.sides(), rest = strip / config.sides();
    const int band = rest % config.bands(), image = rest / config.bands();
    const int p = band * config.rows, q = side * config.columns;
    const int row = p * a.stride_h - a.pad_top;
    column = q * a.stride_w - a.pad_left, left = lesser(config.columns, a.q - q);
    rows = 0, gradient_rows = 0;
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      rows |= static_cast<unsigned>(row + i) < static_cast<unsigned>(a.h) ? 1u << i : 0;
#pragma unroll
    for (int i = 0; i < config.rows; ++i) gradient_rows |= p + i < a.p ? 1u << i : 0;
    x = all_x + static_cast<long long>(image) * (a.h * a.w * a.c) + (row * a.w + column) * a.c + channel;
    dy = all_dy + static_cast<long long>(image) * (a.p * a.q * a.c) + (p * a.q + q) * a.c + channel;
  }
  // Bits of the rows of x that there are in a column of the window.
  __device__ __forceinline__ unsigned rows_of(int of_window) const {
    return static_cast<unsigned>(column + of_window) < static_cast<unsigned>(a.w) ? rows : 0;
  }
  // Columns that the first output shares with one before it, and what the first outputs bring.
  __device__ __forceinline__ void begin() {
    for_constants<0, kKept>([&](auto i) {
      constexpr int kColumn = i.value;
      if constexpr (config.uses_column(kColumn)) {
        const unsigned wanted = rows_of(kColumn);
        for_constants<0, kRows>([&](auto j) {
          if constexpr (config.uses_row(j.value)) {
            Words<config> words;
            load<config, (1LL * j.value * config.conv.w + kColumn) * config.conv.c>(words, x,
                                                                                    wanted & 1u << j.value);
            widen<config>(window[j.value][config.place(kColumn)], words);
          }
        });
      }
    });
#pragma unroll
    for (int i = 0; i < kAhead; ++i) fetch(i);
  }
  // Fetches what the next output brings.
  __device__ __forceinline__ void fetch(int slot) {
    for_constants<0, kFresh>([&](auto i) {
      constexpr int kColumn = kKept + i.value;
      if constexpr (config.uses_column(kColumn)) {
        const unsigned wanted = left > 0 ? rows_of(kColumn) : 0;
        for_constants<0, kRows>([&](auto j) {
          if constexpr (config.uses_row(j.value))
            load<config, (1LL * j.value * config.conv.w + kColumn) * config.conv.c>(
                fresh[slot][j.value][i.value], x, wanted & 1u << j.value);
        });
      }
    });
    const unsigned wanted = left > 0 ? gradient_rows : 0;
    for_constants<0, config.rows>([&](auto j) {
      load<config, 1LL * j.value * config.conv.q * config.conv.c>(gradients[slot][j.value], dy,
                                                                  wanted & 1u << j.value);
    });
    x += a.stride_w * a.c, dy += a.c, column += a.stride_w, --left;
  }
  // Takes what has come for an output, whose number modulo the period is `phase`.
  __device__ __forceinline__ void take(float (&by)[config.rows][config.width], int phase) {
#pragma unroll
    for (int i = 0; i < kFresh; ++i)
#pragma unroll
      for (int j = 0; j < kRows; ++j)
        if (config.uses_row(j) && config.uses_column(kKept + i))
          widen<config>(window[j][config.place(phase * a.stride_w + kKept + i)], fresh[0][j][i]);
#pragma unroll
    for (int j = 0; j < config.rows; ++j) widen<config>(by[j], gradients[0][j]);
    if constexpr (kAhead > 1) {
#pragma unroll
      for (int word = 0; word < config.load_words(); ++word) {
#pragma unroll
        for (int j = 0; j < kRows; ++j)
#pragma unroll
          for (int i = 0; i < kFresh; ++i)
            if (config.uses_row(j) && config.uses_column(kKept + i))
              fresh[0][j][i][word] = fresh[kAhead - 1][j][i][word];
#pragma unroll
        for (int j = 0; j < config.rows; ++j) gradients[0][j][word] = gradients[kAhead - 1][j][word];
      }
    }
  }
  __device__ __forceinline__ void multiply(Sums<config>& sums, const float (&by)[config.rows][config.width],
                                           int phase) const {
#pragma unroll
    for (int output = 0; output < config.rows; ++output)
#pragma unroll
      for (int i = 0; i < config.width; ++i) {
#pragma unroll
        for (int r = 0; r < a.r; ++r)
#pragma unroll
          for (int s = 0; s < a.s; ++s) {
            const int row = output * a.stride_h + r * a.dilation_h;
            const int place = config.place(phase * a.stride_w + s * a.dilation_w);
            sums.taps[r][s][i] = fmaf(by[output][i], window[row][place][i], sums.taps[r][s][i]);
          }
        sums.bias[0][i] += by[output][i];
      }
  }
  __device__ __forceinline__ void add(Sums<config>& sums) {
    begin();
#pragma unroll 1
    while (left > -kAhead)
#pragma unroll
      for (int phase = 0; phase < config.period(); ++phase) {
        float by[config.rows][config.width];
        take(by, phase);
        fetch(kAhead - 1);
        multiply(sums, by, phase);
      }
  }
};

// The sums of a row of taps by all workers, added in their order and left for the block's rank.
template <DepthwiseWeightGradientSm80 config, int kCount>
__device__ __forceinline__ void leave(const float (&of_thread)[kCount][config.width], float* shared,
                                      float* __restrict__ partial, int first_sum, int first_channel) {
  const int thread = static_cast<int>(threadIdx.x);
  __syncthreads();  // nobody reads what was there before
#pragma unroll
  for (int s = 0; s < kCount; ++s)
#pragma unroll
    for (int i = 0; i < config.width; ++i)
      shared[(s * config.width + i) * config.threads() + thread] = of_thread[s][i];
  __syncthreads();
#pragma unroll 1
  for (int item = thread; item < kCount * config.channels(); item += config.threads()) {
    const int channel = item % config.channels(), s = item / config.channels();
    const float* const from =
        shared + (s * config.width + channel % config.width) * config.threads() + channel / config.width;
    float sum = from[0];
#pragma unroll 4
    for (int worker = 1; worker < config.workers; ++worker) sum += from[worker * config.lanes];
    partial[(first_sum + s) * config.all_channels() + first_channel + channel] = sum;
  }
}

template <DepthwiseWeightGradientSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    depthwise_weight_gradient_sm80(const void* __restrict__ x, const void* __restrict__ dy,
                                   float* __restrict__ partial) {
  ptx::wait_for_earlier_grids(x, dy);
  extern __shared__ __align__(16) float shared[];
  constexpr ConvExtents a = config.conv;
  const int lane = static_cast<int>(threadIdx.x) % config.lanes;
  const int worker = static_cast<int>(threadIdx.x) / config.lanes;
  const int chunk = static_cast<int>(blockIdx.x) % config.chunks();
  const int rank = static_cast<int>(blockIdx.x) / config.chunks();
  const int first_channel = chunk * config.channels();
  // Threads beyond the last channel compute that one's sums, which nobody reads.
  const int channel = lesser(first_channel + lane * config.width, a.c - config.width);
  Sums<config> sums;
#pragma unroll 1
  for (int strip = rank * config.workers + worker; strip < static_cast<int>(config.strips());
       strip += config.split * config.workers) {
    Strip<config> mine(static_cast<const Element<config>*>(x), static_cast<const Element<config>*>(dy), strip,
                       channel);
    mine.add(sums);
  }
  float* const to = partial + 4LL * rank * config.rank_fours();
#pragma unroll
  for (int r = 0; r < a.r; ++r) leave<config, a.s>(sums.taps[r], shared, to, r * a.s, first_channel);
  leave<config, 1>(sums.bias, shared, to, config.taps(), first_channel);
}

// The sums of all blocks, added up.
template <DepthwiseWeightGradientSm80 config>
__global__ void __launch_bounds__(kAddThreads)
    add_up_depthwise_weight_gradient_sm80(const float* __restrict__ partial, const void* __restrict__ x,
                                          const void* __restrict__ dy, void* __restrict__ dw,
                                          void* __restrict__ dbias) {
  ptx::wait_for_earlier_grids(partial);
  add_up_ranks<config>(partial, x, dy, dw, dbias);
}

// Gradients of weights need none.
template <DepthwiseWeightGradientSm80 config>
__global__ void pack_depthwise_weight_gradient_sm80() {}

}  // namespace convtune::depthwise_weight_gradient_sm80
