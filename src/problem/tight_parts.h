// Forward parts of backward data without outputs that lie outside of dx.
#pragma once

#include <vector>

#include "problem/forward_parts.h"

namespace convtune {

// The parts of forward_parts(), but that residues whose first positions differ are parts of their own where
// together they have a sixteenth of positions more: a filter of 4x4 with strides of 2 and padding of 1 takes
// 9 by 9 for 8 by 8.
std::vector<ForwardPart> tight_parts(const ConvProblem& problem, Cut cut = {});

}  // namespace convtune
