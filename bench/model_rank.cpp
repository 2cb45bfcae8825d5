// The model's times beside measured ones: how well the estimates of `plan --target` order candidates.
//
//   model_rank [--target h100] [--each 8 [--seed N]] [--measure] [--json FILE] CASE...
//   model_rank [--target h100] --from FILE [--rows] [CASE...]
//
// It takes each algorithm's first guesses, and as many spread evenly over all the rest of its candidates;
// with a seed, all of them drawn at random. With --measure they run on the first GPU, in turns, L2 flushed;
// --from takes what was measured from such a file, so that a changed model is judged without a GPU. Needs
// NVRTC in any case.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/random_bits.h"
#include "base/statistics.h"
#include "convtune/cases.h"
#include "cuda/backend/cuda.h"
#include "cuda/compile/compiler.h"
#include "cuda/device/driver.h"
#include "measure/measure.h"
#include "measure/testbed.h"
#include "plan/algorithms.h"
#include "plan/estimate_candidates.h"
#include "tune/compare.h"

namespace {

using namespace convtune;
using Json = nlohmann::ordered_json;

struct Options {
  std::string target = "h100", from, json;
  std::size_t each = 8;
  std::uint64_t seed = 0;  // 0: none
  bool measure = false, rows = false;
  std::vector<std::string> cases;
};

struct Row {
  cuda::Candidate candidate;
  std::size_t guess = 0;  // its place in the algorithm's own order
  double measured_us = 0, mad_us = 0;
  CandidateEstimate estimate;
};

struct Case {
  std::string name;
  ConvProblem problem;
  std::vector<Row> rows;
};

ConvProblem problem_of(const std::string& name) {
  ConvProblem problem = find_problem(name);
  if (problem.precision == Precision::automatic) problem.precision = Precision::tf32;
  return problem;
}

std::vector<Row> chosen(const ConvProblem& problem, const DeviceInfo& device, std::size_t each,
                        std::uint64_t seed) {
  std::vector<Row> rows;
  for (const Algorithm* algorithm : algorithms(Device::Kind::cuda)) {
    if (algorithm->vendor() || algorithm->reference() || !algorithm->supports(problem, device)) continue;
    const std::vector<Config> configs = algorithm->candidates(problem, device);
    std::set<std::size_t> places;
    if (seed > 0) {
      for (std::uint64_t i = 0; places.size() < std::min(2 * each, configs.size()); ++i)
        places.insert(static_cast<std::size_t>(random_bits(seed, i) % configs.size()));
    } else {
      for (std::size_t i = 0; i < std::min(each, configs.size()); ++i) places.insert(i);
      for (std::size_t i = 1; i <= each && configs.size() > each; ++i)
        places.insert(each - 1 + (configs.size() - each) * i / each);
    }
    for (const std::size_t place : places) rows.push_back({{algorithm, configs[place]}, place, 0, 0, {}});
  }
  return rows;
}

void measure(Case& one) {
  const DeviceInfo device = cuda::devices().at(0);
  Testbed bed(one.problem, backend(device.device), TestData::real, 1, 64);
  std::vector<Contender> contenders;
  std::vector<std::function<double()>> samplers;
  std::vector<Row*> rows;
  for (Row& row : one.rows) {
    contenders.push_back(contender(*row.candidate.algorithm, row.candidate.config, one.problem, device, bed));
    if (!contenders.back().failure.empty()) {
      fmt::print(stderr, "{}: {}: {}\n", one.name, contenders.back().text(), contenders.back().failure);
      continue;
    }
    samplers.push_back(bed.sampler(*contenders.back().executable));
    rows.push_back(&row);
  }
  measure_in_turns(samplers, 0, {}, 1);  // the clock rises
  const std::vector<Measurement> measured = measure_in_turns(samplers, 0, {}, 9);
  for (std::size_t i = 0; i < rows.size(); ++i)
    rows[i]->measured_us = measured[i].median_us, rows[i]->mad_us = measured[i].mad_us;
}

Json json_of(const Case& one) {
  Json json = {{"case", one.name}, {"problem", to_string(one.problem)}, {"candidates", Json::array()}};
  for (const Row& row : one.rows) {
    const CandidateEstimate& e = row.estimate;
    json["candidates"].push_back({{"algorithm", e.algorithm},
                                  {"config", to_string(e.config)},
                                  {"guess", row.guess},
                                  {"measured_us", row.measured_us},
                                  {"mad_us", row.mad_us},
                                  {"estimate_us", e.estimate_us},
                                  {"bound", e.bound},
                                  {"registers", e.registers},
                                  {"spill_bytes", e.spill_bytes},
                                  {"smem_bytes", e.smem_bytes},
                                  {"threads", e.threads},
                                  {"blocks", e.blocks},
                                  {"blocks_a_multiprocessor", e.occupancy.blocks}});
  }
  return json;
}

std::vector<Case> cases_of(const Options& options, const DeviceInfo& device) {
  std::vector<Case> cases;
  if (options.from.empty()) {
    for (const std::string& name : options.cases) {
      const ConvProblem problem = problem_of(name);
      cases.push_back({name, problem, chosen(problem, device, options.each, options.seed)});
    }
    return cases;
  }
  std::ifstream file(options.from);
  if (!file) throw Error(ErrorKind::io, options.from + " cannot be read");
  const Json measured = Json::parse(file);
  for (const Json& json : measured.at("cases")) {
    Case one{json.at("case"), problem_of(json.at("case")), {}};
    if (!options.cases.empty() && std::ranges::count(options.cases, one.name) == 0) continue;
    for (const Json& row : json.at("candidates")) {
      const Algorithm& algorithm = find_algorithm(Device::Kind::cuda, row.at("algorithm").get<std::string>());
      const Config config = parse_config(row.at("config").get<std::string>());
      if (algorithm.accepts(one.problem, device, config))
        one.rows.push_back(
            {{&algorithm, config}, row.at("guess"), row.at("measured_us"), row.at("mad_us"), {}});
    }
    cases.push_back(std::move(one));
  }
  return cases;
}

void print(const Case& one, bool rows) {
  std::vector<const Row*> both;  // with a measured time and an estimate
  for (const Row& row : one.rows)
    if (row.measured_us > 0 && row.estimate.failure.empty()) both.push_back(&row);
  std::stable_sort(both.begin(), both.end(), [](const Row* a, const Row* b) {
    return a->estimate.estimate_us < b->estimate.estimate_us;
  });
  if (rows)
    for (const Row* row : both)
      fmt::print(
          "  {:8.1f} estimated {:8.1f} measured  {:<13} {:3} registers {:2} blocks  {} (guess {}) {}\n",
          row->estimate.estimate_us, row->measured_us, row->estimate.bound, row->estimate.registers,
          row->estimate.occupancy.blocks, row->estimate.algorithm, row->guess + 1,
          to_string(row->estimate.config));
  const auto correlation = [&](std::string_view algorithm, bool guesses) {
    std::vector<double> estimated, measured;
    for (const Row* row : both)
      if (algorithm.empty() || row->estimate.algorithm == algorithm) {
        estimated.push_back(guesses ? static_cast<double>(row->guess) : row->estimate.estimate_us);
        measured.push_back(row->measured_us);
      }
    return rank_correlation(estimated, measured);
  };
  const auto best_of = [&](std::size_t first) {
    double best = 1e30;
    for (std::size_t i = 0; i < std::min(first, both.size()); ++i)
      best = std::min(best, both[i]->measured_us);
    return best;
  };
  if (both.empty()) return;
  const double best = best_of(both.size());
  std::vector<double> ratios;
  for (const Row* row : both) ratios.push_back(row->estimate.estimate_us / row->measured_us);
  fmt::print(
      "{}: {} candidates, rank correlation {:.2f}; best {:.1f} us, of the model's first {:.1f}, of its "
      "first 10 {:.1f} (+{:.1f} %); estimated / measured {:.2f} in the median, {:.2f} to {:.2f}\n",
      one.name, both.size(), correlation("", false), best, best_of(1), best_of(10),
      100 * (best_of(10) / best - 1), median(ratios), *std::min_element(ratios.begin(), ratios.end()),
      *std::max_element(ratios.begin(), ratios.end()));
  std::map<std::string, int> counts;
  for (const Row* row : both) ++counts[row->estimate.algorithm];
  for (const auto& [algorithm, count] : counts)
    fmt::print("    {:<20} {:3} candidates: the model {:5.2f}, the algorithm's own order {:5.2f}\n",
               algorithm, count, correlation(algorithm, false), correlation(algorithm, true));
}

int run(const Options& options) {
  const Target target = find_target(options.target);
  const DeviceInfo device = device_of(target);
  Json json = {{"schema", 1},
               {"target", target.name},
               {"versions", {{"convtune", CONVTUNE_VERSION}, {"NVRTC", cuda::nvrtc_version()}}},
               {"cases", Json::array()}};
  if (options.measure) {
    json["device"] = cuda::devices().at(0).fingerprint;
    json["versions"]["driver"] = cuda::describe_driver();
  }
  for (Case& one : cases_of(options, device)) {
    std::vector<cuda::Candidate> candidates;
    for (const Row& row : one.rows) candidates.push_back(row.candidate);
    const auto estimates = estimate_candidates(one.problem, target, candidates,
                                               static_cast<int>(std::thread::hardware_concurrency()), 60);
    for (std::size_t i = 0; i < estimates.size(); ++i) one.rows[i].estimate = estimates[i];
    if (options.measure) measure(one);
    json["cases"].push_back(json_of(one));
    if (!options.json.empty() && !(std::ofstream(options.json) << json.dump(1) << std::endl))
      throw Error(ErrorKind::io, options.json + " cannot be written");
    print(one, options.rows);
  }
  return 0;
}

Options parse(int argc, char** argv) {
  Options options;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] {
      if (++i == words.size()) throw Error(ErrorKind::invalid_argument, words[i - 1] + " needs a value");
      return words[i];
    };
    if (words[i] == "--target")
      options.target = value();
    else if (words[i] == "--from")
      options.from = value();
    else if (words[i] == "--json")
      options.json = value();
    else if (words[i] == "--each")
      options.each = static_cast<std::size_t>(std::max(1, std::atoi(value().c_str())));
    else if (words[i] == "--seed")
      options.seed = static_cast<std::uint64_t>(std::max(0, std::atoi(value().c_str())));
    else if (words[i] == "--measure")
      options.measure = true;
    else if (words[i] == "--rows")
      options.rows = true;
    else if (words[i].starts_with("-"))
      throw Error(ErrorKind::invalid_argument, "there is no option " + words[i]);
    else
      options.cases.push_back(words[i]);
  }
  if (options.measure && cuda::devices().empty())
    throw Error(ErrorKind::no_device, "--measure needs a GPU; `convtune doctor` says why there is none");
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "model_rank: error: {}\n", error.what());
    return 2;
  }
}
