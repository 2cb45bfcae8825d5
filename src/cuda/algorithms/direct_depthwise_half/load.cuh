// How direct_depthwise_half.cuh loads: a tile's input, and what is added to its outputs, into planes of
// channels in shared memory.
#pragma once

#include "cuda/algorithms/direct_depthwise_half/config.h"
#include "cuda/ptx/sm80.cuh"

namespace convtune::direct_depthwise_half {

// Sizes of the planes in shared memory, in bytes: constants for certain, which a search for the best pitch is
// not.
template <DirectDepthwiseHalf config>
struct Planes {
  static constexpr DirectDepthwiseHalf::Pitch kPitch = config.pitch();
  static constexpr int kRow = kPitch.row, kImage = kPitch.image, kPlane = config.plane_bytes(),
                       kOctet = config.octet_bytes();
  static constexpr DirectDepthwiseHalf::Outputs kOutputs = config.outputs();
};

// Describes a block's share of the problem: chunks beside each other, so that one finds in L2 what another
// has read of a line.
template <DirectDepthwiseHalf config>
struct Part {
  int chunk, side, level, image;

  __device__ explicit Part(unsigned block) {
    chunk = static_cast<int>(block % config.chunks());
    block /= config.chunks();
    side = static_cast<int>(block % config.sides());
    block /= config.sides();
    level = static_cast<int>(block % config.levels());
    image = static_cast<int>(block / config.levels()) * config.images;
  }
  __device__ int first_channel() const { return chunk * config.channels(); }
  __device__ int p() const { return level * config.tile_rows(); }
  __device__ int q() const { return side * config.tile_columns(); }
  __device__ bool has_image(int of_tile) const {
    return config.conv.n % config.images == 0 || image + of_tile < config.conv.n;
  }
};

// Eight channels of a pixel.
template <bool kAligned>
__device__ __forceinline__ uint4 octet_at(const unsigned short* __restrict__ from) {
  if constexpr (kAligned) {
    unsigned words[4];
    ptx::ld_global_v4_uncached(words, from);
    return {words[0], words[1], words[2], words[3]};
  }
  const auto word = [&](int i) { return from[2 * i] | static_cast<unsigned>(from[2 * i + 1]) << 16; };
  return {word(0), word(1), word(2), word(3)};
}

// f(first row, piece) for a thread's share of rows of pieces: it has the same piece of every
// rows_abreast()-th row, so that a row is a constant away from the one before.
template <DirectDepthwiseHalf config, int kPieces, class F>
__device__ __forceinline__ void for_pieces(const F& f) {
  constexpr int kAbreast = config.rows_abreast(kPieces);
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = kPieces > config.threads() ? 0 : thread / kPieces;
  if (kAbreast * kPieces < config.threads() && first_row >= kAbreast) return;
#pragma unroll 1
  for (int piece = kPieces > config.threads() ? thread : thread % kPieces; piece < kPieces;
       piece += config.threads())
    f(first_row, piece);
}

// A tile's input into planes, eights of channels of two pixels by threads. Zeros where there is no image.
template <DirectDepthwiseHalf config>
__device__ __forceinline__ void load_tile(const unsigned short* __restrict__ x, const Part<config>& part,
                                          unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr int kPieces = config.column_pairs() * config.octets, kAll = config.images * config.input_rows();
  constexpr int kAbreast = config.rows_abreast(kPieces), kBatch = config.loads_together();
  const int top = config.first_row(part.level), left = config.first_column(part.side);
  const unsigned short* const image = x + static_cast<long long>(part.image) * (a.h * a.w * a.c);
  for_pieces<config, kPieces>([&](int first_row, int piece) {
    const int octet = piece % config.octets, pair = piece / config.octets;
    const int channel = part.first_channel() + 8 * octet;
    const bool has_channel = a.c % config.channels() == 0 || channel < a.c;
    const bool has[2] = {has_channel && static_cast<unsigned>(left + 2 * pair) < a.w,
                         has_channel && static_cast<unsigned>(left + 2 * pair + 1) < a.w};
    const unsigned plane = to + octet * Planes<config>::kOctet + 4 * pair;
    const unsigned short* const pixels = image + ((top + first_row) * a.w + left + 2 * pair) * a.c + channel;
#pragma unroll 1
    for (int begin = 0; begin < kAll; begin += kBatch * kAbreast) {
      uint4 loaded[kBatch][2] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast + first_row;
        const int of_tile = config.images == 1 ? 0 : row / config.input_rows();
        const int image_row = top + row - of_tile * config.input_rows();
        const bool here = row < kAll && static_cast<unsigned>(image_row) < a.h && part.has_image(of_tile);
        const unsigned short* const from = pixels + (begin + i * kAbreast) * (a.w * a.c) +
                                           of_tile * ((a.h - config.input_rows()) * a.w * a.c);
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (here && has[j] && 2 * pair + j < config.read_columns())
            loaded[i][j] = octet_at<config.aligned>(from + j * a.c);
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast + first_row;
        if (kAll % (kBatch * kAbreast) != 0 && row >= kAll) break;
        const int of_tile = config.images == 1 ? 0 : row / config.input_rows();
        const unsigned there = plane + of_tile * Planes<config>::kImage +
                               (row - of_tile * config.input_rows()) * Planes<config>::kRow;
        const unsigned one[4] = {loaded[i][0].x, loaded[i][0].y, loaded[i][0].z, loaded[i][0].w};
        const unsigned next[4] = {loaded[i][1].x, loaded[i][1].y, loaded[i][1].z, loaded[i][1].w};
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const unsigned at = there + 2 * word * Planes<config>::kPlane;
          ptx::st_shared(at, __byte_perm(one[word], next[word], 0x5410));
          ptx::st_shared(at + Planes<config>::kPlane, __byte_perm(one[word], next[word], 0x7632));
        }
      }
    }
  });
}

// Fetches what is added to a tile's outputs to where they will be, eights of channels of a pixel by threads:
// words of two channels as they come. As copies of words they would each take lines of L1 until they have
// come, and shared memory leaves few: that was as slow as reading them where they are added.
template <DirectDepthwiseHalf config>
__device__ __forceinline__ void load_residual(const unsigned short* __restrict__ residual,
                                              const Part<config>& part, unsigned to) {
  constexpr ConvExtents a = config.conv;
  constexpr DirectDepthwiseHalf::Outputs kTo = Planes<config>::kOutputs;
  constexpr int kPieces = config.tile_columns() * config.octets, kAll = config.images * config.tile_rows();
  constexpr int kAbreast = config.rows_abreast(kPieces), kBatch = config.residuals_together();
  const unsigned short* const from = residual + static_cast<long long>(part.image) * (a.p * a.q * a.c);
  for_pieces<config, kPieces>([&](int first_row, int piece) {
    const int octet = piece % config.octets, column = piece / config.octets;
    const int q = part.q() + column, channel = part.first_channel() + 8 * octet;
    const bool exists =
        (a.q % config.tile_columns() == 0 || q < a.q) && (a.c % config.channels() == 0 || channel < a.c);
    const unsigned pairs = to + octet * kTo.octet + kTo.offset(0, 0, column);
    const unsigned short* const pixels = from + (part.p() * a.q + q) * a.c + channel;
#pragma unroll 1
    for (int begin = first_row; begin < kAll; begin += kBatch * kAbreast) {
      uint4 loaded[kBatch] = {};
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast, image = config.images == 1 ? 0 : row / config.tile_rows();
        const int of_image = row - image * config.tile_rows();
        if (exists && row < kAll && part.has_image(image) &&
            (a.p % config.tile_rows() == 0 || part.p() + of_image < a.p))
          loaded[i] = octet_at<config.aligned>(pixels + (image * a.p + of_image) * (a.q * a.c));
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int row = begin + i * kAbreast, image = config.images == 1 ? 0 : row / config.tile_rows();
        if (kAll % (kBatch * kAbreast) != 0 && row >= kAll) break;
        const unsigned there = pairs + image * kTo.image + (row - image * config.tile_rows()) * kTo.row;
        const unsigned words[4] = {loaded[i].x, loaded[i].y, loaded[i].z, loaded[i].w};
#pragma unroll
        for (int pair = 0; pair < 4; ++pair) ptx::st_shared(there + pair * kTo.pair, words[pair]);
      }
    }
  });
}

}  // namespace convtune::direct_depthwise_half
