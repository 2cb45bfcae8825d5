// How a search divides the seconds that it was given, with everything counted: what compiles, what is
// checked, what is measured. Pure but for its clock. Used by tune().
#pragma once

#include <functional>

namespace convtune {

// The stages in their order, and their shares of the whole:
//
//   vendor      a quarter   the vendor's ways, in the order of its heuristics; half of what is left, where
//                           beginning took long
//   search      the rest    candidates of our own; then what the vendor has left
//   final       8 %         the best of both in turns, at most 4 s; of long runs up to 15 %
//   last_stage  up to 15 %  only where what it is expected to take, and a quarter more, fits; else nothing
//                           is kept for it
//   verdict     10 %        the contest with the vendor and the table of times, at most 4 s; of long runs, of
//                           which it has no fewer, up to 50 %
//
// A stage leaves its rest to the next one. A share says when nothing new begins: a step that has begun is
// finished, the first of its kind is always taken, and the contest with the vendor is never left out.
class Budget {
 public:
  enum class Stage { vendor, search, final, last_stage, verdict };

  // Begins now. `now_seconds`: a clock that never goes back; none: the machine's.
  explicit Budget(double seconds, std::function<double()> now_seconds = {});

  double total() const { return total_; }
  double spent() const;
  double left() const;  // for the whole; 0 when it is over
  // Returns the time that this stage may still take so that the later stages keep their shares.
  double left(Stage stage) const;

  // Expected time of a run: measuring in turns needs a least number of runs.
  void expect_run(double seconds) { run_ = seconds; }
  // Sets the time that the last stage is expected to take; called again when more is known.
  void expect_last_stage(double seconds) { last_stage_ = seconds; }
  double expected_last_stage() const { return last_stage_; }
  // Tells whether it may begin: asked when its turn has come.
  bool last_stage_fits() const { return last_stage_ <= left(Stage::last_stage); }

  // For a stage that begins now and measures in turns: whether its own share is over, or what is left to it.
  std::function<bool()> late(Stage stage) const;

 private:
  double share(Stage stage) const;
  double until(Stage stage) const;

  double total_, begun_ = 0, run_ = 0, last_stage_ = 0;
  std::function<double()> now_;
};

}  // namespace convtune
