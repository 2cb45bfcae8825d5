// What scripts/sanitize_gpu runs under compute-sanitizer: every algorithm of our own that is in the table, on
// small problems with configs from all over its search space. Checks each answer, too.
//   sanitize_pairs                       names the algorithms
//   sanitize_pairs ALGORITHM PAIRS       runs that many (problem, config) pairs
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

#include "base/random_bits.h"
#include "convtune/cases.h"
#include "measure/testbed.h"
#include "plan/algorithms.h"
#include "plan/planner.h"

namespace {

using namespace convtune;

constexpr Device kDevice{Device::Kind::cuda, 0};

// Beside the edges: what each kind of kernel is made for, small. A tool makes a kernel a hundred times
// slower.
const char* const kKinds[] = {
    "mb2ic3ih35oc96kh11sh4ph2",
    "mb1ic3ih32oc64kh7sh2ph3 act=relu",
    "mb1ic3ih37iw61oc60kh7sh4ph3 act=relu",
    "mb3ic4ih16iw280oc64kh4sh4",
    "mb2ic4ih16oc40kh3ph1",
    "mb1ic3ih32oc48kh8sh8",
    "mb3ic2ih50iw64oc70kh16sh16 act=relu",
    "mb5ic1ih17iw32oc40kh4sh4",
    "mb2ic1ih40iw96oc40kh8kw32sh8sw32",
    "mb1ic64ih14oc64kh3ph1",
    "mb1ic96ih9iw13oc80kh3sh2ph1 act=relu",
    "mb2ic64ih10oc136kh1",
    "mb1ic32ih15oc24kh3ph2dh1",
    "mb1ic64ih9oc64kh3ph1 layout=nhwc",
    "mb1ic48ih11oc40kh5sh2ph2 layout=nhwc",
    "mb1ic3ih20oc32kh3sh2ph1 layout=nhwc",
    "mb1ic32ih12oc48kh3ph1 precision=fp32",
    "mb1ic32ih12oc48kh3ph1 precision=fp16",
    "mb1ic32ih12oc48kh3ph1 precision=bf16",
    "mb1ic3ih20oc32kh5ph2 precision=fp32",
    "g48mb1ic48ih14oc48kh3ph1",
    "g40mb2ic40ih15oc40kh3sh2ph1 act=relu",
    "g24mb1ic24ih13oc24kh7ph3",
    "g8mb1ic64ih12oc64kh3ph1",
    "g48mb1ic48ih14oc48kh3ph1 layout=nhwc",
    "g37mb2ic37ih15oc37kh5sh2ph2 layout=nhwc act=relu",
    "g64mb1ic64ih7oc64kh7ph3 layout=nhwc",
    "g24mb1ic24ih20oc24kh13ph6 layout=nhwc",
    "g20mb1ic20ih16iw11oc20kh3ph2dh1 layout=nhwc",
};

struct Pair {
  Conv2dProblem problem;
  const Algorithm* algorithm;
  Config config;
};

std::vector<const Algorithm*> own_algorithms() {
  std::vector<const Algorithm*> own;
  for (const Algorithm* algorithm : algorithms(kDevice.kind))
    if (!algorithm->vendor() && !algorithm->reference()) own.push_back(algorithm);
  return own;
}

// The kinds first, then edges; the first config and another of each problem, until there are enough.
std::vector<Pair> pairs_of(const Algorithm& algorithm, std::size_t count) {
  Backend& on = backend(kDevice);
  std::vector<Conv2dProblem> problems;
  for (const char* line : kKinds) problems.push_back(resolve(parse_problem(line), on));
  for (const Conv2dProblem& problem : load_suite("edges"))
    if (problem.n > 0) problems.push_back(resolve(problem, on));
  std::erase_if(problems, [&](const Conv2dProblem& problem) {
    return !static_cast<bool>(algorithm.supports(problem, on.info()));
  });
  std::vector<Pair> pairs;
  for (std::uint64_t round = 0; round < 4 && pairs.size() < count; ++round)
    for (const Conv2dProblem& problem : problems) {
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

int run(const std::vector<Pair>& pairs) {
  Backend& on = backend(kDevice);
  std::set<std::string> problems, configs;
  int wrong = 0;
  for (const Pair& pair : pairs) {
    constexpr std::int64_t kSamples = 4096;
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
  for (const Algorithm* algorithm : own_algorithms())
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
    if (!what.empty()) return run(pairs_of(find_algorithm(kDevice.kind, what), count));
    for (const Algorithm* algorithm : own_algorithms()) fmt::print("{}\n", algorithm->name());
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "sanitize_pairs: error: {}\n", error.what());
    return error.kind() == ErrorKind::no_device ? 3 : 2;
  }
}
