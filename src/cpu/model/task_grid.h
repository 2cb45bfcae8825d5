// How the work of a problem is shared out among threads. Plain arithmetic.
#pragma once

#include <algorithm>
#include <cstdint>

namespace convtune::cpu {

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
    if (tasks() == 0) return 0;  // an empty batch has none
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

  // The first thread's share of all work, over an equal share: tasks are shared out in runs, of
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

}  // namespace convtune::cpu
