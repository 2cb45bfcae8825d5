// How good the planner's choice on a CPU is, without a record or with one: beside the best of what a search
// could find, the vendor's ways among it, in turns; and how well the estimates order each algorithm's
// candidates.
//
//   cpu_rank [--batch N] [--each 24] [--seconds 8] [--measured FILE] [--algorithm NAME] CASE|SUITE...
//   cpu_rank --best FILE [--batch N] [--seconds 8] CASE|SUITE...
//   cpu_rank --from FILE [--rows | --fit] [CASE|SUITE...]
//
// Screens the first candidates of every algorithm, and as many spread evenly over the rest, for --seconds a
// case; the best eight, the planner's choice and the vendor's ways are then measured in turns. With
// --best it screens nothing: it takes the eight from FILE, where the case was measured at another batch.
// With --algorithm it is about one algorithm, and the choice is its first candidate.
// FILE has every candidate's time, a line of JSON each: --from judges changed estimates by them, without
// measuring. A candidate that was never measured cannot be chosen there. With --fit the table of costs
// (src/cpu/model/cpu_costs.h) is fitted to those times and printed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/statistics.h"
#include "convtune/cases.h"
#include "cpu_fit.h"
#include "measure/measure.h"
#include "measure/testbed.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "tune/compare.h"

namespace {

using namespace convtune;
using Json = nlohmann::ordered_json;

constexpr std::size_t kBest = 8;  // among ours, in turns
constexpr Device kCpu{Device::Kind::cpu, 0};

struct Options {
  std::int64_t batch = 0;  // 0: the case's own
  std::size_t each = 24;
  double seconds = 8;
  std::string measured, best, from, algorithm;
  bool rows = false, fit = false;
  std::vector<std::string> cases;
};

struct Row {
  const Algorithm* algorithm;
  Config config;
  double estimated_us = 0, measured_us = 0;  // 0: a vendor's, not measured
};

struct Ratio {
  std::string name;
  double choice_us, best_us;
};

std::string text(const Row& row) {
  return fmt::format("{} {}", row.algorithm->name(), to_string(row.config));
}

Row row_of(const ConvProblem& problem, const Algorithm& algorithm, const Config& config) {
  return {&algorithm, config, algorithm.estimated_us(problem, backend(kCpu).info(), config).value_or(0), 0};
}

std::vector<ConvProblem> problems_of(const Options& options) {
  const std::vector<std::string> suites = suite_names();
  std::vector<ConvProblem> problems;
  for (const std::string& one : options.cases) {
    std::vector<ConvProblem> some;
    if (one == "all" || std::ranges::count(suites, one) > 0)
      some = load_suite(one);
    else
      some = {find_problem(one)};
    for (ConvProblem& problem : some) {
      if (options.batch > 0) problem.n = options.batch;
      problems.push_back(resolve(problem, backend(kCpu)));
    }
  }
  return problems;
}

// The first `each` of an algorithm's candidates, and as many of the rest.
std::vector<Row> some_of(const ConvProblem& problem, const Algorithm& algorithm, std::size_t each) {
  std::vector<Row> rows;
  const std::vector<Config> configs = algorithm.candidates(problem, backend(kCpu).info());
  std::set<std::size_t> places;
  for (std::size_t i = 0; i < std::min(each, configs.size()); ++i) places.insert(i);
  for (std::size_t i = 1; i <= each && configs.size() > each; ++i)
    places.insert(each - 1 + (configs.size() - each) * i / each);
  for (const std::size_t place : places) rows.push_back(row_of(problem, algorithm, configs[place]));
  return rows;
}

// Short runs of every row, each algorithm's next in turn; what is hopeless has one only.
void screen(std::vector<std::vector<Row>>& of_each, const ConvProblem& problem, Testbed& bed,
            double seconds) {
  const auto begun = std::chrono::steady_clock::now();
  double best = 1e300;
  for (std::size_t i = 0;; ++i) {
    bool any = false;
    for (std::vector<Row>& rows : of_each) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - begun;
      if (i >= rows.size() || (i > 0 && spent.count() > seconds)) continue;
      any = true;
      const Contender one = contender(*rows[i].algorithm, rows[i].config, problem, backend(kCpu).info(), bed);
      if (!one.failure.empty()) {
        fmt::print(stderr, "{}: {}\n", one.text(), one.failure);
        continue;
      }
      auto sampler = bed.sampler(*one.executable);
      std::vector<double> samples{sampler()};
      while (samples.size() < 3 && samples.back() < 2 * best) samples.push_back(sampler());
      rows[i].measured_us = median(samples);
      best = std::min(best, rows[i].measured_us);
    }
    if (!any) return;
  }
}

// The planner's choice, where it was not among what was screened or no time was left for it.
void add_choice(std::vector<std::vector<Row>>& of_each, const Row& choice) {
  for (std::vector<Row>& rows : of_each)
    std::erase_if(rows, [&](const Row& row) { return row.measured_us == 0 && text(row) == text(choice); });
  for (const std::vector<Row>& rows : of_each)
    if (std::ranges::count(rows, text(choice), [](const Row& row) { return text(row); }) > 0) return;
  of_each.push_back({choice});
  of_each.back().front().measured_us = 1;  // in any case measured again
}

// Times of the best in turns replace those of screening.
void measure_best(std::vector<Row*> rows, const Row& choice, const ConvProblem& problem, Testbed& bed,
                  double seconds) {
  std::erase_if(rows, [](const Row* row) { return row->measured_us == 0; });
  std::ranges::sort(rows, {}, &Row::measured_us);
  std::vector<Row*> some;
  std::size_t ours = 0;
  for (Row* row : rows)
    if (row->algorithm->vendor() || ++ours <= kBest + 1 || text(*row) == text(choice)) some.push_back(row);
  std::vector<Contender> contenders;
  std::vector<std::function<double()>> samplers;
  for (const Row* row : some) {
    contenders.push_back(contender(*row->algorithm, row->config, problem, backend(kCpu).info(), bed));
    samplers.push_back(bed.sampler(*contenders.back().executable));
  }
  const std::vector<Measurement> measured = measure_in_turns(samplers, seconds / 2, {}, 5, 40);
  for (std::size_t i = 0; i < some.size(); ++i) some[i]->measured_us = measured[i].median_us;
}

// The fastest of a case, and all of the vendor's ways, at whatever batch it was measured.
std::vector<Row> best_of(const std::string& path, const ConvProblem& problem) {
  std::vector<Row> rows;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    if (!json.at("name").get<std::string>().starts_with(problem.name + " ")) continue;
    const Algorithm& algorithm = find_algorithm(Device::Kind::cpu, json.at("algorithm").get<std::string>());
    rows.push_back(row_of(problem, algorithm, parse_config(json.at("config").get<std::string>())));
    rows.back().measured_us = json.at("measured_us");
  }
  std::ranges::sort(rows, {}, &Row::measured_us);
  std::size_t ours = 0;
  std::erase_if(rows, [&](const Row& row) { return !row.algorithm->vendor() && ++ours > kBest; });
  return rows;
}

// The rows in the order of their estimates, and how well that is the order of their times.
void judge(const std::string& name, std::vector<Row*> rows, const Row& choice, bool show,
           std::vector<Ratio>& ratios) {
  std::erase_if(rows, [](const Row* row) { return row->measured_us == 0; });
  std::ranges::stable_sort(rows, {}, &Row::estimated_us);
  const Row* const best = *std::ranges::min_element(rows, {}, &Row::measured_us);
  const auto chosen = std::ranges::find(rows, text(choice), [](const Row* row) { return text(*row); });
  if (chosen == rows.end()) throw Error(ErrorKind::io, name + ": the planner's choice was not measured");
  ratios.push_back({name, (*chosen)->measured_us, best->measured_us});
  fmt::print("{:<28} choice {:9.1f}  best {:9.1f}  {:5.3f}  {} | {}\n", name, (*chosen)->measured_us,
             best->measured_us, (*chosen)->measured_us / best->measured_us, text(**chosen), text(*best));
  std::map<std::string_view, std::vector<const Row*>> of_each;
  for (const Row* row : rows) of_each[row->algorithm->name()].push_back(row);
  for (const auto& [algorithm, some] : of_each) {
    std::vector<double> estimated, measured, scale;
    for (const Row* row : some) {
      estimated.push_back(row->estimated_us), measured.push_back(row->measured_us);
      scale.push_back(row->estimated_us / row->measured_us);
    }
    const double least = *std::ranges::min_element(measured);
    fmt::print(
        "    {:<16} {:3} candidates: best {:5.3f}, first {:5.3f}, correlation {:5.2f}, estimated / "
        "measured {:4.2f}\n",
        algorithm, some.size(), least / best->measured_us, measured.front() / best->measured_us,
        rank_correlation(estimated, measured), median(scale));
    if (show)
      for (const Row* row : some)
        fmt::print("      {:9.1f} estimated {:9.1f} measured  {}\n", row->estimated_us, row->measured_us,
                   text(*row));
  }
  std::fflush(stdout);
}

void summarize(const std::vector<Ratio>& ratios) {
  double sum = 0, worst = 0;
  for (const Ratio& one : ratios) {
    sum += std::log(one.choice_us / one.best_us);
    worst = std::max(worst, one.choice_us / one.best_us);
  }
  fmt::print("{} cases: the choice takes {:.3f} times the best in the geometric mean, {:.3f} at most\n",
             ratios.size(), std::exp(sum / static_cast<double>(ratios.size())), worst);
}

// Returns the planner's choice, or the one algorithm's first candidate.
Row choice_of(const ConvProblem& problem, const Options& options) {
  if (options.algorithm.empty()) {
    const Plan plan = choose(problem, backend(kCpu).info());
    return row_of(problem, find_algorithm(Device::Kind::cpu, plan.algorithm), plan.config);
  }
  const Algorithm& algorithm = find_algorithm(Device::Kind::cpu, options.algorithm);
  const std::vector<Config> configs = algorithm.candidates(problem, backend(kCpu).info());
  if (configs.empty())
    throw Error(ErrorKind::unsupported, options.algorithm + " has no candidate of " + to_string(problem));
  return row_of(problem, algorithm, configs.front());
}

void measure(const Options& options) {
  std::vector<Ratio> ratios;
  for (const ConvProblem& problem : problems_of(options)) {
    const std::string name = fmt::format("{} n{}", problem.name, problem.n);
    const Row choice = choice_of(problem, options);
    Testbed bed(problem, backend(kCpu), TestData::real, 1, 64);
    std::vector<std::vector<Row>> of_each;
    if (options.best.empty()) {
      for (const Algorithm* algorithm : algorithms(Device::Kind::cpu))
        if (!algorithm->reference() && algorithm->supports(problem, backend(kCpu).info()) &&
            (options.algorithm.empty() || options.algorithm == algorithm->name()))
          of_each.push_back(some_of(problem, *algorithm, options.each));
      screen(of_each, problem, bed, options.seconds);
    } else {
      of_each = {best_of(options.best, problem)};
    }
    add_choice(of_each, choice);
    std::vector<Row*> rows;
    for (std::vector<Row>& some : of_each)
      for (Row& row : some) rows.push_back(&row);
    measure_best(rows, choice, problem, bed, options.seconds);
    judge(name, rows, choice, options.rows, ratios);
    if (options.measured.empty()) continue;
    std::ofstream file(options.measured, std::ios::app);
    for (const Row* row : rows)
      if (row->measured_us > 0)
        file << Json{{"problem", to_string(problem)},
                     {"name", name},
                     {"algorithm", row->algorithm->name()},
                     {"config", to_string(row->config)},
                     {"measured_us", row->measured_us}}
                    .dump()
             << "\n";
    if (!file) throw Error(ErrorKind::io, options.measured + " cannot be written");
  }
  summarize(ratios);
}

// The candidates of a file that are still taken.
std::vector<TimedCandidate> timed_candidates(const Options& options) {
  if (options.from.empty()) throw Error(ErrorKind::invalid_argument, "--fit needs --from FILE");
  std::ifstream file(options.from);
  if (!file) throw Error(ErrorKind::io, options.from + " cannot be read");
  std::vector<TimedCandidate> timed;
  for (std::string line; std::getline(file, line);) {
    const Json json = Json::parse(line);
    const std::string name = json.at("name");
    const auto wanted = [&](const std::string& one) { return name.starts_with(one + " "); };
    if (!options.cases.empty() && std::ranges::none_of(options.cases, wanted)) continue;
    const ConvProblem problem = resolve(parse_problem(json.at("problem").get<std::string>()), backend(kCpu));
    const Algorithm& algorithm = find_algorithm(Device::Kind::cpu, json.at("algorithm").get<std::string>());
    const Config config = parse_config(json.at("config").get<std::string>());
    if (!algorithm.accepts(problem, backend(kCpu).info(), config)) continue;
    timed.push_back({name, problem, &algorithm, config, json.at("measured_us")});
  }
  return timed;
}

// As the planner does it, among what was measured: the least of the estimates.
void judge_file(const Options& options) {
  std::vector<std::string> names;
  std::map<std::string, std::vector<Row>> of_case;
  for (const TimedCandidate& one : timed_candidates(options)) {
    if (!of_case.contains(one.name)) names.push_back(one.name);
    Row row = row_of(one.problem, *one.algorithm, one.config);
    row.measured_us = one.measured_us;
    of_case[one.name].push_back(std::move(row));
  }
  std::vector<Ratio> ratios;
  for (const std::string& name : names) {
    std::vector<Row*> rows;
    for (Row& row : of_case[name]) rows.push_back(&row);
    const Row* choice = nullptr;
    for (const Row* row : rows)
      if (row->estimated_us > 0 && (!choice || row->estimated_us < choice->estimated_us)) choice = row;
    judge(name, rows, *choice, options.rows, ratios);
  }
  summarize(ratios);
}

Options parse(int argc, char** argv) {
  Options options;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (std::size_t i = 0; i < words.size(); ++i) {
    const auto value = [&] {
      if (++i == words.size()) throw Error(ErrorKind::invalid_argument, words[i - 1] + " needs a value");
      return words[i];
    };
    if (words[i] == "--batch")
      options.batch = std::max(1, std::atoi(value().c_str()));
    else if (words[i] == "--each")
      options.each = static_cast<std::size_t>(std::max(1, std::atoi(value().c_str())));
    else if (words[i] == "--seconds")
      options.seconds = std::max(0.1, std::atof(value().c_str()));
    else if (words[i] == "--measured")
      options.measured = value();
    else if (words[i] == "--best")
      options.best = value();
    else if (words[i] == "--from")
      options.from = value();
    else if (words[i] == "--algorithm")
      options.algorithm = value();
    else if (words[i] == "--fit")
      options.fit = true;
    else if (words[i] == "--rows")
      options.rows = true;
    else if (words[i].starts_with("-"))
      throw Error(ErrorKind::invalid_argument, "there is no option " + words[i]);
    else
      options.cases.push_back(words[i]);
  }
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (options.fit) {
      std::vector<TimedCandidate> timed = timed_candidates(options);
      std::erase_if(timed, [](const TimedCandidate& one) { return one.algorithm->vendor(); });
      if (timed.empty())
        throw Error(ErrorKind::invalid_argument, options.from + " has no candidate of ours to fit to");
      fit_cpu_costs(timed, backend(kCpu).info());
    } else {
      options.from.empty() ? measure(options) : judge_file(options);
    }
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "cpu_rank: error: {}\n", error.what());
    return 2;
  }
}
