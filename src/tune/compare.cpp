// See compare.h.
#include "tune/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <numeric>

#include "measure/measure.h"
#include "plan/algorithms.h"
#include "plan/planner.h"
#include "plan/resources.h"

namespace convtune {
namespace {

constexpr std::size_t kMostPeersInTurns = 8;
constexpr int kFewestRounds = 5, kMostRounds = 5000;
constexpr std::int64_t kComparedOutputs = 2048;  // output elements that the oracle computes for a check

constexpr double kBusy = 0.25;  // per provider's samples interrupted

// convtune's row, and the best peer's, where another way is the best.
std::vector<const ProviderResult*> sides(const Comparison& comparison) {
  std::vector<const ProviderResult*> rows;
  for (const ProviderResult& one : comparison.providers)
    if (one.failure.empty() && one.n > 0 &&
        (&one == &comparison.providers.front() || (one.name == comparison.best_peer && rows.size() < 2)))
      rows.push_back(&one);
  return rows;
}

bool same(const Contender& a, const Contender& b) {
  return a.algorithm == b.algorithm && a.config == b.config;
}

}  // namespace

std::string Contender::text() const {
  return config.values.empty() ? std::string(algorithm->name())
                               : fmt::format("{} {}", algorithm->name(), to_string(config));
}

bool machine_is_busy(const Comparison& comparison) {
  return std::ranges::any_of(sides(comparison), [](const ProviderResult* one) {
    return one->interrupted > 0 &&
           static_cast<double>(one->interrupted) >= kBusy * static_cast<double>(one->n);
  });
}

std::string interruptions(const Comparison& comparison) {
  if (comparison.load.processors == 0) return {};
  std::string counts;
  std::int64_t all = 0;
  for (const ProviderResult* one : sides(comparison)) {
    counts += fmt::format("{}{} of {}{} of {}", counts.empty() ? "" : " and ", one->interrupted, one->n,
                          counts.empty() ? " samples" : "", one->name);
    all += one->interrupted;
  }
  return fmt::format("load {:.1f} on {} processor{}; {} interrupted", comparison.load.average,
                     comparison.load.processors, comparison.load.processors == 1 ? "" : "s",
                     all == 0 ? "no sample was" : counts + " were");
}

std::string check_text(const Comparison& comparison) {
  constexpr double kLong = 5;
  const Check& check = comparison.check;
  if (check.elements == 0) return {};
  std::string text =
      check.samples < check.elements
          ? fmt::format("check: {} of {} elements of each result against the oracle", check.samples,
                        check.elements)
          : fmt::format("check: all {} elements of each result against the oracle", check.elements);
  if (check.oracle_seconds + check.ways_seconds >= kLong)
    text += fmt::format("; tensors and oracle took {:.0f} s, building and checking every way {:.0f} s",
                        check.oracle_seconds, check.ways_seconds);
  return text;
}

Contender contender(const Algorithm& algorithm, const Config& config, const ConvProblem& problem,
                    const DeviceInfo& device, Testbed& bed) {
  Contender result{&algorithm, config, nullptr, 0, {}, 0};
  try {
    result.executable = algorithm.build(problem, device, config);
    const CheckResult check = bed.check(*result.executable);
    result.max_error = check.max_error;
    result.failure = check.failure;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::device_lost) throw;
    backend(device.device)
        .synchronize(nullptr);  // a vendor's library may have hidden that the device is lost
    result.failure = error.what();
  }
  return result;
}

std::vector<Contender> vendor_contenders(const ConvProblem& problem, const DeviceInfo& device, Testbed& bed,
                                         const std::function<bool()>& cancelled) {
  std::vector<Contender> vendors;
  for (const Algorithm* algorithm : algorithms(device.device.kind))
    if (algorithm->vendor() && algorithm->supports(problem, device))
      for (const Config& config : algorithm->candidates(problem, device)) {
        if (cancelled()) return vendors;
        vendors.push_back(contender(*algorithm, config, problem, device, bed));
      }
  return vendors;
}

Comparison measure_comparison(const ConvProblem& problem, const DeviceInfo& device, const Contender& ours,
                              const std::vector<Contender>& vendors, Testbed& bed, double seconds,
                              const std::function<bool()>& cancelled, const std::function<bool()>& late) {
  Comparison row;
  row.problem = problem;
  row.device = device;
  row.roofline = roofline(problem, measure_ceilings(device.device));
  row.incumbent = vendor_library(device.device.kind);
  row.check = {bed.samples(), bed.elements()};

  std::vector<const Contender*> order{&ours};
  for (const Contender& vendor : vendors) order.push_back(&vendor);
  // Each distinct, healthy contender is timed once a round.
  std::vector<const Contender*> timed;
  for (const Contender* one : order)
    if (one->failure.empty() &&
        std::none_of(timed.begin(), timed.end(), [&](const Contender* t) { return same(*t, *one); }))
      timed.push_back(one);
  std::vector<std::function<double()>> runs;
  for (const Contender* one : timed) runs.push_back(bed.sampler(*one->executable));
  // A library that offers dozens of ways is asked once for each; the time goes to the nearest.
  std::vector<Measurement> results(timed.size());
  std::vector<std::size_t> near(timed.size());
  std::iota(near.begin(), near.end(), std::size_t{0});
  if (timed.size() > 1 + kMostPeersInTurns) {
    for (std::size_t i = 1; i < timed.size() && !(cancelled && cancelled()); ++i)
      results[i] = {runs[i](), 0, 1, 0};
    std::sort(near.begin() + 1, near.end(),
              [&](std::size_t a, std::size_t b) { return results[a].median_us < results[b].median_us; });
    near.resize(1 + kMostPeersInTurns);
  }
  std::vector<std::function<double()>> samplers;
  for (const std::size_t i : near) samplers.push_back(runs[i]);
  const std::vector<Measurement> of_near =
      measure_in_turns(samplers, seconds, cancelled, kFewestRounds, kMostRounds, late, bed.witness());
  row.load = backend(device.device).load();
  for (std::size_t i = 0; i < near.size(); ++i) results[near[i]] = of_near[i];

  for (const Contender* one : order) {
    ProviderResult provider;
    provider.name = one == &ours ? "convtune" : one->text();
    provider.algorithm = one->algorithm->name();
    provider.config = one->config;
    provider.max_error = one->max_error;
    provider.failure = one->failure;
    for (std::size_t i = 0; i < timed.size() && one->failure.empty(); ++i)
      if (same(*timed[i], *one)) {
        provider.time_us = results[i].median_us;
        provider.mad_us = results[i].mad_us;
        provider.n = results[i].n, provider.interrupted = results[i].interrupted;
        if (provider.time_us > 0) provider.roofline_fraction = row.roofline.floor_us / provider.time_us;
      }
    row.providers.push_back(std::move(provider));
  }
  const ProviderResult* best = nullptr;
  for (std::size_t i = 1; i < row.providers.size(); ++i) {
    const ProviderResult& peer = row.providers[i];
    const bool in_turns = peer.n > 1 || timed.size() == near.size();
    if (in_turns && peer.failure.empty() && peer.time_us > 0 && (!best || peer.time_us < best->time_us))
      best = &peer;
  }
  if (best) {
    row.best_peer = best->name;
    if (row.providers.front().time_us > 0) row.speedup = best->time_us / row.providers.front().time_us;
  }
  return row;
}

Comparison compare(const ConvProblem& problem, Device device, const CompareOptions& options) {
  Backend& on = backend(device);
  const DeviceInfo info = on.info();
  const ConvProblem resolved = resolve(problem, on);
  if (resolved.n == 0)
    throw Error(ErrorKind::invalid_argument, "a batch of 0 has nothing to measure: " + to_string(resolved));
  if (!(options.seconds_per_case > 0 && options.seconds_per_case <= 86400))  // so written, it refuses NaN too
    throw Error(
        ErrorKind::invalid_argument,
        fmt::format("seconds_per_case must be above 0 and at most a day, not {}", options.seconds_per_case));
  const Plan plan = choose(resolved, info);
  const auto start = std::chrono::steady_clock::now();
  Testbed bed(resolved, on, TestData::real, 1, affordable_samples(resolved, kComparedOutputs));
  const auto ready = std::chrono::steady_clock::now();
  const Contender ours =
      contender(find_algorithm(device.kind, plan.algorithm), plan.config, resolved, info, bed);
  const auto cancelled = [&] {
    if (options.progress) options.progress({"measure", 0, 0, 0, "", 0});
    return options.cancel && options.cancel->load();
  };
  const std::vector<Contender> vendors = vendor_contenders(resolved, info, bed, cancelled);
  // A CPU's samples that were disturbed are taken again, and their time is not counted.
  const auto begin = std::chrono::steady_clock::now();
  const auto late = [&] {
    const std::chrono::duration<double> gone = std::chrono::steady_clock::now() - begin;
    return device.kind == Device::Kind::cpu && gone.count() > 2 * options.seconds_per_case;
  };
  Comparison row =
      measure_comparison(resolved, info, ours, vendors, bed, options.seconds_per_case, cancelled, late);
  row.plan = plan;
  row.check.oracle_seconds = std::chrono::duration<double>(ready - start).count();
  row.check.ways_seconds = std::chrono::duration<double>(begin - ready).count();
  row.resources = resources_of(*ours.algorithm, ours.config, resolved, info);
  row.decision = fmt::format("{} ({}): {}", ours.text(), to_string(plan.source), plan.why);
  return row;
}

}  // namespace convtune
