// The orders of implicit_gemm_sm90.cuh, of tiles, steps and weights, in numbers of their own: kernels have
// them as constants, where a config's functions would be inlined by the compiler's optimizer, one in the
// other.
#pragma once

namespace convtune {

// The order in which clusters take tiles: filter blocks of the same pixels follow each other, so that one
// finds in L2 what another has read. Blocks of a cluster have neighbouring pixels. A filter block is of one
// section.
struct Tf32GemmTiles {
  int filter_blocks, section_blocks, section_filters, filters, group_channels, cluster, rows, all_filters;
  bool one_section, one_group, shares_sums;

  constexpr int first_filter(int tile) const {
    const int block = tile % filter_blocks;
    return block / section_blocks * section_filters + block % section_blocks * filters;
  }
  constexpr int end_filter(int filter) const {  // behind the last of its section
    return one_section ? all_filters : (filter / section_filters + 1) * section_filters;
  }
  constexpr int first_channel(int tile) const {  // its group's first
    return one_group ? 0 : tile % filter_blocks / section_blocks * group_channels;
  }
  constexpr int first_pixel(int tile, int rank) const {
    return (tile / filter_blocks * cluster + (shares_sums ? 0 : rank)) * rows;
  }
};

// The contents of a step: some channels, and a tap.
struct Tf32GemmSteps {
  // Channels of a step, then taps, extents of a frame and dilations of the filter.
  int channels, taps, rows, columns, dilation_d, dilation_h, dilation_w;

  constexpr int frame(int step) const { return step % taps / (rows * columns) * dilation_d; }
  constexpr int row(int step) const { return step % (rows * columns) / columns * dilation_h; }
  constexpr int column(int step) const { return step % (rows * columns) % columns * dilation_w; }
  constexpr int first_channel(int step) const { return step / taps * channels; }
};

// The order of filters: [section][channel][residue of a row], where residues of a row are abreast.
struct Tf32GemmFilters {
  int abreast, results;

  constexpr int at(int place) const {
    if (abreast == 1) return place;
    const int rest = place % (results * abreast);
    return place - rest + rest % abreast * results + rest / abreast;
  }
};

// The packed weights: [filter block][step][8 channels][4 of them][filter][channel].
struct Tf32GemmWeights {
  int filters, channels, steps, taps, section_blocks, section_filters, group_channels;
  Tf32GemmFilters order;

  constexpr long long source_of(long long i) const {
    const int step = static_cast<int>(i / (filters * channels) % steps);
    const int block = static_cast<int>(i / (1LL * steps * filters * channels));
    const int place = block % section_blocks * filters + static_cast<int>(i / 4 % filters);
    const int filter = order.at(block / section_blocks * section_filters + place);
    const int channel = step / taps * channels + static_cast<int>(i / (4 * filters) % (channels / 4)) * 4 +
                        static_cast<int>(i % 4);
    if (place >= section_filters || channel >= group_channels) return -1;
    return (static_cast<long long>(filter) * group_channels + channel) * taps + step % taps;
  }
};

}  // namespace convtune
