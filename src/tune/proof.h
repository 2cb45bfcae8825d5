// What came of a search's contest, in the words of its decision, and what makes it no proof. Used by tune().
#pragma once

#include <string>
#include <vector>

#include "convtune/contest.h"
#include "convtune/tuner.h"

namespace convtune {

// `chosen`: whichever of the two is used from now on.
std::string outcome(const ContestResult& result, const std::string& challenger, const std::string& incumbent,
                    const std::string& chosen);

// Ways of the vendor's that had no part in the contest, in so many words as a record has room for.
std::string listed(const std::vector<std::string>& ways);

// The incumbent is the vendor's best by few samples. Where another of its ways is clearly faster in the
// rounds of the table, the contest was not held with the best: that way's name, else nothing.
std::string better_than_incumbent(const Comparison& table, const std::string& incumbent, double min_gain);

}  // namespace convtune
