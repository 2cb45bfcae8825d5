// Staging: the input that one tile reads, copied into a core's cache in the order in which the
// kernels want it (direct_geometry.h has the picture).
#pragma once

#include "convtune/problem.h"
#include "cpu/algorithms/direct/direct_geometry.h"
#include "cpu/base/caches.h"
#include "cpu/tile/direct_kernels.h"

namespace convtune::cpu {

// Fills geometry.window words at `window` for the tile, zeros where it reaches past the image.
void stage_window(const ConvProblem& problem, const DirectGeometry& geometry, const DirectKernels& kernels,
                  const OutputTile& tile, const void* x, float* window);

// Fetches what the next tile stages into a core's second cache while this tile is computed, a few lines a
// call: staging would wait for every line of an image that comes from farther away.
class WindowAhead {
 public:
  WindowAhead() = default;  // nothing
  // The rows that `next` reads and `now` does not, in `calls` parts beside `taps` taps each.
  WindowAhead(const ConvProblem& problem, const OutputTile& now, const OutputTile& next, const void* x,
              std::int64_t calls, std::int64_t taps);

  void fetch() {
    for (std::int64_t i = 0; i < lines_; ++i, at_ += kCacheLineBytes) {
      if (at_ >= end_) {
        if (--planes_ < 0) return void(lines_ = 0);
        at_ = plane_, end_ = plane_ + bytes_, plane_ += plane_step_;
      }
      __builtin_prefetch(at_, 0, 2);
    }
  }

 private:
  // Bytes still to prefetch: `bytes_` of each plane from plane_ on, and [at_, end_) of the one before.
  const char *plane_ = nullptr, *at_ = nullptr, *end_ = nullptr;
  std::int64_t planes_ = 0, plane_step_ = 0, bytes_ = 0;
  std::int64_t lines_ = 0;  // a call
};

}  // namespace convtune::cpu
