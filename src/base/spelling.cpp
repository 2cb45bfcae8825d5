// See convtune/spelling.h. Capital letters count as small ones.
#include "convtune/spelling.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace convtune {
namespace {

constexpr std::size_t kMostNamed = 3;
constexpr std::size_t kShortestPart = 3, kShortestStart = 4;  // letters: fewer are in too many names

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return result;
}

// Levenshtein's: insertions, deletions and substitutions from one to the other.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t substituted = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::size_t common_start(std::string_view a, std::string_view b) {
  const auto [end, ignored] = std::mismatch(a.begin(), a.begin() + std::min(a.size(), b.size()), b.begin());
  return static_cast<std::size_t>(end - a.begin());
}

// The names that a person may have meant, in their order.
std::vector<std::string> near(const std::string& text, const std::vector<std::string>& names) {
  std::vector<std::string> found;
  std::size_t least = text.size() / 3 + 1;
  for (const std::string& name : names)
    // A distance is never less than the difference in length, so a long text costs nothing here.
    if (text.size() < name.size() + least)
      if (const std::size_t distance = edit_distance(text, lower(name)); distance < least)
        least = distance, found.assign({name});
  if (!found.empty()) return found;
  if (text.size() >= kShortestPart)
    for (const std::string& name : names)
      if (lower(name).find(text) != name.npos) found.push_back(name);
  if (!found.empty()) return found;
  std::size_t longest = std::max(kShortestStart, text.size() / 2 + 1);
  for (const std::string& name : names) {
    const std::size_t common = common_start(text, lower(name));
    if (common > longest) found.clear();
    if (common >= longest) longest = common, found.push_back(name);
  }
  return found;
}

}  // namespace

std::string did_you_mean(std::string_view text, const std::vector<std::string>& names) {
  const std::vector<std::string> found = near(lower(text), names);
  if (found.empty()) return {};
  const std::size_t named = std::min(found.size(), kMostNamed);
  std::string list;
  for (std::size_t i = 0; i < named; ++i)
    list += fmt::format("{}'{}'", i == 0 ? "" : i + 1 == named ? " or " : ", ", found[i]);
  if (found.size() > named) list += fmt::format(", or another of {}", found.size());
  return fmt::format("did you mean {}?", list);
}

}  // namespace convtune
