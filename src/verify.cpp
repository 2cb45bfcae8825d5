// verify(): integer data, so that every sum is exact and every answer must match bit by bit.
#include "convtune/verify.h"

#include <fmt/format.h>

#include <algorithm>

#include "algorithms.h"
#include "planner.h"
#include "random_bits.h"
#include "random_problem.h"
#include "testbed.h"

namespace convtune {
namespace {

constexpr std::size_t kKeptFailures = 20;
constexpr std::int64_t kAllOutputs = 1 << 18;  // outputs up to this many are checked whole
constexpr std::int64_t kSamples = 20000;       // of a larger one
constexpr std::uint64_t kVendorEvery =
    8;  // the sweep asks the vendor every so many problems: it plans slowly

void check(const Algorithm& algorithm, const Config& config, const Conv2dProblem& problem, Backend& on,
           Testbed& bed, std::uint64_t seed, VerifyReport& report) {
  std::string what;
  try {
    what = bed.check(*algorithm.build(problem, on.info(), config)).failure;
  } catch (const Error& error) {
    what = fmt::format("it failed: {}", error.what());
  }
  ++report.checks;
  if (what.empty()) return;
  ++report.mismatches;
  if (report.failures.size() < kKeptFailures)
    report.failures.push_back(
        {problem, std::string(algorithm.name()), config, what,
         fmt::format("convtune verify '{}' --device {} --algorithm {} --config '{}' --seed {}",
                     to_string(problem), to_string(on.info().device), algorithm.name(), to_string(config),
                     seed)});
}

Testbed testbed(const Conv2dProblem& problem, Backend& on, std::uint64_t seed) {
  return {problem, on, TestData::integer, seed, problem.output_elements() <= kAllOutputs ? 0 : kSamples};
}

// The algorithms that the options ask for and that can run the problem.
std::vector<const Algorithm*> chosen_algorithms(const Conv2dProblem& problem, const Backend& on,
                                                const VerifyOptions& options) {
  std::vector<const Algorithm*> chosen;
  for (const Algorithm* algorithm : algorithms(on.info().device.kind))
    if ((options.algorithm.empty() || options.algorithm == algorithm->name()) &&
        algorithm->supports(problem, on.info()))
      chosen.push_back(algorithm);
  return chosen;
}

bool cancelled(const VerifyOptions& options) {
  return options.cancel && options.cancel->load();
}

}  // namespace

VerifyReport verify(const Conv2dProblem& problem, Device device, const VerifyOptions& options) {
  Backend& on = backend(device);
  const Conv2dProblem resolved = resolve(problem, on);
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
  for (std::size_t i = 0; i < work.size(); ++i) {
    if (cancelled(options)) {
      report.interrupted = true;
      break;
    }
    check(*work[i].first, work[i].second, resolved, on, bed, options.seed, report);
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
  for (std::int64_t i = 0; i < count; ++i) {
    if (cancelled(options)) {
      report.interrupted = true;
      break;
    }
    const auto index = static_cast<std::uint64_t>(i);
    const Conv2dProblem problem = resolve(random_problem(seed, index), on);
    Testbed bed = testbed(problem, on, seed);
    for (const Algorithm* algorithm : chosen_algorithms(problem, on, options)) {
      const bool every_problem = !algorithm->vendor() || !options.algorithm.empty();
      if (!every_problem && index % kVendorEvery != 0) continue;
      const std::vector<Config> candidates = algorithm->candidates(problem, on.info());
      // The first guess, and two drawn from the whole list.
      check(*algorithm, candidates.front(), problem, on, bed, seed, report);
      for (std::uint64_t draw = 0; draw < std::min<std::uint64_t>(2, candidates.size() - 1); ++draw)
        check(*algorithm, candidates[random_bits(seed ^ index, draw) % candidates.size()], problem, on, bed,
              seed, report);
    }
    ++report.problems;
    if (options.progress) options.progress(i + 1, count, report.mismatches);
  }
  return report;
}

}  // namespace convtune
