// Rows of outputs that go past the caches though they begin within a line of the cache: what a vector leaves
// of a line waits for the next one. A line that is stored in two parts is brought from memory first.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/base/caches.h"

namespace convtune::cpu {

// A line of the cache of which the floats [begun, filled) are there.
struct WaitingLine {
  static constexpr std::int64_t kFloats = kCacheLineBytes / sizeof(float);

  float* at = nullptr;  // in y; null: none waits
  std::int64_t begun = 0, filled = 0;

  // The place of the next float.
  const float* next() const { return at == nullptr ? nullptr : at + filled; }
  void store(const float* floats) {
    if (at != nullptr) std::copy(floats + begun, floats + filled, at + begun);
    at = nullptr;
  }
};

// Two rows of a plane, of which the second one begins where the first one ends.
struct alignas(kCacheLineBytes) JoinedRows {
  float floats[2][WaitingLine::kFloats], begins[WaitingLine::kFloats];
  WaitingLine lines[2], second_begins;  // the last one of each row; the first of the second one

  void begin() { lines[0] = lines[1] = second_begins = {}; }
  // Stores what waits.
  void finish() { lines[0].store(floats[0]), lines[1].store(floats[1]), second_begins.store(begins); }
};

}  // namespace convtune::cpu
