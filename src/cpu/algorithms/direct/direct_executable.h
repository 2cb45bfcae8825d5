// The direct convolution ready for one problem: windows are staged, multiplied and stored, and what is not
// finite is repaired.
#pragma once

#include <cstdint>
#include <memory>

#include "contract/backend.h"
#include "cpu/algorithms/direct/direct_geometry.h"

namespace convtune::cpu {

// l2_bytes: a core's second cache. An image that it does not keep is fetched ahead of its staging.
std::unique_ptr<Executable> direct_executable(const ConvProblem& problem, const DirectConfig& config,
                                              int threads, std::int64_t l2_bytes);

}  // namespace convtune::cpu
