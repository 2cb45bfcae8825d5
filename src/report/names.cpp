// Layers' names for tables and charts, which have little room.

#include <fmt/format.h>

#include <algorithm>

#include "convtune/report.h"

namespace convtune {
namespace {

constexpr std::string_view kSeparators = "/._:";
constexpr std::size_t kFewLetters = 24;  // names of no more are left as they are

// The beginning that all share, up to a separator and with it, so that no word is cut; it leaves something of
// each.
std::size_t common_begin(const std::vector<std::string>& names) {
  std::size_t size = names.front().size();
  for (const std::string& name : names) {
    const auto [end, other] =
        std::mismatch(names.front().begin(), names.front().end(), name.begin(), name.end());
    size = std::min({size, static_cast<std::size_t>(end - names.front().begin()), name.size() - 1});
  }
  const std::size_t last = size > 0 ? names.front().find_last_of(kSeparators, size - 1) : std::string::npos;
  return last == std::string::npos ? 0 : last + 1;
}

}  // namespace

ShortNames short_names(const std::vector<std::string>& names) {
  ShortNames found{names, {}};
  const auto is_long = [](const std::string& name) { return name.size() > kFewLetters; };
  const auto is_empty = [](const std::string& name) { return name.empty(); };
  if (std::none_of(names.begin(), names.end(), is_long) ||
      std::any_of(names.begin(), names.end(), is_empty) ||
      std::all_of(names.begin(), names.end(), [&](const std::string& name) { return name == names.front(); }))
    return found;
  const std::string begin = names.front().substr(0, common_begin(names));
  for (std::string& name : found.names) {
    name = name.substr(begin.size());
    std::reverse(name.begin(), name.end());
  }
  std::string end = found.names.front().substr(0, common_begin(found.names));
  for (std::string& name : found.names) {
    name = name.substr(end.size());
    std::reverse(name.begin(), name.end());
  }
  std::reverse(end.begin(), end.end());
  if (begin.empty() && end.empty()) return found;
  found.left_out = fmt::format(
      "Layers' names are without {}{}{}.", begin.empty() ? "" : fmt::format("“{}” in front", begin),
      begin.empty() || end.empty() ? "" : " and ", end.empty() ? "" : fmt::format("“{}” behind", end));
  return found;
}

}  // namespace convtune
