#include "cpu/tile/stagger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "convtune/device.h"
#include "cpu/algorithms/winograd_rows/winograd_rows_kernels.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/tile/direct_kernels.h"
#include "cpu/tile/instruction_sets.h"
#include "cpu/tile/line_blocks.h"

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
          const std::int64_t width = blocks.width_of(b);
          EXPECT_GE(width, 1);
          EXPECT_LE(width, most);
          EXPECT_EQ(blocks.first(b) % blocks.unit, 0);
          EXPECT_EQ(blocks.ends_run(b), b + 1 == blocks.count || blocks.width_of(b + 1) != width);
          if (b + 1 < blocks.count) narrowest = std::min(narrowest, width);
          widest = std::max(widest, width);
        }
        EXPECT_LE(widest - std::min(narrowest, widest), blocks.unit);
        const std::int64_t units = (vectors - 1) / blocks.unit + 1, fit = most / blocks.unit;
        EXPECT_EQ(blocks.count, (units - 1) / fit + 1);
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

TEST(LineBlocks, UnitsAreLinesWhereRowsAreWholeLines) {
  EXPECT_EQ(cpu::line_unit_of(224, 8, 4), 2);
  EXPECT_EQ(cpu::line_unit_of(56, 8, 4), 1);  // three lines and a half
  EXPECT_EQ(cpu::line_unit_of(224, 16, 4), 1);
  EXPECT_EQ(cpu::line_unit_of(224, 16, 2), 2);
}

// The first channel's lines are stored at once, the second's a register tile later, all of them at the end.
TEST(Stagger, LinesLeaveTheRingOneRegisterTileLaterAChannel) {
  const int bits = cpu::widest_vector_bits(cpu::backend().info());
  const cpu::DirectKernels* const kernels = cpu::direct_kernels(bits);
  const cpu::WinogradRowsTile& tile = cpu::winograd_rows_kernels(bits)->tiles.front();
  ASSERT_EQ(tile.rows, 2);
  constexpr int kVectors = 3;
  const std::int64_t width = kVectors * std::int64_t{kernels->lanes}, plane = 4 * width;
  const auto count = static_cast<std::size_t>(2 * plane);
  alignas(64) std::array<float, 2 * cpu::Stagger::kSteps * kVectors * 16> ring{};
  std::vector<float> window(static_cast<std::size_t>(3 * width), 3), memory(count + 16, -1);
  float* const y = memory.data() + (16 - reinterpret_cast<std::uintptr_t>(memory.data()) / 4 % 16) % 16;
  const std::array<float, 2> weights = {1, 2}, bias = {0, 0};
  const std::int32_t tap = 0;
  cpu::WinogradRowsArgs args{};
  args.window = window.data(), args.taps = &tap, args.counts = {1, 0, 0, 0};
  args.weights = weights.data(), args.bias = bias.data();
  args.y_stride = plane, args.y_channels = 2, args.count = width;
  args.epilogue = {Activation::clip, -100, 100}, args.stream = true;
  args.stagger.ring = ring.data();
  const auto stored = [&](std::int64_t channel) {
    kernels->fence();
    return std::count(y + channel * plane, y + (channel + 1) * plane, static_cast<float>(3 * (channel + 1)));
  };
  for (std::int64_t step = 0; step < 3; ++step) {
    args.y = y + step * width;
    args.stagger.last = step == 2;
    tile.kernels[kVectors - 1].staggered(args);
    args.stagger.next();
    EXPECT_EQ(stored(0), (step + 1) * width);
    EXPECT_EQ(stored(1), (step == 2 ? 3 : step) * width);
  }
  EXPECT_EQ(args.stagger.step, 0);
  EXPECT_EQ(std::count(memory.begin(), memory.end(), -1),
            2 * width + 16);  // the fourth register tile's place
}

TEST(Stagger, LinesMeetInPlanesOfHalfPages) {
  EXPECT_TRUE(cpu::lines_meet(224 * 224 * 4));
  EXPECT_TRUE(cpu::lines_meet(3 * 2048));
  EXPECT_FALSE(cpu::lines_meet(112 * 112 * 4));
  EXPECT_FALSE(cpu::lines_meet(56 * 56 * 4));
}

}  // namespace
}  // namespace convtune::stagger_test
