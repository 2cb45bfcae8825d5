// Tests the counts that the estimates of the CPU's algorithms share, against counting one by one.
#include <gtest/gtest.h>

#include "base/random_bits.h"
#include "cpu/model/cpu_work.h"
#include "cpu/model/store_work.h"

namespace convtune::cpu::estimates_test {
namespace {

// The work of the first `count` tasks, a task at a time in the order of TaskGrid.
double counted(const TaskGrid& grid, std::int64_t count) {
  double work = 0;
  std::int64_t task = 0;
  for (std::int64_t plane = 0; plane < grid.planes; ++plane)
    for (std::int64_t row = 0; row < grid.rows; row += grid.tile_rows)
      for (std::int64_t col = 0; col < grid.cols; col += grid.tile_cols)
        for (std::int64_t filter = 0; filter < grid.filters; filter += grid.task_filters)
          if (task++ < count)
            work += static_cast<double>(std::min(grid.tile_rows, grid.rows - row) *
                                        std::min(grid.tile_cols, grid.cols - col) *
                                        std::min(grid.task_filters, grid.filters - filter));
  return work;
}

TEST(TaskGrid, CountsTheWorkOfAnyRunOfTasks) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    std::uint64_t i = 0;
    const auto from_1_to = [&](std::uint64_t most) {
      return static_cast<std::int64_t>(1 + random_bits(seed, i++) % most);
    };
    const TaskGrid grid{from_1_to(4), from_1_to(9), from_1_to(9), from_1_to(9),
                        from_1_to(9), from_1_to(9), from_1_to(9)};
    for (std::int64_t count = 0; count <= grid.tasks(); ++count)
      ASSERT_EQ(grid.work(count), counted(grid, count)) << "seed " << seed << ", " << count << " tasks";
  }
}

TEST(TaskGrid, TheFirstThreadHasMostWhereTheLastTilesAreCut) {
  EXPECT_DOUBLE_EQ((TaskGrid{.rows = 55, .tile_rows = 32}.longest_share(2)), 32 / 27.5);
  EXPECT_DOUBLE_EQ((TaskGrid{.filters = 192, .task_filters = 128}.longest_share(2)), 128 / 96.0);
  EXPECT_DOUBLE_EQ((TaskGrid{.planes = 8, .rows = 55, .tile_rows = 32}.longest_share(2)), 1);
  EXPECT_DOUBLE_EQ((TaskGrid{.planes = 3}.longest_share(2)), 2 / 1.5);
}

TEST(ActivationCycles, CountVectorsOfExponentials) {
  const auto cycles = [](const char* text, int bits) {
    return activation_cycles(parse_problem(text), bits) / cpu_costs().exponential;
  };
  EXPECT_DOUBLE_EQ(cycles("mb2ic3ih8oc16kh3ph1 act=silu", 512), 2 * 8 * 8);
  EXPECT_DOUBLE_EQ(cycles("mb2ic3ih8oc16kh3ph1 act=gelu_erf", 128), 4 * 2 * 8 * 8);
  EXPECT_EQ(cycles("mb2ic3ih8oc16kh3ph1 act=leaky_relu:0.1", 512), 0);
}

TEST(TaskGrid, ThreadsWithoutATaskAreLost) {
  EXPECT_DOUBLE_EQ(TaskGrid{}.longest_share(16), 16);
}

TEST(TaskGrid, AnEmptyBatchIsNoWork) {
  for (const TaskGrid& empty :
       {TaskGrid{.planes = 0}, TaskGrid{.rows = 0}, TaskGrid{.rows = 0, .tile_rows = 4}}) {
    EXPECT_EQ(empty.tasks(), 0);
    EXPECT_EQ(empty.work(empty.tasks()), 0);
    EXPECT_EQ(empty.longest_share(16), 1);
  }
}

TEST(ShortPieces, CostWhereMemoryIsNotReadFromEndToEnd) {
  const auto cycles = [](const char* text, std::int64_t output_rows) {
    CpuWork work;
    add_short_pieces(work, parse_problem(text), output_rows, 1);
    return work.cycles(CpuCosts{});
  };
  EXPECT_GT(cycles("mb1ic256ih56oc64kh1", 4), 0);
  EXPECT_EQ(cycles("mb1ic256ih56oc64kh1", 56), 0);    // whole images follow each other
  EXPECT_EQ(cycles("mb1ic3ih224oc64kh3ph1", 16), 0);  // 16 rows are long
}

}  // namespace
}  // namespace convtune::cpu::estimates_test
