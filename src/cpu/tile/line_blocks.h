// How a line of outputs is shared out among register tiles.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/base/caches.h"

namespace convtune::cpu {

// Vectors of so many elements that make a line of the cache: what no register tile cuts where rows of outputs
// are whole lines and go past the caches, which half lines do many times slower (cpu/model/store_work.h).
// Tiles of fewer vectors do.
inline std::int64_t line_unit_of(std::int64_t row_elements, std::int64_t lanes, std::int64_t element_bytes) {
  if (row_elements * element_bytes % kCacheLineBytes != 0) return 1;
  return std::max<std::int64_t>(kCacheLineBytes / (lanes * element_bytes), 1);
}

// The vectors of a line in blocks of `most` or fewer and of nearly equal width, so that 7 are 4 + 3 and not
// 4 + 2 + 1. Blocks are of whole units but for the end of the line.
struct LineBlocks {
  std::int64_t vectors, unit;  // of a line; of a unit
  std::int64_t count, width;   // blocks; units of the narrower ones
  std::int64_t wider;          // blocks of a unit more, which come first

  LineBlocks(std::int64_t line_vectors, std::int64_t most, std::int64_t unit_vectors)
      : vectors(line_vectors), unit(std::min(unit_vectors, most)) {
    const std::int64_t units = (vectors - 1) / unit + 1;
    count = (units - 1) / (most / unit) + 1;
    width = units / count, wider = units % count;
  }
  // The first vector of a block, and of `count` the end.
  std::int64_t first(std::int64_t block) const {
    return std::min((block * width + std::min(block, wider)) * unit, vectors);
  }
  std::int64_t width_of(std::int64_t block) const { return first(block + 1) - first(block); }
  // Whether the next block is of another width, or there is none.
  bool ends_run(std::int64_t block) const {
    return block + 1 == count || width_of(block + 1) != width_of(block);
  }
};

}  // namespace convtune::cpu
