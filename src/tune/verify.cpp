// verify(): integer data, so that every sum is exact and every answer must match bit by bit.
#include "convtune/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <future>
#include <map>
#include <mutex>
#include <thread>

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "measure/testbed.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "problem/random_problem.h"

namespace convtune {
namespace {

constexpr std::size_t kKeptFailures = 20;
constexpr std::int64_t kAllOutputs = 1 << 18;  // outputs up to this many are checked whole
constexpr std::int64_t kSamples = 20000;       // of a larger one
// The sweep asks the vendor every so many problems, since it plans slowly (cuDNN under one lock), and lets
// kernels be compiled for every so many: where nothing has to be compiled, every problem is checked.
constexpr std::uint64_t kVendorEvery = 8, kVendorEveryOnGpu = 16, kCompiledEvery = 32;
constexpr std::uint64_t kDraws = 1000;          // of a problem for one algorithm
constexpr std::uint64_t kAheadAProcessor = 16;  // problems of the sweep; most of them are built at once

// Names a stall: a kernel that compiles for minutes, one that never ends on its GPU. Says what the sweep's
// next problem waits for whenever another `every` passes without it being done.
class StallWatch {
 public:
  StallWatch(std::function<void(const std::string&)> say, std::chrono::milliseconds every)
      : say_(std::move(say)), every_(every) {
    if (say_) thread_ = std::thread([this] { watch(); });
  }
  ~StallWatch() {
    if (!say_) return;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  StallWatch(const StallWatch&) = delete;
  StallWatch& operator=(const StallWatch&) = delete;

  // What some thread now does for problem `index`.
  void doing(std::uint64_t index, std::string what) {
    const std::lock_guard lock(mutex_);
    doing_[index] = std::move(what);
  }
  void done(std::uint64_t index) {
    const std::lock_guard lock(mutex_);
    doing_.erase(index);
    next_ = index + 1;
    changed_.notify_all();
  }

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      const std::uint64_t waited_for = next_;
      const auto moved = [&] { return ended_ || next_ != waited_for; };
      for (auto waited = every_; !changed_.wait_for(lock, every_, moved); waited += every_) {
        const auto entry = doing_.find(waited_for);
        const std::string what = entry == doing_.end() ? "its turn" : entry->second;
        lock.unlock();
        say_(fmt::format("problem {} has waited {:.0f} s for {}", waited_for,
                         std::chrono::duration<double>(waited).count(), what));
        lock.lock();
        if (moved()) break;
      }
    }
  }

  const std::function<void(const std::string&)> say_;
  const std::chrono::milliseconds every_;
  std::mutex mutex_;
  std::map<std::uint64_t, std::string> doing_;  // by problem
  std::condition_variable changed_;
  std::uint64_t next_ = 0;
  bool ended_ = false;
  std::thread thread_;
};

// One thing to check. Built by some thread beforehand: compiling takes far longer than checking.
struct Built {
  const Algorithm* algorithm = nullptr;
  Config config;
  std::unique_ptr<Executable> executable;
  std::string failure;  // why there is none; empty as well where the vendor's library takes its offer back
};

Built build(const Algorithm& algorithm, const Config& config, const ConvProblem& problem, const Backend& on) {
  Built built{&algorithm, config, nullptr, {}};
  try {
    built.executable = algorithm.build(problem, on.info(), config);
  } catch (const Error& error) {
    // cuDNN compiles some engines only when they are built, and may then say that it cannot: no answer is
    // wrong.
    if (!algorithm.vendor() || error.kind() != ErrorKind::unsupported)
      built.failure = fmt::format("it failed: {}", error.what());
  }
  return built;
}

void check(const Built& built, const ConvProblem& problem, const Backend& on, Testbed& bed,
           std::uint64_t seed, VerifyReport& report) {
  if (!built.executable && built.failure.empty()) return;
  std::string what = built.failure;
  try {
    if (built.executable) what = bed.check(*built.executable).failure;
  } catch (const Error& error) {
    what = fmt::format("it failed: {}", error.what());
  }
  const std::string name(built.algorithm->name());
  ++report.checks;
  if (built.algorithm->compiles(built.config)) ++report.compiled;
  if (what.empty()) return;
  ++report.mismatches;
  if (report.failures.size() < kKeptFailures)
    report.failures.push_back(
        {problem, name, built.config, what,
         fmt::format("convtune verify '{}' --device {} --algorithm {} --config '{}' --seed {}",
                     to_string(problem), to_string(on.info().device), name, to_string(built.config), seed)});
}

Testbed testbed(const ConvProblem& problem, Backend& on, std::uint64_t seed) {
  return {problem, on, TestData::integer, seed, problem.output_elements() <= kAllOutputs ? 0 : kSamples};
}

// make(0), make(1), ... in this order, up to `ahead` of them made on threads of their own beforehand.
template <class Make>
class Ahead {
 public:
  using Made = std::invoke_result_t<Make, std::uint64_t>;
  Ahead(std::uint64_t count, std::uint64_t ahead, Make make)
      : count_(count), ahead_(ahead), make_(std::move(make)) {}
  Made next() {
    for (; begun_ < count_ && made_.size() < std::max<std::uint64_t>(ahead_, 1); ++begun_)
      made_.push_back(
          std::async(ahead_ > 0 ? std::launch::async : std::launch::deferred, std::cref(make_), begun_));
    Made made = made_.front().get();
    made_.pop_front();
    return made;
  }

 private:
  const std::uint64_t count_, ahead_;
  const Make make_;
  std::uint64_t begun_ = 0;
  std::deque<std::future<Made>> made_;  // last: its threads use what stands above
};

// How many things to build ahead: nothing is compiled for a CPU.
std::uint64_t build_ahead(const Backend& on) {
  return on.info().device.kind == Device::Kind::cpu ? 0 : std::max(std::thread::hardware_concurrency(), 1u);
}

// The algorithms that the options ask for and that can run the problem. One that is not asked for is not even
// asked whether it can: the vendor's library answers slowly.
std::vector<const Algorithm*> chosen_algorithms(const ConvProblem& problem, const Backend& on,
                                                const VerifyOptions& options, bool with_vendor = true) {
  std::vector<const Algorithm*> chosen;
  for (const Algorithm* algorithm : algorithms(on.info().device.kind))
    if ((options.algorithm.empty() ? with_vendor || !algorithm->vendor()
                                   : options.algorithm == algorithm->name()) &&
        algorithm->supports(problem, on.info()))
      chosen.push_back(algorithm);
  return chosen;
}

// One that the algorithm supports that is asked for: some take one shape in thousands, and one in a hundred
// that is like a built-in case.
ConvProblem draw_problem(std::uint64_t seed, std::uint64_t index, const Backend& on,
                         const VerifyOptions& options) {
  ConvProblem drawn;
  for (std::uint64_t attempt = 0; attempt < kDraws; ++attempt) {
    const std::uint64_t bits = random_bits(seed, attempt);
    const std::vector<ConvProblem>& cases = suites()[bits % suites().size()].problems;
    drawn = attempt == 0       ? random_problem_of_any_kind(seed, index)
            : attempt % 2 == 0 ? random_problem_of_any_kind(bits, index)
                               : random_problem_like(cases[bits / 64 % cases.size()], bits, index);
    if (options.dtype) drawn.dtype = *options.dtype;
    if (options.layout) drawn.layout = *options.layout;
    drawn = resolve(drawn, on);
    if (options.algorithm.empty() ||
        find_algorithm(on.info().device.kind, options.algorithm).supports(drawn, on.info()))
      break;
  }
  return drawn;
}

// What the sweep checks of one problem.
struct Draw {
  ConvProblem problem;
  std::vector<Built> built;
};
Draw draw(std::uint64_t seed, std::uint64_t index, const Backend& on, const VerifyOptions& options,
          StallWatch& stalls) {
  stalls.doing(index, fmt::format("a problem that {} supports", options.algorithm));
  Draw drawn{draw_problem(seed, index, on, options), {}};
  const std::string problem = to_string(drawn.problem);
  stalls.doing(index, fmt::format("a list of the algorithms that run {}", problem));
  const std::uint64_t vendor_every =
      on.info().device.kind == Device::Kind::cpu ? kVendorEvery : kVendorEveryOnGpu;
  for (const Algorithm* algorithm :
       chosen_algorithms(drawn.problem, on, options, index % vendor_every == 0)) {
    stalls.doing(index, fmt::format("the candidates of {} for {}", algorithm->name(), problem));
    std::vector<Config> ready = algorithm->candidates(drawn.problem, on.info());
    const auto split = std::stable_partition(
        ready.begin(), ready.end(), [&](const Config& config) { return !algorithm->compiles(config); });
    const std::vector<Config> compiled(split, ready.end());
    ready.erase(split, ready.end());
    const auto add = [&](const Config& config) {
      stalls.doing(index,
                   fmt::format("{} {} to be built for {}", algorithm->name(), to_string(config), problem));
      drawn.built.push_back(build(*algorithm, config, drawn.problem, on));
    };
    const auto any = [&](const std::vector<Config>& from, std::uint64_t position) {
      return from[random_bits(seed ^ index, position) % from.size()];
    };
    // The first guess, and two drawn from the whole list.
    if (!ready.empty()) add(ready.front());
    for (std::uint64_t i = 0; i + 1 < std::min<std::uint64_t>(3, ready.size()); ++i) add(any(ready, i));
    // The first guess and any in turns.
    const std::uint64_t every = ready.empty() && !options.algorithm.empty() ? 1 : kCompiledEvery;
    if (!compiled.empty() && index % every == 0)
      add(index / every % 2 == 0 ? compiled.front() : any(compiled, 2));
  }
  stalls.doing(index, fmt::format("its check of {}", problem));
  return drawn;
}

bool cancelled(const VerifyOptions& options) {
  return options.cancel && options.cancel->load();
}

}  // namespace

VerifyReport verify(const ConvProblem& problem, Device device, const VerifyOptions& options) {
  Backend& on = backend(device);
  const ConvProblem resolved = resolve(problem, on);
  if (!options.algorithm.empty()) {
    const Algorithm& named = find_algorithm(device.kind, options.algorithm);  // throws for an unknown name
    Support support = named.supports(resolved, on.info());
    if (support && !options.config.values.empty())
      support = named.accepts(resolved, on.info(), options.config);
    if (!support)
      throw Error(ErrorKind::invalid_argument,
                  fmt::format("{} cannot run {}{}{}: {}", options.algorithm, to_string(resolved),
                              options.config.values.empty() ? "" : " with ", to_string(options.config),
                              support.reason()));
  } else if (!options.config.values.empty()) {
    throw Error(ErrorKind::invalid_argument, "a config needs the name of its algorithm");
  }
  VerifyReport report;
  report.problems = 1;
  Testbed bed = testbed(resolved, on, options.seed);
  std::vector<std::pair<const Algorithm*, Config>> work;
  for (const Algorithm* algorithm : chosen_algorithms(resolved, on, options)) {
    if (!options.config.values.empty())
      work.emplace_back(algorithm, options.config);
    else
      for (Config& config : algorithm->candidates(resolved, on.info()))
        work.emplace_back(algorithm, std::move(config));
  }
  Ahead ahead(work.size(), build_ahead(on),
              [&](std::uint64_t i) { return build(*work[i].first, work[i].second, resolved, on); });
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (cancelled(options)) {
      report.interrupted = true;
      break;
    }
    check(ahead.next(), resolved, on, bed, options.seed, report);
    if (options.progress)
      options.progress(static_cast<std::int64_t>(i + 1), static_cast<std::int64_t>(work.size()),
                       report.mismatches);
  }
  return report;
}

VerifyReport verify_random(std::int64_t count, std::uint64_t seed, Device device,
                           const VerifyOptions& options) {
  Backend& on = backend(device);
  if (count < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the number of random problems cannot be {}", count));
  if (!options.algorithm.empty())
    find_algorithm(device.kind, options.algorithm);  // throws for an unknown name
  VerifyReport report;
  StallWatch stalls(options.stalled, std::chrono::milliseconds(options.stall_ms));
  Ahead ahead(static_cast<std::uint64_t>(count), kAheadAProcessor * build_ahead(on),
              [&](std::uint64_t index) { return draw(seed, index, on, options, stalls); });
  for (std::int64_t i = 0; i < count; ++i) {
    if (cancelled(options)) {
      report.interrupted = true;
      break;
    }
    const Draw drawn = ahead.next();
    const auto index = static_cast<std::uint64_t>(i);
    if (!drawn.built.empty()) {
      Testbed bed = testbed(drawn.problem, on, seed);
      for (const Built& built : drawn.built) {
        stalls.doing(index, fmt::format("the answer of {} {} for {}", built.algorithm->name(),
                                        to_string(built.config), to_string(drawn.problem)));
        check(built, drawn.problem, on, bed, seed, report);
      }
    }
    stalls.done(index);
    ++report.problems;
    if (options.progress) options.progress(i + 1, count, report.mismatches);
  }
  return report;
}

}  // namespace convtune
