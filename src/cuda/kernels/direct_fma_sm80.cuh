// Convolution on CUDA cores, in exact fp32, for sums of few products: depthwise, small groups, one to four
// input channels. Such layers wait for memory, so what counts is that each input is read once, in long
// pieces, and that enough reads are on their way; blocks beside each other on a multiprocessor see to that,
// some loading while others compute.
//
//   x in NCHW, a block's planes ------- cp.async ------> shared memory, rows with zeros at the padding
//   a thread: `rows` x 4 outputs of `filters` filters; input rows go by in registers, and each one is
//   multiplied for all output rows that it belongs to:
//
//     input row 0   a b c d e f       filter row 0 -> output row 0
//     input row 1   g h i j k l       filter row 1 -> output row 0, filter row 0 -> output row 1
//     input row 2   ...               ... all 4 columns x `filters` at each
//
// Products are real ones, so numbers that are not finite spread as they should; only an infinite weight must
// not meet the zeros of the padding. pack() flags such weights, and all is then computed by exact_sum.
#include "constants.cuh"
#include "direct_fma_sm80_load.cuh"
#include "exact_sum.cuh"

namespace convtune {
namespace fma_sm80 {

// kCount floats from `from` + kFirst, of which `from` is aligned to 16 bytes: as few loads as there are
// vectors, none longer than what is wanted.
template <int kFirst, int kCount>
__device__ __forceinline__ void read(float (&to)[kCount], const float* from) {
  constexpr int kEnd = kFirst + kCount;
  for_constants<kFirst / 4, (kEnd + 3) / 4>([&](auto vector) {
    constexpr int first = 4 * vector.value;  // of `from`
    constexpr int begin = first > kFirst ? first : kFirst, end = first + 4 < kEnd ? first + 4 : kEnd;
    if constexpr (end - begin == 1) {
      to[begin - kFirst] = from[begin];
    } else if constexpr (begin / 2 == (end - 1) / 2) {
      const float2 pair = *reinterpret_cast<const float2*>(from + begin);
      to[begin - kFirst] = pair.x, to[begin - kFirst + 1] = pair.y;
    } else {
      const float4 four = *reinterpret_cast<const float4*>(from + first);
      const float all[4] = {four.x, four.y, four.z, four.w};
      for_constants<begin, end>([&](auto i) { to[i.value - kFirst] = all[i.value - first]; });
    }
  });
}

// The same for a row of weights, in a way that the compiler can neither move nor keep: rows that do not all
// fit the registers are read again for each input row.
template <int kCount>
__device__ __forceinline__ void read_again(float (&to)[kCount], unsigned from) {
  for_constants<0, (kCount + 3) / 4>([&](auto vector) {
    constexpr int first = 4 * vector.value;
    float all[4];
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(all[0]), "=f"(all[1]), "=f"(all[2]), "=f"(all[3])
                 : "r"(from + first * 4));
    for_constants<first, (first + 4 < kCount ? first + 4 : kCount)>(
        [&](auto i) { to[i.value] = all[i.value - first]; });
  });
}

template <DirectFmaSm80 config>
using Sums = float[config.filters][config.rows][DirectFmaSm80::kColumns];

// One filter row's products with one input row, for one output row of the strip.
template <DirectFmaSm80 config>
__device__ __forceinline__ void multiply_row(Sums<config>& sums, int row, const float* __restrict__ weights,
                                             const float (&x)[config.window()]) {
  constexpr Conv2dExtents a = config.problem;
#pragma unroll
  for (int s = 0; s < a.s; ++s)
#pragma unroll
    for (int filter = 0; filter < config.filters; ++filter)
#pragma unroll
      for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
        sums[filter][row][column] = fmaf(x[column * a.stride_w + s * a.dilation_w],
                                         weights[s * config.filters + filter], sums[filter][row][column]);
}

// A channel's products for a strip; `input_row` gives an input row's window.
template <DirectFmaSm80 config, class InputRow>
__device__ __forceinline__ void multiply_channel(Sums<config>& sums, const InputRow& input_row,
                                                 const float* weights) {
  constexpr Conv2dExtents a = config.problem;
  constexpr int kRowFloats = config.weight_row_floats();
  constexpr bool kKept = config.weights_in_registers();
  float kept[kKept ? a.r : 1][a.s * config.filters];
  if constexpr (kKept)
    for_constants<0, a.r>([&](auto r) { read<0>(kept[r.value], weights + r.value * kRowFloats); });
  for_constants<0, config.strip_rows()>([&](auto index) {
    constexpr int from = index.value;  // the strip's input row
    if constexpr (config.is_used(from)) {
      float x[config.window()];
      input_row(Int<from>{}, x);
      for_constants<0, config.rows>([&](auto row) {
        constexpr int r = config.filter_row(from, row.value);
        if constexpr (r >= 0) {
          if constexpr (kKept) {
            multiply_row<config>(sums, row.value, kept[r], x);
          } else {
            float some[a.s * config.filters];
            read_again(some, ptx::shared_address(weights) + r * kRowFloats * 4);
            multiply_row<config>(sums, row.value, some, x);
          }
        }
      });
    }
  });
}

// Where a strip is in its block.
template <DirectFmaSm80 config>
struct Place {
  int unit, chunk, row, column;  // of the band's output
  bool exists;

  __device__ Place(int strip, const Part<config>& part) {
    constexpr int kPlaces = config.places();
    // The whole warp's, which the compiler does not know.
    const int filters = config.uniform ? __shfl_sync(0xffffffff, strip / kPlaces, 0) : strip / kPlaces;
    chunk = filters % config.chunks, unit = filters / config.chunks;
    const bool in_band = !config.uniform || strip % kPlaces < config.down * config.across();
    exists = in_band && part.has_unit(unit);
    const int place = in_band ? strip % kPlaces : 0;  // what does not exist may be read, and is not stored
    row = place / config.across() * config.rows;
    column = place % config.across() * DirectFmaSm80::kColumns;
  }
  // A channel's first window in shared memory, less the columns before it in its vector.
  __device__ const float* input(const float* all, int channel) const {
    const int plane = unit * config.problem.group_channels() + channel;
    return all + (plane * config.input_rows() + row * config.problem.stride_h) * config.pitch() +
           column * config.problem.stride_w + config.first_column() / 4 * 4;
  }
  __device__ const float* weights(const float* all) const {
    return all + (config.weight_units() == 1 ? chunk : unit * config.chunks + chunk) * config.chunk_floats();
  }
};

template <DirectFmaSm80 config, int kRow>
__device__ __forceinline__ void read_row(float (&x)[config.window()], const float* window) {
  read<config.first_column() % 4>(x, window + kRow * config.pitch());
}

// A strip's input, all of it, in registers.
template <DirectFmaSm80 config>
struct Window {
  float rows[config.problem.group_channels()][config.strip_rows()][config.window()];

  __device__ Window(const float* input, const Place<config>& place) {
    for_constants<0, config.problem.group_channels()>([&](auto channel) {
      for_constants<0, config.strip_rows()>([&](auto row) {
        if constexpr (config.is_used(row.value))
          read_row<config, row.value>(rows[channel.value][row.value], place.input(input, channel.value));
      });
    });
  }
};

template <DirectFmaSm80 config>
__device__ float finish(float sum) {
  return config.problem.relu && sum < 0 ? 0.0f : sum;  // NaN stays
}

// 4 neighbours of an output row, or as many as it has. `to` is aligned where q allows it and `aligned`.
template <DirectFmaSm80 config>
__device__ __forceinline__ void store(float* to, const float (&sums)[4], int column, bool aligned) {
  constexpr int q = config.problem.q;
  if (q % 4 == 0 && aligned) {
    *reinterpret_cast<float4*>(to) = make_float4(finish<config>(sums[0]), finish<config>(sums[1]),
                                                 finish<config>(sums[2]), finish<config>(sums[3]));
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (q % 4 == 0 || column + i < q) to[i] = finish<config>(sums[i]);
  }
}

// Staged outputs to y: what is contiguous there is written in one piece.
template <DirectFmaSm80 config>
__device__ __forceinline__ void store_staged(const float* staged, float* __restrict__ y,
                                             const Part<config>& part, bool aligned) {
  constexpr Conv2dExtents a = config.problem;
  constexpr int kPlane = config.band_rows() * a.q;  // in shared memory
  constexpr bool kWhole = config.band_rows() == a.p && config.block_filters() == a.group_filters();
  constexpr int kAll = config.units * config.block_filters() * kPlane;
  if constexpr (kWhole && kAll % 4 == 0) {
    if (aligned && part.has_unit(config.units - 1)) {
      float* to = y + part.plane(0, 0);
#pragma unroll 4
      for (int i = threadIdx.x * 4; i < kAll; i += config.threads() * 4)
        *reinterpret_cast<float4*>(to + i) = *reinterpret_cast<const float4*>(staged + i);
      return;
    }
  }
  constexpr bool kVectors = a.p * static_cast<long long>(a.q) % 4 == 0 && kPlane % 4 == 0;
  const int rows = config.bands() * config.band_rows() == a.p || part.band + 1 < config.bands()
                       ? config.band_rows()
                       : a.p - part.first_row();
  const auto copy = [&](auto width) {
    constexpr int kWidth = decltype(width)::value, kPieces = kPlane / kWidth;
#pragma unroll 4
    for (int i = threadIdx.x; i < kAll / kWidth; i += config.threads()) {
      const int plane = i / kPieces, at = i % kPieces * kWidth;
      const int unit = plane / config.block_filters(), filter = plane % config.block_filters();
      if (!part.has_unit(unit) || !part.has_filter(filter) || at >= rows * a.q) continue;
      float* to = y + part.plane(unit, filter) + part.first_row() * a.q + at;
      const float* from = staged + plane * kPlane + at;
      if constexpr (kWidth == 4) {
        if (at + 4 <= rows * a.q) {
          *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
          continue;
        }
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j)
        if (kWidth == 1 || at + j < rows * a.q) to[j] = from[j];
    }
  };
  if constexpr (kVectors) {
    if (aligned) {
      copy(Int<4>{});
      return;
    }
  }
  copy(Int<1>{});
}

template <DirectFmaSm80 config>
__device__ __forceinline__ void store_strip(const Sums<config>& sums, const Place<config>& place,
                                            float* staged, float* __restrict__ y, const Part<config>& part,
                                            bool aligned) {
  constexpr int q = config.problem.q;
#pragma unroll
  for (int i = 0; i < config.filters; ++i) {
    const int filter = place.chunk * config.filters + i;
    if (!part.has_filter(filter)) continue;
    float* to;
    if constexpr (config.staged)
      to = staged + ((place.unit * config.block_filters() + filter) * config.band_rows() + place.row) * q;
    else
      to = y + part.plane(place.unit, filter) + (part.first_row() + place.row) * q;
#pragma unroll
    for (int row = 0; row < config.rows; ++row)
      if (part.has_row(place.row + row))
        store<config>(to + row * q + place.column, sums[i][row], place.column, config.staged || aligned);
  }
}

// Every strip of this thread. `sum_up` adds a strip's products to its sums.
template <DirectFmaSm80 config, class SumUp>
__device__ __forceinline__ void compute_strips(const float* weights, float* staged, float* __restrict__ y,
                                               const Part<config>& part, const SumUp& sum_up) {
  constexpr Conv2dExtents a = config.problem;
  const bool aligned = is_aligned(y);
#pragma unroll 1
  for (int strip = threadIdx.x; strip < config.strips(); strip += config.threads()) {
    const Place<config> place(strip, part);
    if (!place.exists) continue;
    const float* my_weights = place.weights(weights);
    Sums<config> sums;
    float bias[config.filters];
    read<0>(bias, my_weights + a.group_channels() * a.r * config.weight_row_floats());
#pragma unroll
    for (int filter = 0; filter < config.filters; ++filter)
#pragma unroll
      for (int row = 0; row < config.rows; ++row)
#pragma unroll
        for (int column = 0; column < DirectFmaSm80::kColumns; ++column)
          sums[filter][row][column] = bias[filter];
    sum_up(sums, place, my_weights);
    store_strip<config>(sums, place, staged, y, part, aligned);
  }
}

template <DirectFmaSm80 config>
__device__ __forceinline__ void compute(const float* input, const float* weights, float* staged,
                                        float* __restrict__ y, const Part<config>& part) {
  constexpr Conv2dExtents a = config.problem;
  constexpr int kChannelFloats = a.r * config.weight_row_floats();
  if constexpr (config.kept) {
    // No thread may leave: those that are left out still take part in the warp's exchanges, and in barriers.
    const Place<config> place(threadIdx.x, part);
    const Window<config> window(input, place);
    compute_strips<config>(weights, staged, y, part,
                           [&](Sums<config>& sums, const Place<config>&, const float* mine) {
                             for_constants<0, a.group_channels()>([&](auto index) {
                               constexpr int channel = index.value;
                               const auto row = [&](auto from, float(&x)[config.window()]) {
#pragma unroll
                                 for (int i = 0; i < config.window(); ++i)
                                   x[i] = window.rows[channel][from.value][i];
                               };
                               multiply_channel<config>(sums, row, mine + channel * kChannelFloats);
                             });
                           });
  } else {
    compute_strips<config>(weights, staged, y, part,
                           [&](Sums<config>& sums, const Place<config>& place, const float* mine) {
#pragma unroll 1
                             for (int channel = 0; channel < a.group_channels(); ++channel) {
                               const float* first = place.input(input, channel);
                               const auto row = [&](auto from, float(&x)[config.window()]) {
                                 read_row<config, from.value>(x, first);
                               };
                               multiply_channel<config>(sums, row, mine + channel * kChannelFloats);
                             }
                           });
  }
}

// Everything again, slowly: where a weight is not finite.
template <DirectFmaSm80 config>
__device__ __noinline__ void compute_exactly(const float* __restrict__ x, const float* __restrict__ packed,
                                             float* __restrict__ y, const Part<config>& part) {
  constexpr Conv2dExtents a = config.problem;
  constexpr int kPlane = config.band_rows() * a.q;
#pragma unroll 1
  for (int i = threadIdx.x; i < config.units * config.block_filters() * kPlane; i += config.threads()) {
    const int plane = i / kPlane, row = i % kPlane / a.q, column = i % a.q;
    const int unit = plane / config.block_filters(), filter = plane % config.block_filters();
    if (!part.has_unit(unit) || !part.has_filter(filter) || !part.has_row(row)) continue;
    const int group = part.group(unit);
    const int image = static_cast<int>((part.first_unit + unit) / a.groups);
    const int k = group * a.group_filters() + part.filter_block * config.block_filters() + filter;
    const float sum =
        exact_sum(a, x, packed + config.exact_weights(), image, k, part.first_row() + row, column);
    y[part.plane(unit, filter) + static_cast<long long>(part.first_row() + row) * a.q + column] =
        finish<config>(sum + packed[config.bias_at() + k]);
  }
}

}  // namespace fma_sm80

template <DirectFmaSm80 config>
__global__ void __launch_bounds__(config.threads())
    direct_fma_sm80(const float* __restrict__ x, const float* __restrict__ packed, float* __restrict__ y) {
  extern __shared__ __align__(16) float memory[];
  float* input = memory;
  float* weights = input + config.input_floats();
  float* staged = weights + config.weight_units() * config.block_weight_floats();
  const fma_sm80::Part<config> part(blockIdx.x);

  fma_sm80::load_weights<config>(packed, weights, part);
  if (config.vectors() && fma_sm80::is_aligned(x))
    fma_sm80::load_input<config, config.vectors() ? 4 : 1>(x, input, part);
  else
    fma_sm80::load_input<config, 1>(x, input, part);
  ptx::cp_async_commit_group();
  const bool finite = packed[config.flag_at()] == 0;
  fma_sm80::clear_margins<config>(input);
  ptx::cp_async_wait_group<0>();
  __syncthreads();
  if (!finite) {
    fma_sm80::compute_exactly<config>(x, packed, y, part);
    return;
  }
  fma_sm80::compute<config>(input, weights, staged, y, part);
  if constexpr (config.staged) {
    __syncthreads();
    fma_sm80::store_staged<config>(staged, y, part, fma_sm80::is_aligned(y));
  }
}

// The packed weights. The flag must be 0 before.
template <DirectFmaSm80 config>
__global__ void __launch_bounds__(256)
    pack_direct_fma_sm80(const float* __restrict__ w, const float* __restrict__ bias,
                         float* __restrict__ packed) {
  constexpr Conv2dExtents a = config.problem;
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i >= config.flag_at()) return;
  float value = 0;
  if (i >= config.bias_at()) {
    value = bias ? bias[i - config.bias_at()] : 0;
  } else if (i >= config.exact_weights()) {
    value = w[i - config.exact_weights()];
    if (!(fabsf(value) < __int_as_float(0x7f800000))) packed[config.flag_at()] = 1;
  } else {
    constexpr int kRow = config.weight_row_floats(), kBias = a.group_channels() * a.r * kRow;
    const int at = static_cast<int>(i % config.chunk_floats());
    const long long chunk = i / config.chunk_floats();
    const int group = static_cast<int>(chunk / config.group_chunks());
    const int first = static_cast<int>(chunk % config.group_chunks()) * config.filters;  // of the group
    const bool is_bias = at >= kBias;
    const int filter = first + (is_bias ? at - kBias : at % kRow % config.filters);
    const int s = at % kRow / config.filters, row = at / kRow;  // row: channel * r + filter row
    const long long k = static_cast<long long>(group) * a.group_filters() + filter;
    if (filter < a.group_filters()) {
      if (is_bias)
        value = bias && at - kBias < config.filters ? bias[k] : 0;
      else if (s < a.s)
        value = w[(k * (a.group_channels() * a.r) + row) * a.s + s];
    }
  }
  packed[i] = value;
}

}  // namespace convtune
