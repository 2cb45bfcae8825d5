// See search.h.
#include "tune/search.h"

#include <cmath>
#include <utility>

namespace convtune {
namespace {

// A first guess that is forecast to take kFarOff times the best one's time has no place before the others:
// the model was never wrong by as much between algorithms, and some such kernels take seconds to compile.
constexpr double kFarOff = 2;

// While the search climbs, one of kElsewhereEvery candidates is another algorithm's. A first guess may be
// poor, or disturbed: of 60 trials of a layer on a CPU one was of the algorithm that takes half of the time
// of all others, and in another search of it all first guesses took 16 ms, of which 2 are right.
constexpr std::size_t kElsewhereEvery = 4;

// So often an algorithm is tried before its times say that it is far off.
constexpr std::size_t kTrialsToJudge = 3;

// An algorithm whose best forecast is kNearEnough times the best of all may still be the fastest, and three
// of its configs are tried early. Of a layer on a GPU 10 of the first 12 guesses were of the way with the
// best forecasts, and the best of them took 1.29 times the time of the only one that was tried of another.
constexpr double kNearEnough = 1.5;

// Configs of an algorithm that are forecast to take up to kAlike times its best are as likely to be its
// fastest.
constexpr double kAlike = 1.15;

// Another algorithm is farther than any config of the same one.
double distance(const Candidate& a, const Candidate& b) {
  if (a.algorithm != b.algorithm || a.config.values.size() != b.config.values.size()) return 1e9;
  double sum = 0;
  for (std::size_t i = 0; i < a.config.values.size(); ++i) {
    const auto x = static_cast<double>(a.config.values[i].second),
               y = static_cast<double>(b.config.values[i].second);
    if (x != y) sum += 1 + 0.01 * std::abs(std::log2((x + 1) / (y + 1)));
  }
  return sum;
}

// One algorithm's list while it is dealt.
struct Hand {
  const std::vector<Forecast>& list;
  std::vector<bool> taken = std::vector<bool>(list.size(), false);
  std::size_t next = 0, dealt = 0;  // `next`: the first that is not taken

  bool done() const { return next == list.size(); }
  double us() const { return list[next].estimated_us.value_or(0); }
  double best_us() const { return list.front().estimated_us.value_or(0); }

  // Tells whether a config is no variant of one that was dealt: two fields or more are others.
  bool is_new(const Candidate& one) const {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (taken[i] && distance(list[i].candidate, one) < 2) return false;
    return true;
  }
  std::size_t first_new() const {
    for (std::size_t i = next; i < list.size(); ++i)
      if (!taken[i] && list[i].estimated_us.value_or(0) <= kAlike * best_us() && is_new(list[i].candidate))
        return i;
    return next;
  }
  const Candidate& take(std::size_t i) {
    taken[i] = true, ++dealt;
    while (next < list.size() && taken[next]) ++next;
    return list[i].candidate;
  }
};

}  // namespace

std::vector<Candidate> deal(const std::vector<std::vector<Forecast>>& of_each) {
  std::vector<Hand> hands;
  std::optional<double> best_us;
  bool blind = false;
  for (const std::vector<Forecast>& list : of_each) {
    if (list.empty()) continue;
    hands.push_back({list});
    const auto us = list.front().estimated_us;
    blind = blind || !us;
    if (us && (!best_us || *us < *best_us)) best_us = us;
  }
  // Lower goes first: who was not dealt yet and is not far off, then who is near and was dealt less than
  // kTrialsToJudge times; and where there are no forecasts, who was dealt less often.
  const auto turn = [&](const Hand& hand) -> std::size_t {
    if (blind) return hand.dealt;
    const double most = hand.dealt == 0 ? kFarOff : kNearEnough;
    return hand.dealt < kTrialsToJudge && hand.us() <= most * *best_us ? hand.dealt : kTrialsToJudge;
  };
  std::vector<Candidate> all;
  while (true) {
    Hand* chosen = nullptr;
    for (Hand& hand : hands) {
      if (hand.done()) continue;
      if (!chosen || turn(hand) < turn(*chosen) ||
          (turn(hand) == turn(*chosen) && !blind && hand.us() < chosen->us()))
        chosen = &hand;
    }
    if (!chosen) return all;
    const bool spreads = !blind && turn(*chosen) < kTrialsToJudge;
    all.push_back(chosen->take(spreads ? chosen->first_new() : chosen->next));
  }
}

Search::Search(std::vector<Candidate> candidates, std::size_t first_guesses)
    : candidates_(std::move(candidates)), seen_(candidates_.size(), false), first_guesses_(first_guesses) {}

std::optional<std::size_t> Search::nearest_untried() const {
  std::optional<std::size_t> nearest;
  double smallest = 0;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    if (seen_[i]) continue;
    const double d = best_ ? distance(candidates_[i], candidates_[*best_]) : 0;
    if (!nearest || d < smallest) {
      nearest = i;
      smallest = d;
    }
  }
  return nearest;
}

std::optional<std::size_t> Search::elsewhere() const {
  if (!best_) return std::nullopt;
  std::map<std::string, std::size_t> trials;
  for (std::size_t i = 0; i < candidates_.size(); ++i)
    if (seen_[i]) ++trials[candidates_[i].algorithm];
  std::optional<std::size_t> chosen;
  for (std::size_t i = 0; i < candidates_.size(); ++i) {
    const std::string& algorithm = candidates_[i].algorithm;
    if (seen_[i] || algorithm == candidates_[*best_].algorithm) continue;
    const std::size_t count = trials[algorithm];
    const auto least = least_us_.find(algorithm);
    const bool near = least != least_us_.end() && least->second <= kFarOff * best_us_;
    if (count == 0 || (count >= kTrialsToJudge && !near)) continue;
    if (!chosen || count < trials[candidates_[*chosen].algorithm]) chosen = i;
  }
  return chosen;
}

std::optional<std::size_t> Search::next() {
  std::optional<std::size_t> choice;
  if (tried_ < first_guesses_) {
    if (tried_ < candidates_.size()) choice = tried_;  // in the given order
  } else {
    if ((tried_ - first_guesses_) % kElsewhereEvery == kElsewhereEvery - 1) choice = elsewhere();
    if (!choice) choice = nearest_untried();
  }
  if (choice) {
    seen_[*choice] = true;
    ++tried_;
  }
  return choice;
}

void Search::report(std::size_t index, std::optional<double> time_us) {
  if (!time_us) return;
  const auto [least, first] = least_us_.try_emplace(candidates_[index].algorithm, *time_us);
  if (!first && *time_us < least->second) least->second = *time_us;
  if (!best_ || *time_us < best_us_) {
    best_ = index;
    best_us_ = *time_us;
  }
}

}  // namespace convtune
