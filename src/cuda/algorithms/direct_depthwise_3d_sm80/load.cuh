// How direct_depthwise_3d_sm80.cuh loads: a frame of a tile's input into shared memory; and how a thread
// reads a row of its strip's.
#pragma once

#include "cuda/algorithms/direct_depthwise_3d_sm80/config.h"
#include "cuda/ptx/sm80.cuh"
#include "cuda/tile/element.cuh"

namespace convtune::direct_depthwise_3d_sm80 {

// Describes a block's share of the problem. Tiles beside each other are neighbours, which share their
// margins.
template <DirectDepthwise3dSm80 config>
struct Part {
  int image, march, band, side, first_channel;  // in NCHW of all volumes

  __device__ explicit Part(unsigned block) {
    constexpr unsigned kChunks = static_cast<unsigned>(config.chunks());
    first_channel = static_cast<int>(block % kChunks) * config.channels;
    block /= kChunks;
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    band = static_cast<int>(block % config.bands());
    block /= config.bands();
    march = static_cast<int>(block % config.marches());
    image = static_cast<int>(block / config.marches());
  }
  __device__ bool has_channel(int channel) const {
    return config.volumes() % config.channels == 0 || first_channel + channel < config.volumes();
  }
};

template <ElementType kType>
struct Stored {
  using Type = unsigned short;
};
template <>
struct Stored<ElementType::f32> {
  using Type = float;
};
template <DirectDepthwise3dSm80 config>
using Element = typename Stored<config.conv.x_type>::Type;

// A frame that the volume has. A thread keeps its place in lines, where there are threads enough for one.
template <DirectDepthwise3dSm80 config>
__device__ __forceinline__ void load_frame(const Element<config>* __restrict__ x, const Part<config>& part,
                                           int frame, unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr int kCopied = config.copied(), kPieces = config.line_elements() / kCopied;
  constexpr int kBytes = kCopied * size_of(a.x_type), kLines = config.lines();
  constexpr int kAbreast = greater(config.threads() / kPieces, 1), kTurns = ceil_div(kLines, kAbreast);
  constexpr long long kVolume = 1LL * a.d * a.h * a.w;
  const int top = config.first_row(part.band), left = config.first_column(part.side);
  const Element<config>* const base =
      a.nhwc ? x + a.input_offset(part.image, part.first_channel, frame, 0, 0)
             : x + part.first_channel * kVolume + static_cast<long long>(frame) * (a.h * a.w);
  const auto load_line = [&](int line, int element, int column, bool inside) {
    const int channel = a.nhwc || config.channels == 1 ? 0 : line / config.input_rows();
    const int row = top + (a.nhwc || config.channels == 1 ? line : line % config.input_rows());
    const bool here = row >= 0 && row < a.h && (a.nhwc || part.has_channel(channel));
    const Element<config>* from = base + (a.nhwc ? row * (a.w * a.c) : row * a.w);
    if (!a.nhwc && config.channels > 1) from += channel * kVolume;
    from += column;
    const bool wanted = kLines % kAbreast == 0 || line < kLines;
    const unsigned there = to + line * config.line_bytes() + element * size_of(a.x_type);
    if constexpr (config.copies()) {
      const bool copied = here && inside;
      if constexpr (kBytes == 16)
        ptx::cp_async_16_if(there, copied ? from : x, copied ? 16 : 0, wanted);
      else
        ptx::cp_async_4_if(there, copied ? from : x, copied ? 4 : 0, wanted);
    } else if (wanted) {
      unsigned word = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const bool exists = a.nhwc ? inside && part.has_channel(element % config.channels + i)
                                   : left + element + i >= 0 && left + element + i < a.w;
        if (here && exists) word |= static_cast<unsigned>(from[i]) << (16 * i);
      }
      ptx::st_shared(there, word);
    }
  };
#pragma unroll 1
  for (int piece = static_cast<int>(threadIdx.x); piece < kPieces * kAbreast; piece += config.threads()) {
    const int element = piece % kPieces * kCopied, line = piece / kPieces;
    const int column = left + (a.nhwc ? element / config.channels : element);
    const bool inside =
        column >= 0 && column < a.w && (!a.nhwc || part.has_channel(element % config.channels));
    const int in_line = a.nhwc ? column * a.c + element % config.channels : column;
#pragma unroll(kTurns <= 8 ? kTurns : 4)
    for (int turn = 0; turn < kTurns; ++turn) load_line(line + turn * kAbreast, element, in_line, inside);
  }
}

template <DirectDepthwise3dSm80 config>
using Channels = float[config.width];

// The strip's input of a row, which begins at `from`.
template <DirectDepthwise3dSm80 config>
__device__ __forceinline__ void read_row(Channels<config> (&x)[config.strip_columns()], unsigned from) {
  constexpr ConvExtents a = config.conv;
  constexpr ElementType kType = a.x_type;
  if constexpr (a.nhwc) {
#pragma unroll
    for (int column = 0; column < config.strip_columns(); ++column) {
      if (!config.uses_column(column)) continue;
      const unsigned at = from + column * config.channels * size_of(kType);
      if constexpr (kType == ElementType::f32) {
        x[column][0] = __uint_as_float(ptx::ld_shared(at));
      } else if constexpr (config.width == 1) {
        x[column][0] = low_half<kType>(ptx::ld_shared_u16(at));
      } else {
        const unsigned word = ptx::ld_shared(at);
        x[column][0] = low_half<kType>(word), x[column][1] = high_half<kType>(word);
      }
    }
  } else {
    constexpr int kVector = DirectDepthwise3dSm80::kVector, kEnd = config.shift() + config.strip_columns();
#pragma unroll
    for (int first = config.shift() / kVector * kVector; first < kEnd; first += kVector) {
      float four[kVector];
      if constexpr (kType == ElementType::f32) {
        ptx::ld_shared_v4(four[0], four[1], four[2], four[3], from + first * 4);
      } else {
        unsigned words[2];
        ptx::ld_shared_v2(words[0], words[1], from + first * 2);
        four[0] = low_half<kType>(words[0]), four[1] = high_half<kType>(words[0]);
        four[2] = low_half<kType>(words[1]), four[3] = high_half<kType>(words[1]);
      }
#pragma unroll
      for (int i = 0; i < kVector; ++i) {
        const int column = first + i - config.shift();
        if (column >= 0 && column < config.strip_columns()) x[column][0] = four[i];
      }
    }
  }
}

}  // namespace convtune::direct_depthwise_3d_sm80
