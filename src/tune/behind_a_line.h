// Times a chosen way on a CPU with tensors that begin within a line of the cache, as those of NumPy and
// std::vector do: a search measures them at lines. Called once by tune().
#pragma once

#include <string>

#include "tune/search_context.h"

namespace convtune {

// Returns words for the decision, or nothing where a sample takes too much of the budget and on GPUs. From
// then on the bed's tensors begin behind a line.
std::string told_behind_a_line(const Contender& chosen, const SearchContext& with);

}  // namespace convtune
