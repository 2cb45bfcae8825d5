// The orders of implicit_gemm_half_sm90.cuh, of tiles, steps and weights, in numbers of their own: kernels
// have them as constants, where a config's functions would be inlined by the compiler's optimizer, one in the
// other.
#pragma once

#include "cuda/tile/arithmetic.h"

namespace convtune {

// The order in which clusters take tiles: filter blocks of the same pixels follow each other, so that one
// finds in L2 what another has read. Blocks of a cluster have neighbouring pixels. With a cache a tile is of
// one frame, since its taps read the cache or x, and the last of a frame may have fewer pixels.
struct HalfGemmTiles {
  int filter_blocks, group_blocks, group_filters, filters, cluster, rows, frame_tiles, frame_pixels;
  bool one_group, shares_sums, of_frames;

  constexpr int group(int tile) const { return one_group ? 0 : tile % filter_blocks / group_blocks; }
  constexpr int first_filter(int tile) const {
    return group(tile) * group_filters + tile % group_blocks * filters;
  }
  constexpr int end_filter(int tile) const { return (group(tile) + 1) * group_filters; }  // for the group
  constexpr int first_pixel(int tile, int rank) const {
    const int at = tile / filter_blocks * cluster + (shares_sums ? 0 : rank);
    return of_frames ? at / frame_tiles * frame_pixels + at % frame_tiles * rows : at * rows;
  }
  // For the tile that begins at `first`, where there are so many pixels.
  constexpr int end_pixel(int first, int pixels) const {
    return of_frames ? lesser((first / frame_pixels + 1) * frame_pixels, pixels) : pixels;
  }
};

// The contents of a step: a tap, and some channels.
struct HalfGemmSteps {
  // Channels of a step and blocks of them in a tap, then extents and dilations of the filter.
  int channels, channel_blocks, frames, rows, columns, dilation_d, dilation_h, dilation_w;

  constexpr int tap(int step) const { return step / channel_blocks; }
  constexpr int frame(int step) const { return tap(step) / (rows * columns) * dilation_d; }
  constexpr int row(int step) const {
    const int row = tap(step) / columns;  // counted through all frames
    return (frames == 1 ? row : row % rows) * dilation_h;
  }
  constexpr int column(int step) const { return tap(step) % columns * dilation_w; }
  constexpr int first_channel(int step) const { return step % channel_blocks * channels; }
};

// The packed weights, in halves: [filter block][step][filter][piece, exchanged][8].
struct HalfGemmWeights {
  int pieces, filters, steps, channel_blocks, taps, depth, group_blocks, group_filters;

  // Pieces of 16 bytes are exchanged as TMA and wgmma have it. Its own inverse.
  constexpr int exchanged(int row, int piece) const { return piece ^ (row * pieces / 8 % pieces); }
  // Distance in w between the weights of a piece, where all pieces are whole ones or zeros; else 0.
  constexpr int apart() const { return depth % 8 == 0 ? taps : 0; }
  constexpr long long source_of(long long i) const {
    const long long at = i / 8;
    const int row = static_cast<int>(at / pieces % filters);
    const auto whole = static_cast<int>(at / (filters * pieces));  // steps of all blocks
    const int step = whole % steps, block = whole / steps, in_group = block % group_blocks * filters + row;
    const int piece = exchanged(row, static_cast<int>(at % pieces));
    const int channel = (step % channel_blocks * pieces + piece) * 8 + static_cast<int>(i % 8);
    if (in_group >= group_filters || channel >= depth) return -1;
    const long long filter = block / group_blocks * group_filters + in_group;
    return (filter * depth + channel) * taps + step / channel_blocks;
  }
  // The place of a filter's weight, [channel][tap]: the inverse of source_of().
  constexpr long long half_of(int filter, int weight) const {
    const int channel = weight / taps, in_group = filter % group_filters;
    const int step = weight % taps * channel_blocks + channel / 8 / pieces;
    const int block = filter / group_filters * group_blocks + in_group / filters, row = in_group % filters;
    const int piece = exchanged(row, channel / 8 % pieces);
    const long long first = 1LL * steps * filters * pieces * 8;  // halves of a block
    return block * first + ((1LL * step * filters + row) * pieces + piece) * 8 + channel % 8;
  }
};

}  // namespace convtune
