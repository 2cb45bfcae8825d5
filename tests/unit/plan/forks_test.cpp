// Children that are forked while other threads plan, pack, run and tune: each finds every lock free.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "convtune/convolution.h"
#include "convtune/tuner.h"
#include "records_fixture.h"

namespace convtune::forks_test {
namespace {

// A shape that no other call of this process asks for.
ConvProblem new_problem() {
  static std::atomic<int> next = 0;
  const int number = next++;
  return parse_problem("mb1ic" + std::to_string(1 + number % 61) + "ih" + std::to_string(5 + number / 61) +
                       "oc4kh3ph1");
}

void plan_and_run(const ConvProblem& problem) {
  const Convolution convolution = plan(problem);
  const std::vector<float> x(static_cast<std::size_t>(problem.input_elements()), 1.0f), bias(4, 0.5f),
      w(static_cast<std::size_t>(problem.weight_elements()), 1.0f);
  std::vector<float> y(static_cast<std::size_t>(problem.output_elements()));
  const PackedWeights weights = convolution.pack(w.data(), bias.data());
  convolution.run({.x = x.data(), .y = y.data()}, weights);
}

TEST(Forks, ChildrenPlanWhileTheirParentsThreadsDo) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a child that is forked while threads allocate finds locks of GCC 12's sanitizers held";
#endif
  const ScratchFolder folder;
  ::setenv("CONVTUNE_DATA_DIR", folder.path().c_str(), 1);
  std::atomic<bool> done = false;
  std::atomic<int> work_done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      for (; !done; ++work_done) plan_and_run(new_problem());
    });
  threads.emplace_back([&] {
    TuneOptions options;
    options.budget_trials = 1, options.cancel = &done;
    for (; !done; ++work_done) tune(new_problem(), Device{}, options);
  });

  int hung = 0, failed = 0;
  for (int i = 0; i < 200; ++i) {
    const int before = work_done;
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::alarm(60);  // a child that hangs is killed
      plan_and_run(new_problem());
      ::_exit(0);
    }
    int status = -1;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    hung += WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM;
    failed += status != 0;
    while (work_done == before) std::this_thread::yield();  // the next child finds other threads elsewhere
    if (hung > 2) break;
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hung, 0);
  EXPECT_EQ(failed, 0);
  ::unsetenv("CONVTUNE_DATA_DIR");
}

}  // namespace
}  // namespace convtune::forks_test
