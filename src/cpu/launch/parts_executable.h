// Runs a backward data problem, and so a transposed layer, as its forward parts (problem/forward_parts.h).
#pragma once

#include <memory>
#include <vector>

#include "contract/backend.h"
#include "problem/forward_parts.h"

namespace convtune::cpu {

struct BuiltPart {
  ForwardPart part;
  std::unique_ptr<Executable> executable;  // for part.problem
};

// The parts that the CPU computes; empty for other directions. Residues that no tap meets are no part where
// nothing but 0 is for them: without bias, residual and activation.
std::vector<ForwardPart> parts_of(const ConvProblem& problem);

// Weights are gathered before they are packed. What is not dx as it lies is computed into memory of the run's
// own and copied from there: such parts have no residual. Where there are residues without a tap, dx is
// zeroed first.
std::unique_ptr<Executable> parts_executable(const ConvProblem& problem, std::vector<BuiltPart> parts,
                                             int threads);

}  // namespace convtune::cpu
