// Rows of bytes in a tensor: how frames are copied from one tensor to another.
#pragma once

#include <cstddef>

namespace convtune {

// `count` rows of `bytes`, each a pitch in bytes behind the one before. Without `from` they become zeros.
struct Rows {
  void* to = nullptr;
  std::size_t to_pitch = 0;
  const void* from = nullptr;
  std::size_t from_pitch = 0, bytes = 0, count = 0;
};

}  // namespace convtune
