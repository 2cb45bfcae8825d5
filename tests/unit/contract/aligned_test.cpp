// Memory of convtune/aligned.h: it begins at a line of the cache, whatever its size.
#include "convtune/aligned.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <new>

namespace convtune::aligned_test {
namespace {

TEST(AlignedVector, BeginsAtALineOfTheCache) {
  for (const std::size_t count : {1U, 15U, 16U, 1000U, 1000000U}) {
    AlignedVector<float> y(count, 2.0F);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(y.data()) % 64, 0U) << count;
    y.push_back(3);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(y.data()) % 64, 0U) << count;
    EXPECT_EQ(y.front(), 2);
    EXPECT_EQ(y.back(), 3);
  }
}

TEST(AlignedVector, SizesThatNoMemoryHasAreRefused) {
  EXPECT_THROW(AlignedAllocator<double>().allocate(static_cast<std::size_t>(-1) / 4),
               std::bad_array_new_length);
}

}  // namespace
}  // namespace convtune::aligned_test
