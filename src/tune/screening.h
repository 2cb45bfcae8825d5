// One candidate of a search at a time: built, checked, timed shortly. Here a search survives what a candidate
// does to its process, and a drift of the clock. Used by tune().
#pragma once

#include <string>
#include <vector>

#include "record/trials.h"
#include "tune/compare.h"

namespace convtune {

// Tells whether a config cannot be as fast as `best_us` (0: none yet), whatever its kernel's quality.
bool hopeless(const Algorithm& algorithm, const Config& config, const ConvProblem& problem,
              const DeviceInfo& device, const Ceilings& ceilings, double best_us);

class Screening {
 public:
  static constexpr double kMostPatience = 3;

  // `keep` false: nothing is written to the trials. `patience_seconds`: how long may be waited in all for a
  // clock that drifts.
  Screening(const ConvProblem& problem, const DeviceInfo& device, Testbed& bed, TrialLog& trials, bool keep,
            double patience_seconds = kMostPatience);

  // Builds, checks and times a candidate. One that too many processes began and died of is not run: it has
  // failed. Throws Error{device_lost} for one that broke the device, when it is in quarantine.
  Contender attempt(const Algorithm& algorithm, const Config& config, double best_us);
  // Does what attempt() does, and writes down what came of it. A config that the trials know is built and
  // checked again, unless it failed.
  Contender attempt_once(const Algorithm& algorithm, const Config& config);
  // Every search tries all that the vendor offers. A way that two processes began and died of, or lost the
  // device by, is left out of one search, one that three died of is left out of two, and so on. Then it is
  // tried again: processes are killed and devices lost for many reasons, and the promise is against all that
  // the vendor has.
  Contender attempt_vendor(const Algorithm& algorithm, const Config& config);

  // Writes the outcome of a candidate to the trials; a `failure` quarantines it.
  void write_down(const Contender& one, const std::string& failure);

  // A median of few, of long runs of one; a sample that is hopeless beside the best (0: none yet) ends it.
  double time_us(const Contender& one, double best_us);

  // Warns, once of each consequence, where the clock is lowered just now: whether it is.
  bool clock_drifts(const char* consequence);

  std::vector<std::string> warnings;  // about the clock
  std::vector<std::string>
      left_out;  // the vendor's ways that have no part in it, for deaths of earlier searches

 private:
  static Contender deadly(const Algorithm& algorithm, const Config& config, int deaths);
  // Does what attempt() does, whatever the trials know.
  Contender run(const Algorithm& algorithm, const Config& config, double best_us);

  const ConvProblem problem_;
  const DeviceInfo device_;
  Testbed& bed_;
  TrialLog& trials_;
  const bool keep_;
  double patience_seconds_;  // that is left
};

}  // namespace convtune
