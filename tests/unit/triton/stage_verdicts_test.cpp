// Verdicts on grids and tiles: what they say, in which order, and that they say what they rest on.
#include "triton/stage_verdicts.h"

#include <gtest/gtest.h>

#include "expected_text.h"
#include "triton/refine_samples.h"

namespace convtune::stage_verdicts_test {
namespace {

KnownMetrics grid_of(std::int64_t grid, std::optional<double> active = {}) {
  KnownMetrics known;
  known.grid = grid, known.achieved_occupancy = active;
  return known;
}

TEST(StageVerdicts, AGridThatLeavesMultiprocessorsIdle) {
  expect_in(grid_verdict({}, 4, kAda), {"launch__grid_size"});
  expect_in(grid_verdict(grid_of(16), 4, kAda),
            {"16 blocks for 128 multiprocessors", "112 have nothing to do"});
  // 4 of 48 warps: one block of 4 a multiprocessor.
  expect_in(grid_verdict(grid_of(129, 4.0 / 48), 4, kAda), {"1.01 waves of 1", "49.6 % of the time"});
  expect_in(grid_verdict(grid_of(4096, 4.0 / 48), 4, kAda), {"32 waves", "nothing to gain"});
  expect_in(grid_verdict(grid_of(256), std::nullopt, kAda), {"256 blocks for 128 multiprocessors, 2 each"});
}

TEST(StageVerdicts, TilesToRank) {
  TritonKernel kernel;
  kernel.configs = {{{{"BLOCK_M", "64"}, {"GROUP_M", "16"}, {"MODE", "'fast'"}}, {}, {4, 2}, 7, {}}};
  const auto one = tiles_to_rank(kernel);
  ASSERT_EQ(one.size(), 3u) << "half and twice of the side alone";
  EXPECT_EQ(one[1].meta[0].second, "32");
  EXPECT_EQ(one[2].meta[0].second, "128");
  kernel.configs.push_back(kernel.configs[0]);
  kernel.configs[1].meta[0].second = "128";
  EXPECT_EQ(tiles_to_rank(kernel).size(), 2u) << "a list is ranked as it is";
  kernel.configs.resize(1), kernel.configs[0].meta.clear(), kernel.listed = false;
  EXPECT_TRUE(tiles_to_rank(kernel).empty());
  kernel.blocks = {{"BLOCK", "1024"}};
  ASSERT_EQ(tiles_to_rank(kernel).size(), 2u) << "2048 is beyond what is offered";
}

TEST(StageVerdicts, TilesAreRankedByWhatIsCompiled) {
  const auto tile = [](int line, int registers, std::int64_t spilled, std::int64_t blocks,
                       std::int64_t lanes) {
    TileFacts facts{{{{"M", "64"}}, {}, {4, 2}, line, {}},
                    CompiledConfig{registers, 8192, spilled, "", ""},
                    TritonGrid{blocks, true, lanes}};
    return facts;
  };
  TileFacts failing = tile(4, 1, 0, 1, 1);
  failing.made->failure = "out of resources";
  // Lines 2 and 3 do the same work in whole waves, 3 with more active warps; 1 spills; 5 masks a half.
  const auto lines = tile_verdicts({tile(1, 255, 64, 5120, 64), failing, tile(2, 250, 0, 5120, 64),
                                    tile(3, 128, 0, 5120, 64), tile(5, 128, 0, 5120, 128)},
                                   kAda);
  ASSERT_EQ(lines.size(), 6u);
  expect_in(lines[0], {"none of them measured", "by what Triton compiles"});
  expect_in(lines[1], {"tile 1", "line 3", "128 registers", "no spills", "4 blocks", "waves"});
  expect_in(lines[2], {"line 2"});
  expect_in(lines[3], {"line 5", "50 % of its lanes masked"});
  expect_in(lines[4], {"line 1", "64 bytes spilled"});
  expect_in(lines[5], {"line 4", "out of resources"});
  const auto blind = tile_verdicts({{{{{"M", "64"}}, {}, {4, 2}, 9, {}}, {}, {}}}, kAda);
  ASSERT_EQ(blind.size(), 1u);
  expect_in(blind[0], {"nothing tells them apart", "--trust"});
}

}  // namespace
}  // namespace convtune::stage_verdicts_test
