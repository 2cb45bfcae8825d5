// A problem as source code that stands alone: for who wants the kernel and not the library.
#pragma once

#include <string>

#include "convtune/problem.h"

namespace convtune {

struct ExportOptions {
  std::string module_name = "ModelNew";  // of the nn.Module; a Python name
};

// One Python file: imports, an autotuned Triton kernel, its wrapper, and an nn.Module that holds the layer as
// `conv1` and computes it by PyTorch off the GPU. Its autotune list is a start that was not measured for the
// problem; refine() goes on from a profile. Throws Error{unsupported} for what it cannot say: groups, NHWC,
// paddings that differ at the two ends.
std::string export_triton(const Conv2dProblem& problem, const ExportOptions& options = {});

}  // namespace convtune
