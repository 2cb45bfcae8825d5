// Chooses the problems, algorithms and configs that verify() checks. Nothing here needs the
// device: verify.cpp builds and checks them there, or compiles them elsewhere.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "contract/backend.h"
#include "convtune/verify.h"
#include "tune/ahead.h"

namespace convtune {

// Describes the device that the problems are to run on.
struct SweptDevice {
  const DeviceInfo& info;
  Precision of_f32;     // the precision that Precision::automatic of f32 tensors means there
  bool present = true;  // else its vendor's library is not asked
};

struct Draw {
  ConvProblem problem;
  std::vector<std::pair<const Algorithm*, Config>> chosen;
};

// Every config of every algorithm that the options ask for. Throws Error{invalid_argument} where they name
// one that cannot run the problem.
Draw all_candidates(const ConvProblem& problem, const SweptDevice& on, const VerifyOptions& options);

// Problem number `index` of the random sequence that `seed` starts, and what is checked of it.
Draw draw(std::uint64_t seed, std::uint64_t index, const SweptDevice& on, const VerifyOptions& options,
          StallWatch& stalls);

}  // namespace convtune
