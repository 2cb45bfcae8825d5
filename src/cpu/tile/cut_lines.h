// Lines of the cache that rows of outputs end within, where outputs go past the caches: they wait in memory
// of the thread's for the rows that follow. Stored in two parts, a line is brought from memory first, and its
// neighbours with it, which then take stores past the caches long.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/base/caches.h"

namespace convtune::cpu {

class CutLines {
 public:
  static constexpr std::int64_t kFloats = kCacheLineBytes / sizeof(float);

  // Room for a line of each plane; null: none waits.
  explicit CutLines(float* memory) : memory_(memory) {}

  // The places where a row's first line was begun and where its last one is left, plane after plane; null:
  // none.
  struct Row {
    const float* begun = nullptr;
    float* cut = nullptr;
  };
  // A row of so many floats comes next, at y and in planes behind it, `step` floats apart, whole lines.
  Row row(float* y, std::int64_t planes, std::int64_t step, std::int64_t count) {
    if (memory_ == nullptr) return {};
    const auto place =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(y) % kCacheLineBytes / sizeof(float));
    // A line that began with others' floats is not stored whole.
    const bool joins =
        y == end_ && planes == planes_ && step == step_ && (from_ == 0 || place + count < kFloats);
    if (!joins) finish();
    if (place + count >= kFloats)
      from_ = 0;
    else if (!joins)
      from_ = place;
    filled_ = (place + count) % kFloats;
    end_ = filled_ == 0 ? nullptr : y + count;
    planes_ = planes, step_ = step;
    return {joins ? memory_ : nullptr, filled_ == 0 ? nullptr : memory_};
  }
  // Stores what waits.
  void finish() {
    if (end_ == nullptr) return;
    for (std::int64_t i = 0; i < planes_; ++i)
      std::copy(memory_ + i * kFloats + from_, memory_ + i * kFloats + filled_,
                end_ - filled_ + from_ + i * step_);
    end_ = nullptr;
  }

 private:
  float* const memory_;
  float* end_ = nullptr;  // the last row's in the first plane; null: that row ended with a line
  std::int64_t planes_ = 0, step_ = 0;
  std::int64_t from_ = 0, filled_ = 0;  // the elements of a line that wait
};

}  // namespace convtune::cpu
