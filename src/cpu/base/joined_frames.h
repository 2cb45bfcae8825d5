// A cache joined to x before an algorithm runs that has no caches: one more copy of both.
#pragma once

#include <memory>

#include "contract/backend.h"

namespace convtune::cpu {

// An executable of `problem` by one of the joined problem (problem/rewrite.h): that itself without a cache.
std::unique_ptr<Executable> joining_frames(const ConvProblem& problem, std::unique_ptr<Executable> of_joined);

}  // namespace convtune::cpu
