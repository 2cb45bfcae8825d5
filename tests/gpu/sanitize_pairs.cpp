// Lists the runs of scripts/sanitize_gpu under compute-sanitizer: every algorithm of our own that is in the
// table, on small problems with configs from all over its search space. Checks each answer, too.
//   sanitize_pairs                       names the algorithms
//   sanitize_pairs ALGORITHM PAIRS       runs that many (problem, config) pairs; a third word FROM leaves out
//                                        as many of the first, for another process
//   sanitize_pairs --compile PAIRS       compiles those of all algorithms into the cache, by all processors
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <semaphore>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "kernel_problems.h"
#include "measure/testbed.h"

namespace {

using namespace convtune;

constexpr Device kDevice{Device::Kind::cuda, 0};

struct Pair {
  ConvProblem problem;
  const Algorithm* algorithm;
  Config config;
};

// Configs with several tiles a block, then small ones, then edges; the first config and another of each
// problem, until there are enough.
std::vector<Pair> pairs_of(const Algorithm& algorithm, std::size_t count) {
  Backend& on = backend(kDevice);
  std::vector<ConvProblem> problems = supported(algorithm, on.info(), tile_after_tile_problems());
  for (ConvProblem& problem : spread(supported(algorithm, on.info(), small_problems()), count))
    problems.push_back(std::move(problem));
  for (ConvProblem& problem : supported(algorithm, on.info(), suite_problems(7, {"edges"})))
    problems.push_back(std::move(problem));
  std::vector<Pair> pairs;
  for (std::uint64_t round = 0; round < 4 && pairs.size() < count; ++round)
    for (const ConvProblem& problem : problems) {
      const std::vector<Config> configs = algorithm.candidates(problem, on.info());
      // In the first round one in three is the first guess.
      const std::uint64_t any = random_bits(round, pairs.size());
      const Config& config = round == 0 && any % 3 == 0 ? configs.front() : configs[any / 3 % configs.size()];
      const auto same = [&](const Pair& pair) { return pair.problem == problem && pair.config == config; };
      if (std::any_of(pairs.begin(), pairs.end(), same)) continue;
      pairs.push_back({problem, &algorithm, config});
      if (pairs.size() == count) break;
    }
  return pairs;
}

int run(std::vector<Pair> pairs, std::size_t from) {
  pairs.erase(pairs.begin(), pairs.begin() + static_cast<std::ptrdiff_t>(std::min(from, pairs.size())));
  Backend& on = backend(kDevice);
  std::set<std::string> problems, configs;
  int wrong = 0;
  for (const Pair& pair : pairs) {
    // Enough that every output is read whole: under initcheck a copy of one element takes milliseconds.
    constexpr std::int64_t kSamples = 1 << 15;
    Testbed bed(pair.problem, on, TestData::integer, 1, kSamples);
    const auto executable = pair.algorithm->build(pair.problem, on.info(), pair.config);
    const std::string failure = bed.check(*executable).failure;
    wrong += !failure.empty();
    fmt::print("{} {} {}{}{}\n", pair.algorithm->name(), key(pair.problem), to_string(pair.config),
               failure.empty() ? "" : ": ", failure);
    std::fflush(stdout);  // before the tool's next words
    problems.insert(key(pair.problem));
    configs.insert(to_string(pair.config));
  }
  fmt::print("PAIRS {} PROBLEMS {} CONFIGS {} WRONG {}\n", pairs.size(), problems.size(), configs.size(),
             wrong);
  return wrong > 0;
}

int compile(std::size_t count) {
  std::vector<Pair> all;
  for (const auto* algorithm : own_algorithms())
    for (Pair& pair : pairs_of(*algorithm, count)) all.push_back(std::move(pair));
  std::counting_semaphore<> processors(std::max(std::thread::hardware_concurrency(), 1u));
  std::vector<std::future<void>> builds;
  for (const Pair& pair : all)
    builds.push_back(std::async(std::launch::async, [&] {
      processors.acquire();
      try {
        pair.algorithm->build(pair.problem, backend(kDevice).info(), pair.config);
      } catch (...) {
        processors.release();
        throw;
      }
      processors.release();
    }));
  for (std::future<void>& build : builds) build.get();
  fmt::print("PAIRS {}\n", all.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string what = argc > 1 ? argv[1] : "";
    const auto count = static_cast<std::size_t>(argc > 2 ? std::atoll(argv[2]) : 12);
    if (what == "--compile") return compile(count);
    const auto from = static_cast<std::size_t>(argc > 3 ? std::atoll(argv[3]) : 0);
    if (!what.empty()) return run(pairs_of(find_algorithm(kDevice.kind, what), count), from);
    for (const auto* algorithm : own_algorithms()) fmt::print("{}\n", algorithm->name());
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "sanitize_pairs: error: {}\n", error.what());
    return error.kind() == ErrorKind::no_device ? 3 : 2;
  }
}
