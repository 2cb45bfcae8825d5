// The order of tiles and stages of direct_body_half_sm90.cuh, in numbers of its own: kernels have them as
// constants, where a config's functions would be inlined by the compiler's optimizer, one in the other.
#pragma once

#include "cuda/algorithms/direct_body_half_sm90/axis.h"

namespace convtune {

// Clusters take tiles in order, those of the same outputs beside each other, and frames one after the other,
// which read the same ones of x; blocks of a cluster have neighbouring outputs.
struct BodyTiles {
  int filter_tiles, group_tiles, image_tiles, row_tiles, column_tiles;  // group_tiles: of a set
  int images, rows, columns, filters, cluster;                          // of a tile, and of a cluster
  bool has_depth, one_group, one_set;

  constexpr BodyCorner corner(int tile, int rank) const {
    const int at = tile / filter_tiles * cluster + rank;
    const int plane = has_depth ? at / image_tiles : at;
    const int above = plane / column_tiles / row_tiles;
    return {(has_depth ? at % image_tiles : above) * images,
            plane / column_tiles % row_tiles * rows,
            plane % column_tiles * columns,
            has_depth ? above : 0,
            one_group ? 0 : tile % filter_tiles / group_tiles,
            tile % group_tiles * filters,
            one_set ? 0 : tile % filter_tiles / group_tiles};
  }
};

// The contents of a stage: a phase of some channels, of the frame that a tap over time reads.
struct BodyStages {
  int channels, chunk_stages, row_phases, column_phases, frames;
  int stride, pad, dilation;  // geometry along the axis of frames
  bool has_depth;

  constexpr int first_channel(int stage) const { return stage / chunk_stages * channels; }
  constexpr int first_row(int stage) const { return stage / column_phases % row_phases; }
  constexpr int first_column(int stage) const { return stage % column_phases; }
  constexpr int frame(int stage) const { return stage / (row_phases * column_phases) % frames; }
  // The frame that it has for an output's, or the image.
  constexpr int input_image(int stage, int image) const {
    if (!has_depth) return image;
    return image * stride - pad + frame(stage) * dilation;
  }
};

// The pixels of a stage's box, one after the other. An output's tap is so many behind its own.
struct BodyPixels {
  BodyAxis down, across;
  int above, before, pitch;

  constexpr int of_tap(int row, int column) const {
    return (down.offset(row) + above) * pitch + across.offset(column) + before;
  }
};

}  // namespace convtune
