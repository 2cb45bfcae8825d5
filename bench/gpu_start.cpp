// Measures the time to get going on a GPU, from nothing and from what was kept: a candidate compiled cold
// and from the cache, a search, a plan from its record. `gpu_start [PROBLEM [BUDGET_SECONDS]]`; prints four
// lines.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/statistics.h"
#include "convtune/cases.h"
#include "convtune/tuner.h"
#include "plan/algorithms.h"
#include "plan/planner.h"

namespace {

using namespace convtune;

double milliseconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

// Folders of its own, so that nothing of the user's is found or changed.
class EmptyFolders {
 public:
  EmptyFolders() {
    std::string name = (std::filesystem::temp_directory_path() / "convtune-start-XXXXXX").string();
    if (!::mkdtemp(name.data())) throw Error(ErrorKind::io, "no temporary folder can be made");
    path_ = name;
    ::setenv("CONVTUNE_DATA_DIR", (path_ / "data").c_str(), 1);
    ::setenv("CONVTUNE_CACHE_DIR", (path_ / "cache").c_str(), 1);
  }
  ~EmptyFolders() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  EmptyFolders(const EmptyFolders&) = delete;
  EmptyFolders& operator=(const EmptyFolders&) = delete;

 private:
  std::filesystem::path path_;
};

struct Candidate {
  const Algorithm* algorithm;
  Config config;
};

// The first three of every algorithm of our own.
std::vector<Candidate> some_candidates(const ConvProblem& problem, const DeviceInfo& device) {
  std::vector<Candidate> some;
  for (const Algorithm* algorithm : algorithms(device.device.kind)) {
    if (algorithm->vendor() || algorithm->reference() || !algorithm->supports(problem, device)) continue;
    std::vector<Config> configs = algorithm->candidates(problem, device);
    for (std::size_t i = 0; i < configs.size() && i < 3; ++i)
      some.push_back({algorithm, std::move(configs[i])});
  }
  return some;
}

int measure(const std::string& text, double budget_seconds) {
  const Device device = best_device();
  if (device.kind != Device::Kind::cuda) {
    fmt::print(stderr, "gpu_start: there is no GPU here that can be used; `convtune doctor` says why\n");
    return 3;
  }
  const EmptyFolders folders;
  Backend& on = backend(device);
  const ConvProblem problem = resolve(find_problem(text), on);
  on.allocate(1);  // the device's context is made at its first use, and is nobody's here
  std::vector<double> cold, cached;
  const std::vector<Candidate> candidates = some_candidates(problem, on.info());
  for (std::vector<double>* times : {&cold, &cached})
    for (const Candidate& one : candidates)
      times->push_back(milliseconds([&] { one.algorithm->build(problem, on.info(), one.config); }));
  fmt::print("{} on {}\n", to_string(problem), on.info().name);
  if (!candidates.empty())
    fmt::print("a candidate compiled and loaded: {:.0f} ms; from the cache: {:.2f} ms (medians of {})\n",
               median(cold), median(cached), candidates.size());

  TuneOptions options;
  options.budget_seconds = budget_seconds;
  TuningReport report;
  const double seconds = milliseconds([&] { report = tune(problem, device, options); }) / 1000;
  fmt::print("tuned from nothing in {:.1f} s: {} trials, {} pruned, {} wrong; {}\n", seconds, report.trials,
             report.pruned, report.wrong, report.comparison.decision);
  for (const std::string& warning : report.warnings) fmt::print("warning: {}\n", warning);
  std::vector<double> planned;
  for (int i = 0; i < 9; ++i) planned.push_back(milliseconds([&] { plan(problem, device); }));
  fmt::print("planned from the record: {:.2f} ms (median of {})\n", median(planned), planned.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return measure(argc > 1 ? argv[1] : "alexnet_conv1", argc > 2 ? std::atof(argv[2]) : 60);
  } catch (const Error& error) {
    fmt::print(stderr, "gpu_start: error: {}\n", error.what());
    return 2;
  }
}
