// The order in which a search tries its candidates: pure, so that it can be tested without a device.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convtune/convolution.h"

namespace convtune {

// One point of the joint search space of several algorithms.
struct Candidate {
  std::string algorithm;
  Config config;

  bool operator==(const Candidate&) const = default;
};

// An algorithm's candidate, and what a model says that it takes.
struct Forecast {
  Candidate candidate;
  std::optional<double> estimated_us;
};

// One list of several algorithms' lists, each of them most promising first: the first guess of every
// algorithm that is not forecast to be far off, the second and the third of those that are forecast to be
// near, if possible with two fields or more that are others than before; then always the best forecast among
// what stands next in its own list. Without forecasts the first guess of every algorithm, the second, and so
// on.
std::vector<Candidate> deal(const std::vector<std::vector<Forecast>>& of_each);

// Begins with the first guesses, then climbs: next is always the untried candidate nearest to the
// best so far (fewest fields that differ, then smallest steps, then the given order), but for every fourth:
// the next in the given order of another algorithm that was among the first guesses, the least tried of those
// that were tried fewer than three times or were seen to take at most twice the best time. Ends when every
// candidate was tried; whoever searches stops at a budget before that.
class Search {
 public:
  // candidates: most promising first. first_guesses: how many of them to try before climbing.
  explicit Search(std::vector<Candidate> candidates, std::size_t first_guesses = 12);

  // The candidate to try next; none when the search is over.
  std::optional<std::size_t> next();
  // Takes the outcome of a candidate: its time, or nothing if it failed or was pruned.
  void report(std::size_t index, std::optional<double> time_us);

  const std::vector<Candidate>& candidates() const { return candidates_; }
  std::size_t tried() const { return tried_; }
  std::optional<std::size_t> best() const { return best_; }
  double best_us() const { return best_us_; }

 private:
  std::optional<std::size_t> nearest_untried() const;
  std::optional<std::size_t> elsewhere() const;

  std::vector<Candidate> candidates_;
  std::vector<bool> seen_;
  std::size_t first_guesses_, tried_ = 0;
  std::map<std::string, double> least_us_;  // per algorithm that has a time
  std::optional<std::size_t> best_;
  double best_us_ = 0;
};

}  // namespace convtune
