// See election.h.
#include "tune/election.h"

#include <algorithm>

#include "measure/measure.h"

namespace convtune {
namespace {

constexpr double kNear = 1.3;  // the fastest vendor's time: who may turn out the fastest, measured once
constexpr double kFinalSeconds = 4;
constexpr int kFewestVotes = 3, kMostVotes = 400;

// The fastest vendor and who is near it, since the promise is against the best of them.
std::vector<Contender*> fastest_vendors(std::vector<Contender>& vendors) {
  std::vector<Contender*> near;
  for (Contender& vendor : vendors)
    if (vendor.failure.empty() && (near.empty() || faster(&vendor, near.front()))) near.assign({&vendor});
  for (Contender& vendor : vendors)
    if (vendor.failure.empty() && &vendor != near.front() &&
        vendor.screen_us <= kNear * near.front()->screen_us)
      near.push_back(&vendor);
  return near;
}

// As many as there is time for beside `vendors` of the vendor's, two at least.
std::vector<Contender*> finalists(std::vector<Contender>& ours, std::size_t vendors,
                                  const SearchContext& with) {
  std::sort(ours.begin(), ours.end(), [](const Contender& a, const Contender& b) { return faster(&a, &b); });
  std::size_t most = kFinalists;
  if (!ours.empty()) {
    const double rounds_us = kFewestVotes * ours.front().screen_us;
    const double in_time =
        1e6 * with.budget.left(Budget::Stage::final) / rounds_us - static_cast<double>(vendors);
    most = static_cast<std::size_t>(std::clamp(in_time, 2.0, static_cast<double>(kFinalists)));
  }
  std::vector<Contender*> best;
  for (Contender& one : ours) {
    if (best.size() == most || with.cancelled()) break;
    if (!one.executable) {
      Contender built = contender(*one.algorithm, one.config, with.problem, with.device, with.bed);
      built.screen_us = one.screen_us;
      one = std::move(built);
    }
    if (one.failure.empty()) best.push_back(&one);
  }
  return best;
}

// Replaces screening times by medians of rounds in turns.
void measure_again(const std::vector<Contender*>& contenders, const SearchContext& with) {
  std::vector<std::function<double()>> samplers;
  for (const Contender* one : contenders) samplers.push_back(with.bed.sampler(*one->executable));
  const auto results = measure_in_turns(samplers, kFinalSeconds, with.cancelled, kFewestVotes, kMostVotes,
                                        with.budget.late(Budget::Stage::final));
  for (std::size_t i = 0; i < contenders.size(); ++i)
    if (results[i].n > 0) contenders[i]->screen_us = results[i].median_us;
}

}  // namespace

bool faster(const Contender* a, const Contender* b) {
  return a->screen_us < b->screen_us;
}

Election elect(std::vector<Contender>& vendors, std::vector<Contender>& ours, const SearchContext& with) {
  std::vector<Contender*> near = fastest_vendors(vendors), best = finalists(ours, near.size(), with),
                          all = near;
  all.insert(all.end(), best.begin(), best.end());
  with.tell("final", static_cast<std::int64_t>(all.size()));
  if (near.size() > 1 || best.size() > 1) measure_again(all, with);
  std::sort(near.begin(), near.end(), faster);
  std::sort(best.begin(), best.end(), faster);
  Election elected;
  if (!near.empty()) elected.incumbent = near[0];
  if (!best.empty()) elected.finalist = *best[0];
  if (best.size() > 1) elected.runner_up = *best[1];
  return elected;
}

}  // namespace convtune
