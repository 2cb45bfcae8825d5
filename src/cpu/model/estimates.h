// What the estimates of several algorithms of the CPU count alike. Plain arithmetic; cycles are a core's.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "convtune/problem.h"
#include "cpu/base/caches.h"
#include "cpu/tile/line_blocks.h"
#include "cpu/tile/stagger.h"

namespace convtune::cpu {

// Cycles over all threads as time, so that algorithms' estimates can be compared. Only their ratios count,
// and a clock of 3 GHz is near any processor's.
inline double microseconds(double cycles, const DeviceInfo& on) {
  return cycles / (3000.0 * on.units);
}

// A thread's working memory may not grow past this: offsets in it are 32 bits, and a window far larger than
// any cache has lost its purpose.
constexpr double kMaxScratchBytes = 256.0 * 1024 * 1024;

// Planes of outputs that are cut into tiles, and tiles that are shared out by filters: those tasks stand one
// after the other, then the tiles along a row. The last tiles of a plane and the last filters are less work.
struct TaskGrid {
  std::int64_t planes = 1;
  std::int64_t rows = 1, tile_rows = 1;
  std::int64_t cols = 1, tile_cols = 1;
  std::int64_t filters = 1, task_filters = 1;

  std::int64_t tasks() const { return planes * tiles(rows, tile_rows) * of_row(); }

  // The work of the first `count` tasks, in outputs.
  double work(std::int64_t count) const {
    if (tasks() == 0) return 0;  // of an empty batch
    const std::int64_t of_filters = tiles(filters, task_filters),
                       of_plane = tiles(rows, tile_rows) * of_row();
    const std::int64_t plane = count / of_plane, row = count % of_plane / of_row();
    const std::int64_t col = count % of_row() / of_filters, part = count % of_filters;
    const std::int64_t height = std::min(tile_rows, rows - row * tile_rows);
    const std::int64_t width = std::min(tile_cols, cols - col * tile_cols);
    return number(plane) * number(rows * cols) * number(filters) +
           number(row * tile_rows * cols) * number(filters) +
           number(height * col * tile_cols) * number(filters) +
           number(height * width) * number(part * task_filters);
  }

  // What the first thread has of all work, over an equal share: parallel_for() cuts the tasks into runs, of
  // which the first is as long as any and has the whole tiles of a plane.
  double longest_share(std::int64_t threads) const {
    if (tasks() == 0) return 1;
    return work((tasks() - 1) / threads + 1) / work(tasks()) * number(threads);
  }

 private:
  static double number(std::int64_t count) { return static_cast<double>(count); }
  static std::int64_t tiles(std::int64_t extent, std::int64_t tile) { return (extent + tile - 1) / tile; }
  std::int64_t of_row() const { return tiles(cols, tile_cols) * tiles(filters, task_filters); }
};

// What storing a vector of outputs costs, in cycles, of tasks that store so many bytes each. Outputs that do
// not stay in the caches are read before they are written there. Of those that stay, few at a time are found
// nearer: sd_unet_conv_in takes a Zen 3 770 us in tasks of 80 KB and 1,340 in tasks of 1.3 MB. Past the
// caches costs no more there than where nothing stays: with 3 in place of 2.5 first layers were chosen worse,
// by the times of five runs, and others alike.
inline double store_cycles(const ConvProblem& a, const DeviceInfo& info, bool past_caches,
                           double task_bytes) {
  if (past_caches) return 2.5;
  if (!caches_keep(a, info)) return 5;
  const auto l2 = static_cast<double>(l2_bytes_of(info));
  return 2.5 + 3 * task_bytes / (task_bytes + l2);
}

// What a window of NCHW takes more where memory is not read from end to end, but a short piece of each
// channel's plane.
inline double short_pieces_cycles(const ConvProblem& a, std::int64_t output_rows) {
  constexpr double kShort = 8 * 1024, kLine = 64, kCyclesALine = 12;
  const std::int64_t rows = std::min((output_rows - 1) * a.stride_h + (a.r - 1) * a.dilation_h + 1, a.h);
  const double bytes = static_cast<double>(rows) * static_cast<double>(a.w * size_of(a.dtype.x));
  if (output_rows >= a.p() || bytes >= kShort) return 0;
  return static_cast<double>(a.c / a.groups) * kCyclesALine * bytes / kLine;
}

// What storing a vector of outputs costs more where lines of several planes meet (cpu/tile/stagger.h), on
// AMD's processors, unless they are staggered. `stream` as in the configs.
inline double meeting_lines_cycles(const ConvProblem& a, const DeviceInfo& info, int stream) {
  if (stream == 2) return 1;
  const bool waits = info.name.find("AMD") != std::string::npos;
  if (!waits || !lines_meet(a.p() * a.q() * size_of(a.dtype.y))) return 0;
  return stream == 0 && caches_keep(a, info) ? 4 : 9;
}

// The first of ranked configs, and no more than half of them of one value of `stream` where there are others:
// what stores cost is another thing on each maker's processors.
template <class Ranked>
void keep_mixed(std::vector<Ranked>& ranked, std::size_t most) {
  std::size_t of_stream[3] = {};
  std::stable_partition(ranked.begin(), ranked.end(),
                        [&](const Ranked& one) { return of_stream[one.config.stream]++ < (most + 1) / 2; });
  ranked.resize(std::min(ranked.size(), most));
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.estimate < b.estimate; });
}

// What a row of outputs costs more, in cycles, where it is stored in blocks that end amid a line: past the
// caches, the two parts of it are stored with other planes' outputs between them, so that the buffer which
// gathers a line is given up half full. Where planes lie a multiple of a page apart, a block's planes take
// such buffers from each other: 27 taps of 4 channels by 24 f32 outputs take a Zen 3 291 ns there in place of
// 95, 150 cycles for each channel's half line; through the caches it is a quarter of that.
inline double cut_lines_cycles(const ConvProblem& a, const LineBlocks& blocks, std::int64_t vector_bytes,
                               bool past_caches) {
  constexpr std::int64_t kPageBytes = 4096;
  const std::int64_t unit_bytes = blocks.unit * vector_bytes;
  const bool cuts = blocks.width * unit_bytes % kCacheLineBytes != 0 ||
                    (blocks.wider != 0 && (blocks.width + 1) * unit_bytes % kCacheLineBytes != 0);
  if (!cuts) return 0;
  const double half_line = a.p() * a.q() * size_of(a.dtype.y) % kPageBytes == 0 ? 150 : 15;
  return half_line / (past_caches ? 1 : 4) * static_cast<double>(blocks.count - 1);
}

}  // namespace convtune::cpu
