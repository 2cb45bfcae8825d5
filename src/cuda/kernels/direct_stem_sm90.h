// The direct kernel for first layers on compute capability 9.0 (direct_stem_sm90.cuh, which draws it):
// problem, choices, and what follows from them, shared by the kernel and by the host that plans it.
#pragma once

namespace convtune {

struct DirectStemSm90 {
  // The problem.
  int n = 1, c = 1, h = 1, w = 1, k = 1, r = 1, s = 1, stride_h = 1, stride_w = 1, pad_top = 0, pad_left = 0;
  int p = 1, q = 1;
  bool relu = false;
  // The choices: warpgroups that multiply and that load; units kept at once; output rows of a band; filters
  // of a block.
  int consumers = 3, producers = 1, units = 3, band = 1, filters = 8;

  // ---- Geometry ----
  // Pixels q of one class (q modulo classes) begin a multiple of 4 columns after each other, which is
  // `planes` chunks of 4 columns. Each class has a copy of the row, each plane of it every planes-th chunk.
  constexpr int classes() const { return 4 / gcd(4, stride_w); }
  constexpr int planes() const { return classes() * stride_w / 4; }
  constexpr int positions() const { return ceil_div(q, classes()); }  // pixels of one class in a row
  constexpr int tiles() const { return ceil_div(positions(), kTile); }
  constexpr int column_groups() const { return ceil_div(s, 4); }  // of a filter's row
  constexpr int plane_chunks() const { return positions() + (column_groups() - 1) / planes(); }
  constexpr int row_chunks() const { return planes() * plane_chunks(); }
  // A unit is stride_h input rows of all channels, or as many of them as any filter row meets.
  constexpr int unit_rows() const { return r < stride_h ? r : stride_h; }
  constexpr int halo() const { return (r - 1) / stride_h; }  // units that an output row needs beside its own
  constexpr long long unit_chunks() const {
    return static_cast<long long>(c) * unit_rows() * classes() * row_chunks();
  }

  // Neighbouring columns that one load can read where x is aligned: chunks begin at multiples of it.
  constexpr int load_width() const {
    for (int width = 4; width > 1; width /= 2)
      if (w % width == 0 && pad_left % width == 0 && 4 / classes() % width == 0) return width;
    return 1;
  }

  // ---- The sum, in groups of 4 filter columns ----
  // Two groups are a k-step of the matrix product: an odd one out is given a partner of zeros.
  constexpr int rows_of_unit(int unit) const {
    const int left = r - unit * stride_h;
    return left < stride_h ? left : stride_h;
  }
  constexpr int real_groups(int unit) const { return c * rows_of_unit(unit) * column_groups(); }
  constexpr int groups(int unit) const { return ceil_div(real_groups(unit), 2) * 2; }
  constexpr int groups() const {
    int sum = 0;
    for (int unit = 0; unit <= halo(); ++unit) sum += groups(unit);
    return sum;
  }
  constexpr int k_steps() const { return groups() / 2; }

  // Where a group's numbers are. Within a unit the chunks' order is the groups', so that offsets grow.
  struct Group {
    int unit, channel, row /* of the unit */, column_group;
    bool real;
  };
  constexpr Group group(int index) const {
    int unit = 0;
    for (; index >= groups(unit); ++unit) index -= groups(unit);
    const bool real = index < real_groups(unit);
    if (!real) index = real_groups(unit) - 1;
    int place = index % column_groups(), plane = 0;
    for (; place >= groups_of_plane(plane); ++plane) place -= groups_of_plane(plane);
    const int row = index / column_groups();
    return {unit, row / rows_of_unit(unit), row % rows_of_unit(unit), plane + place * planes(), real};
  }
  // Chunks from the start of a unit to the first position of a group, in the copy of class 0.
  constexpr int group_offset(const Group& g) const {
    return ((g.channel * unit_rows() + g.row) * classes() * planes() + g.column_group % planes()) *
               plane_chunks() +
           g.column_group / planes();
  }

  // ---- A block ----
  constexpr int bands() const { return n * (p / band); }
  constexpr int filter_blocks() const { return ceil_div(k, filters); }
  constexpr int threads() const { return 128 * (consumers + producers); }
  constexpr int loaders() const { return 128 * producers; }
  constexpr int sums() const { return classes() * filters / 2; }  // registers of a thread
  constexpr int most_sums() const { return threads() > 384 ? 64 : 96; }
  // Shared memory: weights, units, staged outputs, barriers, flags. What follows the units is as long as an
  // operand: the last tile's is read to its end, and compute-sanitizer takes it to be contiguous.
  constexpr int staged_channels() const { return filters % 16 == 0 ? 16 : 8; }
  constexpr int staging_bytes() const {
    return classes() == 1 ? consumers * staged_channels() * kStagingPitch * 4 : kOperandBytes;
  }
  constexpr long long weight_bytes() const { return 16LL * groups() * filters; }
  constexpr long long units_bytes() const { return units * unit_chunks() * 16; }
  constexpr long long smem_bytes() const {
    return weight_bytes() + units_bytes() + staging_bytes() + units * (2 * 8 + 4);
  }

  // ---- Packed weights, in floats: each block's, then all as they came, bias, flag ----
  constexpr long long exact_weights() const { return filter_blocks() * weight_bytes() / 4; }
  constexpr long long bias_at() const { return exact_weights() + static_cast<long long>(k) * c * r * s; }
  constexpr long long flag_at() const { return bias_at() + k; }
  constexpr long long packed_floats() const { return flag_at() + 1; }

  // Whether the kernel compiles without spilling and a multiprocessor can hold a block of it.
  constexpr bool valid() const {
    return consumers >= 1 && producers >= 1 && consumers + producers <= kMostWarpgroups &&
           wgmma_has(filters) && band >= 1 && p % band == 0 && sums() <= most_sums() && units >= halo() + 2 &&
           units <= halo() + kMostUnitsBesideHalo && k_steps() * classes() <= kMostProducts &&
           smem_bytes() <= kMostSmemBytes &&
           // Offsets in an image and counters of a block are ints.
           static_cast<long long>(c + 1) * (h + pad_top) * w + pad_left < (1LL << 31) &&
           static_cast<long long>(n) * (p / band) * (band + halo()) * (unit_chunks() / 128 + 1) < (1LL << 31);
  }

  static constexpr int kTile = 64;  // positions of a product
  static constexpr int kOperandBytes = kTile * 8 * 4;
  static constexpr int kStagingPitch = 68;  // floats: no two threads of a warp write to one bank
  static constexpr int kMostWarpgroups = 4;
  static constexpr int kMostProducts = 256;
  static constexpr int kMostUnitsBesideHalo = 8;
  static constexpr int kMostSmemBytes = 227 * 1024;
  static constexpr bool wgmma_has(int columns) {
    return columns == 8 || columns == 16 || columns == 24 || columns == 32 || columns == 48 ||
           columns == 64 || columns == 96 || columns == 128;
  }

 private:
  static constexpr int gcd(int a, int b) { return b ? gcd(b, a % b) : a; }
  static constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }
  constexpr int groups_of_plane(int plane) const { return ceil_div(column_groups() - plane, planes()); }
};

}  // namespace convtune
