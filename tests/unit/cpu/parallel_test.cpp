// Every index once, in contiguous runs in thread order, whatever the number of threads and tasks, and
// from inside a parallel region of the caller's own.
#include "cpu/base/parallel.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <rapidcheck/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

namespace {

using convtune::cpu::parallel_for;

struct Run {
  int thread = -1;
  std::int64_t begin = 0, end = 0;
};

// The runs that parallel_for made, by thread; a thread called twice shows as a failure.
std::vector<Run> runs_of(int threads, std::int64_t tasks) {
  std::vector<Run> runs(static_cast<std::size_t>(std::max(threads, 1)));
  parallel_for(threads, tasks, [&](int thread, std::int64_t begin, std::int64_t end) {
    Run& run = runs.at(static_cast<std::size_t>(thread));
    EXPECT_EQ(run.thread, -1) << "thread " << thread << " was called twice";
    run = {thread, begin, end};
  });
  std::erase_if(runs, [](const Run& run) { return run.thread < 0; });
  return runs;
}

// [0, tasks) cut without a gap, in thread order, with lengths that differ by at most one.
void expect_cut(const std::vector<Run>& runs, std::int64_t tasks) {
  std::int64_t next = 0, shortest = std::numeric_limits<std::int64_t>::max(), longest = 0;
  for (const Run& run : runs) {
    EXPECT_EQ(run.begin, next);
    EXPECT_GT(run.end, run.begin);
    shortest = std::min(shortest, run.end - run.begin);
    longest = std::max(longest, run.end - run.begin);
    next = run.end;
  }
  EXPECT_EQ(next, tasks);
  EXPECT_LE(longest - shortest, 1);
}

TEST(ParallelFor, CutsTheRangeIntoEqualRuns) {
  for (int threads : {1, 2, 3, 4, 7, 8, 13})
    for (std::int64_t tasks : {1, 2, 3, 5, 7, 8, 12, 13, 14, 64, 97, 1000}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, " << tasks << " tasks");
      const auto runs = runs_of(threads, tasks);
      EXPECT_EQ(static_cast<std::int64_t>(runs.size()), std::min<std::int64_t>(threads, tasks));
      expect_cut(runs, tasks);
    }
}

RC_GTEST_PROP(ParallelFor, TouchesEveryIndexOnce, ()) {
  const int threads = *rc::gen::inRange(-1, 12);
  const std::int64_t tasks = *rc::gen::inRange<std::int64_t>(0, 3000);
  std::vector<int> touched(static_cast<std::size_t>(tasks), 0);
  parallel_for(threads, tasks, [&](int, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
  });
  RC_ASSERT(std::all_of(touched.begin(), touched.end(), [](int times) { return times == 1; }));
}

TEST(ParallelFor, NothingToDoCallsNobody) {
  EXPECT_TRUE(runs_of(4, 0).empty());
  EXPECT_TRUE(runs_of(4, -3).empty());
}

TEST(ParallelFor, HugeRangesDoNotOverflow) {
  const std::int64_t tasks = std::numeric_limits<std::int64_t>::max();
  expect_cut(runs_of(3, tasks), tasks);
}

TEST(ParallelFor, OneThreadOrOneTaskStaysOnTheCallersThread) {
  const auto caller = std::this_thread::get_id();
  for (auto [threads, tasks] : {std::pair{1, 1000}, {8, 1}, {0, 5}, {-2, 5}}) {
    int calls = 0;
    parallel_for(threads, tasks, [&, tasks = tasks](int thread, std::int64_t begin, std::int64_t end) {
      ++calls;
      EXPECT_EQ(thread, 0);
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, tasks);
      EXPECT_EQ(std::this_thread::get_id(), caller);
      EXPECT_EQ(omp_get_level(), 0) << "a parallel region was entered for one thread";
    });
    EXPECT_EQ(calls, 1);
  }
}

TEST(ParallelFor, RunsInParallel) {
  if (omp_get_thread_limit() < 2) GTEST_SKIP() << "OMP_THREAD_LIMIT leaves one thread";
  std::atomic<int> arrived{0};
  parallel_for(2, 2, [&](int, std::int64_t, std::int64_t) {
    arrived.fetch_add(1);
    while (arrived.load() < 2) std::this_thread::yield();  // ends only if both are here at once
  });
  EXPECT_EQ(arrived.load(), 2);
}

TEST(ParallelFor, SeesWhatWasWrittenBeforeAndIsSeenAfter) {
  std::vector<std::int64_t> values(257);
  for (int round = 0; round < 200; ++round) {
    std::iota(values.begin(), values.end(), round);
    parallel_for(2 + round % 3, 257, [&](int, std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] *= 2;
    });
    for (std::int64_t i = 0; i < 257; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], 2 * (i + round));
  }
}

RC_GTEST_PROP(ParallelTasks, AreEachTakenOnce, ()) {
  const int threads = *rc::gen::inRange(-1, 12);
  const std::int64_t tasks = *rc::gen::inRange<std::int64_t>(-2, 3000);
  std::vector<std::atomic<int>> touched(static_cast<std::size_t>(std::max<std::int64_t>(tasks, 0)));
  convtune::cpu::parallel_tasks(threads, tasks, [&](convtune::cpu::TaskQueue& queue) {
    for (std::int64_t i = 0; queue.next(i);) {
      ++touched[static_cast<std::size_t>(i)];
      if (i >= queue.share_end()) std::abort();
    }
  });
  RC_ASSERT(std::all_of(touched.begin(), touched.end(), [](const auto& times) { return times == 1; }));
}

// One thread is held up in its first task: the other does all that the first has not taken.
TEST(ParallelTasks, AreTakenFromWhoIsHeldUp) {
  if (omp_get_thread_limit() < 2) GTEST_SKIP() << "OMP_THREAD_LIMIT leaves one thread";
  constexpr std::int64_t kCount = 80, kFirst = 40 / 4;  // per share
  std::atomic<std::int64_t> done{0};
  convtune::cpu::parallel_tasks(2, kCount, [&](convtune::cpu::TaskQueue& queue) {
    for (std::int64_t i = 0; queue.next(i); ++done)
      while (i == 0 && done < kCount - kFirst) std::this_thread::yield();
  });
  EXPECT_EQ(done, kCount);
}

TEST(ParallelTasks, OneThreadHasThemInOrder) {
  std::int64_t expected = 0;
  convtune::cpu::parallel_tasks(1, 100, [&](convtune::cpu::TaskQueue& queue) {
    for (std::int64_t i = 0; queue.next(i); ++expected) EXPECT_EQ(i, expected);
    EXPECT_EQ(queue.share_end(), 100);
  });
  EXPECT_EQ(expected, 100);
}

TEST(ParallelFor, SeveralThreadsMayStartLoopsAtOnce) {
  std::array<std::int64_t, 4> sums{};
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < sums.size(); ++caller)
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 50; ++round) {
        std::array<std::int64_t, 3> parts{};
        parallel_for(3, 100, [&](int thread, std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) parts[static_cast<std::size_t>(thread)] += i;
        });
        sums[caller] += parts[0] + parts[1] + parts[2];
      }
    });
  for (auto& caller : callers) caller.join();
  for (std::int64_t sum : sums) EXPECT_EQ(sum, 50 * 4950);
}

// How often each index of a loop inside a region was touched, for each member of the outer team.
// Static atomics: the region below must capture nothing, because ThreadSanitizer cannot see its fork.
constexpr int kTeam = 3, kTasks = 200;
std::array<std::array<std::atomic<int>, kTasks>, kTeam> inner_touched;

TEST(ParallelFor, WorksInsideARegionOfTheCallers) {
  for (int levels : {1, 2}) {  // nested regions forbidden: a team of one; allowed: a team of two
    omp_set_max_active_levels(levels);
    for (auto& row : inner_touched)
      for (auto& count : row) count.store(0);
#pragma omp parallel num_threads(kTeam)
    {
      auto& row = inner_touched[static_cast<std::size_t>(omp_get_thread_num())];
      parallel_for(2, kTasks, [&row](int, std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) row[static_cast<std::size_t>(i)].fetch_add(1);
      });
    }
    for (const auto& row : inner_touched)
      for (const auto& count : row) ASSERT_EQ(count.load(), 1) << "with " << levels << " active levels";
  }
  omp_set_max_active_levels(1);
}

// The number of members of a team of two that said so, in this process.
int team_of_two() {
  std::atomic<int> members{0};
  parallel_for(2, 2, [&](int, std::int64_t, std::int64_t) { members.fetch_add(1); });
  return members.load();
}

#if !defined(__SANITIZE_THREAD__)  // which dies in a child that starts threads after its parent did
// A forked child has none of its parent's threads: it must not wait for them, and may have its own.
TEST(ParallelFor, WorksInAForkedChildAndInItsParent) {
  if (omp_get_thread_limit() < 2) GTEST_SKIP() << "OMP_THREAD_LIMIT leaves one thread";
  ASSERT_EQ(team_of_two(), 2);
  for (int round = 0; round < 3; ++round) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(60);  // a child that hangs is killed
      ::_exit(team_of_two() == 2 ? 0 : 1);
    }
    EXPECT_EQ(team_of_two(), 2);
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
  }
}
#endif

}  // namespace
