// Notices that a machine has changed its speed, by one piece of work that is timed again and again: a GPU
// that grows hot or takes too much power lowers its clock, and what is measured then compares with nothing
// before.
#pragma once

#include <functional>

namespace convtune {

class Pace {
 public:
  static constexpr double kDrift = 0.05;         // a change of the work's time by this share counts
  static constexpr double kSteady = 0.01;        // two medians this near to each other are a steady clock
  static constexpr double kPatienceSeconds = 3;  // the most to wait for a steady clock, and for the old speed

  // `sample_us` does the work once and says how long it took; `wait` lets so many seconds go by. Works until
  // the clock is steady: that is the level.
  Pace(std::function<double()> sample_us, std::function<void(double)> wait,
       double patience_seconds = kPatienceSeconds);

  enum class Change {
    none,
    passing,  // there was one, and the machine is back at its level
    lasting,  // it did not come back: its speed now is the new level
  };
  // Does the work again and compares.
  Change look();

  double level_us() const { return level_us_; }
  double slowdown() const {
    return slowdown_;
  }  // what look() found last: 0.1 for 10 % more time; below 0: less
  double look_us() const { return kSamples * level_us_; }  // what a look costs where all is well

 private:
  static constexpr int kSamples = 3;
  double now_us();
  bool at_level(double us) const;

  std::function<double()> sample_us_;
  std::function<void(double)> wait_;
  double patience_seconds_;
  double level_us_ = 0, slowdown_ = 0;
};

}  // namespace convtune
