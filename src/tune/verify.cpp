// verify(): integer data, so that every sum is exact and every answer must match bit by bit; then NaN,
// infinities and denormal numbers.
#include "convtune/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <thread>

#include "base/random_bits.h"
#include "measure/testbed.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "plan/kernel_compiler.h"
#include "plan/planner.h"
#include "tune/ahead.h"
#include "tune/sweep.h"

namespace convtune {
namespace {

constexpr std::size_t kKeptFailures = 20;
constexpr std::int64_t kAllOutputs = 1 << 18;    // outputs up to this many are checked whole
constexpr std::int64_t kSampledOutputs = 20000;  // of a larger one
constexpr std::uint64_t kAheadAProcessor = 16;   // problems of the sweep; most of them are built at once

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

// The testbeds of one problem, made when they are first asked for.
class Beds {
 public:
  Beds(const ConvProblem& problem, Backend& on, std::uint64_t seed, std::vector<TestData> special)
      : problem_(problem), on_(on), seed_(seed), special_(std::move(special)) {}

  struct Found {
    std::string failure;  // empty: right
    bool special = false;
  };
  Found check(const Executable& executable) {
    Found found{bed(0, TestData::integer).check(executable).failure};
    if (!executable.keeps_special_numbers()) return found;
    for (std::size_t i = 0; i < special_.size() && found.failure.empty(); ++i) {
      found.special = true;
      found.failure = bed(i + 1, special_[i]).check(executable).failure;
      if (!found.failure.empty())
        found.failure +=
            special_[i] == TestData::denormal ? ", with denormal numbers" : ", with NaN or infinities";
    }
    return found;
  }

 private:
  Testbed& bed(std::size_t index, TestData data) {
    if (index == beds_.size())
      beds_.push_back(std::make_unique<Testbed>(
          problem_, on_, data, seed_, problem_.output_elements() <= kAllOutputs ? 0 : kSampledOutputs));
    return *beds_[index];
  }

  const ConvProblem& problem_;
  Backend& on_;
  const std::uint64_t seed_;
  const std::vector<TestData> special_;
  std::vector<std::unique_ptr<Testbed>> beds_;
};

void check(const Built& built, const ConvProblem& problem, const Backend& on, Beds& beds, std::uint64_t seed,
           VerifyReport& report) {
  if (!built.executable && built.failure.empty()) return;
  Beds::Found found{built.failure};
  try {
    if (built.executable) found = beds.check(*built.executable);
  } catch (const Error& error) {
    found.failure = fmt::format("it failed: {}", error.what());
  }
  const std::string name(built.algorithm->name());
  ++report.checks;
  if (built.algorithm->compiles(built.config)) ++report.compiled;
  if (found.special) ++report.special;
  if (found.failure.empty()) return;
  ++report.mismatches;
  if (report.failures.size() < kKeptFailures)
    report.failures.push_back(
        {problem, name, built.config, found.failure,
         fmt::format("convtune verify '{}' --device {} --algorithm {} --config '{}' --seed {}",
                     to_string(problem), to_string(on.info().device), name, to_string(built.config), seed)});
}

// Data beside integers: special numbers for half of a sweep's problems, denormal ones for a quarter.
std::vector<TestData> special_data(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t drawn = random_bits(seed, index) % 4;
  if (drawn < 2) return {TestData::non_finite};
  return drawn == 2 ? std::vector{TestData::denormal} : std::vector<TestData>{};
}

std::uint64_t processors() {
  return std::max(std::thread::hardware_concurrency(), 1u);
}

// Returns how many kernels to build ahead: nothing is compiled for a CPU.
std::uint64_t build_ahead(const Backend& on) {
  return on.info().device.kind == Device::Kind::cpu ? 0 : processors();
}

// Lists the algorithms and configs that the sweep checks for one problem.
struct BuiltDraw {
  ConvProblem problem;
  std::vector<Built> built;
};
BuiltDraw build(std::uint64_t seed, std::uint64_t index, const Backend& on, const VerifyOptions& options,
                StallWatch& stalls) {
  const Draw drawn = draw(seed, index, {on.info(), on.default_precision()}, options, stalls);
  BuiltDraw result{drawn.problem, {}};
  for (const auto& [algorithm, config] : drawn.chosen) {
    stalls.doing(index, fmt::format("{} {} to be built for {}", algorithm->name(), to_string(config),
                                    to_string(drawn.problem)));
    result.built.push_back(build(*algorithm, config, drawn.problem, on));
  }
  stalls.doing(index, fmt::format("its check of {}", to_string(drawn.problem)));
  return result;
}

void check_sweep(std::int64_t count, Device::Kind kind, const VerifyOptions& options) {
  if (count < 0)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the number of random problems cannot be {}", count));
  if (!options.algorithm.empty()) find_algorithm(kind, options.algorithm);  // throws for an unknown name
}

bool cancelled(const VerifyOptions& options) {
  return options.cancel && options.cancel->load();
}

// Kernels that serve every problem are compiled for the first.
class FirstTimes {
 public:
  bool is_first(std::string what) {
    const std::lock_guard lock(mutex_);
    return seen_.insert(std::move(what)).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;
};

// Describes what one of the draws has compiled.
struct Compiled {
  std::int64_t kernels = 0;
  std::vector<Uncompiled> failures;
};
Compiled compile(const Draw& drawn, std::uint64_t index, const DeviceInfo& device, FirstTimes& general,
                 StallWatch& stalls) {
  Compiled compiled;
  for (const auto& [algorithm, config] : drawn.chosen) {
    if (algorithm->vendor()) continue;
    const std::string shared = shared_kernel(*algorithm, drawn.problem, device, config);
    if (!shared.empty() && !general.is_first(shared)) continue;
    stalls.doing(index, fmt::format("{} {} to be compiled for {}", algorithm->name(), to_string(config),
                                    to_string(drawn.problem)));
    try {
      algorithm->precompile(drawn.problem, device, config);
      ++compiled.kernels;
    } catch (const Error& error) {
      compiled.failures.push_back({drawn.problem, std::string(algorithm->name()), config, error.what()});
    }
  }
  return compiled;
}

// A vendor's library would ask the driver for a device.
void check_compiles(const Target& target, const VerifyOptions& options) {
  if (options.algorithm.empty()) return;
  const Algorithm& named =
      find_algorithm(Device::Kind::cuda, options.algorithm);  // throws for an unknown name
  if (named.vendor())
    throw Error(ErrorKind::invalid_argument,
                fmt::format("{} brings its own kernels ({}): there is nothing to compile for {}",
                            options.algorithm, named.library(), target.name));
}

// draws(0), draws(1), ..., `count` of them, as many as `ahead` at once.
template <class Draws>
CompileReport compile(std::int64_t count, std::uint64_t ahead, const Draws& draws, const DeviceInfo& device,
                      const VerifyOptions& options, StallWatch& stalls) {
  require_kernel_compiler("nothing can be compiled");
  CompileReport report;
  FirstTimes general;
  Ahead made(static_cast<std::uint64_t>(count), ahead,
             [&](std::uint64_t index) { return compile(draws(index), index, device, general, stalls); });
  for (std::int64_t i = 0; i < count; ++i) {
    if (cancelled(options)) {
      report.interrupted = true;
      break;
    }
    const Compiled compiled = made.next();
    stalls.done(static_cast<std::uint64_t>(i));
    ++report.problems;
    report.kernels += compiled.kernels;
    report.failures.insert(report.failures.end(), compiled.failures.begin(), compiled.failures.end());
    if (options.progress) options.progress(i + 1, count, std::ssize(report.failures));
  }
  return report;
}

}  // namespace

VerifyReport verify(const ConvProblem& problem, Device device, const VerifyOptions& options) {
  Backend& on = backend(device);
  const Draw all = all_candidates(problem, {on.info(), on.default_precision()}, options);
  VerifyReport report;
  report.problems = 1;
  Beds beds(all.problem, on, options.seed, {TestData::non_finite, TestData::denormal});
  Ahead ahead(all.chosen.size(), build_ahead(on), [&](std::uint64_t i) {
    return build(*all.chosen[i].first, all.chosen[i].second, all.problem, on);
  });
  for (std::size_t i = 0; i < all.chosen.size(); ++i) {
    if (cancelled(options)) {
      report.interrupted = true;
      break;
    }
    check(ahead.next(), all.problem, on, beds, options.seed, report);
    if (options.progress)
      options.progress(static_cast<std::int64_t>(i + 1), std::ssize(all.chosen), report.mismatches);
  }
  return report;
}

VerifyReport verify_random(std::int64_t count, std::uint64_t seed, Device device,
                           const VerifyOptions& options) {
  Backend& on = backend(device);
  check_sweep(count, device.kind, options);
  VerifyReport report;
  StallWatch stalls(options.stalled, std::chrono::milliseconds(options.stall_ms));
  Ahead ahead(static_cast<std::uint64_t>(count), kAheadAProcessor * build_ahead(on),
              [&](std::uint64_t index) { return build(seed, index, on, options, stalls); });
  for (std::int64_t i = 0; i < count; ++i) {
    if (cancelled(options)) {
      report.interrupted = true;
      break;
    }
    const BuiltDraw drawn = ahead.next();
    const auto index = static_cast<std::uint64_t>(i);
    if (!drawn.built.empty()) {
      Beds beds(drawn.problem, on, seed, special_data(seed, index));
      for (const Built& built : drawn.built) {
        stalls.doing(index, fmt::format("the answer of {} {} for {}", built.algorithm->name(),
                                        to_string(built.config), to_string(drawn.problem)));
        check(built, drawn.problem, on, beds, seed, report);
      }
    }
    stalls.done(index);
    ++report.problems;
    if (options.progress) options.progress(i + 1, count, report.mismatches);
  }
  return report;
}

CompileReport compile_candidates(const ConvProblem& problem, const Target& target,
                                 const VerifyOptions& options) {
  check_compiles(target, options);
  const DeviceInfo device = device_of(target);
  const Draw all = all_candidates(problem, {device, Precision::tf32, false}, options);
  StallWatch stalls(options.stalled, std::chrono::milliseconds(options.stall_ms), "candidate");
  CompileReport report = compile(
      std::ssize(all.chosen), processors(),
      [&](std::uint64_t i) {
        return Draw{all.problem, {all.chosen[i]}};
      },
      device, options, stalls);
  report.problems = 1;
  return report;
}

CompileReport compile_random(std::int64_t count, std::uint64_t seed, const Target& target,
                             const VerifyOptions& options) {
  check_sweep(count, Device::Kind::cuda, options);
  check_compiles(target, options);
  const DeviceInfo device = device_of(target);
  StallWatch stalls(options.stalled, std::chrono::milliseconds(options.stall_ms));
  const SweptDevice on{device, Precision::tf32, false};
  return compile(
      count, kAheadAProcessor * processors(),
      [&](std::uint64_t index) { return draw(seed, index, on, options, stalls); }, device, options, stalls);
}

}  // namespace convtune
