// Every task once, whatever the number of threads and tasks, from inside of other loops, from several threads
// at a time, and on the program's own threads; and no loop waits for a thread that has not begun.
#include "cpu/base/parallel.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <functional>
#include <limits>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "convtune/device.h"
#include "convtune/error.h"
#include "cpu/backend/cpu_backend.h"
#include "cpu/base/processors.h"

namespace convtune::parallel_test {
namespace {

using cpu::parallel_for;
using cpu::parallel_tasks;
using cpu::TaskQueue;

TEST(ParallelFor, TouchesEveryIndexOnceOnOneToSixteenThreads) {
  for (int threads = 1; threads <= 16; ++threads)
    for (const std::int64_t tasks : {1, 2, 3, 7, 15, 16, 17, 1000}) {
      std::vector<int> touched(static_cast<std::size_t>(tasks), 0);
      parallel_for(threads, tasks, [&](std::int64_t begin, std::int64_t end) {
        EXPECT_LT(begin, end);
        for (std::int64_t i = begin; i < end; ++i) ++touched.at(static_cast<std::size_t>(i));
      });
      EXPECT_EQ(touched, std::vector<int>(static_cast<std::size_t>(tasks), 1)) << threads << " threads";
    }
}

RC_GTEST_PROP(ParallelFor, TouchesEveryIndexOnce, ()) {
  const int threads = *rc::gen::inRange(-1, 12);
  const std::int64_t tasks = *rc::gen::inRange<std::int64_t>(0, 3000);
  std::vector<int> touched(static_cast<std::size_t>(tasks), 0);
  parallel_for(threads, tasks, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
  });
  RC_ASSERT(std::all_of(touched.begin(), touched.end(), [](int times) { return times == 1; }));
}

TEST(ParallelFor, NothingToDoCallsNobody) {
  for (const std::int64_t tasks : {0, -3})
    parallel_for(4, tasks, [](std::int64_t, std::int64_t) { ADD_FAILURE(); });
}

TEST(ParallelFor, HugeRangesDoNotOverflow) {
  constexpr std::int64_t kTasks = std::numeric_limits<std::int64_t>::max();
  std::atomic<std::int64_t> sum = 0;
  parallel_for(3, kTasks, [&](std::int64_t begin, std::int64_t end) { sum += end - begin; });
  EXPECT_EQ(sum, kTasks);
}

TEST(ParallelFor, OneThreadOrOneTaskStaysOnTheCallersThread) {
  const auto caller = std::this_thread::get_id();
  for (auto [threads, tasks] : {std::pair{1, 1000}, {8, 1}, {0, 5}, {-2, 5}}) {
    int calls = 0;
    parallel_for(threads, tasks, [&, tasks = tasks](std::int64_t begin, std::int64_t end) {
      ++calls;
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, tasks);
      EXPECT_EQ(std::this_thread::get_id(), caller);
    });
    EXPECT_EQ(calls, 1);
  }
}

// Ends only where as many threads are inside at once.
void meet(std::atomic<int>& arrived, int threads) {
  ++arrived;
  while (arrived < threads) std::this_thread::yield();
}

TEST(ParallelFor, RunsInParallel) {
  for (const int threads : {2, 5}) {
    std::atomic<int> arrived = 0;
    parallel_for(threads, threads, [&](std::int64_t, std::int64_t) { meet(arrived, threads); });
    EXPECT_EQ(arrived, threads);
  }
}

TEST(ParallelFor, WorkersHoldSignalsButThoseOfErrors) {
  const auto caller = std::this_thread::get_id();
  std::atomic<int> arrived = 0;
  parallel_for(2, 2, [&](std::int64_t, std::int64_t) {
    meet(arrived, 2);
    if (std::this_thread::get_id() == caller) return;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    for (const int one : {SIGINT, SIGTERM, SIGALRM, SIGPROF}) EXPECT_TRUE(sigismember(&blocked, one)) << one;
    for (const int one : {SIGSEGV, SIGBUS, SIGFPE, SIGABRT}) EXPECT_FALSE(sigismember(&blocked, one)) << one;
  });
}

TEST(ParallelFor, SeesWhatWasWrittenBeforeAndIsSeenAfter) {
  std::vector<std::int64_t> values(257);
  for (int round = 0; round < 200; ++round) {
    std::iota(values.begin(), values.end(), round);
    parallel_for(2 + round % 3, 257, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) values[static_cast<std::size_t>(i)] *= 2;
    });
    for (std::int64_t i = 0; i < 257; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], 2 * (i + round));
  }
}

RC_GTEST_PROP(ParallelTasks, AreEachTakenOnce, ()) {
  const int threads = *rc::gen::inRange(-1, 17);
  const std::int64_t tasks = *rc::gen::inRange<std::int64_t>(-2, 3000);
  std::vector<std::atomic<int>> touched(static_cast<std::size_t>(std::max<std::int64_t>(tasks, 0)));
  parallel_tasks(threads, tasks, [&](TaskQueue& queue) {
    for (std::int64_t i = 0; queue.next(i);) {
      ++touched[static_cast<std::size_t>(i)];
      if (i >= queue.share_end()) std::abort();
    }
  });
  RC_ASSERT(std::all_of(touched.begin(), touched.end(), [](const auto& times) { return times == 1; }));
}

// Works longer than a worker stays at a time, so some leave and come back.
TEST(ParallelTasks, AreEachTakenOnceThoughWorkersLeave) {
  std::vector<std::atomic<int>> touched(400);
  parallel_tasks(4, 400, [&](TaskQueue& queue) {
    for (std::int64_t i = 0; queue.next(i); ++touched[static_cast<std::size_t>(i)])
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  });
  EXPECT_TRUE(std::all_of(touched.begin(), touched.end(), [](const auto& times) { return times == 1; }));
}

// A worker is held up in its first task until the caller has done all the others.
TEST(ParallelTasks, AreTakenFromWhoIsHeldUp) {
  constexpr std::int64_t kCount = 80;
  const auto caller = std::this_thread::get_id();
  std::atomic<std::int64_t> done = 0;
  std::atomic<bool> held = false;
  parallel_tasks(2, kCount, [&](TaskQueue& queue) {
    const bool worker = std::this_thread::get_id() != caller;
    for (std::int64_t i = 0; queue.next(i); ++done) {
      if (worker) held = true;
      while (worker && done < kCount - 1) std::this_thread::yield();
      while (!worker && !held) std::this_thread::yield();
    }
  });
  EXPECT_EQ(done, kCount);
}

TEST(ParallelTasks, OneThreadHasThemInOrder) {
  std::int64_t expected = 0;
  parallel_tasks(1, 100, [&](TaskQueue& queue) {
    for (std::int64_t i = 0; queue.next(i); ++expected) EXPECT_EQ(i, expected);
    EXPECT_EQ(queue.share_end(), 100);
  });
  EXPECT_EQ(expected, 100);
}

// Workers that stay in other loops do not come, and this loop's caller waits for none of them.
TEST(ParallelTasks, EndWhereNoWorkerIsFree) {
  const int others = std::max(cpu::usable_processors(), 16) + 2;  // more than there are workers
  std::atomic<int> begun = 0;
  std::atomic<bool> may_end = false;
  std::vector<std::thread> callers;
  for (int i = 0; i < others; ++i)
    callers.emplace_back([&] {
      parallel_for(2, 2, [&](std::int64_t, std::int64_t) {
        ++begun;
        while (!may_end) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      });
    });
  while (begun < others) std::this_thread::yield();
  std::atomic<std::int64_t> done = 0;
  for (int round = 0; round < 20; ++round)
    parallel_for(2, 50, [&](std::int64_t begin, std::int64_t end) { done += end - begin; });
  EXPECT_EQ(done, 20 * 50);
  may_end = true;
  for (std::thread& caller : callers) caller.join();
}

TEST(ParallelFor, SeveralThreadsMayStartLoopsAtOnce) {
  constexpr std::int64_t kCallers = 40;  // more than have a place
  std::array<std::int64_t, kCallers> sums{};
  std::vector<std::thread> callers;
  for (std::size_t caller = 0; caller < sums.size(); ++caller)
    callers.emplace_back([&, caller] {
      for (int round = 0; round < 50; ++round) {
        std::atomic<std::int64_t> sum = 0;
        parallel_for(3, 100, [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t i = begin; i < end; ++i) sum += i;
        });
        sums[caller] += sum;
      }
    });
  for (auto& caller : callers) caller.join();
  for (std::int64_t sum : sums) EXPECT_EQ(sum, 50 * 4950);
}

TEST(ParallelFor, WorksInsideOfAnotherLoop) {
  constexpr int kOuter = 12, kInner = 30, kInmost = 10;
  std::vector<std::atomic<int>> touched(kOuter * kInner * kInmost);
  parallel_for(3, kOuter, [&](std::int64_t a, std::int64_t a_end) {
    for (; a < a_end; ++a)
      parallel_for(2, kInner, [&](std::int64_t b, std::int64_t b_end) {
        for (; b < b_end; ++b)
          parallel_for(4, kInmost, [&](std::int64_t c, std::int64_t c_end) {
            for (; c < c_end; ++c) ++touched[static_cast<std::size_t>((a * kInner + b) * kInmost + c)];
          });
      });
  });
  EXPECT_TRUE(std::all_of(touched.begin(), touched.end(), [](const auto& times) { return times == 1; }));
}

// ---- On the program's threads ----

// A pool as programs have them: a queue of calls, of which the caller does none.
class Pool {
 public:
  explicit Pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  static void parallel_for(void* context, int tasks, void (*task)(void* task_context, int index),
                           void* task_context) {
    Pool& self = *static_cast<Pool*>(context);
    std::unique_lock lock(self.mutex_);
    ++self.loops;
    int left = tasks;
    for (int i = 0; i < tasks; ++i)
      self.calls_.emplace_back([&self, &left, task, task_context, i] {
        task(task_context, i);
        const std::lock_guard done(self.mutex_);
        self.callers.insert(std::this_thread::get_id());
        if (--left == 0) self.changed_.notify_all();
      });
    self.changed_.notify_all();
    self.changed_.wait(lock, [&left] { return left == 0; });
  }

  int loops = 0;
  std::set<std::thread::id> callers;

 private:
  void work() {
    for (std::unique_lock lock(mutex_);;) {
      changed_.wait(lock, [this] { return ends_ || !calls_.empty(); });
      if (calls_.empty()) return;
      const std::function<void()> call = std::move(calls_.front());
      calls_.pop_front();
      lock.unlock();
      call();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> calls_;
  bool ends_ = false;
  std::vector<std::thread> threads_;
};

TEST(CpuExecutor, HasAllLoopsUntilItIsTakenBack) {
  const int before = cpu::backend().info().units;
  for (const int threads : {1, 3}) {
    Pool pool(threads);
    const CpuExecutor executor{
        .concurrency = threads + 1, .parallel_for = Pool::parallel_for, .context = &pool};
    set_cpu_executor(&executor);
    EXPECT_EQ(cpu::backend().info().units, threads + 1);
    std::vector<std::atomic<int>> touched(500);
    for (int round = 0; round < 20; ++round)
      parallel_for(threads + 1, 500, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) ++touched[static_cast<std::size_t>(i)];
      });
    EXPECT_TRUE(std::all_of(touched.begin(), touched.end(), [](const auto& times) { return times == 20; }));
    EXPECT_EQ(pool.loops, 20);
    EXPECT_FALSE(pool.callers.contains(std::this_thread::get_id()));
    set_cpu_executor(nullptr);
    parallel_for(2, 500, [](std::int64_t, std::int64_t) {});
    EXPECT_EQ(pool.loops, 20);
  }
  EXPECT_EQ(cpu::backend().info().units, before);
}

TEST(CpuExecutor, IsRefusedWhereItCannotBe) {
  EXPECT_THROW(set_cpu_executor(std::array{CpuExecutor{.concurrency = 2}}.data()), Error);
  const CpuExecutor none{.concurrency = 0, .parallel_for = Pool::parallel_for};
  EXPECT_THROW(set_cpu_executor(&none), Error);
}

}  // namespace
}  // namespace convtune::parallel_test
