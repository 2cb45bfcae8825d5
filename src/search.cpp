// See search.h.
#include "search.h"

#include <utility>

namespace convtune {
namespace {

bool neighbours(const Candidate& a, const Candidate& b) {
  if (a.algorithm != b.algorithm || a.config.values.size() != b.config.values.size()) return false;
  int differences = 0;
  for (std::size_t i = 0; i < a.config.values.size(); ++i)
    differences += a.config.values[i] != b.config.values[i];
  return differences == 1;
}

}  // namespace

Search::Search(std::vector<Candidate> candidates, std::size_t first_guesses, std::size_t patience)
    : candidates_(std::move(candidates)),
      seen_(candidates_.size(), false),
      first_guesses_(first_guesses),
      patience_(patience) {}

std::optional<std::size_t> Search::untried_neighbour() const {
  if (!best_) return std::nullopt;
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (!seen_[i] && neighbours(candidates_[i], candidates_[*best_])) return i;
  return std::nullopt;
}

std::optional<std::size_t> Search::next() {
  std::optional<std::size_t> choice;
  if (tried_ >= first_guesses_) choice = untried_neighbour();
  if (!choice) {
    if (tried_ >= first_guesses_ && in_vain_ >= patience_) return std::nullopt;
    for (std::size_t i = 0; i < candidates_.size() && !choice; ++i)
      if (!seen_[i]) choice = i;
  }
  if (choice) {
    seen_[*choice] = true;
    ++tried_;
  }
  return choice;
}

void Search::report(std::size_t index, std::optional<double> time_us) {
  if (time_us && (!best_ || *time_us < best_us_)) {
    best_ = index;
    best_us_ = *time_us;
    in_vain_ = 0;
  } else {
    ++in_vain_;
  }
}

}  // namespace convtune
