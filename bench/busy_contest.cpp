// Contests on a busy machine, and how many are called proven: two works of plain arithmetic, timed as
// candidates are on a CPU, beside processes that never end.
//
//   busy_contest [--load 8] [--contests 50] [--seconds 10] [--clock-alone] INCUMBENT_MS:CHALLENGER_MS...
//
// With --clock-alone the contests are not told what the threads say. Of each pair it says how many contests
// were proven, how many decided at all, and how many of the proven intervals do not hold the true gain, which
// is the ratio of the arithmetic. Equal works must never be proven.
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "convtune/contest.h"
#include "cpu/backend/cpu_backend.h"

namespace {

using namespace convtune;

// Makes `count` additions that wait for each other.
void add_up(std::int64_t additions) {
  volatile double sum = 0;
  for (std::int64_t i = 0; i < additions; ++i) sum = sum + 1;
}

double additions_a_us() {
  constexpr std::int64_t kAdditions = 200'000;
  double best_us = 1e12;
  for (int i = 0; i < 50; ++i) {
    const auto start = std::chrono::steady_clock::now();
    add_up(kAdditions);
    const std::chrono::duration<double, std::micro> gone = std::chrono::steady_clock::now() - start;
    best_us = std::min(best_us, gone.count());
  }
  return kAdditions / best_us;
}

// Processes that use a processor each, until this one ends.
class OtherWork {
 public:
  explicit OtherWork(int processes) {
    for (int i = 0; i < processes; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (true) add_up(1 << 20);
      }
      if (child > 0) children_.push_back(child);
    }
  }
  ~OtherWork() {
    for (const pid_t child : children_) kill(child, SIGKILL), waitpid(child, nullptr, 0);
  }
  OtherWork(const OtherWork&) = delete;
  OtherWork& operator=(const OtherWork&) = delete;

 private:
  std::vector<pid_t> children_;
};

void hold(double incumbent_ms, double challenger_ms, int contests, double seconds, bool clock_alone,
          double a_us) {
  Backend& cpu = cpu::backend();
  const auto side = [&](double ms) {
    return [&cpu, additions = static_cast<std::int64_t>(ms * 1e3 * a_us)] {
      return cpu.time_us([additions] { add_up(additions); });
    };
  };
  ContestOptions options;
  options.max_seconds = seconds;
  if (!clock_alone) options.witness = [&cpu] { return cpu.witness(); };
  const double gain = 1 - challenger_ms / incumbent_ms;
  int proven = 0, untrue = 0, undecided = 0, busy = 0;
  double a_interrupted = 0, b_interrupted = 0;
  for (int i = 0; i < contests; ++i) {
    const ContestResult result = contest(side(incumbent_ms), side(challenger_ms), options);
    proven += result.accepted, undecided += result.undecided, busy += result.busy;
    untrue += result.accepted && (gain < result.interval.low || gain > result.interval.high);
    const auto share = [&](int interrupted) { return 1.0 * interrupted / (2 * result.rounds); };
    a_interrupted += share(result.incumbent_interrupted) / contests;
    b_interrupted += share(result.challenger_interrupted) / contests;
    if (i == 0) fmt::print("  {}\n", result.reason);
  }
  fmt::print(
      "{:g} ms against {:g} ms, a gain of {:.1f} %: of {} contests {} proven ({} of an untrue interval), "
      "{} undecided, {} busy; interrupted {:.0f} % and {:.0f} % of the samples\n",
      incumbent_ms, challenger_ms, 100 * gain, contests, proven, untrue, undecided, busy, 100 * a_interrupted,
      100 * b_interrupted);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  int load = 8, contests = 50;
  double seconds = 10;
  bool clock_alone = false;
  std::vector<std::string> pairs;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const char* const value = i + 1 < count ? words[i + 1] : "";
    if (word == "--load") {
      load = std::atoi(value), ++i;
    } else if (word == "--contests") {
      contests = std::atoi(value), ++i;
    } else if (word == "--seconds") {
      seconds = std::atof(value), ++i;
    } else if (word == "--clock-alone") {
      clock_alone = true;
    } else {
      pairs.push_back(word);
    }
  }
  cpu::set_threads(1);
  const double a_us = additions_a_us();
  const OtherWork others(load);
  std::this_thread::sleep_for(std::chrono::seconds(load > 0 ? 2 : 0));
  for (const std::string& pair : pairs) {
    const auto colon = std::min(pair.find(':'), pair.size() - 1);
    hold(std::atof(pair.c_str()), std::atof(pair.c_str() + colon + 1), contests, seconds, clock_alone, a_us);
  }
  return 0;
}
