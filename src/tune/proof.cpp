// See proof.h; docs/decisions/0023-what-is-not-proven.md.
#include "tune/proof.h"

#include <fmt/format.h>

#include <algorithm>

namespace convtune {

std::string outcome(const ContestResult& result, const std::string& challenger, const std::string& incumbent,
                    const std::string& chosen) {
  if (!result.undecided) return fmt::format("{} against {}: {}", challenger, incumbent, result.reason);
  return fmt::format(
      "{} against {}: {}: not decided (a busy machine, a gain near what is asked, or a small budget); {} is "
      "used "
      "meanwhile, without proof, and the next tune holds the contest again",
      challenger, incumbent, result.finding, chosen);
}

std::string listed(const std::vector<std::string>& ways) {
  constexpr std::size_t kNamed = 8;
  std::string text;
  for (std::size_t i = 0; i < std::min(kNamed, ways.size()); ++i) text += (i > 0 ? ", " : "") + ways[i];
  return ways.size() > kNamed ? fmt::format("{} and {} more", text, ways.size() - kNamed) : text;
}

std::string better_than_incumbent(const Comparison& table, const std::string& incumbent, double min_gain) {
  constexpr double kClearly = 0.02;
  double best_us = 0, incumbent_us = 0;
  for (std::size_t i = 1; i < table.providers.size(); ++i) {
    if (table.providers[i].name == table.best_peer) best_us = table.providers[i].time_us;
    if (table.providers[i].name == incumbent) incumbent_us = table.providers[i].time_us;
  }
  return best_us < (1 - std::max(min_gain, kClearly)) * incumbent_us ? table.best_peer : std::string();
}

}  // namespace convtune
