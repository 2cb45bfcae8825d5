// Vectors that begin at a line of the cache, where a CPU stores a convolution's outputs fastest. Any other
// memory is right, too: std::vector's and malloc()'s begins 16 bytes behind a line where it is large, and
// costs some plans a tenth, a few of them half of their speed.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "convtune/language.h"

namespace convtune {

template <class T>
struct AlignedAllocator {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};

  AlignedAllocator() = default;
  template <class Other>
  AlignedAllocator(const AlignedAllocator<Other>&) {}  // NOLINT: an allocator converts

  T* allocate(std::size_t count) {
    if (count > static_cast<std::size_t>(-1) / sizeof(T)) throw std::bad_array_new_length();
    return static_cast<T*>(::operator new(count * sizeof(T), kLine));
  }
  void deallocate(T* from, std::size_t) { ::operator delete(from, kLine); }
  friend bool operator==(const AlignedAllocator&, const AlignedAllocator&) { return true; }
};

template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

}  // namespace convtune
