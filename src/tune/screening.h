// One candidate of a search at a time: built, checked, timed shortly. Here a search survives what a candidate
// does to its process, and notices what the machine does meanwhile. Used by tune().
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "measure/pace.h"
#include "record/trials.h"
#include "tune/compare.h"

namespace convtune {

class Screening {
 public:
  // `keep` false: nothing is written to the trials. `patience_seconds`: how long the machine's pace may be
  // waited for.
  Screening(const Conv2dProblem& problem, const DeviceInfo& device, Testbed& bed, TrialLog& trials, bool keep,
            double patience_seconds = Pace::kPatienceSeconds);

  // Builds, checks and times a candidate. One that too many processes began and died of is not run: it has
  // failed. Throws Error{device_lost} for one that broke the device, when it is in quarantine.
  Contender attempt(const Algorithm& algorithm, const Config& config, double best_us);
  // As attempt(), and writes down what came of it. Where the trials know that already, it is built and
  // checked again, and a failure is not tried.
  Contender attempt_once(const Algorithm& algorithm, const Config& config);
  // Of what the vendor offers every search tries all, but for what once broke the device. A way that two
  // processes began and died of is left out of one search, of which three did of two, and so on, and then
  // tried again: processes are killed for many reasons, and the promise is against all that the vendor has.
  Contender attempt_vendor(const Algorithm& algorithm, const Config& config);

  // What came of a candidate: `failure` quarantines it.
  void write_down(const Contender& one, const std::string& failure);

  // A median of few; a sample that is hopeless beside the best (0: none yet) ends it.
  double time_us(const Contender& one, double best_us);

  // On a GPU, now and then: whether the machine is still as fast as it was. If not, what of `screened` was
  // measured since is measured again, and where it is to stay so, the best of before are, too.
  void keep_pace(std::vector<Contender>& screened, double now_seconds,
                 const std::function<bool()>& cancelled);
  // Looks at once. `consequence`: what is done about a change, for the warning.
  Pace::Change look(const char* consequence);

  // Warns where heat or power slow the device down just now.
  void ask_for_slowdown(const char* during);

  std::vector<std::string> warnings;  // about the machine's pace
  std::vector<std::string> left_out;  // of the vendor's ways, for the deaths of earlier searches

 private:
  static Contender deadly(const Algorithm& algorithm, const Config& config, int deaths);
  // As attempt(), whatever the trials know.
  Contender run(const Algorithm& algorithm, const Config& config, double best_us);
  void watch_pace(const Contender& reference);
  void time_again(Contender& one);

  const Conv2dProblem problem_;
  const DeviceInfo device_;
  Testbed& bed_;
  TrialLog& trials_;
  const bool keep_;
  double patience_seconds_;                        // that is left with a slowed device
  bool slowed_ = false, slowed_for_long_ = false;  // said
  Contender reference_;                            // what the pace is taken by
  Testbed::Timed reference_run_;
  std::optional<Pace> pace_;
  double next_look_seconds_ = 0;
  std::size_t in_pace_ = 0;  // of what was screened: measured while the machine was at its pace
};

}  // namespace convtune
