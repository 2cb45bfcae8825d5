// See small_batch.h; how good its choice is: docs/decisions/0061-a-search-on-a-few-images.md.
#include "tune/small_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "convtune/database.h"
#include "measure/measure.h"
#include "tune/search.h"

namespace convtune {
namespace {

constexpr std::int64_t kImagesAThread = 4, kTimesFewer = 8;
constexpr std::int64_t kSmallBatchOutputs = 512;  // output elements that the oracle computes for a check
constexpr std::size_t kInTurns = 4;               // times the few: what is measured in turns at first
constexpr int kRounds = 3;                        // of those; twice as many of the next half

ConvProblem of_images(ConvProblem problem, std::int64_t images) {
  problem.n = images;
  return problem;
}

TrialLog open_trials(const ConvProblem& problem, const DeviceInfo& device, bool keep, bool anew) {
  TrialLog trials(Database().folder(), problem, device.fingerprint);
  if (anew) trials.begin_anew(keep);
  return trials;
}

}  // namespace

std::int64_t SmallBatch::images_for(const ConvProblem& problem, const DeviceInfo& device) {
  if (device.device.kind != Device::Kind::cpu) return 0;
  const std::int64_t images = kImagesAThread * device.units;
  return problem.n >= kTimesFewer * images ? images : 0;
}

SmallBatch::SmallBatch(const ConvProblem& problem, std::int64_t images, Backend& backend,
                       const Ceilings& ceilings, bool keep, bool anew)
    : problem_(of_images(problem, images)),
      device_(backend.info()),
      ceilings_(ceilings),
      trials_(open_trials(problem_, device_, keep, anew)),
      bed_(problem_, backend, TestData::real, 1, affordable_samples(problem_, kSmallBatchOutputs),
           timed_from(problem, device_)),
      screening_(problem_, device_, bed_, trials_, keep) {}

std::vector<std::size_t> SmallBatch::fastest(const Batches& batches, std::size_t few,
                                             const std::function<bool()>& late,
                                             const std::function<bool()>& cancelled) {
  std::vector<Timed> timed;
  try_all(
      batches, [&] { return cancelled() || late(); }, timed);
  const auto keep_first = [&](std::size_t count) {
    std::ranges::stable_sort(timed, {}, &Timed::time_us);
    timed.resize(std::min(timed.size(), count));
  };
  keep_first(kInTurns * few);
  for (int rounds = kRounds; timed.size() > few && !cancelled(); rounds *= 2) {
    measure(batches, rounds, cancelled, timed);
    keep_first(std::max(few, timed.size() / 2));
  }
  std::vector<std::size_t> places;
  for (const Timed& one : timed) places.push_back(one.place);
  return places;
}

void SmallBatch::try_all(const Batches& batches, const std::function<bool()>& stop,
                         std::vector<Timed>& timed) {
  Search search(batches.candidates());
  for (auto place = search.next(); place && !stop(); place = search.next()) {
    const auto [algorithm, config] = batches.way(*place);
    const double us = time_us(*algorithm, config, search.best_us());
    search.report(*place, us > 0 ? std::optional(us) : std::nullopt);
    if (us > 0) timed.push_back({*place, us});
  }
}

// 0: it failed, or is not worth a try.
double SmallBatch::time_us(const Algorithm& algorithm, const Config& config, double best_us) {
  if (!algorithm.accepts(problem_, device_, config) ||
      hopeless(algorithm, config, problem_, device_, ceilings_, best_us))
    return 0;
  ++tried_;
  if (const Trial* known = trials_.find(std::string(algorithm.name()), config, algorithm.source_hash()))
    return known->failure.empty() ? known->time_us : 0;
  const Contender one = screening_.attempt(algorithm, config, best_us);
  screening_.write_down(one, one.failure);
  if (one.failure.empty()) return one.screen_us;
  failures.push_back(fmt::format("{} was wrong on a batch of {} and is quarantined: {}", one.text(),
                                 problem_.n, one.failure));
  return 0;
}

// Whatever was checked is not checked again.
void SmallBatch::measure(const Batches& batches, int rounds, const std::function<bool()>& cancelled,
                         std::vector<Timed>& timed) {
  std::vector<std::unique_ptr<Executable>> executables;
  std::vector<std::function<double()>> samplers;
  for (const Timed& one : timed) {
    const auto [algorithm, config] = batches.way(one.place);
    executables.push_back(algorithm->build(problem_, device_, config));
    samplers.push_back(bed_.sampler(*executables.back()));
  }
  const std::vector<Measurement> measured = measure_in_turns(samplers, 0, cancelled, rounds, rounds);
  for (std::size_t i = 0; i < timed.size(); ++i)
    if (measured[i].n > 0) timed[i].time_us = measured[i].median_us;
}

}  // namespace convtune
