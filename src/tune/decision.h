// The end of a search: the contest of its finalist with the vendor, the table of times, and what is chosen,
// in words (docs/decisions/0023-what-is-not-proven.md). Called once by tune().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "convtune/tuner.h"
#include "tune/election.h"

namespace convtune {

struct Decision {
  Contender chosen;
  Comparison comparison;       // with its plan and the decision
  std::int64_t undecided = 0;  // contests in a row, with this one
  bool proven = false;
  std::optional<HeldContest> contest;  // with the vendor
};

// `vendor_ways`: how many the vendor has, of which `vendors` were tried. `undecided`: contests in a row
// before this one. Where it is cancelled, what is returned is not complete.
Decision decide(const Election& elected, const std::vector<Contender>& vendors, std::size_t vendor_ways,
                std::int64_t undecided, const SearchContext& with);

// Names up to eight of the vendor's ways that had no part in the contest, and counts the others.
std::string listed(const std::vector<std::string>& ways);

}  // namespace convtune
