#include "cpu/stagger.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace convtune::stagger_test {
namespace {

using cpu::LineBlocks;

TEST(LineBlocks, AreOfNearlyEqualWidthAndWholeUnits) {
  for (const std::int64_t most : {1, 2, 3, 4, 6, 8})
    for (const std::int64_t unit : {1, 2, 4})
      for (std::int64_t vectors = 1; vectors < 40; ++vectors) {
        const LineBlocks blocks(vectors, most, unit);
        EXPECT_EQ(blocks.first(0), 0);
        EXPECT_EQ(blocks.first(blocks.count), vectors);
        std::int64_t narrowest = most, widest = 0;
        for (std::int64_t b = 0; b < blocks.count; ++b) {
          const std::int64_t width = blocks.first(b + 1) - blocks.first(b);
          EXPECT_GE(width, 1);
          EXPECT_LE(width, most);
          EXPECT_EQ(blocks.first(b) % blocks.unit, 0);
          if (b + 1 < blocks.count) narrowest = std::min(narrowest, width);
          widest = std::max(widest, width);
        }
        EXPECT_LE(widest - narrowest, std::max(blocks.unit, most - widest));
        EXPECT_EQ(blocks.unit, std::min(unit, most));
      }
}

TEST(LineBlocks, SevenAreFourAndThree) {
  const LineBlocks blocks(7, 4, 1);
  EXPECT_EQ(blocks.count, 2);
  EXPECT_EQ(blocks.first(1), 4);
  const LineBlocks lines(14, 4, 2);  // 14 vectors of 32 bytes as lines of 64: 4, 4, 4, 2
  EXPECT_EQ(lines.count, 4);
  EXPECT_EQ(lines.first(3), 12);
}

TEST(Stagger, LinesMeetInPlanesOfHalfPages) {
  EXPECT_TRUE(cpu::lines_meet(224 * 224 * 4));
  EXPECT_TRUE(cpu::lines_meet(3 * 2048));
  EXPECT_FALSE(cpu::lines_meet(112 * 112 * 4));
  EXPECT_FALSE(cpu::lines_meet(56 * 56 * 4));
}

}  // namespace
}  // namespace convtune::stagger_test
