// How depthwise_weight_gradient_half.cuh loads of NCHW: rows of planes, four columns at a time by threads,
// which lie in shared memory as they do in memory.
#pragma once

#include "cuda/algorithms/depthwise_weight_gradient_half/load.cuh"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"

namespace convtune::depthwise_weight_gradient_half {

// Rows of x, or of dy (kOfInput: false). A thread has the same four columns of every so many-th channel.
template <DepthwiseWeightGradientHalf config, bool kOfInput>
struct Rows {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kHeight = kOfInput ? a.h : a.p, kWidth = kOfInput ? a.w : a.q;
  static constexpr int kQuads = 2 * (config.across + kOfInput),
                       kGroup = config.step * config.abreast() * kQuads;
  static constexpr int kAbreast = config.threads() / kGroup;  // channels
  static constexpr int kItems = ceil_div(config.channels(), kAbreast);
  static constexpr bool kVectors =
      config.aligned && kWidth % 4 == 0 && (!kOfInput || config.before() % 4 == 0);
  const unsigned short* tensor;
  const unsigned short* from;  // the first channel's four columns, of the row that comes next
  int row;                     // that row of x; of dy, counted from the strip's last on: below 0 there is one
  int channels;                // that there are, from this thread's first one on
  unsigned has;                // bits: columns that there are
  unsigned to;                 // behind a buffer's begin
  unsigned words[kItems][2];

  __device__ __forceinline__ void begin(int group, int first_channel) {
    const int item = static_cast<int>(threadIdx.x) % kGroup;
    const int channel = static_cast<int>(threadIdx.x) / kGroup;
    const int quad = item % kQuads, strip = item / kQuads % config.abreast();
    const int below = item / kQuads / config.abreast();
    const int of_all = group * config.abreast() + strip;
    const int image = of_all / config.sides() / config.bands();
    const int p = of_all / config.sides() % config.bands() * config.rows;
    const int column =
        of_all % config.sides() * (8 * config.across) + 4 * quad - (kOfInput ? config.before() : 0);
    const bool exists = of_all < static_cast<int>(config.strips()) && channel < kAbreast;
    row = p + below - (kOfInput ? a.pad_top : 0);
    channels = exists ? lesser(a.c - first_channel, config.channels()) - channel : 0;
    has = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) has |= column + i >= 0 && column + i < kWidth ? 1u << i : 0;
    from = tensor + (static_cast<long long>(image) * a.c + first_channel + channel) * (kHeight * kWidth) +
           row * kWidth + column;
    if constexpr (!kOfInput) row -= lesser(p + config.rows, a.p);
    to = channel % 8 * config.plane_bytes() + channel / 8 * config.octet_bytes() + 8 * quad +
         (kOfInput ? config.input_at(below, strip) : config.gradient_at(below, strip));
  }
  __device__ __forceinline__ void fetch() {
    const bool inside = kOfInput ? static_cast<unsigned>(row) < static_cast<unsigned>(a.h) : row < 0;
    const unsigned wanted = inside ? has : 0;
    for_constants<0, kItems>([&](auto i) {
      constexpr long long kBytes = 2LL * i.value * kAbreast * kHeight * kWidth;
      const unsigned some = i.value * kAbreast < channels ? wanted : 0;
      if constexpr (kVectors) {
        ptx::ld_global_v2_if<kBytes>(words[i.value], from, some);
      } else {
        for_constants<0, 2>([&](auto word) {
          unsigned low, high;
          ptx::ld_global_u16_if<kBytes + 4 * word.value>(low, from, some & 1u << (2 * word.value));
          ptx::ld_global_u16_if<kBytes + 4 * word.value + 2>(high, from, some & 2u << (2 * word.value));
          words[i.value][word.value] = low | high << 16;
        });
      }
    });
    row += config.step, from += config.step * kWidth;
  }
  __device__ __forceinline__ void store(unsigned buffer) const {
    const int channel = static_cast<int>(threadIdx.x) / kGroup;
    if (channel >= kAbreast) return;
#pragma unroll
    for (int i = 0; i < kItems; ++i) {
      if (config.channels() % kAbreast != 0 && channel + i * kAbreast >= config.channels()) return;
      const int all = channel + i * kAbreast;
      const unsigned at = buffer + to - config.channel_at(channel) + config.channel_at(all);
      ptx::st_shared_v2(at, __uint_as_float(words[i][0]), __uint_as_float(words[i][1]));
    }
  }
};

template <DepthwiseWeightGradientHalf config>
struct PlanesLoader {
  Rows<config, true> inputs;
  Rows<config, false> gradients;
  int first_channel;

  __device__ __forceinline__ PlanesLoader(const unsigned short* __restrict__ x,
                                          const unsigned short* __restrict__ dy, int channel)
      : first_channel(channel) {
    inputs.tensor = x, gradients.tensor = dy;
  }
  // To the first rows of a group's strips.
  __device__ __forceinline__ void begin(int group) {
    inputs.begin(group, first_channel), gradients.begin(group, first_channel);
  }
  __device__ __forceinline__ void fetch() { inputs.fetch(), gradients.fetch(); }
  __device__ __forceinline__ void store(unsigned buffer) const {
    inputs.store(buffer), gradients.store(buffer);
  }
};

template <DepthwiseWeightGradientHalf config>
struct LoaderOf<false, config> {
  using Type = PlanesLoader<config>;
};

}  // namespace convtune::depthwise_weight_gradient_half
