// Configs with their estimates, from which an algorithm's list of candidates is made.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace convtune::cpu {

template <class Typed>
struct Ranked {
  double estimate;
  Typed config;
};

// Sorts by the estimate; equal ones keep their order.
template <class Typed>
void sort_ranked(std::vector<Ranked<Typed>>& ranked) {
  std::ranges::stable_sort(ranked, {}, &Ranked<Typed>::estimate);
}

// Keeps the first `most`.
template <class Typed>
void keep_first(std::vector<Ranked<Typed>>& ranked, std::size_t most) {
  if (ranked.size() > most) ranked.erase(ranked.begin() + static_cast<std::ptrdiff_t>(most), ranked.end());
}

// Moves the first `head` of which no more than `most` are of one kind to the front, and returns how many
// these are: configs of one kind are estimated alike and are wrong alike. The others keep their order.
template <class Typed, class Kind>
std::size_t mix_kinds(std::vector<Ranked<Typed>>& ranked, std::size_t head, std::size_t most,
                      const Kind& kind) {
  std::map<decltype(kind(ranked.front().config)), std::size_t> counts;
  const auto others = std::stable_partition(ranked.begin(), ranked.end(), [&](const Ranked<Typed>& one) {
    const bool joins = head > 0 && counts[kind(one.config)]++ < most;
    if (joins) --head;
    return joins;
  });
  return static_cast<std::size_t>(others - ranked.begin());
}

template <class Typed>
std::vector<Typed> configs_of(const std::vector<Ranked<Typed>>& ranked) {
  std::vector<Typed> configs;
  for (const Ranked<Typed>& one : ranked) configs.push_back(one.config);
  return configs;
}

// Sizes to try along an extent: `from`, twice that, and so on, those that are below it and up to `most`.
inline std::set<int> doubled(int from, std::int64_t extent, int most) {
  std::set<int> sizes;
  for (int size = from; size < extent && size <= most; size *= 2) sizes.insert(size);
  return sizes;
}

// Output channels of a task that a config can name, at most.
constexpr std::int64_t kMostTaskFilters = std::int64_t{1} << 24;

// Parts to try, in which tasks share a group's output channels.
inline std::set<int> filter_parts(std::int64_t filters) {
  return filters <= kMostTaskFilters ? std::set<int>{1, 2, 4} : std::set<int>{1};
}

}  // namespace convtune::cpu
