// How depthwise_weight_gradient_half.cuh loads: rows of x and dy, eights of channels of two columns by
// threads, from memory into registers, and from there into planes of channels in shared memory.
#pragma once

#include "cuda/algorithms/depthwise_weight_gradient_half/config.h"
#include "cuda/ptx/global.cuh"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/constants.cuh"
#include "cuda/tile/element.cuh"

namespace convtune::depthwise_weight_gradient_half {

// Two columns' eights of channels, of which a thread brings the same ones of every stage.
struct Pair {
  const unsigned short* from;  // the first column, of the row that comes next
  int row;                     // that row of x; of dy, counted from the strip's last on: below 0 there is one
  unsigned has;                // bits: columns that there are
  unsigned to;                 // behind a buffer's begin; none: it is nobody's
};
constexpr unsigned kNowhere = ~0u;

template <DepthwiseWeightGradientHalf config>
struct Loader {
  static constexpr ConvExtents a = config.conv;
  static constexpr int kInputs = config.thread_inputs(), kGradients = config.thread_gradients();
  const unsigned short *x, *dy;
  int first_channel;
  Pair inputs[kInputs], gradients[kGradients];
  unsigned words[kInputs + kGradients][2][4];

  __device__ __forceinline__ Loader(const unsigned short* __restrict__ all_x,
                                    const unsigned short* __restrict__ all_dy, int channel)
      : x(all_x), dy(all_dy), first_channel(channel) {}

  // To the first rows of a group's strips.
  __device__ __forceinline__ void begin(int group) {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) {
      constexpr int kPairs = 4 * (config.across + 1);
      const int item = static_cast<int>(threadIdx.x) + i * config.threads();
      const int octet = item % config.octets, pair = item / config.octets % kPairs;
      const int strip = item / config.octets / kPairs % config.abreast();
      const int row = item / config.octets / kPairs / config.abreast();
      const Place at(group * config.abreast() + strip, item < config.input_pairs());
      inputs[i] = pair_of(x, at, a.h, a.w, at.p - a.pad_top + row, at.q - a.pad_left + 2 * pair, octet);
      inputs[i].to = item < config.input_pairs()
                         ? config.channel_at(8 * octet) + config.input_at(row, strip) + 4 * pair
                         : kNowhere;
    }
#pragma unroll
    for (int i = 0; i < kGradients; ++i) {
      constexpr int kPairs = 4 * config.across;
      const int item = static_cast<int>(threadIdx.x) + i * config.threads();
      const int octet = item % config.octets, pair = item / config.octets % kPairs;
      const int strip = item / config.octets / kPairs % config.abreast();
      const int row = item / config.octets / kPairs / config.abreast();
      const Place at(group * config.abreast() + strip, item < config.gradient_pairs());
      gradients[i] = pair_of(dy, at, a.p, a.q, at.p + row, at.q + 2 * pair, octet);
      gradients[i].row -= lesser(at.p + config.rows, a.p);
      gradients[i].to = item < config.gradient_pairs()
                            ? config.channel_at(8 * octet) + config.gradient_at(row, strip) + 4 * pair
                            : kNowhere;
    }
  }
  __device__ __forceinline__ void fetch() {
#pragma unroll
    for (int i = 0; i < kInputs; ++i)
      fetch<a.w>(words[i], inputs[i], static_cast<unsigned>(inputs[i].row) < static_cast<unsigned>(a.h));
#pragma unroll
    for (int i = 0; i < kGradients; ++i) fetch<a.q>(words[kInputs + i], gradients[i], gradients[i].row < 0);
  }
  // As fetch() and store(), on the way through a place of shared memory, where a thread finds its own.
  __device__ __forceinline__ void ask(unsigned coming) {
    coming += 16 * threadIdx.x;
    for_constants<0, kInputs>([&](auto i) {
      ask<a.w, i.value>(coming, inputs[i.value],
                        static_cast<unsigned>(inputs[i.value].row) < static_cast<unsigned>(a.h));
    });
    for_constants<0, kGradients>(
        [&](auto i) { ask<a.q, kInputs + i.value>(coming, gradients[i.value], gradients[i.value].row < 0); });
  }
  __device__ __forceinline__ void store_asked(unsigned coming, unsigned buffer) const {
    coming += 16 * threadIdx.x;
#pragma unroll
    for (int i = 0; i < kInputs + kGradients; ++i) {
      const Pair& pair = i < kInputs ? inputs[i < kInputs ? i : 0] : gradients[i < kInputs ? 0 : i - kInputs];
      unsigned both[2][4];
#pragma unroll
      for (int column = 0; column < 2; ++column)
        ptx::ld_shared_v4(both[column], coming + (2 * i + column) * (16 * config.threads()));
      store(both, pair, buffer);
    }
  }
  __device__ __forceinline__ void store(unsigned buffer) const {
#pragma unroll
    for (int i = 0; i < kInputs; ++i) store(words[i], inputs[i], buffer);
#pragma unroll
    for (int i = 0; i < kGradients; ++i) store(words[kInputs + i], gradients[i], buffer);
  }

 private:
  // Locates a strip's first output.
  struct Place {
    int image, p, q;
    bool exists;
    __device__ __forceinline__ Place(int strip, bool wanted)
        : image(strip / config.sides() / config.bands()),
          p(strip / config.sides() % config.bands() * config.rows),
          q(strip % config.sides() * (8 * config.across)),
          exists(wanted && strip < static_cast<int>(config.strips())) {}
  };
  __device__ __forceinline__ Pair pair_of(const unsigned short* tensor, const Place& at, int rows,
                                          int columns, int row, int column, int octet) const {
    const int channel = first_channel + 8 * octet;
    const bool exists = at.exists && channel < a.c;
    return {tensor + static_cast<long long>(at.image) * (rows * columns * a.c) +
                (row * columns + column) * a.c + channel,
            row,
            (exists && column >= 0 && column < columns ? 1u : 0u) |
                (exists && column + 1 >= 0 && column + 1 < columns ? 2u : 0u),
            kNowhere};
  }
  template <int kColumns>
  __device__ __forceinline__ static void fetch(unsigned (&to)[2][4], Pair& pair, bool inside) {
    const unsigned has = inside ? pair.has : 0;
    for_constants<0, 2>([&](auto i) {
      constexpr long long kBytes = 2LL * i.value * config.conv.c;
      if constexpr (config.aligned)
        ptx::ld_global_v4_if<kBytes>(to[i.value], pair.from, has & 1u << i.value);
      else
        for_constants<0, 4>([&](auto word) {
          unsigned low, high;
          constexpr long long kByte = kBytes + 4 * word.value;
          ptx::ld_global_u16_if<kByte>(low, pair.from, has & 1u << i.value);
          ptx::ld_global_u16_if<kByte + 2>(high, pair.from, has & 1u << i.value);
          to[i.value][word.value] = low | high << 16;
        });
    });
    pair.row += config.step, pair.from += static_cast<long long>(config.step) * kColumns * a.c;
  }
  template <int kColumns, int kPair>
  __device__ __forceinline__ static void ask(unsigned to, Pair& pair, bool inside) {
    const unsigned has = inside ? pair.has : 0;
    for_constants<0, 2>([&](auto i) {
      ptx::cp_async_behind<16, (2 * kPair + i.value) * 16 * config.threads(), 2LL * i.value * config.conv.c>(
          to, pair.from, has & 1u << i.value ? 16 : 0);
    });
    pair.row += config.step, pair.from += static_cast<long long>(config.step) * kColumns * a.c;
  }
  __device__ __forceinline__ static void store(const unsigned (&from)[2][4], const Pair& pair,
                                               unsigned buffer) {
    if (pair.to == kNowhere) return;
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      const unsigned at = buffer + pair.to + 2 * word * config.plane_bytes();
      ptx::st_shared(at, __byte_perm(from[0][word], from[1][word], 0x5410));
      ptx::st_shared(at + config.plane_bytes(), __byte_perm(from[0][word], from[1][word], 0x7632));
    }
  }
};

template <bool kNhwc, DepthwiseWeightGradientHalf config>
struct LoaderOf {
  using Type = Loader<config>;
};

}  // namespace convtune::depthwise_weight_gradient_half
