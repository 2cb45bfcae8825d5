// Candidates of our kernels compiled for every compute capability that NVRTC lists from 8.0 on, no GPU
// needed: each must compile, spill nothing, and launch what was forecast of it before: threads, shared
// memory, blocks, and no more registers than let the forecast number of blocks share a multiprocessor. Prints
// a table and what it found.
//
//   candidates_walk [--suite NAME|PATH/FILE]... [--arch sm_90a]... [--algorithm NAME]...
//                   [--each N [--seed S]]   N of each list, the first among them; without it all
//                   [--kept FILE]           what was walked before is taken from there, what is new is added
//                   [--processes P] [--seconds S]
//   candidates_walk --quick                 what every second built-in case gets unmeasured, on one
//   architecture
//                                           after the other, and some drawn at random
//
// Exit codes: 0 nothing found, 1 something found, 77 there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/random_bits.h"
#include "base/statistics.h"
#include "convtune/cases.h"
#include "cuda/compile/compiler.h"
#include "cuda/launch/dry_run.h"
#include "cuda/launch/kernel_algorithm.h"
#include "model/capability_facts.h"
#include "model/target_of.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "plan/planner.h"

namespace {

using namespace convtune;

struct Options {
  std::vector<std::string> suites, architectures, algorithms;
  std::size_t each = 0;  // 0: all
  std::uint64_t seed = 1;
  std::string kept;
  unsigned processes = std::max(1u, std::thread::hardware_concurrency());
  double seconds = 1e9;
  bool quick = false;
};

struct Item {
  DeviceInfo device;
  ConvProblem problem;
  const Algorithm* algorithm;
  Config config;

  std::string key() const {
    return fmt::format("{} {} {} {} {}", algorithm->source_hash(), device.isa, algorithm->name(),
                       problem.name, to_string(config));
  }
};

// Returns the fault of a candidate, empty where all is right; and how many bytes it spills.
struct Finding {
  std::string text;
  std::int64_t spill_bytes = 0;
};

template <class T>
bool wanted(const std::vector<std::string>& names, const T& name) {
  return names.empty() || std::find(names.begin(), names.end(), name) != names.end();
}

// Makes for each capability that is wanted a device with the multiprocessors of the built-in target that it
// is like.
std::vector<DeviceInfo> devices_of(const Options& options) {
  std::vector<DeviceInfo> devices;
  for (const ComputeCapability capability : cuda::nvrtc_capabilities()) {
    const int multiprocessors = known_target(capability_facts(capability).typical)->multiprocessors;
    const DeviceInfo device = device_of(typical_target(capability, multiprocessors));
    if (wanted(options.architectures, device.isa)) devices.push_back(device);
  }
  return devices;
}

Finding check(const Item& item) {
  const DeviceInfo& device = item.device;
  try {
    const cuda::LaunchPlan plan =
        cuda::kernel_algorithm(*item.algorithm)->plan(item.problem, device, item.config);
    const cuda::Launch launch = cuda::launch_of(plan, cuda::compile(plan, false).module);
    const std::int64_t spills = launch.spill_bytes;
    const Occupancy real =
        occupancy(target_of(device), {launch.threads, launch.registers, launch.smem_bytes});
    std::string wrong;
    const auto differ = [&](const char* what, double is, double was, bool fits) {
      if (!fits) wrong += fmt::format("{}{} {}, forecast {}", wrong.empty() ? "" : "; ", what, is, was);
    };
    differ(
        "static bytes of shared memory",
        static_cast<double>(launch.smem_bytes) - static_cast<double>(plan.kernel_launch().dynamic_smem_bytes),
        0, launch.smem_bytes == static_cast<std::int64_t>(plan.kernel_launch().dynamic_smem_bytes));
    differ("registers", launch.registers, plan.most_registers, launch.registers <= plan.most_registers);
    differ("blocks on an SM", real.blocks, plan.resident_blocks,
           plan.resident_is_a_guess ? real.blocks >= 1 : real.blocks >= plan.resident_blocks);
    if (spills > 0) wrong += fmt::format("{}spills {} bytes", wrong.empty() ? "" : "; ", spills);
    return {wrong, spills};
  } catch (const Error& error) {
    return {error.what(), 0};
  }
}

double median_or_zero(const std::vector<double>& values) {
  return values.empty() ? 0 : median(values);
}

std::vector<ConvProblem> problems_of(const Options& options) {
  std::vector<ConvProblem> problems;
  for (const char* const suite : {"stem", "body", "depthwise", "half"})
    if (wanted(options.suites, suite))
      for (ConvProblem& problem : load_suite(suite)) problems.push_back(std::move(problem));
  for (const std::string& suite : options.suites)
    if (suite.find('/') != std::string::npos)
      for (ConvProblem& problem : load_suite(suite)) problems.push_back(std::move(problem));
  if (wanted(options.suites, "depthwise"))  // channels last have a kernel of their own
    for (ConvProblem& problem : load_suite("depthwise")) {
      problem.layout = Layout::nhwc;
      problem.name += "_nhwc";
      problems.push_back(std::move(problem));
    }
  for (ConvProblem& problem : problems)
    if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
  return problems;
}

// A part of each list spread over it at random, or all.
std::vector<Item> items_of(const Options& options) {
  std::vector<Item> items;
  for (const ConvProblem& problem : problems_of(options))
    for (const DeviceInfo& device : devices_of(options))
      for (const Algorithm* const algorithm : algorithms(Device::Kind::cuda)) {
        if (algorithm->vendor() || algorithm->reference() || !wanted(options.algorithms, algorithm->name()) ||
            !algorithm->supports(problem, device))
          continue;
        std::vector<Config> configs = algorithm->candidates(problem, device);
        std::set<std::size_t> places = {0};
        for (std::uint64_t draw = 0; places.size() < std::min(options.each, configs.size()); ++draw)
          places.insert(
              static_cast<std::size_t>(random_bits(options.seed + items.size(), draw) % configs.size()));
        for (std::size_t i = 0; i < configs.size(); ++i)
          if (options.each == 0 || places.contains(i))
            items.push_back({device, problem, algorithm, std::move(configs[i])});
      }
  return items;
}

// Returns answers of choose(), for one capability after the other; then some of all lists. A second problem
// of a suite has as a rule the kernel and the config's fields of its neighbour.
std::vector<Item> quick_items(const Options& options) {
  constexpr std::size_t kDrawn = 4;
  const std::vector<DeviceInfo> devices = devices_of(options);
  if (devices.empty()) return {};
  std::vector<Item> items;
  std::size_t next = 0;
  for (const ConvProblem& problem : problems_of(options)) {
    if (next++ % 2 == 1) continue;
    const DeviceInfo& device = devices[next / 2 % devices.size()];
    const Plan plan = choose(problem, device);
    items.push_back({device, problem, &find_algorithm(Device::Kind::cuda, plan.algorithm), plan.config});
  }
  Options drawn = options;
  drawn.each = 2;
  std::vector<Item> all = items_of(drawn);
  if (all.empty()) return {};
  for (std::size_t i = 0; i < kDrawn; ++i)
    items.push_back(all[static_cast<std::size_t>(random_bits(options.seed, i) % all.size())]);
  return items;
}

int run(const Options& options) {
  if (!cuda::has_nvrtc()) {
    fmt::print("skipped: candidates cannot be compiled without NVRTC: {}\n", cuda::describe_nvrtc());
    return 77;
  }
  const std::vector<Item> items = options.quick ? quick_items(options) : items_of(options);
  if (items.empty())  // a name that is misspelt shall not look like nothing found
    throw Error(ErrorKind::invalid_argument,
                "there are no candidates of these suites, architectures, algorithms");
  std::map<std::string, Finding> known;
  if (std::ifstream file(options.kept); !options.kept.empty() && file)
    for (std::string line; std::getline(file, line);)
      if (const auto key = line.find('\t'), spills = line.find('\t', key + 1);
          key != line.npos && spills != line.npos)
        known[line.substr(0, key)] = {line.substr(spills + 1),
                                      std::atoll(line.substr(key + 1, spills - key - 1).c_str())};
  std::ofstream keep;
  if (!options.kept.empty()) keep.open(options.kept, std::ios::app);
  if (!options.kept.empty() && !keep) throw Error(ErrorKind::io, "cannot write " + options.kept);

  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  const auto seconds = [&] { return std::chrono::duration<double>(Clock::now() - begin).count(); };
  // The candidates that are walked shall be of all kinds where not all can be.
  std::vector<std::size_t> order(items.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return random_bits(options.seed, a) < random_bits(options.seed, b);
  });
  struct Row {
    std::size_t candidates = 0, walked = 0, spilling = 0, other = 0;
    std::int64_t most_spilled = 0;
    std::vector<double> milliseconds;  // times of what was compiled now
  };
  std::map<std::pair<std::string, std::string>, Row> rows;  // by algorithm and architecture
  std::vector<std::string> findings;
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i; (i = next++) < order.size() && seconds() < options.seconds;) {
      const Item& item = items[order[i]];
      const std::string key = item.key();
      const auto before = known.find(key);
      const double started = seconds();
      const Finding finding = before != known.end() ? before->second : check(item);
      const double took = seconds() - started;
      const std::lock_guard lock(mutex);
      if (before == known.end() && keep.is_open()) {
        std::string text = finding.text;
        std::replace(text.begin(), text.end(), '\n', ' ');
        keep << fmt::format("{}\t{}\t{}\n", key, finding.spill_bytes, text.substr(0, 300)) << std::flush;
      }
      Row& row = rows[{std::string(item.algorithm->name()), item.device.isa}];
      ++row.walked;
      if (before == known.end()) row.milliseconds.push_back(took * 1000);
      row.spilling += finding.spill_bytes > 0;
      row.other += finding.spill_bytes == 0 && !finding.text.empty();
      row.most_spilled = std::max(row.most_spilled, finding.spill_bytes);
      if (!finding.text.empty())
        findings.push_back(fmt::format("{} {} {} {}: {}", item.device.isa, item.problem.name,
                                       item.algorithm->name(), to_string(item.config), finding.text));
    }
  };
  std::vector<std::thread> workers;
  for (unsigned i = 0; i < options.processes; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();

  for (const Item& item : items) ++rows[{std::string(item.algorithm->name()), item.device.isa}].candidates;
  std::sort(findings.begin(), findings.end());
  for (const std::string& finding : findings) fmt::print("{}\n", finding);
  fmt::print("{:<20} {:<8} {:>10} {:>8} {:>9} {:>6} {:>6} {:>6}\n", "algorithm", "arch", "candidates",
             "walked", "spilling", "most B", "other", "ms");
  Row all;
  for (const auto& [name, row] : rows) {
    fmt::print("{:<20} {:<8} {:>10} {:>8} {:>9} {:>6} {:>6} {:>6.0f}\n", name.first, name.second,
               row.candidates, row.walked, row.spilling, row.most_spilled, row.other,
               median_or_zero(row.milliseconds));
    all.milliseconds.insert(all.milliseconds.end(), row.milliseconds.begin(), row.milliseconds.end());
    all.candidates += row.candidates, all.walked += row.walked, all.spilling += row.spilling;
    all.other += row.other;
  }
  fmt::print(
      "{} of {} candidates walked in {:.0f} s: {} spill, {} are not as forecast or do not compile; "
      "one takes {:.0f} ms in the median\n",
      all.walked, all.candidates, seconds(), all.spilling, all.other, median_or_zero(all.milliseconds));
  return findings.empty() ? 0 : 1;
}

Options parse(int argc, char** argv) {
  Options options;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] {
      if (++i == words.size()) throw Error(ErrorKind::invalid_argument, words[i - 1] + " needs a value");
      return words[i];
    };
    const std::string& word = words[i];
    if (word == "--quick")
      options.quick = true;
    else if (word == "--suite")
      options.suites.push_back(value());
    else if (word == "--arch")
      options.architectures.push_back(value());
    else if (word == "--algorithm")
      options.algorithms.push_back(value());
    else if (word == "--each")
      options.each = static_cast<std::size_t>(std::max(1, std::atoi(value().c_str())));
    else if (word == "--seed")
      options.seed = static_cast<std::uint64_t>(std::max(0, std::atoi(value().c_str())));
    else if (word == "--kept")
      options.kept = value();
    else if (word == "--processes")
      options.processes = static_cast<unsigned>(std::clamp(std::atoi(value().c_str()), 1, 1024));
    else if (word == "--seconds")
      options.seconds = std::atof(value().c_str());
    else
      throw Error(ErrorKind::invalid_argument, "there is no option " + word);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "candidates_walk: error: {}\n", error.what());
    return 2;
  }
}
