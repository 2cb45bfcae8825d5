// A problem as source code that stands alone: for who wants the kernel and not the library.
#pragma once

#include <string>

#include "convtune/convolution.h"
#include "convtune/problem.h"
#include "convtune/target.h"

namespace convtune {

struct ExportOptions {
  std::string module_name = "ModelNew";  // of the nn.Module; a Python name
};

// One Python file: imports, an autotuned Triton kernel, its wrapper, and an nn.Module that holds the layer as
// `conv1` and computes it by PyTorch off the GPU. Its autotune list is a start that was not measured for the
// problem; refine() goes on from a profile. Throws Error{unsupported} for what it cannot say: groups, NHWC,
// paddings that differ at the two ends.
std::string export_triton(const ConvProblem& problem, const ExportOptions& options = {});

struct CudaExportOptions : ExportOptions {
  std::string algorithm;  // of ours; empty: as plan() chooses
  Config config;          // of that algorithm; empty: its first guess
};

struct CudaExport {
  std::string text;  // the file
  Plan plan;         // whose kernel it is
  std::string note;  // for people: where that is not what plan() chooses; else empty
};

// One Python file: CUDA C++ for the problem's exact extents with the config put in, built by PyTorch's
// load_inline for the device's architecture; its wrappers; and an nn.Module as above, which packs its weights
// when they change. The kernel is the plan's: tuned where there is a record. Where the plan is the vendor's
// library, which has no source, it is our first guess. Nothing is compiled and nothing runs. Throws
// Error{unsupported} where no algorithm of ours runs the problem, and for paddings that differ at the two
// ends.
CudaExport export_cuda(const ConvProblem& problem, Device device, const CudaExportOptions& options = {});
// For a GPU that need not be here: no record speaks of it.
CudaExport export_cuda(const ConvProblem& problem, const Target& target,
                       const CudaExportOptions& options = {});

}  // namespace convtune
