// Convolution on CUDA cores, with sums in exact fp32, for sums of few products: depthwise, small groups, one
// to four input channels. Such layers wait for memory, so what counts is that each input is read once, in
// long pieces, and that enough reads are on their way; blocks beside each other on a multiprocessor see to
// that, some loading while others compute.
//
//   x in NCHW, a block's planes ------- cp.async ------> shared memory, rows with zeros at the padding;
//   halves are widened on their way, through registers a thread: `rows` x 4 outputs of `filters` filters;
//   input rows go by in registers, and each one is multiplied for all output rows that it belongs to:
//
//     input row 0   a b c d e f       filter row 0 -> output row 0
//     input row 1   g h i j k l       filter row 1 -> output row 0, filter row 0 -> output row 1
//     input row 2   ...               ... all 4 columns x `filters` at each
//
// Products are real ones, so numbers that are not finite spread as they should; only an infinite weight must
// not meet the zeros of the padding. pack() flags such weights, and all is then computed by exact_sum.
#include "cuda/algorithms/direct_fma_sm80/store.cuh"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/exact.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::direct_fma_sm80 {

// One filter row's products with one input row, for one output row of the strip.
template <DirectFmaSm80 config>
__device__ __forceinline__ void multiply_row(Sums<config>& sums, int row, const float* __restrict__ weights,
                                             const float* __restrict__ x) {
  constexpr ConvExtents a = config.conv;
#pragma unroll
  for (int s = 0; s < a.s; ++s)
#pragma unroll
    for (int filter = 0; filter < config.filters; ++filter)
#pragma unroll
      for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
        sums[filter][row][column] = fmaf(x[column * a.stride_w + s * a.dilation_w],
                                         weights[s * config.filters + filter], sums[filter][row][column]);
}

// A channel's products for a strip; `input_row` gives an input row's window, for which it may use the memory
// that it gets. Plain loops, which the compiler writes out: with rows that are constants to the language, and
// so a function each, it takes twice as long.
template <DirectFmaSm80 config, class InputRow>
__device__ __forceinline__ void multiply_channel(Sums<config>& sums, const InputRow& input_row,
                                                 const float* weights) {
  constexpr ConvExtents a = config.conv;
  constexpr int kRowFloats = config.weight_row_floats(), kUsed = a.s * config.filters;
  constexpr bool kKept = config.weights_in_registers();  // else read again for each input row
  const unsigned address = ptx::shared_address(weights);
  float kept[kKept ? a.r : 1][kUsed];
  if constexpr (kKept) {
#pragma unroll
    for (int r = 0; r < a.r; ++r) {
      if constexpr (config.kept)
        read<0, kUsed>(kept[r], address + r * kRowFloats * 4);
      else
        read<0, kUsed>(kept[r], weights + r * kRowFloats);
    }
  }
#pragma unroll
  for (int from = 0; from < config.strip_rows(); ++from) {  // the strip's input row
    if (!config.is_used(from)) continue;
    float memory[config.window()];
    const float* x = input_row(from, memory);
#pragma unroll
    for (int r = a.r - 1; r >= 0; --r) {
      const int distance = from - r * a.dilation_h;  // to the strip's output row
      if (distance < 0 || distance % a.stride_h != 0 || distance / a.stride_h >= config.rows) continue;
      if constexpr (kKept) {
        multiply_row<config>(sums, distance / a.stride_h, kept[r], x);
      } else {
        float some[kUsed];
        read<0, kUsed>(some, address + r * kRowFloats * 4);
        multiply_row<config>(sums, distance / a.stride_h, some, x);
      }
    }
  }
}

// A strip's input, all of it, in registers.
template <DirectFmaSm80 config>
struct Window {
  float rows[config.conv.group_channels()][config.strip_rows()][config.window()];

  __device__ __forceinline__ Window(const float* input, const Place<config>& place) {
#pragma unroll
    for (int channel = 0; channel < config.conv.group_channels(); ++channel)
#pragma unroll
      for (int row = 0; row < config.strip_rows(); ++row)
        if (config.is_used(row))
          read<config.first_column() % 4, config.window()>(
              rows[channel][row],
              ptx::shared_address(place.input(input, channel)) + row * config.pitch() * 4);
  }
};

// Every strip of this thread. `sum_up` adds a strip's products to its sums.
template <DirectFmaSm80 config, class SumUp>
__device__ __forceinline__ void compute_strips(const float* weights, const void* __restrict__ residual,
                                               float* staged, void* __restrict__ y, const Part<config>& part,
                                               const SumUp& sum_up) {
  constexpr ConvExtents a = config.conv;
#pragma unroll 1
  for (int strip = threadIdx.x; strip < config.strips(); strip += config.threads()) {
    const Place<config> place(strip, part);
    if (!place.exists) continue;
    const float* my_weights = place.weights(weights);
    Sums<config> sums;
    float bias[config.filters];
    read<0, config.filters>(bias, my_weights + a.group_channels() * a.r * config.weight_row_floats());
#pragma unroll
    for (int filter = 0; filter < config.filters; ++filter)
#pragma unroll
      for (int row = 0; row < config.rows; ++row)
#pragma unroll
        for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
          sums[filter][row][column] = a.eager ? 0 : bias[filter];
    sum_up(sums, place, my_weights);
    store_strip<config>(sums, bias, place, residual, staged, y);
  }
}

template <DirectFmaSm80 config>
__device__ __forceinline__ void compute(const float* input, const float* weights,
                                        const void* __restrict__ residual, float* staged,
                                        void* __restrict__ y, const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
  constexpr int kChannelFloats = a.r * config.weight_row_floats();
  if constexpr (config.kept) {
    // No thread may leave: those that are left out still take part in the warp's exchanges, and in barriers.
    const Place<config> place(threadIdx.x, part);
    const Window<config> window(input, place);
    compute_strips<config>(
        weights, residual, staged, y, part, [&](Sums<config>& sums, const Place<config>&, const float* mine) {
#pragma unroll
          for (int channel = 0; channel < a.group_channels(); ++channel)
            multiply_channel<config>(
                sums, [&](int row, float*) -> const float* { return window.rows[channel][row]; },
                mine + channel * kChannelFloats);
        });
  } else {
    compute_strips<config>(weights, residual, staged, y, part,
                           [&](Sums<config>& sums, const Place<config>& place, const float* mine) {
#pragma unroll 1
                             for (int channel = 0; channel < a.group_channels(); ++channel) {
                               const float* first = place.input(input, channel);
                               const auto input_row = [&](int row, float* x) -> const float* {
                                 read<config.first_column() % 4, config.window()>(
                                     x, first + row * config.pitch());
                                 return x;
                               };
                               multiply_channel<config>(sums, input_row, mine + channel * kChannelFloats);
                             }
                           });
  }
}

// Everything again, slowly: where a weight is not finite.
template <DirectFmaSm80 config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ x, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ y,
                                             const Part<config>& part) {
  constexpr ConvExtents a = config.conv;
  constexpr int kColumns = config.block_columns(), kPlane = config.band_rows() * kColumns;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.units * config.block_filters() * kPlane; i += config.threads()) {
    const int plane = i / kPlane, row = i % kPlane / kColumns;
    const int column = part.first_column() + i % kColumns;
    const int unit = plane / config.block_filters(), filter = plane % config.block_filters();
    if (!part.has_unit(unit) || !part.has_filter(filter) || !part.has_row(row) || column >= a.q) continue;
    const int group = part.group(unit);
    const int image = static_cast<int>((part.first_unit + unit) / a.groups);
    const int k = group * a.group_filters() + part.filter_block * config.block_filters() + filter;
    const int p = part.first_row() + row;
    store_exact_output<config>(x, packed, residual, y, image, k, p, column);
  }
}

template <DirectFmaSm80 config>
__global__ void __launch_bounds__(config.threads())
    direct_fma_sm80(const void* __restrict__ x, const float* __restrict__ packed,
                    const void* __restrict__ residual, void* __restrict__ y) {
  ptx::wait_for_earlier_grids(packed);
  extern __shared__ __align__(16) float memory[];
  constexpr auto kAt = config.smem();
  constexpr Packed kPacked = config.packed();
  float *const input = memory + kAt.input, *const weights = memory + kAt.weights;
  float* const staged = memory + kAt.staged;
  const Part<config> part(blockIdx.x);

  load_weights<config>(packed, weights, part);
  load_input<config>(x, input, part);
  ptx::cp_async_commit_group();
  const bool finite = packed[kPacked.flag_at()] == 0;
  clear_margins<config>(input);
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  if (!finite) {
    compute_exactly<config>(x, packed, residual, y, part);
    return;
  }
  compute<config>(input, weights, residual, staged, y, part);
  if constexpr (config.staged) {
    __syncthreads();
    store_staged<config>(staged, y, part);
  }
}

// The packed weights. The flag must be 0 before.
template <DirectFmaSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_direct_fma_sm80(const void* __restrict__ w, const void* __restrict__ bias,
                         unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, __float_as_uint);
}

}  // namespace convtune::direct_fma_sm80
