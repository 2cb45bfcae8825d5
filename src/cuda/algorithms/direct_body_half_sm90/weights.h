// The order of the packed weights of direct_body_half_sm90.cuh, in numbers of its own: the kernel that packs
// has them as constants.
#pragma once

namespace convtune {

// The place of a piece of 16 bytes in its row of so many, exchanged as TMA and wgmma have it.
constexpr int exchanged_piece(int row, int piece, int pieces) {
  return piece ^ (row * pieces / 8 % pieces);
}

// [filter tile][step][filter][piece, exchanged][8], in halves.
struct BodyWeights {
  int channels, filters, steps, pieces, group_tiles, group_filters, group_channels, depth, folded;
  int taps, plane_taps, columns, row_phases, column_phases, row_period, column_period;
  long long tile_weights;

  // The tap of step `step`, the steps of some channels being counted from 0.
  constexpr int tap_of(int step) const {
    if (row_phases * column_phases == 1) return step;
    const int first = step / plane_taps * plane_taps;  // first tap of the step's frame
    int left = step - first;
    for (int phase = 0; phase < row_phases * column_phases; ++phase)
      for (int row = phase / column_phases; row < plane_taps / columns; row += row_period)
        for (int column = phase % column_phases; column < columns; column += column_period)
          if (left-- == 0) return first + row * columns + column;
    return 0;
  }
  // Distance in w between the weights of a piece, where all pieces are whole ones or zeros; else 0.
  constexpr int apart() const { return folded == 1 && depth % 8 == 0 ? taps : 0; }
  constexpr long long source_of(long long i) const {
    const int row = static_cast<int>(i / channels % filters);
    const auto whole = static_cast<int>(i / (filters * channels));  // steps of all tiles
    const int step = whole % steps, tile = whole / steps, filter = tile % group_tiles * filters + row;
    const int piece = exchanged_piece(row, static_cast<int>(i / 8 % pieces), pieces);
    const int channel = step / taps * channels + piece * 8 + static_cast<int>(i % 8);
    if (filter >= group_filters || channel >= depth) return -1;
    const long long first = 1LL * (tile / group_tiles) * group_filters;
    return ((first + filter) * group_channels + channel % group_channels) * taps * folded +
           tap_of(step % taps) * folded + channel / group_channels;
  }

  // The place of a filter's weight: the inverse of source_of().
  constexpr long long half_of(int whole, int weight) const {
    const int filter = whole % group_filters, row = filter % filters;
    const int channel = weight % folded * group_channels + weight / (taps * folded);
    const int tap = weight / folded % taps;
    int step = row_phases * column_phases == 1 ? tap : 0;
    while (tap_of(step) != tap) ++step;
    step += channel / channels * taps;
    const long long tile = whole / group_filters * group_tiles + filter / filters;
    const int piece = exchanged_piece(row, channel % channels / 8, pieces);
    return tile * tile_weights + ((1LL * step * filters + row) * pieces + piece) * 8 + channel % 8;
  }
};

}  // namespace convtune
