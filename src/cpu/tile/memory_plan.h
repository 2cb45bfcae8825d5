// A thread's working memory as one list of blocks: a geometry names them in order with their sizes, and the
// refusal of what is too much, the allocation and the kernels all ask the same list.
//
//   MemoryPlan memory;
//   const std::int64_t window = memory.take("window", floats), sums = memory.take("sums", more);
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string_view>

#include "cpu/base/caches.h"

namespace convtune::cpu {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

// A count that no memory has, and that sums of a thousand of it do not overflow.
constexpr std::int64_t kTooMany = std::int64_t{1} << 50;

// The product of counts that are at least 0, kTooMany where it is more: extents from outside may be of any
// size.
template <std::integral... Counts>
constexpr std::int64_t product_of(Counts... counts) {
  std::int64_t product = 1;
  const bool fits = (!__builtin_mul_overflow(product, static_cast<std::int64_t>(counts), &product) && ...);
  return fits ? std::min(product, kTooMany) : kTooMany;
}

// A thread's working memory may not grow past this: offsets in it are 32 bits, and a window far larger than
// any cache has lost its purpose.
constexpr std::int64_t kMostMemoryBytes = std::int64_t{256} << 20;

class MemoryPlan {
 public:
  // Returns where a block of `count` elements begins, in floats: at a line of the cache, behind all blocks
  // that were taken before. The block's name is for refusals; the string must outlive the plan.
  constexpr std::int64_t take(std::string_view name, std::int64_t count,
                              std::int64_t element_bytes = sizeof(float)) {
    const std::int64_t begin = floats(), bytes = round_up(product_of(count, element_bytes), kCacheLineBytes);
    bytes_ = std::min(bytes_ + bytes, kTooMany);
    if (bytes > largest_bytes_) largest_ = name, largest_bytes_ = bytes;
    return begin;
  }
  constexpr std::int64_t bytes() const { return bytes_; }
  constexpr std::int64_t floats() const { return bytes_ / static_cast<std::int64_t>(sizeof(float)); }
  constexpr bool fits() const { return bytes_ <= kMostMemoryBytes; }
  constexpr std::string_view largest() const { return largest_; }  // the name of the largest block
  constexpr std::int64_t largest_bytes() const { return largest_bytes_; }

 private:
  std::int64_t bytes_ = 0, largest_bytes_ = 0;
  std::string_view largest_ = "nothing";
};

// A thread's working memory itself: kept from call to call, grown when a plan needs more.
class Scratch {
 public:
  // Zeroed when grown, because kernels may multiply junk between rows and stray denormals there would be
  // slow.
  float* reserve(const MemoryPlan& plan) {
    const auto bytes = static_cast<std::size_t>(plan.bytes());
    if (bytes > bytes_) {
      data_.reset();
      data_.reset(static_cast<float*>(::operator new(bytes, kAlignment)));
      std::memset(data_.get(), 0, bytes);
      bytes_ = bytes;
    }
    return data_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{kCacheLineBytes};
  struct Free {
    void operator()(float* p) const { ::operator delete(p, kAlignment); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t bytes_ = 0;
};

}  // namespace convtune::cpu
