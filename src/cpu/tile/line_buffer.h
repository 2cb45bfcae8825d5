// Outputs that follow each other and go past the caches though they begin within a line of the cache: kernels
// write them to memory of the thread's, and lines leave it when they are whole.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cpu/base/caches.h"
#include "cpu/tile/tensor_kernels.h"

namespace convtune::cpu {

template <class T>
class LineBuffer {
 public:
  // `memory`, aligned to lines, has room for kMoreLines more than what is written at a time.
  static constexpr std::int64_t kMoreLines = 2;
  LineBuffer(const TensorKernels& kernels, float* memory)
      : kernels_(kernels), aligned_(reinterpret_cast<T*>(memory)), memory_(aligned_) {}
  // Returns where the outputs of y from `to` on are to be written.
  T* place_of(T* to) {
    if (to != line_ + filled_) {
      finish();
      filled_ = foreign_ =
          static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kCacheLineBytes / sizeof(T));
      line_ = to - foreign_;
      // What is written next begins at a line: stores that cross one cost more than loads that do.
      memory_ = aligned_ + (kLine - foreign_) % kLine;
    }
    return memory_ + filled_;
  }
  // So many are written.
  void put(std::int64_t count) {
    filled_ += count;
    const std::int64_t whole = filled_ / kLine * kLine;
    if (whole == 0) return;
    const std::int64_t first = foreign_ != 0 ? kLine : 0;
    std::copy(memory_ + foreign_, memory_ + first, line_ + foreign_);
    kernels_.put_lines(memory_ + first, (whole - first) / kLine, line_ + first);
    std::copy(memory_ + whole, memory_ + filled_, memory_);
    line_ += whole, filled_ -= whole, foreign_ = 0;
  }
  // Writes what is left of the last line.
  void finish() { std::copy(memory_ + foreign_, memory_ + filled_, line_ + foreign_), foreign_ = filled_; }

 private:
  static constexpr std::int64_t kLine = kCacheLineBytes / sizeof(T);

  const TensorKernels& kernels_;
  T* const aligned_;
  T* memory_;          // the line's first element
  T* line_ = nullptr;  // of y: the one that is being made
  // Elements of it that are written, and the first ones that are not this buffer's, or are in y already.
  std::int64_t filled_ = 0, foreign_ = 0;
};

}  // namespace convtune::cpu
