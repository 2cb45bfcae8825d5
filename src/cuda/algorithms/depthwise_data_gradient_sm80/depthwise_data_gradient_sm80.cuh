// The gradient of x of a depthwise layer with strides, on CUDA cores, in exact fp32: dx at x is the sum of
// weights times dy over the taps r for which x + pad - dilation * r is a multiple of the stride, p times. All
// residues are computed together, so that dy is read once and dx is stored in whole sectors:
//
//   a thread: channels of a strip of dx that begins at a multiple of the stride, their filters in registers
//   dy, what the strip meets of it --- loads, zeros outside ---> registers; which product is which tap's is
//   known to the compiler, and of the s * s times too many that there could be none is made
//
// These layers wait for memory, and dx is most of it. Strips that meet dy of each other find it in L1.
// Products with zeros outside of dy make NaN of infinite weights, which pack() flags: then all is computed
// from the products alone that there are.
#include "cuda/algorithms/depthwise_data_gradient_sm80/config.h"
#include "cuda/ptx/grid.cuh"
#include "cuda/tile/epilogue.cuh"
#include "cuda/tile/pack.cuh"

namespace convtune::depthwise_data_gradient_sm80 {

// A thread's share.
template <DepthwiseDataGradientSm80 config>
struct Share {
  int channel, column, row, image;

  __device__ explicit Share(unsigned i) {
    constexpr ConvExtents a = config.conv;
    if constexpr (a.nhwc)
      channel = static_cast<int>(i % config.chunks()) * config.width, i /= config.chunks();
    column = static_cast<int>(i % config.sides()) * config.columns, i /= config.sides();
    row = static_cast<int>(i % config.bands()) * config.rows * config.passes, i /= config.bands();
    if constexpr (!a.nhwc) channel = static_cast<int>(i % a.c), i /= a.c;
    image = static_cast<int>(i);
  }
};

// Numbers of a tensor, kCount beside each other, as words; zeros where they are not there.
template <DepthwiseDataGradientSm80 config, int kCount>
struct Run {
  static constexpr ElementType kType = config.conv.x_type;
  static constexpr int kWords = (kCount * size_of(config.conv.x_type) + 3) / 4;
  static constexpr bool kWhole = config.aligned && kCount * size_of(config.conv.x_type) >= 4;
  unsigned words[kWords];

  __device__ __forceinline__ void load(const void* __restrict__ tensor, int at, bool there) {
#pragma unroll
    for (unsigned& word : words) word = 0;
    if (!there) return;
    if constexpr (kType == ElementType::f32 && (kCount == 1 || !kWhole)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) words[i] = static_cast<const unsigned*>(tensor)[at + i];
    } else if constexpr (!kWhole) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        words[i / 2] |= static_cast<unsigned>(static_cast<const unsigned short*>(tensor)[at + i])
                        << 16 * (i % 2);
    } else {
      const auto* const from = static_cast<const unsigned char*>(tensor) + 1LL * at * size_of(kType);
      if constexpr (kWords == 1) {
        words[0] = *reinterpret_cast<const unsigned*>(from);
      } else if constexpr (kWords == 2) {
        const uint2 both = *reinterpret_cast<const uint2*>(from);
        words[0] = both.x, words[1] = both.y;
      } else {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        words[0] = four.x, words[1] = four.y, words[2] = four.z, words[3] = four.w;
      }
    }
  }
  __device__ __forceinline__ void store(void* __restrict__ tensor, int at) const {
    if constexpr (kType == ElementType::f32 && (kCount == 1 || !kWhole)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) static_cast<unsigned*>(tensor)[at + i] = words[i];
    } else if constexpr (!kWhole) {
#pragma unroll
      for (int i = 0; i < kCount; ++i)
        static_cast<unsigned short*>(tensor)[at + i] =
            static_cast<unsigned short>(words[i / 2] >> 16 * (i % 2));
    } else {
      auto* const to = static_cast<unsigned char*>(tensor) + 1LL * at * size_of(kType);
      if constexpr (kWords == 1)
        *reinterpret_cast<unsigned*>(to) = words[0];
      else if constexpr (kWords == 2)
        *reinterpret_cast<uint2*>(to) = {words[0], words[1]};
      else
        *reinterpret_cast<uint4*>(to) = {words[0], words[1], words[2], words[3]};
    }
  }
  __device__ __forceinline__ float operator[](int i) const {
    if constexpr (kType == ElementType::f32)
      return __uint_as_float(words[i]);
    else
      return i % 2 == 0 ? low_half<kType>(words[i / 2]) : high_half<kType>(words[i / 2]);
  }
};

// A strip's sums, [row][column][channel] with the last two as one.
template <DepthwiseDataGradientSm80 config>
using Sums = float[config.rows][config.columns * config.width];

template <DepthwiseDataGradientSm80 config>
using Filters = float[config.taps()][config.width];

template <DepthwiseDataGradientSm80 config>
__device__ __forceinline__ void read_filters(Filters<config>& filters, const float* __restrict__ packed,
                                             int channel) {
#pragma unroll
  for (int tap = 0; tap < config.taps(); ++tap) {
    const float* const from = packed + tap * config.conv.c + channel;
#pragma unroll
    for (int i = 0; i < config.width; i += 4) {
      if constexpr (config.width >= 4) {
        const float4 four = *reinterpret_cast<const float4*>(from + i);
        filters[tap][i] = four.x, filters[tap][i + 1] = four.y;
        filters[tap][i + 2] = four.z, filters[tap][i + 3] = four.w;
      } else if constexpr (config.width == 2) {
        const float2 both = *reinterpret_cast<const float2*>(from);
        filters[tap][0] = both.x, filters[tap][1] = both.y;
      } else {
        filters[tap][0] = *from;
      }
    }
  }
}

// `dy`: the image's, or in NCHW the channel's.
template <DepthwiseDataGradientSm80 config>
__device__ __forceinline__ void multiply(Sums<config>& sums, const Filters<config>& filters,
                                         const void* __restrict__ dy, const Share<config>& share, int row) {
  constexpr ConvExtents a = config.conv;
  constexpr StripAxis kDown = config.down(), kAcross = config.across();
  constexpr int kRows = kDown.count(), kColumns = kAcross.count();
  const int first_p = row / a.stride_h + kDown.first(), first_q = share.column / a.stride_w + kAcross.first();
  Run<config, config.width> window[kRows > 0 ? kRows : 1][kColumns > 0 ? kColumns : 1];
#pragma unroll
  for (int i = 0; i < kRows; ++i)
#pragma unroll
    for (int j = 0; j < kColumns; ++j)
      if (kDown.uses(i) && kAcross.uses(j)) {
        const int p = first_p + i, q = first_q + j;
        const bool there = p >= 0 && p < a.p && q >= 0 && q < a.q;
        window[i][j].load(dy, (p * a.q + q) * (a.nhwc ? a.c : 1) + (a.nhwc ? share.channel : 0), there);
      }
#pragma unroll
  for (int v = 0; v < config.rows; ++v)
#pragma unroll
    for (int r = 0; r < a.r; ++r) {
      const int i = kDown.met(v, r);
      if (i < 0) continue;
#pragma unroll
      for (int u = 0; u < config.columns; ++u)
#pragma unroll
        for (int s = 0; s < a.s; ++s) {
          const int j = kAcross.met(u, s);
          if (j < 0) continue;
#pragma unroll
          for (int channel = 0; channel < config.width; ++channel) {
            float& sum = sums[v][u * config.width + channel];
            sum = fmaf(window[i][j][channel], filters[r * a.s + s][channel], sum);
          }
        }
    }
}

// `residual`, `dx`: the image's, or in NCHW the channel's.
template <DepthwiseDataGradientSm80 config>
__device__ __forceinline__ void store(const Sums<config>& sums, const float (&bias)[config.width],
                                      const void* __restrict__ residual, void* __restrict__ dx,
                                      const Share<config>& share, int row) {
  constexpr ConvExtents a = config.conv;
  constexpr int kRun = config.run(), kPixel = a.nhwc ? a.c : 1;
  constexpr int kRuns = config.columns * config.width / kRun, kColumns = a.nhwc ? 1 : kRun;  // columns a run
#pragma unroll
  for (int v = 0; v < config.rows; ++v)
#pragma unroll
    for (int k = 0; k < kRuns; ++k) {
      const int column = share.column + k * kColumns;
      if (row + v >= a.h || column >= a.w) continue;
      const int at = ((row + v) * a.w + column) * kPixel + (a.nhwc ? share.channel : 0);
      Run<config, kRun> added, done;
      if constexpr (a.residual) added.load(residual, at, true);
#pragma unroll
      for (int i = 0; i < kRun; i += 2) {
        const float first = sums[v][k * kRun + i], first_bias = bias[i % config.width];
        if constexpr (kRun == 1) {
          const float value = finish<config.conv>(first, first_bias, a.residual ? added[0] : 0);
          if constexpr (a.x_type == ElementType::f32)
            done.words[0] = __float_as_uint(value);
          else
            done.words[0] = pack_halves<a.x_type>(value, 0);
        } else {
          const float second = sums[v][k * kRun + i + 1], second_bias = bias[(i + 1) % config.width];
          if constexpr (a.x_type == ElementType::f32) {
            done.words[i] =
                __float_as_uint(finish<config.conv>(first, first_bias, a.residual ? added[i] : 0));
            done.words[i + 1] =
                __float_as_uint(finish<config.conv>(second, second_bias, a.residual ? added[i + 1] : 0));
          } else {
            done.words[i / 2] = finish_halves<config.conv>(first, first_bias, second, second_bias,
                                                           a.residual ? added.words[i / 2] : 0);
          }
        }
      }
      done.store(dx, at);
    }
}

// Adds what an output meets, slowly: where a weight is not finite.
template <DepthwiseDataGradientSm80 config>
__device__ __noinline__ void compute_exactly(const void* __restrict__ dy, const float* __restrict__ packed,
                                             const void* __restrict__ residual, void* __restrict__ dx,
                                             unsigned index) {
  constexpr ConvExtents a = config.conv;
  const Share<config> share(index);
  constexpr int kOfRow = config.columns * config.width;
#pragma unroll 1
  for (int i = 0; i < config.passes * config.rows * kOfRow; ++i) {
    const int row = share.row + i / kOfRow, column = share.column + i / config.width % config.columns;
    const int channel = share.channel + i % config.width;
    if (row >= a.h || column >= a.w) continue;
    float sum = 0;
#pragma unroll 1
    for (int tap = 0; tap < config.taps(); ++tap) {
      const int down = row + a.pad_top - tap / a.s * a.dilation_h;
      const int right = column + a.pad_left - tap % a.s * a.dilation_w;
      if (down < 0 || down % a.stride_h != 0 || down / a.stride_h >= a.p) continue;
      if (right < 0 || right % a.stride_w != 0 || right / a.stride_w >= a.q) continue;
      const long long from = a.output_offset(share.image, channel, down / a.stride_h, right / a.stride_w);
      sum = fmaf(load_element<a.y_type>(dy, from), packed[tap * a.c + channel], sum);
    }
    const long long at = a.input_offset(share.image, channel, row, column);
    const float added = a.residual ? load_element<a.x_type>(residual, at) : 0;
    store_element<a.x_type>(dx, at,
                            finish<config.conv>(sum, packed[config.packed().bias_at() + channel], added));
  }
}

template <DepthwiseDataGradientSm80 config>
__global__ void __launch_bounds__(config.threads(), config.blocks)
    depthwise_data_gradient_sm80(const void* __restrict__ dy, const float* __restrict__ packed,
                                 const void* __restrict__ residual, void* __restrict__ dx) {
  ptx::wait_for_earlier_grids(packed);
  constexpr ConvExtents a = config.conv;
  constexpr Packed kPacked = config.packed();
  const unsigned index = blockIdx.x * static_cast<unsigned>(config.threads()) + threadIdx.x;
  if (index >= config.shares()) return;
  const Share<config> share(index);
  if (packed[kPacked.flag_at()] != 0) {
    compute_exactly<config>(dy, packed, residual, dx, index);
    return;
  }
  Filters<config> filters;
  read_filters<config>(filters, packed, share.channel);
  float bias[config.width];
#pragma unroll
  for (int channel = 0; channel < config.width; ++channel)
    bias[channel] = packed[kPacked.bias_at() + share.channel + channel];
  // Bytes before the image, or the plane.
  const long long planes = a.nhwc ? 1LL * share.image * a.c : 1LL * share.image * a.c + share.channel;
  constexpr long long kOutput = 1LL * a.p * a.q * size_of(a.y_type),
                      kInput = 1LL * a.h * a.w * size_of(a.x_type);
  const void* const gradient = static_cast<const unsigned char*>(dy) + planes * kOutput;
  const void* const others =
      a.residual ? static_cast<const unsigned char*>(residual) + planes * kInput : nullptr;
  void* const to = static_cast<unsigned char*>(dx) + planes * kInput;
#pragma unroll 1
  for (int turn = 0; turn < config.passes; ++turn) {
    const int row = share.row + turn * config.rows;
    if (row >= a.h) return;
    Sums<config> sums = {};
    multiply<config>(sums, filters, gradient, share, row);
    store<config>(sums, bias, others, to, share, row);
  }
}

// The packed weights. The flag must be 0 before.
template <DepthwiseDataGradientSm80 config>
__global__ void __launch_bounds__(kPackThreads)
    pack_depthwise_data_gradient_sm80(const void* __restrict__ w, const void* __restrict__ bias,
                                      unsigned* __restrict__ packed) {
  pack<config>(w, bias, packed, __float_as_uint);
}

}  // namespace convtune::depthwise_data_gradient_sm80
