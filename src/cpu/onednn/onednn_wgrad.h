// The gradient of weights by oneDNN.
#pragma once

#include <memory>

#include "contract/backend.h"
#include "cpu/onednn/onednn_objects.h"

namespace convtune::cpu {

// `desc` is of this problem, whose batch is at least 1, and was made with as many threads.
std::unique_ptr<Executable> onednn_wgrad_executable(const ConvProblem& problem, OnednnPrimitiveDesc desc,
                                                    int threads);

}  // namespace convtune::cpu
