// See screening.h; why there is no child process: docs/decisions/0008-candidates-that-crash.md.
#include "tune/screening.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/statistics.h"

namespace convtune {
namespace {

constexpr int kShortRuns = 3;      // short runs of a candidate
constexpr double kLongUs = 100e3;  // and no more runs than take so long
constexpr double kBoundMargin =
    1.2;                           // the ceilings behind a bound are measured, too: not trusted to the last
constexpr double kHopeless = 1.3;  // one sample this many times the best ends a candidate's screening
constexpr double kCoolSeconds = 0.25;  // before what was timed while the clock drifted is timed again

std::string name_of(const Contender& one) {
  return std::string(one.algorithm->name());
}

}  // namespace

bool hopeless(const Algorithm& algorithm, const Config& config, const ConvProblem& problem,
              const DeviceInfo& device, const Ceilings& ceilings, double best_us) {
  return best_us > 0 && algorithm.bound_us(problem, device, config, ceilings) > kBoundMargin * best_us;
}

Screening::Screening(const ConvProblem& problem, const DeviceInfo& device, Testbed& bed, TrialLog& trials,
                     bool keep, double patience_seconds)
    : problem_(problem),
      device_(device),
      bed_(bed),
      trials_(trials),
      keep_(keep),
      patience_seconds_(patience_seconds) {}

Contender Screening::attempt(const Algorithm& algorithm, const Config& config, double best_us) {
  const int deaths = trials_.deaths(std::string(algorithm.name()), config, algorithm.source_hash()).processes;
  if (deaths >= TrialLog::kMostDeaths) return deadly(algorithm, config, deaths);
  return run(algorithm, config, best_us);
}

Contender Screening::attempt_once(const Algorithm& algorithm, const Config& config) {
  if (const Trial* known = trials_.find(std::string(algorithm.name()), config, algorithm.source_hash())) {
    if (!known->failure.empty()) return {&algorithm, config, nullptr, 0, known->failure, 0};
    return contender(algorithm, config, problem_, device_, bed_);
  }
  Contender one = attempt(algorithm, config, 0);
  write_down(one, one.failure);
  return one;
}

Contender Screening::attempt_vendor(const Algorithm& algorithm, const Config& config) {
  const std::string name(algorithm.name()), hash = algorithm.source_hash();
  const auto [processes, searches] = trials_.deaths(name, config, hash);
  if (processes >= TrialLog::kMostDeaths && searches < processes - 1) {
    if (keep_) trials_.leave_out(name, config, hash);
    left_out.push_back(Contender{&algorithm, config, nullptr, 0, {}, 0}.text());
    return deadly(algorithm, config, processes);
  }
  Contender vendor = run(algorithm, config, 0);
  if (keep_) trials_.end(name, config, hash);  // a failure may be of this hour (memory, say)
  return vendor;
}

Contender Screening::deadly(const Algorithm& algorithm, const Config& config, int deaths) {
  return {&algorithm,
          config,
          nullptr,
          0,
          fmt::format("{} processes began it and died before it came to an end", deaths),
          0};
}

Contender Screening::run(const Algorithm& algorithm, const Config& config, double best_us) {
  const std::string name(algorithm.name()), hash = algorithm.source_hash();
  Contender one{&algorithm, config, nullptr, 0, {}, 0};
  if (keep_) trials_.start(name, config, hash);
  try {
    one = contender(algorithm, config, problem_, device_, bed_);
    if (!one.failure.empty()) return one;
    one.screen_us = time_us(one, best_us);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device_lost) {
      if (keep_) trials_.end(name, config, hash);
      throw;
    }
    // A vendor's way stays begun: its process ends with the device, and that counts as a death of it. Another
    // process or a memory error may be to blame, and a proof without the vendor's best way would be none.
    const bool quarantined = keep_ && !algorithm.vendor();
    if (quarantined) write_down(one, error.what());
    throw Error(ErrorKind::device_lost,
                fmt::format("{} broke the device: {}; {}", one.text(), error.what(),
                            quarantined ? "it is quarantined, and the same command again goes on without it"
                            : keep_ ? "the same command again tries it once more, and then does without it"
                                    : "let the trials be saved, or it will be tried again"));
  } catch (...) {  // no memory, say: this process lives, and may do so for long
    if (keep_) trials_.end(name, config, hash);
    throw;
  }
  return one;
}

// Whatever was timed while the clock drifted is timed again, for as long as there is patience.
double Screening::time_us(const Contender& one, double best_us) {
  Testbed::Timed timed = bed_.prepare(*one.executable);
  while (true) {
    std::vector<double> samples;
    for (double spent_us = 0; samples.size() < kShortRuns && spent_us < kLongUs; spent_us += samples.back()) {
      samples.push_back(timed.sample_us());
      if (best_us > 0 && samples.back() > kHopeless * best_us) break;
    }
    const bool patient = patience_seconds_ >= kCoolSeconds;
    if (!clock_drifts(patient ? "what was timed meanwhile was timed again"
                              : "it lasted, and some times are of a slower machine") ||
        !patient)
      return median(samples);
    std::this_thread::sleep_for(std::chrono::duration<double>(kCoolSeconds));
    patience_seconds_ -= kCoolSeconds;
  }
}

bool Screening::clock_drifts(const char* consequence) {
  const std::string why = bed_.clock_drift();
  if (!why.empty() && std::none_of(warnings.begin(), warnings.end(),
                                   [&](const std::string& one) { return one.ends_with(consequence); }))
    warnings.push_back(fmt::format("clock drift of {}: {}; {}", to_string(device_.device), why, consequence));
  return !why.empty();
}

void Screening::write_down(const Contender& one, const std::string& failure) {
  if (keep_)
    trials_.append(
        {name_of(one), one.config, one.algorithm->source_hash(), one.screen_us, one.max_error, failure});
}

}  // namespace convtune
