// Processes whose threads are not as usual: forked children, limits of threads, and the processors that a
// process may use.
#include "cpu/base/thread_pool.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "cpu/base/openmp.h"
#include "cpu/base/parallel.h"
#include "cpu/base/processors.h"

namespace convtune::thread_pool_test {
namespace {

// A loop that two threads are inside of at once.
void run_on_two() {
  std::atomic<int> arrived = 0;
  cpu::parallel_for(2, 2, [&](std::int64_t, std::int64_t) {
    for (++arrived; arrived < 2;) std::this_thread::yield();
  });
}

#if !defined(__SANITIZE_THREAD__)  // which dies in a child that starts threads after its parent did

// Returns the answer of `work` in a forked child; -1 where the child hangs or dies.
int in_a_child(const std::function<int()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    ::_exit(work());
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(ThreadPool, WorksInTwoHundredForkedChildrenAndInTheirParent) {
  for (int round = 0; round < 200; ++round) {
    run_on_two();
    ASSERT_EQ(in_a_child([] { return run_on_two(), 7; }), 7) << round;
  }
}

TEST(ThreadPool, WorksInChildrenThatAreForkedWhileOtherThreadsWork) {
  std::atomic<bool> done = false;
  std::thread other([&] {
    while (!done) cpu::parallel_for(3, 100, [](std::int64_t, std::int64_t) {});
  });
  for (int round = 0; round < 50; ++round) ASSERT_EQ(in_a_child([] { return run_on_two(), 7; }), 7) << round;
  done = true;
  other.join();
}

TEST(ThreadPool, AChildThatIsForkedInsideOfALoopGoesOn) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> arrived = 0, status = 0;
  cpu::parallel_for(2, 2, [&](std::int64_t, std::int64_t) {
    for (++arrived; arrived < 2;) std::this_thread::yield();
    if (std::this_thread::get_id() == caller) status = in_a_child([] { return run_on_two(), 7; });
  });
  EXPECT_EQ(status, 7);
}

// oneDNN's threads are OpenMP's.
TEST(OpenMp, ATeamSurvivesAFork) {
  const auto team = [] {
    std::atomic<int> members = 0;
#pragma omp parallel num_threads(cpu::openmp_team_of(2))
    ++members;
    return members.load();
  };
  ASSERT_EQ(team(), 2);
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(in_a_child(team), 2);
    EXPECT_EQ(team(), 2);
  }
}

TEST(ThreadPool, DoesWithTheThreadsThatTheSystemStarts) {
  EXPECT_EQ(in_a_child([] {
              if (::setuid(65534) != 0 && ::geteuid() == 0) return 1;  // root has no limit
              const rlimit none{0, 0};
              if (::setrlimit(RLIMIT_NPROC, &none) != 0) return 2;
              std::atomic<std::int64_t> done = 0;
              for (int round = 0; round < 3; ++round)
                cpu::parallel_for(4, 100, [&](std::int64_t begin, std::int64_t end) { done += end - begin; });
              return done != 300 ? 3 : cpu::members_of(4) != 1 ? 4 : 7;
            }),
            7);
}

TEST(ThreadPool, WorksOnFewerProcessorsThanItBeganWith) {
  EXPECT_EQ(in_a_child([] {
              run_on_two();
              cpu_set_t one;
              CPU_ZERO(&one);
              CPU_SET(::sched_getcpu(), &one);
              if (::sched_setaffinity(0, sizeof one, &one) != 0) return 1;
              for (int round = 0; round < 20; ++round) run_on_two();
              return cpu::usable_processors() == 1 ? 7 : 2;
            }),
            7);
}

#endif

TEST(ThreadPool, StartsAsManyAsAreWanted) {
  EXPECT_EQ(cpu::members_of(-3), 1);
  EXPECT_EQ(cpu::members_of(1), 1);
  EXPECT_EQ(cpu::members_of(5), 5);
  EXPECT_EQ(cpu::members_of(3), 3);
}

TEST(ThreadPool, OnlyWorkersOughtToLeave) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(cpu::ought_to_leave());
}

// Control groups as a folder of files; `own` says which are the process's.
TEST(Processors, AreNoMoreThanTheContainersQuota) {
  namespace fs = std::filesystem;
  const fs::path root = fs::path(testing::TempDir()) / ("convtune_quota_" + std::to_string(::getpid()));
  const auto write = [&](const fs::path& name, const char* text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  };
  const auto quota = [&](const char* own) {
    write("own", own);
    return cpu::processor_quota(root, root / "own");
  };
  EXPECT_EQ(quota("0::/pods/one\n"), std::nullopt);
  write("pods/one/cpu.max", "max 100000\n");
  EXPECT_EQ(quota("0::/pods/one\n"), std::nullopt);
  write("pods/cpu.max", "300000 100000\n");
  EXPECT_EQ(quota("0::/pods/one\n"), 3);
  write("pods/one/cpu.max", "75000 50000\n");
  EXPECT_EQ(quota("0::/pods/one\n"), 1.5);

  write("cpu/job/cpu.cfs_quota_us", "-1\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota("5:cpu,cpuacct:/job\n"), std::nullopt);
  write("cpu/job/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(quota("5:cpu,cpuacct:/job\n"), 2.5);
  EXPECT_EQ(quota("4:memory:/job\n"), std::nullopt);
  fs::remove_all(root);
}

TEST(Processors, AreAtLeastOneAndNoMoreThanTheMachineHas) {
  EXPECT_GE(cpu::usable_processors(), 1);
  EXPECT_LE(cpu::usable_processors(), std::max(1U, std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace convtune::thread_pool_test
