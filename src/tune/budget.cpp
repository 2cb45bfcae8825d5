// See budget.h.
#include "tune/budget.h"

#include <algorithm>
#include <chrono>

namespace convtune {
namespace {

constexpr double kVendorShare = 0.25, kFinalShare = 0.08, kLastStageShare = 0.15, kVerdictShare = 0.1;
// Runs that measuring in turns takes at least, and the most that is kept for them: 3 rounds of the best of
// both sides; a contest of 10 rounds of four and 5 rounds of a table.
constexpr double kFinalRuns = 15, kLongFinalShare = 0.15, kVerdictRuns = 55, kLongVerdictShare = 0.5;
constexpr double kSlack = 1.25;     // a stage that comes before a last stage ends a little late
constexpr double kMostInTurns = 4;  // seconds of measuring in turns: more makes no difference

double machine_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Budget::Budget(double seconds, std::function<double()> now_seconds)
    : total_(seconds), now_(now_seconds ? std::move(now_seconds) : machine_seconds) {
  begun_ = now_();
}

double Budget::spent() const {
  return std::max(0.0, now_() - begun_);  // a machine that was moved or stopped may set its clock back
}

double Budget::left() const {
  return std::max(0.0, total_ - spent());
}

double Budget::left(Stage stage) const {
  const double left = std::max(0.0, until(stage) - spent());
  return stage == Stage::vendor ? left / 2 : left;
}

double Budget::share(Stage stage) const {
  switch (stage) {
    case Stage::vendor:
      return kVendorShare * total_;
    case Stage::final:
      return std::max(std::min(kFinalShare * total_, kMostInTurns),
                      std::min(kFinalRuns * run_, kLongFinalShare * total_));
    case Stage::last_stage:
      return kSlack * last_stage_ <= kLastStageShare * total_ ? kSlack * last_stage_ : 0;
    case Stage::verdict:
      return std::max(std::min(kVerdictShare * total_, kMostInTurns),
                      std::min(kVerdictRuns * run_, kLongVerdictShare * total_));
    case Stage::search:
      break;
  }
  return total_;
}

// In seconds since it began.
double Budget::until(Stage stage) const {
  double end = total_;
  for (const Stage later : {Stage::verdict, Stage::last_stage, Stage::final}) {
    if (later <= stage) break;
    end -= share(later);
  }
  return end;
}

std::function<bool()> Budget::late(Stage stage) const {
  const double end = spent() + std::min(left(stage), share(stage));
  return [this, end] { return spent() >= end; };
}

}  // namespace convtune
