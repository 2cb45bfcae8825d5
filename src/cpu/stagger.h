// Stores past the caches to several planes at a time, staggered.
//
// A Zen 3 keeps a line that goes past the caches until memory has taken it. In that time it takes no other
// line of the same place in a page, and what is read of such a place waits. Where planes lie a multiple of a
// page apart, all lines of a register tile are of one place: 27 taps of 6 channels by 16 f32 outputs take
// 118 ns in place of 69, and 267 where planes lie a MiB apart. Staggered they take 82 and 95: of a run of
// register tiles along a row, each channel's lines go to memory one register tile later than those of the
// channel before, from a ring in the first cache. An Emerald Rapids hides such stores as they are, and loses
// a tenth by the ring (docs/decisions/0084).
#pragma once

#include <algorithm>
#include <cstdint>

namespace convtune::cpu {

constexpr std::int64_t kCacheLineBytes = 64;

// Part of a run of register tiles of equal width along a row of outputs.
struct Stagger {
  static constexpr std::int64_t kSteps = 8;  // channels whose lines are apart, a power of two

  // [channel][step % kSteps][vectors], aligned to lines of the cache; null: stored as they come.
  float* ring = nullptr;
  std::int64_t step = 0;  // register tiles of the run before this one
  bool last = false;      // nothing may be left in the ring
};

constexpr std::int64_t stagger_floats(std::int64_t channels, std::int64_t vectors, std::int64_t lanes) {
  return channels * Stagger::kSteps * vectors * lanes;
}

// Whether lines of planes meet, which lie so many bytes apart: half a page is as bad, a quarter is not.
constexpr bool lines_meet(std::int64_t plane_bytes) {
  constexpr std::int64_t kHalfPage = 2048;
  return plane_bytes % kHalfPage == 0;
}

// How the vectors of a line of outputs are shared out among register tiles of `most` vectors: in blocks of
// nearly equal width, so that 7 are 4 + 3 and not 4 + 2 + 1. Blocks are of whole units but for the end of the
// line.
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
};

}  // namespace convtune::cpu
