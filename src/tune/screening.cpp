// See screening.h; why there is no child process: docs/decisions/0008-candidates-that-crash.md.
#include "tune/screening.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

#include "base/statistics.h"

namespace convtune {
namespace {

constexpr int kSamples = 3;             // short runs of a candidate
constexpr double kHopeless = 1.3;       // one sample this many times the best ends a candidate's screening
constexpr double kCoolSeconds = 0.25;   // before what was timed on a slowed device is timed again
constexpr double kLookSeconds = 1;      // between looks at the machine's pace,
constexpr double kLookShare = 0.05;     // of which no more than this share is spent looking
constexpr std::size_t kTimedAgain = 8;  // of the best, when the machine has another pace for good

std::string name_of(const Contender& one) {
  return std::string(one.algorithm->name());
}

}  // namespace

Screening::Screening(const Conv2dProblem& problem, const DeviceInfo& device, Testbed& bed, TrialLog& trials,
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
  const Trial* known = trials_.find(name, config, hash);
  if (known && !known->failure.empty()) return {&algorithm, config, nullptr, 0, known->failure, 0};
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
    if (!pace_) watch_pace(one);
    one.screen_us = time_us(one, best_us);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device_lost) {
      if (keep_) trials_.end(name, config, hash);
      throw;
    }
    write_down(one, error.what());
    throw Error(ErrorKind::device_lost,
                fmt::format("{} broke the device: {}; {}", one.text(), error.what(),
                            keep_ ? "it is quarantined, and the same command again goes on without it"
                                  : "let the trials be saved, or it will be tried again"));
  } catch (...) {  // no memory, say: this process lives, and may do so for long
    if (keep_) trials_.end(name, config, hash);
    throw;
  }
  return one;
}

// What was timed while heat or power slowed the device down is timed again, for as long as there is patience.
double Screening::time_us(const Contender& one, double best_us) {
  Testbed::Timed timed = bed_.prepare(*one.executable);
  while (true) {
    std::vector<double> samples;
    while (samples.size() < kSamples) {
      samples.push_back(timed.sample_us());
      if (best_us > 0 && samples.back() > kHopeless * best_us) break;
    }
    const std::string why = bed_.slowdown();
    if (why.empty()) return median(samples);
    const bool patient = patience_seconds_ >= kCoolSeconds;
    if (patient && !std::exchange(slowed_, true))
      warnings.push_back(fmt::format("{} was slowed down: {}; what was timed meanwhile was timed again",
                                     to_string(device_.device), why));
    if (!patient) {
      if (!std::exchange(slowed_for_long_, true))
        warnings.push_back(fmt::format(
            "{} was slowed down for longer than it was waited for: {}; some times are of a slower "
            "machine",
            to_string(device_.device), why));
      return median(samples);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(kCoolSeconds));
    patience_seconds_ -= kCoolSeconds;
  }
}

void Screening::ask_for_slowdown(const char* during) {
  if (const std::string why = bed_.slowdown(); !why.empty())
    warnings.push_back(fmt::format(
        "{} was slowed down during {}: {}; both sides took turns, but the times are of a slower machine",
        to_string(device_.device), during, why));
}

// On a GPU, whose clock falls with heat and power. (A CPU's pace changes with every neighbour: there rounds
// in turns must do.) Returns when the clock is steady.
void Screening::watch_pace(const Contender& reference) {
  if (device_.device.kind == Device::Kind::cpu) return;
  reference_ = reference;
  reference_run_ = bed_.prepare(*reference_.executable);
  pace_.emplace([this] { return reference_run_.sample_us(); },
                [](double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); },
                patience_seconds_);
}

Pace::Change Screening::look(const char* consequence) {
  const Pace::Change change = pace_ ? pace_->look() : Pace::Change::none;
  if (change != Pace::Change::none) {
    const std::string why = bed_.slowdown();
    warnings.push_back(fmt::format("{} changed its speed: {} took {:.0f} % {} time than before{}{}; {}",
                                   to_string(device_.device), reference_.text(),
                                   100 * std::abs(pace_->slowdown()), pace_->slowdown() > 0 ? "more" : "less",
                                   change == Pace::Change::passing ? ", for a while" : "",
                                   why.empty() ? "" : ", since " + why, consequence));
  }
  return change;
}

void Screening::keep_pace(std::vector<Contender>& screened, double now_seconds,
                          const std::function<bool()>& cancelled) {
  if (!pace_ || now_seconds < next_look_seconds_) return;
  const Pace::Change change = look("what was measured meanwhile was measured again");
  next_look_seconds_ = now_seconds + std::max(kLookSeconds, pace_->look_us() * 1e-6 / kLookShare);
  if (change != Pace::Change::none) {
    std::size_t of_before = 0;
    if (change == Pace::Change::lasting) {
      of_before = std::min(kTimedAgain, in_pace_);
      std::sort(screened.begin(), screened.begin() + static_cast<std::ptrdiff_t>(in_pace_),
                [](const Contender& a, const Contender& b) { return a.screen_us < b.screen_us; });
    }
    for (std::size_t i = 0; i < screened.size() && !cancelled(); ++i)
      if (i < of_before || i >= in_pace_) time_again(screened[i]);
  }
  in_pace_ = screened.size();
}

void Screening::time_again(Contender& one) {
  const Contender built = contender(*one.algorithm, one.config, problem_, device_, bed_);
  if (!built.failure.empty()) return;
  one.screen_us = time_us(built, 0);
  write_down(one, {});
}

void Screening::write_down(const Contender& one, const std::string& failure) {
  if (keep_)
    trials_.append(
        {name_of(one), one.config, one.algorithm->source_hash(), one.screen_us, one.max_error, failure});
}

}  // namespace convtune
