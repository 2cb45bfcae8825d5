// Stores past the caches to several planes at a time, staggered.
//
// A Zen 3 knows a line that goes past the caches by its place in a page until memory has it. Until then it
// takes no other line of that place, and what is read of such a place waits. Where planes lie a multiple of a
// page apart, all lines of a register tile are of one place: 27 taps of 6 channels by 16 f32 outputs take
// 118 ns in place of 69 in the cache, and 267 where planes lie a MiB apart. Staggered, each channel's lines
// of a run of register tiles along a row are stored one register tile later than those of the channel before,
// from a ring in the first cache: 82 ns, and 95. An Emerald Rapids hides such stores as they are, and loses a
// tenth by the ring (docs/decisions/0084).
#pragma once

#include <cstdint>

namespace convtune::cpu {

// Part of a run of register tiles of equal width along a row of outputs.
struct Stagger {
  static constexpr std::int64_t kSteps = 8;  // channels whose lines are apart, a power of two

  // [channel][step % kSteps][vectors], aligned to lines of the cache; null: stored as they come.
  float* ring = nullptr;
  std::int64_t step = 0;  // register tiles of the run before this one
  bool last = false;      // of the run: nothing may be left in the ring

  void next() { step = last ? 0 : step + 1; }
};

constexpr std::int64_t stagger_floats(std::int64_t channels, std::int64_t vectors, std::int64_t lanes) {
  return channels * Stagger::kSteps * vectors * lanes;
}

// Whether lines of planes meet, which lie so many bytes apart: half a page is as bad, a quarter is not.
constexpr bool lines_meet(std::int64_t plane_bytes) {
  constexpr std::int64_t kHalfPage = 2048;
  return plane_bytes % kHalfPage == 0;
}

}  // namespace convtune::cpu
