// Loops in OpenMP's regions: inside of one of the program's, in those of a team that waits, and without a
// team that is late.
#include "cpu/base/openmp.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "convtune/device.h"
#include "cpu/base/parallel.h"

namespace convtune::openmp_test {
namespace {

using cpu::parallel_for;

// How often each index of a loop inside a region was touched, for each member of the outer team.
// Static atomics: the region below must capture nothing, because ThreadSanitizer cannot see its fork.
constexpr int kTeam = 3, kTasks = 200;
std::array<std::array<std::atomic<int>, kTasks>, kTeam> inner_touched;

TEST(ParallelFor, WorksInsideARegionOfTheCallers) {
  for (auto& row : inner_touched)
    for (auto& count : row) count = 0;  // a repeated test finds the counts of its last run
#pragma omp parallel num_threads(kTeam)
  {
    auto& row = inner_touched[static_cast<std::size_t>(omp_get_thread_num())];
    parallel_for(2, kTasks, [&row](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) row[static_cast<std::size_t>(i)].fetch_add(1);
    });
  }
  for (const auto& row : inner_touched)
    for (const auto& count : row) ASSERT_EQ(count.load(), 1);
}

#if !defined(__SANITIZE_THREAD__)  // which cannot see OpenMP's fork and join
// On a thread of its own: where the machine is busy, regions of what ran on this one before, oneDNN's too,
// may have been late.
TEST(ParallelFor, WorksInOpenMpsRegionsWhereTheProgramDoes) {
  share_openmp_threads(true);
  std::vector<std::atomic<int>> touched(1000);
  std::atomic<int> in_regions = 0;
  std::thread([&] {
    for (int threads = 1; threads <= 8; ++threads)
      parallel_for(threads, 1000, [&](std::int64_t begin, std::int64_t end) {
        if (omp_in_parallel()) ++in_regions;
        for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
      });
  }).join();
  share_openmp_threads(false);
  EXPECT_TRUE(std::all_of(touched.begin(), touched.end(), [](const auto& times) { return times == 8; }));
  EXPECT_EQ(in_regions > 0, omp_get_thread_limit() > 1);
}

// Says if a loop of two members runs in a region, which ends late where its second member gets time.
bool runs_in_region(std::chrono::milliseconds late) {
  struct Loop {
    std::chrono::milliseconds late;
    bool in_region = false;
  } loop{late};
  cpu::run_members(
      2,
      [](void* context, int index) {
        Loop& in = *static_cast<Loop*>(context);
        if (index == 0)
          in.in_region = omp_in_parallel() != 0;
        else if (omp_in_parallel())
          std::this_thread::sleep_for(in.late);
      },
      &loop);
  return loop.in_region;
}

TEST(ParallelFor, LeavesATeamAloneOnTheThreadWhoseRegionsAreLate) {
  using namespace std::chrono_literals;
  const bool has_teams = omp_get_thread_limit() > 1;
  share_openmp_threads(true);
  std::thread([&] {
    EXPECT_EQ(runs_in_region(0ms), has_teams);
    // Late, unless this thread itself was held up for as long within one.
    while (runs_in_region(5ms)) {
    }
    EXPECT_FALSE(runs_in_region(0ms));
    std::thread([&] { EXPECT_EQ(runs_in_region(0ms), has_teams); }).join();
  }).join();
  share_openmp_threads(false);
}

#endif

// Who waits long for a team's thread leaves the team alone: for 16 loops, and for twice as many the next
// time, until regions were on time as often.
TEST(TeamPatience, LeavesATeamThatIsLate) {
  using namespace std::chrono_literals;
  cpu::TeamPatience patience;
  const auto left = [&] {
    int loops = 0;
    while (loops < 10'000 && patience.leaves()) ++loops;
    return loops;
  };
  const auto late = 1ms + cpu::TeamPatience::kLate;
  patience.ran(1ms, late - 1ns);
  EXPECT_EQ(left(), 0);
  for (int wanted = 16; wanted <= 4096; wanted *= 2) {
    patience.ran(1ms, late);
    EXPECT_EQ(left(), wanted);
  }
  patience.ran(0ms, 1s);
  EXPECT_EQ(left(), 4096) << "the most";
  for (int i = 0; i < 4096; ++i) patience.ran(1ms, 0ms);
  patience.ran(1ms, late);
  EXPECT_EQ(left(), 16);
}

}  // namespace
}  // namespace convtune::openmp_test
