// The fair fight that decides everything: incumbent against challenger, in interleaved rounds. For any two
// ways of doing the same work that can say how long they took.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convtune/interval.h"

namespace convtune {

// A sample's witness beside its time: how its threads fared.
struct Witness {
  bool interrupted = false;  // other work had the processors for a good part of it
  double processors = 0;  // that the threads kept busy: their processor time over its time; 0: nobody knows
};

// Load of the whole machine. `average`: threads that ran or waited for a processor, those that are measured
// among them, a mean over the last minute. `processors`: the machine's; 0: not a CPU, or nobody looked.
struct Load {
  double average = 0;
  int processors = 0;
};

struct ContestOptions {
  double min_gain = 0.02;    // accept only a gain proven to be at least this
  double confidence = 0.99;  // of the interval
  int min_rounds = 10;
  int max_rounds = 640;              // per that stays undecided: a plain answer takes 10
  double max_seconds = 10;           // by the sum of the times that the sides report; min_rounds come first
  std::function<bool()> cancelled;   // polled between rounds
  std::function<bool()> late;        // as max_seconds, by whatever clock: the next look is the last one
  std::function<Witness()> witness;  // of the sample that a side has just taken; none: nobody knows
};

struct ContestResult {
  double min_gain = 0, confidence = 0;  // as was asked for
  bool accepted = false;
  bool cancelled = false;
  bool undecided = false;  // the gain may be what was asked, or less: the interval holds both; or it is busy
  // Other work interrupted a quarter of a side's samples or more. Nothing is decided then where it
  // interrupted the sides by shares that differ as much, nor is a gain proven that the processor time does
  // not show.
  bool busy = false;
  // An undecided contest leans where the challenger is the faster side by three to one (the interval of the
  // gain that holds with 75 % lies above 0). That is no proof.
  bool leans_to_challenger = false;
  double gain = 0;  // median over rounds of 1 - challenger/incumbent: 0.10 = challenger takes 10 % less time
  Interval interval;                                          // around the median
  std::vector<double> incumbent_us, challenger_us;            // every sample, in order
  int incumbent_interrupted = 0, challenger_interrupted = 0;  // of them
  int rounds = 0;
  std::string finding;  // the numbers in words
  std::string reason;   // the same as one sentence that says who stays

  double incumbent_median_us() const, challenger_median_us() const;
};

// A contest by the names of its sides, as reports keep it.
struct HeldContest {
  std::string incumbent, challenger;
  ContestResult result;
};

// For a contest that is held because `undecided` others of the same two sides were: each is asked for half
// the doubt of the one before, so that all of them together accept a challenger that is no better than the
// incumbent less than once in 100 times, as one by itself does (contest.cpp).
ContestOptions once_more(ContestOptions options, std::int64_t undecided);

// One round is A B B A (incumbent, challenger, challenger, incumbent), which cancels a linear drift
// of the machine within the round. Each side is a callable that runs once and returns microseconds.
// Accepted when the lower end of the interval of the gain is at least min_gain, and above 0. Stops
// early when the interval lies wholly on one side of min_gain, but never before min_rounds. It looks
// at few fixed points and by a stricter interval than `confidence`, so that looking often does not
// turn noise into a win (contest.cpp); the A/A test in tests/unit holds the whole rule to < 1 %.
// Throws Error{internal} for a time that is not finite and above 0; what a side throws passes through.
ContestResult contest(const std::function<double()>& incumbent, const std::function<double()>& challenger,
                      const ContestOptions& options);

}  // namespace convtune
